//! Why a sweep did not run to its end.

use std::fmt;
use std::path::PathBuf;

/// Why a sweep or a merge cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The plan cannot be read or makes no sense.
    #[error("the plan {} cannot be run: {why}", .file.display())]
    Plan {
        /// The plan.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The directory holds the points of another plan.
    #[error(
        "{} belongs to another plan: it is of {had}, this one is {now} (the plan, a file it names, its part or \
         the program changed); name another directory, or give --restart to throw its {done} points away",
        .path.display()
    )]
    OtherPlan {
        /// The journal.
        path: PathBuf,
        /// The identity of the plan it was begun for.
        had: String,
        /// The identity of the plan that is to be run.
        now: String,
        /// How many points it holds.
        done: usize,
    },
    /// Another program is at it.
    #[error(
        "{} is being written by another program; wait for it, stop it, or name another directory",
        .path.display()
    )]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// Not a journal at all.
    #[error("{} is not the journal of a sweep: its first line does not say so; name another file", .path.display())]
    Journal {
        /// The file.
        path: PathBuf,
    },
    /// The system refused a file.
    #[error("cannot {what} {}", .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The parts are not of one sweep.
    #[error("{} and {} do not belong together; merge the parts of one plan run by one program", .0[0], .0[1])]
    Mixed(Box<[Part; 2]>),
    /// A point is in two parts.
    #[error(
        "point {point} is in {} and in {}; name each part once",
        .first.display(), .second.display()
    )]
    Twice {
        /// The point.
        point: u64,
        /// One journal.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Parts or points are missing.
    #[error(
        "{missing} of {points} points are missing ({which}); run the parts they are in, or give --partial to \
             merge what is there"
    )]
    Missing {
        /// How many are missing.
        missing: u64,
        /// How many the plan has.
        points: u64,
        /// The first of them, and in which parts.
        which: String,
    },
    /// No journal.
    #[error("there is no journal of a sweep in {}; name a directory that `tanada sim sweep --out` wrote, or journals", .directory.display())]
    NoJournal {
        /// Where none was found.
        directory: PathBuf,
    },
    /// A measured value that was asked for is none of those there are.
    #[error(
        "'{name}' was not measured at point {point}; there are {known}; ask for one of them, or run without it and \
         ask when all points are done"
    )]
    NotMeasured {
        /// What was asked for.
        name: String,
        /// The first point that was measured.
        point: u64,
        /// What was measured there.
        known: String,
    },
    /// Threads or files for results could not be had.
    #[error("{0}")]
    Other(String),
}

/// A journal, and what it is of.
#[derive(Debug)]
pub struct Part {
    /// The journal.
    pub path: PathBuf,
    /// The identity of its plan.
    pub plan: String,
    /// The version of the program that ran it.
    pub program: String,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part {
            path,
            plan,
            program,
        } = self;
        write!(f, "{} (plan {plan}, program {program})", path.display())
    }
}

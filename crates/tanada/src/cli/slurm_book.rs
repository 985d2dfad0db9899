//! The booking of a job: made before it starts, ended when it is over.
//!
//! ```text
//! setup:   the job's user -> note
//! book:    lines of the script + squeue -> slurm-CLUSTER-JOB, for the time limit and a minute -> note
//! release: note -> end it; no note: look for the name; not there: done
//! ```
//!
//! A note (`STATE/jobs/JOB`) says whose the job is and which booking it has. It saves questions and is no promise: a
//! note that is lost costs a look through all bookings.
//!
//! Always true:
//! 1. What concerns one job is done under its lock, so that a booking is never ended while it is being made.
//! 2. All of it can be repeated: Slurm does so after a crash.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base::Nanos;
use report::terminal::said;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::client::ClientError;
use super::reservation_service::{Changed, Made, Service, Which};
use super::reservation_wanted::shown;
use super::reservation_words as words;
use super::slurm_directives::Directives;
use super::slurm_jobs::Job;
use super::slurm_settings::Settings;
use crate::api::reservation::{
    AllotmentAsk, ReservationAsk, ReservationChange, ReservationTarget, WholeReservation,
};
use crate::daemon::common::when;

/// A booking lasts so much longer than its job may run: it starts after the booking, and takes time to end.
pub const SLACK: Nanos = Nanos::secs(60);
/// For so long a job without a time limit is booked at a time; `tanada slurm reap` renews it.
pub const WITHOUT_LIMIT: Nanos = Nanos::secs(86400);
/// Between two tries where the daemon does not answer.
const PAUSE: Duration = Duration::from_secs(2);
/// Jobs share this many lock files: files come and go with jobs, and a lock on one that is gone locks nothing.
const LOCKS: u32 = 64;

/// What is known of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its user, as Slurm said when it was set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Whose its booking is; absent: the caller's own, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The booking's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
}

/// The lock of a job, held until dropped, and its note.
pub struct JobLock {
    path: PathBuf,
    _lock: File,
}

impl JobLock {
    /// Waits for the lock of a job.
    ///
    /// # Errors
    /// The folder of notes cannot be used.
    pub fn take(settings: &Settings, job: u32) -> anyhow::Result<JobLock> {
        let folder = &settings.state;
        let said = || {
            format!(
                "cannot keep notes about jobs in {}; make it, and give it to the user that runs Slurm's hooks",
                folder.display()
            )
        };
        let notes = folder.join("jobs");
        fs::create_dir_all(&notes).with_context(said)?;
        let path = folder.join(format!("lock-{}", job % LOCKS));
        let lock = File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(said)?;
        lock.lock().with_context(said)?;
        Ok(JobLock {
            path: notes.join(job.to_string()),
            _lock: lock,
        })
    }

    /// What is noted; a note that cannot be read is none.
    pub fn note(&self) -> Note {
        let text = fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn write(&self, note: &Note) -> anyhow::Result<()> {
        let said = || format!("cannot write the note {}", self.path.display());
        let new = self.path.with_extension("new");
        let mut file = File::create(&new).with_context(said)?;
        file.write_all(&serde_json::to_vec(note)?)
            .with_context(said)?;
        fs::rename(&new, &self.path).with_context(said)
    }

    fn forget(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                eprintln!("tanada: the note {} stays: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// The jobs about which there are notes.
pub fn noted(settings: &Settings) -> Vec<u32> {
    let files = fs::read_dir(settings.state.join("jobs"))
        .into_iter()
        .flatten();
    let number = |file: fs::DirEntry| file.file_name().to_str()?.parse().ok();
    files.flatten().filter_map(number).collect()
}

/// Notes whose a job is.
///
/// # Errors
/// The note cannot be written.
pub fn setup(settings: &Settings, job: u32, user: u32) -> anyhow::Result<()> {
    let held = JobLock::take(settings, job)?;
    let note = Note {
        user: Some(user),
        ..held.note()
    };
    held.write(&note)
}

/// How long the booking of a job lasts from now on.
pub fn span(job: &Job) -> Nanos {
    match job.limit_seconds {
        None => WITHOUT_LIMIT,
        Some(seconds) => Nanos(Nanos::secs(seconds).0 + SLACK.0),
    }
}

/// Books what a job asks for, for `span` from now on.
///
/// # Errors
/// It does not fit, or the daemon does not answer; the sentence is for the job's user.
pub fn book(
    settings: &Settings,
    job: &Job,
    wanted: &Directives,
    span: Nanos,
) -> anyhow::Result<WholeReservation> {
    let held = JobLock::take(settings, job.id)?;
    let note = held.note();
    if note.user.is_some_and(|user| user != job.user) {
        bail!(
            "job {} was set up for another user than it runs for",
            job.id
        );
    }
    let account = settings.account_of(&job.user_name, &job.account);
    let account = account.map_err(|why| anyhow!("job {}: {why}", job.id))?;
    // Before the booking, so that it can be found by its name.
    let mut note = Note {
        user: Some(job.user),
        account: account.clone(),
        booking: None,
    };
    held.write(&note)?;
    let asked = ReservationAsk {
        allotment: settings.pool.allotment.clone().map(AllotmentAsk::Inside),
        agent: settings.agent.account.clone(),
        ..wanted.ask(settings.booking(job.id), account, span)
    };
    let service = settings.service()?;
    let made = patiently(settings.wait(), || made(&service, &asked, wanted, span))?;
    note.booking = Some(made.id.clone());
    held.write(&note)?;
    Ok(made)
}

/// Makes a booking, or has one that is there be as it is wanted.
fn made(
    service: &Service,
    asked: &ReservationAsk,
    wanted: &Directives,
    span: Nanos,
) -> anyhow::Result<WholeReservation> {
    let refused = |refusal| anyhow!("{}", words::refused_line(&refusal));
    let existing = match service.create(asked)? {
        Made::New(made) => return Ok(made),
        Made::Refused(refusal) => return Err(refused(refusal)),
        Made::Existing(existing) => existing,
    };
    let which = Which {
        id: &existing.id,
        account: None,
    };
    if !is_as_wanted(&existing, asked, wanted) {
        // Of a job of that number before Slurm's numbers began anew.
        service.delete(which)?;
        return match service.create(asked)? {
            Made::New(made) => Ok(made),
            Made::Existing(other) => bail!("{} is there already, for something else", other.name),
            Made::Refused(refusal) => Err(refused(refusal)),
        };
    }
    let end = (when::now().0 + span.0) / Nanos::secs(1).0;
    if existing.until_unix_seconds + SLACK.0 / Nanos::secs(2).0 >= end {
        return Ok(existing);
    }
    // Of the same job before it was put back into the queue.
    match service.change(which, &until(span))? {
        Changed::Done(made) => Ok(*made),
        Changed::Refused(refusal) => Err(refused(refusal)),
        Changed::Absent => bail!("{} ended while it was renewed", existing.name),
    }
}

/// A change of the end alone.
pub fn until(span: Nanos) -> ReservationChange {
    ReservationChange {
        span: Some(shown(span)),
        ..ReservationChange::default()
    }
}

/// Is it for the same target, at the same rates?
fn is_as_wanted(one: &WholeReservation, asked: &ReservationAsk, wanted: &Directives) -> bool {
    let rates = (one.read_bytes_per_second, one.write_bytes_per_second);
    let target = ReservationTarget {
        // Which node has an export is not asked.
        node: asked.target.node.clone(),
        ..one.target.clone()
    };
    target == asked.target && rates == wanted.rates()
}

/// Ends the booking of a job; none is fine.
///
/// # Errors
/// The daemon does not answer.
pub fn release(settings: &Settings, job: u32) -> anyhow::Result<()> {
    let held = JobLock::take(settings, job)?;
    release_held(settings, job, &held)
}

/// As [`release`], under the job's lock.
pub fn release_held(settings: &Settings, job: u32, held: &JobLock) -> anyhow::Result<()> {
    let note = held.note();
    let name = settings.booking(job);
    let service = settings.service()?;
    patiently(settings.wait(), || end(&service, &name, &note, settings))?;
    held.forget();
    Ok(())
}

fn end(service: &Service, name: &str, note: &Note, settings: &Settings) -> anyhow::Result<()> {
    // By its id alone another one of that name would stay.
    if let Some(id) = &note.booking {
        service.delete(Which { id, account: None })?;
    }
    if note.account.is_some() || settings.account.is_empty() {
        let account = note.account.as_deref();
        service.delete(Which { id: name, account })?;
        return Ok(());
    }
    for one in service
        .list()?
        .iter()
        .filter(|one| one.name == name && is_live(one))
    {
        let (id, account) = (one.id.as_str(), None);
        service.delete(Which { id, account })?;
    }
    Ok(())
}

/// Does it hold, or is it to hold, anything?
pub fn is_live(one: &WholeReservation) -> bool {
    !["ended", "aborted"].contains(&one.state.as_str())
}

/// Tries again for `wait` while the daemon does not answer. What it refuses is an answer.
fn patiently<T>(wait: Duration, work: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let end = Instant::now() + wait;
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let may_pass = error
            .downcast_ref::<ClientError>()
            .is_some_and(ClientError::may_pass);
        if !may_pass || Instant::now() + PAUSE >= end {
            return Err(error);
        }
        eprintln!("tanada: {}; trying again", said::words(&error));
        pause(PAUSE)?;
    }
}

/// Lets time pass.
pub fn pause(span: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async { tokio::time::sleep(span).await });
    Ok(())
}

/// Reads the script of a job; what is no text in it is no directive.
///
/// # Errors
/// The file cannot be read, or its lines make no sense.
pub fn of_script(settings: &Settings, script: &Path) -> anyhow::Result<Option<Directives>> {
    let text = fs::read(script).with_context(|| format!("cannot read {}", script.display()))?;
    let text = String::from_utf8_lossy(&text);
    super::slurm_directives::of_script(&text, &settings.pool.name)
        .map_err(|why| anyhow!("{}: {why}", script.display()))
}

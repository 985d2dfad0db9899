//! `tanada slurm ...`: jobs of Slurm that have reserved throughput.
//!
//! ```text
//! burst_buffer.lua -> setup, book, release, status          Prolog, Epilog -> prolog, epilog
//! timers           -> pools, reap                           TaskProlog     -> task-prolog -> agent
//! people           -> install, check
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::Nanos;
use clap::{Args, Subcommand};
use report::terminal::Usage;
use report::terminal::said::words as words_of;

use super::reservation_words as words;
use super::show;
use super::slurm_agent;
use super::slurm_book::{self as book, SLACK};
use super::slurm_directives::{Directives, is_ours, of_comment};
use super::slurm_install::{Install, install};
use super::slurm_jobs::{Job, Slurm as Queue, State};
use super::slurm_pools as pools;
use super::slurm_reap::reap;
use super::slurm_settings::{SETTINGS_FILE, Settings};
use crate::daemon::common::when;

#[derive(Debug, Args)]
pub struct Slurm {
    /// The settings of this cluster.
    #[arg(long, env = "TANADA_SLURM", default_value = SETTINGS_FILE, value_name = "FILE", global = true)]
    settings: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write burst_buffer.lua beside slurm.conf, and settings where there are none.
    Install(Install),
    /// Check the `#BB_LUA tanada` lines of a job's script.
    Check {
        /// The script.
        script: PathBuf,
    },
    /// Print the pool that jobs are counted against.
    Pools {
        /// Write it to a file [default: the file of the settings]
        #[arg(long, value_name = "FILE", num_args = 0..=1)]
        write: Option<Option<PathBuf>>,
    },
    /// Print what jobs of this cluster have booked.
    Status,
    /// Note whose a job is; slurm_bb_setup.
    Setup {
        job: u32,
        /// The user it runs for.
        #[arg(long, value_name = "UID")]
        uid: u32,
    },
    /// Book what a job's script asks for; slurm_bb_pre_run.
    Book {
        job: u32,
        /// The job's script.
        #[arg(long, value_name = "FILE")]
        script: PathBuf,
    },
    /// End the booking of a job; slurm_bb_job_teardown.
    Release { job: u32 },
    /// Book what a job's comment asks for; Prolog, as root.
    Prolog,
    /// End what Prolog booked; Epilog, as root.
    Epilog,
    /// Print the environment of a job's capability; TaskProlog, as the job's user.
    TaskProlog,
    /// Answer capabilities to the users of the jobs on this node.
    Agent,
    /// End bookings whose job is gone, renew those whose job may run longer; for a timer.
    Reap,
}

/// Runs one of them.
pub fn run(slurm: Slurm) -> anyhow::Result<()> {
    let file = slurm.settings;
    let settings = || Settings::read(&file);
    match slurm.command {
        Command::Install(arguments) => show::text(&install(&arguments, &file)?),
        Command::Check { script } => check(&settings()?, &script),
        Command::Pools { write } => {
            let settings = settings()?;
            let text = pools::pools(&settings)?;
            match write {
                None => show::text(&text),
                Some(file) => pools::write(&text, file.as_ref().unwrap_or(&settings.pool.file)),
            }
        }
        Command::Status => show::text(&pools::status(&settings()?)?),
        Command::Setup { job, uid } => book::setup(&settings()?, job, uid),
        Command::Book { job, script } => before(&settings()?, job, &script),
        Command::Release { job } => book::release(&settings()?, job),
        // Jobs that want nothing of this do not depend on it.
        Command::Prolog if !is_ours(&comment()) => Ok(()),
        Command::Prolog => prolog(&settings()?),
        Command::Epilog => epilog(&settings()?),
        Command::TaskProlog => task_prolog(settings()),
        Command::Agent => slurm_agent::serve(settings()?),
        Command::Reap => {
            let done = reap(&settings()?)?;
            if done.failed > 0 {
                return Err(anyhow!(
                    "{} of this cluster's bookings could not be seen to",
                    done.failed
                ));
            }
            Ok(())
        }
    }
}

fn check(settings: &Settings, script: &Path) -> anyhow::Result<()> {
    let wanted = book::of_script(settings, script).map_err(|error| Usage(error.to_string()))?;
    show::text(&match wanted {
        None => "it reserves nothing\n".to_owned(),
        Some(wanted) => {
            let target = wanted.ask(String::new(), None, SLACK).target;
            let (read, write) = wanted.rates();
            format!(
                "it reserves {} of {}\n",
                words::rates(read, write),
                words::target(&target)
            )
        }
    })
}

/// Books what a job's script asks for.
fn before(settings: &Settings, job: u32, script: &Path) -> anyhow::Result<()> {
    let Some(wanted) = book::of_script(settings, script)? else {
        return Ok(());
    };
    let job = job_of(settings, job)?;
    let made = book::book(settings, &job, &wanted, book::span(&job))?;
    eprintln!("reserved {}", words::sentence(&made));
    Ok(())
}

fn job_of(settings: &Settings, job: u32) -> anyhow::Result<Job> {
    let found = Queue::new(settings.slurm_bin.clone()).job(job)?;
    found.ok_or_else(|| anyhow!("there is no job {job}"))
}

/// What Slurm says about the job in the environment of its scripts.
fn said(key: &str) -> anyhow::Result<String> {
    std::env::var(key).with_context(|| format!("{key} is not set: Slurm runs this, not a person"))
}

fn job_id() -> anyhow::Result<u32> {
    let id = said("SLURM_JOB_ID")?;
    id.parse()
        .with_context(|| format!("SLURM_JOB_ID is '{id}'"))
}

/// Books on the first node of a job that comes here; the others find the booking. What fails puts the job back into the
/// queue, and not the node out of service, as a Prolog that fails does: any user may write an odd comment.
fn prolog(settings: &Settings) -> anyhow::Result<()> {
    let id = job_id()?;
    let (why, held) = match commented(settings) {
        Ok(None) => return Ok(()),
        Err(mistake) => (mistake, true),
        Ok(Some(wanted)) => match book_now(settings, id, &wanted) {
            Ok(()) => return Ok(()),
            Err(error) => (error, false),
        },
    };
    let why = words_of(&why);
    eprintln!("tanada: job {id}: {why}");
    Queue::new(settings.slurm_bin.clone()).put_back(id, held, &why)
}

fn book_now(settings: &Settings, id: u32, wanted: &Directives) -> anyhow::Result<()> {
    let (job, span) = match started() {
        Some((job, end)) => (job, Nanos(end.0.saturating_sub(when::now().0) + SLACK.0)),
        None => {
            let job = job_of(settings, id)?;
            let span = book::span(&job);
            (job, span)
        }
    };
    let made = book::book(settings, &job, wanted, span)?;
    eprintln!("reserved {}", words::sentence(&made));
    Ok(())
}

fn comment() -> String {
    std::env::var("SLURM_JOB_COMMENT").unwrap_or_default()
}

fn commented(settings: &Settings) -> anyhow::Result<Option<Directives>> {
    of_comment(&comment(), &settings.pool.name).map_err(|why| anyhow!("the job's comment: {why}"))
}

/// From Slurm 23.02 on its scripts are told when the job's time is over: no question to the controller.
fn started() -> Option<(Job, Nanos)> {
    let var = |key: &str| std::env::var(key).ok();
    let end: u64 = var("SLURM_JOB_END_TIME")?.parse().ok()?;
    let job = Job {
        id: job_id().ok()?,
        user: var("SLURM_JOB_UID")?.parse().ok()?,
        user_name: var("SLURM_JOB_USER")?,
        state: State::Runs,
        limit_seconds: None,
        end_unix_seconds: Some(end),
        account: var("SLURM_JOB_ACCOUNT").unwrap_or_default(),
    };
    Some((job, Nanos::secs(end)))
}

/// What fails here is said: an Epilog that fails takes its node out of service.
fn epilog(settings: &Settings) -> anyhow::Result<()> {
    let job = job_id()?;
    let user = std::env::var("SLURM_JOB_UID")
        .ok()
        .and_then(|user| user.parse().ok());
    if let Some(file) = user.and_then(|user| settings.capability_file(job, user)) {
        let removed = remove_if_there(&file);
        let folder = file.parent().unwrap_or(Path::new("/"));
        if let Err(error) = removed.and_then(|()| remove_old(settings, folder)) {
            eprintln!("tanada: job {job}: {}", words_of(&error));
        }
    }
    match commented(settings) {
        // Its Prolog booked nothing either.
        Ok(None) | Err(_) => {}
        Ok(Some(_)) => {
            // `tanada slurm reap` ends what stays.
            if let Err(error) = book::release(settings, job) {
                eprintln!("tanada: job {job}: {}", words_of(&error));
            }
        }
    }
    Ok(())
}

/// Removes files of jobs whose own Epilog did not run, as those that a controller lost: a day later, to ask Slurm seldom.
fn remove_old(settings: &Settings, folder: &Path) -> anyhow::Result<()> {
    const OLD: Duration = Duration::from_secs(86400);
    let begin = format!("tanada-{}-", settings.cluster);
    let slurm = Queue::new(settings.slurm_bin.clone());
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(&begin)?.split_once('.')?.0.parse().ok());
        let changed = file.metadata().and_then(|meta| meta.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD));
        let Some(job) = number.filter(|_| is_old) else {
            continue;
        };
        if slurm.job(job)?.is_none_or(|job| job.state == State::Over) {
            remove_if_there(&file.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// A job that has a booking fails without its capability; one that has none is not touched.
fn task_prolog(settings: anyhow::Result<Settings>) -> anyhow::Result<()> {
    let is_booked = std::env::var_os("TANADA_RESERVATION").is_some();
    let asked = || {
        let (settings, job) = (settings?, job_id()?);
        let capability = slurm_agent::ask(&settings, job)?;
        let Some(capability) = capability else {
            return Ok(None);
        };
        let user = rustix::process::geteuid().as_raw();
        let shown = match settings.capability_file(job, user) {
            None => capability,
            Some(file) => in_file(&capability, &file)?,
        };
        anyhow::Ok(Some((settings.booking(job), shown)))
    };
    match asked() {
        Ok(Some((booking, capability))) => show::text(&format!(
            "export TANADA_RESERVATION={booking}\nexport TANADA_CAPABILITY={capability}\n"
        )),
        Ok(None) => Ok(()),
        Err(error) if is_booked => Err(error),
        Err(_) => Ok(()),
    }
}

/// Puts a capability into a file that its user alone reads; how it is named in the environment. Each task of a job does so:
/// all see it whole.
fn in_file(capability: &str, file: &Path) -> anyhow::Result<String> {
    let said = || format!("cannot write {}", file.display());
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    // Never one that another user made: a link, or a file that stays readable to others.
    let mut opened = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .with_context(said)?;
    let written = writeln!(opened, "{capability}").and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // What failed counts.
        let _ = fs::remove_file(&new);
    }
    written.with_context(said)?;
    Ok(format!("@{}", file.display()))
}

//! `tanada slurm agent`: on a compute node, a job's own user has the capability of its booking, and no other user does.
//!
//! ```text
//! task prolog, as the user -> "JOB\n" -> peer's user = the job's user, by squeue? -> capability of slurm-CLUSTER-JOB
//! ```
//!
//! Slurm logs and keeps what its burst buffers put into a job's environment, so capabilities take this way. The agent
//! needs no privilege of the system: a user of its own with a token that may read the bookings' capabilities.
//!
//! Always true:
//! 1. Who asks is known from the kernel (`SO_PEERCRED`); nothing that was sent counts for it.
//! 2. A connection ends after some seconds, and one user holds a part of them at most.
//! 3. Capabilities are kept in memory alone, for seconds, and stand in no log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use env::net::Address;
use report::terminal::said;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::reservation_service::Which;
use super::slurm_book::pause;
use super::slurm_jobs::{Slurm, State};
use super::slurm_settings::Settings;
use crate::daemon::common::socket_folder;

/// How long a peer may take to ask, and to take the answer.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of one user at a time: a node starts its tasks together.
const PER_USER: usize = 256;
/// And of all.
const ALL: usize = 2048;
/// Tasks of one job that start together ask once. A job that is put back into the queue waits longer than this.
const KEPT: Duration = Duration::from_secs(10);
/// A question is a number and a line end.
const QUESTION_MAX: u64 = 16;
/// How long a task asks an agent that is busy.
const ASKING: Duration = Duration::from_secs(60);

/// What a task is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The capability set of its booking.
    Capability(String),
    /// It has no booking, or one that needs no capability, as that of a volume.
    Nothing,
    /// It is none of this user's, or cannot be answered.
    Refused(String),
    /// Ask again.
    Busy,
}

/// What is known of a job: whose it is, and what its tasks are answered.
type Found = Result<(u32, Answer), String>;
/// Filled by the first who asks, while others of the same job wait.
type Slot = Arc<Mutex<Option<(Instant, Found)>>>;

struct Agent {
    settings: Settings,
    jobs: Mutex<BTreeMap<u32, Slot>>,
    /// Connections by user.
    open: Mutex<BTreeMap<u32, usize>>,
}

/// Answers until the process is ended.
///
/// # Errors
/// It cannot listen.
#[expect(
    clippy::disallowed_methods,
    reason = "each task is answered by a thread: squeue and the daemon are waited for"
)]
pub fn serve(settings: Settings) -> anyhow::Result<()> {
    let listener = listen(&settings)?;
    eprintln!(
        "tanada: jobs have their capabilities at {}",
        settings.agent.listen.display()
    );
    let agent = Arc::new(Agent {
        settings,
        jobs: Mutex::default(),
        open: Mutex::default(),
    });
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of file descriptors: connections end within seconds.
            pause(Duration::from_millis(100))?;
            continue;
        };
        let agent = Arc::clone(&agent);
        std::thread::spawn(move || agent.attend(&stream));
    }
    Ok(())
}

fn listen(settings: &Settings) -> anyhow::Result<UnixListener> {
    let path = &settings.agent.listen;
    let said = || format!("cannot listen at {}", path.display());
    socket_folder::make(&Address::Unix(path.clone()))?;
    if UnixStream::connect(path).is_ok() {
        bail!("an agent listens at {} already", path.display());
    }
    // What a dead one left. A file that is no socket stays, and is in the way.
    if fs::symlink_metadata(path)
        .is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()))
    {
        fs::remove_file(path).with_context(said)?;
    }
    let listener = UnixListener::bind(path).with_context(said)?;
    // Any user may ask.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).with_context(said)?;
    Ok(listener)
}

/// A thread that panicked with it has changed nothing by halves.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    fn attend(&self, stream: &UnixStream) {
        let Ok(peer) = socket_peercred(stream) else {
            return;
        };
        let user = peer.uid.as_raw();
        let answer = match self.enter(user) {
            true => {
                let answer = self.answer(stream, user);
                self.leave(user);
                answer
            }
            false => Answer::Busy,
        };
        let mut stream = stream;
        if let Ok(text) = serde_json::to_string(&answer) {
            // A peer that went away needs no answer.
            let _ = stream.set_write_timeout(Some(PEER_TIMEOUT));
            let _ = stream.write_all(format!("{text}\n").as_bytes());
        }
    }

    fn enter(&self, user: u32) -> bool {
        let mut open = locked(&self.open);
        let (own, all) = (
            open.get(&user).copied().unwrap_or(0),
            open.values().sum::<usize>(),
        );
        let may = own < PER_USER && all < ALL;
        if may {
            open.insert(user, own + 1);
        }
        may
    }

    fn leave(&self, user: u32) {
        let mut open = locked(&self.open);
        match open.get_mut(&user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                open.remove(&user);
            }
        }
    }

    fn answer(&self, stream: &UnixStream, user: u32) -> Answer {
        let asked = || -> anyhow::Result<u32> {
            stream.set_read_timeout(Some(PEER_TIMEOUT))?;
            let mut line = String::new();
            BufReader::new(stream.take(QUESTION_MAX)).read_line(&mut line)?;
            Ok(line.trim_end().parse()?)
        };
        let Ok(job) = asked() else {
            return Answer::Refused(
                "a question is the number of a job, within some seconds".to_owned(),
            );
        };
        match self.found(job) {
            Ok((owner, answer)) if owner == user => answer,
            // Whose it is, or whether there is one, is none of this user's business.
            Ok(_) => Answer::Refused(format!("user {user} has no job {job} that runs")),
            Err(why) => Answer::Refused(why),
        }
    }

    /// What is known of a job, found out if it was not within the last seconds.
    fn found(&self, job: u32) -> Found {
        let slot = {
            let mut jobs = locked(&self.jobs);
            // Slots that another thread holds are in use.
            jobs.retain(|_, slot| {
                Arc::strong_count(slot) > 1
                    || locked(slot)
                        .as_ref()
                        .is_some_and(|(at, _)| at.elapsed() < KEPT)
            });
            Arc::clone(jobs.entry(job).or_default())
        };
        let mut slot = locked(&slot);
        if let Some((at, found)) = &*slot
            && at.elapsed() < KEPT
        {
            return found.clone();
        }
        let found = self.find(job).map_err(|error| {
            let why = said::words(&error);
            eprintln!("tanada: job {job}: {why}");
            why
        });
        *slot = Some((Instant::now(), found.clone()));
        found
    }

    fn find(&self, id: u32) -> anyhow::Result<(u32, Answer)> {
        let slurm = Slurm::new(self.settings.slurm_bin.clone());
        let job = slurm.job(id)?.filter(|job| job.state == State::Runs);
        // One answer for jobs that are not there and those of others.
        let Some(job) = job else {
            return Ok((u32::MAX, Answer::Nothing));
        };
        let account = self.settings.account_of(&job.user_name, &job.account);
        let account = account.map_err(|why| anyhow!(why))?;
        let name = self.settings.booking(id);
        let service = self.settings.service()?;
        let which = Which {
            id: &name,
            account: account.as_deref(),
        };
        // Volumes and exports are not opened by capabilities.
        let booking = service
            .get(which)?
            .filter(|one| !one.target.stores.is_empty());
        let answer = match booking
            .map(|_| service.capability(which))
            .transpose()?
            .flatten()
        {
            Some(booking) => booking
                .capability
                .map_or(Answer::Nothing, Answer::Capability),
            None => Answer::Nothing,
        };
        Ok((job.user, answer))
    }
}

/// Asks the node's agent for a job's capability set; `None`: there is none.
///
/// # Errors
/// No agent answers, or it refuses.
pub fn ask(settings: &Settings, job: u32) -> anyhow::Result<Option<String>> {
    let path = settings.agent.listen.display();
    let end = Instant::now() + ASKING;
    loop {
        match ask_once(settings, job).with_context(|| format!("no agent answers at {path}"))? {
            Answer::Capability(capability) if is_plain(&capability) => return Ok(Some(capability)),
            Answer::Capability(_) => bail!("the agent at {path} answers what is no capability"),
            Answer::Nothing => return Ok(None),
            Answer::Refused(why) => bail!("the agent at {path} refuses: {why}"),
            Answer::Busy if Instant::now() > end => bail!("the agent at {path} is busy"),
            Answer::Busy => pause(Duration::from_millis(200))?,
        }
    }
}

fn ask_once(settings: &Settings, job: u32) -> anyhow::Result<Answer> {
    let mut stream = UnixStream::connect(&settings.agent.listen)?;
    stream.set_read_timeout(Some(ASKING))?;
    stream.write_all(format!("{job}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// It becomes a line of a script's environment.
fn is_plain(capability: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-=+/".contains(&byte);
    !capability.is_empty() && capability.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_holds_a_part_of_all_connections_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slurm.toml");
        fs::write(&file, "cluster = \"c1\"").unwrap();
        let agent = Agent {
            settings: Settings::read(&file).unwrap(),
            jobs: Mutex::default(),
            open: Mutex::default(),
        };
        for _ in 0..PER_USER {
            assert!(agent.enter(1000));
        }
        assert!(!agent.enter(1000));
        assert!(agent.enter(1001));
        agent.leave(1000);
        assert!(agent.enter(1000));
    }

    #[test]
    fn what_would_change_an_environment_is_no_capability() {
        assert!(is_plain("tanadaset1.eyJz-_="));
        for odd in ["", "a b", "a\nunset PATH", "a;b", "ü"] {
            assert!(!is_plain(odd), "{odd:?}");
        }
    }
}

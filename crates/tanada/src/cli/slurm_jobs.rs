//! What Slurm says about its jobs: `squeue` and `scontrol`, asked in forms whose fields no user can forge.
//!
//! ```text
//! squeue -o "JOB UID USER STATE LIMIT END ACCOUNT" -> jobs        scontrol show config -> cluster, SlurmUser
//! ```
//!
//! Always true: an answer that is not understood, and a controller that does not answer, are errors; a job that is not
//! listed is one that a controller which answers does not have.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};

/// Job, user's number and name, state, time limit, end, account. The account comes last: Slurm may let a user choose it.
const FORMAT: &str = "%A %U %u %T %l %e %a";
/// What `squeue` says of a job that is not there.
const NO_JOB: &str = "Invalid job id";

/// A job as Slurm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: u32,
    pub user: u32,
    pub user_name: String,
    pub state: State,
    /// How long it may run, in seconds; `None`: for ever.
    pub limit_seconds: Option<u64>,
    /// When its time is over, if it runs and has a limit.
    pub end_unix_seconds: Option<u64>,
    pub account: String,
}

/// Where a job stands, as far as its booking depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does not run, and may.
    Waits,
    /// It runs, is about to, or its end is not complete.
    Runs,
    /// It has ended.
    Over,
}

impl State {
    fn of(word: &str) -> State {
        match word {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" => {
                State::Waits
            }
            // A job that has ended and whose hooks have not: after a controller was killed, for ever.
            "STAGE_OUT" => State::Over,
            "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL"
            | "OUT_OF_MEMORY" | "PREEMPTED" | "REVOKED" | "TIMEOUT" => State::Over,
            _ => State::Runs,
        }
    }
}

/// What of Slurm's configuration counts here.
#[derive(Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    /// The user whose questions have whole answers, beside root.
    pub slurm_user: u32,
}

/// Slurm's commands.
pub struct Slurm {
    bin: Option<PathBuf>,
}

impl Slurm {
    pub fn new(bin: Option<PathBuf>) -> Slurm {
        Slurm { bin }
    }

    fn command(&self, name: &str) -> Command {
        let path = self
            .bin
            .as_ref()
            .map_or(PathBuf::from(name), |bin| bin.join(name));
        let mut command = Command::new(path);
        // What a user may set to see less of the queue, or another cluster's.
        for (key, _) in std::env::vars_os() {
            let word = key.to_string_lossy();
            if word.starts_with("SQUEUE_") || word == "SLURM_CLUSTERS" {
                command.env_remove(&key);
            }
        }
        command
            .env("SLURM_TIME_FORMAT", "%s")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn squeue(&self, more: &[&str]) -> anyhow::Result<Option<Vec<Job>>> {
        let mut command = self.command("squeue");
        command
            .args(["--noheader", "--all", "--states=all", "--format", FORMAT])
            .args(more);
        let done = command.output().context("cannot run squeue")?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr);
            if why.contains(NO_JOB) {
                return Ok(None);
            }
            bail!("squeue does not say which jobs there are: {}", why.trim());
        }
        jobs(&String::from_utf8_lossy(&done.stdout)).map(Some)
    }

    /// All jobs that the controller knows.
    pub fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        let all = self.squeue(&[])?;
        all.ok_or_else(|| anyhow!("squeue names no job to be invalid"))
    }

    /// One job.
    pub fn job(&self, id: u32) -> anyhow::Result<Option<Job>> {
        let found = self.squeue(&["--jobs", &id.to_string()])?;
        Ok(found
            .unwrap_or_default()
            .into_iter()
            .find(|job| job.id == id))
    }

    /// Puts a job that is about to start back into the queue, with the reason; held: until it is released by hand.
    ///
    /// # Errors
    /// The controller does not answer, or the job starts all the same.
    pub fn put_back(&self, id: u32, held: bool, why: &str) -> anyhow::Result<()> {
        let job = id.to_string();
        let verb = if held { "requeuehold" } else { "requeue" };
        let done = self
            .command("scontrol")
            .args([verb, &job])
            .output()
            .context("cannot run scontrol")?;
        // Another node of the job may have been first.
        if !done.status.success() && self.job(id)?.is_some_and(|job| job.state == State::Runs) {
            let said = String::from_utf8_lossy(&done.stderr);
            bail!(
                "scontrol does not put the job back into the queue: {}",
                said.trim()
            );
        }
        let comment = format!("AdminComment=tanada: {why}");
        let job = format!("JobId={job}");
        // For people who look why: the job waits in any case.
        let _ = self
            .command("scontrol")
            .args(["update", &job, &comment])
            .output();
        Ok(())
    }

    /// How the controller is configured.
    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        let mut command = self.command("scontrol");
        let done = command
            .args(["show", "config"])
            .output()
            .context("cannot run scontrol")?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr);
            bail!(
                "scontrol does not show how Slurm is configured: {}",
                why.trim()
            );
        }
        cluster(&String::from_utf8_lossy(&done.stdout))
    }
}

fn jobs(text: &str) -> anyhow::Result<Vec<Job>> {
    let odd = |line: &str| anyhow!("squeue says '{line}' of a job, which is not understood");
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| job(line).ok_or_else(|| odd(line)))
        .collect()
}

fn job(line: &str) -> Option<Job> {
    let mut words = line.splitn(7, ' ');
    let mut next = || words.next();
    Some(Job {
        id: next()?.parse().ok()?,
        user: next()?.parse().ok()?,
        user_name: next()?.to_owned(),
        state: State::of(next()?),
        limit_seconds: limit(next()?)?,
        end_unix_seconds: next()?.parse().ok(),
        account: next()?.trim_end().to_owned(),
    })
}

/// `10:00`, `1:00:00`, `2-01:00:00`, `UNLIMITED`: the outer `None` is what is none of them.
#[expect(
    clippy::option_option,
    reason = "no limit is not the same as no answer"
)]
fn limit(text: &str) -> Option<Option<u64>> {
    if ["UNLIMITED", "NOT_SET", "INVALID", "n/a"].contains(&text) {
        return Some(None);
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0;
    for part in clock.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    Some(Some(days.parse::<u64>().ok()? * 86400 + seconds))
}

fn cluster(text: &str) -> anyhow::Result<Cluster> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim())
    };
    let name = value("ClusterName").map(str::to_owned);
    // `slurm(64030)`.
    let user = value("SlurmUser")
        .and_then(|user| user.rsplit_once('(')?.1.strip_suffix(')')?.parse().ok());
    match (name, user) {
        (Some(name), Some(slurm_user)) => Ok(Cluster { name, slurm_user }),
        _ => bail!("scontrol show config names no ClusterName or no SlurmUser"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_and_what_is_odd_in_it_is_an_error() {
        let text = "7 1000 ann RUNNING 10:00 1795345200 astro\n8 1001 bob PENDING UNLIMITED N/A (null)\n\
                    9 1001 bob COMPLETING 2-01:00:00 1795345200 a b c \n10 1001 bob CANCELLED 1:00:00 N/A x\n\
                    11 1001 bob STAGE_OUT 1:00:00 1795345200 x\n";
        let all = jobs(text).unwrap();
        assert_eq!(
            (all[0].id, all[0].user, all[0].user_name.as_str()),
            (7, 1000, "ann")
        );
        assert_eq!(
            (all[0].limit_seconds, all[0].end_unix_seconds),
            (Some(600), Some(1_795_345_200))
        );
        assert_eq!(
            (all[1].limit_seconds, all[1].end_unix_seconds),
            (None, None)
        );
        assert_eq!(
            (all[2].limit_seconds, all[2].account.as_str()),
            (Some(176_400), "a b c")
        );
        let states: Vec<State> = all.iter().map(|job| job.state).collect();
        assert_eq!(
            states,
            [
                State::Runs,
                State::Waits,
                State::Runs,
                State::Over,
                State::Over
            ]
        );
        assert_eq!(jobs("").unwrap(), []);
        for odd in [
            "7",
            "x 1 a RUNNING 1:00 1 a",
            "7 1000 ann RUNNING soon N/A a",
        ] {
            assert!(jobs(odd).unwrap_err().to_string().contains(odd), "{odd}");
        }
    }

    #[test]
    fn the_cluster_and_its_user_are_read_from_the_configuration() {
        let text = "Configuration data as of 2026\nClusterName             = c1\nSlurmUser               = slurm(64030)\n";
        let read = cluster(text).unwrap();
        assert_eq!((read.name.as_str(), read.slurm_user), ("c1", 64030));
        assert!(cluster("ClusterName = c1").is_err());
    }
}

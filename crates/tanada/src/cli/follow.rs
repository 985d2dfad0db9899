//! Following a job of the daemon until it ends: a bar on a terminal, else a line each 10 s.
//!
//! ```text
//! job -> asked for again and again -> shown -> done | failed, cancelled: an error
//!                  \-> Ctrl-C: it goes on, and how to see it is said
//! ```

use std::process;
use std::time::Duration;

use anyhow::{Context, anyhow};
use report::terminal::progress::Shown;
use report::terminal::table::size;
use serde::de::DeserializeOwned;

use super::client::Client;
use super::frame::uptime;
use crate::api::job::Job;
use crate::daemon::common::when;
use policy::share::Second;

/// Between two questions.
const EVERY: Duration = Duration::from_millis(300);
/// As a shell says that Ctrl-C ended a command.
const INTERRUPTED: i32 = 130;

/// Waits for the end of a job, and shows how far it is.
///
/// # Errors
/// It failed, was cancelled, or ended with the daemon.
pub fn follow(client: &Client, id: u64) -> anyhow::Result<Job> {
    let mut interrupts = client.interrupts()?;
    let mut shown = Shown::new();
    let mut spent = Duration::ZERO;
    let mut known: Option<Job> = None;
    loop {
        let job: Job = client.get(&path(id))?;
        if known.as_ref().is_some_and(|known| !is_same(known, &job)) {
            shown.end();
            return Err(anyhow!(
                "the daemon was started anew, and job {id} is another one now; `tanada job list` shows those that run"
            ));
        }
        if job.state != "running" {
            shown.end();
            return ended(job);
        }
        shown.at((job.done, job.total), spent, &line(&job));
        if client.wait_or_interrupted(EVERY, &mut interrupts) {
            shown.end();
            eprintln!("it goes on: tanada job show {id}");
            process::exit(INTERRUPTED);
        }
        spent += EVERY;
        known = Some(job);
    }
}

/// As [`follow`]; answers what the job did, as its request would have been answered.
///
/// # Errors
/// Those of [`follow`]; the daemon keeps the result from this user.
pub fn result<T: DeserializeOwned>(client: &Client, id: u64) -> anyhow::Result<T> {
    let done = follow(client, id)?;
    let result = done.result.unwrap_or_default();
    serde_json::from_value(result)
        .with_context(|| format!("job {id} is done, and its result is not shown"))
}

/// Where a job is asked for.
pub fn path(id: u64) -> String {
    format!("/v1/jobs/{id}")
}

/// Is it the same piece of work? Numbers begin anew with the daemon.
fn is_same(known: &Job, now: &Job) -> bool {
    let of = |job: &Job| (job.kind.clone(), job.name.clone(), job.begun_unix_seconds);
    of(known) == of(now)
}

fn ended(job: Job) -> anyhow::Result<Job> {
    let what = format!("the {} of {}", job.kind, job.name);
    match job.state.as_str() {
        "done" => Ok(job),
        "cancelled" => Err(anyhow!("{what} was cancelled")),
        _ => Err(anyhow!("{what} failed: {}", job.words)),
    }
}

/// How far a job is, in a line.
pub fn line(job: &Job) -> String {
    let mut line = format!("{} of {}: {}", job.kind, job.name, far(job));
    if let Some(left) = job.left_seconds {
        line += &format!(", {} left", span(left));
    }
    if !job.words.is_empty() {
        line += &format!("; {}", job.words);
    }
    line
}

/// `12 MiB of 64 MiB`.
pub fn far(job: &Job) -> String {
    match (job.unit.as_str(), job.total) {
        (_, 0) => "begun".to_owned(),
        ("bytes", total) => format!("{} of {}", size(job.done), size(total)),
        ("percent", _) => format!("{} %", job.done),
        (unit, total) => format!("{} of {total} {unit}", job.done),
    }
}

/// A span in its two largest units, to the second: `1h 30m`.
pub fn span(seconds: f64) -> String {
    uptime(seconds.round())
}

/// A moment as people read it.
pub fn moment(unix_seconds: f64) -> String {
    when::shown(Second(unix_seconds as u64))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn job(json: &str) -> Job {
        let mut whole = serde_json::json!({
            "id": 3, "kind": "scrub", "object": "store", "name": "s0", "begun_unix_seconds": 7.0, "state": "running",
            "unit": "bytes", "done": 1 << 20, "total": 4 << 20, "words": "", "cancellable": true
        });
        let more: serde_json::Map<_, _> = serde_json::from_str(json).unwrap();
        whole.as_object_mut().unwrap().extend(more);
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_line_says_how_far_a_job_is_and_what_time_is_left() {
        let cases = [
            ("{}", "scrub of s0: 1.0 MiB of 4.0 MiB"),
            (
                r#"{"left_seconds": 3725.2}"#,
                "scrub of s0: 1.0 MiB of 4.0 MiB, 1h 2m left",
            ),
            (
                r#"{"kind": "drain", "unit": "volumes", "done": 1, "total": 3, "words": "it has something of a, b"}"#,
                "drain of s0: 1 of 3 volumes; it has something of a, b",
            ),
            (
                r#"{"kind": "calibrate", "unit": "percent", "done": 40, "total": 100}"#,
                "calibrate of s0: 40 %",
            ),
            (r#"{"total": 0}"#, "scrub of s0: begun"),
        ];
        for (json, said) in cases {
            assert_eq!(line(&job(json)), said);
        }
        let spans = [0.2, 59.6, 3_600.0, 90_061.0].map(span);
        assert_eq!(spans, ["0s", "1m", "1h", "1d 1h"]);
    }

    #[test]
    fn a_job_of_a_later_daemon_is_another_one() {
        let known = job("{}");
        assert!(is_same(&known, &job(r#"{"done": 7}"#)));
        assert!(!is_same(&known, &job(r#"{"begun_unix_seconds": 8.0}"#)));
        assert!(!is_same(&known, &job(r#"{"name": "s1"}"#)));
    }

    #[test]
    fn only_a_job_that_is_done_is_no_error() {
        let end = |json| {
            ended(job(json))
                .map(|job| job.id)
                .map_err(|it| it.to_string())
        };
        assert_eq!(end(r#"{"state": "done"}"#), Ok(3));
        let failed = end(r#"{"state": "failed", "words": "no room"}"#);
        assert_eq!(failed, Err("the scrub of s0 failed: no room".to_owned()));
        let cancelled = end(r#"{"state": "cancelled"}"#);
        assert_eq!(cancelled, Err("the scrub of s0 was cancelled".to_owned()));
    }
}

//! `tanada job ...`: the long work of a daemon, listed, followed, cancelled.

use std::time::Duration;

use clap::Subcommand;
use hyper::Method;
use report::terminal::table::table;

use super::ask::Ask;
use super::client::Client;
use super::follow::{self, far, moment, path, span};
use super::show;
use crate::api::job::Job as Shown;

/// How long a job that was told to stop is waited for.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub enum Job {
    /// List the jobs that run, and those that ended within a day.
    #[command(
        visible_alias = "ls",
        after_help = "At most 100 that ended are kept, and none over a restart of the daemon. What goes on over a restart, as the \
                      drain of a store does, is a new job then."
    )]
    List(Ask),
    /// Show how far a job is, or how it ended; with --wait until it has.
    #[command(
        visible_alias = "info",
        after_help = "With --wait, exit status 1 if it failed or was cancelled. Ctrl-C leaves it running."
    )]
    Show {
        /// Its number, as `tanada job list` has it.
        id: u64,
        /// Follow it to its end.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Have a job stop where it is, if it can be: a scrub, or the drain of a store.
    #[command(
        after_help = "A scrub goes on there when it is begun again; what a drain moved stays where it is. Others are refused, with \
                      exit status 5."
    )]
    Cancel {
        /// Its number, as `tanada job list` has it.
        id: u64,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of them.
pub fn run(command: Job) -> anyhow::Result<()> {
    match command {
        Job::List(ask) => {
            let jobs: Vec<Shown> = Client::new(ask.admin)?.get("/v1/jobs")?;
            show::answer(ask.json, &jobs, || list(&jobs))
        }
        Job::Show { id, wait, ask } => {
            let client = Client::new(ask.admin)?;
            let job = match wait {
                true => follow::follow(&client, id)?,
                false => client.get(&path(id))?,
            };
            show::answer(ask.json, &job, || page(&job))
        }
        Job::Cancel { id, ask } => {
            let client = Client::new(ask.admin)?;
            let job = cancel(&client, id)?;
            show::answer(ask.json, &job, || match job.state.as_str() {
                "running" => format!("job {id} is being cancelled: `tanada job show {id}`\n"),
                state => format!("job {id} is {state}\n"),
            })
        }
    }
}

/// The job after it was told to stop, and had some time to.
fn cancel(client: &Client, id: u64) -> anyhow::Result<Shown> {
    let nothing = serde_json::Map::new();
    let mut job: Shown = client.send_json(Method::DELETE, &path(id), &nothing)?;
    let mut waited = Duration::ZERO;
    while job.state == "running" && waited < STOPS_WITHIN {
        client.wait(LOOK);
        waited += LOOK;
        job = client.get(&path(id))?;
    }
    Ok(job)
}

fn list(jobs: &[Shown]) -> String {
    let row = |job: &Shown| {
        vec![
            job.id.to_string(),
            job.kind.clone(),
            job.name.clone(),
            job.state.clone(),
            far(job),
            job.left_seconds.map_or_else(|| "-".to_owned(), span),
            moment(job.begun_unix_seconds),
            job.by.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let head = ["JOB", "KIND", "OF", "STATE", "DONE", "LEFT", "BEGUN", "BY"];
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    match rows.is_empty() {
        true => "no job runs, and none ended within a day\n".to_owned(),
        false => table(&head, &rows),
    }
}

fn page(job: &Shown) -> String {
    let mut lines = vec![
        (
            "what",
            format!("{} of {} {}", job.kind, job.object, job.name),
        ),
        ("state", job.state.clone()),
        ("done", far(job)),
        ("begun", moment(job.begun_unix_seconds)),
    ];
    if let Some(by) = &job.by {
        lines.push(("by", by.clone()));
    }
    if let Some(left) = job.left_seconds {
        lines.push(("left", span(left)));
    }
    if let Some(ended) = job.ended_unix_seconds {
        lines.push(("ended", moment(ended)));
    }
    if !job.words.is_empty() {
        lines.push(("says", job.words.clone()));
    }
    let lines = lines
        .iter()
        .map(|(key, value)| format!("{key:<8} {value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::follow::tests::job;
    use super::*;

    #[test]
    fn a_job_is_a_row_of_the_list_and_lines_of_its_page() {
        let running = job(r#"{"by": "user 0", "left_seconds": 60}"#);
        let shown = list(std::slice::from_ref(&running));
        assert!(shown.starts_with("JOB  KIND"), "{shown}");
        for part in [
            "scrub",
            "s0",
            "running",
            "1.0 MiB of 4.0 MiB",
            "1m",
            "user 0",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = page(&running);
        assert!(shown.starts_with("what     scrub of store s0\n"), "{shown}");
        assert!(shown.contains("left     1m\n"), "{shown}");
        assert!(!shown.contains("says"), "{shown}");
    }
}

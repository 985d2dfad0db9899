//! `tanada audit ...`: the record of what was done.
//!
//! ```text
//! list -> GET /v1/audit, page by page      verify -> the file itself, without a daemon
//! ```

use std::path::PathBuf;

use access::audit::{Verdict, verify};
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use config::DATA_DIR;
use policy::share::Second;
use report::terminal::printable::printable;
use report::terminal::table::table;
use serde::Serialize;
use utoipa::ToSchema;

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::access::{AuditLine, AuditPage};
use crate::daemon::common::when;
use crate::daemon::http::audit_log::FILE;

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// List what was asked and answered, oldest first.
    #[command(visible_alias = "ls")]
    List(List),
    /// Check that no line of the file was changed or removed; needs no daemon, but leave to read the file.
    ///
    /// Lines that were cut off at the end show in the number and the hash of the last one, if those were noted elsewhere.
    Verify(Verify),
}

#[derive(Debug, Args)]
pub struct List {
    /// Only lines with a greater number.
    #[arg(long, default_value_t = 0, value_name = "N")]
    after: u64,
    /// At most so many.
    #[arg(long, default_value_t = 200, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The file [default: audit.jsonl of the data directory]
    file: Option<PathBuf>,
    /// The data directory it is in, as the daemon's configuration names it.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, conflicts_with = "file")]
    data_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What the file was found to be.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditVerified)]
pub struct Verified {
    /// Lines that are whole and in order.
    lines: u64,
    /// The hash of the last of them.
    last: String,
    /// The first line that is not as it was written.
    broken: Option<BrokenLine>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AuditBroken)]
pub struct BrokenLine {
    /// Counts from 1.
    line: u64,
    /// What is wrong.
    why: String,
}

impl From<&Verdict> for Verified {
    fn from(of: &Verdict) -> Verified {
        let broken = of.broken.as_ref().map(|it| BrokenLine {
            line: it.line,
            why: it.why.clone(),
        });
        Verified {
            lines: of.lines,
            last: of.last.clone(),
            broken,
        }
    }
}

/// Runs one of them.
pub fn run(command: Audit) -> anyhow::Result<()> {
    match command {
        Audit::List(list) => pages(list),
        Audit::Verify(arguments) => {
            let file = arguments
                .file
                .unwrap_or_else(|| arguments.data_dir.join(FILE));
            let verdict = verify(&file).with_context(|| {
                let shown = file.display();
                format!("cannot read {shown}; name the daemon's data directory with --data-dir")
            })?;
            let whole = || match verdict.lines {
                0 => "it has no lines\n".to_owned(),
                lines => format!(
                    "{lines} lines, all as they were written; the last has hash {}\n",
                    verdict.last
                ),
            };
            match &verdict.broken {
                _ if arguments.json => show::json(&Verified::from(&verdict))?,
                None => show::text(&whole())?,
                Some(_) => {}
            }
            match verdict.broken {
                None => Ok(()),
                Some(broken) => Err(anyhow!(
                    "line {} of {} is not as it was written: {}; lines before it are",
                    broken.line,
                    file.display(),
                    broken.why
                )),
            }
        }
    }
}

fn pages(list: List) -> anyhow::Result<()> {
    let client = Client::new(list.ask.admin)?;
    let (mut lines, mut after) = (Vec::new(), list.after);
    loop {
        let left = list.limit.saturating_sub(lines.len());
        let path = format!("/v1/audit?after={after}&limit={}", left.clamp(1, 1000));
        let page: AuditPage = client.get(&path)?;
        lines.extend(page.lines);
        lines.truncate(list.limit);
        match page.next {
            Some(next) if lines.len() < list.limit => after = next,
            _ => break,
        }
    }
    show::answer(list.ask.json, &lines, || text(&lines))
}

fn text(lines: &[AuditLine]) -> String {
    if lines.is_empty() {
        return "nothing was noted\n".to_owned();
    }
    let row = |it: &AuditLine| {
        vec![
            it.number.to_string(),
            when::shown(Second(it.at_unix_seconds as u64)),
            printable(&it.who).into_owned(),
            printable(&it.from).into_owned(),
            printable(&it.what).into_owned(),
            match it.answer {
                0 => "-".to_owned(),
                answer => answer.to_string(),
            },
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    table(&["N", "WHEN", "WHO", "FROM", "WHAT", "ANSWER"], &rows)
}

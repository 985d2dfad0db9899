//! `tanada volume rescue`: opens a cache that lost a part of its map with what is left, and lists what may be old.
//!
//! ```text
//! configuration -> hybrid, its fast device -> hybrid::rescue, dry -> what is lost -> meant?
//!               -> hybrid::rescue -> ranges of the volume, for people or programs
//! ```
//!
//! The daemon does not run then. What is decided, and what is written, is the engine's to say: `hybrid::rescue`.

use std::rc::Rc;

use base::{Bytes, Span};
use clap::Args;
use hybrid::PairBook;
use hybrid::rescue::{RescueOf, Rescued, rescue};
use serde::Serialize;
use utoipa::ToSchema;

use super::cache::{Meant, OfCache};
use super::show;
use crate::daemon::assemble;

/// Ranges of a kind that people are shown; `--json` has all.
const SHOWN: usize = 50;

#[derive(Debug, Args)]
pub struct Rescue {
    #[command(flatten)]
    of: OfCache,
    /// Ask nothing before the map is written anew.
    #[arg(long)]
    yes: bool,
    /// Only list what would be lost or old; nothing is written.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Bytes of the volume.
#[derive(Serialize, ToSchema)]
pub struct Range {
    start: u64,
    bytes: u64,
}

/// Batches of the map, and where the first one should begin on the fast device.
#[derive(Serialize, ToSchema)]
pub struct Lost {
    first_batch: u64,
    last_batch: u64,
    byte: u64,
}

#[derive(Serialize, ToSchema)]
pub struct Report {
    volume: String,
    cache: String,
    dry_run: bool,
    lost_batches: Vec<Lost>,
    dirty_bytes: u64,
    /// Bytes that may be lost or old, in all.
    listed_bytes: u64,
    older: Vec<Range>,
    lost: Vec<Range>,
    unknown: Vec<Range>,
}

fn ranges(spans: &[Span]) -> Vec<Range> {
    let range = |span: &Span| Range {
        start: span.start.byte(),
        bytes: span.len.0,
    };
    spans.iter().map(range).collect()
}

fn report(of: &RescueOf, rescued: &Rescued, dry_run: bool) -> Report {
    let lost = |loss: &hybrid::rescue::Loss| Lost {
        first_batch: loss.first,
        last_batch: loss.last,
        byte: loss.sector.byte(),
    };
    Report {
        volume: of.name.clone(),
        cache: format!("{:032x}", of.cache),
        dry_run,
        lost_batches: rescued.losses.iter().map(lost).collect(),
        dirty_bytes: rescued.dirty.0,
        listed_bytes: rescued.listed().0,
        older: ranges(&rescued.older),
        lost: ranges(&rescued.lost),
        unknown: ranges(&rescued.unknown),
    }
}

/// One kind of ranges for people.
fn list(title: &str, spans: &[Span]) -> String {
    if spans.is_empty() {
        return String::new();
    }
    let bytes = Bytes(spans.iter().map(|span| span.len.0).sum());
    let mut text = format!("\n{bytes} {title}:\n");
    for span in spans.iter().take(SHOWN) {
        let last = span.end().byte() - 1;
        text.push_str(&format!(
            "  bytes {} to {last} ({})\n",
            span.start.byte(),
            span.len
        ));
    }
    if spans.len() > SHOWN {
        text.push_str(&format!(
            "  and {} ranges more: --json tells all\n",
            spans.len() - SHOWN
        ));
    }
    text
}

fn text(of: &RescueOf, rescued: &Rescued, dry_run: bool) -> String {
    let name = &of.name;
    let mut text = format!("Cache {:032x} of {name}:\n", of.cache);
    for loss in &rescued.losses {
        let batches = match loss.last - loss.first {
            0 => format!("batch {}", loss.first),
            _ => format!("batches {} to {}", loss.first, loss.last),
        };
        text.push_str(&format!(
            "{batches} of its map cannot be read, from byte {} on\n",
            loss.sector.byte()
        ));
    }
    if rescued.listed() == Bytes(0) {
        text.push_str("Nothing of the volume is lost or old.\n");
    }
    text.push_str(&list(
        "show the newest contents known, and may have had later ones",
        &rescued.older,
    ));
    text.push_str(&list(
        "had contents that are gone: older ones show",
        &rescued.lost,
    ));
    text.push_str(&list(
        "show what the slow device has: what the lost part told of them, if it did, is lost",
        &rescued.unknown,
    ));
    let dirty = rescued.dirty;
    text.push_str(&match dry_run {
        true => format!("\nNothing was written. {dirty} of dirty data would stay.\n"),
        false => format!(
            "\n{dirty} of dirty data stay; copies of what the slow device has are forgotten. Start the daemon, and compare \
             what is listed with a backup, or check it (such as with fsck).\n"
        ),
    });
    text
}

/// What is lost once the map is written anew without its lost part.
fn lost_of(name: &str, rescued: &Rescued) -> Option<String> {
    let listed = rescued.listed();
    let lost = format!(
        "{listed} of {name} may be lost or old for good once its map is written anew (--dry-run lists them)"
    );
    (listed > Bytes(0)).then_some(lost)
}

/// Runs `tanada volume rescue`.
pub fn run(asked: &Rescue) -> anyhow::Result<()> {
    let meant = Meant::find(&asked.of)?;
    let record = meant.record().read().map_err(|why| anyhow::anyhow!(why))?;
    let of = RescueOf {
        name: meant.hybrid.name().to_owned(),
        cache: meant.cache,
        record,
        abandoned: meant.registry().read()?,
    };
    let runtime = env::Runtime::real(env::RealConfig::default())?;
    let (wanted, fast) = (of.clone(), meant.hybrid.fast.clone());
    let (is_dry, is_said) = (asked.dry_run, asked.yes);
    let rescued = runtime.block_on(async move {
        let fast = assemble::open_alone(&meant.config, &fast).await?;
        let found = rescue(Rc::clone(&fast), &wanted, false).await?;
        if is_dry {
            return anyhow::Ok(found);
        }
        if let Some(lost) = lost_of(&wanted.name, &found) {
            report::terminal::consent::ask(&wanted.name, &lost, is_said)?;
        }
        Ok(rescue(fast, &wanted, true).await?)
    })?;
    match asked.json {
        true => show::json(&report(&of, &rescued, asked.dry_run)),
        false => show::text(&text(&of, &rescued, asked.dry_run)),
    }
}

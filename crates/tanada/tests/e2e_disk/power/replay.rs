//! The disks as a power cut leaves them at a place of the log, and what the daemon makes of them.
//!
//! ```text
//! log up to a place -> what a flush covers, and of the rest some -> two files -> tanada serve -> every block -> journal
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Buf, PAGE};
use device::{Class, Device};
use env::{RealConfig, Rng, Runtime};

use super::log::{Event, FAST, SLOW, Side, side};
use super::{BLOCKS, config};
use crate::daemon::Daemon;
use crate::kill9::{at, connect, who_wrote};

/// What each block may show between two marks: not older than `durable`, not newer than `begun`.
pub struct Page {
    begun: Vec<u64>,
    durable: Vec<u64>,
}

/// The pages of the writer's journal, one for each mark.
pub fn pages(journal: &[u8]) -> Vec<Page> {
    let page = |bytes: &[u8]| {
        let numbers: Vec<u64> = bytes
            .chunks(8)
            .map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")))
            .collect();
        Page {
            begun: numbers.iter().copied().step_by(2).collect(),
            durable: numbers.iter().copied().skip(1).step_by(2).collect(),
        }
    };
    journal.chunks(BLOCKS as usize * 16).map(page).collect()
}

/// What survives of the writes that no flush covers.
#[derive(Clone, Copy, Debug)]
pub enum Rest {
    Nothing,
    All,
    Only(Side),
    /// A random half.
    Some,
}

/// A power cut behind the first `events` of the log.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub events: usize,
    pub rest: Rest,
}

/// A power cut at each mark, where only what was flushed survives.
pub fn cuts_at_marks(log: &[Event]) -> Vec<Cut> {
    let at = |(index, event): (usize, &Event)| {
        matches!(event, Event::Mark(_)).then_some(Cut {
            events: index + 1,
            rest: Rest::Nothing,
        })
    };
    log.iter().enumerate().filter_map(at).collect()
}

/// A power cut at each flush and each write with FUA, where more may survive.
pub fn cuts_at_flushes(log: &[Event]) -> Vec<Cut> {
    let rests = [
        Rest::Some,
        Rest::Only(Side::Fast),
        Rest::All,
        Rest::Only(Side::Slow),
        Rest::Nothing,
    ];
    let is_flush =
        |event: &Event| matches!(event, Event::Flush(_) | Event::Write { fua: true, .. });
    let places = (0..log.len()).filter(|index| is_flush(&log[*index]));
    let cut = |(index, rest): (usize, &Rest)| Cut {
        events: index + 1,
        rest: *rest,
    };
    places.zip(rests.iter().cycle()).map(cut).collect()
}

/// At most `most` of `cuts`, evenly spread.
pub fn some_of(cuts: &[Cut], most: usize) -> Vec<Cut> {
    let step = cuts.len().div_ceil(most.max(1)).max(1);
    cuts.iter().copied().step_by(step).collect()
}

/// Both parts of the disk after a cut.
fn image(log: &[Event], cut: Cut) -> Vec<u8> {
    let log = &log[..cut.events];
    let covered = |side| log.iter().rposition(|it| *it == Event::Flush(side));
    let (slow, fast) = (covered(Side::Slow), covered(Side::Fast));
    let mut rng = Rng::from_seed(cut.events as u64);
    let mut image = vec![0; (SLOW + FAST) as usize];
    for (index, event) in log.iter().enumerate() {
        let (from, fua) = match event {
            Event::Write { at, fua, .. } => (*at, *fua),
            Event::Discard { at, .. } => (*at, false),
            Event::Flush(_) | Event::Mark(_) => continue,
        };
        let side = side(from);
        let covered = match side {
            Side::Slow => slow,
            Side::Fast => fast,
        };
        let survives = match cut.rest {
            Rest::Nothing => false,
            Rest::All => true,
            Rest::Only(only) => side == only,
            Rest::Some => rng.chance(0.5),
        };
        if !(fua || survives || covered.is_some_and(|flush| index < flush)) {
            continue;
        }
        let from = from as usize;
        match event {
            Event::Write { data, .. } => image[from..from + data.len()].copy_from_slice(data),
            Event::Discard { len, .. } => image[from..from + *len as usize].fill(0),
            Event::Flush(_) | Event::Mark(_) => {}
        }
    }
    image
}

/// A sparse file of `bytes`.
fn save(path: &Path, bytes: &[u8]) {
    let file = File::create(path).expect("the directory is ours");
    file.set_len(bytes.len() as u64).expect("there is room");
    for (index, piece) in bytes.chunks(64 << 10).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            let written = file.write_all_at(piece, (index * (64 << 10)) as u64);
            written.expect("there is room");
        }
    }
}

/// The write that each block shows, read through a daemon over what the cut left.
fn shown(log: &[Event], cut: Cut) -> Result<Vec<u64>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(log, cut);
    let (slow, fast) = image.split_at(SLOW as usize);
    save(&dir.path().join("slow.img"), slow);
    save(&dir.path().join("fast.img"), fast);
    let daemon = Daemon::try_start(dir.path(), &config(["slow.img", "fast.img"], "back"))?;
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let client = connect(&daemon).await;
        let mut found = Vec::new();
        for first in (0..BLOCKS).step_by(64) {
            let buf = Buf::for_read(64 * PAGE);
            let read = client.read(at(first), buf, Class::Foreground).await;
            let buf = read.map_err(|error| format!("blocks from {first} on: {error}"))?;
            for (block, bytes) in (first..).zip(buf.chunks(PAGE)) {
                found.push(who_wrote(block, bytes)?);
            }
        }
        Ok(found)
    })
}

/// Cuts the power, starts the daemon, reads every block.
///
/// # Errors
/// A block that shows what it may not, or cannot be read; a daemon that does not start.
pub fn verify(log: &[Event], pages: &[Page], cut: Cut) -> Result<(), String> {
    let last_mark = log[..cut.events]
        .iter()
        .rev()
        .find_map(|event| match event {
            Event::Mark(number) => Some(*number as usize),
            _ => None,
        });
    let found = shown(log, cut).map_err(|why| format!("{cut:?}, mark {last_mark:?}: {why}"))?;
    let next = last_mark.map_or(0, |mark| mark + 1);
    for (block, found) in found.into_iter().enumerate() {
        let durable = last_mark.map_or(0, |mark| pages[mark].durable[block]);
        let begun = |page: Option<&Page>| page.map_or(0, |page| page.begun[block]);
        let newest = begun(pages.get(next)).max(begun(last_mark.map(|mark| &pages[mark])));
        if !(durable..=newest).contains(&found) {
            return Err(format!(
                "{cut:?}, mark {last_mark:?}: block {block} shows write {found}; write {durable} was flushed, \
                 write {newest} was the last begun"
            ));
        }
    }
    Ok(())
}

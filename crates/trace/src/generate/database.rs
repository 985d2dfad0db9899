//! What a database asks of its disk.
//!
//! ```text
//! read   -> a page of the tables, by rank
//! write  -> the next piece of the log (each dirties a page); a flush after every eighth
//!        -> at a checkpoint, in turn with the log: dirty pages in order of their place, then a flush
//! ```
//!
//! The log takes the last sixteenth of the volume and goes round in it. Flushes come on top of the rate and
//! of the share of reads.
//!
//! Choice: log pieces are 4 to 16 KiB, as small transactions that commit in groups leave them; a checkpoint
//! also begins when 65,536 pages are dirty, which bounds memory.
//!
//! Always true:
//! 1. Log writes are sequential, but where the log begins anew.
//! 2. Pages written at a checkpoint ascend.

use std::collections::BTreeSet;

use base::{Bytes, Nanos};
use env::Rng;

use super::chance::{self, Scatter, Zipf};
use super::clock::Arrivals;
use super::profile::Profile;
use super::settings::Settings;
use super::source::Source;
use crate::{Op, Request};

const LOG_UNIT: u64 = 4 << 10;
const LOG_UNITS_MAX: u64 = 4;
/// Commits that share a flush.
const GROUP: u64 = 8;
const DIRTY_MAX: usize = 65_536;

/// The database workload.
pub(super) struct Database {
    // fixed
    reads: f64,
    page: u64,
    zipf: Zipf,
    scatter: Scatter,
    log: std::ops::Range<u64>,
    period: Nanos,
    // as time goes
    arrivals: Arrivals,
    places: Rng,
    log_next: u64,
    commits: u64,
    /// Pages changed since the last checkpoint began, and those it has yet to write.
    dirty: BTreeSet<u64>,
    writing: BTreeSet<u64>,
    /// When the next checkpoint is due.
    due: Nanos,
    flush: bool,
    log_turn: bool,
}

impl Database {
    pub(super) fn new(settings: &Settings) -> Database {
        let size = settings.size_of().0;
        let page = settings.block_of(Profile::Db).0;
        let unit = page.max(LOG_UNIT * LOG_UNITS_MAX);
        let log_from = (size - size / 16) / unit * unit;
        let pages = log_from / page;
        let seed = settings.seed;
        Database {
            reads: settings.read_share_of(Profile::Db),
            page,
            zipf: Zipf::new(pages, settings.theta_of()),
            scatter: Scatter::new(pages, chance::mix(seed)),
            log: log_from..size / LOG_UNIT * LOG_UNIT,
            period: settings.checkpoint_of(),
            arrivals: Arrivals::new(
                settings.iops_of(Profile::Db),
                settings.burst_of(Profile::Db),
                chance::stream(seed, "db times"),
            ),
            places: chance::stream(seed, "db places"),
            log_next: log_from,
            commits: 0,
            dirty: BTreeSet::new(),
            writing: BTreeSet::new(),
            due: settings.checkpoint_of(),
            flush: false,
            log_turn: true,
        }
    }

    fn page(&mut self) -> u64 {
        self.scatter.place(self.zipf.draw(&mut self.places))
    }

    fn request(&self, op: Op, offset: u64, size: u64) -> Option<Request> {
        Some(Request {
            at: self.arrivals.now(),
            offset: Bytes(offset),
            size: Bytes(size),
            device: 0,
            op,
        })
    }

    /// Appends to the log what changed a page.
    fn commit(&mut self) -> Option<Request> {
        let page = self.page();
        self.dirty.insert(page);
        let size = (1 + self.places.below(LOG_UNITS_MAX)) * LOG_UNIT;
        if self.log_next + size > self.log.end {
            self.log_next = self.log.start;
        }
        let offset = self.log_next;
        self.log_next += size;
        self.commits += 1;
        self.flush = self.commits.is_multiple_of(GROUP);
        self.request(Op::Write, offset, size)
    }
}

impl Source for Database {
    fn next(&mut self) -> Option<Request> {
        if std::mem::take(&mut self.flush) {
            return self.request(Op::Flush, 0, 0);
        }
        self.arrivals.step();
        if self.places.chance(self.reads) {
            let page = self.page();
            return self.request(Op::Read, page * self.page, self.page);
        }
        let is_due = self.arrivals.now() >= self.due || self.dirty.len() >= DIRTY_MAX;
        if self.writing.is_empty() && is_due {
            self.writing = std::mem::take(&mut self.dirty);
            self.due = self.arrivals.now() + self.period;
        }
        self.log_turn = !self.log_turn;
        // With no room for more dirty pages the log waits for the checkpoint.
        let is_full = self.dirty.len() >= DIRTY_MAX;
        let page = match is_full || !self.log_turn {
            true => self.writing.pop_first(),
            false => None,
        };
        match page {
            Some(page) => {
                self.flush = self.writing.is_empty();
                self.request(Op::Write, page * self.page, self.page)
            }
            None => self.commit(),
        }
    }
}

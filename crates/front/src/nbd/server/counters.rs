//! What has the server done so far? Plain numbers, for metrics and for people.

use std::cell::Cell;

use base::Nanos;

use super::super::proto::Command;

/// Requests and bytes since the beginning, of one export or one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes sent by writes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Bytes given up by trims.
    pub trimmed_bytes: u64,
    /// Writes of zeroes.
    pub zeroes: u64,
    /// Bytes zeroed by them.
    pub zeroed_bytes: u64,
    /// Block status requests.
    pub statuses: u64,
    /// Cache requests.
    pub caches: u64,
    /// Requests answered with an error, refused ones among them.
    pub errors: u64,
    /// Requests accepted and not answered yet.
    pub in_flight: u64,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSnapshot {
    /// Its name.
    pub name: String,
    /// Connections in transmission on it now.
    pub connections: u64,
    /// What was done, by all its connections so far.
    pub counts: Counters,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionSnapshot {
    /// Its number, counted from 1 in the order of arrival.
    pub id: u64,
    /// Who is at the other end.
    pub peer: String,
    /// The export it uses; `None` while it negotiates.
    pub export: Option<String>,
    /// Encrypted?
    pub tls: bool,
    /// How long it has been there.
    pub age: Nanos,
    /// Bytes of requests held for it now.
    pub held_bytes: u64,
    /// What was done on it.
    pub counts: Counters,
}

/// The whole server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSnapshot {
    /// Every export, in order of addition.
    pub exports: Vec<ExportSnapshot>,
    /// Every open connection, oldest first.
    pub connections: Vec<ConnectionSnapshot>,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections turned away or cut because there were too many.
    pub turned_away: u64,
    /// Negotiations that ended without an export, late ones among them.
    pub negotiations_failed: u64,
    /// Connections cut because the client stalled in the middle of a message or never read.
    pub stalled: u64,
    /// Connections ended because the client broke the protocol.
    pub violations: u64,
}

/// Counters at work.
#[derive(Default)]
pub(super) struct LiveCounters(Cell<Counters>);

impl LiveCounters {
    pub(super) fn counts(&self) -> Counters {
        self.0.get()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Counters)) {
        let mut counts = self.0.get();
        change(&mut counts);
        self.0.set(counts);
    }

    pub(super) fn asked(&self, command: &Command) {
        self.change(|counts| {
            counts.in_flight += 1;
            match *command {
                Command::Read { len, .. } => {
                    counts.reads += 1;
                    counts.read_bytes += u64::from(len);
                }
                Command::Write { len, .. } => {
                    counts.writes += 1;
                    counts.written_bytes += u64::from(len);
                }
                Command::Flush => counts.flushes += 1,
                Command::Trim { len, .. } => {
                    counts.trims += 1;
                    counts.trimmed_bytes += u64::from(len);
                }
                Command::WriteZeroes { len, .. } => {
                    counts.zeroes += 1;
                    counts.zeroed_bytes += u64::from(len);
                }
                Command::BlockStatus { .. } => counts.statuses += 1,
                Command::Cache { .. } => counts.caches += 1,
                Command::Disconnect => counts.in_flight -= 1,
            }
        });
    }

    pub(super) fn answered(&self, failed: bool) {
        self.change(|counts| {
            counts.in_flight -= 1;
            counts.errors += u64::from(failed);
        });
    }

    pub(super) fn refused(&self) {
        self.change(|counts| counts.errors += 1);
    }
}

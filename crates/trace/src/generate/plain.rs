//! One pattern each: random blocks, alike or by rank; streams; streams among random requests.
//!
//! ```text
//! zipf, uniform   rank -> scattered block
//! sequential      one of the streams -> its next block
//! mixed           one of the streams, or a random request of 4 to 64 KiB by rank
//! ```
//!
//! Choice: hot blocks lie scattered over the whole volume. A `mixed` stream goes through a file of 1 to
//! 16 MiB, all read or all written, and then to the next file, elsewhere in its part of the volume; a
//! `sequential` one never jumps but from the end of its part to the beginning.

use base::Bytes;
use env::Rng;

use super::chance::{self, Scatter, Zipf};
use super::clock::Arrivals;
use super::profile::Profile;
use super::settings::Settings;
use super::source::Source;
use crate::{Op, Request};

/// Random requests of `mixed` and `drifting`: KiB, and of sixteen so many.
pub(super) const SIZES: [(u64, u64); 4] = [(4, 8), (8, 3), (16, 3), (64, 2)];
const STREAM_BLOCK: Bytes = Bytes::kib(128);
/// Files of a `mixed` stream, in blocks of a stream.
const FILE_BLOCKS: (u64, u64) = (8, 128);

enum Ranks {
    Alike,
    Zipf(Zipf),
}

/// Blocks of one size anywhere on the volume.
struct Random {
    blocks: u64,
    ranks: Ranks,
    scatter: Scatter,
}

impl Random {
    fn new(size: Bytes, block: Bytes, theta: Option<f64>, key: u64) -> Random {
        let blocks = size.0 / block.0;
        Random {
            blocks,
            ranks: match theta {
                None => Ranks::Alike,
                Some(theta) => Ranks::Zipf(Zipf::new(blocks, theta)),
            },
            scatter: Scatter::new(blocks, key),
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.ranks {
            Ranks::Alike => rng.below(self.blocks),
            Ranks::Zipf(zipf) => self.scatter.place(zipf.draw(rng)),
        }
    }
}

/// One reader or writer who goes from block to block of a part of the volume.
#[derive(Clone, Copy)]
struct Stream {
    first: u64,
    blocks: u64,
    next: u64,
    /// Blocks left of the file, and what is done with it.
    left: u64,
    op: Op,
}

/// One of the plain workloads.
pub(super) struct Plain {
    // fixed
    reads: f64,
    random: Vec<(u64, Bytes, Random)>,
    stream_share: f64,
    stream_block: Bytes,
    files: bool,
    // as time goes
    streams: Vec<Stream>,
    arrivals: Arrivals,
    places: Rng,
}

impl Plain {
    pub(super) fn new(profile: Profile, settings: &Settings) -> Plain {
        let size = settings.size_of();
        let block = settings.block_of(profile);
        let seed = settings.seed;
        let theta = match profile {
            Profile::Uniform => None,
            _ => Some(settings.theta_of()),
        };
        // Each size its own scatter: what is hot at 4 KiB is not at 64.
        let random = |parts, block: Bytes| {
            let key = chance::mix(seed ^ block.0);
            (parts, block, Random::new(size, block, theta, key))
        };
        let random = match (profile, settings.block) {
            (Profile::Sequential, _) => Vec::new(),
            (Profile::Mixed, None) => SIZES
                .iter()
                .map(|(kib, parts)| random(*parts, Bytes::kib(*kib)))
                .collect(),
            _ => vec![random(16, block)],
        };
        let (stream_share, stream_block) = match profile {
            Profile::Sequential => (1.0, block),
            Profile::Mixed => (settings.stream_share_of(), STREAM_BLOCK),
            _ => (0.0, STREAM_BLOCK),
        };
        let count = match stream_share > 0.0 {
            true => u64::from(settings.streams_of(profile)),
            false => 0,
        };
        let blocks = size.0 / stream_block.0 / count.max(1);
        let stream = |number: u64| Stream {
            first: number * blocks,
            blocks,
            next: 0,
            left: 0,
            op: Op::Read,
        };
        Plain {
            reads: settings.read_share_of(profile),
            random,
            stream_share,
            stream_block,
            files: profile == Profile::Mixed,
            streams: (0..count).map(stream).collect(),
            arrivals: Arrivals::new(
                settings.iops_of(profile),
                settings.burst_of(profile),
                chance::stream(seed, &format!("{profile} times")),
            ),
            places: chance::stream(seed, &format!("{profile} places")),
        }
    }

    fn op(&mut self) -> Op {
        match self.places.chance(self.reads) {
            true => Op::Read,
            false => Op::Write,
        }
    }

    /// The next block of one of the streams.
    fn at_stream(&mut self) -> (Bytes, Bytes, Op) {
        let at = self.places.below(self.streams.len() as u64) as usize;
        let mut stream = self.streams[at];
        if !self.files {
            stream.op = self.op();
        } else if stream.left == 0 {
            let (least, most) = FILE_BLOCKS;
            stream.left = (least + self.places.below(most - least + 1)).min(stream.blocks);
            stream.next = self.places.below(stream.blocks - stream.left + 1);
            stream.op = self.op();
        }
        let block = stream.first + stream.next;
        stream.next = (stream.next + 1) % stream.blocks;
        stream.left = stream.left.saturating_sub(1);
        self.streams[at] = stream;
        (
            Bytes(block * self.stream_block.0),
            self.stream_block,
            stream.op,
        )
    }

    fn at_random(&mut self) -> (Bytes, Bytes, Op) {
        let op = self.op();
        let mut part = match self.random.len() {
            1 => 0,
            _ => self.places.below(16),
        };
        let mut chosen = 0;
        while part >= self.random[chosen].0 {
            part -= self.random[chosen].0;
            chosen += 1;
        }
        let (_, block, random) = &self.random[chosen];
        let number = random.draw(&mut self.places);
        (Bytes(number * block.0), *block, op)
    }
}

impl Source for Plain {
    fn next(&mut self) -> Option<Request> {
        self.arrivals.step();
        let streams = self.random.is_empty()
            || (!self.streams.is_empty() && self.places.chance(self.stream_share));
        let (offset, size, op) = match streams {
            true => self.at_stream(),
            false => self.at_random(),
        };
        Some(Request {
            at: self.arrivals.now(),
            offset,
            size,
            device: 0,
            op,
        })
    }
}

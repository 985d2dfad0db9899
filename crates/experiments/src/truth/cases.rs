//! The cases: which set-up, and what is asked of it.
//!
//! ```text
//! name -> bed (hybrid, volume or store) + requests at their moments: recorded | generated, merged -> in pieces, with a rest behind
//! ```
//!
//! What a case consists of was written down in `experiments/truth/README.md` before it was run.
//!
//! Always true:
//! 1. The same options give the same requests, and both sides get the same list of them.
//! 2. No request is longer than [`PIECE`], begins or ends within a sector, or comes before the one before it.

use std::path::{Path, PathBuf};

use base::{Bytes, Nanos, SECTOR};
use hybrid::Mode;
use trace::generate::{Generator, Profile, Settings};
use trace::{Op, ReadOptions, Request, Requests, TraceError};

use super::setup::{Disks, QuickTier};
use crate::experiment::{ExperimentError, Options};

/// A longer request of a trace is several of the same moment, as a kernel would send it.
const PIECE: u64 = 1 << 20;
/// Where the recorded trace lies, in the folder of public ones.
const RECORDED: &str = "traces/cloudphysics/cloudPhysicsIO.vscsi.zst";
/// Sessions at the store, each with an object of its own.
pub(super) const SESSIONS: u32 = 4;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub quick: bool,
    /// Runs of each case on each side.
    pub runs: u64,
    /// So long requests of generated workloads come.
    pub span: Nanos,
    /// Between the last request and one more: what goes on in the background ends meanwhile.
    pub rest: Nanos,
    /// Requests by which the floor is measured.
    pub floor: usize,
    /// Of a volume, and of each object.
    pub image: Bytes,
    /// Between writing that whole and the first request.
    pub settle: Nanos,
    /// Where chance begins.
    pub seed: u64,
}

impl Extent {
    pub fn of(options: &Options<'_>) -> Extent {
        match options.quick {
            true => Extent {
                quick: true,
                runs: 1,
                span: Nanos::secs(3),
                rest: Nanos::secs(1),
                floor: 100,
                image: Bytes::mib(16),
                settle: Nanos::secs(3),
                seed: options.seed,
            },
            false => Extent {
                quick: false,
                runs: 5,
                span: Nanos::secs(60),
                rest: Nanos::secs(5),
                floor: 400,
                image: Bytes::mib(128),
                settle: Nanos::secs(12),
                seed: options.seed,
            },
        }
    }
}

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bed {
    /// A hybrid.
    Hybrid(Disks),
    /// A virtual disk of three copies, on three stores of one daemon.
    Volume,
    /// A store with four sessions, each on a reservation.
    Store,
}

/// One case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub name: &'static str,
    pub bed: Bed,
}

/// A cache of an eighth of its disk.
const CACHED: Bed = Bed::Hybrid(Disks {
    slow: Bytes::gib(4),
    fast: Bytes::mib(512),
    mode: Mode::Cache,
    tier: None,
});

/// All cases.
pub(super) const CASES: [Case; 6] = [
    Case {
        name: "cloudphysics",
        bed: Bed::Hybrid(Disks {
            slow: Bytes::gib(32),
            fast: Bytes::gib(2),
            mode: Mode::Cache,
            tier: None,
        }),
    },
    Case {
        name: "database",
        bed: CACHED,
    },
    Case {
        name: "streams",
        bed: CACHED,
    },
    Case {
        name: "tiering",
        bed: Bed::Hybrid(Disks {
            slow: Bytes::gib(4),
            fast: Bytes::mib(512),
            mode: Mode::Tier,
            tier: Some(QuickTier {
                region: Bytes::mib(16),
                period: Nanos::secs(1),
                iops_min: 10,
            }),
        }),
    },
    Case {
        name: "store",
        bed: Bed::Store,
    },
    Case {
        name: "volume",
        bed: Bed::Volume,
    },
];

impl Case {
    /// What is asked of it; none: what was recorded is not here.
    ///
    /// # Errors
    /// [`ExperimentError::Trace`].
    pub fn requests(&self, extent: &Extent) -> Result<Option<Vec<Request>>, ExperimentError> {
        let made = match self.name {
            "cloudphysics" => match recorded_file() {
                Some(file) => recorded(&file, extent),
                None => return Ok(None),
            },
            "database" => database(extent),
            "streams" => streams(extent),
            "tiering" => moving(extent),
            "store" => sessions(extent),
            _ => copies(extent),
        };
        let made = made.map_err(|source| ExperimentError::Trace {
            case: self.name.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Some(rested(in_pieces(&made), extent.rest)))
    }
}

/// The recorded trace, if the folder of public traces is here: `TANADA_SHARED`, else `shared` beside the project.
pub(super) fn recorded_file() -> Option<PathBuf> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("TANADA_SHARED").map_or_else(usual, PathBuf::from);
    Some(shared.join(RECORDED)).filter(|file| file.is_file())
}

/// Minutes 28 to 33, which hold a burst of three minutes; of a short run some seconds of the burst.
fn recorded(file: &Path, extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let (from, to) = match extent.quick {
        true => (Nanos::secs(29 * 60 + 30), Nanos::secs(29 * 60 + 33)),
        false => (Nanos::secs(28 * 60), Nanos::secs(33 * 60)),
    };
    let options = ReadOptions {
        from: Some(from),
        to: Some(to),
        ..ReadOptions::default()
    };
    let mut all = Vec::new();
    taken(&mut trace::open(file, &options)?, &mut all)?;
    let first = all.first().map_or(Nanos(0), |request| request.at);
    for request in &mut all {
        request.at = request.at.saturating_sub(first);
    }
    Ok(all)
}

/// Pages by rank, a log, checkpoints.
fn database(extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let settings = Settings {
        size: Some(Bytes::gib(2)),
        iops: Some(60.0),
        checkpoint: Some(Nanos::secs(20)),
        ..Settings::default()
    };
    merged(extent, &[Part::of(Profile::Db, settings)])
}

/// Two streams of 64 KiB, and random reads of 4 KiB beside them.
fn streams(extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let streams = Settings {
        size: Some(Bytes::gib(2)),
        block: Some(Bytes::kib(64)),
        streams: Some(2),
        read_share: Some(1.0),
        iops: Some(40.0),
        ..Settings::default()
    };
    let random = Settings {
        size: Some(Bytes::gib(2)),
        block: Some(Bytes::kib(4)),
        read_share: Some(1.0),
        iops: Some(20.0),
        ..Settings::default()
    };
    let beside = Part {
        begin: Bytes::gib(2),
        ..Part::of(Profile::Uniform, random)
    };
    merged(extent, &[Part::of(Profile::Sequential, streams), beside])
}

/// A hot spot of 64 MiB that moves six times, and a quarter as many requests anywhere.
fn moving(extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let stays = Nanos(extent.span.0 / 6);
    let anywhere = Settings {
        size: Some(Bytes::gib(4)),
        iops: Some(10.0),
        ..Settings::default()
    };
    let mut parts = vec![Part::of(Profile::Uniform, anywhere)];
    for nth in 0..6 {
        let hot = Settings {
            size: Some(Bytes::mib(64)),
            iops: Some(40.0),
            span: Some(stays),
            ..Settings::default()
        };
        parts.push(Part {
            begin: Bytes::mib(512 * (nth * 5 % 7)),
            after: Nanos(stays.0 * nth),
            ..Part::of(Profile::Zipf, hot)
        });
    }
    merged(extent, &parts)
}

/// Two sessions read and two write, 256 KiB at a time, anywhere in their objects.
fn sessions(extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let parts: Vec<Part> = (0..SESSIONS)
        .map(|device| {
            let settings = Settings {
                size: Some(extent.image),
                block: Some(Bytes::kib(256)),
                iops: Some(8.0),
                read_share: Some(if reads(device) { 1.0 } else { 0.0 }),
                ..Settings::default()
            };
            Part {
                device,
                ..Part::of(Profile::Uniform, settings)
            }
        })
        .collect();
    merged(extent, &parts)
}

/// Does the session of this number read? Else it writes.
pub(super) fn reads(session: u32) -> bool {
    session.is_multiple_of(2)
}

/// Blocks of 16 KiB by rank, most of them read.
fn copies(extent: &Extent) -> Result<Vec<Request>, TraceError> {
    let settings = Settings {
        size: Some(extent.image),
        block: Some(Bytes::kib(16)),
        iops: Some(40.0),
        read_share: Some(0.7),
        ..Settings::default()
    };
    merged(extent, &[Part::of(Profile::Zipf, settings)])
}

/// A generated workload, and where and when it begins.
#[derive(Debug, Clone)]
struct Part {
    profile: Profile,
    settings: Settings,
    begin: Bytes,
    after: Nanos,
    device: u32,
}

impl Part {
    fn of(profile: Profile, settings: Settings) -> Part {
        Part {
            profile,
            settings,
            begin: Bytes(0),
            after: Nanos(0),
            device: 0,
        }
    }
}

/// All of them in the order of time, each with chance of its own.
fn merged(extent: &Extent, parts: &[Part]) -> Result<Vec<Request>, TraceError> {
    let mut all = Vec::new();
    for (nth, part) in (0..).zip(parts) {
        let settings = Settings {
            seed: extent.seed.wrapping_mul(100).wrapping_add(nth),
            span: part.settings.span.or(Some(extent.span)),
            ..part.settings.clone()
        };
        let generator = Generator::new(part.profile, &settings);
        let mut generator = generator.map_err(|error| TraceError::Options(error.to_string()))?;
        let from = all.len();
        taken(&mut generator, &mut all)?;
        for request in &mut all[from..] {
            request.at += part.after;
            request.offset += part.begin;
            request.device = part.device;
        }
    }
    all.sort_by_key(|request| request.at);
    Ok(all)
}

fn taken(requests: &mut dyn Requests, all: &mut Vec<Request>) -> Result<(), TraceError> {
    let mut batch = Vec::new();
    while requests.next_batch(&mut batch)? {
        all.append(&mut batch);
    }
    Ok(())
}

/// In whole sectors, and long ones in pieces.
fn in_pieces(requests: &[Request]) -> Vec<Request> {
    let mut all = Vec::with_capacity(requests.len());
    for request in requests {
        if request.op == Op::Flush {
            all.push(*request);
            continue;
        }
        let mut from = request.offset.0 / SECTOR * SECTOR;
        let end = (request.offset.0 + request.size.0).next_multiple_of(SECTOR);
        while from < end {
            let size = (end - from).min(PIECE);
            all.push(Request {
                offset: Bytes(from),
                size: Bytes(size),
                ..*request
            });
            from += size;
        }
    }
    all
}

/// With one more read, `rest` after the last request: figures are taken when it is answered.
fn rested(mut requests: Vec<Request>, rest: Nanos) -> Vec<Request> {
    if let Some(last) = requests.last() {
        requests.push(Request {
            at: last.at + rest,
            offset: Bytes(0),
            size: Bytes::kib(4),
            device: 0,
            op: Op::Read,
        });
    }
    requests
}

/// One read at once, and all `requests` a second behind it, and in each run a part of a second and of a turn more: the platters stand
/// elsewhere when the first of them comes, and what decides once a second is elsewhere in its interval.
///
/// In virtual time a set-up is always ready at the same angle, since the disk was last to answer.
pub(super) fn led(requests: &[Request], nth: u64, runs: u64) -> Vec<Request> {
    /// Of a disk of 7,200 rpm.
    const TURN: Nanos = Nanos(60_000_000_000 / 7_200);
    const SECOND: Nanos = Nanos::secs(1);
    let after = SECOND + Nanos((SECOND.0 + TURN.0) * nth / runs);
    let first = Request {
        at: Nanos(0),
        offset: Bytes(0),
        size: Bytes::kib(4),
        device: 0,
        op: Op::Read,
    };
    let behind = requests.iter().map(|request| Request {
        at: request.at + after,
        ..*request
    });
    std::iter::once(first).chain(behind).collect()
}

/// Of `requests` as many as the floor takes, evenly chosen, at an even pace.
pub(super) fn for_floor(requests: &[Request], count: usize) -> Vec<Request> {
    /// Between two of them: none waits for the one before.
    const APART: Nanos = Nanos::millis(5);
    let step = (requests.len() / count.max(1)).max(1);
    let chosen = requests.iter().step_by(step).take(count);
    chosen
        .zip(0..)
        .map(|(request, nth)| Request {
            at: Nanos(APART.0 * nth),
            ..*request
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Extent {
        Extent::of(&Options {
            quick: true,
            ..Options::default()
        })
    }

    #[test]
    fn every_generated_case_asks_in_order_within_its_disk_and_ends_with_a_read_after_a_rest() {
        for case in CASES.iter().filter(|case| case.name != "cloudphysics") {
            let requests = case.requests(&quick()).unwrap().unwrap();
            let size = match case.bed {
                Bed::Hybrid(disks) => disks.slow,
                Bed::Volume | Bed::Store => quick().image,
            };
            assert!(requests.len() > 50, "{}: {}", case.name, requests.len());
            assert!(requests.is_sorted_by_key(|request| request.at));
            for request in &requests {
                assert!(request.offset.0 + request.size.0 <= size.0, "{}", case.name);
                assert!(request.size.0 <= PIECE && request.size.0.is_multiple_of(SECTOR));
                assert!(request.device < SESSIONS);
            }
            let [.., before, last] = &requests[..] else {
                panic!("{}: no requests", case.name);
            };
            assert_eq!(last.op, Op::Read);
            assert_eq!(last.at, before.at + quick().rest);
        }
    }

    #[test]
    fn the_sessions_of_the_store_read_or_write_and_never_both() {
        let case = CASES.iter().find(|case| case.bed == Bed::Store).unwrap();
        for request in case.requests(&quick()).unwrap().unwrap() {
            assert_eq!(request.op == Op::Read, reads(request.device));
        }
    }

    #[test]
    fn a_long_request_is_cut_and_odd_ends_are_rounded_to_sectors() {
        let long = Request {
            at: Nanos(7),
            offset: Bytes(700),
            size: Bytes(PIECE + 512),
            device: 0,
            op: Op::Write,
        };
        let pieces = in_pieces(&[long]);
        let spans: Vec<(u64, u64)> = pieces.iter().map(|it| (it.offset.0, it.size.0)).collect();
        assert_eq!(spans, [(512, PIECE), (512 + PIECE, 1024)]);
    }

    #[test]
    fn each_run_meets_the_platters_at_another_angle() {
        let requests = CASES[1].requests(&quick()).unwrap().unwrap();
        let runs: Vec<Vec<Request>> = (0..5).map(|nth| led(&requests, nth, 5)).collect();
        for (nth, run) in (0..).zip(&runs) {
            assert_eq!(run.len(), requests.len() + 1);
            assert_eq!(run[0].at, Nanos(0));
            let later = Nanos(run[1].at.0 - runs[0][1].at.0);
            assert_eq!(later, Nanos(1_008_333_333 * nth / 5));
        }
        assert_eq!(runs[0][1].at, requests[0].at + Nanos::secs(1));
    }

    #[test]
    fn the_floor_is_measured_with_requests_of_the_whole_case_at_an_even_pace() {
        let case = &CASES[1];
        let requests = case.requests(&quick()).unwrap().unwrap();
        let chosen = for_floor(&requests, 10);
        assert_eq!(chosen.len(), 10);
        assert_eq!(chosen[9].at, Nanos::millis(45));
        let step = requests.len() / 10;
        assert_eq!(chosen[9].offset, requests[9 * step].offset);
    }
}

//! `kill -9` under fio: what fio wrote whole and flushed it must find again, over and over.
//!
//! ```text
//! start (another mode) -> every block, by fio and by us -> fio jobs, writers beside them -> kill -9 -> start ...
//! ```
//!
//! Each fio job writes one lane of the volume, all of it. If it ended well before the kill, fio verifies that lane after each
//! start, until another job begins there. A lane whose job was cut off has blocks of several jobs: each must be whole
//! and fio's own, at its place. Fio does not report which writes were under way. So the writers of `kill9` keep to the
//! first 16 MiB beside it: there each block says which write it is from.
//!
//! `TANADA_SEED=S` replays one choice of moments and requests (the machine's timing stays its own);
//! `TANADA_ROUNDS=N` kills more often; `cargo xtask soak --kills N` is the same.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use base::crc::crc32c;
use base::{Buf, Nanos, PAGE, Sector, View};
use device::{Class, Device, WriteFlags};
use env::sync::join_all;
use env::{RealConfig, Rng, Runtime};
use front::nbd::Client;
use serde_json::Value;

use crate::clients::has_fio_with_nbd;
use crate::daemon::{Daemon, config, config_with_tier};
use crate::kill9::{BUSY, BlockWrites, CLIENTS, Oracle, check, connect, number_from, work};

const LANES: usize = 24;
const LANE: u64 = 1 << 20;
/// Behind what the writers beside fio have.
const FIRST_LANE: u64 = BUSY * PAGE as u64;
/// Jobs of fio at a time.
const JOBS: usize = 3;
/// After so many kills another hybrid is made, of other sizes.
const KILLS_OF_A_HYBRID: u64 = 25;

/// What fio is asked to write into a lane.
#[derive(Clone, Debug)]
struct Job {
    lane: usize,
    block_kib: u64,
    depth: u64,
    fsync: u64,
    seed: u64,
}

impl Job {
    fn random(lane: usize, rng: &mut Rng) -> Job {
        let block_kib = [4, 8, 16, 64][rng.below(4) as usize];
        Job {
            lane,
            block_kib,
            depth: [1, 4, 16][rng.below(3) as usize],
            fsync: [0, 8, 32][rng.below(3) as usize],
            seed: rng.below(1 << 30),
        }
    }

    fn arguments(&self, uri: &str) -> Vec<String> {
        let Job {
            lane,
            block_kib,
            depth,
            fsync,
            seed,
        } = self;
        let offset = start_of(*lane);
        let text = format!(
            "--name=lane{lane} --ioengine=nbd --rw=randwrite --bs={block_kib}k --iodepth={depth} --fsync={fsync} --randseed={seed} \
             --allrandrepeat=1 --offset={offset} --size={LANE} --end_fsync=1 --verify=crc32c --verify_interval=4096 \
             --verify_fatal=1 --verify_state_save=0"
        );
        let mut arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        arguments.push(format!("--uri={uri}"));
        arguments
    }
}

fn start_of(lane: usize) -> u64 {
    FIRST_LANE + lane as u64 * LANE
}

/// What a lane holds.
#[derive(Clone)]
enum Lane {
    Empty,
    /// All of this job, flushed.
    Whole(Job),
    /// Blocks of jobs that were cut off.
    Parts,
    /// A job is under way.
    Busy,
}

#[derive(Default)]
struct Totals {
    fio_writes: u64,
    jobs: u64,
    cut_jobs: u64,
    /// Of these, jobs that fio took for well ended.
    cut_flushes: u64,
    verified: u64,
}

struct Run {
    dir: PathBuf,
    lanes: RefCell<Vec<Lane>>,
    totals: RefCell<Totals>,
}

/// Starts fio; its report goes to the file `report`.
fn fio(dir: &Path, report: &str, arguments: Vec<String>) -> Child {
    Command::new("fio")
        .current_dir(dir)
        .args(["--output-format=json", &format!("--output={report}")])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(File::create(dir.join(format!("{report}.err"))).expect("the directory is ours"))
        .spawn()
        .expect("fio starts")
}

/// Waits for fio; whether it ended well, and its report on each job.
async fn ended(dir: &Path, report: &str, mut fio: Child) -> (bool, Vec<Value>) {
    let status = loop {
        match fio.try_wait().expect("it is our child") {
            Some(status) => break status,
            None => env::sleep(Nanos::millis(5)).await,
        }
    };
    let text = std::fs::read_to_string(dir.join(report)).unwrap_or_default();
    // It may have said something before its report.
    let json = text.find('{').map_or("", |from| &text[from..]);
    let report: Value = serde_json::from_str(json).unwrap_or_default();
    let jobs = report["jobs"].as_array().cloned().unwrap_or_default();
    let well = status.success() && jobs.iter().all(|job| job["error"] == 0);
    (well, jobs)
}

fn sum(jobs: &[Value], part: &str, figure: &str) -> u64 {
    let of = jobs.iter().filter_map(|job| job[part][figure].as_u64());
    of.sum()
}

/// Has fio read all that these jobs wrote; how many bytes.
///
/// # Errors
/// If anything differs, or not everything was read.
async fn fio_verifies(dir: &Path, uri: &str, jobs: &[&Job]) -> Result<u64, String> {
    let mut arguments = vec!["--thread".to_owned()];
    for job in jobs {
        arguments.extend(job.arguments(uri));
        arguments.push("--verify_only=1".to_owned());
    }
    let report = "verify.json";
    let (well, reports) = ended(dir, report, fio(dir, report, arguments)).await;
    let bytes = sum(&reports, "read", "io_bytes");
    if well && bytes == jobs.len() as u64 * LANE {
        return Ok(bytes);
    }
    let said = std::fs::read_to_string(dir.join("verify.json.err")).unwrap_or_default();
    let lanes = jobs.len();
    Err(format!(
        "fio verified {bytes} bytes in {lanes} lanes of {LANE}: {jobs:?}: {said}"
    ))
}

/// Does the daemon answer?
async fn lives(client: &Client) -> bool {
    let read = client.read(Sector(0), Buf::for_read(PAGE), Class::Foreground);
    read.await.is_ok()
}

impl Run {
    /// Job after job in lanes that are free, until one is cut off.
    async fn jobs(self: Rc<Self>, client: Rc<Client>, uri: String, number: usize, mut rng: Rng) {
        let report = format!("job{number}.json");
        loop {
            let lane = rng.below(LANES as u64) as usize;
            if matches!(self.lanes.borrow()[lane], Lane::Busy) {
                continue;
            }
            self.lanes.borrow_mut()[lane] = Lane::Busy;
            let job = Job::random(lane, &mut rng);
            let mut arguments = job.arguments(&uri);
            arguments.push("--do_verify=0".to_owned());
            let (well, jobs) = ended(&self.dir, &report, fio(&self.dir, &report, arguments)).await;
            let written = well && sum(&jobs, "write", "io_bytes") == LANE;
            // fio takes a flush that was not answered for done: only if the daemon lives is it so.
            let whole = written && lives(&client).await;
            {
                let mut totals = self.totals.borrow_mut();
                totals.fio_writes += sum(&jobs, "write", "total_ios");
                totals.jobs += u64::from(whole);
                totals.cut_jobs += u64::from(!whole);
                totals.cut_flushes += u64::from(written && !whole);
            }
            self.lanes.borrow_mut()[lane] = match whole {
                true => Lane::Whole(job),
                false => Lane::Parts,
            };
            if !whole {
                return;
            }
        }
    }

    /// Waits until `more` jobs are whole, on a busy machine not for ever.
    async fn jobs_end(&self, more: u64) {
        let enough = self.totals.borrow().jobs + more;
        let waited = async {
            while self.totals.borrow().jobs < enough {
                env::sleep(Nanos::millis(5)).await;
            }
        };
        // Then there is less to verify.
        let _ = env::timeout(Nanos::secs(10), waited).await;
    }

    /// Every lane, by fio where one job wrote it.
    async fn verify(&self, client: &Client, uri: &str, what: &str) {
        let lanes = self.lanes.borrow().clone();
        let whole: Vec<&Job> = lanes
            .iter()
            .filter_map(|lane| match lane {
                Lane::Whole(job) => Some(job),
                _ => None,
            })
            .collect();
        if !whole.is_empty() {
            let bytes = fio_verifies(&self.dir, uri, &whole).await;
            let bytes = bytes.unwrap_or_else(|why| panic!("{what}: {why}"));
            self.totals.borrow_mut().verified += bytes;
        }
        for (index, lane) in lanes.iter().enumerate() {
            if matches!(lane, Lane::Whole(_)) {
                continue;
            }
            let parts = matches!(lane, Lane::Parts);
            self.verify_parts(client, index, parts, what).await;
        }
    }

    /// A lane that no job wrote to its end.
    async fn verify_parts(&self, client: &Client, lane: usize, parts: bool, what: &str) {
        let start = start_of(lane);
        let buf = Buf::for_read(LANE as usize);
        let read = client.read(Sector::containing(start), buf, Class::Foreground);
        let buf = read.await.unwrap_or_else(|error| panic!("{what}: {error}"));
        for (place, block) in (start..).step_by(PAGE).zip(buf.chunks(PAGE)) {
            let empty = block.iter().all(|byte| *byte == 0);
            assert!(
                empty || parts && is_whole(block, place),
                "{what}: the block at {place} is no whole one of fio's: {:x?}",
                &block[..48]
            );
        }
        self.totals.borrow_mut().verified += LANE;
    }
}

/// Did one job of fio write all of `block`, for this place?
///
/// As fio's verify.h has it: magic, type, length, seed, offset, time, thread, number, CRC-32C of these; CRC-32C of the rest.
fn is_whole(block: &[u8], place: u64) -> bool {
    let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
    let offset = u64::from_le_bytes(block[16..24].try_into().expect("eight bytes"));
    u32_at(0) & 0xffff == 0xacca
        && u32_at(4) as usize == PAGE
        && offset == place
        // fio leaves the last inversion out.
        && u32_at(36) == !crc32c(&block[..36])
        && u32_at(40) == !crc32c(&block[44..])
}

/// A configuration for one start: any mode, the sizes of this hybrid.
fn any_config(rng: &mut Rng, fast_mib: u64, block_kib: u64) -> (String, String) {
    let modes = [
        "back",
        "back",
        "only-writes",
        "through",
        "around",
        "both",
        "tier",
        "unnamed",
    ];
    let mode = modes[rng.below(modes.len() as u64) as usize];
    let text = match mode {
        "both" | "tier" => config_with_tier(mode, "direct"),
        // That of the start before it, or of a new hybrid.
        "unnamed" => config("back"),
        write => config(write).replace("write =", "mode = \"cache\"\nwrite ="),
    };
    let text = text.replace("48MiB", &format!("{fast_mib}MiB")).replace(
        "admission =",
        &format!("block = \"{block_kib}KiB\"\nadmission ="),
    );
    (mode.to_owned(), text)
}

/// One hybrid, killed `kills` times.
async fn kill_often(seed: u64, first: u64, kills: u64, rng: &mut Rng) -> (Totals, Oracle) {
    let dir = tempfile::tempdir().expect("a directory");
    let fast_mib = [24, 32, 48][rng.below(3) as usize];
    let block_kib = [4, 4, 16, 64][rng.below(4) as usize];
    let run = Rc::new(Run {
        dir: dir.path().to_owned(),
        lanes: RefCell::new(vec![Lane::Empty; LANES]),
        totals: RefCell::default(),
    });
    let oracle = Rc::new(RefCell::new(Oracle {
        blocks: vec![BlockWrites::default(); BUSY as usize],
        ..Oracle::default()
    }));
    for kill in 0..=kills {
        let (mode, text) = any_config(rng, fast_mib, block_kib);
        let what = format!(
            "seed {seed}, kill {}, mode {mode}, {fast_mib} MiB fast, blocks of {block_kib} KiB",
            first + kill
        );
        let daemon = Daemon::start(dir.path(), &text);
        let client = connect(&daemon).await;
        check(&client, &oracle, &what).await;
        run.verify(&client, &daemon.uri(), &what).await;
        if kill == kills {
            drop(client);
            daemon.stop();
            break;
        }
        let mut tasks: Vec<_> = (0..CLIENTS)
            .map(|own| {
                let rng = Rng::from_seed(rng.bits());
                env::spawn(work(Rc::clone(&client), Rc::clone(&oracle), own, rng))
            })
            .collect();
        tasks.extend((0..JOBS).map(|number| {
            let rng = Rng::from_seed(rng.bits());
            env::spawn(Rc::clone(&run).jobs(Rc::clone(&client), daemon.uri(), number, rng))
        }));
        run.jobs_end(rng.below(3)).await;
        env::sleep(Nanos::millis(rng.below(1000))).await;
        daemon.kill();
        let ended = env::timeout(Nanos::secs(120), join_all(tasks)).await;
        assert!(
            ended.is_ok(),
            "{what}: a client does not end with the daemon"
        );
    }
    (run.totals.take(), oracle.take())
}

#[test]
fn fio_finds_all_that_it_flushed_after_each_of_many_kills() {
    if !has_fio_with_nbd() {
        return;
    }
    let seed = number_from("TANADA_SEED", 1);
    let rounds = number_from("TANADA_ROUNDS", 5);
    println!("TANADA_SEED={seed} TANADA_ROUNDS={rounds}");
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut rng = Rng::from_seed(seed);
        let (mut all, mut writes, mut flushes) = (Totals::default(), 0, 0);
        for first in (0..rounds).step_by(KILLS_OF_A_HYBRID as usize) {
            let kills = KILLS_OF_A_HYBRID.min(rounds - first);
            let (totals, oracle) = kill_often(seed, first, kills, &mut rng).await;
            all.fio_writes += totals.fio_writes;
            all.jobs += totals.jobs;
            all.cut_jobs += totals.cut_jobs;
            all.cut_flushes += totals.cut_flushes;
            all.verified += totals.verified + oracle.checked * PAGE as u64;
            writes += oracle.next;
            flushes += oracle.flushes;
            println!(
                "{} kills: {} writes of fio ({} jobs whole and flushed, {} cut off, {} of \
                 them in the last flush), {writes} writes and {flushes} flushes \
                 beside it, {} MiB verified",
                first + kills,
                all.fio_writes,
                all.jobs,
                all.cut_jobs,
                all.cut_flushes,
                all.verified >> 20
            );
        }
        assert!(all.jobs > 0 && all.cut_jobs > 0 && flushes > 0);
    });
}

#[test]
fn fio_notices_one_byte_that_changed_behind_its_back() {
    if !has_fio_with_nbd() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let daemon = Daemon::start(&dir, &config("back"));
        let uri = daemon.uri();
        let job = Job::random(3, &mut Rng::from_seed(1));
        let mut arguments = job.arguments(&uri);
        arguments.push("--do_verify=0".to_owned());
        let (well, _) = ended(&dir, "job.json", fio(&dir, "job.json", arguments)).await;
        assert!(well);
        assert_eq!(fio_verifies(&dir, &uri, &[&job]).await, Ok(LANE));
        let client = connect(&daemon).await;
        let place = Sector::containing(start_of(3) + LANE / 2);
        let buf = Buf::for_read(PAGE);
        let buf = client.read(place, buf, Class::Foreground).await;
        let mut changed = buf.expect("the daemon runs").to_vec();
        changed[3000] ^= 1;
        let data = View::copy_of(&changed);
        let written = client.write(place, data, WriteFlags::default()).await;
        written.expect("the daemon runs");
        let why = fio_verifies(&dir, &uri, &[&job]).await;
        assert!(why.is_err_and(|why| why.contains("verify failed")));
        drop(client);
        daemon.stop();
    });
}

#[test]
fn a_block_that_fio_did_not_write_there_or_not_whole_is_noticed() {
    if !has_fio_with_nbd() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let job = "--name=w --filename=w.img --rw=write --bs=8k --size=16k --verify=crc32c --verify_interval=4096 --do_verify=0";
    let arguments = job.split(' ').map(str::to_owned).collect();
    let status = fio(dir.path(), "w.json", arguments).wait();
    assert!(status.expect("it is our child").success());
    let image = std::fs::read(dir.path().join("w.img")).expect("fio made it");
    let block = &image[PAGE..2 * PAGE];
    assert!(is_whole(block, PAGE as u64));
    assert!(!is_whole(block, 0), "another place");
    let mut torn = block.to_vec();
    torn[2048..].copy_from_slice(&image[2 * PAGE + 2048..3 * PAGE]);
    assert!(!is_whole(&torn, PAGE as u64), "two blocks in one");
}

//! `kill -9` at random moments: is every answered block there, flushed or not, and is the cache warm?
//!
//! ```text
//! start -> check every block -> writers at depth 8, flushes, FUA -> kill -9 -> start -> ...
//! ```
//!
//! Each block is written by one client only and says who wrote it and with which of its writes. After a
//! kill it must show a write not older than the last one answered and not newer than the last one begun,
//! whole: the daemon has a restart log, and the kernel lives.
//!
//! `TANADA_SEED=S` replays one choice of moments and requests (the machine's timing stays its own);
//! `TANADA_ROUNDS=N` kills more often.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, PAGE, Sector, View};
use device::{Class, Device, DeviceError, WriteFlags};
use env::net::Address;
use env::sync::join_all;
use env::{RealConfig, Rng, Runtime};
use front::nbd::{Client, ClientOptions};

use crate::daemon::{Daemon, config, config_with_tier};

/// Blocks that are written: the first 16 MiB.
pub const BUSY: u64 = 4096;
/// Blocks that are written once, in the first round, and only read afterwards: the 16 MiB behind them.
const QUIET: u64 = 4096;
pub const CLIENTS: u64 = 8;
/// Neighbouring blocks that belong to one client.
pub const EXTENT: u64 = 16;

/// What may be in one block, as numbers of writes; 0 is nothing written yet.
#[derive(Clone, Copy, Default)]
pub struct BlockWrites {
    pub begun: u64,
    pub completed: u64,
    pub durable: u64,
}

#[derive(Default)]
pub struct Oracle {
    pub blocks: Vec<BlockWrites>,
    pub next: u64,
    pub flushes: u64,
    pub fua_writes: u64,
    pub checked: u64,
}

/// A block that says what it is: its place and the number of the write, in every 16 bytes.
fn fill(block: u64, number: u64, bytes: &mut [u8]) {
    for (word, piece) in bytes.chunks_mut(16).enumerate() {
        piece[..8].copy_from_slice(&number.to_le_bytes());
        piece[8..].copy_from_slice(&(block << 8 | word as u64 & 0xff).to_le_bytes());
    }
}

/// The number of the write that `bytes` at `block` come from.
pub fn who_wrote(block: u64, bytes: &[u8]) -> Result<u64, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let mut expected = vec![0; bytes.len()];
    fill(block, number, &mut expected);
    if bytes == expected {
        return Ok(number);
    }
    let differ = bytes.iter().zip(&expected).position(|(a, b)| a != b);
    Err(format!(
        "block {block} is a mixture: it begins with write {number} and differs from it at byte {differ:?}"
    ))
}

pub async fn connect(daemon: &Daemon) -> Rc<Client> {
    let options = ClientOptions {
        export: "vol0".to_owned(),
        ..ClientOptions::default()
    };
    let client = Client::connect(&Address::Unix(daemon.socket()), &options).await;
    Rc::new(client.expect("the daemon takes clients"))
}

pub fn at(block: u64) -> Sector {
    Sector::containing(block * PAGE as u64)
}

/// Writes `count` blocks from `first` on, which belong to the caller.
pub async fn write(
    client: &Client,
    oracle: &RefCell<Oracle>,
    first: u64,
    count: u64,
    fua: bool,
) -> Result<(), DeviceError> {
    let mut buf = Buf::for_read(count as usize * PAGE);
    let number = {
        let mut oracle = oracle.borrow_mut();
        oracle.next += 1;
        oracle.fua_writes += u64::from(fua);
        let number = oracle.next;
        for (block, bytes) in (first..).zip(buf.chunks_mut(PAGE)) {
            fill(block, number, bytes);
            oracle.blocks[block as usize].begun = number;
        }
        number
    };
    let flags = WriteFlags {
        fua,
        class: Class::Foreground,
    };
    client.write(at(first), buf.freeze(), flags).await?;
    let mut oracle = oracle.borrow_mut();
    for block in first..first + count {
        let known = &mut oracle.blocks[block as usize];
        known.completed = number;
        if fua {
            known.durable = number;
        }
    }
    Ok(())
}

/// A flush: what had completed when it was asked for is durable when it ends.
pub async fn flush(client: &Client, oracle: &RefCell<Oracle>) -> Result<(), DeviceError> {
    let completed: Vec<u64> = oracle.borrow().blocks.iter().map(|b| b.completed).collect();
    client.flush().await?;
    let mut oracle = oracle.borrow_mut();
    oracle.flushes += 1;
    for (known, completed) in oracle.blocks.iter_mut().zip(completed) {
        known.durable = known.durable.max(completed);
    }
    Ok(())
}

/// One client's work, until the daemon is gone.
pub async fn work(client: Rc<Client>, oracle: Rc<RefCell<Oracle>>, own: u64, mut rng: Rng) {
    let step = async |rng: &mut Rng| -> Result<(), DeviceError> {
        let extent = rng.below(BUSY / EXTENT / CLIENTS) * CLIENTS + own;
        let within = rng.below(EXTENT);
        let first = extent * EXTENT + within;
        match rng.below(100) {
            0..60 => write(&client, &oracle, first, 1, rng.chance(0.1)).await,
            60..75 => {
                let count = 1 + rng.below(EXTENT - within);
                write(&client, &oracle, first, count, rng.chance(0.1)).await
            }
            75..85 => flush(&client, &oracle).await,
            _ => {
                let known = oracle.borrow().blocks[first as usize];
                let buf = Buf::for_read(PAGE);
                let buf = client.read(at(first), buf, Class::Foreground).await?;
                let found = who_wrote(first, &buf);
                assert_eq!(found, Ok(known.completed), "block {first} while it runs");
                Ok(())
            }
        }
    };
    while step(&mut rng).await.is_ok() {}
}

/// Reads every block and compares it with what may be there; what it shows is what it is from now on.
pub async fn check(client: &Client, oracle: &RefCell<Oracle>, what: &str) {
    let blocks = oracle.borrow().blocks.len() as u64;
    for first in (0..blocks).step_by(64) {
        let buf = Buf::for_read(64 * PAGE);
        let read = client.read(at(first), buf, Class::Foreground).await;
        let buf = read.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut oracle = oracle.borrow_mut();
        for (block, bytes) in (first..).zip(buf.chunks(PAGE)) {
            let known = &mut oracle.blocks[block as usize];
            let found = who_wrote(block, bytes).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert!(
                (known.completed..=known.begun).contains(&found),
                "{what}: block {block} shows write {found}; write {} was answered, write {} was flushed, write {} was the last \
                 begun",
                known.completed,
                known.durable,
                known.begun
            );
            *known = BlockWrites {
                begun: found,
                completed: found,
                durable: found,
            };
            oracle.checked += 1;
        }
    }
}

pub fn number_from(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a whole number"))
}

/// The daemon is started in one write mode after the other, and killed each time.
#[test]
fn after_kill_nine_every_answered_block_is_there_and_the_cache_is_warm() {
    let seed = number_from("TANADA_SEED", 1);
    let rounds = number_from("TANADA_ROUNDS", 10);
    println!("TANADA_SEED={seed} TANADA_ROUNDS={rounds}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut rng = Rng::from_seed(seed);
        let oracle = Rc::new(RefCell::new(Oracle {
            blocks: vec![BlockWrites::default(); (BUSY + QUIET) as usize],
            ..Oracle::default()
        }));
        let (mut cached, mut everything_back) = (0, true);
        for round in 0..rounds {
            let modes = ["back", "back", "through", "only-writes", "around"];
            let mode = modes[(round % modes.len() as u64) as usize];
            let what = format!("seed {seed}, round {round}, mode {mode}");
            let daemon = Daemon::start(&path, &config(mode));
            let (back, dropped) = (
                daemon.cache("recovered_pages"),
                daemon.cache("recovered_dropped"),
            );
            if round > 0 {
                // What is quiet lies outside every marked region.
                assert!(back * 100 >= QUIET * 99, "{what}: {back} pages are back");
                assert!(dropped <= BUSY, "{what}: {dropped} pages dropped");
                if everything_back {
                    assert_eq!(dropped, 0, "{what}: no region was marked");
                    assert!(
                        back * 100 >= cached * 99,
                        "{what}: {back} pages of {cached} are back"
                    );
                }
            }
            let client = connect(&daemon).await;
            let slow_before = daemon.cache("slow_bytes_read");
            check(&client, &oracle, &what).await;
            let slow = daemon.cache("slow_bytes_read") - slow_before;
            if round > 0 {
                let most = BUSY * PAGE as u64 + QUIET * PAGE as u64 / 100;
                assert!(
                    slow <= most,
                    "{what}: {slow} bytes came from the slow device"
                );
            }
            check(&client, &oracle, &format!("{what}, read again")).await;
            if round == 0 {
                for first in (BUSY..BUSY + QUIET).step_by(EXTENT as usize) {
                    let wrote = write(&client, &oracle, first, EXTENT, false).await;
                    wrote.expect("the daemon runs");
                }
                flush(&client, &oracle).await.expect("the daemon runs");
            }
            cached = daemon.cache("cached_bytes") / PAGE as u64;
            // Marks of an earlier round stay set for some seconds.
            everything_back =
                matches!(mode, "back" | "only-writes") && daemon.cache("marked_regions") == 0;
            let workers = (0..CLIENTS).map(|own| {
                let rng = Rng::from_seed(rng.bits());
                env::spawn(work(Rc::clone(&client), Rc::clone(&oracle), own, rng))
            });
            let workers: Vec<_> = workers.collect();
            env::sleep(Nanos(20_000_000 + rng.below(500_000_000))).await;
            daemon.kill();
            join_all(workers).await;
        }
        let daemon = Daemon::start(&path, &config("back"));
        let client = connect(&daemon).await;
        check(&client, &oracle, &format!("seed {seed}, in the end")).await;
        drop(client);
        daemon.command(&["volume", "detach", "vol0"]);
        daemon.stop();
        // The bare slow device has it all.
        let image = std::fs::read(path.join("slow.img")).expect("it is there");
        let oracle = oracle.borrow();
        for (block, known) in (0..).zip(&oracle.blocks) {
            let from = block as usize * PAGE;
            let found = who_wrote(block, &image[from..from + PAGE]);
            assert_eq!(
                found,
                Ok(known.durable),
                "block {block} of the bare slow device"
            );
        }
        println!(
            "{rounds} kills, {} writes ({} FUA), {} flushes, {} blocks checked",
            oracle.next, oracle.fua_writes, oracle.flushes, oracle.checked
        );
        assert!(oracle.flushes > rounds && oracle.fua_writes > rounds);
    });
}

/// Regions go up and down all the time; modes and movers change from start to start.
#[test]
fn after_kill_nine_with_regions_on_the_move_every_flushed_block_is_there() {
    let seed = number_from("TANADA_SEED", 1);
    let rounds = number_from("TANADA_ROUNDS", 8);
    println!("TANADA_SEED={seed} TANADA_ROUNDS={rounds}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut rng = Rng::from_seed(seed);
        let oracle = Rc::new(RefCell::new(Oracle {
            blocks: vec![BlockWrites::default(); (BUSY + QUIET) as usize],
            ..Oracle::default()
        }));
        let configurations = [
            config_with_tier("both", "direct"),
            config_with_tier("tier", "direct"),
            config("back"),
            config_with_tier("both", "published"),
            config_with_tier("both", "direct"),
        ];
        let mut moves = 0;
        for (round, configuration) in (0..rounds).zip(configurations.iter().cycle()) {
            let what = format!("seed {seed}, round {round}");
            let daemon = Daemon::start(&path, configuration);
            let client = connect(&daemon).await;
            check(&client, &oracle, &what).await;
            check(&client, &oracle, &format!("{what}, read again")).await;
            let workers: Vec<_> = (0..CLIENTS)
                .map(|own| {
                    let rng = Rng::from_seed(rng.bits());
                    env::spawn(work(Rc::clone(&client), Rc::clone(&oracle), own, rng))
                })
                .collect();
            env::sleep(Nanos(300_000_000 + rng.below(500_000_000))).await;
            moves += daemon.moves_up();
            daemon.kill();
            join_all(workers).await;
        }
        let daemon = Daemon::start(&path, &config_with_tier("both", "direct"));
        let client = connect(&daemon).await;
        check(&client, &oracle, &format!("seed {seed}, in the end")).await;
        drop(client);
        daemon.command(&["volume", "detach", "vol0"]);
        daemon.stop();
        let image = std::fs::read(path.join("slow.img")).expect("it is there");
        let oracle = oracle.borrow();
        for (block, known) in (0..).zip(&oracle.blocks) {
            let from = block as usize * PAGE;
            let found = who_wrote(block, &image[from..from + PAGE]);
            assert_eq!(
                found,
                Ok(known.durable),
                "block {block} of the bare slow device"
            );
        }
        println!(
            "{rounds} kills, {moves} moves up, {} blocks checked",
            oracle.checked
        );
        assert!(moves > 0, "no region went up");
    });
}

#[test]
fn a_kill_in_the_middle_of_a_management_operation_loses_nothing() {
    let seed = number_from("TANADA_SEED", 1);
    println!("TANADA_SEED={seed}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let mut rng = Rng::from_seed(seed);
        let oracle = Rc::new(RefCell::new(Oracle {
            blocks: vec![BlockWrites::default(); BUSY as usize],
            ..Oracle::default()
        }));
        let operations: [&[&str]; 4] = [
            &["volume", "detach", "vol0"],
            &["volume", "set", "vol0", "fast_size=20MiB"],
            &["volume", "set", "vol0", "mode=cache", "write=through"],
            &["volume", "set", "vol0", "block=64KiB", "policy=lru"],
        ];
        for operation in operations.iter().cycle().take(8) {
            let what = format!("seed {seed}, killed during {operation:?}");
            let daemon = Daemon::start(&path, &config("back"));
            let client = connect(&daemon).await;
            check(&client, &oracle, &what).await;
            for _ in 0..200 {
                let first = rng.below(BUSY / EXTENT) * EXTENT;
                let count = 1 + rng.below(EXTENT);
                write(&client, &oracle, first, count, false)
                    .await
                    .expect("the daemon runs");
            }
            flush(&client, &oracle).await.expect("the daemon runs");
            let mut child = daemon.begin(operation);
            let workers: Vec<_> = (0..CLIENTS)
                .map(|own| {
                    let rng = Rng::from_seed(rng.bits());
                    env::spawn(work(Rc::clone(&client), Rc::clone(&oracle), own, rng))
                })
                .collect();
            env::sleep(Nanos(rng.below(120_000_000))).await;
            daemon.kill();
            join_all(workers).await;
            child.wait().expect("it is our child");
        }
        let daemon = Daemon::start(&path, &config("back"));
        let client = connect(&daemon).await;
        check(&client, &oracle, &format!("seed {seed}, in the end")).await;
        drop(client);
        daemon.stop();
    });
}

#[test]
fn a_block_that_is_no_write_of_ours_is_noticed() {
    let mut block = vec![0; PAGE];
    assert_eq!(who_wrote(5, &block), Ok(0));
    fill(5, 9, &mut block);
    assert_eq!(who_wrote(5, &block), Ok(9));
    assert!(who_wrote(6, &block).is_err(), "another block's contents");
    let mut torn = View::copy_of(&block).into_buf();
    fill(5, 8, &mut torn[2048..]);
    assert!(who_wrote(5, &torn).is_err(), "two writes in one block");
    assert_eq!(Bytes(PAGE as u64), Bytes::kib(4));
}

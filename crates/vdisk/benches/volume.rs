//! What does a volume cost beside the stores it is in?
//!
//! ```text
//! cargo bench -p tanada-vdisk --bench volume -- [--dir DIR] [--runs N]
//!
//! 1 MiB in order, 4 at once | 4 KiB anywhere, 16 at once: written, each durable before it is answered, and read
//! store: the objects of a store in this process | volume: the same store through a volume of one copy
//!
//! 4 KiB, 64 KiB, 1 MiB anywhere, one at a time, three copies
//! slowest: the same to three stores at once, until the last has it | volume: a volume of three copies in them
//! ```
//!
//! On real files of a folder (the working directory unless told), written over once before anything is measured, all in this process; the meta
//! store is in memory. Figures are the median of the runs with the lowest and the highest; a ratio is one of figures of the same run.
#![allow(clippy::print_stdout)]

use std::cell::Cell;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Buf, Sector, View};
use device::{Class as DeviceClass, Device, DeviceExt, FileOptions};
use env::Runtime;
use env::fs::Direct;
use env::sync::join_all;
use policy::place::{Class, ClientId, DomainId, Kind, Options, Origin, build};
use policy::share::{BytesPerSec, Costs};
use store::node::{Node, NodeOptions};
use store::{Change, Settings as StoreSettings, Store};
use vdisk::choice::Choice;
use vdisk::image::{self, Known, Numbers};
use vdisk::image_meta::Images;
use vdisk::link::{Door, Link, LocalDoor};
use vdisk::meta::Twin;
use vdisk::volume::{Settings, Site, Volume};
use vdisk::{StoreNumber, VolumeId};

const MIB: u64 = 1 << 20;
/// All that is written in order.
const LARGE: u64 = 512;
const EXTENT: u64 = 4 * MIB;
const SMALL: u64 = 20_000;

/// Per second: `pieces` of `work`, `depth` at once, and `end`.
async fn rate<F: Future<Output = ()>>(
    pieces: u64,
    depth: u64,
    work: impl Fn(u64) -> F,
    end: impl Future<Output = ()>,
) -> f64 {
    let (begun, next) = (env::now(), Cell::new(0));
    let workers = (0..depth).map(|_| async {
        while next.get() < pieces {
            let at = next.replace(next.get() + 1);
            work(at).await;
        }
    });
    join_all(workers.collect::<Vec<_>>()).await;
    end.await;
    pieces as f64 / env::now().since(begun).secs_f64()
}

/// 4 KiB anywhere; the same places each time.
fn anywhere(at: u64) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (LARGE * MIB / 4096) * 4096
}

/// Large written and read, small written and read; MiB/s and requests per second.
type Figures = [f64; 4];

async fn of_store(link: Rc<dyn Link>) -> Figures {
    let (large, small) = (
        View::copy_of(&vec![7; MIB as usize]),
        View::copy_of(&[8; 4096]),
    );
    let write = |at: u64, data: &View| {
        let (link, data) = (Rc::clone(&link), data.clone());
        async move {
            let name = format!("object {}", at / EXTENT);
            // As the volume does: what is answered is durable.
            let change = Change::FUA.creating();
            let wrote = link.write(&name, at % EXTENT, data, change).await;
            wrote.expect("a write");
        }
    };
    let read = |at: u64, len: u64| {
        let link = Rc::clone(&link);
        async move {
            let name = format!("object {}", at / EXTENT);
            let read = link.read(&name, at % EXTENT, len).await;
            assert_eq!(read.expect("a read").len() as u64, len);
        }
    };
    let flush = || async { link.flush().await.expect("a flush") };
    [
        rate(LARGE, 4, |at| write(at * MIB, &large), flush()).await,
        rate(LARGE, 4, |at| read(at * MIB, MIB), async {}).await,
        rate(SMALL, 16, |at| write(anywhere(at), &small), flush()).await,
        rate(SMALL, 16, |at| read(anywhere(at), 4096), async {}).await,
    ]
}

async fn of_volume(volume: Rc<Volume>) -> Figures {
    let (large, small) = (
        View::copy_of(&vec![7; MIB as usize]),
        View::copy_of(&[8; 4096]),
    );
    let write = |at: u64, data: &View| {
        let (volume, data) = (Rc::clone(&volume), data.clone());
        async move {
            let wrote = volume.write_at(Sector(at / 512), data).await;
            wrote.expect("a write");
        }
    };
    let read = |at: u64, len: u64| {
        let volume = Rc::clone(&volume);
        async move {
            let buf = Buf::for_read(len as usize);
            let read = volume.read(Sector(at / 512), buf, DeviceClass::Foreground);
            drop(read.await.expect("a read"));
        }
    };
    let flush = || async { volume.flush().await.expect("a flush") };
    [
        rate(LARGE, 4, |at| write(at * MIB, &large), flush()).await,
        rate(LARGE, 4, |at| read(at * MIB, MIB), async {}).await,
        rate(SMALL, 16, |at| write(anywhere(at), &small), flush()).await,
        rate(SMALL, 16, |at| read(anywhere(at), 4096), async {}).await,
    ]
}

/// A store of its own on the file.
async fn node(path: &Path) -> Rc<Node> {
    let options = FileOptions {
        direct: Direct::Auto,
        ..FileOptions::default()
    };
    let disk: Rc<dyn Device> =
        device::File::open("bench", path, options).expect("the file was just made");
    let settings = StoreSettings {
        force: true,
        ..StoreSettings::default()
    };
    let made = Store::format(Rc::clone(&disk), settings).await;
    made.expect("a store").close().await.expect("a close");
    let options = NodeOptions::new(Costs::flat(BytesPerSec::mb(2_000)), [9; 32]);
    Node::open(disk, options).await.expect("it opens")
}

/// With a copy in each.
async fn volume(nodes: &[Rc<Node>]) -> Rc<Volume> {
    let twin = Twin::new("meta");
    let numbers = Known {
        record: Numbers::first(),
        changed: None,
    };
    let id = VolumeId(numbers.record.volume);
    let name = "bench".parse().expect("a name");
    let created = image::create(&numbers, name, LARGE * MIB, nodes.len() as u8, 1);
    let (_, change) = created.expect("it can be");
    let meta = twin.client();
    let made = Images { meta }.change(change).await;
    made.expect("nothing is in the way");
    let origin = Origin {
        client: ClientId(1),
        class: Class::Normal,
    };
    let sites = (1..).zip(nodes).map(|(number, node)| Site {
        number: StoreNumber(number),
        domain: DomainId(u32::from(number)),
        local: true,
        rotating: false,
        door: Rc::new(LocalDoor(Rc::clone(node))),
    });
    let sites = sites.collect();
    let choice = Choice::new(build(Kind::Tanada, &Options::default()));
    let settings = Settings::new("bench", origin);
    let opened = Volume::open(id, twin.client(), choice, sites, settings).await;
    opened.expect("it opens")
}

/// One run: the store, then the volume, each in a store of its own on the same file.
fn run(path: &Path) -> [Figures; 2] {
    let on = |through: bool| {
        let path = path.to_path_buf();
        let runtime = Runtime::real(env::RealConfig::default()).expect("a runtime");
        runtime.block_on(async move {
            let node = node(&path).await;
            let figures = match through {
                false => {
                    of_store(
                        LocalDoor(Rc::clone(&node))
                            .open("g/bench", 1)
                            .await
                            .expect("sealed"),
                    )
                    .await
                }
                true => {
                    let volume = volume(std::slice::from_ref(&node)).await;
                    let figures = of_volume(Rc::clone(&volume)).await;
                    volume.close().await.expect("a close");
                    figures
                }
            };
            drop(node);
            figures
        })
    };
    [on(false), on(true)]
}

// --- three copies -------------------------------------------------------------------------------------

const LENGTHS: [u64; 3] = [4 << 10, 64 << 10, MIB];
/// Of each length.
const WRITES: u64 = 1_000;
/// What is written over: all of it is there before.
const RANGE: u64 = 128 * MIB;

/// Median and 99th percentile of writes one after the other, in microseconds.
async fn latency<F: Future<Output = ()>>(len: u64, write: impl Fn(u64) -> F) -> [f64; 2] {
    let mut took = Vec::new();
    for at in 0..WRITES {
        let begun = env::now();
        write(anywhere(at) % RANGE / len * len).await;
        took.push(env::now().since(begun).0 as f64 / 1e3);
    }
    took.sort_by(f64::total_cmp);
    [took[took.len() / 2], took[took.len() * 99 / 100]]
}

/// For each length: at the slowest store, through the volume.
async fn of_copies(paths: &[PathBuf]) -> Vec<[[f64; 2]; 2]> {
    let mut nodes = Vec::new();
    for path in paths {
        nodes.push(node(path).await);
    }
    let mut links = Vec::new();
    for node in &nodes {
        let door = LocalDoor(Rc::clone(node));
        links.push(door.open("g/bench", 1).await.expect("sealed"));
    }
    let volume = volume(&nodes).await;
    let all = View::copy_of(&vec![7; MIB as usize]);
    let direct = async |at: u64, data: View| {
        let name = format!("object {}", at / EXTENT);
        let change = Change::FUA.creating();
        let each = links
            .iter()
            .map(|link| link.write(&name, at % EXTENT, data.clone(), change));
        for wrote in join_all(each.collect::<Vec<_>>()).await {
            wrote.expect("a write");
        }
    };
    let through = async |at: u64, data: View| {
        volume
            .write_at(Sector(at / 512), data)
            .await
            .expect("a write");
    };
    for at in 0..RANGE / MIB {
        direct(at * MIB, all.clone()).await;
        through(at * MIB, all.clone()).await;
    }
    let mut figures = Vec::new();
    for len in LENGTHS {
        let data = View::copy_of(&vec![8; len as usize]);
        figures.push([
            latency(len, |at| direct(at, data.clone())).await,
            latency(len, |at| through(at, data.clone())).await,
        ]);
    }
    volume.close().await.expect("a close");
    figures
}

fn print_copies(all: &[Vec<[[f64; 2]; 2]>]) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        for (which, name) in ["median", "p99"].into_iter().enumerate() {
            let of = |through: usize| all.iter().map(|run| run[n][through][which]).collect();
            let ratio = all.iter().map(|run| run[n][1][which] / run[n][0][which]);
            println!(
                "write {:>4} KiB x 1, three copies, {name:<6}: slowest copy {} us, volume {} us, ratio {}",
                len >> 10,
                spread(of(0)),
                spread(of(1)),
                spread(ratio.collect())
            );
        }
    }
}

/// A file that is all there.
fn filled(path: &Path, mib: u64) {
    let mut file = std::fs::File::create(path).expect("the folder takes files");
    for _ in 0..mib {
        file.write_all(&vec![0; MIB as usize])
            .expect("there is room");
    }
    file.sync_all().expect("the disk is well");
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (median, last) = (values[values.len() / 2], values.len() - 1);
    match median >= 10.0 {
        true => format!("{median:.0} ({:.0} to {:.0})", values[0], values[last]),
        false => format!("{median:.3} ({:.3} to {:.3})", values[0], values[last]),
    }
}

fn value(name: &str) -> Option<String> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|it| it == name)?;
    args.get(at + 1).cloned()
}

fn main() {
    let dir = value("--dir").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let runs = value("--runs").map_or(5, |it| it.parse().expect("--runs wants a number"));
    let dir = tempfile::Builder::new()
        .prefix("tanada-bench-")
        .tempdir_in(dir)
        .expect("--dir wants a folder that takes files");
    let path = dir.path().join("disk");
    filled(&path, 2 * LARGE);
    let all: Vec<[Figures; 2]> = (0..runs).map(|_| run(&path)).collect();
    println!("a real file, {runs} runs: median (lowest to highest)");
    let cases = [
        ("write 1 MiB x 4", "MiB/s"),
        ("read 1 MiB x 4", "MiB/s"),
        ("write 4 KiB x 16", "per s"),
        ("read 4 KiB x 16", "per s"),
    ];
    for (n, (case, unit)) in cases.into_iter().enumerate() {
        let of = |which: usize| all.iter().map(|run| run[which][n]).collect();
        let ratio = all.iter().map(|run| run[1][n] / run[0][n]).collect();
        println!(
            "{case:<18} store {} {unit}, volume {} {unit}, ratio {}",
            spread(of(0)),
            spread(of(1)),
            spread(ratio)
        );
    }
    let paths: Vec<PathBuf> = (1..=3)
        .map(|n| dir.path().join(format!("copy {n}")))
        .collect();
    for path in &paths {
        filled(path, 2 * LARGE);
    }
    let copies = (0..runs).map(|_| {
        let (paths, config) = (paths.clone(), env::RealConfig::default());
        let runtime = Runtime::real(config).expect("a runtime");
        runtime.block_on(async move { of_copies(&paths).await })
    });
    print_copies(&copies.collect::<Vec<_>>());
}

//! What does a volume of one copy cost beside the store it is in?
//!
//! ```text
//! cargo bench -p tanada-vdisk --bench volume -- [--dir DIR] [--runs N]
//!
//! 1 MiB in order, 4 at once | 4 KiB anywhere, 16 at once: written, each durable before it is answered, and read
//! store: the objects of a store in this process | volume: the same store through a volume of one copy
//! ```
//!
//! On a real file of a folder (the working directory unless told), written over once before anything is measured; its meta store is
//! in memory. Figures are the median of the runs with the lowest and the highest; a ratio is one of figures of the same run.
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

async fn volume(node: &Rc<Node>) -> Rc<Volume> {
    let twin = Twin::new("meta");
    let numbers = Known {
        record: Numbers::first(),
        changed: None,
    };
    let id = VolumeId(numbers.record.volume);
    let name = "bench".parse().expect("a name");
    let created = image::create(&numbers, name, LARGE * MIB, 1, 1);
    let (_, change) = created.expect("it can be");
    let meta = twin.client();
    let made = Images { meta }.change(change).await;
    made.expect("nothing is in the way");
    let origin = Origin {
        client: ClientId(1),
        class: Class::Normal,
    };
    let site = Site {
        number: StoreNumber(1),
        domain: DomainId(1),
        local: true,
        rotating: false,
        door: Rc::new(LocalDoor(Rc::clone(node))),
    };
    let choice = Choice::new(build(Kind::Tanada, &Options::default()));
    let settings = Settings::new("bench", origin);
    let opened = Volume::open(id, twin.client(), choice, vec![site], settings).await;
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
                    let volume = volume(&node).await;
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
    let mut file = std::fs::File::create(&path).expect("the folder takes files");
    for _ in 0..2 * LARGE {
        file.write_all(&vec![0; MIB as usize])
            .expect("there is room");
    }
    file.sync_all().expect("the disk is well");
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
}

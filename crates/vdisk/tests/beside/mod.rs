//! A store, and a volume of copies in stores, asked for the same: for the bench on real files and the test on modelled disks.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use base::{Buf, Sector, View};
use device::{Class as DeviceClass, Device, DeviceExt};
use env::sync::join_all;
use policy::place::{Class, ClientId, DomainId, Kind, Options, Origin, build};
use policy::share::{BytesPerSec, Costs};
use store::qos::manager::{Manager, ManagerOptions};
use store::{Change, Settings as StoreSettings, Store};
use vdisk::image::records::Images;
use vdisk::image::tree::{self as image, Numbers, Versioned};
use vdisk::meta::MemoryMetaStore;
use vdisk::replica::choice::Choice;
use vdisk::replica::connect::{Connection, Connector, LocalConnector};
use vdisk::volume::{Settings, StoreInfo, Volume};
use vdisk::{StoreNumber, VolumeId};

pub const MIB: u64 = 1 << 20;
pub const EXTENT: u64 = 4 * MIB;

/// How much is asked for.
#[derive(Clone, Copy)]
pub struct Amount {
    /// Written and read in pieces of 1 MiB.
    pub mib: u64,
    /// Pieces of 4 KiB, anywhere in that.
    pub small: u64,
}

/// What is asked, and in what it is counted each second.
pub const CASES: [(&str, &str); 5] = [
    ("write 1 MiB x 4, new", "MiB/s"),
    ("write 1 MiB x 4", "MiB/s"),
    ("read 1 MiB x 4", "MiB/s"),
    ("write 4 KiB x 16", "per s"),
    ("read 4 KiB x 16", "per s"),
];

/// Of each case.
pub type Rates = [f64; CASES.len()];

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

/// A block of the first `mib`; the same ones each time.
pub fn anywhere(at: u64, mib: u64) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (mib * MIB / 4096) * 4096
}

async fn rates<W: Future<Output = ()>, R: Future<Output = ()>, F: Future<Output = ()>>(
    amount: Amount,
    write: impl Fn(u64, View) -> W,
    read: impl Fn(u64, u64) -> R,
    flush: impl Fn() -> F,
) -> Rates {
    let large = View::copy_of(&vec![7; MIB as usize]);
    let small = large.slice(0, 4096);
    let Amount { mib, small: many } = amount;
    let at = |nth| anywhere(nth, mib);
    let write_large = |nth| write(nth * MIB, large.clone());
    let write_small = |nth| write(at(nth), small.clone());
    [
        rate(mib, 4, write_large, flush()).await,
        rate(mib, 4, write_large, flush()).await,
        rate(mib, 4, |nth| read(nth * MIB, MIB), async {}).await,
        rate(many, 16, write_small, flush()).await,
        rate(many, 16, |nth| read(at(nth), 4096), async {}).await,
    ]
}

/// A store's objects, as long as a volume's extents.
async fn of_store(node: &Rc<Manager>, amount: Amount) -> Rates {
    let connection = LocalConnector(Rc::clone(node)).open("g/bench", 1).await;
    let connection: &Rc<dyn Connection> = &connection.expect("sealed");
    let object = |at: u64| format!("object {}", at / EXTENT);
    let write = async |at: u64, data: View| {
        // As the volume does: what is answered is durable.
        let change = Change::FUA.creating();
        let wrote = connection
            .write(&object(at), at % EXTENT, data, change)
            .await;
        wrote.expect("a write");
    };
    let read = async |at: u64, len: u64| {
        let read = connection.read(&object(at), at % EXTENT, len).await;
        assert_eq!(read.expect("a read").len() as u64, len);
    };
    let flush = async || connection.flush().await.expect("a flush");
    rates(amount, write, read, flush).await
}

/// A volume, as a client of it.
async fn of_volume(volume: &Rc<Volume>, amount: Amount) -> Rates {
    let write = async |at: u64, data: View| {
        let wrote = volume.write_at(Sector(at / 512), data).await;
        wrote.expect("a write");
    };
    let read = async |at: u64, len: u64| {
        let buf = Buf::for_read(len as usize);
        let read = volume.read(Sector(at / 512), buf, DeviceClass::Foreground);
        drop(read.await.expect("a read"));
    };
    let flush = async || volume.flush().await.expect("a flush");
    rates(amount, write, read, flush).await
}

/// The store itself, or with `through` a volume of one copy in it.
pub async fn of(node: Rc<Manager>, through: bool, amount: Amount) -> Rates {
    if !through {
        return of_store(&node, amount).await;
    }
    let volume = volume(&[node], amount.mib * MIB).await;
    let rates = of_volume(&volume, amount).await;
    volume.close().await.expect("a close");
    rates
}

/// A new store on a disk.
pub async fn node(disk: Rc<dyn Device>) -> Rc<Manager> {
    let settings = StoreSettings {
        force: true,
        ..StoreSettings::default()
    };
    let made = Store::format(Rc::clone(&disk), settings).await;
    made.expect("a store").close().await.expect("a close");
    let options = ManagerOptions::new(Costs::flat(BytesPerSec::mb(2_000)), [9; 32]);
    Manager::open(disk, options).await.expect("it opens")
}

/// A new volume with a copy in each.
pub async fn volume(nodes: &[Rc<Manager>], size: u64) -> Rc<Volume> {
    let meta_store = MemoryMetaStore::new("meta");
    let numbers = Versioned {
        record: Numbers::first(),
        changed: None,
    };
    let id = VolumeId(numbers.record.volume);
    let name = "bench".parse().expect("a name");
    let created = image::create(&numbers, name, size, nodes.len() as u8, 1);
    let (_, change) = created.expect("it can be");
    let meta = meta_store.client();
    let made = Images { meta }.change(change).await;
    made.expect("nothing is in the way");
    let origin = Origin {
        client: ClientId(1),
        class: Class::Normal,
    };
    let store_infos = (1..).zip(nodes).map(|(number, node)| StoreInfo {
        number: StoreNumber(number),
        name: format!("s{number}"),
        domain: DomainId(u32::from(number)),
        local: true,
        rotating: false,
        connector: Rc::new(LocalConnector(Rc::clone(node))),
    });
    let store_infos = store_infos.collect();
    let choice = Choice::new(build(Kind::Tanada, &Options::default()));
    let settings = Settings::new("bench", origin);
    let opened = Volume::open(id, meta_store.client(), choice, store_infos, settings).await;
    opened.expect("it opens")
}

//! `[[store]]`: objects on a device, with reserved throughput.
//!
//! ```text
//! keys -> what each says by itself -> the device it stands on -> who may come in at its addresses
//! ```
//!
//! Always true of a `StoreConfig`:
//! 1. Its device has no other use, and is not read-only.
//! 2. No other machine comes in without a token or the node key.
//! 3. No other machine reaches it but in TLS.

use std::path::{Path, PathBuf};

use base::{Bytes, Nanos};
use env::net::Address;
use policy::share::BytesPerSec;
use store::qos::queue::QueueOptions;

use super::export::ExportConfig;
use super::keys::{At, Keys, instead};
use super::scheduling::{Scheduling, read_scheduling};
use super::types::{AdminConfig, DeviceConfig};
use super::values::{Things, any_port, is_local, read_new_name, read_span, valid_name};

/// Where a store is unless configured: the port after the admin API's.
pub const LISTEN: &str = "127.0.0.1:10881";
/// Buffers of a store unless configured.
pub const MEMORY: Bytes = Bytes::mib(64);
/// With less even one client of 4 MiB pieces would starve.
pub const MEMORY_MIN: Bytes = Bytes::mib(8);
/// How far clocks may differ unless configured.
pub const CLOCK_SKEW: Nanos = Nanos::secs(5);

/// A store of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreConfig {
    /// Unique among stores.
    pub name: String,
    /// The device, stripe or hybrid it stands on.
    pub device: String,
    /// Where its clients connect.
    pub listen: Vec<Address>,
    /// Who of its clients is next, and how its queue is run.
    pub scheduling: Scheduling,
    /// The allocation unit of a store that is made; one that is there keeps its own.
    pub unit: Bytes,
    /// Make a store of a blank device.
    pub create: bool,
    /// What the device is assumed to do until it is calibrated.
    pub assumed: Assumed,
    /// How fast all data are read to be checked; `None`: only when asked.
    pub scrub: Option<BytesPerSec>,
    /// Background work gets at least and at most this much; `None`: a twentieth and a half of the device.
    pub background: Background,
    /// May freed room go back to the device? Not where a preallocated file is to keep its blocks.
    pub discard: bool,
    /// All buffers of its clients together.
    pub memory: Bytes,
    /// Who may come in.
    pub access: Access,
    /// In a cluster: how it is seen there.
    pub place: Place,
}

/// What a device is assumed to do; `None`: as its model says, or a careful guess.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Assumed {
    /// Of reads.
    pub read_speed: Option<BytesPerSec>,
    /// Of writes.
    pub write_speed: Option<BytesPerSec>,
}

/// Who may come in at a store's addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    /// How far the clock of the machine that signs a token may be off.
    pub clock_skew: Nanos,
    /// The key by which other nodes come in.
    pub node_key_file: PathBuf,
    /// Let in clients that show nothing, as best effort.
    pub unauthenticated: bool,
}

/// How other nodes of a cluster see a store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    /// Where other nodes reach it, if not at its first address.
    pub advertise: Option<Address>,
    /// What it fails together with.
    pub domain: Option<String>,
}

/// What background work gets of a device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Background {
    /// At least so much.
    pub floor: Option<BytesPerSec>,
    /// At most so much.
    pub ceiling: Option<BytesPerSec>,
}

impl Background {
    /// What is said goes into the options of a queue.
    pub fn put_into(self, queue: &mut QueueOptions) {
        // What is said counts; what is not gives way.
        queue.floor = self.floor.unwrap_or(queue.floor);
        queue.ceiling = self.ceiling.unwrap_or(queue.ceiling.max(queue.floor));
        queue.floor = queue.floor.min(queue.ceiling);
    }
}

fn read_background(keys: &mut Keys<'_, '_>) -> Background {
    let floor = keys.parse("floor", str::parse::<BytesPerSec>);
    let ceiling = keys.parse("ceiling", str::parse::<BytesPerSec>);
    if let (Some(floor), Some(ceiling)) = (&floor, &ceiling)
        && floor.value > ceiling.value
    {
        let what = format!(
            "{} is below the floor of {}; background work gets at least the floor and at most the ceiling",
            ceiling.value, floor.value
        );
        keys.complain_at(ceiling.at, "ceiling", what);
    }
    Background {
        floor: floor.map(|at| at.value),
        ceiling: ceiling.map(|at| at.value),
    }
}

pub(super) fn read_assumed(keys: &mut Keys<'_, '_>) -> Assumed {
    Assumed {
        read_speed: keys.parse("read_speed", read_rate).map(|at| at.value),
        write_speed: keys.parse("write_speed", read_rate).map(|at| at.value),
    }
}

fn read_place(keys: &mut Keys<'_, '_>) -> Place {
    let advertise = keys.parse("advertise", str::parse::<Address>);
    let domain = keys.parse("domain", valid_name);
    Place {
        advertise: advertise.map(|at| at.value),
        domain: domain.map(|at| at.value),
    }
}

/// Reads one `[[store]]`.
pub(super) fn read_store(
    keys: &mut Keys<'_, '_>,
    data_dir: &Path,
    devices: &[DeviceConfig],
    things: &mut Things,
    earlier: &[StoreConfig],
    admin: &AdminConfig,
) -> Option<StoreConfig> {
    let is_taken = |name: &str| {
        let mut others = earlier.iter().map(|store| &store.name).chain(&things.names);
        others.any(|other| other == name)
    };
    let name = read_new_name(keys, is_taken, "device, hybrid and store");
    let device = read_device_of_store(keys, devices, things);
    let listen = keys.parse_list("listen", str::parse::<Address>);
    let scheduling = read_scheduling(keys);
    let unit = keys.take::<Bytes>("unit");
    let create = keys.is_on("create");
    let assumed = read_assumed(keys);
    let scrub = keys.parse_or("scrub", None, read_rate_or_off);
    let background = read_background(keys);
    let discard = keys.value("discard").unwrap_or(true);
    let memory = keys.take::<Bytes>("memory");
    let clock_skew = keys.parse_or("clock_skew", CLOCK_SKEW, read_span);
    let node_key_file = keys.value("node_key_file");
    let unauthenticated = keys.take::<bool>("unauthenticated");
    refuse_insecure(keys);
    let place = read_place(keys);
    check_sizes(keys, unit, memory);
    let missing = format!(
        "listen is missing; say where clients connect: listen = \"{LISTEN}\", \"tls:IP:PORT\" or \
         \"unix:/run/tanada/s0.sock\""
    );
    let listen = keys.need(listen, &missing)?;
    check_addresses(keys, &listen, earlier, admin);
    let is_open = unauthenticated.is_some_and(|at| at.value);
    check_exposed(keys, &listen, unauthenticated);
    let name = name?;
    Some(StoreConfig {
        access: Access {
            clock_skew,
            node_key_file: node_key_file.unwrap_or_else(|| node_key_file_of(data_dir, &name)),
            unauthenticated: is_open,
        },
        name,
        device: device?,
        listen: listen.value,
        scheduling,
        unit: unit.map_or(Bytes::mib(1), |at| at.value),
        create,
        assumed,
        scrub,
        background,
        discard,
        memory: memory.map_or(MEMORY, |at| at.value),
        place,
    })
}

fn check_sizes(keys: &Keys<'_, '_>, unit: Option<At<Bytes>>, memory: Option<At<Bytes>>) {
    if let Some(At { value: unit, at }) = unit
        && !(unit.0.is_power_of_two() && (Bytes::kib(64)..=Bytes::mib(16)).contains(&unit))
    {
        let what = format!("{unit} is not a power of two from 64 KiB to 16 MiB");
        keys.complain_at(at, "unit", what);
    }
    if let Some(At { value: memory, at }) = memory
        && memory < MEMORY_MIN
    {
        let what = format!("{memory} is too little for one client; write at least {MEMORY_MIN}");
        keys.complain_at(at, "memory", what);
    }
}

/// Where a store's node key is unless configured.
pub fn node_key_file_of(data_dir: &Path, store: &str) -> PathBuf {
    data_dir.join("keys").join(format!("{store}.node"))
}

/// Complains if other machines reach the store and nothing keeps them out, or what they say is open to all on the way.
fn check_exposed(
    keys: &Keys<'_, '_>,
    listen: &At<Vec<Address>>,
    unauthenticated: Option<At<bool>>,
) {
    let far = || listen.value.iter().filter(|at| !is_local(at));
    if let Some(far) = far().next()
        && let Some(open) = unauthenticated.filter(|at| at.value)
    {
        let what = format!(
            "{far} can be reached from other machines, and a client that reaches it would read and write every \
             object; listen on 127.0.0.1 or a Unix socket, or take unauthenticated out and give clients \
             capabilities (`tanada reservation create`) or the node key"
        );
        keys.complain_at(open.at, "unauthenticated", what);
    } else if let Some(far) = far().find(|at| !at.is_tls()) {
        let what = format!(
            "{far} can be reached from other machines, and in the clear who is on the way reads all data, takes \
             capabilities over and changes requests; write listen = \"tls:{far}\" and make certificates (`tanada cluster ca \
             init`, then `tanada node create`), or listen on 127.0.0.1 or a Unix socket"
        );
        keys.complain_at(listen.at, "listen", what);
    }
}

/// What the key once allowed is not to be had any more.
fn refuse_insecure(keys: &mut Keys<'_, '_>) {
    if let Some(At { at, .. }) = keys.take::<bool>("insecure") {
        let what = "a store no longer speaks in the clear where other machines reach it; take the line out, write listen = \
                    \"tls:IP:PORT\" and make certificates (`tanada cluster ca init`, then `tanada node create`)";
        keys.complain_at(at, "insecure", what);
    }
}

/// The device, which from now on has no other use.
fn read_device_of_store(
    keys: &mut Keys<'_, '_>,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<String> {
    let found = keys.take::<String>("device");
    let missing = "device is missing; name what it stands on: device = \"...\"";
    let At { value: device, at } = keys.need(found, missing)?;
    things.find(keys, "device", &device, at)?;
    if devices.iter().any(|of| of.name == device && of.read_only) {
        let what = format!("\"{device}\" is read_only, and a store writes to its device");
        keys.complain_at(at, "device", what);
        return None;
    }
    things.take_part(keys, "device", &device, at, None)?;
    Some(device)
}

fn check_addresses(
    keys: &Keys<'_, '_>,
    listen: &At<Vec<Address>>,
    earlier: &[StoreConfig],
    admin: &AdminConfig,
) {
    if listen.value.is_empty() {
        keys.complain_at(
            listen.at,
            "listen",
            "name at least one address, or no client can connect",
        );
    }
    for address in listen.value.iter().filter(|address| !any_port(address)) {
        if admin.has(address) {
            let what = format!("{address} is where the admin API listens; take another one");
            keys.complain_at(listen.at, "listen", what);
        }
        let other = earlier.iter().find(|other| other.listen.contains(address));
        if let Some(other) = other {
            let what = format!(
                "{address} is where the store \"{}\" listens; every store has addresses of its own",
                other.name
            );
            keys.complain_at(listen.at, "listen", what);
        }
    }
}

/// An export at an address of a store cannot be.
pub(super) fn check_against_exports(
    keys: &Keys<'_, '_>,
    export: &ExportConfig,
    stores: &[StoreConfig],
) {
    let nbd = export.nbd.iter().map(|address| ("nbd", address));
    let sockets = export.vhost_user.iter();
    let all = nbd.chain(sockets.map(|address| ("vhost-user", address)));
    for (key, address) in all.filter(|(_, address)| !any_port(address)) {
        if let Some(store) = stores.iter().find(|store| store.listen.contains(address)) {
            let what = format!(
                "{address} is where the store \"{}\" listens; take another one",
                store.name
            );
            keys.complain(key, what);
        }
    }
}

fn read_rate(text: &str) -> Result<BytesPerSec, String> {
    match text.parse::<BytesPerSec>() {
        Ok(BytesPerSec(0)) => Err("a device that does nothing serves no client".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// `20MB/s`, or `off`.
fn read_rate_or_off(text: &str) -> Result<Option<BytesPerSec>, String> {
    if text == "off" {
        return Ok(None);
    }
    match text.parse::<BytesPerSec>() {
        Ok(BytesPerSec(0)) => Err("a rate of zero never ends; write \"off\"".to_owned()),
        Ok(rate) => Ok(Some(rate)),
        Err(error) => Err(format!("{error}, or \"off\"")),
    }
}

/// What to say of a store that is not there.
pub fn unknown_store<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    format!(
        "there is no store '{name}'{}",
        instead(name, known, "there are")
    )
}

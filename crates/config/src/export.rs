//! `[[export]]`: what clients see of a device, a hybrid or a volume of the cluster, and on what terms.
//!
//! ```text
//! device -> a thing of this configuration that is part of nothing | volume:NAME, looked up when a client comes
//! ```
//!
//! Always true of an `ExportConfig`:
//! 1. A thing of this configuration that it names is there, and part of nothing else.
//! 2. One that names a volume stands beside a `[cluster]`. Whether the volume is there shows when a client asks.
//! 3. No two have one name at one address, or as block devices of this machine.
//! 4. Each is seen by NBD clients, by virtual machines, as a block device, or several of these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use env::net::Address;
use policy::poll::Setting;
use policy::share::cap::Caps;
use vdisk::cluster::opened::Terms;
use vdisk::record::{Fairness, Name, PriorityClass};

use super::caps::read_caps;
use super::keys::{At, Keys};
use super::types::AdminConfig;
use super::values::{Things, any_port, is_local, without_tls};

/// What a volume's name stands behind.
const VOLUME: &str = "volume:";

/// `[[export]]`: a device, hybrid or volume that clients see.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// As it is written.
    pub device: String,
    /// The volume of the cluster that `device` names, if it does.
    pub volume: Option<VolumeConfig>,
    /// What NBD clients call it.
    pub name: String,
    /// Where NBD clients connect.
    pub nbd: Vec<Address>,
    /// This machine's kernel shows it as a block device.
    pub ublk: bool,
    /// Where virtual machines connect (vhost-user-blk).
    pub vhost_user: Option<Address>,
    /// Clients cannot write.
    pub read_only: bool,
    /// Clients must speak TLS.
    pub tls: Option<TlsConfig>,
    /// What the data thread behind it does while it has nothing to do, if that is said here.
    pub poll: Option<Setting>,
    /// Threads that serve NBD clients for the data thread behind it; 0: it serves them itself.
    pub gates: u32,
    /// What all its clients together get at most.
    pub caps: Caps,
}

/// The most gates of an address.
const GATES_MAX: u32 = 64;

/// A volume of the cluster, and what its export sets otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeConfig {
    /// Its name in the cluster.
    pub name: Name,
    /// Its class and share of the stores.
    pub terms: Terms,
}

/// How an address speaks TLS.
#[derive(Debug, Clone, PartialEq)]
pub struct TlsConfig {
    /// PEM: the certificate and those that vouch for it.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// Clients must show a certificate this authority signed.
    pub client_ca: Option<PathBuf>,
    /// The exports that a name in a client's certificate opens; `None`: every one.
    pub clients: Option<BTreeMap<String, Vec<String>>>,
}

pub(super) fn read_tls_table(mut tls: Keys<'_, '_>) -> Option<TlsConfig> {
    let certificate = tls.take::<PathBuf>("certificate");
    let key = tls.take::<PathBuf>("key");
    let client_ca = tls.take::<PathBuf>("client_ca");
    let clients = tls.take::<BTreeMap<String, Vec<String>>>("clients");
    if let (None, Some(clients)) = (&client_ca, &clients) {
        let what = "names in certificates say something only if an authority signed them: add client_ca, the path of \
                    its certificate";
        tls.complain_at(clients.at, "clients", what);
    }
    if certificate.is_none() || key.is_none() {
        tls.complain(
            "",
            "certificate and key are both needed: the paths of two PEM files",
        );
    }
    tls.finish();
    Some(TlsConfig {
        certificate: certificate?.value,
        key: key?.value,
        client_ca: client_ca.map(|at| at.value),
        clients: clients.map(|at| at.value),
    })
}

/// Complains about NBD in the clear where other machines reach it, unless `insecure` says that this is meant.
pub(super) fn check_exposed(
    keys: &Keys<'_, '_>,
    nbd: &At<Vec<Address>>,
    has_tls: bool,
    insecure: bool,
) {
    if has_tls || insecure {
        return;
    }
    for address in nbd.value.iter().filter(|address| !is_local(address)) {
        let what = format!(
            "{address} can be reached from other machines, and without TLS every one of them reads and writes the disk, \
             and what is read and written can be seen on the way; add tls with client_ca, listen on 127.0.0.1 or a Unix socket, or write \
             insecure = true if the network is your own"
        );
        keys.complain_at(nbd.at, "nbd", what);
    }
}

/// Reads one; `has_cluster`: there is a `[cluster]`, be it a good one or not.
pub(super) fn read_export(
    keys: &mut Keys<'_, '_>,
    things: &Things,
    has_cluster: bool,
    earlier: &[ExportConfig],
    admin: &AdminConfig,
) -> Option<ExportConfig> {
    let device = keys.take::<String>("device");
    let nbd = keys.parse_list("nbd", without_tls);
    let name = keys.take::<String>("name");
    let read_only = keys.is_on("read_only");
    let tls = keys.table("tls").map(read_tls_table);
    let insecure = keys.is_on("insecure");
    let ublk = keys.is_on("ublk");
    let poll = keys.parse("poll", str::parse);
    let vhost_user = keys.parse("vhost-user", socket);
    let class = keys.parse("priority", priority);
    let fairness = read_fairness(keys);
    let caps = read_caps(keys);

    let missing = "device is missing; name what to export: device = \"...\"";
    let At { value: device, at } = keys.need(device, missing)?;
    let volume = match device.strip_prefix(VOLUME) {
        Some(name) => Some(read_volume(keys, name, at, has_cluster)?),
        None => {
            check_thing(keys, &device, at, things)?;
            None
        }
    };
    if volume.is_none() {
        refuse_terms(keys, class.as_ref(), fairness.as_ref());
    }
    let terms = Terms {
        priority: class.map(|at| at.value),
        fairness: fairness.map(|at| at.value),
    };
    let volume = volume.map(|name| VolumeConfig { name, terms });
    let elsewhere = ublk || vhost_user.is_some();
    let nbd = need_place(keys, nbd, elsewhere, at)?;
    check_exposed(keys, &nbd, tls.is_some(), insecure);
    let name = read_name(keys, name, volume.as_ref(), At { value: &device, at });
    check_addresses(keys, &nbd, &name, tls.as_ref(), earlier, admin);
    check_disk(keys, ublk, &name, earlier);
    if let Some(at) = &vhost_user {
        check_socket(keys, at, &name, &nbd, earlier, admin);
    }
    Some(ExportConfig {
        device,
        volume,
        name: name.value,
        gates: read_gates(keys, &nbd.value),
        nbd: nbd.value,
        ublk,
        vhost_user: vhost_user.map(|at| at.value),
        read_only,
        tls: tls.flatten(),
        poll: poll.map(|at| at.value),
        caps,
    })
}

/// What clients call it: as it says, else as what it exports.
fn read_name(
    keys: &Keys<'_, '_>,
    name: Option<At<String>>,
    volume: Option<&VolumeConfig>,
    device: At<&String>,
) -> At<String> {
    let name = name.unwrap_or_else(|| {
        let own = volume.map(|volume| volume.name.to_string());
        At {
            value: own.unwrap_or_else(|| device.value.clone()),
            at: device.at,
        }
    });
    if name.value.len() > 4096 || name.value.contains('\0') {
        keys.complain_at(name.at, "name", "an export's name has at most 4096 bytes");
    }
    name
}

/// Where NBD clients connect; an export that is seen `elsewhere`, which stands `at`, needs no such place.
fn need_place(
    keys: &mut Keys<'_, '_>,
    nbd: Option<At<Vec<Address>>>,
    elsewhere: bool,
    at: usize,
) -> Option<At<Vec<Address>>> {
    let missing = "nbd is missing; say where clients connect: nbd = \"127.0.0.1:10809\" \
                   or \"unix:/run/tanada.sock\"; or write ublk = true for a block device of this machine, or vhost-user = \"/run/tanada.sock\" for virtual machines";
    match nbd {
        None if elsewhere => Some(At {
            value: Vec::new(),
            at,
        }),
        nbd => keys.need(nbd, missing),
    }
}

/// How many gates; complains where no NBD client comes, or about too many of them.
fn read_gates(keys: &mut Keys<'_, '_>, nbd: &[Address]) -> u32 {
    let Some(gates) = keys.take::<u32>("gates") else {
        return 0;
    };
    if gates.value > GATES_MAX {
        let what = format!(
            "{} are too many: each is a thread, and more than the machine has processors help nothing; write 0 to {GATES_MAX}",
            gates.value
        );
        keys.complain_at(gates.at, "gates", what);
    }
    if gates.value > 0 && nbd.is_empty() {
        let what = "gates serve NBD clients, and this export has no nbd; leave it out, or say where they connect";
        keys.complain_at(gates.at, "gates", what);
    }
    gates.value
}

/// The path of a socket, with or without `unix:`.
fn socket(text: &str) -> Result<Address, String> {
    let text = match text.starts_with("unix:") {
        true => text.to_owned(),
        false => format!("unix:{text}"),
    };
    text.parse::<Address>().map_err(|error| error.to_string())
}

/// Complains where something else listens at the socket for virtual machines.
fn check_socket(
    keys: &Keys<'_, '_>,
    socket: &At<Address>,
    name: &At<String>,
    nbd: &At<Vec<Address>>,
    earlier: &[ExportConfig],
    admin: &AdminConfig,
) {
    let mut others = earlier.iter().filter(|other| other.vhost_user.is_some());
    if others.any(|other| other.name == name.value) {
        let what = format!(
            "\"{}\" is a virtual machine's disk at another socket already, and whose guest it had last is kept by its name; give \
             this one another name",
            name.value
        );
        keys.complain_at(name.at, "name", what);
    }
    let address = &socket.value;
    let is_taken = |other: &ExportConfig| {
        other.nbd.contains(address) || other.vhost_user.as_ref() == Some(address)
    };
    let taken = match earlier.iter().find(|other| is_taken(other)) {
        Some(other) => Some(format!("export \"{}\" is", other.name)),
        None if nbd.value.contains(address) => Some("its own NBD clients connect".to_owned()),
        None if admin.has(address) => Some("the admin API listens".to_owned()),
        None => None,
    };
    if let Some(taken) = taken {
        let what = format!(
            "{address} is where {taken}; a virtual machine's disk has a socket of its own: write another path"
        );
        keys.complain_at(socket.at, "vhost-user", what);
    }
}

/// Complains where an export is a block device (`ublk`), and another one is by this name.
fn check_disk(keys: &Keys<'_, '_>, ublk: bool, name: &At<String>, earlier: &[ExportConfig]) {
    let mut disks = earlier.iter().filter(|other| ublk && other.ublk);
    if disks.any(|other| other.name == name.value) {
        let what = format!(
            "\"{}\" is a block device of this machine already, and is found again by its name after a restart; give this \
             one another name",
            name.value
        );
        keys.complain_at(name.at, "name", what);
    }
}

/// Complains where another listens, or has this name or other settings of TLS. `tls`: the export's table, if it has
/// one, as far as it could be read.
fn check_addresses(
    keys: &Keys<'_, '_>,
    nbd: &At<Vec<Address>>,
    name: &At<String>,
    tls: Option<&Option<TlsConfig>>,
    earlier: &[ExportConfig],
    admin: &AdminConfig,
) {
    for address in &nbd.value {
        if admin.has(address) && !any_port(address) {
            let what = format!("{address} is where the admin API listens; take another one");
            keys.complain_at(nbd.at, "nbd", what);
        }
        if let Some(other) = earlier
            .iter()
            .find(|other| other.vhost_user.as_ref() == Some(address))
        {
            let what = format!(
                "{address} is where virtual machines connect to export \"{}\"; take another one",
                other.name
            );
            keys.complain_at(nbd.at, "nbd", what);
        }
        let mut here = earlier.iter().filter(|other| other.nbd.contains(address));
        if here.clone().any(|other| other.name == name.value) {
            let what = format!(
                "\"{}\" is exported at {address} already; give it another name",
                name.value
            );
            keys.complain_at(name.at, "name", what);
        }
        let own = tls.unwrap_or(&None);
        if let Some(other) = here.find(|other| other.tls != *own) {
            let what = format!(
                "{address} is shared with export \"{}\", which has other tls settings; all exports \
                 at one address have the same",
                other.name
            );
            keys.complain_at(nbd.at, "nbd", what);
        }
    }
}

fn refuse_terms(
    keys: &Keys<'_, '_>,
    class: Option<&At<PriorityClass>>,
    fairness: Option<&At<Fairness>>,
) {
    let places = [
        ("priority", class.map(|it| it.at)),
        ("fairness", fairness.map(|it| it.at)),
    ];
    for (key, at) in places {
        if let Some(at) = at {
            let what = "only volumes of the cluster have one: stores ask whose requests come first, devices do not";
            keys.complain_at(at, key, what);
        }
    }
}

fn read_fairness(keys: &mut Keys<'_, '_>) -> Option<At<Fairness>> {
    let At { value, at } = keys.take::<f64>("fairness")?;
    match Fairness::try_from(value) {
        Ok(value) => Some(At { value, at }),
        Err(error) => {
            keys.complain_at(at, "fairness", error.to_string());
            None
        }
    }
}

/// A thing of this configuration that clients may have to themselves.
fn check_thing(keys: &Keys<'_, '_>, device: &str, at: usize, things: &Things) -> Option<()> {
    things.find(keys, "device", device, at)?;
    let Some(whole) = things.part_of.get(device) else {
        return Some(());
    };
    let instead = match whole {
        whole if whole.starts_with("[[stripe]]") => "export the stripe instead",
        whole if whole.starts_with("[[store]]") => "clients reach the store at its listen",
        _ => "export the hybrid instead",
    };
    let what = format!(
        "\"{device}\" is part of {whole}, and a write to one part would break the whole; {instead}"
    );
    keys.complain_at(at, "device", what);
    None
}

/// The volume that is named, if it can be one.
fn read_volume(keys: &Keys<'_, '_>, name: &str, at: usize, has_cluster: bool) -> Option<Name> {
    if let Some((volume, snapshot)) = name.split_once('@') {
        let what = format!(
            "\"{name}\" is a snapshot, and what is exported is a volume; clone it (`tanada snapshot clone \
             {volume}@{snapshot} NEW`) and write volume:NEW, with read_only = true if it is to stay as it is"
        );
        keys.complain_at(at, "device", what);
        return None;
    }
    let named = name.parse::<Name>();
    if let Err(what) = &named {
        keys.complain_at(at, "device", format!("{what}; write such as volume:vm1"));
    }
    if !has_cluster {
        let what = format!(
            "volumes are kept by a cluster, and there is no [cluster] here; add one (docs/virtual-disks.md begins with an \
             example), or name a device instead of {VOLUME}{name}"
        );
        keys.complain_at(at, "device", what);
        return None;
    }
    named.ok()
}

/// `low`, `normal` or `high`.
pub fn priority(text: &str) -> Result<PriorityClass, String> {
    match text {
        "low" => Ok(PriorityClass::Low),
        "normal" => Ok(PriorityClass::Normal),
        "high" => Ok(PriorityClass::High),
        other => Err(format!(
            "'{other}' is no priority; write low, normal or high"
        )),
    }
}

/// As [`priority`] reads it.
pub fn priority_name(class: PriorityClass) -> &'static str {
    match class {
        PriorityClass::Low => "low",
        PriorityClass::Normal => "normal",
        PriorityClass::High => "high",
    }
}

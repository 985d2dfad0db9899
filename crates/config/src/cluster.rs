//! `[cluster]`: this node among those that keep virtual disks together.
//!
//! ```text
//! node, meta -> which of the [[store]]s belong to it -> what each fails together with -> where clients connect -> announce
//! ```
//!
//! Always true of a `ClusterConfig`:
//! 1. Its stores are stores of this configuration, and other nodes can reach them if there are other nodes.
//! 2. Nothing else listens at its addresses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base::{Map, Nanos};
use env::net::Address;
use policy::place::Kind;
use policy::share::BytesPerSec;
use serde::Deserialize;
use vdisk::replica::broadcast::Route;

use super::export::{ExportConfig, TlsConfig};
use super::export::{check_exposed, read_tls_table};
use super::keys::{At, Keys, instead};
use super::store::StoreConfig;
use super::store::node_key_file_of;
use super::types::AdminConfig;
use super::values::{any_port, read_span, valid_name, without_tls};

/// Between two announcements of a store whose queue changes.
pub const ANNOUNCE_EVERY: Nanos = Nanos::millis(10);
/// The bounds of what may be asked for.
const EVERY: std::ops::RangeInclusive<Nanos> = Nanos::millis(1)..=Nanos::secs(1);
/// Nodes that are announced to one by one.
const PEERS_MAX: usize = 256;

/// This node of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterConfig {
    /// How fast its link is each way; `None`: not known, and not booked.
    pub network: Option<BytesPerSec>,
    /// The name of this node.
    pub node: String,
    /// Where the records are.
    pub meta: MetaConfig,
    /// Names of `[[store]]`s.
    pub stores: Vec<String>,
    /// What each store fails together with.
    pub domains: Map<String, String>,
    /// Where every volume is exported by its name.
    pub nbd: Vec<Address>,
    /// Its NBD clients must speak TLS.
    pub tls: Option<TlsConfig>,
    /// The key by which nodes come in at each other's stores.
    pub key_file: PathBuf,
    /// Where the level is noted that the cluster is at.
    pub level_file: PathBuf,
    /// Which nodes get load reports unasked; `None`: no other node.
    pub announce: Option<AnnounceConfig>,
    /// Which copy is read, and where new extents go.
    pub replica_choice: Kind,
}

/// To whom load reports of the stores' queues are sent unasked.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnounceConfig {
    /// By which way.
    pub route: Route,
    /// A store says so little apart at least.
    pub every: Nanos,
}

impl AnnounceConfig {
    /// For people.
    pub fn describe(&self) -> String {
        match &self.route {
            Route::Multicast(group) => format!("the group {group}"),
            Route::Unicast { own, peers } => {
                let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
                format!("{} one by one, heard at {own}", peers.join(", "))
            }
        }
    }
}

/// Where the records are that all nodes agree on.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaConfig {
    /// In a file, for a cluster of one node.
    Redb(PathBuf),
    /// In etcd.
    Etcd(EtcdConfig),
}

/// How etcd is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct EtcdConfig {
    /// URLs of its members.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// PEM files.
    pub authority: Option<PathBuf>,
    /// The own certificate and key, as PEM files.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Name, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

impl MetaConfig {
    /// For people.
    pub fn describe(&self) -> String {
        match self {
            MetaConfig::Redb(path) => format!("the file {}", path.display()),
            MetaConfig::Etcd(etcd) => format!("etcd at {}", etcd.endpoints.join(", ")),
        }
    }
}

/// Reads `[cluster]`, if there is one; its stores get its key.
pub(super) fn read_cluster(
    root: &mut Keys<'_, '_>,
    data_dir: &Path,
    stores: &mut [StoreConfig],
    admin: &AdminConfig,
) -> Option<ClusterConfig> {
    let mut keys = root.table("cluster")?;
    let named = keys.has("node");
    let node = keys.parse("node", valid_name);
    let meta = read_meta(&mut keys, data_dir);
    let listed = keys.texts("stores");
    let domain = keys.parse("domain", valid_name).map(|at| at.value);
    let nbd = keys.parse_list("nbd", without_tls);
    let tls = keys.table("tls").map(read_tls_table);
    let insecure = keys.is_on("insecure");
    let key_file = keys.value("key_file");
    let announce = read_announce(&mut keys, meta.as_ref());
    let replica_choice = read_choice(&mut keys, meta.as_ref(), announce.as_ref());
    check_named(&keys, named);
    let chosen = chosen_stores(&keys, listed, stores);
    let nbd = nbd.unwrap_or(At {
        value: Vec::new(),
        at: keys.at(),
    });
    check_addresses(&keys, &nbd, stores, admin);
    check_exposed(&keys, &nbd, tls.is_some(), insecure);
    check_stores(&keys, &chosen, meta.as_ref());
    let key_file = key_file.unwrap_or_else(|| data_dir.join("keys").join("cluster.node"));
    let (node, meta) = (node?.value, meta?);
    let mut domains = Map::default();
    for store in stores.iter_mut().filter(|it| chosen.contains(&it.name)) {
        if store.access.node_key_file == node_key_file_of(data_dir, &store.name) {
            store.access.node_key_file.clone_from(&key_file);
        }
        // In a cluster of one node disks fail one by one; of several, nodes do.
        let usual = match meta {
            MetaConfig::Redb(_) => &store.name,
            MetaConfig::Etcd(_) => &node,
        };
        let own = store.place.domain.as_ref().or(domain.as_ref());
        domains.insert(store.name.clone(), own.unwrap_or(usual).clone());
        check_reach(&keys, store, &meta);
    }
    keys.finish();
    Some(ClusterConfig {
        network: None,
        node,
        meta,
        stores: chosen,
        domains,
        nbd: nbd.value,
        tls: tls.flatten(),
        key_file,
        level_file: data_dir.join("level"),
        announce,
        replica_choice,
    })
}

fn check_named(keys: &Keys<'_, '_>, named: bool) {
    if !named {
        let what = "node is missing; say what this node is called: node = \"n1\"";
        keys.complain("", what);
    }
}

/// The policy. One that goes by load reports alone takes other nodes' stores for idle where none come.
fn read_choice(
    keys: &mut Keys<'_, '_>,
    meta: Option<&MetaConfig>,
    announce: Option<&AnnounceConfig>,
) -> Kind {
    let Some(At { value: kind, at }) = keys.parse("replica_choice", chosen_policy) else {
        return Kind::default();
    };
    let has_others = matches!(meta, Some(MetaConfig::Etcd(_)));
    if kind.needs_reports() && has_others && announce.is_none() {
        let what = format!(
            "{kind} goes by load reports that nodes send unasked, and there are none: set announce on all nodes, or \
             write replica_choice = \"tanada\""
        );
        keys.complain_at(at, "replica_choice", what);
    }
    kind
}

/// A policy by which real requests can be chosen.
fn chosen_policy(name: &str) -> Result<Kind, String> {
    let mut selectable = Kind::selectable();
    selectable.find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Kind::selectable().map(Kind::name).collect();
        format!(
            "'{name}' is no policy for replicas; choose one of {}",
            names.join(", ")
        )
    })
}

/// A node by itself has nothing to keep volumes on without a store.
fn check_stores(keys: &Keys<'_, '_>, chosen: &[String], meta: Option<&MetaConfig>) {
    if chosen.is_empty() && matches!(meta, Some(MetaConfig::Redb(_))) {
        let what = "a cluster of one node needs a store: add a [[store]], or name those of other nodes in etcd";
        keys.complain("stores", what);
    }
}

/// The stores of this configuration that belong to the cluster: those listed, or all.
fn chosen_stores(
    keys: &Keys<'_, '_>,
    listed: Option<At<Vec<String>>>,
    stores: &[StoreConfig],
) -> Vec<String> {
    let known = || stores.iter().map(|store| store.name.as_str());
    let Some(At { value: listed, at }) = listed else {
        return known().map(str::to_owned).collect();
    };
    for name in listed.iter().filter(|name| known().all(|it| it != *name)) {
        let what = format!(
            "there is no [[store]] called \"{name}\"{}",
            instead(name, known(), "there are")
        );
        keys.complain_at(at, "stores", what);
    }
    listed
}

/// As it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a multicast group, such as \"239.1.2.3:10882\", or, without multicast, \
                 { listen = \"10.0.0.1:10882\", peers = [\"10.0.0.2:10882\"] }"
)]
enum Announce {
    Group(String),
    Each(Each),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Each {
    listen: String,
    peers: Vec<String>,
}

fn read_announce(keys: &mut Keys<'_, '_>, meta: Option<&MetaConfig>) -> Option<AnnounceConfig> {
    let given = keys.take::<Announce>("announce");
    let every = keys.parse("announce_every", |text| match read_span(text)? {
        span if EVERY.contains(&span) => Ok(span),
        span => Err(format!("{span} is not within 1 ms and 1 s")),
    });
    let Some(given) = given else {
        if let Some(every) = every {
            let what = "no node hears them: announce names a group, or who listens";
            keys.complain_at(every.at, "announce_every", what);
        }
        return None;
    };
    if let Some(MetaConfig::Redb(_)) = meta {
        let what = "a cluster with its records in a file has one node, and no other to announce to; leave it out, or \
                    put the records into etcd";
        keys.complain_at(given.at, "announce", what);
    }
    let route = match given.value {
        Announce::Group(group) => group_of(&group).map(Route::Multicast),
        Announce::Each(each) => peers_of(&each),
    };
    match route {
        Ok(route) => Some(AnnounceConfig {
            route,
            every: every.map_or(ANNOUNCE_EVERY, |at| at.value),
        }),
        Err(what) => {
            keys.complain_at(given.at, "announce", what);
            None
        }
    }
}

fn socket_of(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("'{text}' is no address; write IP:PORT, such as \"10.0.0.1:10882\"");
    let socket: SocketAddr = text.parse().map_err(|_| wrong())?;
    match socket.port() {
        0 => Err(format!(
            "{socket}: port 0 is none that others could send to"
        )),
        _ => Ok(socket),
    }
}

fn group_of(text: &str) -> Result<SocketAddr, String> {
    let group = socket_of(text)?;
    match group.ip().is_multicast() {
        true => Ok(group),
        false => Err(format!(
            "{group} is no multicast group (239.0.0.0 to 239.255.255.255 are for such use); to tell nodes one by one write \
             {{ listen = \"IP:PORT\", peers = [\"{group}\"] }}"
        )),
    }
}

fn peers_of(each: &Each) -> Result<Route, String> {
    let own = socket_of(&each.listen)?;
    let peers = each.peers.iter().map(|text| socket_of(text));
    let peers = peers.collect::<Result<Vec<_>, _>>()?;
    for one in peers.iter().chain([&own]) {
        if one.ip().is_multicast() {
            return Err(format!(
                "{one} is a multicast group; write announce = \"{one}\""
            ));
        }
        if one.is_ipv4() != own.is_ipv4() {
            return Err(format!(
                "{own} and {one} are of two kinds; use IPv4 or IPv6 for all"
            ));
        }
    }
    if let Some(any) = peers.iter().find(|it| it.ip().is_unspecified()) {
        return Err(format!("{any} is no address of another node"));
    }
    // The same list may stand on all nodes.
    let peers: Vec<SocketAddr> = peers.into_iter().filter(|it| *it != own).collect();
    match peers.len() {
        0 => Err("peers names no other node".to_owned()),
        1..=PEERS_MAX => Ok(Route::Unicast { own, peers }),
        many => Err(format!(
            "{many} peers are more than {PEERS_MAX}; use a multicast group"
        )),
    }
}

fn read_meta(keys: &mut Keys<'_, '_>, data_dir: &Path) -> Option<MetaConfig> {
    let Some(mut meta) = keys.table("meta") else {
        return Some(MetaConfig::Redb(data_dir.join("meta.redb")));
    };
    let redb = meta.take::<PathBuf>("redb");
    let etcd = meta.parse_list("etcd", |url| match url.contains("://") {
        true => Ok(url.to_owned()),
        false => Err(format!(
            "'{url}' is no endpoint; write such as \"http://10.0.0.1:2379\""
        )),
    });
    let prefix = meta.value::<String>("prefix");
    let authority = meta.value("authority");
    let own = (meta.value("certificate"), meta.value("key"));
    let user = (meta.value("user"), meta.value("password_file"));
    let what = "certificate and key go together: the paths of two PEM files";
    let own = both(&meta, own, what);
    let user = both(&meta, user, "user and password_file go together");
    let read = match (redb, etcd) {
        (Some(path), None) => Some(MetaConfig::Redb(path.value)),
        (None, Some(endpoints)) if !endpoints.value.is_empty() => {
            Some(MetaConfig::Etcd(EtcdConfig {
                endpoints: endpoints.value,
                prefix: prefix.unwrap_or_else(|| "tanada/".to_owned()),
                authority,
                own,
                user,
            }))
        }
        (Some(_), Some(_)) => {
            meta.complain(
                "",
                "the records are in a file (redb) or in etcd, not in both",
            );
            None
        }
        _ => {
            let what = "say where the records are: redb = \"PATH\" for one node, or etcd = [\"http://...\"] for several";
            meta.complain("", what);
            None
        }
    };
    meta.finish();
    read
}

/// Two values that say something only together.
fn both<A, B>(keys: &Keys<'_, '_>, pair: (Option<A>, Option<B>), what: &str) -> Option<(A, B)> {
    if pair.0.is_some() != pair.1.is_some() {
        keys.complain("", what);
    }
    pair.0.zip(pair.1)
}

fn check_addresses(
    keys: &Keys<'_, '_>,
    nbd: &At<Vec<Address>>,
    stores: &[StoreConfig],
    admin: &AdminConfig,
) {
    for address in nbd.value.iter().filter(|address| !any_port(address)) {
        let store = stores.iter().find(|store| store.listen.contains(address));
        let owner = match store {
            Some(store) => format!("the store \"{}\"", store.name),
            None if admin.has(address) => "the admin API".to_owned(),
            None => continue,
        };
        let what = format!("{address} is where {owner} listens; take another one");
        keys.complain_at(nbd.at, "nbd", what);
    }
}

/// Where other nodes reach a store that listens at these, unless it says otherwise: in TLS, if it speaks that.
pub fn advertised(listen: &[Address]) -> Option<&Address> {
    let tls = listen.iter().find(|address| address.is_tls());
    tls.or(listen.first())
}

/// Can other nodes reach the store?
fn check_reach(keys: &Keys<'_, '_>, store: &StoreConfig, meta: &MetaConfig) {
    let MetaConfig::Etcd(_) = meta else { return };
    let everywhere =
        |address: &Address| address.socket().is_some_and(|it| it.ip().is_unspecified());
    if store.place.advertise.is_none() && advertised(&store.listen).is_some_and(everywhere) {
        let what = format!(
            "the store \"{}\" listens on all addresses, and other nodes need one of them: write advertise = \
             \"HOST:PORT\" (in TLS \"tls:HOST:PORT\") into its [[store]]",
            store.name
        );
        keys.complain("stores", what);
    }
}

/// An export at an address of the cluster cannot be.
pub(super) fn check_against_exports(
    root: &Keys<'_, '_>,
    cluster: &ClusterConfig,
    exports: &[ExportConfig],
) {
    for address in cluster.nbd.iter().filter(|address| !any_port(address)) {
        let taken = exports.iter().find(|export| {
            export.nbd.contains(address) || export.vhost_user.as_ref() == Some(address)
        });
        if let Some(export) = taken {
            let what = format!(
                "nbd: {address} is where \"{}\" is exported; volumes have addresses of their own",
                export.name
            );
            root.complain("cluster", what);
        }
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;

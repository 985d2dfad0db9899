//! `[cluster]`: this node among those that keep virtual disks together.
//!
//! ```text
//! node, meta -> which of the [[store]]s belong to it -> what each fails together with -> where clients connect
//! ```
//!
//! Always true of a `ClusterConfig`:
//! 1. Its stores are stores of this configuration, and other nodes can reach them if there are other nodes.
//! 2. Nothing else listens at its addresses.

use std::path::{Path, PathBuf};

use base::Map;
use env::net::Address;

use super::keys::{At, Keys, instead};
use super::store::node_key_file_of;
use super::{AdminConfig, ExportConfig, StoreConfig, TlsConfig, check_name, read_tls_table};

/// This node of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterConfig {
    pub node: String,
    pub meta: MetaConfig,
    /// Names of `[[store]]`s.
    pub stores: Vec<String>,
    /// What each store fails together with.
    pub domains: Map<String, String>,
    /// Where every volume is exported by its name.
    pub nbd: Vec<Address>,
    pub tls: Option<TlsConfig>,
    /// The key by which nodes come in at each other's stores.
    pub key_file: PathBuf,
}

/// Where the records are that all nodes agree on.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaConfig {
    Redb(PathBuf),
    Etcd(EtcdConfig),
}

#[derive(Debug, Clone, PartialEq)]
pub struct EtcdConfig {
    pub endpoints: Vec<String>,
    pub prefix: String,
    /// PEM files.
    pub authority: Option<PathBuf>,
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
    let node = keys.parse("node", |text| check_name(text).map(|()| text.to_owned()));
    let meta = read_meta(&mut keys, data_dir);
    let named = keys.parse_list("stores", |text| Ok::<_, String>(text.to_owned()));
    let domain = keys.parse("domain", |text| check_name(text).map(|()| text.to_owned()));
    let nbd = keys.parse_list("nbd", str::parse::<Address>);
    let tls = keys.table("tls").map(read_tls_table);
    let key_file = keys.take::<PathBuf>("key_file").map(|at| at.value);
    if node.is_none() {
        let what = "node is missing; say what this node is called: node = \"n1\"";
        keys.complain("", what);
    }
    let known: Vec<&str> = stores.iter().map(|store| store.name.as_str()).collect();
    let chosen = match named {
        None => known.iter().map(|name| (*name).to_owned()).collect(),
        Some(At { value, at }) => {
            for name in value.iter().filter(|name| !known.contains(&name.as_str())) {
                let known = known.iter().copied();
                let what = format!(
                    "there is no [[store]] called \"{name}\"{}",
                    instead(name, known, "there are")
                );
                keys.complain_at(at, "stores", what);
            }
            value
        }
    };
    let nbd = nbd.unwrap_or(At {
        value: Vec::new(),
        at: keys.at(),
    });
    check_addresses(&keys, &nbd, stores, admin);
    if chosen.is_empty() && matches!(meta, Some(MetaConfig::Redb(_))) {
        let what = "a cluster of one node needs a store: add a [[store]], or name those of other nodes in etcd";
        keys.complain("stores", what);
    }
    let key_file = key_file.unwrap_or_else(|| data_dir.join("keys").join("cluster.node"));
    let node = node?.value;
    let meta = meta?;
    let mut domains = Map::default();
    for store in stores.iter_mut().filter(|it| chosen.contains(&it.name)) {
        if store.node_key_file == node_key_file_of(data_dir, &store.name) {
            store.node_key_file.clone_from(&key_file);
        }
        // In a cluster of one node disks fail one by one; of several, nodes do.
        let usual = match meta {
            MetaConfig::Redb(_) => &store.name,
            MetaConfig::Etcd(_) => &node,
        };
        let own = store.domain.clone();
        let common = domain.as_ref().map(|at| at.value.clone());
        let domain = own.or(common).unwrap_or_else(|| usual.clone());
        domains.insert(store.name.clone(), domain);
        check_reach(&keys, store, &meta);
    }
    keys.finish();
    Some(ClusterConfig {
        node,
        meta,
        stores: chosen,
        domains,
        nbd: nbd.value,
        tls: tls.flatten(),
        key_file,
    })
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
    let prefix = meta.take::<String>("prefix").map(|at| at.value);
    let authority = meta.take::<PathBuf>("authority").map(|at| at.value);
    let certificate = meta.take::<PathBuf>("certificate").map(|at| at.value);
    let key = meta.take::<PathBuf>("key").map(|at| at.value);
    let user = meta.take::<String>("user").map(|at| at.value);
    let password = meta.take::<PathBuf>("password_file").map(|at| at.value);
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            meta.complain(
                "",
                "certificate and key go together: the paths of two PEM files",
            );
            None
        }
    };
    let user = match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        _ => {
            meta.complain("", "user and password_file go together");
            None
        }
    };
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

fn check_addresses(
    keys: &Keys<'_, '_>,
    nbd: &At<Vec<Address>>,
    stores: &[StoreConfig],
    admin: &AdminConfig,
) {
    for address in &nbd.value {
        if matches!(address, Address::Tcp(socket) if socket.port() == 0) {
            continue;
        }
        let store = stores.iter().find(|store| store.listen.contains(address));
        let owner = match store {
            Some(store) => format!("the store \"{}\"", store.name),
            None if admin.listen.contains(address) => "the admin API".to_owned(),
            None => continue,
        };
        let what = format!("{address} is where {owner} listens; take another one");
        keys.complain_at(nbd.at, "nbd", what);
    }
}

/// Can other nodes reach the store?
fn check_reach(keys: &Keys<'_, '_>, store: &StoreConfig, meta: &MetaConfig) {
    let MetaConfig::Etcd(_) = meta else { return };
    let everywhere =
        |address: &Address| matches!(address, Address::Tcp(it) if it.ip().is_unspecified());
    if store.advertise.is_none() && store.listen.first().is_some_and(everywhere) {
        let what = format!(
            "the store \"{}\" listens on all addresses, and other nodes need one of them: write advertise = \
             \"HOST:PORT\" into its [[store]]",
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
    for address in &cluster.nbd {
        let any = matches!(address, Address::Tcp(socket) if socket.port() == 0);
        let taken = exports.iter().find(|export| export.nbd.contains(address));
        if let (Some(export), false) = (taken, any) {
            let what = format!(
                "nbd: {address} is where \"{}\" is exported; volumes have addresses of their own",
                export.name
            );
            root.complain("cluster", what);
        }
    }
}

//! What each data thread is to build: a configuration is cut into parts that share nothing.
//!
//! ```text
//! configuration -> groups that share a device, a hybrid or an address -> a plan for each
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::Map;
use config::{ClusterConfig, Config, DeviceConfig, ExportConfig, HybridConfig, Kind, StoreConfig};
use policy::poll::Setting;

use super::common::revocation::Revocation;
use super::common::saved_settings::SavedSettings;

/// The group of this node's part of a cluster; a name has no colon.
const CLUSTER: &str = "cluster:";

/// What one data thread is to build.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub data_dir: PathBuf,
    /// Permissions of Unix sockets.
    pub socket_mode: u32,
    /// What the thread does while it has nothing to do.
    pub poll: Setting,
    /// Connections that each server takes.
    pub connections: usize,
    /// Which certificates are revoked, from the other threads and to them.
    pub revocation: Revocation,
    pub devices: Vec<DeviceConfig>,
    pub hybrids: Vec<HybridConfig>,
    /// What was set of hybrids before.
    pub kept: SavedSettings,
    pub stores: Vec<StoreConfig>,
    pub cluster: Option<ClusterConfig>,
    pub exports: Vec<ExportConfig>,
}

impl Plan {
    /// What to call the data thread: what stands at its top.
    pub fn names(&self) -> Vec<String> {
        let exports = self.exports.iter().map(|export| export.device.clone());
        let stores = self.stores.iter().map(|store| store.name.clone());
        let cluster = self.cluster.iter().map(|cluster| cluster.node.clone());
        let tops: Vec<String> = exports.chain(stores).chain(cluster).collect();
        match tops.is_empty() {
            true => self.devices.iter().map(|d| d.name.clone()).collect(),
            false => tops,
        }
    }
}

/// Names that belong together, found by joining two at a time.
#[derive(Default)]
struct Groups {
    number: Map<String, usize>,
    /// Leads from each to an earlier one of its group; the first leads to itself.
    earlier: Vec<usize>,
}

impl Groups {
    /// The number of the group's first member.
    fn of(&mut self, name: &str) -> usize {
        let fresh = self.earlier.len();
        let mut at = *self.number.entry(name.to_owned()).or_insert(fresh);
        if at == fresh {
            self.earlier.push(fresh);
        }
        while self.earlier[at] != at {
            at = self.earlier[at];
        }
        at
    }

    /// What of the configuration shares a device, a hybrid or an address. A name has no colon, so neither a store nor an
    /// address is ever mistaken for a device.
    fn in_use(config: &Config) -> Groups {
        let mut groups = Groups::default();
        for device in &config.devices {
            groups.of(&device.name);
        }
        for device in &config.devices {
            for member in members(device) {
                groups.join(&device.name, member);
            }
        }
        for hybrid in &config.hybrids {
            for part in [&hybrid.slow, &hybrid.fast] {
                groups.join(hybrid.name(), part);
            }
        }
        for store in &config.stores {
            groups.join(&store.device, &format!("store:{}", store.name));
        }
        for gateway in &config.s3 {
            for store in gateway.stores() {
                groups.join(
                    &format!("store:{store}"),
                    &format!("store:{}", gateway.stores()[0]),
                );
            }
        }
        if let Some(cluster) = &config.cluster {
            // Its stores live where it does: what is here needs no protocol.
            for store in &cluster.stores {
                groups.join(CLUSTER, &format!("store:{store}"));
            }
            for address in &cluster.nbd {
                groups.join(CLUSTER, &format!("nbd:{address}"));
            }
        }
        for export in &config.exports {
            for address in &export.nbd {
                groups.join(group_of(export), &format!("nbd:{address}"));
            }
        }
        groups
    }

    fn join(&mut self, one: &str, other: &str) {
        let (one, other) = (self.of(one), self.of(other));
        self.earlier[one.max(other)] = one.min(other);
    }
}

/// What a stripe is made of; nothing for a device by itself.
pub(super) fn members(device: &DeviceConfig) -> &[String] {
    match &device.kind {
        Kind::Striped { members, .. } => members,
        _ => &[],
    }
}

/// Where what an export shows is: volumes are where the cluster is.
fn group_of(export: &ExportConfig) -> &str {
    match &export.volume {
        Some(_) => CLUSTER,
        None => &export.device,
    }
}

/// Cuts a configuration into data threads that share nothing. Devices without a user join the first one, where
/// they can be attached to its volumes.
pub fn threads(config: &Config) -> Vec<Plan> {
    let mut groups = Groups::in_use(config);
    let used = used(config);
    let is_used = |device: &&DeviceConfig| used.contains(&&*device.name);
    let (devices, spare): (Vec<_>, Vec<_>) = config.devices.iter().partition(is_used);
    let mut plans: BTreeMap<usize, Plan> = BTreeMap::new();
    for device in devices {
        let plan = plans.entry(groups.of(&device.name)).or_default();
        plan.devices.push(device.clone());
    }
    for hybrid in &config.hybrids {
        let plan = plans.entry(groups.of(hybrid.name())).or_default();
        plan.hybrids.push(hybrid.clone());
    }
    for store in &config.stores {
        let plan = plans.entry(groups.of(&store.device)).or_default();
        plan.stores.push(store.clone());
    }
    if let Some(cluster) = &config.cluster {
        let plan = plans.entry(groups.of(CLUSTER)).or_default();
        plan.cluster = Some(cluster.clone());
    }
    for export in &config.exports {
        let plan = plans.entry(groups.of(group_of(export))).or_default();
        plan.exports.push(export.clone());
    }
    let mut plans: Vec<Plan> = plans.into_values().collect();
    for plan in &mut plans {
        plan.data_dir.clone_from(&config.data_dir);
        plan.socket_mode = config.socket_mode;
        let said = plan.exports.iter().filter_map(|export| export.poll);
        plan.poll = said.max().unwrap_or(config.poll);
    }
    let first = plans
        .iter()
        .position(|plan| !plan.hybrids.is_empty())
        .unwrap_or(0);
    for device in spare {
        match plans.get_mut(first) {
            Some(plan) => plan.devices.push(device.clone()),
            None => plans.push(Plan {
                data_dir: config.data_dir.clone(),
                devices: vec![device.clone()],
                ..Plan::default()
            }),
        }
    }
    plans
}

/// The devices that something of the configuration uses.
fn used(config: &Config) -> Vec<&str> {
    let mut used: Vec<&str> = Vec::new();
    for hybrid in &config.hybrids {
        used.extend([&*hybrid.slow, &*hybrid.fast]);
    }
    used.extend(config.stores.iter().map(|store| &*store.device));
    used.extend(config.exports.iter().map(|export| &*export.device));
    // A stripe comes after its members, so what it is used for is known before they are looked at.
    for device in config.devices.iter().rev() {
        if used.contains(&&*device.name) {
            used.extend(members(device).iter().map(String::as_str));
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole_plans(rest: &str) -> Vec<Plan> {
        let mut text = String::new();
        for name in ["a", "b", "c", "d", "e"] {
            text.push_str(&format!(
                "[[device]]\nname = \"{name}\"\nmemory = true\nsize = \"8MiB\"\n"
            ));
        }
        let config = config::read(&(text + rest), "test", None).unwrap();
        threads(&config)
    }

    fn plans(rest: &str) -> Vec<Vec<String>> {
        whole_plans(rest)
            .iter()
            .map(|plan| plan.devices.iter().map(|d| d.name.clone()).collect())
            .collect()
    }

    #[test]
    fn the_busiest_setting_of_a_threads_exports_counts_for_it() {
        let exports = |settings: [&str; 3]| {
            let places = ["unix:x", "unix:x", "unix:c"];
            let exports = ["a", "b", "c"].iter().zip(places).zip(settings);
            let export = exports.map(|((device, nbd), poll)| {
                format!("[[export]]\ndevice = \"{device}\"\nnbd = \"{nbd}\"\n{poll}\n")
            });
            let plans = whole_plans(&export.collect::<String>());
            plans.iter().map(|plan| plan.poll).collect::<Vec<_>>()
        };
        let (off, always) = ("poll = \"off\"", "poll = \"always\"");
        let usual = Setting::Adaptive;
        assert_eq!(exports(["", "", ""]), [usual, usual]);
        assert_eq!(exports([off, "", ""]), [Setting::Off, usual]);
        assert_eq!(exports([off, always, off]), [Setting::Always, Setting::Off]);
    }

    #[test]
    fn what_shares_nothing_has_a_thread_of_its_own() {
        let threads = plans(
            "[[hybrid]]\nname = \"v\"\nslow = \"b\"\nfast = \"c\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n\
             [[export]]\ndevice = \"v\"\nnbd = \"unix:v\"\n",
        );
        // d and e are spare: they wait where they can be attached.
        assert_eq!(threads, [vec!["a"], vec!["b", "c", "d", "e"]]);
    }

    #[test]
    fn exports_at_one_address_share_a_thread() {
        let threads = plans(
            "[[export]]\ndevice = \"a\"\nnbd = \"unix:x\"\n\
             [[export]]\ndevice = \"b\"\nnbd = \"unix:b\"\n\
             [[export]]\ndevice = \"c\"\nnbd = [\"unix:c\", \"unix:x\"]\n",
        );
        assert_eq!(threads, [vec!["a", "c", "d", "e"], vec!["b"]]);
    }

    #[test]
    fn a_stripe_lives_where_its_members_do() {
        let stripe = "[[stripe]]\nname = \"s\"\ndevices = [\"b\", \"d\"]\n\
                      [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n";
        let hybrid = "[[hybrid]]\nname = \"v\"\nslow = \"s\"\nfast = \"c\"\n\
                      [[export]]\ndevice = \"v\"\nnbd = \"unix:v\"\n";
        let used = plans(&format!("{stripe}{hybrid}"));
        assert_eq!(used, [vec!["a"], vec!["b", "c", "d", "s", "e"]]);
        assert_eq!(plans(stripe), [["a", "b", "c", "d", "e", "s"]]);
    }

    #[test]
    fn a_store_lives_where_its_device_does() {
        let threads = plans(
            "[[stripe]]\nname = \"s\"\ndevices = [\"b\", \"d\"]\n\
             [[store]]\nname = \"o\"\ndevice = \"s\"\nlisten = \"unix:o\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n",
        );
        assert_eq!(threads, [vec!["a", "c", "e"], vec!["b", "d", "s"]]);
    }

    #[test]
    fn an_export_of_a_volume_is_on_the_clusters_thread_with_all_at_its_address() {
        let threads = plans(
            "[[store]]\nname = \"o\"\ndevice = \"b\"\nlisten = \"unix:o\"\n[cluster]\nnode = \"n1\"\n\
             [[export]]\ndevice = \"volume:vm1\"\nnbd = \"unix:x\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n\
             [[export]]\ndevice = \"c\"\nnbd = \"unix:x\"\n",
        );
        assert_eq!(threads, [vec!["a", "d", "e"], vec!["b", "c"]]);
    }

    #[test]
    fn devices_without_an_export_still_have_a_thread() {
        assert_eq!(plans(""), [["a", "b", "c", "d", "e"]]);
    }
}

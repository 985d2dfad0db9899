//! The configuration: what is to be served, checked whole before anything starts.
//!
//! ```text
//! TOML text -> tables, key by key (keys) -> each thing by itself -> how the things refer to each other
//!                     \____________________ mistakes, all of them, each with line and key ___________/
//! ```
//!
//! Nothing here opens a device or a socket: `--check` reads a configuration on any machine.
//!
//! Always true of a `Config`:
//! 1. Every name is unique, every reference leads somewhere, nothing is used twice, no cycle exists.
//! 2. `hybrids` come after what they are made of.
//! 3. Listening beyond this machine was asked for in so many words.

mod admin;
mod based;
pub mod caps;
pub mod cluster;
mod devices;
pub mod export;
mod hybrids;
mod keys;
mod log;
mod network;
pub mod s3;
pub mod scheduling;
pub mod store;
pub mod tier;
mod types;
mod values;
mod written;

pub use admin::WEB;
pub use cluster::{ANNOUNCE_EVERY, ClusterConfig, advertised};
pub use export::{ExportConfig, TlsConfig, VolumeConfig};
pub use hybrids::{AGE_LIMIT, STANDBY_AFTER, usual_mode};
pub use keys::{Mistake, instead};
pub use log::LogLevel;
pub use store::StoreConfig;
pub use types::{
    AdminConfig, Backing, Config, ConfigError, DeviceConfig, HybridConfig, Kind, S3Below, S3Config,
};
pub use values::{check_name, is_local, read_span};

use std::path::{Path, PathBuf};

use keys::{Keys, Mistakes};
use policy::poll::Setting;
use toml::de::DeTable;
use values::{Things, read_mode};

/// The embedded default, with its data below `data_dir`.
pub fn default_text(data_dir: &Path) -> String {
    // A path in a TOML text needs its quotes and backslashes escaped.
    let escaped = data_dir
        .display()
        .to_string()
        .replace('\\', "\\\\")
        .replace('"', "\\\"");
    include_str!("default.toml").replace("@data_dir@", &escaped)
}

/// Where data go unless configured.
pub const DATA_DIR: &str = "tanada-data";
/// Where a package has its configuration. There, unless it says otherwise, data go to `/var/lib/tanada`, and commands are
/// taken at the socket that the package's unit holds.
const OF_PACKAGE: &str = "/etc/tanada";

/// Reads and checks a configuration from the file `origin`. `data_dir` overrides the file's own.
///
/// # Errors
/// All mistakes found, in the order of the text.
pub fn read(text: &str, origin: &str, data_dir: Option<&Path>) -> Result<Config, ConfigError> {
    let mistakes = Mistakes::new(text);
    let root = match DeTable::parse(text) {
        Ok(root) => root.into_inner(),
        Err(error) => {
            let at = error.span().map(|span| span.start);
            mistakes.add(at, "", "", format!("this is not TOML: {}", error.message()));
            return Err(ConfigError {
                origin: origin.to_owned(),
                mistakes: mistakes.into_sorted(),
            });
        }
    };
    let config = read_root(
        Keys::new("", 0, root, (&mistakes, based::folder(origin))),
        origin,
        data_dir,
    );
    let mistakes = mistakes.into_sorted();
    match mistakes.is_empty() {
        true => Ok(config),
        false => Err(ConfigError {
            origin: origin.to_owned(),
            mistakes,
        }),
    }
}

/// Is the configuration `origin` that of a package?
fn is_of_package(origin: &str) -> bool {
    Path::new(origin).parent() == Some(Path::new(OF_PACKAGE))
}

fn read_root(mut root: Keys<'_, '_>, origin: &str, data_dir: Option<&Path>) -> Config {
    let said = root.value::<PathBuf>("data_dir");
    let usual = || match is_of_package(origin) {
        true => "/var/lib/tanada".into(),
        false => DATA_DIR.into(),
    };
    let data_dir = data_dir.map(Path::to_owned).or(said).unwrap_or_else(usual);
    let socket = match is_of_package(origin) {
        true => "/run/tanada/admin.sock".into(),
        false => data_dir.join("admin.sock"),
    };

    let socket_mode = root.parse_or("socket_mode", env::net::SOCKET_MODE, read_mode);
    let poll = root.parse_or("poll", Setting::default(), str::parse);
    let mut things = Things::default();
    let devices = devices::read_devices(&mut root, &data_dir, &mut things);
    let hybrids = hybrids::read_hybrids(&mut root, &devices, &mut things);
    for hybrid in &hybrids {
        based::check_moved(&root, &data_dir, hybrid.name());
    }
    let admin = admin::read_admin(&mut root, &socket);
    let mut stores = Vec::new();
    for mut keys in root.tables("store") {
        let store = store::read_store(&mut keys, &data_dir, &devices, &mut things, &stores, &admin);
        stores.extend(store);
        keys.finish();
    }
    hybrids::check_queues(&root, &hybrids, &things);
    let has_cluster = root.has("cluster");
    let mut cluster = cluster::read_cluster(&mut root, &data_dir, &mut stores, &admin);
    network::read_network(&mut root, cluster.as_mut());
    let mut exports = Vec::new();
    for mut keys in root.tables("export") {
        if let Some(export) = export::read_export(&mut keys, &things, has_cluster, &exports, &admin)
        {
            store::check_against_exports(&keys, &export, &stores);
            exports.push(export);
        }
        keys.finish();
    }
    if let Some(cluster) = &cluster {
        cluster::check_against_exports(&root, cluster, &exports);
    }
    let s3 = s3::read_gateways(&mut root, &stores, has_cluster, (&exports, &admin));
    let log = log::read_log(&mut root);
    root.finish();
    Config {
        data_dir,
        socket_mode,
        poll,
        devices,
        hybrids,
        stores,
        cluster,
        exports,
        s3,
        admin,
        log,
    }
}

#[cfg(test)]
mod tests;

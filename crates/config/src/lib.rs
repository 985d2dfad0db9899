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

pub mod cluster;
pub mod export;
mod keys;
pub mod store;
pub mod tier;
mod types;
mod values;

use std::path::{Path, PathBuf};

use base::{Bytes, Nanos};
use device::striped;
use env::fs::Direct;
use env::net::Address;
use hybrid::{Mode, WriteMode};
use toml::de::DeTable;

pub use cluster::ClusterConfig;
pub use export::{ExportConfig, TlsConfig, VolumeConfig};
use keys::{At, Keys, Mistakes};
pub use keys::{Mistake, instead};
pub use store::StoreConfig;
pub use types::{AdminConfig, Backing, Config, ConfigError, DeviceConfig, HybridConfig, Kind};
use values::{Things, read_direct, read_mode, read_name};
pub use values::{check_name, is_local, read_span};

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
/// Where the admin API is unless configured.
pub const ADMIN: &str = "127.0.0.1:10880";

/// The age limit of energy mode unless configured.
pub const AGE_LIMIT: Nanos = Nanos::secs(30 * 60);
/// How long a slow device in energy mode stays idle before it sleeps, unless configured.
pub const STANDBY_AFTER: Nanos = Nanos::secs(60);

/// The mode of a new hybrid whose configuration names none.
///
/// Choice: only where both devices take part in everything is the gain of `both` measured. What writes past the cache
/// cannot have a tier, `only-writes` wants no reads on the fast device, and moves would wake a slow device that sleeps.
pub fn usual_mode(write: WriteMode, energy: bool) -> Mode {
    match write == WriteMode::Back && !energy {
        true => Mode::Both,
        false => Mode::Cache,
    }
}

/// Reads and checks a configuration. `data_dir` overrides the file's own.
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
    let config = read_root(Keys::new("", 0, root, &mistakes), data_dir);
    let mistakes = mistakes.into_sorted();
    match mistakes.is_empty() {
        true => Ok(config),
        false => Err(ConfigError {
            origin: origin.to_owned(),
            mistakes,
        }),
    }
}

fn read_root(mut root: Keys<'_, '_>, data_dir: Option<&Path>) -> Config {
    let said = root.take::<PathBuf>("data_dir").map(|said| said.value);
    let data_dir = data_dir
        .map(Path::to_owned)
        .or(said)
        .unwrap_or_else(|| DATA_DIR.into());

    let socket_mode = root.parse("socket_mode", read_mode);
    let mut things = Things::default();
    let mut devices = Vec::new();
    for mut keys in root.tables("device") {
        if let Some(device) = read_device(&mut keys, &data_dir, &mut things) {
            devices.push(device);
        }
        keys.finish();
    }
    for mut keys in root.tables("stripe") {
        if let Some(stripe) = read_stripe(&mut keys, &devices, &mut things) {
            devices.push(stripe);
        }
        keys.finish();
    }
    // A hybrid may stand on a later one, so all names are known before references are checked.
    let mut hybrid_tables = root.tables("hybrid");
    let named: Vec<Option<String>> = hybrid_tables
        .iter_mut()
        .map(|keys| read_name(keys, &mut things))
        .collect();
    let mut hybrids = Vec::new();
    for (mut keys, name) in hybrid_tables.into_iter().zip(named) {
        let broken = name.is_none();
        let name = name.unwrap_or_default();
        let hybrid = read_hybrid(&mut keys, name, &devices, &mut things);
        if let (Some(hybrid), false) = (hybrid, broken) {
            hybrids.push((keys.at(), hybrid));
        }
        keys.finish();
    }
    let hybrids = in_order(hybrids, &root);

    let admin = read_admin(&mut root, &data_dir);
    let mut stores = Vec::new();
    for mut keys in root.tables("store") {
        let store = store::read_store(&mut keys, &data_dir, &devices, &mut things, &stores, &admin);
        stores.extend(store);
        keys.finish();
    }
    let has_cluster = root.has("cluster");
    let cluster = cluster::read_cluster(&mut root, &data_dir, &mut stores, &admin);
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
    if things.names.is_empty() && cluster.is_none() {
        root.complain(
            "",
            "there is no [[device]], so there is nothing to serve; \
             `tanada serve --print-config` shows an example",
        );
    }
    root.finish();
    Config {
        data_dir,
        socket_mode: socket_mode.map_or(env::net::SOCKET_MODE, |at| at.value),
        devices,
        hybrids,
        stores,
        cluster,
        exports,
        admin,
    }
}

fn read_device(
    keys: &mut Keys<'_, '_>,
    data_dir: &Path,
    things: &mut Things,
) -> Option<DeviceConfig> {
    let name = read_name(keys, things);
    let path = keys.take::<PathBuf>("path");
    let model = keys.take::<String>("model");
    let size = keys.take::<Bytes>("size");
    let file = keys.take::<PathBuf>("file");
    let memory = keys.take::<bool>("memory");
    let direct = keys.parse("direct", read_direct);
    let force = keys.take::<bool>("force").is_some_and(|at| at.value);
    let read_only = keys.take::<bool>("read_only").is_some_and(|at| at.value);
    let standby_after = keys.parse("standby_after", read_span).map(|at| at.value);

    if let Some(At { value: size, at }) = size
        && (size.0 == 0 || !size.is_multiple_of(base::PAGE as u64))
    {
        let what = format!("{} bytes is not a positive multiple of 4096 bytes", size.0);
        keys.complain_at(at, "size", what);
        return None;
    }
    let in_memory = memory.is_some_and(|at| at.value);
    let refuse_beside = |what: &str, extra: &[(&str, Option<usize>)]| {
        for (key, at) in extra {
            if let Some(at) = at {
                keys.complain_at(*at, key, format!("goes not together with {what}"));
            }
        }
        extra.iter().all(|(_, at)| at.is_none())
    };
    let need_size = || {
        if size.is_none() {
            keys.complain("", "size is missing; write size = \"24GiB\"");
        }
        size.map(|at| at.value)
    };
    let standby_at = standby_after.map(|_| keys.at());
    let kind = match (&path, &model) {
        (Some(path), _) => {
            let fine = refuse_beside(
                "path",
                &[
                    ("model", model.as_ref().map(|at| at.at)),
                    ("file", file.as_ref().map(|at| at.at)),
                    ("memory", memory.map(|at| at.at)),
                ],
            );
            fine.then(|| Kind::Path {
                path: path.value.clone(),
                direct: direct.map_or(Direct::Auto, |at| at.value),
                create: size.map(|at| at.value),
            })
        }
        (None, Some(model)) => {
            let fine = refuse_beside("model", &[("direct", direct.map(|at| at.at))])
                & (!in_memory
                    || refuse_beside("memory = true", &[("file", file.as_ref().map(|at| at.at))]));
            match (device::model::Spec::find(&model.value), fine) {
                (Err(error), _) => {
                    keys.complain_at(model.at, "model", error.to_string());
                    None
                }
                (Ok(_), false) => None,
                (Ok(spec), true) => Some(Kind::Model {
                    model: model.value.clone(),
                    size: size.map_or(spec.size, |at| at.value),
                    backing: match (in_memory, &file, &name) {
                        (true, _, _) => Backing::Memory,
                        (false, Some(file), _) => Backing::File(file.value.clone()),
                        (false, None, name) => Backing::File(
                            data_dir.join(format!("{}.img", name.as_deref().unwrap_or("device"))),
                        ),
                    },
                }),
            }
        }
        (None, None) if in_memory => {
            let fine = refuse_beside(
                "memory = true without a model",
                &[
                    ("file", file.as_ref().map(|at| at.at)),
                    ("direct", direct.map(|at| at.at)),
                    ("standby_after", standby_at),
                ],
            );
            match (fine, need_size()) {
                (true, Some(size)) => Some(Kind::Memory { size }),
                _ => None,
            }
        }
        (None, None) => {
            keys.complain(
                "",
                "what is it? write one of path = \"/dev/...\" (a device or file), \
                 model = \"...\" with size (`tanada device models` lists them), \
                 or memory = true with size",
            );
            None
        }
    };
    let name = name?;
    let kind = kind?;
    let used = match &kind {
        Kind::Path { path, .. } => Some((path, "path")),
        Kind::Model {
            backing: Backing::File(file),
            ..
        } => Some((file, "file")),
        _ => None,
    };
    if let Some((path, key)) = used {
        // Two names of one file are found where the file exists already.
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if let Some(other) = things.paths.insert(real, name.clone()) {
            let what = format!(
                "{} is used by device \"{other}\" already; two devices on one file would \
                 overwrite each other",
                path.display()
            );
            keys.complain(key, what);
        }
    }
    Some(DeviceConfig {
        name,
        kind,
        read_only,
        force,
        standby_after,
    })
}

fn read_stripe(
    keys: &mut Keys<'_, '_>,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<DeviceConfig> {
    let own = keys.title().to_owned();
    let name = read_name(keys, things);
    let named = keys.parse_list("devices", |text| Ok::<_, String>(text.to_owned()));
    let chunk = keys.take::<Bytes>("chunk");
    let standby_after = keys.parse("standby_after", read_span).map(|at| at.value);
    if let Some(At { value: chunk, at }) = chunk
        && !striped::is_chunk(chunk)
    {
        let what = format!(
            "{} bytes is not a power of two from {} to {}; write such as chunk = \"64KiB\"",
            chunk.0,
            striped::CHUNK_MIN,
            striped::CHUNK_MAX
        );
        keys.complain_at(at, "chunk", what);
        return None;
    }
    let Some(At { value: members, at }) = named else {
        keys.complain(
            "",
            "devices is missing; name what it is made of: devices = [\"...\", \"...\"]",
        );
        return None;
    };
    if members.len() < 2 {
        let what = "a stripe is made of at least two devices; one alone is used as it is";
        keys.complain_at(at, "devices", what);
        return None;
    }
    let mut read_only = false;
    for member in &members {
        if let Err(what) = things.find(member) {
            keys.complain_at(at, "devices", what);
            return None;
        }
        let device = devices.iter().find(|device| device.name == *member);
        let striped = device.is_some_and(|device| matches!(device.kind, Kind::Striped { .. }));
        if striped || name.as_ref() == Some(member) {
            let what = format!("\"{member}\" is a stripe itself; name its devices instead");
            keys.complain_at(at, "devices", what);
            return None;
        }
        read_only |= device.is_some_and(|device| device.read_only);
        if let Some(other) = things.part_of.insert(member.clone(), own.clone()) {
            let what = match other == own {
                true => format!("\"{member}\" is named twice; a stripe takes different devices"),
                false => {
                    format!("\"{member}\" is part of {other} already; each device has one use")
                }
            };
            keys.complain_at(at, "devices", what);
            return None;
        }
    }
    Some(DeviceConfig {
        name: name?,
        kind: Kind::Striped {
            members,
            chunk: chunk.map_or(striped::CHUNK, |at| at.value),
        },
        read_only,
        force: false,
        standby_after,
    })
}

fn read_hybrid(
    keys: &mut Keys<'_, '_>,
    name: String,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<HybridConfig> {
    let own = keys.title().to_owned();
    let mut part = |key: &'static str, what: &str| {
        let Some(At { value: name, at }) = keys.take::<String>(key) else {
            let text = format!("{key} is missing; name the {what}: {key} = \"...\"");
            keys.complain("", text);
            return None;
        };
        if let Err(what) = things.find(&name) {
            keys.complain_at(at, key, what);
            return None;
        }
        // A fast device that takes no writes can give its dirty data back.
        if key == "slow" && devices.iter().any(|d| d.name == name && d.read_only) {
            let what = format!("\"{name}\" is read_only, and a hybrid writes to its slow device");
            keys.complain_at(at, key, what);
            return None;
        }
        if let Some(other) = things.part_of.insert(name.clone(), own.clone()) {
            let what = match other == own {
                true => {
                    format!(
                        "\"{name}\" is the slow and the fast device; it takes two different ones"
                    )
                }
                false => format!("\"{name}\" is part of {other} already; each device has one use"),
            };
            keys.complain_at(at, key, what);
            return None;
        }
        Some(name)
    };
    let slow = part("slow", "big slow device");
    let fast = part("fast", "small fast device");

    let mode = keys.parse("mode", str::parse);
    let tier = tier::read_tier(keys);
    let usual = hybrid::Settings::default();
    let policy = keys.parse("policy", str::parse);
    let write = keys.parse("write", str::parse);
    let admission = keys.parse("admission", str::parse);
    let block = keys.take::<Bytes>("block");
    let sequential_bypass = keys.parse_size_or_off("sequential_bypass");
    let dirty_low = keys.take::<u8>("dirty_low");
    let dirty_high = keys.take::<u8>("dirty_high");
    let energy = keys.take::<bool>("energy").is_some_and(|at| at.value);
    let age_limit = keys.parse("age_limit", read_span);
    if let Some(At { at, .. }) = age_limit
        && !energy
    {
        keys.complain_at(
            at,
            "age_limit",
            "has a meaning only in energy mode; add energy = true or take it out",
        );
    }
    let flash_writes_per_day = keys.take::<Bytes>("flash_writes_per_day");
    let fast_size = keys.take::<Bytes>("fast_size");
    let trace = keys.take::<PathBuf>("trace").map(|at| at.value);
    let trace_max = keys.take::<Bytes>("trace_max");
    if let Some(At { at, value }) = &trace_max
        && let Err(error) = trace::record::check_max(*value)
    {
        keys.complain_at(*at, "trace_max", error.to_string());
    }
    let advise = keys.take::<bool>("advise").is_some_and(|at| at.value);
    let force = keys.take::<bool>("force").is_some_and(|at| at.value);
    let write = write.map_or(usual.write, |at| at.value);
    let mode_named = mode.is_some();
    let mode = mode.map_or_else(|| usual_mode(write, energy), |at| at.value);
    let standby_after = devices
        .iter()
        .find(|device| slow.as_ref() == Some(&device.name))
        .and_then(|device| device.standby_after)
        .unwrap_or(STANDBY_AFTER);
    let settings = hybrid::Settings {
        name,
        block: block.map_or(usual.block, |at| at.value),
        policy: policy.map_or(usual.policy, |at| at.value),
        write,
        admission: admission.map_or(usual.admission, |at| at.value),
        sequential_bypass: sequential_bypass.unwrap_or(usual.sequential_bypass),
        dirty_low: dirty_low.map_or(usual.dirty_low, |at| at.value),
        dirty_high: dirty_high.map_or(usual.dirty_high, |at| at.value),
        energy: energy.then(|| hybrid::Energy {
            age_limit: age_limit.map_or(AGE_LIMIT, |at| at.value),
            standby_after,
        }),
        flash_writes_per_day: flash_writes_per_day.map(|at| at.value),
        fast_bytes: fast_size.map(|at| at.value),
        mode,
        tier,
        ..usual
    };
    // Mistakes of its parts do not hide those of its settings.
    for mistake in settings.mistakes() {
        keys.complain("", mistake.to_string());
    }
    Some(HybridConfig {
        settings,
        mode_named,
        slow: slow?,
        fast: fast?,
        force,
        verify: false,
        standby_after,
        trace,
        trace_max: trace_max.map_or(trace::record::DEFAULT_MAX, |at| at.value),
        advise,
    })
}

/// Sorts hybrids so that each comes after those it stands on; complains about circles.
fn in_order(mut waiting: Vec<(usize, HybridConfig)>, root: &Keys<'_, '_>) -> Vec<HybridConfig> {
    let mut ordered: Vec<HybridConfig> = Vec::new();
    loop {
        let ready = waiting.iter().position(|(_, hybrid)| {
            waiting
                .iter()
                .all(|(_, other)| other.name() != hybrid.slow && other.name() != hybrid.fast)
        });
        match ready {
            Some(index) => ordered.push(waiting.remove(index).1),
            None => break,
        }
    }
    if let Some((at, first)) = waiting.first() {
        let circle: Vec<&str> = waiting.iter().map(|(_, hybrid)| hybrid.name()).collect();
        let what = format!(
            "\"{}\" is made of itself, by way of {}; a hybrid stands on devices or on other hybrids",
            first.name(),
            circle.join(", ")
        );
        root.complain_at(*at, "hybrid", what);
    }
    ordered
}

fn read_admin(root: &mut Keys<'_, '_>, data_dir: &Path) -> AdminConfig {
    let usual = || with_socket(vec![ADMIN.parse().expect("a constant address")], data_dir);
    let Some(mut keys) = root.table("admin") else {
        return AdminConfig {
            listen: usual(),
            allow_remote: false,
            hosts: Vec::new(),
        };
    };
    let listen = keys.parse_list("listen", str::parse::<Address>);
    let allow_remote = keys.take::<bool>("allow_remote").is_some_and(|at| at.value);
    let hosts = keys.parse_list("hosts", |text| check_name(text).map(|()| text.to_owned()));
    if let Some(listen) = &listen
        && !allow_remote
    {
        for address in listen.value.iter().filter(|address| !is_local(address)) {
            let what = format!(
                "{address} can be reached from other machines, which read status and metrics there, and command \
                 with the token in the clear; listen on 127.0.0.1 or a Unix socket, or add allow_remote = true"
            );
            keys.complain_at(listen.at, "listen", what);
        }
    }
    keys.finish();
    AdminConfig {
        listen: listen.map_or_else(usual, |at| with_socket(at.value, data_dir)),
        allow_remote,
        hosts: hosts.map_or_else(Vec::new, |at| at.value),
    }
}

/// With a Unix socket among them: there the owner's commands are taken.
fn with_socket(mut listen: Vec<Address>, data_dir: &Path) -> Vec<Address> {
    if listen.iter().all(|it| matches!(it, Address::Tcp(_))) {
        let socket = data_dir.join("admin.sock");
        // A path too long for a socket is no reason to refuse a configuration that asked for none.
        listen.extend(format!("unix:{}", socket.display()).parse::<Address>());
    }
    listen
}

#[cfg(test)]
mod tests;

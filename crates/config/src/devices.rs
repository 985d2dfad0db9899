//! `[[device]]` and `[[stripe]]`: what all else is made of.
//!
//! ```text
//! keys -> which of a path, a model and memory it is -> what goes not together with that -> its file has no other use
//! ```
//!
//! Always true: no two devices have one file, and a stripe's devices have no other use.

use std::path::{Path, PathBuf};

use base::Bytes;
use device::model::Spec;
use device::striped;
use env::fs::Direct;

use super::keys::{At, Keys};
use super::types::{Backing, DeviceConfig, Kind};
use super::values::{Things, read_direct, read_name, read_span};

/// Reads all devices, then all stripes.
pub(super) fn read_devices(
    root: &mut Keys<'_, '_>,
    data_dir: &Path,
    things: &mut Things,
) -> Vec<DeviceConfig> {
    let mut devices = Vec::new();
    for mut keys in root.tables("device") {
        devices.extend(read_device(&mut keys, data_dir, things));
        keys.finish();
    }
    for mut keys in root.tables("stripe") {
        let stripe = read_stripe(&mut keys, &devices, things);
        devices.extend(stripe);
        keys.finish();
    }
    devices
}

/// What a `[[device]]` says of the thing behind it.
struct Said {
    path: Option<At<PathBuf>>,
    model: Option<At<String>>,
    size: Option<At<Bytes>>,
    file: Option<At<PathBuf>>,
    memory: Option<At<bool>>,
    direct: Option<At<Direct>>,
}

fn read_device(
    keys: &mut Keys<'_, '_>,
    data_dir: &Path,
    things: &mut Things,
) -> Option<DeviceConfig> {
    let name = read_name(keys, things);
    let said = Said {
        path: keys.take("path"),
        model: keys.take("model"),
        size: keys.take("size"),
        file: keys.take("file"),
        memory: keys.take("memory"),
        direct: keys.parse("direct", read_direct),
    };
    let force = keys.is_on("force");
    let read_only = keys.is_on("read_only");
    let standby_after = keys.parse("standby_after", read_span).map(|at| at.value);
    let standby_at = standby_after.map(|_| keys.at());
    let kind = said.kind(keys, data_dir, name.as_deref(), standby_at);
    let (name, kind) = (name?, kind?);
    take_file(keys, &name, &kind, things);
    Some(DeviceConfig {
        name,
        kind,
        read_only,
        force,
        standby_after,
    })
}

impl Said {
    /// Which kind of device it is, if what is said of it goes together.
    fn kind(
        &self,
        keys: &Keys<'_, '_>,
        data_dir: &Path,
        name: Option<&str>,
        standby_at: Option<usize>,
    ) -> Option<Kind> {
        if let Some(At { value: size, at }) = self.size
            && (size.0 == 0 || !size.is_multiple_of(base::PAGE as u64))
        {
            let what = format!("{} bytes is not a positive multiple of 4096 bytes", size.0);
            keys.complain_at(at, "size", what);
            return None;
        }
        let file = ("file", self.file.as_ref().map(|at| at.at));
        let memory = ("memory", self.memory.map(|at| at.at));
        let direct = ("direct", self.direct.map(|at| at.at));
        let in_memory = self.memory.is_some_and(|at| at.value);
        match (&self.path, &self.model) {
            (Some(path), _) => {
                let model = ("model", self.model.as_ref().map(|at| at.at));
                refuse_beside(keys, "path", &[model, file, memory]).then(|| Kind::Path {
                    path: path.value.clone(),
                    direct: self.direct.map_or(Direct::Auto, |at| at.value),
                    create: self.size.map(|at| at.value),
                })
            }
            (None, Some(model)) => {
                let fine = refuse_beside(keys, "model", &[direct])
                    & (!in_memory || refuse_beside(keys, "memory = true", &[file]));
                let backing = match (in_memory, &self.file) {
                    (true, _) => Backing::Memory,
                    (false, Some(file)) => Backing::File(file.value.clone()),
                    (false, None) => {
                        let file = format!("{}.img", name.unwrap_or("device"));
                        Backing::File(data_dir.join(file))
                    }
                };
                self.modelled(keys, model, backing).filter(|_| fine)
            }
            (None, None) if in_memory => {
                let standby = ("standby_after", standby_at);
                let what = "memory = true without a model";
                let fine = refuse_beside(keys, what, &[file, direct, standby]);
                let size = keys.need(self.size, "size is missing; write size = \"24GiB\"")?;
                fine.then_some(Kind::Memory { size: size.value })
            }
            (None, None) => {
                let what = "what is it? write one of path = \"/dev/...\" (a device or file), \
                            model = \"...\" with size (`tanada model list` lists them), \
                            or memory = true with size";
                keys.complain("", what);
                None
            }
        }
    }

    fn modelled(&self, keys: &Keys<'_, '_>, model: &At<String>, backing: Backing) -> Option<Kind> {
        match Spec::find(&model.value) {
            Ok(spec) => Some(Kind::Model {
                model: model.value.clone(),
                size: self.size.map_or(spec.size, |at| at.value),
                backing,
            }),
            Err(error) => {
                keys.complain_at(model.at, "model", error.to_string());
                None
            }
        }
    }
}

/// Complains about each of these keys that is there beside `what`; is none?
fn refuse_beside(keys: &Keys<'_, '_>, what: &str, extra: &[(&str, Option<usize>)]) -> bool {
    for (key, at) in extra {
        if let Some(at) = at {
            keys.complain_at(*at, key, format!("goes not together with {what}"));
        }
    }
    extra.iter().all(|(_, at)| at.is_none())
}

/// Complains if another device has the same file.
fn take_file(keys: &Keys<'_, '_>, name: &str, kind: &Kind, things: &mut Things) {
    let (path, key) = match kind {
        Kind::Path { path, .. } => (path, "path"),
        Kind::Model {
            backing: Backing::File(file),
            ..
        } => (file, "file"),
        _ => return,
    };
    // Two names of one file are found where the file exists already.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    if let Some(other) = things.paths.insert(real, name.to_owned()) {
        let what = format!(
            "{} is used by device \"{other}\" already; two devices on one file would \
             overwrite each other",
            path.display()
        );
        keys.complain(key, what);
    }
}

fn read_stripe(
    keys: &mut Keys<'_, '_>,
    devices: &[DeviceConfig],
    things: &mut Things,
) -> Option<DeviceConfig> {
    let name = read_name(keys, things);
    let named = keys.texts("devices");
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
    let missing = "devices is missing; name what it is made of: devices = [\"...\", \"...\"]";
    let At { value: members, at } = keys.need(named, missing)?;
    if members.len() < 2 {
        let what = "a stripe is made of at least two devices; one alone is used as it is";
        keys.complain_at(at, "devices", what);
        return None;
    }
    let mut read_only = false;
    for member in &members {
        things.find(keys, "devices", member, at)?;
        let device = devices.iter().find(|device| device.name == *member);
        let striped = device.is_some_and(|device| matches!(device.kind, Kind::Striped { .. }));
        if striped || name.as_ref() == Some(member) {
            let what = format!("\"{member}\" is a stripe itself; name its devices instead");
            keys.complain_at(at, "devices", what);
            return None;
        }
        read_only |= device.is_some_and(|device| device.read_only);
        let twice = "is named twice; a stripe takes different devices";
        things.take_part(keys, "devices", member, at, Some(twice))?;
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

//! What does an export stand on, and does that show what an earlier daemon answered?

use config::Kind;
use device::Device;
use hybrid::Hybrid;

use super::DataThread;
use super::hybrid::OpenVolume;
use crate::daemon::common::starts;

/// Does a device or volume show everything that an earlier daemon answered?
pub fn found_all(thread: &DataThread, name: &str, device: &dyn Device) -> bool {
    let volume = thread.volumes.iter().find(|v| v.config.name() == name);
    volume.map_or(device.info().crash_keeping, OpenVolume::found_all)
}

/// The hybrid of this name, if its cache is missed: nothing of it is shown before another one is attached.
pub fn missing_cache(thread: &DataThread, name: &str) -> Option<Hybrid> {
    let volume = thread.volumes.iter().find(|v| v.config.name() == name)?;
    let hybrid = &volume.hybrid;
    hybrid.why_withheld().map(|_| hybrid.clone())
}

/// What a device or volume stands on, in words that it has not had before a cache of it was missed; what it stood on before
/// that, for a disk that still waits for it.
pub fn identities_of(thread: &DataThread, name: &str) -> (String, Vec<String>) {
    let source = identity_of(thread, name);
    let mut all = starts::since_missed_caches(&source, name);
    (all.pop().unwrap_or(source), all)
}

/// What a device or volume stands on, in words that nothing else has.
fn identity_of(thread: &DataThread, name: &str) -> String {
    if let Some(volume) = thread.volumes.iter().find(|v| v.config.name() == name) {
        return format!(
            "hybrid {name} on {}",
            identity_of(thread, &volume.config.slow)
        );
    }
    let device = thread.devices.iter().find(|open| open.config.name == name);
    match device.map(|open| &open.config.kind) {
        Some(Kind::Path { path, .. }) => {
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            path.display().to_string()
        }
        Some(Kind::Striped { members, chunk }) => {
            let members: Vec<String> = members.iter().map(|it| identity_of(thread, it)).collect();
            format!("stripe of {} by {chunk}", members.join(", "))
        }
        _ => name.to_owned(),
    }
}

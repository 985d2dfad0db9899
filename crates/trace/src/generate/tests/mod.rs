//! Does each profile keep what docs/generator.md promises of it?

mod chance;
mod disks;
mod drifting;
mod plain;
mod tiering;

use super::{Generator, Profile, Settings};
use crate::{Request, Requests};

/// Hands every request of a trace to `visit`.
fn each(profile: Profile, settings: &Settings, mut visit: impl FnMut(&[Request])) {
    let mut trace = Generator::new(profile, settings).expect("the settings are in bounds");
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch).expect("it reads no file") {
        visit(&batch);
    }
}

fn all(profile: Profile, settings: &Settings) -> Vec<Request> {
    let mut requests = Vec::new();
    each(profile, settings, |batch| requests.extend_from_slice(batch));
    requests
}

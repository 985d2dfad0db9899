//! The tasks of a volume that is open.

use std::rc::Rc;

use super::age::Fences;
use super::commit::MapIo;
use super::connections::Connections;
use super::drain::Drain;
use super::repair::Repair;
use super::rereplicate::Rereplicate;
use super::resync::Resync;
use super::state::Core;
use crate::names::StoreNumber;

/// The background work for one store.
pub(super) fn start_with(core: &Rc<Core>, number: StoreNumber) {
    let core = Rc::clone(core);
    env::spawn(async move { Resync::of(&core).keep_in_sync(number).await });
}

/// The background work from now on.
pub(super) fn start(core: &Rc<Core>) {
    let own = Rc::clone(core);
    env::spawn(async move { Connections::of(&own).keep_connected().await });
    let own = Rc::clone(core);
    env::spawn(async move { Rereplicate::of(&own).keep_clean().await });
    let own = Rc::clone(core);
    env::spawn(async move { MapIo::of(&own).keep_committed().await });
    let own = Rc::clone(core);
    env::spawn(async move { Fences::of(&own).keep_stamped().await });
    let own = Rc::clone(core);
    env::spawn(async move { Drain::of(&own).keep_drained().await });
    let own = Rc::clone(core);
    env::spawn(async move { Repair::of(&own).keep_repaired().await });
    for number in core.replicas.keys() {
        start_with(core, *number);
    }
}

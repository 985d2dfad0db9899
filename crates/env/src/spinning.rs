//! What tasks tell the thread that may spin, and ask of it: requests of clients, queues to look at, time spent.
//!
//! In virtual time, and on a thread that never spins, all of it costs nothing and says nothing.

use std::rc::Rc;

use crate::executor::with_current;
use crate::real::{Reactor, SpinCounters, Spinner, Watched};

/// A request of a client that is under way on this thread; it ends when dropped.
pub struct ClientRequest(Option<Rc<Reactor>>);

/// A request of a client is carried out from now on. Whether the thread looks for the next one depends on when the last one
/// ended. Costs nothing in virtual time.
pub fn client_request() -> ClientRequest {
    let reactor = with_current(|core| core.reactor().filter(|it| it.spinner().is_some()).cloned());
    if let Some(spinner) = reactor.as_ref().and_then(|reactor| reactor.spinner()) {
        spinner.request_begins();
    }
    ClientRequest(reactor)
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        if let Some(spinner) = self.0.as_ref().and_then(|reactor| reactor.spinner()) {
            spinner.request_ends();
        }
    }
}

/// Calls `ask` with what makes this thread spin, if it may spin.
fn with_spinner<T>(ask: impl FnOnce(&Spinner) -> T) -> Option<T> {
    with_current(|core| {
        core.reactor()
            .and_then(|reactor| reactor.spinner().map(ask))
    })
}

/// What this runtime's thread spun so far; nothing in virtual time.
pub fn spin_counters() -> SpinCounters {
    with_spinner(Spinner::counters).unwrap_or_default()
}

/// Does this thread look for work instead of sleeping? Only what it [`watch`]es is called while it does.
pub fn is_spinning() -> bool {
    with_spinner(Spinner::is_spinning).unwrap_or(false)
}

/// Has this thread look at `watched` while it spins, for as long as that lives. False: this thread never spins.
pub fn watch(watched: &Rc<dyn Watched>) -> bool {
    let weak = Rc::downgrade(watched);
    with_spinner(|spinner| spinner.watch(weak)).is_some()
}

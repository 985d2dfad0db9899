//! Where the admin API listens, at the start and after a reload of the configuration.
//!
//! ```text
//! start:  listeners -> begin -> serve
//! reload: open, which listens at what is new -> change: new ones begin, those that are gone answer what they read, and end
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use anyhow::bail;
use axum::Router;
use config::AdminConfig;
use env::net::{Address, inherited};
use report::terminal::said;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::guard::Guard;
use super::listen::AdminListener;
use crate::daemon::common::http_tls::HttpTls;

/// A listener that is to be served until it is said to be closed.
type Begun = (AdminListener, watch::Receiver<bool>);

/// See the module's head.
#[derive(Default)]
pub struct Doors {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What serves them; none before the start.
    begin: Option<mpsc::UnboundedSender<Begun>>,
    open: Vec<Door>,
    tls: Option<Arc<HttpTls>>,
    guard: Arc<RwLock<Guard>>,
}

struct Door {
    /// As the configuration has it.
    configured: Address,
    /// The real one: port 0 asks for any.
    address: Address,
    closed: watch::Sender<bool>,
}

/// What is new, and listened at.
pub struct Opened(Vec<(Address, AdminListener)>);

impl Drop for Opened {
    fn drop(&mut self) {
        for (_, listener) in &self.0 {
            inherited::closed(&listener.address);
        }
    }
}

impl Doors {
    /// Serves these from now on; what this answers with serves them, and ends with it.
    pub fn begin(
        &self,
        listeners: Vec<(Address, AdminListener)>,
        router: Router,
        (tls, guard): (Option<Arc<HttpTls>>, Arc<RwLock<Guard>>),
    ) -> impl Future<Output = ()> + use<> {
        let (begin, begun) = mpsc::unbounded_channel();
        let mut state = self.state();
        *state = State {
            begin: Some(begin),
            open: Vec::new(),
            tls,
            guard,
        };
        listeners.into_iter().for_each(|it| state.open(it));
        serve(begun, router)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens where the configuration has a new address.
    ///
    /// # Errors
    /// In words.
    pub async fn listen(&self, admin: &AdminConfig) -> anyhow::Result<Opened> {
        let (known, tls) = {
            let state = self.state();
            let known = state.open.iter().map(|it| it.configured.clone());
            (known.collect::<Vec<_>>(), state.tls.clone())
        };
        listen(admin, &known, tls.as_ref()).await.map(Opened)
    }

    /// These are all, of which `opened` are new.
    pub fn change(&self, admin: &AdminConfig, opened: Opened) {
        let mut state = self.state();
        let guard = Guard::of(admin);
        *state.guard.write().unwrap_or_else(PoisonError::into_inner) = guard;
        state.end(|address| !admin.has(address));
        let mut opened = opened;
        std::mem::take(&mut opened.0)
            .into_iter()
            .for_each(|it| state.open(it));
    }

    /// They answer what they have read, and take no more.
    pub fn end(&self) {
        for door in &self.state().open {
            // Without a receiver it has ended already.
            let _ = door.closed.send(true);
        }
    }
}

impl State {
    fn open(&mut self, (configured, listener): (Address, AdminListener)) {
        let (closed, closing) = watch::channel(false);
        let address = listener.address.clone();
        // With the daemon ending none is served any more.
        let _ = self.begin.as_ref().map(|it| it.send((listener, closing)));
        self.open.push(Door {
            configured,
            address,
            closed,
        });
    }

    fn end(&mut self, is_gone: impl Fn(&Address) -> bool) {
        for door in self.open.extract_if(.., |it| is_gone(&it.configured)) {
            let _ = door.closed.send(true);
            inherited::closed(&door.address);
        }
    }
}

/// The real ones of listeners.
pub fn addresses(listeners: &[(Address, AdminListener)]) -> Vec<Address> {
    listeners.iter().map(|(_, it)| it.address.clone()).collect()
}

/// Listens at all addresses but the `known` ones.
///
/// # Errors
/// In words.
pub async fn listen(
    admin: &AdminConfig,
    known: &[Address],
    tls: Option<&Arc<HttpTls>>,
) -> anyhow::Result<Vec<(Address, AdminListener)>> {
    let mut opened = Vec::new();
    for address in admin.addresses().filter(|it| !known.contains(it)) {
        if address.is_tls() && tls.is_none() {
            bail!(
                "{address}: the first address with TLS is opened at a restart; restart the daemon for it"
            );
        }
        match AdminListener::open(address, admin.socket_mode, tls).await {
            Ok(listener) => opened.push((address.clone(), listener)),
            // It was not asked for.
            Err(error) if !admin.web_named && admin.web.contains(address) => {
                tracing::warn!("no dashboard and no metrics: {}", said::words(&error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

/// Serves what is begun.
async fn serve(mut begun: mpsc::UnboundedReceiver<Begun>, router: Router) {
    let mut serving = JoinSet::new();
    while let Some((listener, closed)) = begun.recv().await {
        serving.spawn(listener.serve(router.clone(), closed));
    }
    // The process ends.
    serving.shutdown().await;
}

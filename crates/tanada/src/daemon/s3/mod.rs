//! Gateways: buckets over stores, for S3 clients.
//!
//! ```text
//! [[s3]] -> data thread of its stores: sessions by account and reservation -> Blobs
//!        -> index, in the first store                                    -> Gateway -> threads of requests -> listen
//! access keys: meta store -> KeyRing, each second anew                   -'
//! ```
//!
//! Always true:
//! 1. Gateways end before the data threads that they stand on.
//! 2. A gateway whose index cannot be used keeps nothing else from being served.

mod counters;
pub mod keys;
mod listen;
mod seal;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use config::{Config, S3Config};
use env::net::Address;
use report::terminal::said;
use s3::{Blobs, Data, Gateway, Index, Terms};
use tokio::sync::{oneshot, watch};

use super::common::http_tls::HttpTls;
use super::common::when;
use super::thread::command::{Command, ThreadHandle};
use super::thread::store::OpenStore;
use crate::api::s3::S3Gateway;
use crate::daemon::metrics::page::GatewaySnapshot;
use counters::GatewayCounters;
use keys::{KeyRing, OfGateway};
use listen::Listeners;

/// Threads that answer requests of one gateway.
const WORKERS: usize = 2;

/// What the admin API knows of gateways.
#[derive(Default)]
pub struct Shared {
    pub keys: Arc<KeyRing>,
    /// Once they are open.
    gateways: OnceLock<Vec<S3Gateway>>,
    /// By their names.
    served: RwLock<BTreeMap<String, Served>>,
}

impl Shared {
    /// Of this configuration.
    ///
    /// # Errors
    /// The file of the sealing key.
    pub fn of(config: &Config) -> anyhow::Result<Shared> {
        Ok(Shared {
            keys: Arc::new(KeyRing::open(config)?),
            ..Shared::default()
        })
    }

    /// Those of the gateways that are served.
    pub fn indexes(&self) -> Vec<(String, Arc<Index>)> {
        let all = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let open = all
            .iter()
            .filter_map(|(name, it)| Some((name.clone(), it.index.upgrade()?)));
        open.collect()
    }

    /// What they were asked so far.
    pub fn counters(&self) -> Vec<GatewaySnapshot> {
        let all = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let shown = all.iter().map(|(name, it)| GatewaySnapshot {
            name: name.clone(),
            up: it.index.strong_count() > 0,
            connections: it.counters.connections.load(Ordering::Relaxed),
            received: it.counters.received.load(Ordering::Relaxed),
            sent: it.counters.sent.load(Ordering::Relaxed),
            requests: it.counters.requests(),
        });
        shown.collect()
    }

    pub fn gateways(&self) -> Vec<S3Gateway> {
        self.gateways.get().cloned().unwrap_or_default()
    }
}

/// What others look at of a gateway.
struct Served {
    /// Not where it cannot be used, nor while the daemon ends.
    index: Weak<Index>,
    counters: Arc<GatewayCounters>,
}

/// The gateways of a daemon.
#[derive(Default)]
pub struct Gateways {
    open: Vec<Open>,
}

/// One of them.
struct Open {
    shown: S3Gateway,
    ended: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateways {
    /// Opens those of the configuration over the stores that are open.
    ///
    /// # Errors
    /// Why one of them cannot be opened; those before it are closed again.
    pub async fn open(
        config: &Config,
        threads: &[ThreadHandle],
        (shared, tls): (&Shared, Option<&Arc<HttpTls>>),
    ) -> anyhow::Result<Gateways> {
        let mut gateways = Gateways::default();
        for gateway in &config.s3 {
            let opened = open(gateway, threads, (&shared.keys, tls)).await;
            match opened.with_context(|| format!("gateway {}", gateway.name)) {
                Ok((open, served)) => {
                    let mut all = shared
                        .served
                        .write()
                        .unwrap_or_else(PoisonError::into_inner);
                    all.insert(gateway.name.clone(), served);
                    drop(all);
                    gateways.open.push(open);
                }
                Err(error) => {
                    gateways.end().await;
                    return Err(error);
                }
            }
        }
        let shown = gateways.open.iter().map(|it| it.shown.clone());
        // They are opened once.
        let _ = shared.gateways.set(shown.collect());
        Ok(gateways)
    }

    /// Takes no more requests, answers those under way, and closes the indexes.
    pub async fn end(&mut self) {
        for open in &self.open {
            open.ended.send_replace(true);
        }
        for mut open in self.open.drain(..) {
            if let Some(thread) = open.thread.take() {
                // What it panicked with was printed where it did.
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
        }
    }
}

async fn open(
    config: &S3Config,
    threads: &[ThreadHandle],
    (keys, tls): (&Arc<KeyRing>, Option<&Arc<HttpTls>>),
) -> anyhow::Result<(Open, Served)> {
    let stores = stores(config, threads).await?;
    let listeners = Listeners::open(&config.listen, tls).await?;
    let addresses = listeners.addresses();
    let listen = addresses.iter().map(Address::to_string);
    let shown = S3Gateway {
        name: config.name.clone(),
        stores: config.stores.clone(),
        listen: listen.collect(),
        region: config.region.clone(),
        failed: None,
    };
    let counters = Arc::<GatewayCounters>::default();
    let counting = Arc::clone(&counters);
    let (ended, until) = watch::channel(false);
    let (ready, started) = oneshot::channel();
    let terms = Terms {
        region: config.region.clone(),
        clock: || when::now().0 / 1_000_000,
        transfers: s3::TRANSFERS,
    };
    let keys = OfGateway {
        ring: Arc::clone(keys),
        gateway: config.name.clone(),
    };
    // Its requests hash what comes and goes: no thread of the daemon's waits for them.
    let thread = std::thread::Builder::new()
        .name("s3".to_owned())
        .spawn(move || run(stores, terms, keys, (listeners, counting), (ready, until)))
        .context("cannot start a thread")?;
    let mut open = Open {
        shown,
        ended,
        thread: Some(thread),
    };
    let started = started.await;
    let started = started
        .context("its thread ended before it began")
        .flatten();
    let index = started.unwrap_or_else(|why| {
        let (name, why) = (&open.shown.name, said::words(&why));
        tracing::error!(gateway = name, "it is not served: {why}");
        open.shown.failed = Some(why);
        open.shown.listen.clear();
        Weak::new()
    });
    Ok((open, Served { index, counters }))
}

/// Says that a gateway is served, and where its index is.
type Ready = oneshot::Sender<anyhow::Result<Weak<Index>>>;

/// A thread of its own: opens the index, serves until the end, closes the index.
fn run(
    (data, identities): (Data, String),
    terms: Terms,
    keys: OfGateway,
    (listeners, counters): (Listeners, Arc<GatewayCounters>),
    (ready, ended): (Ready, watch::Receiver<bool>),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("s3 requests")
        .enable_all()
        .build();
    let opened = Index::open(data.clone(), s3::CACHE, &identities).map_err(anyhow::Error::from);
    let (runtime, index) = match (runtime, opened) {
        (Ok(runtime), Ok(index)) => (runtime, Arc::new(index)),
        (Err(error), _) => return drop(ready.send(Err(error.into()))),
        (_, Err(error)) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(Arc::downgrade(&index)));
    let swept = Arc::clone(&index);
    let clock = terms.clock;
    runtime.spawn(s3::sweep(swept, data.clone(), clock));
    let service = Gateway::new(Arc::clone(&index), data, terms, Arc::new(keys)).service();
    runtime.block_on(listeners.serve(service, counters, ended));
    // Tasks that have the index end with it.
    runtime.shutdown_timeout(listen::GRACE);
    drop(index);
}

/// The stores of a gateway, which live on one data thread.
async fn stores(config: &S3Config, threads: &[ThreadHandle]) -> anyhow::Result<(Data, String)> {
    let (data, jobs) = s3::data();
    let has_all = |thread: &&ThreadHandle| {
        config
            .stores
            .iter()
            .all(|name| thread.has.stores.contains(name))
    };
    let thread = threads.iter().find(has_all);
    let thread = thread.ok_or_else(|| anyhow!("its stores are on no data thread"))?;
    let (send, done) = oneshot::channel();
    let job = move |stores: Vec<Rc<OpenStore>>| drop(send.send(begin(&stores, jobs)));
    let stores = config.stores.clone();
    let posted = thread.post(Command::Stores {
        stores,
        job: Box::new(job),
    });
    posted.map_err(|_| anyhow!("the data thread of its stores has ended"))?;
    let identities = done
        .await
        .context("the data thread of its stores has ended")??;
    Ok((data, identities))
}

/// On the data thread: carries out what the gateway asks of the stores from now on. Their identities, in their order.
fn begin(stores: &[Rc<OpenStore>], jobs: s3::Jobs) -> anyhow::Result<String> {
    let nodes = stores.iter().map(|it| Rc::clone(&it.node)).collect();
    let identities = stores
        .iter()
        .map(|it| format!("{:032x}", it.node.store().uuid()));
    env::spawn(jobs.serve(Rc::new(Blobs::new(nodes)?)));
    Ok(identities.collect::<Vec<_>>().join(", "))
}

//! Gateways: buckets over stores, for S3 clients.
//!
//! ```text
//! [[s3]] -> data thread of its stores: sessions by account and reservation -> Blobs
//!        -> index, in the first store                                    -> Gateway -> threads of requests -> listen
//! access keys: meta store -> KeyRing, each second anew                   -'
//! ```
//!
//! One on a volume of the cluster is opened where the volume can be, again and again (`on_volume`).
//!
//! Always true:
//! 1. Gateways end before the data threads that they stand on.
//! 2. A gateway whose index cannot be used keeps nothing else from being served.

mod counters;
pub mod keys;
mod listen;
mod on_volume;
mod seal;

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use config::{Config, S3Below, S3Config};
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
use on_volume::OnVolume;

/// Threads that answer requests of one gateway.
const WORKERS: usize = 2;

/// What the admin API knows of gateways.
#[derive(Default)]
pub struct Shared {
    pub keys: Arc<KeyRing>,
    /// In the order of the configuration.
    gateways: RwLock<Vec<Shown>>,
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
        let open = |it: &Shown| Some((it.about.name.clone(), it.index.upgrade()?));
        self.each(|all| all.filter_map(open).collect())
    }

    /// What they were asked so far.
    pub fn counters(&self) -> Vec<GatewaySnapshot> {
        let snapshot = |it: &Shown| GatewaySnapshot {
            name: it.about.name.clone(),
            up: it.index.strong_count() > 0,
            connections: it.counters.connections.load(Ordering::Relaxed),
            received: it.counters.received.load(Ordering::Relaxed),
            sent: it.counters.sent.load(Ordering::Relaxed),
            requests: it.counters.requests(),
        };
        self.each(|all| all.map(snapshot).collect())
    }

    pub fn gateways(&self) -> Vec<S3Gateway> {
        self.each(|all| all.map(|it| it.about.clone()).collect())
    }

    fn each<T>(&self, look: impl FnOnce(std::slice::Iter<'_, Shown>) -> T) -> T {
        // It is whole between any two of its changes.
        let all = self.gateways.read().unwrap_or_else(PoisonError::into_inner);
        look(all.iter())
    }

    /// From now on this is how the gateway of its name is.
    fn show(&self, shown: Shown) {
        let mut all = self
            .gateways
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|it| it.about.name == shown.about.name) {
            Some(known) => *known = shown,
            None => all.push(shown),
        }
    }
}

/// What others look at of a gateway.
struct Shown {
    about: S3Gateway,
    /// Not where it cannot be used, nor while the daemon ends.
    index: Weak<Index>,
    counters: Arc<GatewayCounters>,
}

/// What gateways are opened with.
#[derive(Clone)]
struct Given {
    shared: Arc<Shared>,
    tls: Option<Arc<HttpTls>>,
}

/// The gateways of a daemon.
#[derive(Default)]
pub struct Gateways {
    open: Vec<Open>,
    on_volumes: Vec<OnVolume>,
}

/// One of them, while it is served.
struct Open {
    ended: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// Why its index cannot be used.
    failed: Option<String>,
}

impl Open {
    /// Takes no more requests, answers those under way, and closes the index.
    async fn end(mut self) {
        self.ended.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Gateways {
    /// Opens those of the configuration over the stores that are open.
    ///
    /// # Errors
    /// Why one of them cannot be opened; those before it are closed again.
    pub async fn open(
        config: &Config,
        threads: &[ThreadHandle],
        (shared, tls): (&Arc<Shared>, Option<&Arc<HttpTls>>),
    ) -> anyhow::Result<Gateways> {
        let given = Given {
            shared: Arc::clone(shared),
            tls: tls.cloned(),
        };
        let mut gateways = Gateways::default();
        for gateway in &config.s3 {
            let opened = gateways.open_one(gateway, threads, &given).await;
            if let Err(error) = opened.with_context(|| format!("gateway {}", gateway.name)) {
                gateways.end().await;
                return Err(error);
            }
        }
        Ok(gateways)
    }

    async fn open_one(
        &mut self,
        config: &S3Config,
        threads: &[ThreadHandle],
        given: &Given,
    ) -> anyhow::Result<()> {
        match &config.below {
            S3Below::Stores(named) => {
                let stores = stores(named, threads).await?;
                self.open.push(open(config, stores, given).await?);
            }
            S3Below::Volume(volume) => {
                let opened = OnVolume::begin(config, volume, threads, given).await?;
                self.on_volumes.push(opened);
            }
        }
        Ok(())
    }

    /// Takes no more requests, answers those under way, and closes the indexes.
    pub async fn end(&mut self) {
        for open in &self.open {
            open.ended.send_replace(true);
        }
        self.on_volumes.iter().for_each(OnVolume::begin_ending);
        for on_volume in self.on_volumes.drain(..) {
            on_volume.end().await;
        }
        for open in self.open.drain(..) {
            open.end().await;
        }
    }
}

/// How a gateway is before it is opened.
fn about(config: &S3Config) -> S3Gateway {
    S3Gateway {
        name: config.name.clone(),
        stores: config.stores().to_vec(),
        volume: config.volume().map(ToString::to_string),
        listen: Vec::new(),
        region: config.region.clone(),
        failed: None,
    }
}

/// Opens one over what `below` is.
async fn open(config: &S3Config, below: (Data, String), given: &Given) -> anyhow::Result<Open> {
    let listeners = Listeners::open(&config.listen, given.tls.as_ref()).await?;
    let addresses = listeners.addresses();
    let mut about = about(config);
    about.listen = addresses.iter().map(Address::to_string).collect();
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
        ring: Arc::clone(&given.shared.keys),
        gateway: config.name.clone(),
    };
    // Its requests hash what comes and goes: no thread of the daemon's waits for them.
    let thread = std::thread::Builder::new()
        .name("s3".to_owned())
        .spawn(move || run(below, terms, keys, (listeners, counting), (ready, until)))
        .context("cannot start a thread")?;
    let started = started.await;
    let started = started
        .context("its thread ended before it began")
        .flatten();
    let index = started.unwrap_or_else(|why| {
        let (name, why) = (&about.name, said::words(&why));
        tracing::error!(gateway = name, "it is not served: {why}");
        about.failed = Some(why);
        about.listen.clear();
        Weak::new()
    });
    let failed = about.failed.clone();
    given.shared.show(Shown {
        about,
        index,
        counters,
    });
    Ok(Open {
        ended,
        thread: Some(thread),
        failed,
    })
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
async fn stores(named: &[String], threads: &[ThreadHandle]) -> anyhow::Result<(Data, String)> {
    let (data, jobs) = s3::data(false);
    let has_all =
        |thread: &&ThreadHandle| named.iter().all(|name| thread.has.stores.contains(name));
    let thread = threads.iter().find(has_all);
    let thread = thread.ok_or_else(|| anyhow!("its stores are on no data thread"))?;
    let (send, done) = oneshot::channel();
    let job = move |stores: Vec<Rc<OpenStore>>| drop(send.send(begin(&stores, jobs)));
    let stores = named.to_vec();
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

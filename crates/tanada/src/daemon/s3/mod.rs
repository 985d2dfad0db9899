//! Gateways: buckets over stores, for S3 clients.
//!
//! ```text
//! [[s3]] -> data thread of its stores: a session with the node key each -> Blobs
//!        -> index, in the first store                                    -> Gateway -> threads of requests -> listen
//! access keys: meta store -> KeyRing, each second anew                   -'
//! ```
//!
//! Always true:
//! 1. Gateways end before the data threads that they stand on.
//! 2. A gateway whose index cannot be used keeps nothing else from being served.

pub mod keys;
mod listen;
mod seal;

use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use config::{Config, S3Config};
use env::net::Address;
use report::terminal::said;
use s3::{Blobs, Data, Gateway, Index, Objects, Terms};
use store::ops::ObjectErrors;
use store::qos::session::Access;
use tokio::sync::{oneshot, watch};

use super::common::http_tls::HttpTls;
use super::common::when;
use super::thread::command::{Command, ThreadHandle};
use super::thread::store::OpenStore;
use crate::api::s3::S3Gateway;
use keys::KeyRing;
use listen::Listeners;

/// Threads that answer requests of one gateway.
const WORKERS: usize = 2;

/// What the admin API knows of gateways.
#[derive(Default)]
pub struct Shared {
    pub keys: Arc<KeyRing>,
    /// Once they are open.
    gateways: OnceLock<Vec<S3Gateway>>,
}

impl Shared {
    /// Of this configuration.
    ///
    /// # Errors
    /// The file of the sealing key.
    pub fn of(config: &Config) -> anyhow::Result<Shared> {
        Ok(Shared {
            keys: Arc::new(KeyRing::open(config)?),
            gateways: OnceLock::new(),
        })
    }

    pub fn gateways(&self) -> Vec<S3Gateway> {
        self.gateways.get().cloned().unwrap_or_default()
    }
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
                Ok(open) => gateways.open.push(open),
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
) -> anyhow::Result<Open> {
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
    let (ended, until) = watch::channel(false);
    let (ready, started) = oneshot::channel();
    let terms = Terms {
        region: config.region.clone(),
        clock: || when::now().0 / 1_000_000,
        transfers: s3::TRANSFERS,
    };
    let keys = Arc::clone(keys);
    // Its requests hash what comes and goes: no thread of the daemon's waits for them.
    let thread = std::thread::Builder::new()
        .name("s3".to_owned())
        .spawn(move || run(stores, terms, keys, listeners, (ready, until)))
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
    if let Err(why) = started {
        let (name, why) = (&open.shown.name, said::words(&why));
        tracing::error!(gateway = name, "it is not served: {why}");
        open.shown.failed = Some(why);
        open.shown.listen.clear();
    }
    Ok(open)
}

/// A thread of its own: opens the index, serves until the end, closes the index.
fn run(
    (data, identities): (Data, String),
    terms: Terms,
    keys: Arc<KeyRing>,
    listeners: Listeners,
    (ready, ended): (oneshot::Sender<anyhow::Result<()>>, watch::Receiver<bool>),
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
    let _ = ready.send(Ok(()));
    let swept = Arc::clone(&index);
    let clock = terms.clock;
    runtime.spawn(s3::sweep(swept, data.clone(), clock));
    let service = Gateway::new(Arc::clone(&index), data, terms, keys).service();
    runtime.block_on(listeners.serve(service, ended));
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
    let names = config.stores.clone();
    let job = move |stores: Vec<Rc<OpenStore>>| drop(send.send(begin(&names, &stores, jobs)));
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

/// On the data thread: opens a session at each store, and carries out what the gateway asks from now on. The identities of the
/// stores, in their order.
fn begin(names: &[String], stores: &[Rc<OpenStore>], jobs: s3::Jobs) -> anyhow::Result<String> {
    let mut identities = Vec::new();
    let mut sessions: Vec<Rc<Objects>> = Vec::new();
    for (name, store) in names.iter().zip(stores) {
        let session = store.node.open_session(Access::NodeKey);
        let session = session.with_context(|| format!("store {name}"))?;
        sessions.push(Rc::new(ObjectErrors(session)));
        identities.push(format!("{:032x}", store.node.store().uuid()));
    }
    env::spawn(jobs.serve(Rc::new(Blobs::new(sessions))));
    Ok(identities.join(", "))
}

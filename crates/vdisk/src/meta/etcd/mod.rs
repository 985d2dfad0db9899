//! The meta store of several nodes: an etcd cluster, through its JSON gateway.
//!
//! ```text
//! data threads: get, txn, ... -> tasks on a thread of its own (tokio) -> HTTP/1.1, TLS -> a member of the cluster
//! watches: one stream each -> a few batches that wait -> data thread
//! ```
//!
//! - `http` connections, and whether a request was sent;
//! - `wire` what is said in JSON;
//! - `calls` which member is asked, and what is known when no member answers;
//! - `watches` streams that go on where they broke.
//!
//! The gateway speaks JSON over HTTP/1.1, so nothing here needs etcd's protocol files or their compiler. etcd 3.4 or later.
//!
//! Always true:
//! 1. A transaction that may have reached etcd is never sent twice.
//! 2. A call whose caller is gone goes on to its end.

mod calls;
mod http;
mod watches;
mod wire;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use base::Nanos;
use rustls::ClientConfig;
use tls::{TlsError, pem};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::checked::{Asked, Checked};
use super::{
    Compare, Entry, Event, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision,
    Watch,
};
use calls::{Cluster, Failure, User};
use http::Endpoint;
use watches::{BATCHES, Follower};

/// Which etcd, and how it is reached.
#[derive(Clone)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port`, one or more members of one cluster.
    pub endpoints: Vec<String>,
    /// Put before every key: several users of one etcd stay apart. May be empty.
    pub prefix: String,
    /// For `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Name and password, where etcd's authentication is on.
    pub user: Option<(String, String)>,
    /// How long one member may take to accept a connection.
    pub connect_timeout: Nanos,
    /// How long a call may take, all members together.
    pub call_timeout: Nanos,
}

impl Default for EtcdConfig {
    fn default() -> EtcdConfig {
        EtcdConfig {
            endpoints: Vec::new(),
            prefix: String::new(),
            tls: None,
            user: None,
            connect_timeout: Nanos::secs(1),
            call_timeout: Nanos::secs(5),
        }
    }
}

/// Whom to trust, and who we are; PEM texts.
#[derive(Clone)]
pub struct EtcdTls {
    /// The authority that the members' certificates come from.
    pub authority: Vec<u8>,
    /// Our own certificate and its key, if the members ask for one.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No endpoint is configured.
    #[error("no endpoint of etcd is named; give one at least, like http://127.0.0.1:2379")]
    NoEndpoint,
    /// An endpoint's address is none.
    #[error(
        "'{url}' cannot be an endpoint of etcd: {why}; write http://host:port or https://host:port"
    )]
    Endpoint {
        /// As it was given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Certificates or keys.
    #[error("cannot use {what} for etcd: {why}; give it as PEM")]
    Tls {
        /// Which of the texts.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// No thread, or no runtime for it.
    #[error("cannot start the thread for etcd")]
    Thread(#[from] std::io::Error),
}

/// An etcd cluster. Closed when dropped: later calls fail as closed.
///
/// Nothing is connected before the first call, so that a node can start before its etcd does.
///
/// # Example
/// ```no_run
/// use vdisk::meta::{Etcd, EtcdConfig};
/// let config = EtcdConfig {
///     endpoints: vec!["http://10.0.0.1:2379".into(), "http://10.0.0.2:2379".into()],
///     prefix: "tanada/".into(),
///     ..EtcdConfig::default()
/// };
/// let etcd = Etcd::new(&config)?;
/// let handle = etcd.handle(); // goes to any thread
/// env::Runtime::real(env::RealConfig::default())?.block_on(async move {
///     handle.client().get("store/1").await
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Etcd {
    handle: EtcdHandle,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The way to an [`Etcd`] from any thread.
#[derive(Clone)]
pub struct EtcdHandle {
    cluster: Arc<Cluster>,
    runtime: Handle,
}

impl Etcd {
    /// Starts the thread that talks to it.
    ///
    /// # Errors
    /// [`EtcdError`] says what of the configuration cannot be used.
    pub fn new(config: &EtcdConfig) -> Result<Etcd, EtcdError> {
        let cluster = Arc::new(cluster(config)?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let handle = EtcdHandle {
            cluster,
            runtime: runtime.handle().clone(),
        };
        let (close, closed) = oneshot::channel::<()>();
        // Control plane: sockets and timers of tokio, away from the data threads.
        let thread = std::thread::Builder::new()
            .name("etcd".to_owned())
            .spawn(move || {
                // Either way it is time to end.
                let _ = runtime.block_on(closed);
            })?;
        Ok(Etcd {
            handle,
            close: Some(close),
            thread: Some(thread),
        })
    }

    /// A way to it for other threads.
    pub fn handle(&self) -> EtcdHandle {
        self.handle.clone()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

fn cluster(config: &EtcdConfig) -> Result<Cluster, EtcdError> {
    if config.endpoints.is_empty() {
        return Err(EtcdError::NoEndpoint);
    }
    let tls = config.tls.as_ref().map(client_config).transpose()?;
    let endpoint = |url: &String| {
        Endpoint::new(url, tls.as_ref()).map_err(|why| EtcdError::Endpoint {
            url: url.clone(),
            why,
        })
    };
    let user = config.user.clone();
    Ok(Cluster {
        name: format!("etcd at {}", config.endpoints.join(", ")),
        endpoints: config
            .endpoints
            .iter()
            .map(endpoint)
            .collect::<Result<_, _>>()?,
        names: wire::Names {
            prefix: config.prefix.clone(),
        },
        user: user.map(|(name, password)| User { name, password }),
        connect_timeout: config.connect_timeout.duration(),
        call_timeout: config.call_timeout.duration(),
        preferred: AtomicUsize::new(0),
        token: Mutex::new((0, None)),
    })
}

fn client_config(tls: &EtcdTls) -> Result<Arc<ClientConfig>, EtcdError> {
    let bad = |what, why: &dyn ToString| EtcdError::Tls {
        what,
        why: why.to_string(),
    };
    let named = |what| {
        move |why: TlsError| match why {
            TlsError::Pem { why, .. } => EtcdError::Tls { what, why },
            other => EtcdError::Tls {
                what,
                why: other.to_string(),
            },
        }
    };
    let authority = "the certificate authority";
    let roots = pem::roots(authority, &tls.authority).map_err(named(authority))?;
    let builder = ClientConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| bad(authority, &why))?
        .with_root_certificates(roots);
    let config = match &tls.own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let what = "the client certificate";
            let chain = pem::certificates(what, certificate).map_err(named(what))?;
            let key = pem::key(key).map_err(named("the client key"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|why| bad("the client certificate with this key", &why))?
        }
    };
    Ok(Arc::new(config))
}

// --- clients ------------------------------------------------------------------------------------------

/// One thread's way to an [`Etcd`].
struct Client {
    handle: EtcdHandle,
}

impl EtcdHandle {
    /// The store, for the thread that calls.
    pub fn client(&self) -> Rc<dyn MetaStore> {
        Rc::new(Client {
            handle: self.clone(),
        })
    }

    /// Runs a call on etcd's own thread; it goes on if its caller is gone.
    async fn ask<T, F>(
        &self,
        asked: Asked<'_>,
        lease: Option<LeaseId>,
        call: impl FnOnce(Arc<Cluster>) -> F,
    ) -> Result<T, MetaError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let call = call(Arc::clone(&self.cluster));
        let said = match self.runtime.spawn(call).await {
            Ok(said) => said,
            // A transaction may have been on its way when it was closed.
            Err(_) if matches!(asked, Asked::Txn(..) | Asked::Revoke) => {
                Err(Failure::Unknown("it is closed".to_owned()))
            }
            Err(_) => Err(Failure::Nothing("it is closed".to_owned())),
        };
        said.map_err(|failure| failure.error(&self.cluster, asked, lease))
    }

    fn checked<'a>(&'a self, asked: Asked<'a>) -> Checked<'a> {
        Checked {
            store: &self.cluster.name,
            asked,
        }
    }
}

impl MetaStore for Client {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        Box::pin(async move {
            let asked = Asked::Get(key);
            self.handle.checked(asked).key(key)?;
            let key = key.to_owned();
            let read = |cluster: Arc<Cluster>| async move { cluster.get(&key).await };
            self.handle.ask(asked, None, read).await
        })
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page> {
        Box::pin(async move {
            let asked = Asked::Range(prefix);
            let most = self.handle.checked(asked).page(prefix, most)?;
            let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
            let read = |cluster: Arc<Cluster>| async move {
                cluster.range(&prefix, after.as_deref(), most).await
            };
            self.handle.ask(asked, None, read).await
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let asked = Asked::Txn(&compares, &ops);
            self.handle.checked(asked).txn(&compares, &ops)?;
            // etcd does not say which lease is not there; mostly there is but one.
            let lease = ops.iter().find_map(|op| match op {
                Op::Put { lease, .. } => *lease,
                Op::Delete { .. } => None,
            });
            let (compares_there, ops_there) = (compares.clone(), ops.clone());
            let call = |cluster: Arc<Cluster>| async move {
                cluster.txn(&compares_there, &ops_there).await
            };
            self.handle.ask(asked, lease, call).await
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        Box::pin(async move {
            let asked = Asked::Watch(prefix);
            self.handle.checked(asked).prefix(prefix)?;
            let (to, batches) = mpsc::channel(BATCHES);
            let (created, is_there) = oneshot::channel();
            let prefix = prefix.to_owned();
            let open = |cluster: Arc<Cluster>| async move {
                let call_timeout = cluster.call_timeout;
                let follower = Follower {
                    cluster,
                    prefix,
                    // Revision 0 would mean "from now on".
                    from: from.max(Revision(1)),
                    to,
                    created: Some(created),
                };
                tokio::spawn(follower.follow());
                match tokio::time::timeout(call_timeout, is_there).await {
                    // If the follower gave up at once, it has said why to the reader.
                    Ok(_) => Ok(()),
                    Err(_) => Err(Failure::Nothing("no member opened the watch".to_owned())),
                }
            };
            self.handle.ask(asked, None, open).await?;
            let watch: Box<dyn Watch> = Box::new(EtcdWatch {
                name: self.handle.cluster.name.clone(),
                batches,
                over: None,
            });
            Ok(watch)
        })
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        Box::pin(async move {
            self.handle.checked(Asked::Lease).ttl(ttl)?;
            let seconds = ttl.0.div_ceil(Nanos::secs(1).0);
            let take = |cluster: Arc<Cluster>| async move { cluster.lease(seconds).await };
            self.handle.ask(Asked::Lease, None, take).await
        })
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        Box::pin(async move {
            let keep = |cluster: Arc<Cluster>| async move { cluster.keep(lease).await };
            let seconds = self.handle.ask(Asked::Keep, Some(lease), keep).await?;
            Ok(Nanos::secs(seconds))
        })
    }

    /// Leaders that were deposed and did not know it have ended leases early, and an operator may end one by hand.
    fn leases_are_proof(&self) -> bool {
        false
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = |cluster: Arc<Cluster>| async move { cluster.revoke(lease).await };
            self.handle.ask(Asked::Revoke, Some(lease), end).await
        })
    }
}

struct EtcdWatch {
    name: String,
    batches: mpsc::Receiver<Result<Vec<Event>, MetaError>>,
    /// What it ended with.
    over: Option<MetaError>,
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> Pending<'_, Vec<Event>> {
        Box::pin(async move {
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            let closed = || MetaError::Unavailable {
                store: self.name.clone(),
                asked: Asked::Watch("").to_string(),
                why: "it is closed".to_owned(),
            };
            match self.batches.recv().await {
                Some(Ok(events)) => Ok(events),
                Some(Err(error)) => Err(self.over.insert(error).clone()),
                None => Err(closed()),
            }
        })
    }
}

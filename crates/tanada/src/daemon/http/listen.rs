//! The sockets of the admin API: who comes in, how many at once, and how long may a request take to arrive?
//!
//! ```text
//! listener -> a slot free, or one that a silent connection leaves? -> one task: TLS where it is spoken -> HTTP/1.1,
//!                \-> else closed at once                                each request marked with its entrance, once it is
//!                                                                         whole -> router
//! ```
//!
//! Always true:
//! 1. TCP and Unix connections have slots of their own, and silent ones make room: at a Unix socket readers never keep the
//!    owner out. Over TCP a host that has its share being answered waits for one of its own.
//! 2. A connection that does not send a whole header in [`HEADER_TIMEOUT`], or a body in [`BODY_TIMEOUT`], is closed, and
//!    makes room before.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use env::net::{Address, inherited};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::{Entrance, UnixPeer};
use super::control::Failure;
use super::slots::{Party, Slot, Slots};
use crate::daemon::common::address::plain;
use crate::daemon::common::http_tls::{HANDSHAKE_TIMEOUT, HttpTls, TlsPeer};
use crate::daemon::common::socket_folder;

/// No request of this API is longer.
pub const BODY_MAX: usize = 64 * 1024;
/// How long a connection may take to send the header of its next request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a request's body may take behind its header.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// Until the next try where none could be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// A socket of the admin API.
pub struct AdminListener {
    pub address: Address,
    listener: Listener,
}

enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<HttpTls>),
    Unix {
        listener: UnixListener,
        _file: Option<SocketFile>,
    },
}

/// Removes the socket's file at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.0);
    }
}

impl AdminListener {
    /// Listens at `address`; a Unix socket's file gets the permissions `socket_mode`. `tls` is for addresses where it is
    /// spoken.
    ///
    /// # Errors
    /// What stands in the way, and what to do.
    pub async fn open(
        address: &Address,
        socket_mode: u32,
        tls: Option<&Arc<HttpTls>>,
    ) -> anyhow::Result<AdminListener> {
        socket_folder::make(address)?;
        match address {
            Address::Tls(socket) => {
                let tls = tls.ok_or_else(|| anyhow!("{address}: there is no certificate"))?;
                let listener = bind(address, *socket).await?;
                let address = Address::Tls(listener.local_addr()?);
                Ok(AdminListener {
                    address,
                    listener: Listener::Tls(listener, Arc::clone(tls)),
                })
            }
            Address::Tcp(socket) => {
                let listener = bind(address, *socket).await?;
                // Port 0 asks for any free one; the answer says which.
                let address = Address::Tcp(listener.local_addr()?);
                Ok(AdminListener {
                    address,
                    listener: Listener::Tcp(listener),
                })
            }
            Address::Unix(path) => {
                let (listener, file) = match inherited::take(address) {
                    Some(socket) => {
                        env::net::give_inherited_mode(address, socket_mode)?;
                        (unix_of(socket)?, None)
                    }
                    None => bind_unix(address, path, socket_mode).await?,
                };
                Ok(AdminListener {
                    address: address.clone(),
                    listener: Listener::Unix {
                        listener,
                        _file: file,
                    },
                })
            }
        }
    }

    /// Answers requests until `closed` is true; those under way then are answered, too.
    pub async fn serve(self, router: Router, mut closed: watch::Receiver<bool>) {
        let slots = Slots::default();
        let mut open = JoinSet::new();
        loop {
            let came = tokio::select! {
                came = self.listener.accept() => came,
                () = until(&mut closed) => break,
            };
            // Those that have ended take no room.
            while open.try_join_next().is_some() {}
            match came {
                Err(error) => {
                    tracing::warn!(%error, address = %self.address, "cannot accept");
                    tokio::time::sleep(RETRY).await;
                }
                Ok(stream) => {
                    let slot = match &stream {
                        Stream::Tls(..) => slots.take_to_greet(stream.party()),
                        _ => slots.take(stream.party()),
                    };
                    let Some(slot) = slot else {
                        tracing::warn!(address = %self.address, "too many admin connections: one more was closed");
                        continue;
                    };
                    let (router, closed) = (router.clone(), closed.clone());
                    open.spawn(stream.serve(router, Arc::new(slot), closed));
                }
            }
        }
        // Another listener may have the address at once.
        drop(self.listener);
        while open.join_next().await.is_some() {}
    }
}

/// Listens at an address of TCP.
async fn bind(address: &Address, socket: SocketAddr) -> anyhow::Result<TcpListener> {
    if let Some(socket) = inherited::take(address) {
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        return Ok(TcpListener::from_std(socket)?);
    }
    let bound = TcpListener::bind(socket).await;
    let listener = bound.map_err(|error| {
        anyhow!(
            "cannot listen on {address} for the admin API: {}; another program has it, perhaps another `tanada serve`: end \
             it, or write another address in [web] listen, or in [admin] tcp if it stands there",
            plain(&error)
        )
    })?;
    inherited::opened(&Address::Tcp(listener.local_addr()?), listener.as_fd());
    Ok(listener)
}

fn unix_of(socket: OwnedFd) -> io::Result<UnixListener> {
    let socket = std::os::unix::net::UnixListener::from(socket);
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// Listens at a Unix socket whose file gets these permissions; a file to be removed at the end.
async fn bind_unix(
    address: &Address,
    path: &Path,
    mode: u32,
) -> anyhow::Result<(UnixListener, Option<SocketFile>)> {
    remove_stale(path).await?;
    let listener = UnixListener::bind(path).map_err(|error| {
        anyhow!(
            "cannot listen on {address} for the admin API: {}; is its directory there and yours?",
            plain(&error)
        )
    })?;
    // A socket that outlives the process is found by its file.
    let file = (!inherited::is_begun()).then(|| SocketFile(path.to_owned()));
    // Until here the peers' credentials alone keep others out.
    env::net::give_socket_mode(path, mode)?;
    inherited::opened(address, listener.as_fd());
    Ok((listener, file))
}

/// A connection that has just come.
enum Stream {
    Tcp(tokio::net::TcpStream, IpAddr),
    Tls(tokio::net::TcpStream, IpAddr, Arc<HttpTls>),
    Unix(tokio::net::UnixStream, UnixPeer),
}

impl Stream {
    /// With whom it shares its places.
    fn party(&self) -> Party {
        match self {
            Stream::Tcp(_, from) | Stream::Tls(_, from, _) => Party::Host(*from),
            Stream::Unix(_, peer) => match peer.user {
                Some(user) if user == 0 || user == rustix::process::geteuid().as_raw() => {
                    Party::Owner(user)
                }
                user => Party::User(user),
            },
        }
    }

    /// Answers its requests to its end.
    async fn serve(self, router: Router, slot: Arc<Slot>, closed: watch::Receiver<bool>) {
        match self {
            Stream::Tcp(stream, from) => {
                let router = router.layer(Extension(Entrance::Tcp(from)));
                answer(stream, router, slot, closed).await;
            }
            Stream::Tls(stream, from, tls) => {
                serve_tls((stream, from), &tls, router, (slot, closed)).await;
            }
            Stream::Unix(stream, peer) => {
                let router = router.layer(Extension(Entrance::Unix(peer)));
                answer(stream, router, slot, closed).await;
            }
        }
    }
}

/// As [`answer`], in TLS: until the certificate that the client showed is revoked or over.
async fn serve_tls(
    (stream, from): (tokio::net::TcpStream, IpAddr),
    tls: &HttpTls,
    router: Router,
    (slot, mut closed): (Arc<Slot>, watch::Receiver<bool>),
) {
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.greet(stream)) => greeted,
        () = slot.needed() => return,
        () = until(&mut closed) => return,
    };
    let (stream, shown) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(why)) => return tracing::debug!(%from, why, "an admin client was turned away"),
        Err(_) => return tracing::debug!(%from, "an admin client took too long for a handshake"),
    };
    slot.greeted(shown.is_some());
    let shown = shown.map(Arc::new);
    let peer = TlsPeer {
        from,
        shown: shown.clone(),
    };
    let router = router.layer(Extension(Entrance::Tls(peer)));
    tokio::select! {
        biased;
        why = tls.until_over(shown.as_deref()) => tracing::info!(%from, why, "an admin connection ends"),
        () = answer(stream, router, slot, closed) => {}
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                env::net::watch_peer(stream.as_fd())?;
                Ok(Stream::Tcp(stream, from.ip()))
            }
            Listener::Tls(listener, tls) => {
                let (stream, from) = listener.accept().await?;
                env::net::watch_peer(stream.as_fd())?;
                Ok(Stream::Tls(stream, from.ip(), Arc::clone(tls)))
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let peer = peer_of(&stream);
                Ok(Stream::Unix(stream, peer))
            }
        }
    }
}

/// Who connected, as the kernel noted it then.
fn peer_of(stream: &tokio::net::UnixStream) -> UnixPeer {
    let Ok(peer) = stream.peer_cred() else {
        return UnixPeer::default();
    };
    let others = env::net::peer_groups(stream.as_fd()).unwrap_or_default();
    let groups = others.into_iter().chain([peer.gid()]);
    UnixPeer {
        user: Some(peer.uid()),
        groups: groups.collect(),
        process: peer.pid(),
    }
}

/// Waits for the end.
async fn until(closed: &mut watch::Receiver<bool>) {
    // An error means the sender is gone, which is the end as well.
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Answers the requests of one connection, until its slot is needed and none is under way.
async fn answer(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    router: Router,
    slot: Arc<Slot>,
    mut closed: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let busy = Arc::clone(&slot);
    let service = service_fn(move |request: Request<Incoming>| {
        // What has no body is whole, and begins at once.
        let begun = request.body().is_end_stream().then(|| busy.begin());
        let (busy, router) = (Arc::clone(&busy), router.clone());
        async move {
            let request = match whole(request).await {
                Ok(request) => request,
                Err(refused) => return Ok(refused),
            };
            let under_way = begun.unwrap_or_else(|| busy.begin());
            let answer = router.call(request).await;
            drop(under_way);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let done = tokio::select! {
        // The connection first: a request that has come begins, and keeps its slot.
        biased;
        done = connection.as_mut() => done,
        () = slot.needed() => {
            tracing::debug!("an admin connection was silent, and another one took its place");
            return;
        }
        () = until(&mut closed) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!("an admin connection ended: {error}");
    }
}

/// A request with all of its body, or why that has not come.
async fn whole(request: Request<Incoming>) -> Result<Request<Body>, Response> {
    let (head, body) = request.into_parts();
    let read = Limited::new(body, BODY_MAX).collect();
    let failure = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(read)) => return Ok(Request::from_parts(head, Body::from(read.to_bytes()))),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {BODY_MAX} bytes"),
            "no request of this API is longer: send less",
        ),
        Ok(Err(error)) => Failure::new(
            StatusCode::BAD_REQUEST,
            format!("the body did not come whole: {error}"),
            "send as many bytes as Content-Length says",
        ),
        Err(_) => Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come within {} s", BODY_TIMEOUT.as_secs()),
            "send it at once, behind the header",
        ),
    };
    let mut refused = failure.into_response();
    let close = HeaderValue::from_static("close");
    refused.headers_mut().insert(header::CONNECTION, close);
    Err(refused)
}

/// Removes a socket that a killed daemon left; refuses if one lives.
async fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(anyhow!(
            "cannot listen on unix:{}: a file that is no socket is there; move it away",
            path.display()
        ));
    }
    if tokio::net::UnixStream::connect(path).await.is_ok() {
        return Err(anyhow!(
            "cannot listen on unix:{}: another `tanada serve` answers there; end it first, or give \
             this one another --data-dir",
            path.display()
        ));
    }
    fs::remove_file(path)
        .with_context(|| format!("cannot remove the stale socket {}", path.display()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";

    #[test]
    fn a_request_whose_body_has_not_come_keeps_no_place_and_one_that_came_whole_does() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            for (body, kept) in [("", false), ("ab", true)] {
                let (asked, mut heard) = tokio::sync::mpsc::unbounded_channel();
                let slow = move || {
                    asked.send(()).expect("it is heard");
                    std::future::pending::<&str>()
                };
                let router = Router::new().route("/", axum::routing::post(slow));
                let slots = Slots::default();
                let host = Party::Host(IpAddr::from([10, 0, 0, 1]));
                let slot = Arc::new(slots.take(host).expect("there is room"));
                let (mut client, stream) = tokio::io::duplex(4096);
                let head = "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n";
                let request = format!("{head}{body}");
                client.write_all(request.as_bytes()).await.expect("it fits");
                let (_closed, closing) = watch::channel(false);
                let answering = tokio::spawn(answer(stream, router, slot, closing));
                if kept {
                    heard.recv().await.expect("it has begun");
                } else {
                    // It has read the header when it waits for the body.
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                }
                let others: Vec<Slot> = std::iter::from_fn(|| slots.take(host)).take(64).collect();
                let ended = tokio::time::timeout(Duration::from_millis(200), answering).await;
                assert_eq!(ended.is_err(), kept, "{body:?}");
                drop(others);
            }
        });
    }

    #[test]
    fn a_request_that_came_before_its_connection_was_closed_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            // Often enough that a choice by chance shows.
            for _ in 0..50 {
                let router = Router::new().route("/", axum::routing::get(|| async { "done" }));
                let slots = Slots::default();
                let host = Party::Host(IpAddr::from([10, 0, 0, 1]));
                let slot = Arc::new(slots.take(host).expect("there is room"));
                let (mut client, stream) = tokio::io::duplex(4096);
                client.write_all(REQUEST).await.expect("it fits");
                // The request is here and has not been looked at when others take all places.
                let others: Vec<Slot> = std::iter::from_fn(|| slots.take(host)).take(64).collect();
                let (_closed, closing) = watch::channel(false);
                answer(stream, router, slot, closing).await;
                let mut said = String::new();
                client.read_to_string(&mut said).await.expect("it is text");
                assert!(said.starts_with("HTTP/1.1 200 OK"), "{said:?}");
                drop(others);
            }
        });
    }
}

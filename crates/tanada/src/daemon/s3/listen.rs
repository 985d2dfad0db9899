//! The sockets of a gateway: HTTP/1.1, in TLS beyond this machine.
//!
//! ```text
//! listener -> a slot free? -> one task: TLS where it is spoken -> HTTP/1.1 -> service
//! ```
//!
//! Always true:
//! 1. A client that sends no whole header in [`HEADER_TIMEOUT`], or no byte of a body in [`BODY_TIMEOUT`], is cut off.
//! 2. What is under way at the end is answered, for [`GRACE`].

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::anyhow;
use env::net::Address;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3::Endpoint;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::counters::{GatewayCounters, Sent};
use crate::daemon::common::address::plain;
use crate::daemon::common::http_tls::{HANDSHAKE_TIMEOUT, HttpTls};

/// How long the header of a request may take, and a connection may be silent before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a body may pause.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests under way have at the end.
pub const GRACE: Duration = Duration::from_secs(10);
/// Connections of one gateway.
const CONNECTIONS_MAX: usize = 1024;
/// Until the next try where none could be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// Where clients of a gateway connect.
pub struct Listeners(Vec<(Address, TcpListener, Option<Arc<HttpTls>>)>);

impl Listeners {
    /// Listens at all of `addresses`.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn open(
        addresses: &[Address],
        tls: Option<&Arc<HttpTls>>,
    ) -> anyhow::Result<Listeners> {
        let mut all = Vec::new();
        for address in addresses {
            let socket = address.socket();
            let socket = socket.ok_or_else(|| anyhow!("{address} is no address of TCP"))?;
            let listener = TcpListener::bind(socket).await.map_err(|error| {
                anyhow!(
                    "cannot listen on {address}: {}; another program has it: end it, or write another address in [[s3]] listen",
                    plain(&error)
                )
            })?;
            let real = listener.local_addr()?;
            let (real, tls) = match address {
                Address::Tls(_) => (Address::Tls(real), tls.cloned()),
                _ => (Address::Tcp(real), None),
            };
            all.push((real, listener, tls));
        }
        Ok(Listeners(all))
    }

    pub fn addresses(&self) -> Vec<Address> {
        self.0.iter().map(|it| it.0.clone()).collect()
    }

    /// Answers requests until `ended` is true; those under way then are answered, too.
    pub async fn serve(
        self,
        service: Endpoint,
        counters: Arc<GatewayCounters>,
        ended: watch::Receiver<bool>,
    ) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut serving = JoinSet::new();
        for (address, listener, tls) in self.0 {
            let asked = (service.clone(), Arc::clone(&counters));
            let shared = (asked, Arc::clone(&slots), ended.clone());
            serving.spawn(serve_at(address, listener, tls, shared));
        }
        while serving.join_next().await.is_some() {}
    }
}

async fn serve_at(
    address: Address,
    listener: TcpListener,
    tls: Option<Arc<HttpTls>>,
    (asked, slots, mut ended): (Asked, Arc<Semaphore>, watch::Receiver<bool>),
) {
    // A listener was bound on another runtime: this one has to hear of it.
    let listener = match listener.into_std().and_then(TcpListener::from_std) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, %address, "cannot listen"),
    };
    let mut open = JoinSet::new();
    loop {
        let came = tokio::select! {
            came = listener.accept() => came,
            () = until(&mut ended) => break,
        };
        while open.try_join_next().is_some() {}
        let stream = match came.and_then(|(stream, _)| prepared(stream)) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, %address, "cannot accept");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            tracing::warn!(%address, "too many S3 connections: one more was closed");
            continue;
        };
        let (service, counters) = asked.clone();
        let asked = (service.at(stream.peer_addr().ok(), tls.is_some()), counters);
        let (ended, tls) = (ended.clone(), tls.clone());
        open.spawn(async move {
            let _while_it_is_open = (slot, asked.1.connected());
            match tls {
                None => answer(stream, asked, ended).await,
                Some(tls) => answer_in_tls(stream, &tls, asked, ended).await,
            }
        });
    }
    drop(listener);
    let all = async { while open.join_next().await.is_some() {} };
    // Those that take longer are cut off with the set.
    let _ = tokio::time::timeout(GRACE, all).await;
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    env::net::watch_peer(stream.as_fd())?;
    Ok(stream)
}

async fn answer_in_tls(
    stream: TcpStream,
    tls: &HttpTls,
    asked: Asked,
    ended: watch::Receiver<bool>,
) {
    let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.greet(stream)).await;
    match greeted {
        Ok(Ok((stream, _))) => answer(stream, asked, ended).await,
        Ok(Err(why)) => tracing::debug!(why, "an S3 client was turned away"),
        Err(_) => tracing::debug!("an S3 client took too long for a handshake"),
    }
}

async fn until(ended: &mut watch::Receiver<bool>) {
    // An error means the sender is gone, which is the end as well.
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Answers the requests of one connection.
async fn answer(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    asked: Asked,
    mut ended: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = asked.clone();
        async move { Ok::<_, Infallible>(one(&asked, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let done = tokio::select! {
        done = connection.as_mut() => done,
        () = until(&mut ended) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!("an S3 connection ended: {error}");
    }
}

/// What answers requests, and what counts them.
type Asked = (Endpoint, Arc<GatewayCounters>);

/// Counts requests, to name them.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Forms under way: what they bring is in memory before it is known whose it is.
static FORMS: Semaphore = Semaphore::const_new(8);

async fn one((service, counters): &Asked, request: Request<Incoming>) -> Response<Sent> {
    let method = request.method().clone();
    // A body of no bytes is not asked for with `100 Continue`. awscli 2.9 then takes the status of its next answer over the same
    // connection for a header.
    let unasked = request.headers().contains_key(EXPECT) && request.body().is_end_stream();
    let timed = |body| s3s::Body::http_body_unsync(Timed::new(body, Arc::clone(counters)));
    let _form = match s3::is_form(&method, request.headers()) {
        // It is closed never.
        true => FORMS.acquire().await.ok(),
        false => None,
    };
    let mut response = match service.call(request.map(timed)).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!("an S3 request was not answered: {error:?}");
            let mut response = Response::new(s3s::Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = HeaderValue::from_str(&format!("{:x}-{number:x}", std::process::id()));
    if let Ok(name) = name {
        response.headers_mut().insert("x-amz-request-id", name);
    }
    if unasked {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    counters.answered(&method, response.status());
    response.map(|body| Sent::new(body, Arc::clone(counters)))
}

/// A body that must not pause for long.
struct Timed {
    body: Incoming,
    pause: Pin<Box<Sleep>>,
    /// It was not asked for since the frame before: that is no pause of the client's.
    idle: bool,
    counters: Arc<GatewayCounters>,
}

impl Timed {
    fn new(body: Incoming, counters: Arc<GatewayCounters>) -> Timed {
        Timed {
            counters,
            body,
            pause: Box::pin(tokio::time::sleep(BODY_TIMEOUT)),
            idle: true,
        }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.idle {
            let end = Instant::now() + BODY_TIMEOUT;
            self.pause.as_mut().reset(end);
            self.idle = false;
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.idle = true;
            let data = frame.as_ref().and_then(|it| it.as_ref().ok()?.data_ref());
            let len = data.map_or(0, |it| it.len() as u64);
            self.counters.received.fetch_add(len, Ordering::Relaxed);
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        std::task::ready!(self.pause.as_mut().poll(cx));
        Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

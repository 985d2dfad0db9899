//! One endpoint of etcd: connections to it, kept and used again, and whether a request was sent.
//!
//! ```text
//! request -> a kept connection, or TCP (-> TLS) -> answer | not sent | sent, and no answer
//! ```
//!
//! Always true:
//! 1. [`Fault::NotSent`] means that no byte of the request left: it may be sent again, elsewhere.
//! 2. A connection is used again only after its last answer was read to the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Connections that wait for their next request, per endpoint.
const IDLE_MOST: usize = 16;
/// The longest answer that is read.
pub const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug)]
pub enum Fault {
    /// And nothing was sent.
    NotSent(String),
    /// It was sent, whole or in part.
    NoAnswer(String),
    /// The answer has more than [`ANSWER_MAX`] bytes.
    TooBig,
}

type Sender = SendRequest<Full<Bytes>>;

/// One member of the cluster, by its address.
pub struct Endpoint {
    /// As it was configured.
    pub url: String,
    /// Host and port as a URL has them.
    authority: String,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl Endpoint {
    /// From `http://host:port` or `https://host:port`; the port is 2379 if none is said.
    pub fn new(url: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Endpoint, String> {
        let uri: Uri = url.parse().map_err(|why| format!("it is no URL: {why}"))?;
        let host = uri.host().ok_or("it names no host")?;
        let authority = uri.authority().map_or(host, |it| it.as_str()).to_owned();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("nothing may come behind host and port".to_owned());
        }
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => {
                let config = tls.ok_or("https needs a certificate authority to trust")?;
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| "its host is neither a name nor an address")?;
                Some((TlsConnector::from(Arc::clone(config)), name))
            }
            _ => return Err("it begins with neither http:// nor https://".to_owned()),
        };
        Ok(Endpoint {
            url: url.to_owned(),
            authority,
            host,
            port: uri.port_u16().unwrap_or(2379),
            tls,
            idle: Mutex::default(),
        })
    }

    async fn connect(&self) -> Result<Sender, String> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.map_err(|why| why.to_string())?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => shake_hands(tcp).await,
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), tcp).await;
                shake_hands(tls.map_err(|why| format!("TLS: {why}"))?).await
            }
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MOST {
            idle.push(sender);
        }
    }

    /// Sends a request, on a kept connection if there is one; its answer's head.
    async fn send(
        &self,
        path: &str,
        body: &Bytes,
        token: Option<&str>,
        connect_timeout: Duration,
        sent: &AtomicBool,
    ) -> Result<(Sender, Response<Incoming>), Fault> {
        let build = || {
            let mut request = Request::post(path)
                .header("host", &self.authority)
                .header("content-type", "application/json")
                // A member that has lost the others shall say so, not wait.
                .header("grpc-metadata-hasleader", "true");
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            request
                .body(Full::new(body.clone()))
                .map_err(|why| Fault::NotSent(why.to_string()))
        };
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match send_on(&mut sender, build()?, sent).await {
                Ok(response) => return Ok((sender, response)),
                // The other side had closed it: nothing of this request left.
                Err(Fault::NotSent(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let mut sender = timeout(connect_timeout, self.connect())
            .await
            .map_err(|_| Fault::NotSent(format!("no connection in {connect_timeout:?}")))?
            .map_err(Fault::NotSent)?;
        let response = send_on(&mut sender, build()?, sent).await?;
        Ok((sender, response))
    }

    /// Sends a request and reads its answer. If this is dropped, `sent` says whether any of the request may have left.
    pub async fn post(
        &self,
        path: &str,
        body: &Bytes,
        token: Option<&str>,
        connect_timeout: Duration,
        call_timeout: Duration,
        sent: &AtomicBool,
    ) -> Result<(StatusCode, Bytes), Fault> {
        let exchange = async {
            let (sender, response) = self.send(path, body, token, connect_timeout, sent).await?;
            let status = response.status();
            match Limited::new(response.into_body(), ANSWER_MAX)
                .collect()
                .await
            {
                Ok(answer) => {
                    self.keep(sender);
                    Ok((status, answer.to_bytes()))
                }
                Err(why) if why.is::<LengthLimitError>() => Err(Fault::TooBig),
                Err(why) => Err(Fault::NoAnswer(why.to_string())),
            }
        };
        // A connection that takes too long is given up before anything is sent: `call_timeout` is longer.
        let late = |_| Fault::NoAnswer(format!("no answer in {call_timeout:?}"));
        timeout(call_timeout, exchange).await.map_err(late)?
    }

    /// Sends a request whose answer is a stream; it ends with the connection, and the connection with it.
    pub async fn stream(
        &self,
        path: &str,
        body: &Bytes,
        token: Option<&str>,
        connect_timeout: Duration,
        call_timeout: Duration,
    ) -> Result<Stream, Fault> {
        let sent = AtomicBool::new(false);
        let sending = self.send(path, body, token, connect_timeout, &sent);
        let opened = timeout(call_timeout, sending).await;
        let late = |_| Fault::NoAnswer(format!("no answer in {call_timeout:?}"));
        let (sender, response) = opened.map_err(late)??;
        Ok(Stream {
            status: response.status(),
            body: response.into_body(),
            _sender: sender,
        })
    }
}

/// An answer that goes on.
pub struct Stream {
    pub status: StatusCode,
    pub body: Incoming,
    _sender: Sender,
}

/// Sends on one connection; `sent` says whether any of the request may have left.
async fn send_on(
    sender: &mut Sender,
    request: Request<Full<Bytes>>,
    sent: &AtomicBool,
) -> Result<Response<Incoming>, Fault> {
    sent.store(true, Ordering::Relaxed);
    match sender.try_send_request(request).await {
        Ok(response) => Ok(response),
        Err(mut error) => {
            let came_back = error.take_message().is_some();
            sent.store(!came_back, Ordering::Relaxed);
            let why = error.into_error().to_string();
            Err(if came_back {
                Fault::NotSent(why)
            } else {
                Fault::NoAnswer(why)
            })
        }
    }
}

async fn shake_hands(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
) -> Result<Sender, String> {
    let shaken = http1::handshake(TokioIo::new(io)).await;
    let (sender, connection) = shaken.map_err(|why| why.to_string())?;
    // It ends with the last of its requests; they get the error if it fails.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_or_refused_with_the_reason() {
        let endpoint = Endpoint::new("http://[::1]:7", None).unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 7));
        assert_eq!(Endpoint::new("http://etcd.local", None).unwrap().port, 2379);
        for (url, why) in [
            ("127.0.0.1:2379", "neither http:// nor"),
            ("https://127.0.0.1:2379", "certificate authority"),
            ("http://127.0.0.1:2379/v3", "nothing may come behind"),
        ] {
            let said = Endpoint::new(url, None).err().unwrap();
            assert!(said.contains(why), "{url}: {said}");
        }
    }
}

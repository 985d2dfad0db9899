//! Asking a running daemon: one HTTP request over TCP or a Unix socket, one JSON answer.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use env::net::Address;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::api::Refusal;
use crate::config::ADMIN;

/// Where a daemon's admin API is: `127.0.0.1:10880`, `http://127.0.0.1:10880` or `unix:/path`.
#[derive(Debug, Clone, PartialEq)]
pub struct Target(pub Address);

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        let plain = text
            .strip_prefix("http://")
            .map_or(text, |rest| rest.trim_end_matches('/'));
        plain
            .parse()
            .map(Target)
            .map_err(|error: env::net::AddressError| error.to_string())
    }
}

impl Default for Target {
    fn default() -> Self {
        Target(ADMIN.parse().expect("a constant address"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a daemon gave no answer, or the wrong one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no daemon answers at {target} ({source}); start one with `tanada serve`, \
         or say where it is with --admin or TANADA_ADMIN"
    )]
    NoDaemon { target: Target, source: io::Error },
    #[error("what answers at {target} is no Tanada admin API: {why}")]
    Stranger { target: Target, why: String },
    #[error("{target} gave no answer within {seconds} s; look at the daemon's log")]
    TooSlow { target: Target, seconds: u64 },
    #[error("{0}")]
    Refused(Refusal),
}

/// How long to wait for an answer that needs no work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Talks to one daemon. Every request makes a connection of its own.
pub struct Client {
    target: Target,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    pub fn new(target: Target) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Client { target, runtime })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Lets time pass between two questions.
    pub fn wait(&self, span: Duration) {
        // The timer belongs to the runtime, so it is made inside.
        self.runtime
            .block_on(async { tokio::time::sleep(span).await });
    }

    /// Reads `path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.send(Method::GET, path, None, Some(PATIENCE))?;
        self.parse(&body)
    }

    /// Has the daemon do something; waits as long as it takes (a detach writes all dirty data).
    pub fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.stranger(error))?;
        let answer = self.send(method, path, Some(body), None)?;
        self.parse(&answer)
    }

    /// As [`Client::send_json`], where a refusal (status 409) says more than a sentence.
    pub fn send_or_refused<T: DeserializeOwned, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T, R>, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.stranger(error))?;
        let asked = self.exchange(method, path, Some(body));
        let (status, answer) = self.runtime.block_on(asked)?;
        match status {
            StatusCode::CONFLICT => Ok(Err(self.parse(&answer)?)),
            _ => Ok(Ok(self.parse(&self.accepted(status, answer, path)?)?)),
        }
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.stranger(error))
    }

    fn stranger(&self, why: impl fmt::Display) -> ClientError {
        ClientError::Stranger {
            target: self.target.clone(),
            why: why.to_string(),
        }
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>, ClientError> {
        let asked = self.exchange(method, path, body);
        let (status, body) = self.runtime.block_on(async {
            match patience {
                None => asked.await,
                Some(patience) => {
                    tokio::time::timeout(patience, asked)
                        .await
                        .unwrap_or_else(|_| {
                            Err(ClientError::TooSlow {
                                target: self.target.clone(),
                                seconds: patience.as_secs(),
                            })
                        })
                }
            }
        })?;
        self.accepted(status, body, path)
    }

    /// The body of an answer, if it is no refusal.
    fn accepted(
        &self,
        status: StatusCode,
        body: Vec<u8>,
        path: &str,
    ) -> Result<Vec<u8>, ClientError> {
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => Err(ClientError::Refused(refusal)),
            Err(_) => Err(self.stranger(format!("it answers {path} with {status}"))),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let no_daemon = |source| ClientError::NoDaemon {
            target: self.target.clone(),
            source,
        };
        let host = match &self.target.0 {
            Address::Tcp(socket) => socket.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| self.stranger(error))?;
        match &self.target.0 {
            Address::Tcp(socket) => {
                let stream = tokio::net::TcpStream::connect(socket).await;
                self.over(stream.map_err(no_daemon)?, request).await
            }
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await;
                self.over(stream.map_err(no_daemon)?, request).await
            }
        }
    }

    async fn over(
        &self,
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
                .await
                .map_err(|error| self.stranger(error))?;
        // The connection moves the bytes; it ends when `sender` is dropped.
        let moving = tokio::spawn(connection);
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body.to_vec()))
        }
        .await
        .map_err(|error| self.stranger(error));
        drop(sender);
        moving.abort();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_url_of_one() {
        let target = |text: &str| text.parse::<Target>().map(|target| target.to_string());
        assert_eq!(target("http://127.0.0.1:1/"), Ok("127.0.0.1:1".to_owned()));
        assert_eq!(target("unix:/a b"), Ok("unix:/a b".to_owned()));
        assert!(target("nowhere").unwrap_err().contains("127.0.0.1:10809"));
        assert_eq!(Target::default().to_string(), ADMIN);
    }
}

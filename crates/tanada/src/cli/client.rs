//! Asking a running daemon: one HTTP request over TCP or a Unix socket, one JSON answer.
//!
//! ```text
//! unix:/path   -> that socket, with the token of TANADA_TOKEN if that is set
//! 127.0.0.1:N  -> GET /v1/access -> the daemon's own Unix socket, if this user or root serves it and it lets this user in
//!                              \-> else TCP, with the token of TANADA_TOKEN or TANADA_ADMIN_TOKEN_FILE if one is set
//! tls:10.0.0.1:N -> the server is checked, the certificate of TANADA_IDENTITY shown (`client_tls`); then the same token
//! ```
//!
//! Always true: what a TCP listener says is trusted of a path only. A socket found that way is used if the
//! system says that this user or root serves it. On this machine the token goes to no port that another user
//! listens on. An answer that a daemon gives its owner alone is not taken from a listener that asked for no proof.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::token::Token;
use config::is_local;
use env::net::Address;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use report::terminal::{Usage, said};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use super::client_error::{ADMIN_HELP, ClientError, Target};
use super::client_tls;
use crate::api::access::{ACCOUNT_HEADER, Access};
use crate::api::refusal::Refusal;
use crate::daemon::common::secrets;

/// How long to wait for an answer that needs no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The token to show.
const TOKEN: &str = "TANADA_TOKEN";
/// For which account a user of several asks.
const ACCOUNT: &str = "TANADA_ACCOUNT";
/// Names the file with the token to show.
const TOKEN_FILE: &str = "TANADA_ADMIN_TOKEN_FILE";
/// The longest path of a Unix socket.
const SOCKET_PATH_MAX: usize = 107;

/// Talks to one daemon. Every request makes a connection of its own.
pub struct Client {
    target: Target,
    runtime: tokio::runtime::Runtime,
    /// The daemon's own socket behind a TCP target, once that was looked for.
    socket: OnceCell<Option<PathBuf>>,
    /// The token to show, where it is not the one of the environment.
    token_file: Option<PathBuf>,
}

impl Client {
    pub fn new(target: Target) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Client {
            target,
            runtime,
            socket: OnceCell::new(),
            token_file: None,
        })
    }

    /// Shows the token of this file, not the one that the environment names.
    pub fn with_token_file(mut self, file: Option<PathBuf>) -> Client {
        self.token_file = file;
        self
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

    /// What Ctrl-C sends, from now on: it ends the command no more.
    pub fn interrupts(&self) -> io::Result<Signal> {
        let _inside = self.runtime.enter();
        signal(SignalKind::interrupt())
    }

    /// Lets time pass, or less of it if Ctrl-C was pressed meanwhile or before; was it?
    pub fn wait_or_interrupted(&self, span: Duration, interrupts: &mut Signal) -> bool {
        let pressed = async { tokio::time::timeout(span, interrupts.recv()).await };
        self.runtime.block_on(pressed).is_ok()
    }

    /// Reads `path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.send(Method::GET, path, None, Some(ANSWER_TIMEOUT))?;
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

    /// Asks, and answers status and body as they come; [`Client::read`] makes sense of them.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        timeout: Duration,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| self.stranger(error))?;
        self.within(Some(timeout), self.exchange(method, path, body))
    }

    /// What `path` answered, if it is no refusal.
    pub fn read<T: DeserializeOwned>(
        &self,
        (status, body): (StatusCode, Vec<u8>),
        path: &str,
    ) -> Result<T, ClientError> {
        self.parse(&self.accepted(status, body, path)?)
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

    /// What a refusal says that is more than a sentence.
    pub fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
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
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ClientError> {
        let (status, body) = self.within(timeout, self.exchange(method, path, body))?;
        self.accepted(status, body, path)
    }

    /// Waits for an answer, for so long at most.
    fn within<T>(
        &self,
        timeout: Option<Duration>,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        self.runtime.block_on(async {
            match timeout {
                None => asked.await,
                Some(timeout) => tokio::time::timeout(timeout, asked)
                    .await
                    .unwrap_or_else(|_| {
                        Err(ClientError::TooSlow {
                            target: self.target.clone(),
                            seconds: timeout.as_secs(),
                        })
                    }),
            }
        })
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
            Ok(refusal) => Err(ClientError::Refused { status, refusal }),
            Err(_) => Err(self.stranger(format!("it answers {path} with {status}"))),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let socket = match &self.target.0 {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => self.own_socket().await,
            Address::Tls(_) => None,
        };
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(account) = variable(ACCOUNT)? {
            request = request.header(ACCOUNT_HEADER, account);
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        match (&self.target.0, socket) {
            (_, Some(path)) => {
                let stream = connect(&path).await;
                let stream = stream.map_err(|error| self.cannot_reach(&path, error))?;
                // It asks for its account, also where the socket would know the user.
                if let Some(token) = own_token()? {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                let request = request.header("host", "localhost").body(body);
                let request = request.map_err(|error| self.stranger(error))?;
                self.over(stream, request).await
            }
            (Address::Tcp(address), None) => {
                let token = token(self.token_file.as_deref())?;
                if let Some(token) = &token {
                    self.may_show_token(address)?;
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                let request = request.header("host", address.to_string()).body(body);
                let request = request.map_err(|error| self.stranger(error))?;
                let is_open = is_readable(request.method(), request.uri().path());
                let stream = self.connect_tcp().await?;
                let (status, answer) = self.over(stream, request).await?;
                if token.is_none() && !is_open && status.is_success() {
                    let why = "it grants without a token what a daemon grants its owner alone";
                    return Err(self.stranger(why));
                }
                Ok((status, answer))
            }
            (Address::Tls(address), None) => {
                let request = request.header("host", address.to_string());
                self.in_tls(request, body).await
            }
            (Address::Unix(_), None) => unreachable!("such a target is a socket"),
        }
    }

    /// Asks a server that speaks TLS, once it was checked.
    async fn in_tls(
        &self,
        mut request: Builder,
        body: Full<Bytes>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let stream = client_tls::connect(&self.target).await?;
        // No other user of this machine gets it: the server has its certificate.
        if let Some(token) = token(self.token_file.as_deref())? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body).map_err(|error| self.stranger(error))?;
        self.over(stream, request).await
    }

    /// On this machine no token goes to a port that another user listens on.
    fn may_show_token(&self, address: &SocketAddr) -> Result<(), ClientError> {
        if !is_local(&self.target.0) {
            return Ok(());
        }
        let me = rustix::process::geteuid().as_raw();
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let tables = tables.map(|table| std::fs::read_to_string(table).unwrap_or_default());
        // A port without a listener is passed on by the kernel, for example into a container.
        let users = tables
            .iter()
            .flat_map(|table| listeners(table, address.port()));
        match users.into_iter().find(|user| !is_trusted(*user, me)) {
            Some(user) => Err(ClientError::OthersListen {
                target: self.target.clone(),
                user,
            }),
            None => Ok(()),
        }
    }

    async fn connect_tcp(&self) -> Result<tokio::net::TcpStream, ClientError> {
        let Address::Tcp(address) = &self.target.0 else {
            unreachable!("asked of TCP targets only");
        };
        let stream = tokio::net::TcpStream::connect(address).await;
        stream.map_err(|source| ClientError::NoDaemon {
            target: self.target.clone(),
            source,
        })
    }

    /// The Unix socket of the daemon behind a TCP target on this machine, where this user may command it.
    async fn own_socket(&self) -> Option<PathBuf> {
        if let Some(known) = self.socket.get() {
            return known.clone();
        }
        let found = match is_local(&self.target.0) {
            true => self.find_socket().await,
            false => None,
        };
        self.socket.get_or_init(|| found).clone()
    }

    async fn find_socket(&self) -> Option<PathBuf> {
        let request = Request::get("/v1/access").header("host", self.target.to_string());
        let request = request.body(Full::default()).ok()?;
        let stream = self.connect_tcp().await.ok()?;
        let (_, answer) = self.over(stream, request).await.ok()?;
        let access: Access = serde_json::from_slice(&answer).ok()?;
        let me = rustix::process::geteuid().as_raw();
        let is_owner = access.owner_user == me || me == 0;
        if !is_owner && std::env::var_os(TOKEN_FILE).is_some() {
            // The token of the data directory opens more than this user may at the socket.
            return None;
        }
        for path in access.sockets.into_iter().map(PathBuf::from) {
            let Ok(stream) = connect(&path).await else {
                continue;
            };
            // Any user can listen on the port and name any socket: the process that serves it counts.
            if stream.peer_cred().is_ok_and(|it| is_trusted(it.uid(), me)) {
                return Some(path);
            }
        }
        None
    }

    fn cannot_reach(&self, path: &Path, source: io::Error) -> ClientError {
        use std::os::unix::fs::MetadataExt;
        let target = self.target.clone();
        match (source.kind(), std::fs::metadata(path)) {
            (io::ErrorKind::PermissionDenied, Ok(meta)) => ClientError::NotOurs {
                target,
                owner: meta.uid(),
            },
            _ => ClientError::NoDaemon { target, source },
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

/// May a socket that a TCP listener named be used by `me` if `server` listens there?
fn is_trusted(server: u32, me: u32) -> bool {
    server == me || server == 0
}

/// Does a daemon answer this over TCP without a token?
fn is_readable(method: &Method, path: &str) -> bool {
    method == Method::GET && crate::api::access::is_readable(path)
}

/// The users who listen on TCP `port`, of a table as in `/proc/net/tcp`.
fn listeners(table: &str, port: u16) -> Vec<u32> {
    const LISTEN: &str = "0A";
    let user = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
        let (_, at) = local.rsplit_once(':')?;
        let is_it = u16::from_str_radix(at, 16) == Ok(port) && state == LISTEN;
        // Between the state and the user: queues, timer, retransmissions.
        is_it.then(|| words.nth(3)?.parse().ok()).flatten()
    };
    table.lines().filter_map(user).collect()
}

/// Connects to a Unix socket, also where its path is longer than the system takes.
async fn connect(path: &Path) -> io::Result<tokio::net::UnixStream> {
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return tokio::net::UnixStream::connect(path).await;
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = std::fs::File::open(folder)?;
    let short = format!("/proc/self/fd/{}", folder.as_raw_fd());
    tokio::net::UnixStream::connect(Path::new(&short).join(name)).await
}

/// A variable of the environment, where it is set.
fn variable(name: &str) -> Result<Option<String>, ClientError> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string().ok();
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let wrong = || ClientError::Token(format!("{name} holds what a header cannot; set it anew"));
    text.map(Some).ok_or_else(wrong)
}

/// The token of an account, where one was set.
fn own_token() -> Result<Option<String>, ClientError> {
    let Some(token) = variable(TOKEN)? else {
        return Ok(None);
    };
    match Token::parse(&token) {
        Ok(_) => Ok(Some(token)),
        Err(error) => Err(ClientError::Token(format!("{TOKEN}: {error}"))),
    }
}

/// The token to show: that of `file`, else over TCP where one was set, that of an account, or of the daemon's data
/// directory.
fn token(file: Option<&Path>) -> Result<Option<String>, ClientError> {
    if file.is_none()
        && let Some(token) = own_token()?
    {
        return Ok(Some(token));
    }
    let named = std::env::var_os(TOKEN_FILE).filter(|file| !file.is_empty());
    let Some(file) = file.map(Path::to_owned).or(named.map(PathBuf::from)) else {
        return Ok(None);
    };
    let path = &*file;
    let said = |error| ClientError::Token(format!("{TOKEN_FILE}: {}", said::words(&error)));
    let text = secrets::read_private(path, "the token").map_err(said)?;
    let text = String::from_utf8(text).unwrap_or_default();
    if Token::parse(text.trim_end()).is_ok() {
        return Ok(Some(text.trim_end().to_owned()));
    }
    let key = secrets::read(path).map_err(said)?;
    Ok(Some(secrets::to_hex(&key)))
}

/// The API's path of a volume. What cannot be a name is refused before it becomes a strange URL.
pub fn path(name: &str, rest: &str) -> Result<String, Usage> {
    config::check_name(name).map_err(Usage)?;
    Ok(format!("/v1/volumes/{name}{rest}"))
}

#[cfg(test)]
mod tests {
    use config::WEB;

    use super::*;

    #[test]
    fn a_socket_that_a_port_names_is_used_only_if_this_user_or_root_serves_it() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000));
        // Another user's daemon is not what root meant by a port.
        assert!(!is_trusted(1000, 0));
    }

    #[test]
    fn a_table_of_sockets_says_which_users_listen_on_a_port() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2A80 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 7 1 0 100 0 0 10 0
   1: 0100007F:2A80 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1002        0 8 1 0 20 4 30 10 -1
   2: 0100007F:2A81 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9 1 0 100 0 0 10 0
";
        assert_eq!(listeners(table, 10880), [1001]);
        assert_eq!(listeners(table, 10881), [0]);
        assert_eq!(listeners(table, 1), [0; 0]);
    }

    #[test]
    fn without_a_token_a_listener_grants_what_is_readable_and_nothing_else() {
        assert!(is_readable(&Method::GET, "/v1/status"));
        assert!(is_readable(&Method::GET, "/v1/volumes/vol0"));
        assert!(!is_readable(&Method::GET, "/v1/reservations"));
        assert!(!is_readable(&Method::PATCH, "/v1/volumes/vol0"));
    }

    #[test]
    fn a_target_is_an_address_or_a_url_of_one() {
        let target = |text: &str| text.parse::<Target>().map(|target| target.to_string());
        assert_eq!(target("http://127.0.0.1:1/"), Ok("127.0.0.1:1".to_owned()));
        assert_eq!(target("unix:/a b"), Ok("unix:/a b".to_owned()));
        for tls in [
            "tls:10.0.0.1:5",
            "https://10.0.0.1:5",
            "https://10.0.0.1:5/",
        ] {
            assert_eq!(target(tls), Ok("tls:10.0.0.1:5".to_owned()));
        }
        assert!(target("nowhere").unwrap_err().contains("127.0.0.1:10809"));
        // No daemon runs in this folder.
        let usual = Target::default().to_string();
        assert!([WEB, "unix:/run/tanada/admin.sock"].contains(&usual.as_str()));
    }
}

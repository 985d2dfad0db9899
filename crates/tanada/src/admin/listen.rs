//! The sockets of the admin API: who comes in, how many at once, and how long may a request take to arrive?
//!
//! ```text
//! listener -> a slot free? -> one task: HTTP/1.1, each request marked with its entrance -> router
//!                \-> else closed at once
//! ```
//!
//! Always true:
//! 1. TCP and Unix connections have slots of their own: readers never keep the owner out.
//! 2. A connection that does not bring a whole header in [`HEADER_PATIENCE`] is closed.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::{Extension, Router};
use base::Map;
use env::net::Address;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access::Entrance;
use crate::serve::plain;

/// How long a connection may take to bring the header of its next request.
const HEADER_PATIENCE: Duration = Duration::from_secs(15);
/// Connections at once of one listener.
pub const CONNECTIONS_MAX: usize = 128;
/// Of these, from one address.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 64;
/// Until the next try where none could be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// A socket of the admin API.
pub struct Door {
    pub address: Address,
    listener: Listener,
}

enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        _file: SocketFile,
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

impl Door {
    /// Listens at `address`.
    ///
    /// # Errors
    /// What stands in the way, and what to do.
    pub async fn open(address: &Address) -> anyhow::Result<Door> {
        crate::socket_folder::make(address)?;
        match address {
            Address::Tcp(socket) => {
                let listener = TcpListener::bind(socket).await.map_err(|error| {
                    anyhow!(
                        "cannot listen on {address} for the admin API: {}; another program has it, \
                         perhaps another `tanada serve`: end it, or write another address in \
                         [admin] listen",
                        plain(&error)
                    )
                })?;
                // Port 0 asks for any free one; the answer says which.
                let address = Address::Tcp(listener.local_addr()?);
                Ok(Door {
                    address,
                    listener: Listener::Tcp(listener),
                })
            }
            Address::Unix(path) => {
                remove_stale(path).await?;
                let listener = UnixListener::bind(path).map_err(|error| {
                    anyhow!(
                        "cannot listen on {address} for the admin API: {}; is its directory there \
                         and yours?",
                        plain(&error)
                    )
                })?;
                let file = SocketFile(path.clone());
                // Until here the peers' credentials alone keep others out.
                env::net::give_socket_mode(path, 0o600)?;
                Ok(Door {
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
                Ok((stream, entrance, from)) => {
                    let Some(slot) = slots.take(from) else {
                        tracing::warn!(address = %self.address, "too many admin connections: one more was closed");
                        continue;
                    };
                    let router = router.clone().layer(Extension(entrance));
                    let closed = closed.clone();
                    open.spawn(async move {
                        match stream {
                            Stream::Tcp(stream) => answer(stream, router, closed).await,
                            Stream::Unix(stream) => answer(stream, router, closed).await,
                        }
                        drop(slot);
                    });
                }
            }
        }
        while open.join_next().await.is_some() {}
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Stream, Entrance, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Entrance::Tcp, Some(from.ip())))
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((Stream::Unix(stream), Entrance::Unix(user), None))
            }
        }
    }
}

/// Waits for the end.
async fn until(closed: &mut watch::Receiver<bool>) {
    // An error means the sender is gone, which is the end as well.
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Answers the requests of one connection.
async fn answer(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let done = tokio::select! {
        done = connection.as_mut() => done,
        () = until(&mut closed) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!("an admin connection ended: {error}");
    }
}

/// How many connections of one listener are open, from where.
#[derive(Clone, Default)]
struct Slots(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: Map<IpAddr, usize>,
}

/// One open connection.
struct Slot {
    of: Slots,
    from: Option<IpAddr>,
}

impl Slots {
    /// A slot, if there is one for this address; Unix sockets have none.
    fn take(&self, from: Option<IpAddr>) -> Option<Slot> {
        let mut taken = self.0.lock().ok()?;
        let mine = from.and_then(|from| taken.by_address.get(&from).copied());
        if taken.all >= CONNECTIONS_MAX || mine.unwrap_or(0) >= CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        taken.all += 1;
        if let Some(from) = from {
            *taken.by_address.entry(from).or_default() += 1;
        }
        Some(Slot {
            of: self.clone(),
            from,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Ok(mut taken) = self.of.0.lock() else {
            return;
        };
        taken.all -= 1;
        if let Some(from) = self.from
            && let Some(count) = taken.by_address.get_mut(&from)
        {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&from);
            }
        }
    }
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
    use super::*;

    #[test]
    fn one_address_never_takes_every_slot_and_what_ends_makes_room() {
        let slots = Slots::default();
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut held: Vec<Slot> = Vec::new();
        while let Some(slot) = slots.take(Some(one)) {
            held.push(slot);
        }
        assert_eq!(held.len(), CONNECTIONS_PER_ADDRESS_MAX);
        let mut others: Vec<Slot> = Vec::new();
        while let Some(slot) = slots.take(Some(other)) {
            others.push(slot);
        }
        assert_eq!(held.len() + others.len(), CONNECTIONS_MAX);
        drop(held.pop());
        assert!(slots.take(Some(one)).is_some());
        drop((held, others));
        let taken = slots.0.lock().unwrap();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }
}

//! Listening sockets that outlive the process: a service manager keeps them and hands them to the next one.
//!
//! ```text
//! start: sockets of the service manager -> begin -> take, where a listener of their address is bound
//! a socket that is bound anew -> opened -> the service manager keeps it; closed -> it lets it go
//! ```
//!
//! Clients that come between two processes wait in the socket's queue, and the next process serves them.
//!
//! Always true: without [`begin`] nothing here does anything, as in a simulation.

#![allow(unsafe_code)] // A descriptor that comes as a number becomes an owned one.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::{SocketAddrAny, SocketAddrUnix};

use super::Address;

/// Keeps a socket under a name; `None`: the one of this name is no longer wanted.
type Keep = Box<dyn Fn(&str, Option<BorrowedFd<'_>>) + Send + Sync>;

/// What is handed over, and who keeps more.
struct Inherited {
    /// Taken by no listener yet.
    sockets: Mutex<Vec<OwnedFd>>,
    keep: Keep,
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// From now on listeners take `sockets` over, which listen already, and those that are bound anew go to `keep` by a name
/// made of their address; those that are closed while the process goes on, as a name alone. Once in a process, before the
/// first listener.
pub fn begin(
    sockets: impl IntoIterator<Item = RawFd>,
    keep: impl Fn(&str, Option<BorrowedFd<'_>>) + Send + Sync + 'static,
) {
    let sockets = sockets.into_iter().map(owned);
    let inherited = Inherited {
        sockets: Mutex::new(sockets.collect()),
        keep: Box::new(keep),
    };
    assert!(INHERITED.set(inherited).is_ok(), "begun twice");
}

/// A descriptor that the service manager left to this process, which no other code knows.
fn owned(socket: RawFd) -> OwnedFd {
    // SAFETY: it is open, and `begin`, which alone is given it, runs once.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// Do the listening sockets outlive this process? Then the files of Unix sockets stay.
pub fn is_begun() -> bool {
    INHERITED.get().is_some()
}

/// The socket that listens at `address` already, if one was handed over.
pub fn take(address: &Address) -> Option<OwnedFd> {
    let mut sockets = INHERITED
        .get()?
        .sockets
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let place = sockets.iter().position(|it| listens_at(it, address))?;
    Some(sockets.swap_remove(place))
}

/// A socket listens at `address` from now on.
pub fn opened(address: &Address, socket: BorrowedFd<'_>) {
    if let Some(inherited) = INHERITED.get() {
        (inherited.keep)(&name_of(address), Some(socket));
    }
}

/// No socket listens at `address` any more, and the next process is not to: a Unix socket's file goes, too.
pub fn closed(address: &Address) {
    if let Some(inherited) = INHERITED.get() {
        (inherited.keep)(&name_of(address), None);
        if let Address::Unix(path) = address {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where the sockets listened that no listener took: they are closed. To be called when all listeners are there.
pub fn close_rest() -> Vec<String> {
    let Some(inherited) = INHERITED.get() else {
        return Vec::new();
    };
    let mut sockets = inherited
        .sockets
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let rest = std::mem::take(&mut *sockets);
    rest.iter()
        .filter_map(|it| address_of(it.as_fd()))
        .map(|it| name_of(&it))
        .collect()
}

/// The name by which a service manager keeps the socket of an address: no colon, which it uses between names.
fn name_of(address: &Address) -> String {
    let name = match address {
        // TLS is spoken on the same kind of socket.
        Address::Tcp(at) | Address::Tls(at) => format!("tcp-{at}"),
        Address::Unix(path) => format!("unix-{}", path.display()),
    };
    let clean = |of: char| match of {
        ':' => '+',
        of if of.is_ascii_graphic() => of,
        _ => '_',
    };
    name.chars().map(clean).take(255).collect()
}

fn listens_at(socket: &OwnedFd, address: &Address) -> bool {
    match (address_of(socket.as_fd()), address) {
        (Some(Address::Tcp(known)), Address::Tcp(at) | Address::Tls(at)) => known == *at,
        // Without its file no client finds it.
        (Some(Address::Unix(known)), Address::Unix(path)) => {
            is_same(&known, path) && is_socket(path)
        }
        _ => false,
    }
}

/// One of them may be given from the current folder on.
fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::path::absolute(path).ok();
    one == other || whole(one).is_some_and(|one| whole(other) == Some(one))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket())
}

fn address_of(socket: BorrowedFd<'_>) -> Option<Address> {
    let name: SocketAddrAny = rustix::net::getsockname(socket).ok()?;
    if let Ok(at) = SocketAddr::try_from(name.clone()) {
        return Some(Address::Tcp(at));
    }
    let unix = SocketAddrUnix::try_from(name).ok()?;
    let path = std::ffi::OsStr::from_bytes(unix.path_bytes()?);
    Some(Address::Unix(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_colon_and_is_the_same_with_tls() {
        let name = |text: &str| name_of(&text.parse().unwrap());
        assert_eq!(name("127.0.0.1:10809"), "tcp-127.0.0.1+10809");
        assert_eq!(name("tls:127.0.0.1:10809"), "tcp-127.0.0.1+10809");
        assert_eq!(name("unix:/run/a:b.sock"), "unix-/run/a+b.sock");
        assert!(name("[::1]:1").chars().all(|of| of != ':'));
    }

    #[test]
    fn a_socket_listens_at_its_own_address_while_its_file_is_there() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let tcp = OwnedFd::from(tcp);
        let at = |text: String| text.parse::<Address>().unwrap();
        assert!(listens_at(&tcp, &at(format!("127.0.0.1:{port}"))));
        assert!(listens_at(&tcp, &at(format!("tls:127.0.0.1:{port}"))));
        assert!(!listens_at(&tcp, &at("127.0.0.1:1".to_owned())));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let unix = OwnedFd::from(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = at(format!("unix:{}", path.display()));
        assert!(listens_at(&unix, &address));
        assert!(!listens_at(
            &unix,
            &at(format!("unix:{}/b.sock", dir.path().display()))
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(!listens_at(&unix, &address), "no client finds it");
    }
}

//! Who takes connections at an address?
//!
//! Always true: only the file of a Unix socket on which no process listens is replaced, and only our own is removed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use super::super::common::inherited;
use super::super::common::{Address, Origin};
use super::peer::watch_peer;
use super::socket::{FLAGS, family, local_address, ready};
use super::stream::Stream;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

pub(crate) struct Listener {
    socket: Rc<OwnedFd>,
    /// The file of a Unix socket, by path, device and inode: only our own is removed.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listener {
    pub(crate) fn bind(address: &Address, mode: u32) -> io::Result<(Listener, Address)> {
        if let Some(socket) = inherited::take(address) {
            rustix::io::ioctl_fionbio(&socket, true)?;
            give_inherited_mode(address, mode)?;
            let listener = Listener {
                socket: Rc::new(socket),
                file: None,
            };
            return Ok((listener, address.clone()));
        }
        let (listener, address) = match address {
            Address::Tcp(at) | Address::Tls(at) => Listener::bind_tcp(address, at)?,
            Address::Unix(path) => Listener::bind_unix(address, path, mode)?,
        };
        inherited::opened(&address, listener.socket.as_fd());
        Ok((listener, address))
    }

    fn bind_tcp(address: &Address, at: &SocketAddr) -> io::Result<(Listener, Address)> {
        let socket = rustix::net::socket_with(family(at), SocketType::STREAM, FLAGS, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, at).map_err(|errno| refused(address, errno))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| refused(address, errno))?;
        let bound = local_address(&socket)?;
        let address = match address.is_tls() {
            true => Address::Tls(bound),
            false => Address::Tcp(bound),
        };
        let socket = Rc::new(socket);
        Ok((Listener { socket, file: None }, address))
    }

    fn bind_unix(address: &Address, path: &Path, mode: u32) -> io::Result<(Listener, Address)> {
        let name = SocketAddrUnix::new(path)?;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        // The file takes over the socket's own mode, so it is never open wider than asked for.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode))?;
        match rustix::net::bind(&socket, &name) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &name)?;
                rustix::net::bind(&socket, &name)
            }
            answer => answer,
        }
        .map_err(|errno| refused(address, errno))?;
        // What the umask took away is given back.
        give_socket_mode(path, mode)?;
        let status = std::fs::symlink_metadata(path)?;
        let listener = Listener {
            socket: Rc::new(socket),
            // A socket that outlives the process is found by its file.
            file: (!inherited::is_begun()).then(|| (path.to_owned(), status.dev(), status.ino())),
        };
        rustix::net::listen(&*listener.socket, BACKLOG)?;
        Ok((listener, address.clone()))
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        loop {
            match rustix::net::acceptfrom_with(&*self.socket, FLAGS) {
                Ok((socket, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let (peer, origin) = match from {
                        Some(from) => {
                            watch_peer(socket.as_fd())?;
                            let host = Origin::of(from.ip());
                            (from.to_string(), host)
                        }
                        None => unix_peer(&socket),
                    };
                    return Stream::new(socket, from.is_some(), peer, origin);
                }
                // The client gave up before we came, or a signal came between.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(Errno::AGAIN) => ready(&self.socket, PollFlags::IN).await?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Who is at the other end of a Unix socket.
fn unix_peer(socket: &OwnedFd) -> (String, Origin) {
    match sockopt::socket_peercred(socket) {
        Ok(who) => {
            let (process, user) = (who.pid.as_raw_nonzero(), who.uid.as_raw());
            let peer = format!("unix client, process {process}, user {user}");
            (peer, Origin::User(user))
        }
        Err(_) => ("unix client".to_owned(), Origin::Unknown),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file {
            let ours = std::fs::symlink_metadata(path)
                .is_ok_and(|status| (status.dev(), status.ino()) == (*device, *inode));
            if ours {
                // Gone already, or the folder is closed to us now: nothing more to do.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn refused(address: &Address, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("listening at {address}: {error}"))
}

/// Sets the mode of the Unix socket at `path`, which this process has bound.
///
/// A folder's owner can put a link in the socket's place at any moment, so the link is not followed.
///
/// # Errors
/// If what is there is no socket of this user's, or the system refuses.
pub fn give_socket_mode(path: &Path, mode: u32) -> io::Result<()> {
    use rustix::fs::{FileType, OFlags};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let status = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
    if !is_socket || status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "{} was replaced while the socket was made; use a folder that only this user can change",
            path.display()
        )));
    }
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(itself, rustix::fs::Mode::from_raw_mode(mode))?;
    Ok(())
}

/// Gives the file of an inherited Unix socket the permissions of now, if it is this user's: one that the service manager
/// made keeps its own.
///
/// # Errors
/// The system's.
pub fn give_inherited_mode(address: &Address, mode: u32) -> io::Result<()> {
    let Address::Unix(path) = address else {
        return Ok(());
    };
    let me = rustix::process::geteuid().as_raw();
    match std::fs::symlink_metadata(path)?.uid() == me {
        true => give_socket_mode(path, mode),
        false => Ok(()),
    }
}

/// Removes the file of a Unix socket on which no process listens.
fn remove_stale(path: &Path, name: &SocketAddrUnix) -> io::Result<()> {
    let in_use = |why: &str| {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("listening at unix:{}: {why}", path.display()),
        )
    };
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use(
            "there is a file of this name that is no socket; choose another path or remove it",
        ));
    }
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    match rustix::net::connect(&probe, name) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // It answers, or its backlog is full: alive.
        _ => Err(in_use(
            "another process listens there; stop it or choose another path",
        )),
    }
}

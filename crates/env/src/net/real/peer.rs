//! Who is at the other end: the groups of a process, and is a host still there?
//!
//! The kernel noted the groups when that process connected: what it gave up or took since does not count.

#![allow(unsafe_code)] // getsockopt(2) fills memory that is this function's own.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt;

/// A TCP peer that says nothing for so long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which it is gone.
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes sent that the peer does not acknowledge for so long end the connection: as long as all questions take.
const USER_TIMEOUT_MS: u32 = 60_000;

/// Linux has no limit lower than this for the groups of a process.
const GROUPS_MAX: usize = 65_536;

/// The supplementary groups of the process that connected, by number (`SO_PEERGROUPS`, Linux 4.13).
///
/// Its own group is not among them unless it is a supplementary one, too.
///
/// # Errors
/// The system's: the socket is no connected Unix socket, or the kernel does not say.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let bytes = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: `groups` has `length` bytes, is ours, and holds numbers, for which all bytes are good. The kernel writes
        // no more than `length` bytes, and `length` how many it wrote or would have.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let many = length as usize / size_of::<libc::gid_t>();
        if done == 0 {
            groups.truncate(many);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        let too_small = error.raw_os_error() == Some(libc::ERANGE);
        if !too_small || many <= groups.len() || many > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(many, 0);
    }
}

/// Has the system notice within a minute that the peer of a TCP connection is gone without a word: its host lost power, or the way to
/// it is cut.
///
/// # Errors
/// The system takes none of it, as of a socket that is no TCP connection.
pub fn watch_peer(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_groups_of_a_peer_are_those_it_connected_with() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        let mut found = peer_groups(one.as_fd()).unwrap();
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_groups(file.as_fd()).is_err());
    }
}

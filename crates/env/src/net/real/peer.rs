//! In which groups is the process at the other end of a Unix socket?
//!
//! The kernel noted them when that process connected: what it gave up or took since does not count.

#![allow(unsafe_code)] // getsockopt(2) fills memory that is this function's own.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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

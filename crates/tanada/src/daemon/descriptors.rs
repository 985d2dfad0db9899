//! How many files and connections may the daemon have open at once?
//!
//! ```text
//! the system's limit -> a reserve for devices, stores, etcd, logs -> the admin API -> the rest, shared by all servers
//! ```
//!
//! Always true: as long as each server keeps to its share, opening a file or reaching another node never fails because
//! clients hold every descriptor.

use config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::http::slots::CONNECTIONS_MAX as ADMIN_CONNECTIONS_MAX;

/// The least that is kept for everything but connections.
const RESERVE_MIN: u64 = 128;
/// No server takes more connections.
const CONNECTIONS_MAX: u64 = 1024;
/// A server that could take fewer would be of no use.
const CONNECTIONS_MIN: u64 = 8;

/// Raises the process's own limit of descriptors as far as the system lets it; the limit from now on.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            limit.current
        }
    };
    now.unwrap_or(u64::MAX)
}

/// How many connections each server of `config` takes where `limit` descriptors may be open.
pub fn connections(limit: u64, config: &Config) -> usize {
    let mut addresses: Vec<_> = config.exports.iter().flat_map(|it| &it.nbd).collect();
    addresses.extend(config.cluster.iter().flat_map(|it| &it.nbd));
    let mut servers = config.stores.len();
    let mut known = Vec::new();
    for address in addresses {
        if !known.contains(&address) {
            known.push(address);
            servers += 1;
        }
    }
    let admin = config.admin.addresses().count();
    let share = share(limit, servers as u64, admin as u64);
    if share < CONNECTIONS_MAX {
        tracing::warn!(
            limit,
            connections = share,
            "few files may be open at once, so each server takes fewer connections; raise the hard limit (LimitNOFILE= in a \
             service file, `ulimit -Hn` in a shell)"
        );
    }
    share as usize
}

fn share(limit: u64, servers: u64, admin_listeners: u64) -> u64 {
    let reserve = (limit / 4).max(RESERVE_MIN);
    let admin = admin_listeners * ADMIN_CONNECTIONS_MAX as u64;
    let rest = limit.saturating_sub(reserve.saturating_add(admin));
    (rest / servers.max(1)).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_together_leave_the_reserve() {
        for limit in [512, 1024, 4096, 65_536, 1 << 20, u64::MAX] {
            for servers in [1, 2, 5] {
                let connections = share(limit, servers, 2);
                let admin = 2 * ADMIN_CONNECTIONS_MAX as u64;
                let used = servers * connections + admin;
                assert!(used + RESERVE_MIN <= limit, "{limit} {servers}: {used}");
                assert!(connections <= CONNECTIONS_MAX);
            }
        }
        assert_eq!(share(65_536, 3, 2), CONNECTIONS_MAX);
        assert_eq!(share(64, 3, 2), CONNECTIONS_MIN);
        assert_eq!(share(1024, 1, 2), 1024 - 256 - 256);
    }

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let limit = raise();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current, now.maximum);
        assert_eq!(now.current.unwrap_or(u64::MAX), limit);
    }
}

//! `[admin]`: where status, metrics and commands are served.

use std::path::Path;

use env::net::Address;

use super::keys::Keys;
use super::types::AdminConfig;
use super::values::{is_local, read_mode, valid_name, without_tls};

/// Where the admin API is unless configured.
pub const ADMIN: &str = "127.0.0.1:10880";
/// Permissions of its Unix sockets unless configured: the daemon's user alone connects.
const SOCKET_MODE: u32 = 0o600;

/// Reads it; without it the usual one.
pub(super) fn read_admin(root: &mut Keys<'_, '_>, data_dir: &Path) -> AdminConfig {
    let usual = || with_socket(vec![ADMIN.parse().expect("a constant address")], data_dir);
    let Some(mut keys) = root.table("admin") else {
        return AdminConfig {
            listen: usual(),
            allow_remote: false,
            hosts: Vec::new(),
            socket_mode: SOCKET_MODE,
        };
    };
    let listen = keys.parse_list("listen", without_tls);
    let allow_remote = keys.is_on("allow_remote");
    let hosts = keys.parse_list("hosts", valid_name);
    let socket_mode = keys.parse("socket_mode", read_mode);
    if let Some(listen) = &listen
        && !allow_remote
    {
        for address in listen.value.iter().filter(|address| !is_local(address)) {
            let what = format!(
                "{address} can be reached from other machines, which read status and metrics there, and command \
                 with the token in the clear; listen on 127.0.0.1 or a Unix socket, or add allow_remote = true"
            );
            keys.complain_at(listen.at, "listen", what);
        }
    }
    keys.finish();
    AdminConfig {
        listen: listen.map_or_else(usual, |at| with_socket(at.value, data_dir)),
        allow_remote,
        hosts: hosts.map_or_else(Vec::new, |at| at.value),
        socket_mode: socket_mode.map_or(SOCKET_MODE, |at| at.value),
    }
}

/// With a Unix socket among them: there the owner's commands are taken.
fn with_socket(mut listen: Vec<Address>, data_dir: &Path) -> Vec<Address> {
    if listen.iter().all(|it| matches!(it, Address::Tcp(_))) {
        let socket = data_dir.join("admin.sock");
        // A path too long for a socket is no reason to refuse a configuration that asked for none.
        listen.extend(format!("unix:{}", socket.display()).parse::<Address>());
    }
    listen
}

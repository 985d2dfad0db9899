//! `[admin]`: where status, metrics and commands are served.

use std::path::Path;

use env::net::Address;

use super::keys::Keys;
use super::types::AdminConfig;
use super::values::{is_local, read_mode, valid_name};

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
            hosts: Vec::new(),
            socket_mode: SOCKET_MODE,
        };
    };
    let listen = keys.parse_list("listen", str::parse::<Address>);
    if let Some(gone) = keys.take::<bool>("allow_remote") {
        let what = "is gone: other machines reach the admin API in TLS alone; leave it out, and write such as listen = \
                    \"tls:10.0.0.1:10880\" (docs/certificates.md)";
        keys.complain_at(gone.at, "allow_remote", what);
    }
    let hosts = keys.parse_list("hosts", valid_name);
    let socket_mode = keys.parse("socket_mode", read_mode);
    if let Some(listen) = &listen {
        let in_the_clear = |it: &&Address| !it.is_tls() && !is_local(it);
        for address in listen.value.iter().filter(in_the_clear) {
            let what = format!(
                "{address} can be reached from other machines, and tokens would cross the network in the clear; write \
                 \"tls:{address}\", for which the node needs a certificate (docs/certificates.md), or listen on 127.0.0.1 or \
                 a Unix socket"
            );
            keys.complain_at(listen.at, "listen", what);
        }
    }
    keys.finish();
    AdminConfig {
        listen: listen.map_or_else(usual, |at| with_socket(at.value, data_dir)),
        hosts: hosts.map_or_else(Vec::new, |at| at.value),
        socket_mode: socket_mode.map_or(SOCKET_MODE, |at| at.value),
    }
}

/// With a Unix socket among them: there the owner's commands are taken.
fn with_socket(mut listen: Vec<Address>, data_dir: &Path) -> Vec<Address> {
    if listen.iter().all(|it| it.socket().is_some()) {
        let socket = data_dir.join("admin.sock");
        // A path too long for a socket is no reason to refuse a configuration that asked for none.
        listen.extend(format!("unix:{}", socket.display()).parse::<Address>());
    }
    listen
}

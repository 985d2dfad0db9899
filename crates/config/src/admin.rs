//! `[admin]` and `[web]`: where commands are taken, and where status, metrics and the dashboard are seen.
//!
//! Always true: in the clear it listens on this machine alone.

use std::path::Path;

use env::net::Address;

use super::keys::{At, Keys};
use super::types::AdminConfig;
use super::values::{any_port, is_local, read_mode, valid_name};

/// Where browsers and Prometheus come unless configured.
pub const WEB: &str = "127.0.0.1:10880";
/// Permissions of its Unix sockets unless configured: the daemon's user alone connects.
const SOCKET_MODE: u32 = 0o600;

/// Reads both; without them the usual ones. `socket`: where commands are taken unless a Unix socket is named.
pub(super) fn read_admin(root: &mut Keys<'_, '_>, socket: &Path) -> AdminConfig {
    let mut admin = AdminConfig {
        listen: with_socket(Vec::new(), socket),
        web: Vec::new(),
        web_named: false,
        hosts: Vec::new(),
        socket_mode: SOCKET_MODE,
    };
    if let Some(keys) = root.table("admin") {
        read_commands(keys, socket, &mut admin);
    }
    match root.table("web") {
        Some(keys) => read_web(keys, &mut admin),
        // As it was written before there was `[web]`: a port for commands shows the rest, too.
        None if admin.listen.iter().any(has_usual_port) => {}
        None => admin.web = vec![usual_web()],
    }
    admin
}

/// Would the default be taken by it?
fn has_usual_port(address: &Address) -> bool {
    let port = |it: &Address| it.socket().map(|it| it.port());
    port(address) == port(&usual_web())
}

fn usual_web() -> Address {
    WEB.parse().expect("a constant address")
}

fn read_commands(mut keys: Keys<'_, '_>, socket: &Path, admin: &mut AdminConfig) {
    let listen = keys.parse_list("listen", str::parse::<Address>);
    let tcp = keys.parse_list("tcp", str::parse::<Address>);
    if let Some(gone) = keys.take::<bool>("allow_remote") {
        let what = "is gone: other machines reach the admin API in TLS alone; leave it out, and write such as tcp = \
                    \"tls:10.0.0.1:10881\" (docs/certificates.md)";
        keys.complain_at(gone.at, "allow_remote", what);
    }
    let hosts = keys.parse_list("hosts", valid_name);
    let socket_mode = keys.parse("socket_mode", read_mode);
    check_clear(&keys, "listen", listen.as_ref());
    check_clear(&keys, "tcp", tcp.as_ref());
    if let Some(tcp) = &tcp
        && let Some(unix) = tcp.value.iter().find(|it| it.socket().is_none())
    {
        let what = format!("{unix} is a Unix socket; write it into listen");
        keys.complain_at(tcp.at, "tcp", what);
    }
    keys.finish();
    let listen = listen.map_or_else(Vec::new, |at| at.value);
    let mut listen = with_socket(listen, socket);
    listen.extend(tcp.map_or_else(Vec::new, |at| at.value));
    admin.listen = listen;
    admin.hosts = hosts.map_or_else(Vec::new, |at| at.value);
    admin.socket_mode = socket_mode.map_or(SOCKET_MODE, |at| at.value);
}

fn read_web(mut keys: Keys<'_, '_>, admin: &mut AdminConfig) {
    let listen = keys.parse_list("listen", str::parse::<Address>);
    check_clear(&keys, "listen", listen.as_ref());
    if let Some(listen) = &listen {
        let mut both = listen.value.iter().filter(|it| admin.listen.contains(it));
        if let Some(address) = both.find(|it| !any_port(it)) {
            let what = format!("{address} stands in [admin], too; take it out of one of them");
            keys.complain_at(listen.at, "listen", what);
        }
    }
    keys.finish();
    admin.web_named = listen.is_some();
    admin.web = listen.map_or_else(|| vec![usual_web()], |at| at.value);
}

/// Complains of an address that other machines reach in the clear.
fn check_clear(keys: &Keys<'_, '_>, key: &str, listen: Option<&At<Vec<Address>>>) {
    let Some(listen) = listen else { return };
    let in_the_clear = |it: &&Address| !it.is_tls() && !is_local(it);
    for address in listen.value.iter().filter(in_the_clear) {
        let what = format!(
            "{address} can be reached from other machines, and tokens would cross the network in the clear; write \
             \"tls:{address}\", for which the node needs a certificate (docs/certificates.md), or listen on 127.0.0.1 or \
             a Unix socket"
        );
        keys.complain_at(listen.at, key, what);
    }
}

/// With a Unix socket among them: there the owner's commands are taken.
fn with_socket(mut listen: Vec<Address>, socket: &Path) -> Vec<Address> {
    if listen.iter().all(|it| it.socket().is_some()) {
        // A path too long for a socket is no reason to refuse a configuration that asked for none.
        listen.extend(format!("unix:{}", socket.display()).parse::<Address>());
    }
    listen
}

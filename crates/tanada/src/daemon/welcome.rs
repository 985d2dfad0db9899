//! What `tanada serve` says when it is ready: what was made and how to use it.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use config::{Backing, Config, Kind};
use env::net::Address;
use report::terminal::quoted;
use report::terminal::table::size;

use super::common::address::{absolute, nbd_uri};
use super::thread::command::{Started, StartedCluster, StartedExport, StartedStore};
use crate::api::s3::S3Gateway;

/// What was made and how to use it, ready to paste.
pub fn print_welcome(
    config: &Config,
    (ready, gateways): (&[Started], &[S3Gateway]),
    admin: &[Address],
) -> io::Result<()> {
    let text = welcome(config, (ready, gateways), admin);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A daemon whose starter reads no more, or whose terminal is gone, goes on.
        Err(error) if is_gone(&error) => Ok(()),
        done => done,
    }
}

fn welcome(
    config: &Config,
    (ready, gateways): (&[Started], &[S3Gateway]),
    admin: &[Address],
) -> String {
    let mut text = format!("Tanada {} is up.\n\n", env!("CARGO_PKG_VERSION"));
    list(&mut text, config, ready);
    let exports: Vec<_> = ready.iter().flat_map(|started| &started.exports).collect();
    for export in &exports {
        connect(&mut text, export);
    }
    let stores: Vec<_> = ready.iter().flat_map(|started| &started.stores).collect();
    for store in &stores {
        print_store(&mut text, store, admin.first());
    }
    for gateway in gateways {
        print_gateway(&mut text, gateway, admin.first());
    }
    for cluster in ready.iter().filter_map(|started| started.cluster.as_ref()) {
        print_cluster(&mut text, cluster, admin.first());
    }
    if exports.is_empty() && stores.is_empty() {
        text.push_str("\nNothing is exported: add an [[export]] to let clients in.\n");
    }
    look(&mut text, admin);
    text.push_str("\nStop it with Ctrl-C; it closes cleanly.\n");
    text
}

/// Devices, volumes and stores, one a line.
fn list(text: &mut String, config: &Config, ready: &[Started]) {
    let sizes: Vec<_> = ready.iter().flat_map(|started| &started.sizes).collect();
    let size_of = |name: &str| {
        let found = sizes.iter().find(|(known, _)| known == name);
        found.map_or_else(String::new, |(_, bytes)| size(*bytes))
    };
    let mut line = |kind: &str, name: &str, size: String, what: String| {
        let _ = writeln!(text, "  {kind:<6} {name:<8} {size:>9}  {what}");
    };
    for device in &config.devices {
        let size = size_of(&device.name);
        line("device", &device.name, size, made_of(&device.kind));
    }
    for hybrid in &config.hybrids {
        let what = format!(
            "{} cached by {} ({}, write {})",
            hybrid.slow, hybrid.fast, hybrid.settings.policy, hybrid.settings.write
        );
        line("volume", hybrid.name(), size_of(hybrid.name()), what);
    }
    for store in &config.stores {
        let started = ready.iter().flat_map(|started| &started.stores);
        let room = started
            .filter(|started| started.name == store.name)
            .map(|started| size(started.bytes));
        let what = format!(
            "objects on {} (scheduler {})",
            store.device, store.scheduling.kind
        );
        line("store", &store.name, room.collect(), what);
    }
}

/// What a device is, or where its data are.
fn made_of(kind: &Kind) -> String {
    match kind {
        Kind::Path { path, .. } => path.display().to_string(),
        Kind::Model { model, backing, .. } => match backing {
            Backing::File(file) => format!("modelled {model}, data in {}", file.display()),
            Backing::Memory => format!("modelled {model}, data in memory"),
        },
        Kind::Memory { .. } => "memory, gone when this ends".to_owned(),
        Kind::Striped { members, chunk } => {
            format!("{} in turn, {} each", members.join(", "), size(chunk.0))
        }
    }
}

/// How a gateway is used.
fn print_gateway(text: &mut String, gateway: &S3Gateway, admin: Option<&Address>) {
    let (name, below) = (&gateway.name, gateway.below());
    let _ = writeln!(text, "\nS3 gateway {name}, over {below}:");
    if let Some(why) = &gateway.failed {
        let _ = writeln!(text, "  NOT SERVED: {why}");
        return;
    }
    let _ = writeln!(
        text,
        "  eval \"$(tanada s3 key create{})\"   # an access key, for this shell",
        asks(admin, str::to_owned)
    );
    for listen in &gateway.listen {
        let url = match listen.strip_prefix("tls:") {
            Some(address) => format!("https://{address}"),
            None => format!("http://{listen}"),
        };
        let _ = writeln!(text, "  aws --endpoint-url {url} s3 mb s3://photos");
    }
}

/// How an export is used.
fn connect(text: &mut String, export: &StartedExport) {
    let _ = writeln!(text, "\nConnect to {}:", export.name);
    let uris: Vec<String> = export
        .nbd
        .iter()
        .map(|address| quoted(&nbd_uri(address, &export.name, export.tls)))
        .collect();
    for uri in &uris {
        let _ = writeln!(text, "  nbdinfo {uri}");
    }
    if let Some(uri) = uris.first() {
        let _ = writeln!(text, "  nbdcopy {uri} copy.img");
        let _ = writeln!(text, "  qemu-img info {uri}");
    }
    if let Some(disk) = &export.ublk {
        let _ = writeln!(
            text,
            "  lsblk {disk}   # a block device of this machine: mkfs and mount it"
        );
    }
    if let Some(Address::Unix(socket)) = &export.vhost_user {
        let socket = quoted(&socket.display().to_string());
        let _ = writeln!(
            text,
            "  qemu-system-x86_64 ... -m 4G -object memory-backend-memfd,id=mem,size=4G,share=on -numa node,memdev=mem \\\n    \
             -chardev socket,id=c0,path={socket},reconnect=1 -device vhost-user-blk-pci,chardev=c0   # docs/vhost-user.md"
        );
    }
    let tcp = export.nbd.iter().find_map(|address| match address {
        Address::Tcp(socket) => Some(socket),
        Address::Tls(_) | Address::Unix(_) => None,
    });
    if let (Some(socket), false) = (tcp, export.tls) {
        let _ = writeln!(
            text,
            "  sudo nbd-client -N {} {} {} /dev/nbd0   # then mkfs and mount",
            quoted(&export.name),
            socket.ip(),
            socket.port()
        );
    }
}

/// How the daemon is watched.
fn look(text: &mut String, admin: &[Address]) {
    if admin.is_empty() {
        return;
    }
    let asks = asks(admin.first(), str::to_owned);
    let _ = writeln!(
        text,
        "\nLook at it:\n  tanada status{asks}\n  tanada top{asks}"
    );
    for address in admin {
        match address {
            Address::Tcp(socket) => {
                let _ = writeln!(text, "  curl http://{socket}/metrics");
                let _ = writeln!(text, "  http://{socket}/   # the dashboard, for a browser");
            }
            Address::Tls(socket) => {
                let _ = writeln!(text, "  curl --cacert ca.pem https://{socket}/metrics");
            }
            Address::Unix(path) => {
                let _ = writeln!(
                    text,
                    "  curl --unix-socket {} http://localhost/v1/status",
                    quoted(&absolute(path).display().to_string())
                );
            }
        }
    }
}

/// The option that leads a command to this daemon, where it is not the usual one.
fn asks(admin: Option<&Address>, word: impl Fn(&str) -> String) -> String {
    let address = admin.map(Address::to_string);
    let usual = ["unix:tanada-data/admin.sock", "unix:/run/tanada/admin.sock"];
    let address = address.filter(|address| !usual.contains(&address.as_str()));
    address.map_or_else(String::new, |address| {
        format!(" --admin {}", word(&address))
    })
}

/// Does nothing read what is written any more: a pipe without a reader, a terminal that was closed?
fn is_gone(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    errno.is_some_and(|errno| matches!(errno, rustix::io::Errno::PIPE | rustix::io::Errno::IO))
}

/// How a store is used, ready to paste.
fn print_store(text: &mut String, store: &StartedStore, admin: Option<&Address>) {
    let name = &store.name;
    let at: Vec<String> = store.listen.iter().map(Address::to_string).collect();
    let asks = asks(admin, quoted);
    let _ = writeln!(text, "\nUse the store {name}, at {}:", at.join(" and "));
    if store.unauthenticated {
        let _ = writeln!(
            text,
            "  (every client that reaches it may do everything, without a promise)"
        );
        let _ = writeln!(text, "  tanada object put README.md notes/readme{asks}");
        let _ = writeln!(text, "  tanada object list -l{asks}");
    }
    let _ = writeln!(
        text,
        "  tanada reservation create --store {name} --read 20MB/s --from now --for 1h --scope notes/{asks}   # prints a capability"
    );
    let _ = writeln!(
        text,
        "  tanada object get notes/readme - --capability ...{asks}"
    );
}

/// How virtual disks are made here, and where clients find them.
fn print_cluster(text: &mut String, cluster: &StartedCluster, admin: Option<&Address>) {
    let _ = writeln!(
        text,
        "\nNode {} of a cluster; its records are in {}:",
        cluster.node, cluster.meta
    );
    let asks = asks(admin, str::to_owned);
    let _ = writeln!(text, "  tanada volume create vm1 --size 10GiB{asks}");
    let _ = writeln!(text, "  tanada node list{asks}");
    for address in &cluster.nbd {
        let uri = quoted(&nbd_uri(address, "vm1", cluster.tls));
        let _ = writeln!(text, "  qemu-img info {uri}");
    }
}

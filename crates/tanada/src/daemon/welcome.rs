//! What `tanada serve` says when it is ready: what was made and how to use it.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use config::{Config, Kind};
use env::net::Address;
use report::terminal::table::size;

use super::common::address::{absolute, nbd_uri};
use super::thread::command::{Started, StartedCluster, StartedStore};

/// What was made and how to use it, ready to paste.
pub fn print_welcome(config: &Config, ready: &[Started], admin: &[Address]) -> io::Result<()> {
    let mut text = format!("Tanada {} is up.\n\n", env!("CARGO_PKG_VERSION"));
    let sizes: Vec<_> = ready.iter().flat_map(|started| &started.sizes).collect();
    let size_of = |name: &str| {
        sizes
            .iter()
            .find(|(known, _)| known == name)
            .map_or_else(String::new, |(_, bytes)| size(*bytes))
    };
    for device in &config.devices {
        let what = match &device.kind {
            Kind::Path { path, .. } => path.display().to_string(),
            Kind::Model { model, backing, .. } => match backing {
                config::Backing::File(file) => {
                    format!("modelled {model}, data in {}", file.display())
                }
                config::Backing::Memory => format!("modelled {model}, data in memory"),
            },
            Kind::Memory { .. } => "memory, gone when this ends".to_owned(),
            Kind::Striped { members, chunk } => {
                format!("{} in turn, {} each", members.join(", "), size(chunk.0))
            }
        };
        let _ = writeln!(
            text,
            "  device {:<8} {:>9}  {what}",
            device.name,
            size_of(&device.name)
        );
    }
    for hybrid in &config.hybrids {
        let _ = writeln!(
            text,
            "  volume {:<8} {:>9}  {} cached by {} ({}, write {})",
            hybrid.name(),
            size_of(hybrid.name()),
            hybrid.slow,
            hybrid.fast,
            hybrid.settings.policy,
            hybrid.settings.write
        );
    }
    for store in &config.stores {
        let started = ready.iter().flat_map(|started| &started.stores);
        let room = started
            .filter(|started| started.name == store.name)
            .map(|started| size(started.bytes));
        let _ = writeln!(
            text,
            "  store  {:<8} {:>9}  objects on {} (scheduler {})",
            store.name,
            room.collect::<String>(),
            store.device,
            store.scheduler
        );
    }
    let exports: Vec<_> = ready.iter().flat_map(|started| &started.exports).collect();
    for export in &exports {
        let _ = writeln!(text, "\nConnect to {}:", export.name);
        let uris: Vec<String> = export
            .nbd
            .iter()
            .map(|address| shell_word(&nbd_uri(address, &export.name, export.tls)))
            .collect();
        for uri in &uris {
            let _ = writeln!(text, "  nbdinfo {uri}");
        }
        if let Some(uri) = uris.first() {
            let _ = writeln!(text, "  nbdcopy {uri} copy.img");
            let _ = writeln!(text, "  qemu-img info {uri}");
        }
        let tcp = export.nbd.iter().find_map(|address| match address {
            Address::Tcp(socket) => Some(socket),
            Address::Unix(_) => None,
        });
        if let (Some(socket), false) = (tcp, export.tls) {
            let _ = writeln!(
                text,
                "  sudo nbd-client -N {} {} {} /dev/nbd0   # then mkfs and mount",
                shell_word(&export.name),
                socket.ip(),
                socket.port()
            );
        }
    }
    let stores: Vec<_> = ready.iter().flat_map(|started| &started.stores).collect();
    for store in &stores {
        print_store(&mut text, store, admin.first());
    }
    for cluster in ready.iter().filter_map(|started| started.cluster.as_ref()) {
        print_cluster(&mut text, cluster, admin.first());
    }
    if exports.is_empty() && stores.is_empty() {
        text.push_str("\nNothing is exported: add an [[export]] to let clients in.\n");
    }
    if let Some(first) = admin.first() {
        let asks = match first.to_string() == config::ADMIN {
            true => String::new(),
            false => format!(" --admin {first}"),
        };
        let _ = writeln!(
            text,
            "\nLook at it:\n  tanada status{asks}\n  tanada top{asks}"
        );
        for address in admin {
            match address {
                Address::Tcp(socket) => {
                    let _ = writeln!(text, "  curl http://{socket}/metrics");
                }
                Address::Unix(path) => {
                    let _ = writeln!(
                        text,
                        "  curl --unix-socket {} http://localhost/v1/status",
                        shell_word(&absolute(path).display().to_string())
                    );
                }
            }
        }
    }
    text.push_str("\nStop it with Ctrl-C; it closes cleanly.\n");
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A daemon whose starter reads no more, or whose terminal is gone, goes on.
        Err(error) if is_gone(&error) => Ok(()),
        done => done,
    }
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
    let asks = match admin {
        Some(first) if first.to_string() != config::ADMIN => {
            format!(" --admin {}", shell_word(&first.to_string()))
        }
        _ => String::new(),
    };
    let _ = writeln!(text, "\nUse the store {name}, at {}:", at.join(" and "));
    let far: Vec<String> = {
        let far = store.listen.iter().filter(|at| !config::is_local(at));
        far.map(Address::to_string).collect()
    };
    if store.insecure && !far.is_empty() {
        let _ = writeln!(
            text,
            "  (insecure: what goes to {} and back is neither encrypted nor signed; machines on the way can read and change it)",
            far.join(" and ")
        );
    }
    if store.unauthenticated {
        let _ = writeln!(
            text,
            "  (every client that reaches it may do everything, without a promise)"
        );
        let _ = writeln!(text, "  tanada object put README.md notes/readme{asks}");
        let _ = writeln!(text, "  tanada object ls -l{asks}");
    }
    let _ = writeln!(
        text,
        "  tanada reserve add --store {name} --read 20MB/s --from now --for 1h --scope notes/{asks}   # prints a capability"
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
    let asks = match admin {
        Some(first) if first.to_string() != config::ADMIN => format!(" --admin {first}"),
        _ => String::new(),
    };
    let _ = writeln!(text, "  tanada volume create vm1 --size 10GiB{asks}");
    let _ = writeln!(text, "  tanada node list{asks}");
    for address in &cluster.nbd {
        let uri = shell_word(&nbd_uri(address, "vm1", cluster.tls));
        let _ = writeln!(text, "  qemu-img info {uri}");
    }
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:@%+=,".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_pasted_whole() {
        assert_eq!(
            shell_word("nbd://127.0.0.1:1/vol0"),
            "nbd://127.0.0.1:1/vol0"
        );
        assert_eq!(shell_word("a b?"), "'a b?'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}

//! `tanada serve`: from a configuration to a running daemon, and from a signal to a clean end.
//!
//! ```text
//! configuration, all mistakes at once -> admin sockets -> one data thread per device tree -> "ready"
//!    -> SIGTERM, SIGINT, SIGHUP: admin API closes, data threads drain and close -> exit 0
//!               a second SIGTERM or SIGINT -> exit 1 at once
//! ```
//!
//! Always true:
//! 1. Nothing is opened before the whole configuration is checked.
//! 2. If one part cannot start, those that did are closed cleanly and the exit status is 1.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use config::{self, Config, DATA_DIR, Kind};
use env::net::Address;
use report::terminal::table::size;
use report::terminal::{Usage, said};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::admin::listen::AdminListener;
use crate::admin::{self, Control, Gate};
use crate::assemble::{self, Started, StartedCluster, StartedStore};
use crate::cli::{LogFormat, Serve};
use crate::descriptors;
use crate::log;
use crate::look::{self, Verdict};
use crate::thread::{Command, ThreadHandle};

/// The text of the configuration asked for and where it comes from.
pub fn load(path: Option<&Path>, data_dir: Option<&Path>) -> anyhow::Result<(String, String)> {
    match path {
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?;
            Ok((text, path.display().to_string()))
        }
        None => Ok((
            config::default_text(data_dir.unwrap_or(Path::new(DATA_DIR))),
            "the built-in configuration".to_owned(),
        )),
    }
}

/// Runs the daemon until a signal ends it.
pub fn run(arguments: Serve) -> anyhow::Result<()> {
    let (text, origin) = load(arguments.config.as_deref(), arguments.data_dir.as_deref())?;
    if arguments.print_config {
        io::stdout().write_all(text.as_bytes())?;
        return Ok(());
    }
    let mut config = config::read(&text, &origin, arguments.data_dir.as_deref())?;
    for hybrid in &mut config.hybrids {
        hybrid.verify = arguments.verify;
    }
    if arguments.check {
        return check(&config, &origin);
    }
    start(config, origin, arguments.log_format)
}

/// What the configuration says is good; is it what lies on the devices, too?
fn check(config: &Config, origin: &str) -> anyhow::Result<()> {
    let seen = look::devices(config);
    let bad = |it: &&look::Finding| it.verdict == Verdict::Bad;
    let mut out = io::stdout();
    for it in &seen {
        writeln!(out, "  device {}", it.line())?;
    }
    let mistakes: Vec<String> = seen
        .iter()
        .filter(bad)
        .map(|it| format!("\n  {} {}: {}", it.what, it.found, it.todo))
        .collect();
    if !mistakes.is_empty() {
        let what = format!(
            "{origin} is good by itself, and its devices are not what it says; nothing was started{}",
            mistakes.concat()
        );
        return Err(Usage(what).into());
    }
    writeln!(out, "{origin} is good: {}", summary(config))?;
    Ok(())
}

/// Runs the daemon of a configuration until a signal ends it.
pub fn start(config: Config, origin: String, log_format: LogFormat) -> anyhow::Result<()> {
    let lost = log::start(log_format);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control thread")?;
    let done = runtime.block_on(async {
        let telling = tokio::spawn(lost.report());
        let done = daemon(config, origin).await;
        telling.abort();
        done
    });
    log::end();
    done
}

fn summary(config: &Config) -> String {
    let many = |n: usize, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    format!(
        "{}, {}, {}{}",
        many(config.devices.len(), "device"),
        many(config.hybrids.len(), "hybrid"),
        many(config.exports.len(), "export"),
        match config.stores.len() {
            0 => String::new(),
            n => format!(", {}", many(n, "store")),
        }
    )
}

async fn daemon(config: Config, origin: String) -> anyhow::Result<()> {
    let connections = descriptors::connections(descriptors::raise(), &config);
    // Signals count from the first moment on: a start can be interrupted too.
    let mut signals = Signals::new().context("cannot listen for signals")?;
    fs::create_dir_all(&config.data_dir).with_context(|| {
        format!(
            "cannot make the data directory {}; choose another one with --data-dir",
            config.data_dir.display()
        )
    })?;
    let mut listeners = Vec::new();
    for address in &config.admin.listen {
        listeners.push(AdminListener::open(address).await?);
    }
    let admin_addresses: Vec<Address> = listeners.iter().map(|it| it.address.clone()).collect();
    let gate = Gate::new(&config, &admin_addresses)?;

    let mut threads: Vec<ThreadHandle> = Vec::new();
    let mut starting = Vec::new();
    for mut plan in assemble::threads(&config) {
        plan.connections = connections;
        let names = plan.names();
        let (started, startup) = oneshot::channel();
        match assemble::start(plan, started) {
            Ok(handle) => {
                threads.push(handle);
                starting.push((names, startup));
            }
            Err(error) => {
                stop(threads, &mut signals).await;
                return Err(error.context("cannot start a data thread"));
            }
        }
    }
    let mut ready: Vec<Started> = Vec::new();
    for (names, startup) in starting {
        let outcome = tokio::select! {
            outcome = startup => outcome
                .unwrap_or_else(|_| Err(anyhow!("the data thread of {} died", names.join(", ")))),
            () = signals.next() => Err(anyhow!("interrupted while {} started", names.join(", "))),
        };
        match outcome {
            Ok(started) => ready.push(started),
            Err(error) => {
                stop(threads, &mut signals).await;
                return Err(error);
            }
        }
    }

    let control = Arc::new(Control {
        origin,
        started_unix_seconds: ready.first().map_or(0, |started| started.unix_seconds),
        started: tokio::time::Instant::now(),
        threads,
        access: gate.access.clone(),
        searching: Arc::new(tokio::sync::Semaphore::new(1)),
    });
    // Before a client can reserve anew.
    control.reconcile().await;
    let keeping = admin::learn::keep_current(Arc::clone(&control), config.data_dir.clone());
    let learning = tokio::spawn(keeping);
    let (closing, closed) = watch::channel(false);
    let mut servers = tokio::task::JoinSet::new();
    let router = admin::router(Arc::clone(&control), gate);
    for listener in listeners {
        servers.spawn(listener.serve(router.clone(), closed.clone()));
    }

    print_welcome(&config, &ready, &admin_addresses)?;
    tracing::info!(config = control.origin, "serving {}", summary(&config));
    let failed = tokio::select! {
        () = signals.next() => {
            tracing::info!("stopping: letting clients finish, then closing; once more to force");
            control.threads.iter().find(|thread| thread.is_dead()).map(|thread| thread.names.join(", "))
        }
        dead = all_dead(&control.threads) => Some(dead),
    };
    learning.abort();
    let _ = closing.send(true);
    let clean = stop_all(&control.threads, &mut signals).await;
    servers.shutdown().await;
    match (clean, failed) {
        (_, Some(dead)) => Err(anyhow!(
            "the data thread of {dead} died; its log line says why"
        )),
        (Err(error), None) => Err(error),
        (Ok(()), None) => {
            tracing::info!("closed cleanly");
            Ok(())
        }
    }
}

/// What ends the daemon: SIGTERM, SIGINT, and SIGHUP, which comes when its terminal closes.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
    /// Heard, so that they do not end the process, and of no consequence.
    _ignored: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let ignored = [
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::alarm(),
        ];
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            _ignored: ignored.into_iter().map(signal).collect::<io::Result<_>>()?,
        })
    }

    /// The daemon is to close.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            _ = self.hup.recv() => {}
        }
    }

    /// It is not to wait any longer. A closing terminal sends SIGHUP more than once and means no haste.
    async fn force(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

async fn stop(threads: Vec<ThreadHandle>, signals: &mut Signals) {
    if let Err(error) = stop_all(&threads, signals).await {
        tracing::error!("{}", said::words(&error));
    }
}

/// Closes every data thread; a signal meanwhile ends the process on the spot.
async fn stop_all(threads: &[ThreadHandle], signals: &mut Signals) -> anyhow::Result<()> {
    let mut waiting = Vec::new();
    for thread in threads {
        let (reply, answer) = oneshot::channel();
        // A thread that has ended has nothing left to close.
        if thread.post(Command::Stop(reply)).is_ok() {
            waiting.push((thread, answer));
        }
    }
    let mut troubles = String::new();
    for (thread, answer) in waiting {
        let closed = tokio::select! {
            closed = answer => closed,
            () = signals.force() => {
                tracing::warn!("forced: what was not flushed is lost, what was is safe");
                log::end();
                std::process::exit(1);
            }
        };
        match closed {
            Ok(list) => {
                for trouble in list {
                    troubles.push_str("\n  ");
                    troubles.push_str(&trouble);
                }
            }
            // A data thread that never started dies by itself.
            Err(_) => tracing::debug!("the data thread of {} had ended", thread.names.join(", ")),
        }
    }
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not everything closed cleanly:{troubles}")),
    }
}

/// Waits until every data thread has ended by itself, and says of each that it has: one that died takes no other along.
async fn all_dead(threads: &[ThreadHandle]) -> String {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        for (number, thread) in threads.iter().enumerate() {
            if thread.is_dead() && !reported.contains(&number) {
                reported.push(number);
                tracing::error!(
                    "the data thread of {} died: nothing on it is served until the daemon is started anew; {} of {} go on",
                    thread.names.join(", "),
                    threads.len() - reported.len(),
                    threads.len()
                );
            }
        }
        if !threads.is_empty() && reported.len() == threads.len() {
            let names = threads.iter().map(|thread| thread.names.join(", "));
            return names.collect::<Vec<_>>().join(" and of ");
        }
    }
}

/// The system's words without the number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

/// What was made and how to use it, ready to paste.
fn print_welcome(config: &Config, ready: &[Started], admin: &[Address]) -> io::Result<()> {
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

/// The address of an export as NBD clients write it.
pub fn nbd_uri(address: &Address, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match plain(byte) {
                true => (byte as char).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect()
    };
    match address {
        Address::Tcp(socket) => format!("{scheme}://{socket}/{}", escape(export)),
        Address::Unix(path) => format!(
            "{scheme}+unix:///{}?socket={}",
            escape(export),
            escape(&absolute(path).display().to_string())
        ),
    }
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

/// An address as it is reached from any directory.
pub fn from_anywhere(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("unix:{}", absolute(path).display()),
        tcp => tcp.to_string(),
    }
}

/// The path from the root, for use in another directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
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
    fn an_export_is_written_as_clients_read_it() {
        let tcp: Address = "127.0.0.1:10809".parse().unwrap();
        assert_eq!(
            nbd_uri(&tcp, "vol 0", false),
            "nbd://127.0.0.1:10809/vol%200"
        );
        let unix: Address = "unix:/a b/s".parse().unwrap();
        assert_eq!(
            nbd_uri(&unix, "vol0", true),
            "nbds+unix:///vol0?socket=/a%20b/s"
        );
    }

    #[test]
    fn a_word_is_pasted_whole() {
        assert_eq!(
            shell_word("nbd://127.0.0.1:1/vol0"),
            "nbd://127.0.0.1:1/vol0"
        );
        assert_eq!(shell_word("a b?"), "'a b?'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn the_system_speaks_plainly() {
        let error = io::Error::from_raw_os_error(98);
        assert_eq!(plain(&error), "address already in use");
    }
}

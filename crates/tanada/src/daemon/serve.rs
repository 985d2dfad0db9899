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

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use config::{self, Config, DATA_DIR};
use env::net::Address;
use report::terminal::{Usage, said};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::http::admin_tls::AdminTls;
use super::http::control::Control;
use super::http::gate::Gate;
use super::http::kernel_disks::KernelDisks;
use super::http::listen::AdminListener;
use super::http::settings_book::SettingsBook;
use super::log::{self, LogFormat};
use super::look::{self, Verdict};
use super::thread::command::{Command, Started, ThreadHandle};
use super::thread::layers::Layers;
use super::thread::records::Records;
use super::welcome::print_welcome;
use super::{assemble, descriptors, http};
use crate::daemon::common::certificates::Folder;
use crate::daemon::common::revocation::Revocation;
use crate::daemon::common::saved_settings::{SavedFile, SavedSettings};
use crate::daemon::http::booking::Stores;

#[derive(Args)]
pub struct Serve {
    /// Configuration in TOML; without it two modelled devices make one hybrid disk.
    pub config: Option<PathBuf>,
    /// Where Tanada keeps its files [default: data_dir of the configuration, or tanada-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Check the configuration and stop.
    #[arg(long)]
    pub check: bool,
    /// Compare every clean page of each cache with its slow device before anything is served.
    #[arg(long)]
    pub verify: bool,
    /// Print the configuration and stop: the built-in one is a good start for your own.
    #[arg(long, conflicts_with = "check")]
    pub print_config: bool,
    /// How log lines look (on stderr; RUST_LOG says which, such as RUST_LOG=debug).
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

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
        return check(&config_for_check(config)?, &origin);
    }
    start(config, origin, arguments.log_format)
}

/// May this user not read what is to be read?
fn is_denied(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|it| it.kind() == io::ErrorKind::PermissionDenied)
}

/// The configuration with what was set before and lasts, as far as this user may know it.
fn config_for_check(config: Config) -> anyhow::Result<Config> {
    match saved_settings(&config) {
        Ok((_, in_force)) => Ok(in_force),
        Err(error) if is_denied(&error) => {
            println!(
                "  settings.toml: not known to this user, who may not read it; run the same command with sudo"
            );
            Ok(config)
        }
        Err(error) => Err(error),
    }
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
    let revocation = Revocation::default();
    // Signals count from the first moment on: a start can be interrupted too.
    let mut signals = Signals::new().context("cannot listen for signals")?;
    make_dir(&config.data_dir)?;
    let admin_tls = admin_tls(&config)?;
    let listeners = admin_listeners(&config, admin_tls.as_ref()).await?;
    let admin_addresses: Vec<Address> = listeners.iter().map(|it| it.address.clone()).collect();
    let gate = Gate::new(&config, &admin_addresses)?;

    let mut threads: Vec<ThreadHandle> = Vec::new();
    let (kept, in_force) = saved_settings(&config)?;
    let given = (connections, &revocation, &kept);
    let ready = match begin(&config, given, &mut threads, &mut signals).await {
        Ok(ready) => ready,
        Err(error) => {
            stop(threads, &mut signals).await;
            return Err(error);
        }
    };
    let control = Arc::new(Control {
        origin,
        started_unix_seconds: ready.first().map_or(0, |started| started.unix_seconds),
        started: tokio::time::Instant::now(),
        threads,
        access: gate.access.clone(),
        records: Records::of(&config),
        audit: Some(Arc::clone(&gate.audit)),
        searching: Arc::new(tokio::sync::Semaphore::new(1)),
        kernel_disks: KernelDisks::default(),
        certificates: Folder::of_daemon(&config.data_dir),
        revocation,
        making: http::charged::Making::default(),
        settings: SettingsBook::new(&config.data_dir, kept),
    });
    // Before a client can reserve anew.
    Stores(&control).reconcile().await;
    http::export_booking::join_cluster(&control, &exports(&ready)).await;
    let mut beside = beside(&control, config.data_dir.clone(), admin_tls);
    let (closing, closed) = watch::channel(false);
    let mut servers = JoinSet::new();
    let router = http::router(Arc::clone(&control), gate);
    for listener in listeners {
        servers.spawn(listener.serve(router.clone(), closed.clone()));
    }

    print_welcome(&in_force, &ready, &admin_addresses)?;
    tracing::info!(config = control.origin, "serving {}", summary(&config));
    let failed = ended(&control.threads, &mut signals).await;
    beside.abort_all();
    let _ = closing.send(true);
    let clean = stop_all(&control.threads, &mut signals).await;
    servers.shutdown().await;
    died(failed)?;
    clean?;
    tracing::info!("closed cleanly");
    Ok(())
}

fn make_dir(data_dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(data_dir).with_context(|| {
        format!(
            "cannot make the data directory {}; choose another one with --data-dir",
            data_dir.display()
        )
    })
}

/// The names of all exports.
fn exports(ready: &[Started]) -> Vec<String> {
    let all = ready.iter().flat_map(|started| &started.exports);
    all.map(|export| export.name.clone()).collect()
}

/// What was set of its volumes and lasts, and the configuration with it.
fn saved_settings(config: &Config) -> anyhow::Result<(SavedSettings, Config)> {
    let file = SavedFile::in_dir(&config.data_dir);
    let kept = file.read()?;
    for name in kept.volume.keys() {
        if !config.hybrids.iter().any(|hybrid| hybrid.name() == name) {
            tracing::warn!(
                volume = name,
                "{} has settings of a volume that the configuration does not have; take them out there before another one \
                 gets its name",
                file.path().display()
            );
        }
    }
    let mut in_force = config.clone();
    for hybrid in &mut in_force.hybrids {
        Layers::before(hybrid, kept.of(hybrid.name()))?;
    }
    Ok((kept, in_force))
}

/// What goes on beside the data threads and the admin API.
fn beside(control: &Arc<Control>, data_dir: PathBuf, tls: Option<Arc<AdminTls>>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(http::learn::keep_current(Arc::clone(control), data_dir));
    tasks.spawn(http::charged::keep(Arc::clone(control)));
    tasks.spawn(http::account_terms::keep(Arc::clone(control)));
    if let Some(tls) = tls {
        tasks.spawn(tls.keep_looking(control.revocation.clone()));
    }
    tasks
}

/// An error if a data thread died.
fn died(thread: Option<String>) -> anyhow::Result<()> {
    match thread {
        None => Ok(()),
        Some(dead) => Err(anyhow!(
            "the data thread of {dead} died; its log line says why"
        )),
    }
}

/// What the admin API needs for TLS, if one of its addresses speaks it.
fn admin_tls(config: &Config) -> anyhow::Result<Option<Arc<AdminTls>>> {
    let mut listen = config.admin.listen.iter();
    let Some(address) = listen.find(|address| address.is_tls()) else {
        return Ok(None);
    };
    let node = config.cluster.as_ref().map(|cluster| cluster.node.as_str());
    AdminTls::open(&config.data_dir, node, address).map(Some)
}

async fn admin_listeners(
    config: &Config,
    tls: Option<&Arc<AdminTls>>,
) -> anyhow::Result<Vec<AdminListener>> {
    let mut listeners = Vec::new();
    for address in &config.admin.listen {
        listeners.push(AdminListener::open(address, config.admin.socket_mode, tls).await?);
    }
    Ok(listeners)
}

/// Starts the data threads of the configuration and waits until all are up. Those that were started are in `threads`,
/// even if one was not.
async fn begin(
    config: &Config,
    (connections, revocation, kept): (usize, &Revocation, &SavedSettings),
    threads: &mut Vec<ThreadHandle>,
    signals: &mut Signals,
) -> anyhow::Result<Vec<Started>> {
    let mut starting = Vec::new();
    for mut plan in assemble::threads(config) {
        plan.connections = connections;
        plan.revocation = revocation.clone();
        plan.kept = kept.clone();
        let names = plan.names();
        let (started, startup) = oneshot::channel();
        let handle = assemble::start(plan, started).context("cannot start a data thread")?;
        threads.push(handle);
        starting.push((names, startup));
    }
    let mut ready = Vec::new();
    for (names, startup) in starting {
        ready.push(tokio::select! {
            outcome = startup => outcome
                .unwrap_or_else(|_| Err(anyhow!("the data thread of {} died", names.join(", ")))),
            () = signals.next() => Err(anyhow!("interrupted while {} started", names.join(", "))),
        }?);
    }
    Ok(ready)
}

/// Waits until the daemon is to close: which data thread died, if one did.
async fn ended(threads: &[ThreadHandle], signals: &mut Signals) -> Option<String> {
    tokio::select! {
        () = signals.next() => {
            tracing::info!("stopping: letting clients finish, then closing; once more to force");
            threads.iter().find(|thread| thread.is_dead()).map(|thread| thread.names.join(", "))
        }
        dead = all_dead(threads) => Some(dead),
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

//! `tanada serve`: from a configuration to a running daemon, and from a signal to a clean end.
//!
//! ```text
//! configuration, all mistakes at once -> admin sockets -> one data thread per device tree -> "ready"
//!    -> SIGHUP: the configuration is read anew
//!    -> SIGTERM, SIGINT: admin API closes, data threads drain and close -> exit 0
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
use report::terminal::{self, Usage, said};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::common::http_tls::HttpTls;
use super::common::log::{self, LogFormat, Lost};
use super::health::Watch;
use super::http::control::{Began, Control};
use super::http::doors::{self, Doors};
use super::http::gate::Gate;
use super::http::kernel_disks::KernelDisks;
use super::http::listen::AdminListener;
use super::http::settings_book::SettingsBook;
use super::lifetime::{Signals, died, ended, stop, stop_all, unless_forced};
use super::look::{self, CheckedConfig, Verdict};
use super::reload::Loaded;
use super::service_manager::ServiceManager;
use super::thread::command::{Started, ThreadHandle};
use super::thread::layers::Layers;
use super::thread::records::Records;
use super::welcome::print_welcome;
use super::{assemble, descriptors, http, plan, s3};
use crate::daemon::common::address::plain;
use crate::daemon::common::certificates::Folder;
use crate::daemon::common::level_file;
use crate::daemon::common::revocation::Revocation;
use crate::daemon::common::saved_settings::{SavedFile, SavedSettings};
use crate::daemon::common::starts;
use crate::daemon::common::when::now;
use crate::daemon::http::booking::Stores;

#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration in TOML; without it two modelled devices make one hybrid disk.
    pub config: Option<PathBuf>,
    /// Where Tanada keeps its files [default: data_dir of the configuration, or tanada-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Check the configuration and stop: `tanada config check`.
    #[arg(long, hide = true)]
    pub check: bool,
    /// Compare every clean page of each cache with its slow device before anything is served.
    #[arg(long)]
    pub verify: bool,
    /// Print the configuration and stop: `tanada config example`.
    #[arg(long, hide = true, conflicts_with = "check")]
    pub print_config: bool,
    /// How log lines look (on stderr; `[log] level` says how much, RUST_LOG before it).
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What a check found is for programs.
    #[arg(skip)]
    pub json: bool,
}

/// The text of the configuration asked for and where it comes from.
pub fn load(path: Option<&Path>, data_dir: Option<&Path>) -> anyhow::Result<(String, String)> {
    match path {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
            Ok((text, path.display().to_string()))
        }
        None => Ok((
            config::default_text(data_dir.unwrap_or(Path::new(DATA_DIR))),
            "the built-in configuration".to_owned(),
        )),
    }
}

/// Why a configuration is not read. That it is not there no second try mends: a service manager is to make none.
fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    let what = format!("cannot read the configuration {}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            Usage(format!("{what}: {}", plain(&error))).into()
        }
        _ => anyhow::Error::from(error).context(what),
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
        return check(&config_for_check(config)?, &origin, arguments.json);
    }
    let loaded = match &arguments.config {
        Some(path) => Loaded::of_file(path, (&text, &config), arguments.data_dir.clone()),
        None => Loaded::built_in(origin),
    };
    check_level(&config)?;
    start(config, loaded, arguments.log_format)
}

/// Refuses a data directory that a later program wrote.
fn check_level(config: &Config) -> anyhow::Result<()> {
    match &config.cluster {
        Some(cluster) => level_file::check(&cluster.level_file),
        None => Ok(()),
    }
}

/// May this user not read what is to be read?
fn is_denied(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|it| it.kind() == io::ErrorKind::PermissionDenied)
}

/// The configuration with what was set before and lasts, as far as this user may know it.
fn config_for_check(config: Config) -> anyhow::Result<Config> {
    check_level(&config).or_else(|error| match is_denied(&error) {
        true => Ok(()),
        false => Err(error),
    })?;
    match saved_settings(&config) {
        Ok((_, in_force)) => Ok(in_force),
        Err(error) if is_denied(&error) => {
            eprintln!(
                "  settings.toml: not known to this user, who may not read it; run the same command with sudo"
            );
            Ok(config)
        }
        Err(error) => Err(error),
    }
}

/// What the configuration says is good; is it what lies on the devices, too?
fn check(config: &Config, origin: &str, as_json: bool) -> anyhow::Result<()> {
    let devices = look::devices(config);
    let bad = |it: &&look::Finding| it.verdict == Verdict::Bad;
    let seen = CheckedConfig {
        configuration: origin.to_owned(),
        good: !devices.iter().any(|it| bad(&it)),
        devices,
    };
    terminal::answer(as_json, &seen, || {
        let lines = seen.devices.iter();
        let lines = lines.map(|it| format!("  device {}\n", it.line()));
        match seen.good {
            true => lines.collect::<String>() + &format!("{origin} is good: {}\n", summary(config)),
            false => lines.collect(),
        }
    })?;
    let mistakes: Vec<String> = seen
        .devices
        .iter()
        .filter(bad)
        .map(|it| format!("\n  {} {}: {}", it.what, it.found, it.todo))
        .collect();
    if !mistakes.is_empty() {
        let what = format!(
            "{origin} is good by itself, and its devices are not what it says{}",
            mistakes.concat()
        );
        return Err(Usage(what).into());
    }
    Ok(())
}

/// Runs the daemon of a configuration until a signal ends it.
pub fn start(config: Config, loaded: Loaded, log_format: LogFormat) -> anyhow::Result<()> {
    let lost = log::start(log_format, config.log);
    let manager = ServiceManager::meet();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control thread")?;
    let done = runtime.block_on(async {
        let telling = tokio::spawn(lost.clone().report());
        let done = daemon(config, loaded, lost, manager).await;
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

async fn daemon(
    config: Config,
    loaded: Loaded,
    lost: Lost,
    manager: ServiceManager,
) -> anyhow::Result<()> {
    let connections = descriptors::connections(descriptors::raise(), &config);
    let revocation = Revocation::default();
    // Signals count from the first moment on: a start can be interrupted too.
    let mut signals = Signals::new().context("cannot listen for signals")?;
    make_dir(&config.data_dir)?;
    let admin_tls = admin_tls(&config)?;
    let listeners = doors::listen(&config.admin, &[], admin_tls.as_ref()).await?;
    let admin_addresses = doors::addresses(&listeners);
    let gate = Gate::new(&config, &admin_addresses)?;
    let mut threads: Vec<ThreadHandle> = Vec::new();
    let (kept, in_force) = saved_settings(&config)?;
    let given = (connections, &revocation, &kept);
    let s3 = Arc::new(s3::Shared::of(&config)?);
    let begun = starts::begin(&config.data_dir)?;
    let opening = begin(&config, given, &mut threads, &mut signals);
    let ready = match manager.during("opening devices and volumes", opening).await {
        Ok(ready) => ready,
        Err(error) => {
            // Clients may have been let in: it counts as not closed.
            stop(threads, &mut signals).await;
            return Err(error);
        }
    };
    let control = Arc::new(Control {
        started: Began::now(started_at(&ready)),
        threads,
        revocation,
        ..control_of(&config, loaded, lost, (&gate, kept, s3))
    });
    // Before a client can reserve anew.
    Stores(&control).reconcile().await;
    http::export_booking::join_cluster(&control, &exports(&ready)).await;
    let mut gateways =
        open_gateways(&config, &control, admin_tls.as_ref(), &mut signals, manager).await?;
    let mut beside = beside(&control, &config, admin_tls.clone(), manager);
    let (doors, serving) = open_doors(&control, listeners, admin_tls, gate);
    let shown = control.s3.gateways();
    print_welcome(&in_force, (&ready, &shown), &admin_addresses)?;
    tracing::info!(
        config = control.loaded.origin,
        "serving {}",
        summary(&config)
    );
    manager.ready(&summary(&config));
    let failed = ended((&control, &doors), &mut signals, manager).await;
    beside.abort_all();
    doors.end();
    let clean = close((&mut gateways, &control), &mut signals, manager).await;
    serving.abort();
    died(failed).and(clean)?;
    begun.end()?;
    tracing::info!("closed cleanly");
    Ok(())
}

/// Ends the gateways, then the data threads that they stand on.
async fn close(
    (gateways, control): (&mut s3::Gateways, &Control),
    signals: &mut Signals,
    manager: ServiceManager,
) -> anyhow::Result<()> {
    manager.stopping();
    let ending = unless_forced(gateways.end(), signals);
    manager.during("ending gateways", ending).await;
    let closing = stop_all(&control.threads, signals);
    manager.during("closing", closing).await
}

/// Opens the gateways; where that fails the data threads are closed again.
async fn open_gateways(
    config: &Config,
    control: &Control,
    tls: Option<&Arc<HttpTls>>,
    signals: &mut Signals,
    manager: ServiceManager,
) -> anyhow::Result<s3::Gateways> {
    http::s3_keys::look(control).await;
    let opening = s3::Gateways::open(config, &control.threads, (&control.s3, tls));
    let opened = manager.during("opening gateways", opening).await;
    if opened.is_err()
        && let Err(trouble) = stop_all(&control.threads, signals).await
    {
        tracing::error!("{}", said::words(&trouble));
    }
    opened
}

/// Serves the admin API; where it listens, and what is aborted to end it.
fn open_doors(
    control: &Arc<Control>,
    listeners: Vec<(Address, AdminListener)>,
    tls: Option<Arc<HttpTls>>,
    gate: Gate,
) -> (Arc<Doors>, JoinHandle<()>) {
    let doors = Arc::<Doors>::default();
    let guard = Arc::clone(&gate.guard);
    let router = http::router(Arc::clone(control), gate, Arc::clone(&doors));
    let serving = tokio::spawn(doors.begin(listeners, router, (tls, guard)));
    (doors, serving)
}

/// What the handlers of the admin API share, before the data threads are there.
fn control_of(
    config: &Config,
    loaded: Loaded,
    lost: Lost,
    (gate, kept, s3): (&Gate, SavedSettings, Arc<s3::Shared>),
) -> Control {
    Control {
        started: Began::now(0),
        jobs: super::jobs::shared::Jobs::default(),
        threads: Vec::new(),
        access: gate.access.clone(),
        records: Records::of(config),
        s3,
        audit: Some(Arc::clone(&gate.audit)),
        searching: Arc::new(tokio::sync::Semaphore::new(1)),
        kernel_disks: KernelDisks::default(),
        certificates: Folder::of_daemon(&config.data_dir),
        revocation: Revocation::default(),
        making: http::charged::Making::default(),
        settings: SettingsBook::new(&config.data_dir, kept),
        loaded,
        health: Watch::new(&config.data_dir, move || lost.lines()),
    }
}

fn make_dir(data_dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(data_dir).with_context(|| {
        format!(
            "cannot make the data directory {}; choose another one with --data-dir",
            data_dir.display()
        )
    })
}

/// When the first data thread was up; without one, the present.
fn started_at(ready: &[Started]) -> u64 {
    let first = ready.first();
    first.map_or_else(|| now().0 / 1_000_000_000, |started| started.unix_seconds)
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
fn beside(
    control: &Arc<Control>,
    config: &Config,
    tls: Option<Arc<HttpTls>>,
    manager: ServiceManager,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let fed = Arc::clone(control);
    tasks.spawn(async move { manager.feed(&fed.threads).await });
    tasks.spawn(http::learn::keep_current(
        Arc::clone(control),
        config.data_dir.clone(),
    ));
    tasks.spawn(http::charged::keep(Arc::clone(control)));
    tasks.spawn(http::health::keep(Arc::clone(control)));
    tasks.spawn(http::jobs::keep(Arc::clone(control)));
    tasks.spawn(http::account_terms::keep(Arc::clone(control)));
    tasks.spawn(http::s3_keys::keep(Arc::clone(control)));
    if let Some(tls) = tls {
        tasks.spawn(tls.keep_looking(control.revocation.clone()));
    }
    tasks
}

/// What the admin API and gateways need for TLS, if one of their addresses speaks it.
fn admin_tls(config: &Config) -> anyhow::Result<Option<Arc<HttpTls>>> {
    let gateways = config.s3.iter().flat_map(|it| &it.listen);
    let mut listen = config.admin.addresses().chain(gateways);
    let Some(address) = listen.find(|address| address.is_tls()) else {
        return Ok(None);
    };
    let node = config.cluster.as_ref().map(|cluster| cluster.node.as_str());
    HttpTls::open(&config.data_dir, node, address).map(Some)
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
    for mut plan in plan::threads(config) {
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
            () = signals.stop() => Err(anyhow!("interrupted while {} started", names.join(", "))),
        }?);
    }
    Ok(ready)
}

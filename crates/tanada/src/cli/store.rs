//! `tanada store ...`: stores made and checked where they lie, and commanded where they run.
//!
//! ```text
//! create, check:                        the device itself; no daemon may have it open
//! serve:                                a daemon with just one store, by a configuration made here
//! status, scrub, rotate-key, calibrate: one question to a running daemon's admin API
//! ```

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::Bytes;
use clap::{Args, Subcommand};
use config::store::LISTEN;
use config::{self, DATA_DIR};
use device::{Device, FileOptions};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use policy::share::BytesPerSec;
use report::terminal::Usage;
use store::qos::calibrate::Surface;

use super::ask::Ask;
use super::client::{Client, Target};
use super::show::{self, stores_table};
use super::store_offline;
use super::store_pages::surface_page;
use super::store_pages::{page, scrub_line};
use crate::api::store as api;
use crate::daemon::log::LogFormat;
use crate::daemon::serve;

#[derive(Subcommand)]
pub enum Store {
    /// Make a store on a device or file.
    Create(Create),
    /// Is a store as it should be? Looks at all of it and changes nothing; no daemon may have it open.
    Check(Check),
    /// Run a daemon with just one store; without a device, on a modelled one, to try it.
    Serve(Serve),
    /// Show a daemon's stores; one of them in full.
    Status {
        name: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Read all data of a store now and compare them with their checksums, in the background of all else.
    #[command(
        after_help = "Ends when the round ends, with exit status 1 if anything was found. A round that was cut off \
                            goes on where it stopped."
    )]
    Scrub {
        name: String,
        /// Begin it and do not wait for its end.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Measure what the device below a running store can do, and promise by that from then on.
    #[command(
        after_help = "It writes and reads objects of its own through the store, where nothing is reserved for so long, and removes them. What \
                            others do meanwhile makes the device look slower: choose a quiet time."
    )]
    Calibrate {
        name: String,
        /// Up to 64 sessions, reads, writes and both in fine steps: some hours instead of a quarter of one.
        #[arg(long)]
        full: bool,
        /// Begin it and do not wait for its end.
        #[arg(long)]
        no_wait: bool,
        /// Show what was measured last, and measure nothing.
        #[arg(long, conflicts_with_all = ["full", "no_wait"])]
        show: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Sign capabilities with a new key; those given out are void at once, on open connections too.
    #[command(
        after_help = "Holders get the new capability of their reservation from `tanada reserve show`."
    )]
    RotateKey {
        name: String,
        /// Capabilities given out stay good as long as their reservations last.
        #[arg(long)]
        keep_old: bool,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Args)]
#[command(after_help = "\
Without a device the store is on a modelled SSD with its data in tanada-data, and every client that reaches it may use it; it \
listens on loopback. With a device clients need a capability (`tanada reserve add`) or the node key, unless \
--unauthenticated says otherwise. `--print-config` shows the configuration to go on from.")]
pub struct Serve {
    /// A block device or file with a store on it, as `tanada store create` makes one.
    #[arg(value_name = "DEVICE|FILE")]
    device: Option<PathBuf>,
    /// Where clients connect: HOST:PORT, tls:HOST:PORT or unix:/path; several, if given again.
    #[arg(long, value_name = "ADDR", default_value = LISTEN)]
    listen: Vec<String>,
    /// What the daemon calls it [default: that of the file, or s0]
    #[arg(long)]
    name: Option<String>,
    /// Which session is next at the device: tags, rounds, rounds-join, fifo.
    #[arg(long, default_value = "tags", value_name = "NAME")]
    scheduler: String,
    /// What the device is assumed to do until it is calibrated: reads, such as 250MB/s.
    #[arg(long, value_name = "RATE")]
    read_speed: Option<BytesPerSec>,
    /// And writes.
    #[arg(long, value_name = "RATE")]
    write_speed: Option<BytesPerSec>,
    /// How fast all data are read over once a day.
    #[arg(long, value_name = "RATE")]
    scrub: Option<BytesPerSec>,
    /// Let in clients that show nothing; only on loopback and Unix sockets.
    #[arg(long)]
    unauthenticated: bool,
    /// Where the admin API listens: HOST:PORT or unix:/path [default: unix:DATA_DIR/admin.sock, and 127.0.0.1:10880 to look]
    #[arg(long, env = "TANADA_ADMIN", value_name = "ADDR")]
    admin: Option<Target>,
    /// Where Tanada keeps its files, the store's keys among them.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Print the configuration and stop.
    #[arg(long)]
    print_config: bool,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Args)]
pub struct Create {
    /// A block device or file.
    #[arg(value_name = "DEVICE|FILE")]
    pub(super) device: PathBuf,
    /// If there is no such file, make a sparse one of this size.
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// What is allocated together: a power of two from 64 KiB to 16 MiB.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    pub(super) unit: Bytes,
    /// The store's name [default: that of the file]
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Make it over whatever the device holds, which is then lost.
    #[arg(long)]
    pub(super) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub struct Check {
    /// A block device or file.
    #[arg(value_name = "DEVICE|FILE")]
    pub(super) device: PathBuf,
    /// Read all data too and compare them with their checksums.
    #[arg(long)]
    pub(super) data: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs one of them.
pub fn run(command: Store) -> anyhow::Result<()> {
    match command {
        Store::Create(create) => store_offline::create(&create),
        Store::Check(check) => store_offline::check(&check),
        Store::Serve(serve) => self::serve(serve),
        Store::Status { name: None, ask } => {
            let stores: Vec<api::Store> = Client::new(ask.admin)?.get("/v1/stores")?;
            match ask.json {
                true => show::json(&stores),
                false if stores.is_empty() => {
                    show::text("this daemon has no stores: its configuration has no [[store]]\n")
                }
                false => show::text(&stores_table(&stores)),
            }
        }
        Store::Status {
            name: Some(name),
            ask,
        } => {
            let store: api::Store = Client::new(ask.admin)?.get(&path(&name)?)?;
            show::answer(ask.json, &store, || page(&store))
        }
        Store::Scrub { name, no_wait, ask } => scrub(&name, no_wait, &ask),
        Store::Calibrate {
            name,
            full,
            no_wait,
            show,
            ask,
        } => calibrate(&name, full, no_wait, show, &ask),
        Store::RotateKey {
            name,
            keep_old,
            ask,
        } => {
            let client = Client::new(ask.admin)?;
            let path = format!("{}/rotate-key?keep_old={keep_old}", path(&name)?);
            let store: api::Store = client.send_json(Method::POST, &path, &())?;
            match ask.json {
                true => show::json(&store),
                false if keep_old => show::text(&format!(
                    "{name} signs with a new key; capabilities given out before are good as long as their \
                     reservations last\n"
                )),
                false => show::text(&format!(
                    "{name} signs with a new key; capabilities given out before are void: `tanada reserve show` prints \
                     the new ones\n"
                )),
            }
        }
    }
}

/// A store is called like its file, as far as that makes a name.
pub fn name_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = stem.chars().filter(|c| good(*c)).take(64).collect();
    match config::check_name(&name) {
        Ok(()) => name,
        Err(_) => "store".to_owned(),
    }
}

/// Runs `work` on the device in a runtime of its own.
pub(super) fn on_device<T: 'static>(
    path: &Path,
    options: FileOptions,
    work: impl AsyncFnOnce(Rc<dyn Device>) -> anyhow::Result<T> + 'static,
) -> anyhow::Result<T> {
    let runtime =
        env::Runtime::real(env::RealConfig::default()).context("cannot make a data runtime")?;
    let path = path.to_owned();
    runtime.block_on(async move {
        let name = path.display().to_string();
        let device: Rc<dyn Device> = device::File::open(name, path, options)?;
        work(device).await
    })
}

/// A configuration of one store.
fn one_store(serve: &Serve) -> String {
    let quote = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let path = |path: &Path| quote(&path.display().to_string());
    let name = match (&serve.name, &serve.device) {
        (Some(name), _) => name.clone(),
        (None, Some(device)) => name_of(device),
        (None, None) => "s0".to_owned(),
    };
    let device = match &serve.device {
        Some(device) => format!("path = {}\n", path(device)),
        None => format!(
            "model = \"ssd-sata-mlc\"          # tanada device models\nsize = \"4GiB\"\nfile = {}\n",
            path(&serve.data_dir.join(format!("{name}.img")))
        ),
    };
    let admin = serve.admin.as_ref();
    let admin = admin.map(|at| format!("\n[admin]\nlisten = [{}]\n", quote(&at.to_string())));
    let listen: Vec<String> = serve.listen.iter().map(|address| quote(address)).collect();
    format!(
        "data_dir = {}\n\n[[device]]\nname = \"disk0\"\n{device}\
         \n[[store]]\nname = {}\ndevice = \"disk0\"\nlisten = [{}]\nscheduler = {}\n{}\
         {}",
        path(&serve.data_dir),
        quote(&name),
        listen.join(", "),
        quote(&serve.scheduler),
        choices(serve),
        admin.unwrap_or_default()
    )
}

/// The lines of a `[[store]]` that are there only where something was chosen.
fn choices(serve: &Serve) -> String {
    let mut text = String::new();
    for (key, rate) in [
        ("read_speed", serve.read_speed),
        ("write_speed", serve.write_speed),
        ("scrub", serve.scrub),
    ] {
        if let Some(rate) = rate {
            let _ = writeln!(text, "{key} = \"{}B/s\"", rate.0);
        }
    }
    if serve.device.is_none() {
        text.push_str("create = true                   # if the device is blank\n");
    }
    if serve.unauthenticated || serve.device.is_none() {
        text.push_str(
            "unauthenticated = true          # every client that reaches it may use it: on loopback only\n",
        );
    }
    text
}

fn serve(serve: Serve) -> anyhow::Result<()> {
    let text = one_store(&serve);
    if serve.print_config {
        return show::text(&text);
    }
    let config = config::read(&text, "what was said on the command line", None)?;
    let origin = serve::Origin::built_in("tanada store serve");
    serve::start(config, origin, serve.log_format)
}

fn path(name: &str) -> anyhow::Result<String> {
    config::check_name(name).map_err(Usage)?;
    Ok(format!("/v1/stores/{name}"))
}

fn scrub(name: &str, no_wait: bool, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let path = path(name)?;
    let mut store: api::Store = client.send_json(Method::POST, &format!("{path}/scrub"), &())?;
    if no_wait {
        return show::answer(ask.json, &store.scrub, || {
            format!("{name}: {}\n", scrub_line(&store.scrub))
        });
    }
    let bar = match io::stderr().is_terminal() {
        true => ProgressBar::new(store.scrub.of_bytes),
        false => ProgressBar::hidden(),
    };
    while store.scrub.running {
        client.wait(Duration::from_millis(200));
        store = client.get(&path)?;
        bar.set_position(store.scrub.read_bytes);
    }
    bar.finish_and_clear();
    show::answer(ask.json, &store.scrub, || {
        format!("{name}: {}\n", scrub_line(&store.scrub))
    })?;
    if let Some(why) = &store.scrub.failed {
        return Err(anyhow!("the scrub ended early: {why}"));
    }
    match store.bad_blocks {
        0 => Ok(()),
        bad => Err(anyhow!(
            "{bad} pages of {name} are damaged:\n  {}\nwrite them again from another copy",
            store.first_bad.join("\n  ")
        )),
    }
}

fn calibrate(name: &str, full: bool, no_wait: bool, show: bool, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let path = path(name)?;
    if !show {
        let wanted = api::CalibrateAsk { full };
        let mut store: api::Store =
            client.send_json(Method::POST, &format!("{path}/calibrate"), &wanted)?;
        if no_wait {
            return show::text(&format!("{name} is being calibrated\n"));
        }
        let bar = match io::stderr().is_terminal() {
            true => ProgressBar::new(1000),
            false => ProgressBar::hidden(),
        };
        bar.set_style(
            ProgressStyle::with_template("{wide_bar} {elapsed} {msg}")
                .expect("a constant template"),
        );
        while store.calibrating.running {
            client.wait(Duration::from_millis(500));
            store = client.get(&path)?;
            bar.set_position((store.calibrating.done_percent * 10.0) as u64);
            bar.set_message(store.calibrating.what.clone());
        }
        bar.finish_and_clear();
        if let Some(why) = &store.calibrating.failed {
            return Err(anyhow!("{why}"));
        }
    }
    let surface: Surface = client.get(&format!("{path}/calibration"))?;
    show::answer(ask.json, &surface, || surface_page(name, &surface))
}

/// A sign of life on a terminal.
pub fn spinner(what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_called_like_its_file() {
        for (path, name) in [
            ("/dev/nvme0n1p3", "nvme0n1p3"),
            ("data/s0.img", "s0"),
            ("my disk.img", "mydisk"),
            ("../..", "store"),
            ("_.img", "store"),
        ] {
            assert_eq!(name_of(Path::new(path)), name, "{path}");
        }
    }
}

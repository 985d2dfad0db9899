//! `tanada store ...`: stores made and checked where they lie, and commanded where they run.
//!
//! ```text
//! create, check:                            the device itself; no daemon may have it open
//! list, show, scrub, rotate-key, calibrate: one question to a running daemon's admin API
//! ```

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::Bytes;
use clap::{Args, Subcommand};
use device::{Device, FileOptions};
use hyper::Method;
use indicatif::ProgressBar;
use report::terminal::Usage;
use store::qos::calibrate::Surface;

use super::ask::Ask;
use super::client::Client;
use super::follow::follow;
use super::show::{self, stores_table};
use super::store_pages::{page, scrub_line, surface_page};
use super::{old_words, store_offline};
use crate::api::store as api;

#[derive(Debug, Subcommand)]
pub enum Store {
    /// Make a store on a device or file.
    Create(Create),
    /// Is a store as it should be? Looks at all of it and changes nothing; no daemon may have it open.
    Check(Check),
    /// List a daemon's stores.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Show one store in full.
    #[command(visible_alias = "info")]
    Show {
        name: String,
        /// Show what was measured last of the device below it.
        #[arg(long)]
        calibration: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Read all data of a store now and compare them with their checksums, in the background of all else.
    #[command(
        after_help = "Ends when the round ends, with exit status 1 if anything was found; Ctrl-C leaves it running. A round that was cut off \
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
        #[arg(long, hide = true, conflicts_with_all = ["full", "no_wait"])]
        show: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Sign capabilities with a new key; those given out are void at once, on open connections too.
    #[command(
        after_help = "Holders get the new capability of their reservation from `tanada reservation show`."
    )]
    RotateKey {
        name: String,
        /// Capabilities given out stay good as long as their reservations last.
        #[arg(long)]
        keep_old: bool,
        #[command(flatten)]
        ask: Ask,
    },
    #[command(flatten)]
    Old(old_words::Store),
}

#[derive(Debug, Args)]
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
    /// Ask nothing before what the device holds is lost.
    #[arg(long, requires = "force")]
    pub(super) yes: bool,
    /// Say what would be lost, and change nothing.
    #[arg(long, requires = "force")]
    pub(super) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
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
        Store::List(ask) => {
            let stores: Vec<api::Store> = Client::new(ask.admin)?.get("/v1/stores")?;
            show::answer(ask.json, &stores, || match stores.is_empty() {
                true => {
                    "this daemon has no stores: its configuration has no [[store]]\n".to_owned()
                }
                false => stores_table(&stores),
            })
        }
        Store::Show {
            name,
            calibration: true,
            ask,
        } => {
            let client = Client::new(ask.admin)?;
            let surface: Surface = client.get(&format!("{}/calibration", path(&name)?))?;
            show::answer(ask.json, &surface, || surface_page(&name, &surface))
        }
        Store::Show { name, ask, .. } => {
            let store: api::Store = Client::new(ask.admin)?.get(&path(&name)?)?;
            show::answer(ask.json, &store, || page(&store))
        }
        Store::Old(old) => unreachable!("{old:?} is read as its new spelling"),
        Store::Scrub { name, no_wait, ask } => scrub(&name, no_wait, &ask),
        Store::Calibrate {
            name,
            full,
            no_wait,
            ask,
            ..
        } => calibrate(&name, full, no_wait, &ask),
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
                    "{name} signs with a new key; capabilities given out before are void: `tanada reservation show` prints \
                     the new ones\n"
                )),
            }
        }
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
            format!(
                "{name}: {}{}\n",
                scrub_line(&store.scrub),
                follows(store.job)
            )
        });
    }
    if let Some(job) = store.job {
        follow(&client, job)?;
        store = client.get(&path)?;
    }
    show::answer(ask.json, &store.scrub, || {
        format!("{name}: {}\n", scrub_line(&store.scrub))
    })?;
    match store.bad_blocks {
        0 => Ok(()),
        bad => Err(anyhow!(
            "{bad} pages of {name} are damaged:\n  {}\nwrite them again from another copy",
            store.first_bad.join("\n  ")
        )),
    }
}

fn calibrate(name: &str, full: bool, no_wait: bool, ask: &Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin.clone())?;
    let path = path(name)?;
    let wanted = api::CalibrateAsk { full };
    let store: api::Store =
        client.send_json(Method::POST, &format!("{path}/calibrate"), &wanted)?;
    if no_wait {
        return show::answer(ask.json, &store, || {
            format!("{name} is being calibrated{}\n", follows(store.job))
        });
    }
    if let Some(job) = store.job {
        follow(&client, job)?;
    }
    let surface: Surface = client.get(&format!("{path}/calibration"))?;
    show::answer(ask.json, &surface, || surface_page(name, &surface))
}

/// How the work is followed that was begun, behind what is said of it.
fn follows(job: Option<u64>) -> String {
    let said = |job| format!("; `tanada job show {job} --wait` follows it");
    job.map(said).unwrap_or_default()
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

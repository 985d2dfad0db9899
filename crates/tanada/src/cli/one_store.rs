//! `tanada serve --store [DEVICE]`: a daemon with just one store, by a configuration made here.
//!
//! ```text
//! words -> TOML, as one writes it -> config::read -> the daemon
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use config::DATA_DIR;
use config::store::LISTEN;
use policy::share::BytesPerSec;
use report::terminal::Usage;

use super::client::Target;
use super::show;
use crate::daemon::common::log::LogFormat;
use crate::daemon::reload::Loaded;
use crate::daemon::serve;

/// The scheduler, unless another one is said.
const SCHEDULER: &str = "tags";

/// Run the daemon.
#[derive(Debug, Args)]
#[group(skip)]
#[command(after_help = "\
With --store and no device the store is on a modelled SSD with its data in tanada-data, and every client that reaches it may use \
it; it listens on loopback. With a device clients need a capability (`tanada reservation create`) or the node key, unless \
--unauthenticated says otherwise. `tanada config example --store` shows the configuration to go on from.")]
pub struct Serve {
    #[command(flatten)]
    pub serve: serve::Serve,
    #[command(flatten)]
    pub store: OneStore,
}

/// The one store of a daemon.
#[derive(Debug, Args)]
pub struct OneStore {
    /// Serve just one store: on a block device or file, as `tanada store create` makes one, or to try it on a modelled SSD.
    #[arg(long, value_name = "DEVICE|FILE", num_args = 0..=1, conflicts_with = "config")]
    pub store: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub options: Options,
}

/// How it is served.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// With --store: where clients connect: HOST:PORT, tls:HOST:PORT or unix:/path; several, if given again [default: 127.0.0.1:10881]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// With --store: what the daemon calls it [default: that of the file, or s0]
    #[arg(long)]
    pub name: Option<String>,
    /// With --store: which session is next at the device: tags, rounds, rounds-join, fifo [default: tags]
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// With --store: what the device is assumed to do until it is calibrated: reads, such as 250MB/s.
    #[arg(long, value_name = "RATE")]
    pub read_speed: Option<BytesPerSec>,
    /// And writes.
    #[arg(long, value_name = "RATE")]
    pub write_speed: Option<BytesPerSec>,
    /// With --store: how fast all data are read over once a day.
    #[arg(long, value_name = "RATE")]
    pub scrub: Option<BytesPerSec>,
    /// With --store: let in clients that show nothing; only on loopback and Unix sockets.
    #[arg(long)]
    pub unauthenticated: bool,
    /// With --store: where the admin API listens: HOST:PORT or unix:/path [default: TANADA_ADMIN, or unix:DATA_DIR/admin.sock, and
    /// 127.0.0.1:10880 to look]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Target>,
}

impl Options {
    fn is_said(&self) -> bool {
        let some = [
            !self.listen.is_empty(),
            self.name.is_some(),
            self.scheduler.is_some(),
            self.read_speed.is_some(),
            self.write_speed.is_some(),
            self.scrub.is_some(),
            self.unauthenticated,
            self.admin.is_some(),
        ];
        some.contains(&true)
    }
}

impl OneStore {
    /// The configuration of a daemon with this store; `None`: none is asked for.
    ///
    /// # Errors
    /// [`Usage`]: options of a store, and no --store; an address that is none.
    pub fn text(&self, data_dir: Option<&Path>) -> Result<Option<String>, Usage> {
        match &self.store {
            Some(device) => {
                let data_dir = data_dir.unwrap_or(Path::new(DATA_DIR));
                one_store(device.as_deref(), &self.options, data_dir).map(Some)
            }
            None if self.options.is_said() => Err(Usage(
                "--listen, --name, --scheduler, --read-speed, --write-speed, --scrub, --unauthenticated and --admin are of a \
                 store: add --store, or write them into the configuration"
                    .to_owned(),
            )),
            None => Ok(None),
        }
    }
}

/// Runs the daemon until a signal ends it.
pub fn run(wanted: Serve) -> anyhow::Result<()> {
    let serve = wanted.serve;
    match wanted.store.text(serve.data_dir.as_deref())? {
        None => serve::run(serve),
        Some(text) => {
            let config = config::read(&text, "what was said on the command line", None)?;
            let origin = Loaded::built_in("tanada serve --store");
            serve::start(config, origin, serve.log_format)
        }
    }
}

/// Prints a configuration to go on from.
pub fn print_example(
    file: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    store: &OneStore,
) -> anyhow::Result<()> {
    match store.text(data_dir.as_deref())? {
        Some(text) => show::text(&text),
        None => serve::run(serve::Serve {
            config: file,
            data_dir,
            check: false,
            verify: false,
            print_config: true,
            log_format: LogFormat::Text,
            json: false,
        }),
    }
}

/// A configuration of one store.
fn one_store(device: Option<&Path>, options: &Options, data_dir: &Path) -> Result<String, Usage> {
    let quote = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let path = |path: &Path| quote(&path.display().to_string());
    let name = match (&options.name, device) {
        (Some(name), _) => name.clone(),
        (None, Some(device)) => name_of(device),
        (None, None) => "s0".to_owned(),
    };
    let made_of = match device {
        Some(device) => format!("path = {}\n", path(device)),
        None => format!(
            "model = \"ssd-sata-mlc\"          # tanada model list\nsize = \"4GiB\"\nfile = {}\n",
            path(&data_dir.join(format!("{name}.img")))
        ),
    };
    let admin = admin(options)?;
    let admin = admin.map(|at| format!("\n[admin]\nlisten = [{}]\n", quote(&at.to_string())));
    let listen: Vec<String> = match &options.listen[..] {
        [] => vec![quote(LISTEN)],
        listen => listen.iter().map(|address| quote(address)).collect(),
    };
    Ok(format!(
        "data_dir = {}\n\n[[device]]\nname = \"disk0\"\n{made_of}\
         \n[[store]]\nname = {}\ndevice = \"disk0\"\nlisten = [{}]\nscheduler = {}\n{}{}",
        path(data_dir),
        quote(&name),
        listen.join(", "),
        quote(options.scheduler.as_deref().unwrap_or(SCHEDULER)),
        choices(device, options),
        admin.unwrap_or_default()
    ))
}

/// Where the admin API is said to listen.
fn admin(options: &Options) -> Result<Option<Target>, Usage> {
    if options.admin.is_some() {
        return Ok(options.admin.clone());
    }
    let Ok(named) = std::env::var("TANADA_ADMIN") else {
        return Ok(None);
    };
    let wrong = |why| Usage(format!("TANADA_ADMIN '{named}': {why}"));
    named.parse().map(Some).map_err(wrong)
}

/// The lines of a `[[store]]` that are there only where something was chosen.
fn choices(device: Option<&Path>, options: &Options) -> String {
    let mut text = String::new();
    for (key, rate) in [
        ("read_speed", options.read_speed),
        ("write_speed", options.write_speed),
        ("scrub", options.scrub),
    ] {
        if let Some(rate) = rate {
            let _ = writeln!(text, "{key} = \"{}B/s\"", rate.0);
        }
    }
    if device.is_none() {
        text.push_str("create = true                   # if the device is blank\n");
    }
    if options.unauthenticated || device.is_none() {
        text.push_str(
            "unauthenticated = true          # every client that reaches it may use it: on loopback only\n",
        );
    }
    text
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

    #[test]
    fn options_of_a_store_want_a_store() {
        let mut of = OneStore {
            store: None,
            options: Options::default(),
        };
        assert_eq!(of.text(None).unwrap(), None);
        of.options.unauthenticated = true;
        assert!(of.text(None).unwrap_err().0.contains("add --store"));
        of.store = Some(None);
        of.options.admin = Some("unix:admin.sock".parse().unwrap());
        let text = of.text(None).unwrap().unwrap();
        assert!(
            text.contains("name = \"s0\"") && text.contains("unix:admin.sock"),
            "{text}"
        );
    }
}

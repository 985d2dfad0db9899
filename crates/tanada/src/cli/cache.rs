//! `tanada volume give-up` and `accept`: an operator's decision on a cache that a start refused.
//!
//! ```text
//! configuration -> hybrid -> is a daemon using it? -> what is lost -> meant?
//!               -> list of abandoned caches, record of pairs -> what happens next
//! ```
//!
//! The daemon does not run then: both work on the data directory alone. The cache is named by its identity, so that
//! no other one is given up by mistake, and nothing of this stays in a configuration.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use base::Nanos;
use clap::Args;
use config::{self, Backing, Config, HybridConfig, Kind};
use hybrid::{Pair, PairBook};
use report::terminal::{Refused, Usage};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use utoipa::ToSchema;

use super::consent::{self, Loss};
use super::show;
use crate::daemon::common::pairs::{PairFile, identity};
use crate::daemon::common::registry::Registry;
use crate::daemon::common::starts;
use crate::daemon::serve;

/// How often, and how long apart, a lock is looked at again.
const TRIES: u32 = 20;
const BETWEEN: Nanos = Nanos::millis(100);

#[derive(Debug, Args)]
pub struct OfCache {
    /// The hybrid's name.
    pub name: String,
    /// The configuration that the daemon is started with [default: the built-in one]
    pub config: Option<PathBuf>,
    /// The cache, as the refusal names it: 32 hexadecimal digits.
    #[arg(long, value_name = "IDENTITY")]
    pub cache: String,
    /// Where the daemon keeps its files [default: data_dir of the configuration]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// A decision on a cache, and how it is answered.
#[derive(Debug, Args)]
pub struct Decision {
    #[command(flatten)]
    pub of: OfCache,
    #[command(flatten)]
    pub loss: Loss,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A cache that was given up.
#[derive(Debug, Serialize, ToSchema)]
pub struct GivenUp {
    volume: String,
    cache: String,
    /// Is it the one that the volume had last?
    is_last: bool,
    /// May it have had what the slow device has not?
    was_dirty: bool,
}

/// A cache that counts as the right one.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    volume: String,
    cache: String,
    /// Did it fail before? Then its copies of what the slow device has are forgotten.
    failed_before: bool,
}

/// The hybrid that is meant, and where its records are.
pub struct Meant {
    pub config: Config,
    pub hybrid: HybridConfig,
    pub cache: u128,
}

impl Meant {
    pub fn find(of: &OfCache) -> anyhow::Result<Meant> {
        let cache = identity(&of.cache).map_err(Usage)?;
        let data_dir = of.data_dir.as_deref();
        let (text, origin) = serve::load(of.config.as_deref(), data_dir)?;
        let config = config::read(&text, &origin, data_dir)?;
        let hybrid = config.hybrids.iter().find(|it| it.name() == of.name);
        let hybrid = hybrid.cloned().ok_or_else(|| {
            let known: Vec<&str> = config.hybrids.iter().map(HybridConfig::name).collect();
            Usage(format!(
                "{origin} has no [[hybrid]] called '{}' (it has {}); name the configuration that the daemon is \
                 started with: tanada volume ... {} CONFIG --cache {}",
                of.name,
                match known.is_empty() {
                    true => "none".to_owned(),
                    false => known.join(", "),
                },
                of.name,
                of.cache
            ))
        })?;
        let meant = Meant {
            config,
            hybrid,
            cache,
        };
        meant.check_idle()?;
        Ok(meant)
    }

    /// Refuses while a daemon has the hybrid's devices.
    fn check_idle(&self) -> anyhow::Result<()> {
        for path in files(&self.config, &self.hybrid.slow) {
            if stays_locked(&path)? {
                return Err(Refused(format!(
                    "{} is in use, perhaps by a `tanada serve` that has {} open; stop it first",
                    path.display(),
                    self.hybrid.name()
                ))
                .into());
            }
        }
        Ok(())
    }

    pub fn record(&self) -> PairFile {
        PairFile::in_dir(&self.config.data_dir, self.hybrid.name())
    }

    pub fn registry(&self) -> Registry {
        Registry::in_dir(&self.config.data_dir)
    }
}

/// The files and block devices beneath a device or hybrid; of a hybrid, those of its slow device.
fn files(config: &Config, name: &str) -> Vec<PathBuf> {
    if let Some(hybrid) = config.hybrids.iter().find(|it| it.name() == name) {
        return files(config, &hybrid.slow);
    }
    let device = config.devices.iter().find(|it| it.name == name);
    match device.map(|it| &it.kind) {
        Some(Kind::Path { path, .. }) => vec![path.clone()],
        Some(Kind::Model {
            backing: Backing::File(path),
            ..
        }) => vec![path.clone()],
        Some(Kind::Striped { members, .. }) => members
            .iter()
            .flat_map(|member| files(config, member))
            .collect(),
        Some(Kind::Model { .. } | Kind::Memory { .. }) | None => Vec::new(),
    }
}

/// As [`is_locked`], for longer than a daemon that just ended can have it: the kernel closes its rings a moment later.
fn stays_locked(path: &Path) -> anyhow::Result<bool> {
    let mut tries = TRIES;
    while is_locked(path)? {
        if tries == 0 {
            return Ok(true);
        }
        tries -= 1;
        env::Runtime::real(env::RealConfig::default())?
            .block_on(async { env::sleep(BETWEEN).await });
    }
    Ok(false)
}

/// Has another process the lock that a daemon takes?
fn is_locked(path: &Path) -> anyhow::Result<bool> {
    let said = || format!("cannot look at {}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(said),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(io::Error::from(error)).with_context(said),
    }
}

/// What giving a cache up loses, `pair` being the record of it if it is the volume's last; empty: nothing.
fn lost_by_giving_up(pair: Option<&Pair>, meant: &Meant) -> String {
    let (name, slow) = (meant.hybrid.name(), &meant.hybrid.slow);
    match pair {
        Some(Pair { dirty: true, .. }) => {
            format!("what was written to {name} and only its cache has, not {slow}, would be lost")
        }
        Some(_) => String::new(),
        None => format!(
            "what only cache {:032x} has would be lost; it is not the one that {name} had last",
            meant.cache
        ),
    }
}

/// `tanada volume give-up`: what only this cache had is lost from now on.
pub fn give_up(wanted: &Decision) -> anyhow::Result<()> {
    let meant = Meant::find(&wanted.of)?;
    let file = meant.record();
    let record = file.read().map_err(|why| anyhow!(why))?;
    refuse_others(&meant, &file)?;
    let named = record.filter(|pair| pair.cache == Some(meant.cache));
    let lost = lost_by_giving_up(named.as_ref(), &meant);
    if !consent::is_given(meant.hybrid.name(), &lost, &wanted.loss, wanted.json)? {
        return Ok(());
    }
    // The list first: what is on it counts no more, whatever the record says.
    let registry = meant.registry();
    if !registry.read()?.contains(&meant.cache) {
        let added = registry.add(meant.cache);
        added.with_context(|| {
            format!(
                "cannot write the list of abandoned caches in {}",
                meant.config.data_dir.display()
            )
        })?;
    }
    if let Some(pair) = named {
        file.write(&pair.alone())?;
    }
    if named.is_some_and(|pair| pair.dirty) {
        // Else a client of before would go on, as if all it wrote were there.
        starts::note_missed_cache_of(&meant.config.data_dir, meant.hybrid.name())?;
    }
    let answer = GivenUp {
        volume: meant.hybrid.name().to_owned(),
        cache: format!("{:032x}", meant.cache),
        is_last: named.is_some(),
        was_dirty: named.is_some_and(|pair| pair.dirty),
    };
    show::answer(wanted.json, &answer, || given_up(&answer, &meant.hybrid))
}

/// Refuses to give up the cache of another volume.
fn refuse_others(meant: &Meant, file: &PairFile) -> anyhow::Result<()> {
    let other = file.other_with(meant.cache).map_err(|why| anyhow!(why))?;
    let Some(other) = other else { return Ok(()) };
    Err(Refused(format!(
        "cache {:032x} is not given up: it is the one of volume {} ({}); attach its device there, and the right one to \
         {}; if there is no volume {} any more, move that file away first",
        meant.cache,
        other.volume,
        other.path.display(),
        meant.hybrid.name(),
        other.volume
    ))
    .into())
}

fn given_up(answer: &GivenUp, hybrid: &HybridConfig) -> String {
    let (name, slow) = (&answer.volume, &hybrid.slow);
    let lost = match (answer.is_last, answer.was_dirty) {
        (true, true) => format!("What only it had is lost: {name} is what {slow} holds."),
        (true, false) => format!("Nothing is lost: {slow} has everything."),
        (false, _) => format!("It was not the cache that {name} had last."),
    };
    format!(
        "Cache {} is given up. {lost}\nStart the daemon: if {} is blank, or holds this cache, an empty one is made on \
         it.\n",
        answer.cache, hybrid.fast
    )
}

/// `tanada volume accept`: this cache is the right one, although it is of an earlier attachment.
pub fn accept(wanted: &Decision) -> anyhow::Result<()> {
    let meant = Meant::find(&wanted.of)?;
    let name = meant.hybrid.name();
    let file = meant.record();
    let record = file.read().map_err(|why| anyhow!(why))?;
    refuse_wrong(&meant, record.as_ref())?;
    let lost = format!(
        "{name} would go on from an earlier state of its cache: what was written to {name} since, on {} too, could be \
         lost",
        meant.hybrid.slow
    );
    if !consent::is_given(meant.hybrid.name(), &lost, &wanted.loss, wanted.json)? {
        return Ok(());
    }
    let before = record.unwrap_or_default();
    let pair = Pair {
        cache: Some(meant.cache),
        dirty: true,
        // What is known of it stays so; the count of attachments goes on.
        failing: before.failing && before.cache == Some(meant.cache),
        accepted: true,
        ..before
    };
    file.write(&pair)?;
    let answer = Accepted {
        volume: name.to_owned(),
        cache: format!("{:032x}", meant.cache),
        failed_before: pair.failing,
    };
    show::answer(wanted.json, &answer, || accepted(&answer, &meant.hybrid))
}

/// Refuses a cache that was given up, or while another one may be needed.
fn refuse_wrong(meant: &Meant, record: Option<&Pair>) -> anyhow::Result<()> {
    let name = meant.hybrid.name();
    if meant.registry().read()?.contains(&meant.cache) {
        return Err(Refused(format!(
            "cache {:032x} was given up, and counts no more; {name} starts with an empty one",
            meant.cache
        ))
        .into());
    }
    match record {
        Some(Pair {
            cache: Some(other),
            dirty: true,
            ..
        }) if *other != meant.cache => Err(Refused(format!(
            "{name} has a cache that may hold what {} has not: {other:032x}; connect its device, or give that one up \
             first with `tanada volume give-up`",
            meant.hybrid.slow
        ))
        .into()),
        _ => Ok(()),
    }
}

fn accepted(answer: &Accepted, hybrid: &HybridConfig) -> String {
    let slow = &hybrid.slow;
    let then = match answer.failed_before {
        true => format!(
            "it failed before: what it had for {slow} counts, and its copies of what {slow} has are forgotten"
        ),
        false => format!("that {slow} is still the disk it knew is looked at then"),
    };
    format!(
        "Cache {} counts as the one of {}. Start the daemon with its device as {}; {then}.\n",
        answer.cache, answer.volume, hybrid.fast
    )
}

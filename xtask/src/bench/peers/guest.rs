//! One guest: what it is told to do, and the files it leaves.
//!
//! ```text
//! options -> words before guest.sh -> the lab's `vm` -> a folder -> Round
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::cases::{Peer, Phase};
use super::parse::{Counters, Job, Rest, Sample, copied, written_during};
use super::results::Round;
use crate::tidy::tree::project_root;

/// What every guest runs.
const SCRIPT: &str = include_str!("guest.sh");

/// What a guest is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Measure,
    /// Ends as a power cut does.
    Cut,
    Restarted,
}

impl Task {
    fn word(self) -> &'static str {
        match self {
            Task::Measure => "measure",
            Task::Cut => "cut",
            Task::Restarted => "restarted",
        }
    }
}

/// The orders of one guest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orders<'a> {
    pub(super) task: Task,
    pub(super) peers: &'a [Peer],
    pub(super) phases: &'a [Phase],
    pub(super) amounts: Amounts,
    pub(super) seed: u64,
}

/// How much is done in each phase; sizes in MiB, spans in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts {
    pub(super) hot: u64,
    pub(super) run: u64,
    pub(super) warm: u64,
    pub(super) copy: u64,
    pub(super) idle: u64,
}

impl Amounts {
    /// Longer than a guest takes for one peer, in seconds: it has stopped if it takes that.
    fn limit(&self, peers: usize) -> u64 {
        let each = 15 * self.run + 2 * self.warm + self.copy / 10 + 2 * self.idle + 240;
        60 + each * peers as u64
    }
}

/// The disks of a guest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Disks<'a> {
    /// Of 8 GiB and 1 GiB, gone with the guest.
    Own,
    /// Files `slow`, `fast` and `state` in this folder.
    In(&'a Path),
}

impl Disks<'_> {
    fn words(self) -> Vec<String> {
        match self {
            Disks::Own => vec!["slow=hdd:8G".to_owned(), "fast=1G".to_owned()],
            Disks::In(folder) => {
                let at = |name| folder.join(name).display().to_string();
                vec![
                    format!("slow=hdd:{}", at("slow")),
                    format!("fast={}", at("fast")),
                    format!("state={}", at("state")),
                ]
            }
        }
    }
}

/// Where guests come from.
#[derive(Debug)]
pub(super) struct Lab {
    /// The folder with `vm`.
    pub(super) folder: PathBuf,
    /// The daemon that is measured.
    pub(super) program: PathBuf,
}

/// The folder with `vm`, that `TANADA_LAB` names, or `lab` beside the public traces; and whether it is there.
pub(super) fn lab_folder() -> (PathBuf, bool) {
    let named = |name| {
        std::env::var_os(name)
            .filter(|it: &OsString| !it.is_empty())
            .map(PathBuf::from)
    };
    let shared = || named("TANADA_SHARED").unwrap_or_else(|| project_root().join("../shared"));
    let folder = named("TANADA_LAB").unwrap_or_else(|| shared().join("lab"));
    let there = folder.join("vm").is_file();
    (folder.canonicalize().unwrap_or(folder), there)
}

/// The words before the script.
fn preamble(lab: &Lab, orders: &Orders<'_>) -> String {
    let (amounts, seed) = (orders.amounts, orders.seed);
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let peers: Vec<String> = orders.peers.iter().map(|it| it.name()).collect();
    let phases: Vec<String> = orders.phases.iter().map(|it| it.name()).collect();
    format!(
        "LAB={} PROGRAM={} TASK={} PEERS='{}' PHASES='{}' SEED={seed} HOT={} RUN={} WARM={} COPY={} IDLE={}\n",
        quoted(&lab.folder),
        quoted(&lab.program),
        orders.task.word(),
        peers.join(" "),
        phases.join(" "),
        amounts.hot,
        amounts.run,
        amounts.warm,
        amounts.copy,
        amounts.idle
    )
}

impl Lab {
    /// Runs a guest; its files are in `folder` afterwards. What it says goes to standard error.
    ///
    /// # Errors
    /// If it did not come to its end; a power cut is the end of one with [`Task::Cut`].
    pub(super) fn run(&self, orders: &Orders<'_>, disks: Disks<'_>, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let mut command = Command::new(self.folder.join("vm"));
        command
            .args([
                "-t",
                &orders.amounts.limit(orders.peers.len()).to_string(),
                "-o",
            ])
            .arg(folder);
        for disk in disks.words() {
            command.args(["-d", &disk]);
        }
        let script = preamble(self, orders) + SCRIPT;
        command
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::io::stderr()));
        if orders.task == Task::Cut {
            // The lab calls it dead, and shows its last words: no news.
            command.stderr(Stdio::null());
        }
        let status = command
            .status()
            .with_context(|| format!("cannot start {}", self.folder.join("vm").display()))?;
        let expected = if orders.task == Task::Cut { 125 } else { 0 };
        anyhow::ensure!(
            status.code() == Some(expected),
            "the guest ended with {status}; {} has its console",
            folder.display()
        );
        Ok(())
    }
}

/// The files of one phase.
fn sample(folder: &Path, peer: Peer, phase: Phase) -> Result<Option<Sample>> {
    let name = |ending: &str| format!("{}.{}.{ending}", peer.name(), phase.name());
    let file = |ending: &str| fs::read_to_string(folder.join(name(ending))).ok();
    let (Some(before), Some(after)) = (file("before"), file("after")) else {
        return Ok(None);
    };
    let read = || {
        let (before, after) = (Counters::of(&before)?, Counters::of(&after)?);
        let mut sample = Sample::between(&before, &after);
        sample.job = file("json").map(|text| Job::of(&text)).transpose()?;
        let samples = file("samples").map(|text| written_during(&text));
        sample.slow_during = samples.transpose()?;
        match (phase, file("seconds")) {
            (Phase::Copy, Some(text)) => sample.copy_mib_per_s = Some(copied(&text)?),
            (Phase::Idle, Some(text)) => sample.rest = Some(Rest::of(&text)?),
            _ => {}
        }
        anyhow::Ok(sample)
    };
    read().map(Some).with_context(|| name("*"))
}

/// What a guest left in `folder`. A phase whose files are not what the guest writes is absent, and says why.
pub(super) fn round(folder: &Path) -> Round {
    let mut round = Round::default();
    for peer in Peer::all() {
        if let Ok(why) = fs::read_to_string(folder.join(format!("{}.absent", peer.name()))) {
            round.absent.insert(peer, why);
        }
        for phase in Phase::all() {
            match sample(folder, peer, phase) {
                Ok(Some(sample)) => {
                    round.samples.insert((peer, phase), sample);
                }
                Ok(None) => {}
                // Data that were lost, say: the other phases count all the same.
                Err(error) => {
                    let why = round.absent.entry(peer).or_default();
                    *why = format!("{why}\n{error:#}").trim().to_owned();
                }
            }
        }
    }
    round
}

/// Processor time of the fio that did nothing, in seconds.
///
/// # Errors
/// If the guest noted none.
pub(super) fn floor(folder: &Path) -> Result<f64> {
    let of = |ending: &str| -> Result<Counters> {
        let path = folder.join(format!("floor.floor.{ending}"));
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Counters::of(&text)
    };
    Ok(Sample::between(&of("before")?, &of("after")?).cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_the_script_are_all_that_it_asks_for() {
        let lab = Lab {
            folder: "/the lab".into(),
            program: "/it's/tanada".into(),
        };
        let amounts = Amounts {
            hot: 64,
            run: 10,
            warm: 20,
            copy: 2048,
            idle: 60,
        };
        let orders = Orders {
            task: Task::Cut,
            peers: &[Peer::Bare, Peer::TanadaUblk],
            phases: &[Phase::Cold1],
            amounts,
            seed: 7,
        };
        let words = preamble(&lab, &orders);
        assert_eq!(
            words,
            "LAB='/the lab' PROGRAM='/it'\\''s/tanada' TASK=cut PEERS='bare tanada-ublk' PHASES='cold-1' SEED=7 HOT=64 \
             RUN=10 WARM=20 COPY=2048 IDLE=60\n"
        );
        let asked = SCRIPT
            .lines()
            .find(|line| line.contains("before it stand:"))
            .expect("the head names them");
        for word in asked
            .split_whitespace()
            .filter(|it| it.chars().all(|c| c.is_ascii_uppercase()))
        {
            assert!(words.contains(&format!("{word}=")), "{word}");
        }
    }

    #[test]
    fn a_phase_that_failed_is_named_and_the_others_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let put =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("ours");
        for phase in ["burst", "verified"] {
            put(
                &format!("tanada-ublk.{phase}.before"),
                include_str!("testdata/tanada-ublk.burst.before"),
            );
            put(
                &format!("tanada-ublk.{phase}.after"),
                include_str!("testdata/tanada-ublk.burst.after"),
            );
        }
        put(
            "tanada-ublk.burst.json",
            include_str!("testdata/bcache.warm-read-1.json"),
        );
        put("tanada-ublk.verified.json", "{\"jobs\": [{\"error\": 84}]}");
        put("dm-cache.absent", "no module\n");
        let round = round(folder.path());
        let sample = &round.samples[&(Peer::TanadaUblk, Phase::Burst)];
        assert_eq!(sample.slow.writes, 6018);
        assert_eq!(round.samples.len(), 1);
        assert_eq!(round.absent[&Peer::DmCache], "no module\n");
        assert_eq!(
            round.absent[&Peer::TanadaUblk],
            "tanada-ublk.verified.*: fio met error 84"
        );
    }

    #[test]
    fn the_script_knows_every_peer_and_phase() {
        for phase in Phase::all().into_iter().filter(|it| !it.is_after_cut()) {
            assert!(
                SCRIPT.contains(&format!("wanted {} ", phase.name())),
                "{}",
                phase.name()
            );
        }
        for phase in [Phase::Restarted, Phase::Verified] {
            assert!(SCRIPT.contains(&phase.name()), "{}", phase.name());
        }
        for peer in [
            Peer::Bare,
            Peer::Bcache,
            Peer::TanadaNbd,
            Peer::TanadaDefault,
        ] {
            assert!(SCRIPT.contains(&peer.name()), "{}", peer.name());
        }
    }
}

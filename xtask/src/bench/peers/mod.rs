//! How do disks made of a slow and a fast one compare, over the same two disks, in one kernel?
//!
//! ```text
//! each round: one guest of the lab -> every peer in turn: up -> cold, warming, warm, copy, burst, idle -> down
//!             for each peer a guest whose power is cut, and one that finds what the disks hold
//!          -> files -> samples -> spread, ratios within a guest, aims
//! ```
//!
//! All figures are *emulated*: a real kernel and real programs on an emulated processor, over a model of a 7,200 rpm disk
//! and a disk in the host's memory. The processor taxes programs more than the kernel (see docs/peers.md), so what reached
//! the slow disk says more than what the processor bounds.
//!
//! The lab is the folder that `TANADA_LAB` names, or `lab` in the one that `TANADA_SHARED` names (`../shared` beside the
//! project without it). Where there is none the benchmark says so, and does nothing.
//!
//! Always true: what belongs to one round was measured in guests of one run, and a round that was broken off is begun anew.

mod cases;
mod guest;
mod parse;
mod report;
mod results;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::shell::{built_program, cargo, run as run_command};
use crate::tidy::tree::project_root;
use cases::{Peer, Phase};
use guest::{Amounts, Disks, Lab, Orders, Task};
use results::{Results, Round};

/// What `cargo xtask bench peers` takes.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench peers", no_binary_name = true)]
struct Options {
    /// How often everything is measured; about half an hour each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Short phases: six minutes a round, and figures to match
    #[arg(long)]
    quick: bool,
    /// Only these peers
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Only these phases
    #[arg(long, value_delimiter = ',')]
    phases: Vec<Phase>,
    /// Where the guests' files stay
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the rounds that are in that folder, and go on with the others
    #[arg(long)]
    resume: bool,
    /// The daemon to measure, instead of a release build of this tree
    #[arg(long)]
    program: Option<PathBuf>,
    /// One array of rows on standard output instead of tables
    #[arg(long)]
    json: bool,
}

impl Options {
    fn amounts(&self) -> Amounts {
        match self.quick {
            false => Amounts {
                hot: 64,
                run: 10,
                warm: 20,
                copy: 2048,
                idle: 60,
            },
            true => Amounts {
                hot: 64,
                run: 2,
                warm: 4,
                copy: 256,
                idle: 10,
            },
        }
    }

    fn peers(&self) -> Vec<Peer> {
        chosen(&self.peers, Peer::all())
    }

    fn phases(&self) -> Vec<Phase> {
        chosen(&self.phases, Phase::all())
    }
}

/// Those that were named, each once and in their own order; all if none was.
fn chosen<T: Copy + PartialEq>(named: &[T], all: Vec<T>) -> Vec<T> {
    match named.is_empty() {
        true => all,
        false => all.into_iter().filter(|it| named.contains(it)).collect(),
    }
}

/// The order of a round: each peer is first, second, ... in some round.
fn turned<T: Copy>(all: &[T], round: usize) -> Vec<T> {
    let mut turned = all.to_vec();
    if !turned.is_empty() {
        turned.rotate_left(round % all.len());
    }
    turned
}

/// Runs the comparison.
///
/// # Errors
/// If a guest cannot be run or leaves something else than figures, or an option is not understood.
pub fn run(args: &[String]) -> Result<()> {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            return Ok(());
        }
        Err(error) => bail!("{error}"),
    };
    anyhow::ensure!(options.rounds > 0, "--rounds must be at least 1");
    let (folder, there) = guest::lab_folder();
    if !there {
        eprintln!(
            "bench peers: skipped: no {}; TANADA_LAB names the folder with a `vm` that boots guests",
            folder.join("vm").display()
        );
        return Ok(());
    }
    let usual = || project_root().join("target/bench-peers");
    let dir = options.dir.clone().unwrap_or_else(usual);
    if !options.resume && dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot clear {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let bench = Bench {
        lab: Lab {
            folder,
            program: program(&options)?,
        },
        dir: dir.canonicalize()?,
        options,
    };
    let load_before = load();
    let results = bench.measure()?;
    if bench.options.json {
        println!("{}", serde_json::to_string_pretty(&results.rows())?);
    } else {
        print!("{}", report::report(&bench.setup(), &results));
        println!("\nLoad average before: {load_before}; after: {}", load());
    }
    Ok(())
}

fn program(options: &Options) -> Result<PathBuf> {
    if let Some(program) = &options.program {
        return program
            .canonicalize()
            .with_context(|| format!("there is no {}", program.display()));
    }
    eprintln!("bench peers: building tanada in release mode");
    run_command(cargo().args(["build", "--release", "--quiet", "-p", "tanada"]))?;
    built_program()
}

struct Bench {
    options: Options,
    lab: Lab,
    dir: PathBuf,
}

impl Bench {
    fn measure(&self) -> Result<Results> {
        let mut rounds = Vec::new();
        let mut floors = Vec::new();
        for number in 0..self.options.rounds {
            let folder = self.dir.join(format!("round-{}", number + 1));
            let done = folder.join("done");
            if !done.exists() {
                if folder.exists() {
                    fs::remove_dir_all(&folder)
                        .with_context(|| format!("cannot clear {}", folder.display()))?;
                }
                eprintln!(
                    "bench peers: round {} of {}",
                    number + 1,
                    self.options.rounds
                );
                self.run_round(number, &folder)?;
                File::create(&done).with_context(|| format!("cannot create {}", done.display()))?;
            }
            rounds.push(read_round(&folder));
            floors.push(guest::floor(&folder)?);
        }
        floors.sort_by(f64::total_cmp);
        Ok(Results {
            rounds,
            floor: floors[floors.len() / 2],
        })
    }

    fn run_round(&self, number: usize, folder: &Path) -> Result<()> {
        let (peers, phases) = (turned(&self.options.peers(), number), self.options.phases());
        let orders = Orders {
            task: Task::Measure,
            peers: &peers,
            phases: &phases,
            amounts: self.options.amounts(),
            seed: 1000 * (number as u64 + 1),
        };
        self.lab.run(&orders, Disks::Own, folder)?;
        if !phases.iter().any(|phase| phase.is_after_cut()) {
            return Ok(());
        }
        for peer in &peers {
            let (peer, only) = (*peer, std::slice::from_ref(peer));
            if folder.join(format!("{}.absent", peer.name())).exists() {
                continue;
            }
            let disks = KeptDisks::new()?;
            let (cut, after) = (cut_folder(folder, peer), after_folder(folder, peer));
            let disks = Disks::In(disks.0.path());
            for (task, folder) in [(Task::Cut, &cut), (Task::Restarted, &after)] {
                let orders = Orders {
                    task,
                    peers: only,
                    ..orders
                };
                self.lab.run(&orders, disks, folder)?;
            }
        }
        Ok(())
    }

    fn setup(&self) -> String {
        let amounts = self.options.amounts();
        format!(
            "Linux on an emulated processor, a modelled disk of 7,200 rpm and 8 GiB, 1 GiB of memory as the fast one; \
             hot set {} MiB, {} s a phase, warming {} s, copy {} MiB, {} s of idleness.",
            amounts.hot, amounts.run, amounts.warm, amounts.copy, amounts.idle
        )
    }
}

fn cut_folder(round: &Path, peer: Peer) -> PathBuf {
    round.join(format!("{}-cut", peer.name()))
}

fn after_folder(round: &Path, peer: Peer) -> PathBuf {
    round.join(format!("{}-after", peer.name()))
}

/// All that a round's guests left.
fn read_round(folder: &Path) -> Round {
    let mut round = guest::round(folder);
    for peer in Peer::all() {
        let after = after_folder(folder, peer);
        if after.exists() {
            let restarted = guest::round(&after);
            round.samples.extend(restarted.samples);
            round.absent.extend(restarted.absent);
        }
    }
    round
}

/// Disks that outlive a guest, in memory where there is a file system of it.
struct KeptDisks(tempfile::TempDir);

impl KeptDisks {
    fn new() -> Result<KeptDisks> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = tempfile::Builder::new()
            .prefix("tanada-peers-")
            .tempdir_in(place)?;
        for (name, gib) in [("slow", 8.0), ("fast", 1.0), ("state", 0.0625)] {
            let file = File::create(folder.path().join(name))?;
            file.set_len((gib * f64::from(1 << 30)) as u64)?;
        }
        Ok(KeptDisks(folder))
    }
}

/// How busy the machine was, for the reader: figures from a busy one say less.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_and_phases_are_chosen_by_name_and_keep_their_order() {
        let args = [
            "--peers",
            "tanada-ublk,bare",
            "--phases",
            "warm-read-16,cold-1",
        ];
        let options = Options::try_parse_from(args).expect("known names");
        assert_eq!(options.peers(), [Peer::Bare, Peer::TanadaUblk]);
        assert_eq!(options.phases(), [Phase::Cold1, Phase::WarmRead16]);
        let all = Options::try_parse_from::<_, &str>([]).expect("no option is needed");
        assert_eq!((all.peers().len(), all.phases().len()), (8, 15));
        assert!(Options::try_parse_from(["--peers", "zfs"]).is_err());
    }

    #[test]
    fn each_peer_is_first_in_some_round() {
        assert_eq!(turned(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(turned(&[1, 2, 3], 4), [2, 3, 1]);
        assert!(turned::<u8>(&[], 1).is_empty());
    }
}

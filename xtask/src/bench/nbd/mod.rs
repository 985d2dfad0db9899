//! How fast is `tanada serve`, beside other NBD servers on the same machine in the same minutes?
//!
//! ```text
//! each round, in turning order:  server up -> warm -> every case with fio's nbd engine -> server down
//!
//! file    tanada | qemu-storage-daemon | bare loop   one file on disk, O_DIRECT
//!         nbdkit file                                a copy of it, through the page cache
//! memory  tanada | nbdkit memory                     filled before it is measured
//! hit     tanada hybrid, warm | the same program over the fast device alone
//! ```
//!
//! All figures are real: this machine, NBD over a Unix socket, fio as the client. The bare loop is
//! fio's io_uring engine with `direct=1` on the file itself: no server, no socket. nbdkit has its own
//! copy because pages of a file in the page cache slow every O_DIRECT reader of that file.
//!
//! Server CPU is user and system time of the whole process from `/proc/PID/stat`, over the requests fio
//! counted. A ratio is taken within one round, so both sides saw the same load on the machine.

mod cases;
mod report;
mod results;
mod server;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;

use crate::shell::{built_program, cargo, run as run_command};
use crate::tidy::tree::project_root;
use cases::{Case, Group, Method};
use report::{Setup, report};
use results::{Results, Sample, rows};
use server::{Server, SocketDir};

/// What `cargo xtask bench nbd` takes.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench nbd", no_binary_name = true)]
struct Options {
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds per case and round
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of the file
    #[arg(long, default_value_t = 2048)]
    file_mib: u64,
    /// Size of the memory device
    #[arg(long, default_value_t = 512)]
    memory_mib: u64,
    /// Only one part: file, memory or hit
    #[arg(long)]
    only: Option<Group>,
    /// Where the files and sockets go; on a disk, not tmpfs
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One array of rows on standard output instead of tables
    #[arg(long)]
    json: bool,
}

/// Runs the comparison.
///
/// # Errors
/// If a server or fio cannot be run, or an option is not understood.
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
    let dir = options
        .dir
        .clone()
        .unwrap_or_else(|| project_root().join("target/bench-nbd"));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = dir.canonicalize()?;
    eprintln!("bench nbd: building tanada in release mode");
    run_command(cargo().args(["build", "--release", "--quiet", "-p", "tanada"]))?;

    let mut bench = Bench {
        tanada: built_program()?,
        socket_dir: SocketDir::new()?,
        qemu_aio: None,
        dir,
        options,
    };
    let groups: Vec<Group> = match bench.options.only {
        Some(group) => vec![group],
        None => vec![Group::File, Group::Memory, Group::Hit],
    };
    if groups.contains(&Group::File) {
        let mib = bench.options.file_mib;
        bench.prepare_files(&[(bench.file(), mib), (bench.copy(), mib)])?;
    }
    if groups.contains(&Group::Hit) {
        bench.prepare_files(&[(bench.slow(), HIT_MIB)])?;
        // Blank: the cache is made on it.
        let fast = File::create(bench.fast())?;
        fast.set_len((2 * HIT_MIB) << 20)?;
    }
    let mut all: Vec<Results> = groups.into_iter().map(Results::new).collect();
    let load_before = load();
    for round in 0..bench.options.rounds {
        for results in &mut all {
            bench.round(round, results)?;
        }
    }
    if bench.options.json {
        println!("{}", serde_json::to_string_pretty(&rows(&all))?);
    } else {
        print!("{}", report(&bench.setup(), &all));
        println!("\nLoad average before: {load_before}; after: {}", load());
    }
    bench.remove_files();
    Ok(())
}

/// What the hybrid holds, and its cache has room for twice.
const HIT_MIB: u64 = 512;

struct Bench {
    options: Options,
    tanada: PathBuf,
    dir: PathBuf,
    socket_dir: SocketDir,
    /// How qemu-storage-daemon does its I/O: `io_uring`, or `native` where that is refused.
    qemu_aio: Option<&'static str>,
}

impl Bench {
    fn file(&self) -> PathBuf {
        self.dir.join("file.img")
    }

    /// nbdkit's own, see the head of this file.
    fn copy(&self) -> PathBuf {
        self.dir.join("copy.img")
    }

    /// The hybrid's slow device.
    fn slow(&self) -> PathBuf {
        self.dir.join("slow.img")
    }

    /// The hybrid's fast device.
    fn fast(&self) -> PathBuf {
        self.dir.join("fast.img")
    }

    /// Real data in all: sparse or unwritten parts would be answered without the disk.
    fn prepare_files(&self, files: &[(PathBuf, u64)]) -> Result<()> {
        for (path, mib) in files {
            eprintln!("bench nbd: writing {} of {mib} MiB", path.display());
            let mut file =
                File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            let mut chunk = vec![0_u8; 1 << 20];
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..*mib {
                for word in chunk.chunks_exact_mut(8) {
                    // Xorshift: contents that neither compress nor read as zeroes.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    word.copy_from_slice(&state.to_le_bytes());
                }
                file.write_all(&chunk)?;
            }
            file.sync_all()?;
            if *path != self.copy() {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
        }
        Ok(())
    }

    fn remove_files(&self) {
        for path in [self.file(), self.copy(), self.slow(), self.fast()] {
            // Only a gigabyte to tidy up; the figures are out already.
            let _ = fs::remove_file(path);
        }
    }

    fn round(&mut self, round: usize, results: &mut Results) -> Result<()> {
        let group = results.group;
        let methods = group.methods();
        for turn in 0..methods.len() {
            // Everybody is first, second, ... in some round.
            let place = (turn + round) % methods.len();
            let method = methods[place];
            eprintln!(
                "bench nbd: round {} of {}: {} {}",
                round + 1,
                self.options.rounds,
                group.name(),
                method.name()
            );
            let server = match method {
                Method::Bare => None,
                _ => Some(self.start(group, method)?),
            };
            self.warm(group, method, server.as_ref())?;
            for (i, case) in group.cases().iter().enumerate() {
                let sample = self.measure(group, *case, round, server.as_ref())?;
                results.samples[place][i].push(sample);
            }
            if (group, method) == (Group::Hit, Method::Tanada) {
                self.check_hits()?;
            }
        }
        Ok(())
    }

    fn start(&mut self, group: Group, method: Method) -> Result<Server> {
        if method == Method::Qemu && self.qemu_aio.is_none() {
            // Older builds come without io_uring: try once, then stay with what works.
            match self.launch(group, method, "io_uring") {
                Ok(server) => {
                    self.qemu_aio = Some("io_uring");
                    return Ok(server);
                }
                Err(error) => {
                    eprintln!(
                        "bench nbd: qemu-storage-daemon refuses aio=io_uring, taking native: {error:#}"
                    );
                    self.qemu_aio = Some("native");
                }
            }
        }
        self.launch(group, method, self.qemu_aio.unwrap_or("io_uring"))
    }

    fn launch(&self, group: Group, method: Method, aio: &str) -> Result<Server> {
        let socket = self.socket_dir.0.join("nbd.sock");
        let _ = fs::remove_file(&socket);
        let (command, export) = match method {
            Method::Tanada | Method::Plain => {
                let mut command = Command::new(&self.tanada);
                command
                    .arg("serve")
                    .arg(self.tanada_config(group, method, &socket)?);
                (command, "bench")
            }
            Method::Qemu => {
                let mut command = Command::new("qemu-storage-daemon");
                let device = format!(
                    "driver=file,node-name=bench,filename={},cache.direct=on,aio={aio}",
                    self.file().display()
                );
                let server = format!("addr.type=unix,addr.path={}", socket.display());
                command
                    .args(["--blockdev", &device, "--nbd-server", &server])
                    .args(["--export", "type=nbd,id=bench,node-name=bench,writable=on"]);
                (command, "bench")
            }
            Method::Nbdkit => {
                let mut command = Command::new("nbdkit");
                command.arg("--foreground").arg("--unix").arg(&socket);
                match group {
                    Group::File => command.arg("file").arg(self.copy()),
                    Group::Memory | Group::Hit => {
                        command.args(["memory", &format!("{}M", self.options.memory_mib)])
                    }
                };
                (command, "")
            }
            Method::Bare => unreachable!("the bare loop has no server"),
        };
        Server::start(method.name(), command, &self.dir, &socket, export)
    }

    fn tanada_config(&self, group: Group, method: Method, socket: &Path) -> Result<PathBuf> {
        let file = |name: &str, path: &Path| {
            format!(
                "[[device]]\nname = \"{name}\"\npath = \"{}\"\ndirect = \"yes\"\n",
                path.display()
            )
        };
        let device = match (group, method) {
            (Group::File, _) => file("bench", &self.file()),
            (Group::Memory, _) => format!(
                "[[device]]\nname = \"bench\"\nmemory = true\nsize = \"{}MiB\"\n",
                self.options.memory_mib
            ),
            (Group::Hit, Method::Plain) => file("bench", &self.fast()),
            // Whatever is read shall be there afterwards.
            (Group::Hit, _) => format!(
                "{}{}[[hybrid]]\nname = \"bench\"\nslow = \"slow\"\nfast = \"fast\"\nmode = \"cache\"\n\
                 admission = \"always\"\nsequential_bypass = \"off\"\n",
                file("slow", &self.slow()),
                file("fast", &self.fast())
            ),
        };
        let path = self.dir.join(format!("tanada-{}.toml", group.name()));
        let text = format!(
            "data_dir = \"{dir}\"\n\n{device}\n\
             [[export]]\ndevice = \"bench\"\nnbd = \"unix:{nbd}\"\n\n\
             [admin]\nlisten = \"unix:{admin}\"\n",
            dir = self.dir.join("tanada-data").display(),
            nbd = socket.display(),
            admin = socket.with_extension("admin").display(),
        );
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Brings everybody to the same state before the first case.
    fn warm(&self, group: Group, method: Method, server: Option<&Server>) -> Result<()> {
        if (group, method) == (Group::Hit, Method::Tanada) {
            // In an order that has nothing to do with that of the disk; what was being fetched is there the second time.
            for _ in 0..2 {
                let mut fill = self.fio("randread", "1m", 4, 0, server);
                fill.arg(format!("--size={HIT_MIB}m"))
                    .arg("--norandommap=0");
                result_of(&mut fill)?;
            }
            return Ok(());
        }
        let rw = match group {
            Group::Hit => "read",
            Group::File | Group::Memory => "write",
        };
        let mut fio = self.fio(rw, "1m", 4, 0, server);
        match group {
            // Memory that was never written may be answered without being touched: fill it.
            Group::Memory => fio.arg("--size=100%"),
            Group::File | Group::Hit => fio.args(["--time_based", "--runtime=1"]),
        };
        result_of(&mut fio).map(|_| ())
    }

    /// Refuses figures of hits that were none.
    fn check_hits(&self) -> Result<()> {
        let admin = self.socket_dir.0.join("nbd.admin");
        let status = Command::new(&self.tanada)
            .args(["status", "--json"])
            .env("TANADA_ADMIN", format!("unix:{}", admin.display()))
            .output()?;
        let status: Value = serde_json::from_slice(&status.stdout).context("no status")?;
        let cache = &status["volumes"][0]["cache"];
        let sum = |key: &str| -> Option<u64> {
            let reads = [&cache["random_reads"], &cache["sequential_reads"]];
            reads.iter().map(|of| of[key].as_u64()).sum()
        };
        let (fast, slow) = (sum("bytes_fast"), sum("bytes_slow"));
        let (fast, slow) = fast
            .zip(slow)
            .context("the status lacks the cache's reads")?;
        // The first fill of a round reads everything from the slow device once.
        let filled = HIT_MIB << 20;
        anyhow::ensure!(
            slow <= filled + fast / 100,
            "{slow} bytes came from the slow device and {fast} from the fast one: these are no hits"
        );
        Ok(())
    }

    fn measure(
        &self,
        group: Group,
        case: Case,
        round: usize,
        server: Option<&Server>,
    ) -> Result<Sample> {
        let mut fio = self.fio(case.rw, case.block, case.depth, round, server);
        if group == Group::Hit {
            fio.arg(format!("--size={HIT_MIB}m"));
        }
        fio.arg("--time_based")
            .arg(format!("--runtime={}", self.options.seconds));
        let before = server.map(Server::cpu_seconds).transpose()?;
        let result = result_of(&mut fio)?;
        let after = server.map(Server::cpu_seconds).transpose()?;
        let job = &result["jobs"][0];
        let side = if case.rw.ends_with("read") {
            "read"
        } else {
            "write"
        };
        let number = |value: &Value| value.as_f64().context("fio's answer lacks a number");
        let ios = number(&job[side]["total_ios"])?;
        anyhow::ensure!(ios > 0.0, "fio did nothing in case {}", case.name);
        let cpu_seconds = match (before, after) {
            (Some(before), Some(after)) => after - before,
            _ => {
                let percent = number(&job["usr_cpu"])? + number(&job["sys_cpu"])?;
                percent / 100.0 * number(&job["job_runtime"])? / 1000.0
            }
        };
        Ok(Sample {
            iops: number(&job[side]["iops"])?,
            mb_per_s: number(&job[side]["bw_bytes"])? / 1e6,
            cpu_us_per_io: cpu_seconds * 1e6 / ios,
        })
    }

    fn fio(
        &self,
        rw: &str,
        block: &str,
        depth: u32,
        round: usize,
        server: Option<&Server>,
    ) -> Command {
        let mut fio = Command::new("fio");
        fio.current_dir(&self.dir).stdin(Stdio::null()).args([
            "--name=bench",
            "--thread",
            "--output-format=json",
            "--norandommap",
            "--randrepeat=1",
        ]);
        fio.arg(format!("--rw={rw}"))
            .arg(format!("--bs={block}"))
            .arg(format!("--iodepth={depth}"))
            // The same places for everybody in one round, others in the next.
            .arg(format!("--randseed={}", 1000 + round));
        match server {
            Some(server) => fio
                .arg("--ioengine=nbd")
                .arg(format!("--uri={}", server.uri)),
            None => fio
                .args(["--ioengine=io_uring", "--direct=1"])
                .arg(format!("--filename={}", self.file().display())),
        };
        fio
    }

    fn setup(&self) -> Setup<'_> {
        Setup {
            rounds: self.options.rounds,
            seconds: self.options.seconds,
            file_mib: self.options.file_mib,
            memory_mib: self.options.memory_mib,
            dir: &self.dir,
            aio: self.qemu_aio.unwrap_or("io_uring"),
        }
    }
}

/// How busy the machine was, for the reader: figures from a busy one say less.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

/// Runs fio and reads its answer.
fn result_of(fio: &mut Command) -> Result<Value> {
    let out = fio
        .output()
        .context("cannot start fio; try `cargo xtask setup`")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!(
            "fio failed ({}): {}{text}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
    }
    // Notes may stand before the JSON.
    let start = text.find('{').context("fio answered without JSON")?;
    serde_json::from_str(&text[start..]).context("fio's answer is no JSON")
}

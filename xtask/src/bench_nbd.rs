//! How fast is `tanada serve`, beside other NBD servers on the same machine in the same minutes?
//!
//! ```text
//! each round, in turning order:  server up -> warm -> every case with fio's nbd engine -> server down
//!
//! file    tanada | qemu-storage-daemon | bare loop   one file on disk, O_DIRECT
//!         nbdkit file                                a copy of it, through the page cache
//! memory  tanada | nbdkit memory                     filled before it is measured
//! ```
//!
//! All figures are real: this machine, NBD over a Unix socket, fio as the client. The bare loop is
//! fio's io_uring engine with `direct=1` on the file itself: no server, no socket. nbdkit has its own
//! copy because pages of a file in the page cache slow every O_DIRECT reader of that file.
//!
//! Server CPU is user and system time of the whole process from `/proc/PID/stat`, over the requests fio
//! counted. A ratio is taken within one round, so both sides saw the same load on the machine.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::shell::{cargo, run as run_command};
use crate::tidy::tree::project_root;

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
    /// Only one half: file or memory
    #[arg(long)]
    only: Option<Group>,
    /// Where the files and sockets go; on a disk, not tmpfs
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One array of rows on standard output instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    File,
    Memory,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::File => "file",
            Group::Memory => "memory",
        }
    }

    fn methods(self) -> &'static [Method] {
        match self {
            Group::File => &[Method::Tanada, Method::Qemu, Method::Nbdkit, Method::Bare],
            Group::Memory => &[Method::Tanada, Method::Nbdkit],
        }
    }

    /// Whom the aims compare with.
    fn peer(self) -> Method {
        match self {
            Group::File => Method::Qemu,
            Group::Memory => Method::Nbdkit,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Tanada,
    Qemu,
    Nbdkit,
    Bare,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Tanada => "tanada",
            Method::Qemu => "qemu-storage-daemon",
            Method::Nbdkit => "nbdkit",
            Method::Bare => "bare-io_uring",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: u32,
}

const CASES: [Case; 6] = [
    case("4k-randread-qd1", "randread", "4k", 1),
    case("4k-randread-qd32", "randread", "4k", 32),
    case("4k-randwrite-qd1", "randwrite", "4k", 1),
    case("4k-randwrite-qd32", "randwrite", "4k", 32),
    case("1m-read-qd4", "read", "1m", 4),
    case("1m-write-qd4", "write", "1m", 4),
];

const fn case(name: &'static str, rw: &'static str, block: &'static str, depth: u32) -> Case {
    Case {
        name,
        rw,
        block,
        depth,
    }
}

/// One case of one method in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    iops: f64,
    mb_per_s: f64,
    /// Of the server; of fio itself for the bare loop.
    cpu_us_per_io: f64,
}

#[derive(Debug, Clone, Copy)]
enum Metric {
    Iops,
    MbPerS,
    CpuUsPerIo,
}

impl Metric {
    const ALL: [Metric; 3] = [Metric::Iops, Metric::MbPerS, Metric::CpuUsPerIo];

    fn name(self) -> &'static str {
        match self {
            Metric::Iops => "iops",
            Metric::MbPerS => "throughput",
            Metric::CpuUsPerIo => "cpu-per-io",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Metric::Iops => "1/s",
            Metric::MbPerS => "MB/s",
            Metric::CpuUsPerIo => "us",
        }
    }

    fn of(self, sample: Sample) -> f64 {
        match self {
            Metric::Iops => sample.iops,
            Metric::MbPerS => sample.mb_per_s,
            Metric::CpuUsPerIo => sample.cpu_us_per_io,
        }
    }
}

/// Median, least and greatest of some rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        assert!(!values.is_empty(), "a spread needs at least one round");
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Spread {
            median,
            low: values[0],
            high: values[values.len() - 1],
        }
    }
}

/// All samples of a group: `samples[method][case][round]`, in the order of `methods()` and `CASES`.
struct Results {
    group: Group,
    samples: Vec<Vec<Vec<Sample>>>,
}

impl Results {
    fn new(group: Group) -> Results {
        Results {
            group,
            samples: vec![vec![Vec::new(); CASES.len()]; group.methods().len()],
        }
    }

    fn rounds(&self, method: Method, case: usize) -> &[Sample] {
        let place = self.group.methods().iter().position(|m| *m == method);
        &self.samples[place.expect("the method is of this group")][case]
    }

    fn spread(&self, method: Method, case: usize, metric: Metric) -> Spread {
        let rounds = self.rounds(method, case);
        Spread::of(rounds.iter().map(|sample| metric.of(*sample)).collect())
    }

    /// Tanada over `other`, round by round.
    fn ratio(&self, other: Method, case: usize, metric: Metric) -> Spread {
        let ours = self.rounds(Method::Tanada, case);
        let theirs = self.rounds(other, case);
        assert_eq!(ours.len(), theirs.len(), "every round measures everybody");
        let pairs = ours.iter().zip(theirs);
        Spread::of(
            pairs
                .map(|(ours, theirs)| metric.of(*ours) / metric.of(*theirs))
                .collect(),
        )
    }
}

/// One thing to reach at depth 32, and whether it was.
struct Verdict {
    group: Group,
    case: &'static str,
    what: String,
    reached: Spread,
    aim: f64,
    /// Is less better?
    at_most: bool,
}

impl Verdict {
    fn passes(&self) -> bool {
        if self.at_most {
            self.reached.median <= self.aim
        } else {
            self.reached.median >= self.aim
        }
    }

    fn word(&self) -> &'static str {
        if self.passes() { "pass" } else { "short" }
    }
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    let group = results.group;
    let peer = group.peer();
    let iops_aim = match group {
        Group::File => 1.15,
        Group::Memory => 1.3,
    };
    let mut verdicts = Vec::new();
    for (i, case) in CASES.iter().enumerate() {
        if case.depth != 32 {
            continue;
        }
        let mut add = |what: String, reached, aim, at_most| {
            verdicts.push(Verdict {
                group,
                case: case.name,
                what,
                reached,
                aim,
                at_most,
            });
        };
        let iops = results.ratio(peer, i, Metric::Iops);
        add(format!("IOPS over {}", peer.name()), iops, iops_aim, false);
        let cpu = results.ratio(peer, i, Metric::CpuUsPerIo);
        add(format!("server CPU over {}", peer.name()), cpu, 0.5, true);
        if group == Group::File {
            let bare = results.ratio(Method::Bare, i, Metric::Iops);
            add("IOPS over the bare loop".to_owned(), bare, 0.9, false);
        }
    }
    verdicts
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
        None => vec![Group::File, Group::Memory],
    };
    if groups.contains(&Group::File) {
        bench.prepare_files()?;
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
        print!("{}", bench.report(&all));
        println!("\nLoad average before: {load_before}; after: {}", load());
    }
    bench.remove_files();
    Ok(())
}

/// A short path for sockets: their length is limited to about 100 bytes.
struct SocketDir(PathBuf);

impl SocketDir {
    fn new() -> Result<SocketDir> {
        let path = std::env::temp_dir().join(format!("tanada-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(SocketDir(path))
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // What stays behind on failure is an empty directory below the system's temporary one.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Bench {
    options: Options,
    tanada: PathBuf,
    dir: PathBuf,
    socket_dir: SocketDir,
    /// How qemu-storage-daemon does its I/O: `io_uring`, or `native` where that is refused.
    qemu_aio: Option<&'static str>,
}

/// A server under way; ended when dropped.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        cpu_seconds(&stat).with_context(|| format!("cannot understand {path}"))
    }

    fn stop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may end by itself in between; then no process is left to signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..500 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            pause();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// User and system time of a process from its `stat` line.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The program's name stands in parentheses and may hold anything.
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[expect(
    clippy::disallowed_methods,
    reason = "waits for another process, outside of every runtime"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

impl Bench {
    fn file(&self) -> PathBuf {
        self.dir.join("file.img")
    }

    /// nbdkit's own, see the head of this file.
    fn copy(&self) -> PathBuf {
        self.dir.join("copy.img")
    }

    /// Real data on both: sparse or unwritten parts would be answered without the disk.
    fn prepare_files(&self) -> Result<()> {
        eprintln!(
            "bench nbd: writing two files of {} MiB",
            self.options.file_mib
        );
        for path in [self.file(), self.copy()] {
            let mut file =
                File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            let mut chunk = vec![0_u8; 1 << 20];
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..self.options.file_mib {
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
        }
        rustix::fs::fadvise(
            File::open(self.file())?,
            0,
            None,
            rustix::fs::Advice::DontNeed,
        )?;
        Ok(())
    }

    fn remove_files(&self) {
        for path in [self.file(), self.copy()] {
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
            self.warm(group, server.as_ref())?;
            for (i, case) in CASES.iter().enumerate() {
                let sample = self.measure(*case, round, server.as_ref())?;
                results.samples[place][i].push(sample);
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
        let socket_name = socket.display();
        let mut command;
        let export;
        match method {
            Method::Tanada => {
                export = "bench";
                let config = self.tanada_config(group, &socket)?;
                command = Command::new(&self.tanada);
                command.arg("serve").arg(config);
            }
            Method::Qemu => {
                export = "bench";
                let file = self.file();
                command = Command::new("qemu-storage-daemon");
                command
                    .arg("--blockdev")
                    .arg(format!(
                        "driver=file,node-name=bench,filename={},cache.direct=on,aio={aio}",
                        file.display()
                    ))
                    .args([
                        "--nbd-server",
                        &format!("addr.type=unix,addr.path={socket_name}"),
                    ])
                    .args(["--export", "type=nbd,id=bench,node-name=bench,writable=on"]);
            }
            Method::Nbdkit => {
                export = "";
                command = Command::new("nbdkit");
                command.arg("--foreground").arg("--unix").arg(&socket);
                match group {
                    Group::File => command.arg("file").arg(self.copy()),
                    Group::Memory => {
                        command.args(["memory", &format!("{}M", self.options.memory_mib)])
                    }
                };
            }
            Method::Bare => unreachable!("the bare loop has no server"),
        }
        let log = self.dir.join(format!("{}.log", method.name()));
        let child = command
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}; try `cargo xtask setup`", method.name()))?;
        let mut server = Server {
            child,
            uri: format!("nbd+unix:///{export}?socket={socket_name}"),
        };
        for _ in 0..1000 {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("{} ended with {status}: {}", method.name(), said.trim());
            }
            pause();
        }
        bail!("{} did not open {socket_name} within 10 s", method.name())
    }

    fn tanada_config(&self, group: Group, socket: &Path) -> Result<PathBuf> {
        let device = match group {
            Group::File => format!("path = \"{}\"\ndirect = \"yes\"", self.file().display()),
            Group::Memory => format!("memory = true\nsize = \"{}MiB\"", self.options.memory_mib),
        };
        let path = self.dir.join(format!("tanada-{}.toml", group.name()));
        let text = format!(
            "data_dir = \"{dir}\"\n\n[[device]]\nname = \"bench\"\n{device}\n\n\
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
    fn warm(&self, group: Group, server: Option<&Server>) -> Result<()> {
        let mut fio = self.fio("write", "1m", 4, 0, server);
        match group {
            // Memory that was never written may be answered without being touched: fill it.
            Group::Memory => fio.arg("--size=100%"),
            Group::File => fio.args(["--time_based", "--runtime=1"]),
        };
        result_of(&mut fio).map(|_| ())
    }

    fn measure(&self, case: Case, round: usize, server: Option<&Server>) -> Result<Sample> {
        let mut fio = self.fio(case.rw, case.block, case.depth, round, server);
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

    fn report(&self, all: &[Results]) -> String {
        let mut out = String::new();
        let kernel = rustix::system::uname();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let _ = writeln!(
            out,
            "Real figures: {cores} cores, Linux {}, NBD over a Unix socket, fio as the client, {} rounds of {} s.",
            kernel.release().to_string_lossy(),
            self.options.rounds,
            self.options.seconds
        );
        let _ = writeln!(
            out,
            "Median (least .. greatest); ratios are Tanada's over theirs within one round."
        );
        for results in all {
            match results.group {
                Group::File => {
                    let _ = writeln!(
                        out,
                        "\nFile of {} MiB in {}, O_DIRECT: qemu-storage-daemon with cache.direct=on,aio={}; \
                         the bare loop is fio's io_uring engine with direct=1 (its CPU is fio's); \
                         nbdkit serves a copy through the page cache, so it is no equal.",
                        self.options.file_mib,
                        self.dir.display(),
                        self.qemu_aio.unwrap_or("io_uring"),
                    );
                }
                Group::Memory => {
                    let _ = writeln!(
                        out,
                        "\nMemory device of {} MiB, filled.",
                        self.options.memory_mib
                    );
                }
            }
            for (i, case) in CASES.iter().enumerate() {
                let _ = writeln!(out, "\n{} {}", results.group.name(), case.name);
                let _ = writeln!(
                    out,
                    "  {:<20} {:>28} {:>8} {:>18} {:>22} {:>22}",
                    "", "IOPS", "MB/s", "CPU us/IO", "IOPS ours/theirs", "CPU ours/theirs"
                );
                for method in results.group.methods() {
                    let iops = results.spread(*method, i, Metric::Iops);
                    let rate = results.spread(*method, i, Metric::MbPerS);
                    let cpu = results.spread(*method, i, Metric::CpuUsPerIo);
                    let _ = write!(
                        out,
                        "  {:<20} {:>28} {:>8.0} {:>18}",
                        method.name(),
                        format!("{:.0} ({:.0} .. {:.0})", iops.median, iops.low, iops.high),
                        rate.median,
                        format!("{:.1} ({:.1} .. {:.1})", cpu.median, cpu.low, cpu.high),
                    );
                    if *method != Method::Tanada {
                        let iops = results.ratio(*method, i, Metric::Iops);
                        let cpu = results.ratio(*method, i, Metric::CpuUsPerIo);
                        let _ = write!(out, " {:>22} {:>22}", ratio(iops), ratio(cpu));
                    }
                    out.push('\n');
                }
            }
        }
        out.push_str("\nAims at depth 32\n");
        for verdict in all.iter().flat_map(verdicts) {
            let _ = writeln!(
                out,
                "  {:<5} {:<6} {:<18} {:<36} {} (aim {} {})",
                verdict.word(),
                verdict.group.name(),
                verdict.case,
                verdict.what,
                ratio(verdict.reached),
                if verdict.at_most {
                    "at most"
                } else {
                    "at least"
                },
                verdict.aim
            );
        }
        out
    }
}

fn ratio(spread: Spread) -> String {
    format!(
        "{:.2} ({:.2} .. {:.2})",
        spread.median, spread.low, spread.high
    )
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

/// Every figure and every verdict as one row.
fn rows(all: &[Results]) -> Vec<Value> {
    let mut rows = Vec::new();
    for results in all {
        for (i, case) in CASES.iter().enumerate() {
            for method in results.group.methods() {
                for metric in Metric::ALL {
                    let figure = results.spread(*method, i, metric);
                    let over =
                        (*method != Method::Tanada).then(|| results.ratio(*method, i, metric));
                    rows.push(json!({
                        "bench": "nbd",
                        "device": results.group.name(),
                        "case": case.name,
                        "method": method.name(),
                        "metric": metric.name(),
                        "unit": metric.unit(),
                        "ours": figure.median,
                        "low": figure.low,
                        "high": figure.high,
                        "tanada_over_this": over.map(|r| r.median),
                        "tanada_over_this_low": over.map(|r| r.low),
                        "tanada_over_this_high": over.map(|r| r.high),
                        "modelled": false,
                    }));
                }
            }
        }
        for verdict in verdicts(results) {
            rows.push(json!({
                "bench": "nbd",
                "device": verdict.group.name(),
                "case": verdict.case,
                "aim": verdict.what,
                "at_most": verdict.at_most,
                "bound": verdict.aim,
                "ours": verdict.reached.median,
                "low": verdict.reached.low,
                "high": verdict.reached.high,
                "verdict": verdict.word(),
            }));
        }
    }
    rows
}

/// Where cargo put the release build of the program.
fn built_program() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| project_root().join("target"), PathBuf::from);
    let program = target.join("release/tanada");
    program
        .canonicalize()
        .with_context(|| format!("there is no {}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(iops: f64, cpu: f64) -> Sample {
        Sample {
            iops,
            mb_per_s: iops * 4096.0 / 1e6,
            cpu_us_per_io: cpu,
        }
    }

    #[test]
    fn cpu_time_is_read_behind_a_name_with_spaces_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 1 1";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat), Some(200.0 / ticks));
        assert_eq!(cpu_seconds("42 (a) S 1"), None);
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(
            spread,
            Spread {
                median: 2.5,
                low: 1.0,
                high: 4.0
            }
        );
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was twice as fast in the second round: the ratio does not move.
        let mut results = Results::new(Group::Memory);
        for case in 0..CASES.len() {
            results.samples[0][case] = vec![sample(150.0, 2.0), sample(300.0, 1.0)];
            results.samples[1][case] = vec![sample(100.0, 4.0), sample(200.0, 2.0)];
        }
        let iops = results.ratio(Method::Nbdkit, 1, Metric::Iops);
        assert_eq!((iops.low, iops.high), (1.5, 1.5));
        let verdicts = verdicts(&results);
        assert_eq!(verdicts.len(), 4);
        assert!(verdicts.iter().all(Verdict::passes));
    }

    #[test]
    fn falling_short_of_an_aim_is_said() {
        let mut results = Results::new(Group::Memory);
        for case in 0..CASES.len() {
            results.samples[0][case] = vec![sample(129.0, 2.1)];
            results.samples[1][case] = vec![sample(100.0, 4.0)];
        }
        assert!(verdicts(&results).iter().all(|v| v.word() == "short"));
        assert!(rows(&[results]).iter().any(|row| row["verdict"] == "short"));
    }
}

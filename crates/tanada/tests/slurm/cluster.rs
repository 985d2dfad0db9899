//! A Slurm of one machine in a folder of its own: munged, slurmctld and slurmd on free ports of 127.0.0.1.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use testkit::program::{install, stderr, without};

/// A user without any rights, for jobs where the test runs as root, which has no burst buffers.
const UNPRIVILEGED: (&str, &str) = ("nobody", "nogroup");

/// How bookings are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    BurstBuffer,
    Prolog,
}

/// A running cluster; its daemons are killed when dropped.
pub struct Cluster {
    dir: PathBuf,
    is_root: bool,
    munged: Child,
    controller: Child,
    node: Child,
    agent: Child,
}

/// Where Slurm's and munge's programs are, also for users whose PATH lacks them.
fn program(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("env");
    command
        .arg(format!("PATH={path}:/usr/sbin:/sbin:/usr/local/sbin"))
        .arg(name);
    command.env_remove("SLURM_CONF").stdin(Stdio::null());
    command
}

/// Says what this machine lacks, if anything.
fn lacks() -> Option<&'static str> {
    // Its commands do not even say their version where no cluster is configured.
    for name in [
        "munged",
        "slurmctld",
        "slurmd",
        "sbatch",
        "scancel",
        "scontrol",
        "sinfo",
        "squeue",
    ] {
        let found = program("sh")
            .args(["-c", &format!("command -v {name}")])
            .output();
        if !found.is_ok_and(|found| found.status.success()) {
            return Some(name);
        }
    }
    let places = [
        "/usr/lib/x86_64-linux-gnu/slurm-wlm",
        "/usr/lib/aarch64-linux-gnu/slurm-wlm",
        "/usr/lib64/slurm",
        "/usr/lib/slurm-wlm",
        "/usr/lib/slurm",
    ];
    let plugin = |place: &&str| Path::new(place).join("burst_buffer_lua.so").exists();
    match places.iter().any(plugin) {
        true => None,
        false => Some("burst_buffer_lua.so"),
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    listener.local_addr().unwrap().port()
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("this is Linux");
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

fn slurm_conf(dir: &Path, user: &str, hooks: Hooks) -> String {
    let (shown, host) = (dir.display(), host());
    // With `debug` slurmd logs what TaskProlog puts into an environment: only where that names a file.
    let (log, hooks) = match hooks {
        Hooks::BurstBuffer => ("debug", "BurstBufferType=burst_buffer/lua".to_owned()),
        Hooks::Prolog => (
            "verbose",
            format!(
                "Prolog={shown}/tanada-prolog
PrologFlags=Alloc"
            ),
        ),
    };
    format!(
        "ClusterName=c1\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\nAuthType=auth/munge\n\
         CredType=cred/munge\nAuthInfo=socket={shown}/run/munge.sock\nSlurmUser={user}\nSlurmdUser={user}\n\
         StateSaveLocation={shown}/state\nSlurmdSpoolDir={shown}/spool\nSlurmctldPidFile={shown}/run/slurmctld.pid\n\
         SlurmdPidFile={shown}/run/slurmd.pid\nSlurmctldLogFile={shown}/log/slurmctld.log\n\
         SlurmdLogFile={shown}/log/slurmd.log\nSlurmctldDebug=debug\nSlurmdDebug={log}\nDebugFlags=BurstBuffer\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\nReturnToService=2\n\
         SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=1,sched_min_interval=100000\nMinJobAge=5\n\
         PropagateResourceLimits=NONE\nTaskProlog={shown}/tanada-task-prolog\nEpilog={shown}/tanada-epilog\n{hooks}\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=64\nPartitionName=p Nodes={host} Default=YES MaxTime=INFINITE State=UP\n",
        free_port(),
        free_port()
    )
}

/// Lets Slurm work; a second for most things.
#[expect(clippy::disallowed_methods, reason = "real programs take real time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Waits until `is_true`; what takes minutes never comes.
pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_true() {
            return;
        }
        pause();
    }
    panic!("waited in vain: {what}");
}

impl Cluster {
    /// Starts one in `dir`, whose service listens at `admin.sock` there; `None`, and words, where Slurm is not installed.
    pub fn start(dir: &Path, hooks: Hooks, account: &str) -> Option<Cluster> {
        if let Some(tool) = lacks() {
            without(tool);
            return None;
        }
        let is_root = fs::metadata(dir).unwrap().uid() == 0;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["state", "spool", "log", "run", "out", "notes", "files"] {
            fs::create_dir(dir.join(folder)).unwrap();
        }
        // Jobs of an unprivileged user write there.
        for folder in ["out", "files"] {
            fs::set_permissions(dir.join(folder), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        // Where the jobs' user finds it.
        install(env!("CARGO_BIN_EXE_tanada"), &dir.join("tanada"));
        let user = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap();
        fs::write(dir.join("slurm.conf"), slurm_conf(dir, user.trim(), hooks)).unwrap();
        let shown = dir.display();
        let is_prolog = hooks == Hooks::Prolog;
        let settings = format!(
            "cluster = \"c1\"\nadmin = \"unix:{shown}/admin.sock\"\naccount = \"{account}\"\nstate = \"{shown}/notes\"\n\
             wait = \"30s\"\nprolog = {is_prolog}\n[pool]\nrate = \"1GB/s\"\nfile = \"{shown}/pools.json\"\n[agent]\n\
             listen = \"{shown}/agent.sock\"\n"
        );
        let folder = match hooks {
            Hooks::BurstBuffer => format!("folder = \"{shown}/files\"\n"),
            Hooks::Prolog => String::new(),
        };
        fs::write(dir.join("slurm.toml"), settings + &folder).unwrap();
        let tanada = |words: &[&str]| {
            let mut command = Command::new(dir.join("tanada"));
            command
                .args(["slurm", "--settings", "slurm.toml"])
                .args(words)
                .current_dir(dir);
            command
                .env("SLURM_CONF", dir.join("slurm.conf"))
                .env_remove("RUST_LOG");
            command
        };
        let installed = tanada(&["install", "--to", &shown.to_string(), "--cluster", "c1"])
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", stderr(&installed));
        let pools = tanada(&["pools", "--write"]).output().unwrap();
        assert!(pools.status.success(), "{}", stderr(&pools));
        let munged = munged(dir);
        let controller = controller(dir);
        let node = daemon(dir, program("slurmd").arg("-D"), "slurmd.out");
        let agent = daemon(dir, &mut tanada(&["agent"]), "agent.out");
        let cluster = Cluster {
            dir: dir.to_owned(),
            is_root,
            munged,
            controller,
            node,
            agent,
        };
        wait_until("the node is idle", || {
            cluster.run("sinfo", &["-h", "-o", "%T"]).stdout == b"idle\n"
        });
        Some(cluster)
    }

    /// Runs one of Slurm's commands.
    pub fn run(&self, name: &str, words: &[&str]) -> Output {
        let mut command = program(name);
        command
            .args(words)
            .current_dir(self.dir.join("out"))
            .env("SLURM_CONF", self.dir.join("slurm.conf"));
        command.output().expect("it is installed")
    }

    /// `tanada slurm`, with this cluster's settings.
    pub fn tanada(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.dir.join("tanada"));
        command
            .args(["slurm", "--settings", "slurm.toml"])
            .args(words)
            .current_dir(&self.dir);
        command.env("SLURM_CONF", self.dir.join("slurm.conf"));
        command.output().expect("it is there")
    }

    /// Submits a job, of an unprivileged user where this is root: its number, or what was said.
    pub fn submit(&self, options: &[&str], text: &str) -> Result<u32, String> {
        let file = self.dir.join("out/job.sh");
        fs::write(&file, text).unwrap();
        let mut words = vec!["--parsable", "--output=job.sh.%j", "--time=5"];
        let user = [
            format!("--uid={}", UNPRIVILEGED.0),
            format!("--gid={}", UNPRIVILEGED.1),
        ];
        if self.is_root {
            words.extend(user.iter().map(String::as_str));
        }
        words.extend(options);
        words.push("job.sh");
        let done = self.run("sbatch", &words);
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout)
                .trim()
                .parse()
                .expect("a number")),
            false => Err(stderr(&done)),
        }
    }

    /// Jobs that have not ended. A killed controller forgets which jobs it was ending: they stay in stage-out, for ever.
    pub fn unfinished(&self) -> Option<usize> {
        let states = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING";
        let done = self.run("squeue", &["-h", states, "-o", "%A"]);
        let count = String::from_utf8_lossy(&done.stdout).lines().count();
        done.status.success().then_some(count)
    }

    /// Jobs that have not ended, if all of them wait.
    pub fn only_waiting(&self) -> Option<Vec<u32>> {
        let states = "--states=PENDING";
        let done = self.run("squeue", &["-h", states, "-o", "%A"]);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let waiting: Vec<u32> = text
            .lines()
            .filter_map(|it| it.trim().parse().ok())
            .collect();
        let is_all = done.status.success() && self.unfinished() == Some(waiting.len());
        is_all.then_some(waiting).filter(|all| !all.is_empty())
    }

    /// Kills the controller with SIGKILL and starts it again.
    pub fn kill_controller(&mut self) {
        self.controller.kill().unwrap();
        self.controller.wait().unwrap();
        self.controller = controller(&self.dir);
        wait_until("the controller answers", || self.unfinished().is_some());
    }

    /// What an operator does after a controller was killed with jobs that it had not written down: it started them again,
    /// drained the node where they ran already, and held them.
    pub fn clear_up(&self, is_due: bool) {
        let host = format!("NodeName={}", host());
        let state = self.run("sinfo", &["-h", "-o", "%T"]).stdout;
        if state.starts_with(b"drain") {
            self.run("scontrol", &["update", &host, "State=RESUME"]);
        }
        let waiting = self
            .run("squeue", &["-h", "--states=PENDING", "-o", "%A %r"])
            .stdout;
        for line in String::from_utf8_lossy(&waiting).lines() {
            match line.split_once(' ') {
                Some((job, "JobHeldUser" | "JobHeldAdmin")) => {
                    self.run("scontrol", &["release", job])
                }
                Some((job, "BeginTime")) => self.run(
                    "scontrol",
                    &["update", &format!("JobId={job}"), "StartTime=now"],
                ),
                _ => continue,
            };
        }
        if is_due {
            // The node says which jobs it has.
            self.run("scontrol", &["reconfigure"]);
        }
    }

    /// What the controller logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log/slurmctld.log")).unwrap()
    }

    /// Files in which `word` stands: what Slurm keeps and logs, and the notes of the hooks.
    pub fn files_with(&self, word: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in ["state", "spool", "log", "notes"] {
            let place = self.dir.join(folder);
            let done = Command::new("grep")
                .args(["-rlaF", "--", word])
                .arg(place)
                .output()
                .unwrap();
            found.extend(
                String::from_utf8_lossy(&done.stdout)
                    .lines()
                    .map(PathBuf::from),
            );
        }
        found
    }
}

fn daemon(dir: &Path, command: &mut Command, log: &str) -> Child {
    let log = fs::File::create(dir.join("log").join(log)).unwrap();
    command
        .current_dir(dir)
        .env("SLURM_CONF", dir.join("slurm.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("it is installed")
}

fn munged(dir: &Path) -> Child {
    let key = dir.join("munge.key");
    let random = fs::File::open("/dev/urandom").unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(random, 128), &mut bytes).unwrap();
    fs::write(&key, bytes).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = program("munged");
    command.args(["--foreground", "--force"]);
    for (option, file) in [
        ("--key-file", "munge.key"),
        ("--socket", "run/munge.sock"),
        ("--pid-file", "run/munged.pid"),
        ("--log-file", "log/munged.log"),
        ("--seed-file", "run/munged.seed"),
    ] {
        command.arg(format!("{option}={}", dir.join(file).display()));
    }
    let child = daemon(dir, &mut command, "munged.out");
    wait_until("munged listens", || dir.join("run/munge.sock").exists());
    child
}

fn controller(dir: &Path) -> Child {
    daemon(dir, program("slurmctld").arg("-D"), "slurmctld.out")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        // Steps whose node's daemon is gone would stay.
        self.run("scancel", &["--quiet", "--partition=p"]);
        for _ in 0..30 {
            if self.unfinished().is_none_or(|left| left == 0) {
                break;
            }
            pause();
        }
        // They may have ended already.
        for child in [
            &mut self.agent,
            &mut self.node,
            &mut self.controller,
            &mut self.munged,
        ] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

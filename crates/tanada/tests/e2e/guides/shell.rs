//! Where a page's commands run: a folder, a network, and the daemons that they left running.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper,
    test_kill_process_group, waitpgid,
};

use crate::common::without;

/// One look at a daemon, and the next.
const STEP: Duration = Duration::from_millis(50);
/// Looks until a daemon must be up, or gone: two minutes.
const LOOKS: u32 = 2_400;
/// How long a command may take, in seconds.
const LONGEST: &str = "400";
/// What a daemon prints when it is up.
const UP: &str = "Stop it with";
/// Addresses that the pages name.
const PORTS: [u16; 4] = [10_809, 10_880, 10_881, 2_379];

/// Where the commands' network is.
enum Network {
    /// A namespace that lives as long as this process; the words that enter it.
    Own(Child, Vec<String>),
    /// This machine's: nothing else may have the pages' ports.
    Shared,
}

impl Network {
    fn start() -> Option<Network> {
        let root = rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.arg("--net");
        if !root {
            command.arg("--map-root-user");
        }
        let up = "ip link set lo up && echo up && read -r last";
        let started = command
            .args(["sh", "-c", up])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(mut child) = started {
            let mut said = [0; 3];
            let stdout = child.stdout.as_mut().expect("piped");
            if std::io::Read::read_exact(stdout, &mut said).is_ok() {
                let target = child.id().to_string();
                let mut enter = vec!["nsenter", "--target", &target, "--net"];
                if !root {
                    enter.extend(["--user", "--preserve-credentials"]);
                }
                let enter = enter.into_iter().map(str::to_owned).collect();
                return Some(Network::Own(child, enter));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        match PORTS.iter().find(|port| !free(port)) {
            None => Some(Network::Shared),
            Some(port) => {
                println!("skipped: there is no network namespace here, and port {port} is taken");
                None
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Network::Own(child, _) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub struct Shell {
    folder: PathBuf,
    network: Network,
    /// Process groups of daemons; the last one is the newest.
    running: Vec<Pid>,
    /// Others, which go on until the page ends.
    kept: Vec<Pid>,
    started: usize,
}

/// What a command did.
struct Done {
    success: bool,
    said: String,
}

impl Shell {
    /// `None`, said aloud, where the pages' programs or ports are not to be had.
    pub fn start(folder: &Path) -> Option<Shell> {
        for tool in [
            "nbdcopy",
            "qemu-io",
            "curl",
            "etcd",
            "fio",
            "my_print_defaults",
        ] {
            if Command::new(tool).arg("--version").output().is_err() {
                without(tool);
                return None;
            }
        }
        // What loses its parent becomes this process's child, so that its end can be seen.
        set_child_subreaper(Some(getpid())).expect("Linux 3.4 or newer");
        let bin = folder.join("bin");
        fs::create_dir(&bin).expect("the folder is ours");
        let program = env!("CARGO_BIN_EXE_tanada");
        std::os::unix::fs::symlink(program, bin.join("tanada")).expect("the folder is ours");
        let project = super::project();
        std::os::unix::fs::symlink(project.join("experiments"), folder.join("experiments"))
            .expect("the folder is ours");
        Some(Shell {
            folder: folder.to_owned(),
            network: Network::start()?,
            running: Vec::new(),
            kept: Vec::new(),
            started: 0,
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = match &self.network {
            Network::Own(_, enter) => {
                let mut command = Command::new(&enter[0]);
                command.args(&enter[1..]).arg("--").args(words);
                command
            }
            Network::Shared => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.folder.join("bin");
        command
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", &self.folder)
            .env_remove("RUST_LOG")
            .env_remove("TANADA_ADMIN")
            .stdin(Stdio::null());
        command
    }

    fn run(&mut self, command: &str) -> Done {
        let output = self
            .command(&["timeout", "-k", "5", LONGEST, "bash", "-c", command])
            .output()
            .expect("a shell");
        let said =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        Done {
            success: output.status.success(),
            said: said.concat(),
        }
    }

    /// Runs a command that must succeed.
    pub fn must(&mut self, command: &str, place: &str) {
        let done = self.run(command);
        assert!(
            done.success,
            "{place}\n{}\ndaemon: {}",
            done.said,
            self.log()
        );
    }

    /// Runs a command that must be refused, in the words that the page shows.
    pub fn refused(&mut self, command: &str, shown: &str, place: &str) {
        let done = self.run(command);
        assert!(!done.success, "{place}\nis not refused: {}", done.said);
        // Numbers and paths are this run's own.
        let words = |text: &str| -> Vec<String> {
            let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
            text.split([' ', '\n'])
                .filter(plain)
                .map(str::to_owned)
                .collect()
        };
        let (asked, said) = (words(shown), words(&done.said));
        let found = said.windows(asked.len()).any(|part| part == asked);
        assert!(found, "{place}\nshown: {shown}\nsaid: {}", done.said);
    }

    /// Starts what runs until it is stopped, and waits until it is up; what ran before is stopped.
    pub fn serve(&mut self, command: &str, place: &str) {
        self.stop();
        self.started += 1;
        let log = self.log_file();
        let file = fs::File::create(&log).expect("the folder is ours");
        let both = file.try_clone().expect("a file");
        // A loop that starts several is up when all of them are.
        let count = match command.contains("for n in n1 n2 n3") {
            true => 3,
            false => 1,
        };
        let mut child = self
            .command(&["bash", "-c", command])
            .process_group(0)
            .stdout(file)
            .stderr(both)
            .spawn()
            .expect("a shell");
        let group = Pid::from_raw(child.id().cast_signed()).expect("a process");
        self.running.push(group);
        let up = |text: &str| text.matches(UP).count() >= count;
        let mut looks = 0;
        while !up(&self.log()) {
            // One that was sent to the background has left the shell.
            let _ = child.try_wait();
            let gone = test_kill_process_group(group).is_err();
            looks += 1;
            assert!(!gone && looks < LOOKS, "{place}\n{}", self.log());
            std::thread::park_timeout(STEP);
        }
        // It is waited for when its group has ended.
        std::thread::Builder::new()
            .spawn(move || child.wait())
            .expect("a thread");
    }

    /// Starts what goes on beside the commands that follow.
    pub fn keep(&mut self, command: &str) {
        let mut child = self
            .command(&["bash", "-c", command])
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        self.kept
            .push(Pid::from_raw(child.id().cast_signed()).expect("a process"));
        // The shell ends at once; what it started stays in its group.
        let _ = child.wait();
        if command.starts_with("etcd") {
            // A reader types the next command more slowly than etcd starts.
            let up = "for n in $(seq 300); do curl -s http://127.0.0.1:2379/health && exit; sleep 0.1; done; exit 1";
            self.must(up, command);
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join(format!("daemon-{}.log", self.started))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Stops what runs, as Ctrl-C does, and waits for its end.
    pub fn stop(&mut self) {
        for group in self.running.drain(..) {
            // A shell has its background commands ignore SIGINT.
            let _ = kill_process_group(group, Signal::TERM);
            let mut looks = 0;
            while test_kill_process_group(group).is_ok() && looks < LOOKS {
                reap(group);
                looks += 1;
                std::thread::park_timeout(STEP);
            }
            assert!(looks < LOOKS, "a daemon does not end");
        }
    }
}

/// Takes the group's processes that have ended. A daemon that a shell sent to the background has lost its parent; in a
/// container, process 1 may be a program that waits for none but its own.
fn reap(group: Pid) {
    while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
}

impl Drop for Shell {
    fn drop(&mut self) {
        for group in self.running.drain(..).chain(self.kept.drain(..)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

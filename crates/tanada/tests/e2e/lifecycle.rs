//! The daemon under a service manager, and with a configuration that is read anew.

use std::fs;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::common::{Daemon, SMALL, json, run, signal, stderr, text};

/// What a service manager hears and keeps.
struct Manager {
    socket: UnixDatagram,
    sockets: Vec<(String, OwnedFd)>,
}

impl Manager {
    fn at(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).expect("the folder is ours");
        let timeout = Some(Duration::from_secs(60));
        socket.set_read_timeout(timeout).expect("it can");
        Manager {
            socket,
            sockets: Vec::new(),
        }
    }

    /// The next thing that is said; a socket that comes with it is kept.
    fn next(&mut self) -> String {
        let mut text = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [std::io::IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut slices, &mut beside, flags).expect("it speaks");
        let said = String::from_utf8_lossy(&text[..got.bytes]).into_owned();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                let name = said.lines().find_map(|line| line.strip_prefix("FDNAME="));
                let name = name.expect("it has a name").to_owned();
                self.sockets.extend(sockets.map(|it| (name.clone(), it)));
            }
        }
        said
    }

    /// Listens until a line begins so; that line.
    fn until(&mut self, start: &str) -> String {
        loop {
            let said = self.next();
            if let Some(line) = said.lines().find(|line| line.starts_with(start)) {
                return line.to_owned();
            }
        }
    }
}

/// A daemon that the manager starts, with the sockets it keeps.
fn start(dir: &Path, manager: &Manager) -> Child {
    let mut passed = String::new();
    for (number, (_, socket)) in manager.sockets.iter().enumerate() {
        fcntl_setfd(socket, FdFlags::empty()).expect("it is ours");
        passed.push_str(&format!(
            "exec {}<&{}; ",
            number + 3 + 50,
            socket.as_raw_fd()
        ));
    }
    // In two steps: a number may be taken by a socket that is not there yet.
    for number in 0..manager.sockets.len() {
        passed.push_str(&format!("exec {}<&{}; ", number + 3, number + 53));
    }
    let program = env!("CARGO_BIN_EXE_tanada");
    let script = format!(
        "{passed} export LISTEN_PID=$$ LISTEN_FDS={}; exec {program} serve tanada.toml",
        manager.sockets.len()
    );
    let child = Command::new("bash")
        .current_dir(dir)
        .args(["-c", &script])
        .env("NOTIFY_SOCKET", dir.join("notify.sock"))
        .env("WATCHDOG_USEC", "3000000")
        .env_remove("WATCHDOG_PID")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.expect("bash is there")
}

fn end(mut child: Child, manager: &mut Manager) {
    signal(&child, "TERM");
    manager.until("STOPPING=1");
    assert!(child.wait().expect("it is our child").success());
}

fn free_port() -> u16 {
    let any = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    any.local_addr().expect("it is bound").port()
}

#[test]
fn who_comes_while_the_daemon_is_restarted_is_served_after_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let port = free_port();
    let config = SMALL
        .replacen("\"127.0.0.1:0\"", &format!("\"127.0.0.1:{port}\""), 1)
        .replace(", \"127.0.0.1:0\"]", "]")
        + "[web]\nlisten = []\n";
    fs::write(dir.join("tanada.toml"), config).expect("the folder is ours");
    let mut manager = Manager::at(&dir.join("notify.sock"));
    let first = start(dir, &manager);
    manager.until("READY=1");
    manager.until("WATCHDOG=1");
    let mut names: Vec<&str> = manager.sockets.iter().map(|it| it.0.as_str()).collect();
    names.sort_unstable();
    let tcp = format!("tcp-127.0.0.1+{port}");
    assert_eq!(
        names,
        [&tcp, "unix-admin.sock", "unix-plain.sock", "unix-vol0.sock"]
    );
    end(first, &mut manager);

    // No process accepts, and all come in.
    let timeout = Some(Duration::from_secs(60));
    let mut waits = TcpStream::connect(("127.0.0.1", port)).expect("the socket listens");
    waits.set_read_timeout(timeout).expect("it can");
    let mut unix = UnixStream::connect(dir.join("vol0.sock")).expect("the socket listens");
    unix.set_read_timeout(timeout).expect("it can");
    let mut admin = UnixStream::connect(dir.join("admin.sock")).expect("the socket listens");
    admin.set_read_timeout(timeout).expect("it can");
    admin
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it takes it");

    let second = start(dir, &manager);
    let kept = manager.sockets.len();
    manager.until("READY=1");
    assert_eq!(manager.sockets.len(), kept, "none was bound anew");
    for stream in [&mut waits as &mut dyn Read, &mut unix] {
        let mut greeting = [0; 8];
        stream.read_exact(&mut greeting).expect("it is greeted");
        assert_eq!(&greeting, b"NBDMAGIC");
    }
    let mut answer = String::new();
    admin.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.ends_with("ok\n"), "{answer}");
    assert!(text(dir, &["status"]).contains("HEALTH_OK"));
    end(second, &mut manager);
}

#[test]
fn at_a_reload_the_service_manager_keeps_new_sockets_and_drops_old_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let config = SMALL.replace(", \"127.0.0.1:0\"]", "]") + "[web]\nlisten = []\n";
    fs::write(dir.join("tanada.toml"), &config).expect("the folder is ours");
    let mut manager = Manager::at(&dir.join("notify.sock"));
    let daemon = start(dir, &manager);
    manager.until("EXTEND_TIMEOUT_USEC=");
    manager.until("READY=1");
    let moved = config.replace("plain.sock", "other.sock");
    fs::write(dir.join("tanada.toml"), moved).expect("the folder is ours");
    signal(&daemon, "HUP");
    let mut said = String::new();
    while !said.contains("READY=1") {
        said += &manager.next();
        said.push('\n');
    }
    let place = |part: &str| {
        said.find(part)
            .unwrap_or_else(|| panic!("no {part} in {said}"))
    };
    assert!(place("RELOADING=1") < place("FDSTORE=1"), "{said}");
    assert!(place("MONOTONIC_USEC=") < place("READY=1"), "{said}");
    assert!(place("FDNAME=unix-other.sock") < place("READY=1"), "{said}");
    let dropped = &said[place("FDSTOREREMOVE=1")..];
    assert!(dropped.contains("FDNAME=unix-plain.sock"), "{said}");
    assert!(dir.join("other.sock").exists() && !dir.join("plain.sock").exists());
    end(daemon, &mut manager);
}

#[test]
fn the_journal_gets_lines_with_a_priority_and_without_a_time() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::write(dir.join("tanada.toml"), SMALL).expect("the folder is ours");
    let mut manager = Manager::at(&dir.join("notify.sock"));
    let log = fs::File::create(dir.join("log")).expect("the folder is ours");
    let stream = log.metadata().expect("it is there");
    let child = Command::new(env!("CARGO_BIN_EXE_tanada"))
        .current_dir(dir)
        .args(["serve", "tanada.toml"])
        .env("NOTIFY_SOCKET", dir.join("notify.sock"))
        .env(
            "JOURNAL_STREAM",
            format!("{}:{}", stream.dev(), stream.ino()),
        )
        .env_remove("RUST_LOG")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let child = child.expect("it is built");
    manager.until("READY=1");
    // A configuration that is not good is an error.
    fs::write(dir.join("tanada.toml"), "nonsense").expect("the folder is ours");
    signal(&child, "HUP");
    manager.until("RELOADING=1");
    manager.until("READY=1");
    end(child, &mut manager);
    let log = fs::read_to_string(dir.join("log")).expect("it is there");
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('<')).collect();
    assert!(lines.iter().any(|it| it.starts_with("<6>serving")), "{log}");
    let error = lines.iter().find(|it| it.starts_with("<3>"));
    assert!(
        error.is_some_and(|it| it.contains("was not read anew")),
        "{log}"
    );
}

#[test]
fn an_address_that_is_no_longer_configured_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let config = SMALL.replace(", \"127.0.0.1:0\"]", "]") + "[web]\nlisten = []\n";
    fs::write(dir.join("tanada.toml"), &config).expect("the folder is ours");
    let mut manager = Manager::at(&dir.join("notify.sock"));
    let first = start(dir, &manager);
    manager.until("READY=1");
    end(first, &mut manager);
    let other = config.replace("plain.sock", "other.sock");
    fs::write(dir.join("tanada.toml"), other).expect("the folder is ours");
    let second = start(dir, &manager);
    manager.until("FDSTOREREMOVE=1");
    manager.until("READY=1");
    assert_eq!(
        manager.sockets.last().expect("it is new").0,
        "unix-other.sock"
    );
    end(second, &mut manager);
}

#[test]
fn a_configuration_is_read_anew_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let config = SMALL.replace(
        "fast = \"fast\"\n",
        "fast = \"fast\"\nmode = \"cache\"\nwrite = \"back\"\n",
    );
    let daemon = Daemon::start(dir, &config);
    let write = || json(dir, &["volume", "show", "vol0", "--json"])["settings"]["write"].clone();
    let file = |text: &str| fs::write(dir.join("tanada.toml"), text).expect("the folder is ours");
    assert!(text(dir, &["reload"]).contains("nothing is different"));

    let through = config.replace("write = \"back\"", "write = \"through\"\ndirty_high = 60");
    file(&through);
    let page = text(dir, &["reload", "--dry-run"]);
    assert!(
        page.contains("hybrid.vol0.write") && page.contains("live"),
        "{page}"
    );
    assert!(page.contains("nothing was changed"), "{page}");
    assert_eq!(write(), "back");
    text(dir, &["reload"]);
    assert_eq!(write(), "through");

    // A line that needs a restart stops all of it; so does a mistake, or a value that another one forbids.
    for (bad, said) in [
        (
            through
                .replace("through", "around")
                .replace("size = \"8MiB\"", "size = \"9MiB\""),
            "device.plain.size",
        ),
        (through.replace("through", "arond"), "arond"),
        (
            through.replace("\"through\"", "\"around\"\ndirty_low = 70"),
            "dirty_low",
        ),
    ] {
        file(&bad);
        let refused = run(dir, &["reload"]);
        assert!(!refused.status.success());
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
        assert_eq!(write(), "through");
        daemon.signal("HUP");
    }
    // What was set stands before the file.
    text(dir, &["volume", "set", "vol0", "write=pass"]);
    file(&through.replace("dirty_high = 60", "dirty_high = 61"));
    text(dir, &["reload"]);
    let shown = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(shown["settings"]["write"], "pass");
    assert_eq!(shown["settings"]["dirty_high"], 61);
    text(dir, &["config", "reset", "vol0", "write"]);
    assert_eq!(write(), "through");

    // A terminal that closes ends nothing.
    file(&through.replace("through", "back"));
    daemon.signal("HUP");
    // Each look takes some milliseconds.
    let mut looks = 0..3000;
    while write() != "back" {
        assert!(looks.next().is_some(), "it is read anew");
    }
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0));
    assert!(log.contains("was not read anew"), "{log}");
    assert!(log.contains("configured anew"), "{log}");
}

#[test]
fn the_verdict_names_what_is_wrong_and_a_mute_counts_it_no_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let status = run(dir, &["status"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    text(dir, &["volume", "detach", "vol0"]);
    let status = run(dir, &["status"]);
    let page = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(3), "{page}");
    assert!(
        page.contains("HEALTH_WARN\n  CACHE_DETACHED  vol0: "),
        "{page}"
    );
    let shown = run(dir, &["health", "show", "--json"]);
    assert_eq!(shown.status.code(), Some(3));
    let health: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("it is JSON");
    assert_eq!(health["checks"][0]["about"], "vol0");

    let muted = text(dir, &["health", "mute", "CACHE_DETACHED", "--for", "2h"]);
    assert!(
        muted.starts_with("HEALTH_OK\n  CACHE_DETACHED (muted)"),
        "{muted}"
    );
    assert_eq!(run(dir, &["status"]).status.code(), Some(0));
    let unknown = run(dir, &["health", "mute", "BAD_WEATHER"]);
    assert!(
        stderr(&unknown).contains("DIRTY_OLD"),
        "{}",
        stderr(&unknown)
    );
    text(dir, &["volume", "attach", "vol0"]);
    assert_eq!(
        text(dir, &["health", "show"]).lines().next(),
        Some("HEALTH_OK")
    );
    let (_, log) = daemon.stop();
    assert!(log.contains("CACHE_DETACHED"), "{log}");
}

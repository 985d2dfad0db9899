//! Codes of the verdict, each raised by a real fault: named within 10 s, with the exit status of its weight.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use base::{Bytes, Nanos, Sector};
use device::DeviceExt;
use env::{RealConfig, Runtime};
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{Daemon, SMALL, connect, json, run, stderr, tanada, text, without};

/// Codes come within so many looks, a fifth of a second apart.
const LOOKS: usize = 50;
const WARN: i32 = 3;
const ERR: i32 = 4;

fn in_folder(scene: impl AsyncFnOnce(&Path) + 'static) {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let here = dir.path().to_owned();
    runtime.block_on(async move { scene(&here).await });
}

/// Waits until the verdict names a code about this, with this exit status of `status`.
async fn named(dir: &Path, (code, about): (&str, &str), exit: i32) {
    let mut page = String::new();
    for _ in 0..LOOKS {
        let status = run(dir, &["status"]);
        page = String::from_utf8_lossy(&status.stdout).into_owned();
        let mut lines = page.lines().map(str::trim_start);
        let is_there = lines.any(|line| line.starts_with(code) && line.contains(about));
        if is_there && status.status.code() == Some(exit) {
            let shown = run(dir, &["health", "show"]);
            assert_eq!(shown.status.code(), Some(exit), "{page}");
            return;
        }
        env::sleep(Nanos::millis(200)).await;
    }
    panic!("{code} of {about} is not named with status {exit}: {page}");
}

/// A store that takes every client of this machine.
fn store(name: &str, device: &str, rest: &str) -> String {
    format!(
        "[[device]]\nname = \"d-{name}\"\n{device}\n[[store]]\nname = \"{name}\"\ndevice = \"d-{name}\"\n\
         listen = \"unix:{name}.sock\"\ncreate = true\nunauthenticated = true\n{rest}\n"
    )
}

fn object(dir: &Path, store: &str, words: &[&str]) -> std::process::Output {
    let at = format!("unix:{}", dir.join(store).with_extension("sock").display());
    run(dir, &[&["object"], words, &["--store", &at]].concat())
}

fn put(dir: &Path, store: &str, len: usize, name: &str) -> bool {
    fs::write(dir.join("object"), vec![b'Z'; len]).expect("the folder is ours");
    object(dir, store, &["put", "object", name])
        .status
        .success()
}

#[test]
fn a_store_that_gets_full_is_named_before_it_is_and_when_it_is() {
    in_folder(async |dir| {
        let config = [
            &store("room", "path = \"room.img\"\nsize = \"64MiB\"", ""),
            SMALL,
        ]
        .concat();
        let _daemon = Daemon::start(dir, &config);
        assert!(put(dir, "room", 58 << 20, "big"));
        named(dir, ("NEAR_FULL", "room"), WARN).await;
        for count in 0.. {
            if !put(dir, "room", 256 << 10, &format!("more{count}")) {
                break;
            }
        }
        named(dir, ("STORE_FULL", "room"), ERR).await;
        let deleted = object(dir, "room", &["delete", "big", "--yes"]);
        assert!(deleted.status.success(), "{}", stderr(&deleted));
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
    });
}

/// Writes over a page of 'Z' in the file of a device, behind the back of its daemon.
fn damage(file: &Path) {
    let image = fs::read(file).expect("it is there");
    let found = image
        .windows(8192)
        .position(|it| it.iter().all(|byte| *byte == b'Z'));
    let page = found
        .expect("the page is on the device")
        .next_multiple_of(4096) as u64;
    let file = File::options().write(true).open(file).expect("it is there");
    file.write_all_at(&[b'x'; 4096], page).expect("written");
}

#[test]
fn damage_is_named_once_it_is_found() {
    in_folder(async |dir| {
        let config = [
            &store("s0", "path = \"s0.img\"\nsize = \"64MiB\"", ""),
            SMALL,
        ]
        .concat();
        let _daemon = Daemon::start(dir, &config);
        assert!(put(dir, "s0", 1 << 20, "a"));
        damage(&dir.join("s0.img"));
        run(dir, &["store", "scrub", "s0"]);
        named(dir, ("CHECKSUM", "s0"), ERR).await;
    });
}

#[test]
fn a_promise_that_the_device_breaks_is_named() {
    in_folder(async |dir| {
        let weak = "model = \"hdd-7200-sata\"\nmemory = true\nsize = \"128MiB\"";
        let config = [&store("weak", weak, "read_speed = \"800MB/s\""), SMALL].concat();
        let _daemon = Daemon::start(dir, &config);
        assert!(put(dir, "weak", 96 << 20, "r/all"));
        let reserve = [
            "reservation",
            "create",
            "--store",
            "weak",
            "--read",
            "300MB/s",
        ];
        let for_an_hour = ["--for", "1h", "--scope", "r/", "--holder", "ann"];
        let token = text(dir, &[&reserve[..], &for_an_hour].concat());
        fs::write(dir.join("token"), token).expect("the folder is ours");
        let at = format!("unix:{}", dir.join("weak.sock").display());
        let mut reader = tanada(dir)
            .args([
                "object",
                "get",
                "r/all",
                "out",
                "--capability",
                "@token",
                "--store",
                &at,
            ])
            .spawn()
            .expect("the program starts");
        named(dir, ("PROMISE_BROKEN", "weak"), WARN).await;
        let _ = reader.kill();
        let _ = reader.wait();
    });
}

#[test]
fn what_is_promised_beyond_a_slower_device_is_named_until_it_is_taken_back() {
    in_folder(async |dir| {
        let with = |speed: &str| {
            let speed = format!("read_speed = \"{speed}\"\nwrite_speed = \"{speed}\"");
            [
                &store("s0", "path = \"s0.img\"\nsize = \"64MiB\"", &speed),
                SMALL,
            ]
            .concat()
        };
        let daemon = Daemon::start(dir, &with("200MB/s"));
        let reserve =
            "reservation create --store s0 --write 60MB/s --for 1h --scope a/ --holder ann";
        text(dir, &reserve.split(' ').collect::<Vec<_>>());
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
        daemon.stop();
        let _daemon = Daemon::start(dir, &with("20MB/s"));
        named(dir, ("OVERCOMMITTED", "s0"), WARN).await;
        text(dir, &["reservation", "delete", "s0/1"]);
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
    });
}

#[test]
fn a_volume_without_its_cache_is_named_until_it_has_one_again() {
    in_folder(async |dir| {
        let _daemon = Daemon::start(dir, SMALL);
        text(dir, &["volume", "detach", "vol0"]);
        named(dir, ("CACHE_DETACHED", "vol0"), WARN).await;
        text(dir, &["volume", "attach", "vol0"]);
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
    });
}

/// Runs its arguments where the kernel refuses `io_uring_setup` (425) with EPERM, as it does in many containers.
const WITHOUT_IO_URING: &str = r"
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *it) for it in code))
filter = struct.pack('HxxxxxxP', 4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn a_kernel_that_refuses_io_uring_is_named() {
    if !Path::new(PYTHON).exists() {
        return without("python3");
    }
    in_folder(async |dir| {
        let mut program = Command::new(PYTHON);
        program.args(["-c", WITHOUT_IO_URING, env!("CARGO_BIN_EXE_tanada")]);
        let _daemon = Daemon::start_by(program, dir, SMALL);
        named(dir, ("IO_URING_REFUSED", "thread pool"), WARN).await;
        let client = connect(dir, "vol0.sock", "vol0").await.unwrap();
        let read = client.read_at(Sector(0), Bytes(4096)).await;
        read.expect("it works all the same");
        client.close().await;
    });
}

#[test]
fn a_line_that_is_hidden_by_a_setting_is_named() {
    in_folder(async |dir| {
        let _daemon = Daemon::start(dir, SMALL);
        text(dir, &["volume", "set", "vol0", "policy=lru"]);
        // Times are whole seconds.
        env::sleep(Nanos::millis(1100)).await;
        let later = SMALL.replace("fast = \"fast\"", "fast = \"fast\"\npolicy = \"s3-fifo\"");
        fs::write(dir.join("tanada.toml"), later).expect("the folder is ours");
        text(dir, &["reload"]);
        named(dir, ("FILE_SHADOWED", "vol0 policy"), WARN).await;
        text(dir, &["config", "reset", "vol0"]);
        let now = json(dir, &["volume", "show", "vol0", "--json"]);
        assert_eq!(now["settings"]["policy"], Value::from("s3-fifo"));
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
    });
}

#[test]
fn a_log_that_loses_lines_is_named() {
    in_folder(async |dir| {
        let daemon = Daemon::start(dir, SMALL);
        // Its log, which says each of these, is not read.
        for _ in 0..25_000 {
            UnixStream::connect(dir.join("vol0.sock")).expect("it listens");
        }
        named(dir, ("LOG_LOST", "lines of the log were lost"), WARN).await;
        daemon.signal("KILL");
    });
}

/// The thread of a process that serves this.
fn thread_of(pid: u32, name: &str) -> Pid {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut all = fs::read_dir(tasks).expect("it runs").flatten();
    let found = all.find(|task| {
        let comm = fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|it| it.trim_end() == name)
    });
    let number = found.expect("it has such a thread").file_name();
    Pid::from_raw(
        number
            .to_str()
            .and_then(|it| it.parse().ok())
            .expect("a number"),
    )
}

#[test]
fn a_data_thread_that_stands_still_is_named_until_it_goes_on() {
    in_folder(async |dir| {
        let daemon = Daemon::start(dir, SMALL);
        let thread = thread_of(daemon.pid(), "data vol0");
        let (go_on, until) = mpsc::channel::<()>();
        // As a debugger stops it, for signals stop all threads of a process. It goes on when its tracer ends.
        #[allow(clippy::disallowed_methods)]
        let tracer = std::thread::spawn(move || {
            ptrace::seize(thread, ptrace::Options::empty()).expect("it is our child's");
            ptrace::interrupt(thread).expect("it is stopped");
            let _ = until.recv();
        });
        named(dir, ("THREAD_SILENT", "vol0"), ERR).await;
        drop(go_on);
        tracer.join().expect("it traced");
        for _ in 0..LOOKS {
            if run(dir, &["status"]).status.success() {
                return;
            }
            env::sleep(Nanos::millis(200)).await;
        }
        panic!("it is named on");
    });
}

#[test]
fn a_program_that_was_replaced_is_named_until_the_restart() {
    in_folder(async |dir| {
        let program = dir.join("tanada");
        // By another process: what this one writes may be open in children of other tests, and does not run then.
        let place = |to: &Path| {
            let copied = Command::new("cp")
                .arg(env!("CARGO_BIN_EXE_tanada"))
                .arg(to)
                .status();
            assert!(copied.expect("cp is there").success());
        };
        place(&program);
        let _daemon = Daemon::start_by(Command::new(&program), dir, SMALL);
        assert_eq!(run(dir, &["status"]).status.code(), Some(0));
        // As a package does it.
        place(&dir.join("new"));
        fs::rename(dir.join("new"), &program).expect("the folder is ours");
        named(dir, ("NOT_RESTARTED", ""), WARN).await;
    });
}

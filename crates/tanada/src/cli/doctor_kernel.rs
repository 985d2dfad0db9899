//! What the kernel offers to a daemon.

use super::doctor::{Findings, State};
use std::fs;
use std::io;
use std::path::Path;

use front::ublk::Control;
use front::ublk::proto::{NEEDED, feature};

use crate::api::status::WaitingDisk;
use crate::daemon::common::waiting::{WAITING_DISK_TODO, waiting_disks};

pub(super) fn kernel(findings: &mut Findings) {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let state = match version(&release) {
        Some(version) if version >= (6, 1) => State::Ok,
        _ => State::Warn,
    };
    findings.add(
        "kernel",
        "version",
        state,
        format!("Linux {release}"),
        "Linux 6.1 or newer has every io_uring feature Tanada uses; older ones work with less",
    );
    io_uring(findings);
    file(
        findings,
        "loop devices",
        "/dev/loop-control",
        "modprobe loop; only needed to try block devices without having any",
    );
    let nbd = Path::new("/sys/module/nbd").exists() || Path::new("/dev/nbd0").exists();
    let (state, found, todo) = nbd_client(nbd, module_file(&release, "nbd"));
    findings.add("kernel", "NBD client", state, found, todo);
    let loadable = module_file(&release, "ublk_drv");
    let (state, found, todo) = ublk(
        Control::open().and_then(|mut driver| driver.features()),
        loadable,
    );
    findings.add("kernel", "ublk", state, found, todo);
    if let Some((found, todo)) = that_wait(&waiting_disks()) {
        findings.add("kernel", "ublk disks", State::Warn, found, todo);
    }
    file(
        findings,
        "FUSE",
        "/dev/fuse",
        "modprobe fuse; nbdfuse then shows an export as a file",
    );
}

fn io_uring(findings: &mut Findings) {
    let (state, found, todo) = match env::Runtime::real(env::RealConfig::default()) {
        Ok(runtime) if runtime.driver_name() == "io_uring" => (State::Ok, "allowed".to_owned(), ""),
        Ok(runtime) => (
            State::Warn,
            format!("refused; files go through a {}", runtime.driver_name()),
            "sysctl kernel.io_uring_disabled=0; in a container allow the io_uring_* system calls \
             (docker: --security-opt seccomp=unconfined or an own profile)",
        ),
        Err(error) => (
            State::Missing,
            format!("no runtime can be made: {error}"),
            "raise the limits below",
        ),
    };
    findings.add("kernel", "io_uring", state, found, todo);
}

/// Something that the kernel has where `path` is.
fn file(findings: &mut Findings, what: &str, path: &str, todo: &str) {
    let (state, found) = match Path::new(path).exists() {
        true => (State::Ok, path.to_owned()),
        false => (State::Absent, format!("no {path}")),
    };
    findings.add("kernel", what, state, found, todo);
}

/// What is said of the kernel's NBD client: `loaded`, or in a file from where it can be.
fn nbd_client(loaded: bool, in_file: bool) -> (State, &'static str, &'static str) {
    match (loaded, in_file) {
        (true, _) => (State::Ok, "loaded", ""),
        (false, true) => (
            State::Warn,
            "there, not loaded",
            "modprobe nbd; gives /dev/nbd0 for mkfs and mount",
        ),
        (false, false) => (
            State::Absent,
            "this kernel has none",
            "only a kernel with CONFIG_BLK_DEV_NBD makes a disk of an export; programs that speak \
             NBD (nbdcopy, nbdfuse, qemu, fio) need none",
        ),
    }
}

/// What is said of the kernel's ublk driver: what it offers, or why it does not say so; `loadable`: it is in a file.
fn ublk(features: io::Result<u64>, loadable: bool) -> (State, String, &'static str) {
    let offered = match features {
        Ok(offered) => offered,
        Err(error) if error.kind() == io::ErrorKind::NotFound && loadable => {
            let todo =
                "modprobe ublk_drv; exports with ublk = true then are block devices, /dev/ublkb0";
            return (State::Warn, "there, not loaded".to_owned(), todo);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let todo = "Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK shows exports as block devices; elsewhere NBD does";
            return (State::Absent, "this kernel has none".to_owned(), todo);
        }
        Err(error) => {
            let todo = "run this, and the daemon, as root or with CAP_SYS_ADMIN";
            return (
                State::Warn,
                format!("loaded, and cannot be used: {error}"),
                todo,
            );
        }
    };
    if offered & NEEDED != NEEDED {
        let todo = "Linux 6.5 or newer: the driver must be able to copy data";
        return (State::Warn, "loaded, and too old".to_owned(), todo);
    }
    let known = feature::NAMES.iter().filter(|(bit, _)| offered & bit != 0);
    let names: Vec<&str> = known.map(|(_, name)| *name).collect();
    (State::Ok, format!("offers {}", names.join(", ")), "")
}

/// What is said of disks that wait for a daemon, if there are any.
fn that_wait(disks: &[WaitingDisk]) -> Option<(String, &'static str)> {
    let all: Vec<String> = disks.iter().map(WaitingDisk::said).collect();
    (!all.is_empty()).then(|| (all.join(", "), WAITING_DISK_TODO))
}

/// (major, minor) of a kernel release such as `6.18.5-amd64`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn module_file(release: &str, module: &str) -> bool {
    let folder = Path::new("/lib/modules").join(release);
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let loadable = fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
    let name = format!("/{module}.ko");
    built_in
        .lines()
        .chain(loadable.lines().filter_map(|line| line.split(':').next()))
        .any(|line| line.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_that_wait_for_a_daemon_are_named_with_what_to_do() {
        assert_eq!(that_wait(&[]), None);
        let disk = |number, process| WaitingDisk {
            path: format!("/dev/ublkb{number}"),
            process,
        };
        let (found, todo) = that_wait(&[disk(0, Some(41)), disk(3, None)]).expect("two wait");
        let expected =
            "/dev/ublkb0 waits for a daemon, process 41 ended, /dev/ublkb3 waits for a daemon";
        assert_eq!(found, expected);
        assert!(todo.contains("start the daemon again"));
    }
}

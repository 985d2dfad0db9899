//! A served device as a disk of this machine: mounted, used, and gone again.
//!
//! ```text
//! served -> nbdfuse: a file -> losetup: a block device -> mkfs.ext4, mount: a folder
//!        <- process ends   <- losetup -d             <- umount             (always all three, in this order)
//! ```
//!
//! Always true:
//! 1. A disk that was dropped left nothing, or its error says what and how to clear it away.
//! 2. Only what lies below a folder of ours is unmounted or detached.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base::Bytes;
use device::model::Spec;

use super::serve::{EXPORT, Served};
use crate::app::process::{Process, Stop, await_that, bound, find_program, lives, pause};

/// What our folders' names begin with; leftovers are known by it.
const PREFIX: &str = "tanada-loop-";
/// The file that says whose a folder is.
const OWNER: &str = "owner";
/// How long a program of the system may take.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Programs that are needed, and a package that has each.
pub const TOOLS: [(&str, &str); 6] = [
    ("fio", "fio"),
    ("nbdfuse", "libnbd-bin"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mount", "mount"),
    ("cp", "coreutils"),
];

/// What stands in the way of making disks here, as a sentence; `None`: nothing.
pub fn hindrance() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root; run it as root".to_owned());
    }
    for (tool, package) in TOOLS {
        if find_program(&[tool]).is_none() {
            return Some(format!(
                "cannot find {tool}; install the package `{package}`"
            ));
        }
    }
    for node in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(node).exists() {
            return Some(format!(
                "there is no {node} here: the kernel or the container lacks it"
            ));
        }
    }
    None
}

/// What runs that did not end left on this machine, as commands that clear it away.
pub fn leftovers() -> Vec<String> {
    let mut commands = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut points: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|point| is_dead_ones(point))
        .collect();
    // What was mounted last goes first: the file system before the file it lies on.
    points.reverse();
    let is_fuse = |point: &&str| point.ends_with("/fuse");
    let (fuse, others): (Vec<&str>, Vec<&str>) = points.into_iter().partition(is_fuse);
    commands.extend(others.iter().map(|point| format!("umount {point}")));
    commands.extend(devices_of(&mounts));
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = entry.path().join("loop/backing_file");
        let backing = fs::read_to_string(file).unwrap_or_default();
        let command = format!("losetup -d /dev/{}", entry.file_name().to_string_lossy());
        if is_dead_ones(backing.trim()) && !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands.extend(fuse.iter().map(|point| format!("umount {point}")));
    commands
}

/// The loop devices under what the dead left mounted: one whose file went with its server no longer shows whose it was.
fn devices_of(mounts: &str) -> Vec<String> {
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?))
    });
    let of_the_dead =
        |(device, point): &(&str, &str)| device.starts_with("/dev/loop") && is_dead_ones(point);
    lines
        .filter(of_the_dead)
        .map(|(device, _)| format!("losetup -d {device}"))
        .collect()
}

/// Does `path` lie in a folder of ours whose owner has ended?
fn is_dead_ones(path: &str) -> bool {
    let Some((before, rest)) = path.split_once(PREFIX) else {
        return false;
    };
    let name = rest.split('/').next().unwrap_or_default();
    let owner = Path::new(&format!("{before}{PREFIX}{name}")).join(OWNER);
    let text = fs::read_to_string(owner).unwrap_or_default();
    !text.trim().parse().is_ok_and(lives)
}

/// Removes the folders of runs that died, where nothing is mounted any more.
pub fn sweep() {
    if !leftovers().is_empty() {
        return;
    }
    for entry in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let owner = fs::read_to_string(entry.path().join(OWNER)).unwrap_or_default();
        // One without an owner may just be made.
        let dead = owner.trim().parse().is_ok_and(|pid| !lives(pid));
        if ours && dead {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Runs a program of the system; what it printed.
fn call(program: &str, arguments: &[&str]) -> Result<String, String> {
    let answer = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    match answer.status.success() {
        true => Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned()),
        false => Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&answer.stderr).trim()
        )),
    }
}

/// A disk.
pub struct Disk {
    folder: PathBuf,
    mounted: bool,
    device: Option<String>,
    fuse: Option<Process>,
    served: Option<Served>,
}

impl Disk {
    /// Serves `spec` and attaches it as a block device; as fast as memory at first.
    ///
    /// # Errors
    /// A sentence; what was done by then is undone.
    pub fn attach(spec: &Spec, size: Bytes, seed: u64, stop: &Stop) -> Result<Disk, String> {
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .map_err(|error| format!("cannot make a folder: {error}"))?
            .keep();
        let mut disk = Disk {
            folder,
            mounted: false,
            device: None,
            fuse: None,
            served: None,
        };
        disk.start(spec, size, seed, stop)?;
        Ok(disk)
    }

    fn start(&mut self, spec: &Spec, size: Bytes, seed: u64, stop: &Stop) -> Result<(), String> {
        let system = |error: std::io::Error| error.to_string();
        fs::write(self.folder.join(OWNER), std::process::id().to_string()).map_err(system)?;
        // The database's user walks through it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        fs::set_permissions(&self.folder, mode).map_err(system)?;
        let socket = self.folder.join("nbd.sock");
        self.served = Some(Served::start(spec, size, &socket, seed)?);
        let point = self.fuse_point();
        fs::create_dir(&point).map_err(system)?;
        let mut command = bound("nbdfuse", None);
        command
            .arg(format!("{}/disk", point.display()))
            .arg(format!("nbd+unix:///{EXPORT}?socket={}", socket.display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let fuse =
            Process::start(command, DEVICE_TIMEOUT).map_err(|error| format!("nbdfuse: {error}"))?;
        let fuse = self.fuse.insert(fuse);
        let file = point.join("disk");
        let mut ended = false;
        let there = await_that(DEVICE_TIMEOUT, stop, || {
            ended = !matches!(fuse.ended(), Ok(None));
            ended || file.exists()
        });
        if ended || !there {
            return Err("nbdfuse did not mount the disk's file".to_owned());
        }
        let shown = file.display().to_string();
        let device = call("losetup", &["--find", "--show", "--direct-io=on", &shown])?;
        self.device = Some(device);
        Ok(())
    }

    fn fuse_point(&self) -> PathBuf {
        self.folder.join("fuse")
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        Path::new(self.device.as_deref().expect("attached"))
    }

    /// The device as it is served.
    pub fn served(&self) -> &Served {
        self.served.as_ref().expect("served until it is closed")
    }

    /// Puts an empty file system on it; where it is mounted.
    ///
    /// # Errors
    /// A sentence.
    pub fn mount(&mut self) -> Result<PathBuf, String> {
        let device = self.device.clone().expect("attached");
        // All of it now: nothing is to be written later, while something is measured.
        let whole = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        call("mkfs.ext4", &["-q", "-F", "-E", whole, &device])?;
        let point = self.folder.join("mnt");
        fs::create_dir(&point).map_err(|error| error.to_string())?;
        let shown = point.display().to_string();
        call("mount", &["-o", "noatime", &device, &shown])?;
        self.mounted = true;
        Ok(point)
    }

    /// Takes it all away again.
    ///
    /// # Errors
    /// A sentence: what is left, and how to clear it away.
    pub fn close(mut self) -> Result<(), String> {
        self.clear()
    }

    fn clear(&mut self) -> Result<(), String> {
        if let Some(served) = &self.served {
            // What is written on the way out is not measured.
            served.set_timed(false);
        }
        if self.mounted {
            let point = self.folder.join("mnt").display().to_string();
            again(|| call("umount", &[&point]))?;
            self.mounted = false;
        }
        if let Some(device) = self.device.clone() {
            again(|| call("losetup", &["-d", &device]))?;
            self.device = None;
        }
        if let Some(mut fuse) = self.fuse.take() {
            let point = self.fuse_point().display().to_string();
            if let Err(why) = again(|| call("umount", &[&point])) {
                self.fuse = Some(fuse);
                return Err(why);
            }
            // It ends by itself when it is unmounted.
            let _ = fuse.wait(DEVICE_TIMEOUT);
        }
        self.served = None;
        fs::remove_dir_all(&self.folder)
            .map_err(|error| format!("cannot remove {}: {error}", self.folder.display()))
    }
}

/// A device may be busy for a moment after its last user has gone.
fn again(mut what: impl FnMut() -> Result<String, String>) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..50 {
        match what() {
            Ok(_) => return Ok(()),
            Err(why) => last = why,
        }
        pause(Duration::from_millis(100));
    }
    Err(last)
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.folder.exists() {
            return;
        }
        if let Err(why) = self.clear() {
            eprintln!(
                "a disk could not be taken away: {why}; the next run says how to clear it away"
            );
        }
    }
}

/// Copies a folder with everything in it as it is.
///
/// # Errors
/// A sentence.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    call("cp", &["-a", "--sparse=never", &from, &to])?;
    call("sync", &["-f", &to]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_is_named_by_what_is_mounted_from_it() {
        let of = |owner: &str| {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().unwrap();
            fs::write(folder.path().join(OWNER), owner).unwrap();
            let shown = folder.path().display();
            let mounts = format!(
                "/dev/loop3 {shown}/mnt ext4 rw 0 0\n/dev/fuse {shown}/fuse fuse rw 0 0\n/dev/loop4 /mnt ext4 rw 0 0\n"
            );
            devices_of(&mounts)
        };
        // No process has this number: the largest there can be is 2^22.
        assert_eq!(of("4194305"), ["losetup -d /dev/loop3"]);
        assert_eq!(of(&std::process::id().to_string()), Vec::<String>::new());
    }
}

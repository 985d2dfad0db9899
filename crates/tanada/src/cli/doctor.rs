//! `tanada doctor`: what can this machine do, what is missing, and how does one get it?
//!
//! ```text
//! kernel, data directory, limits, devices of the configuration, tools -> findings -> table or JSON
//! ```
//!
//! It changes nothing: the one file it makes, to try direct I/O, is gone when it ends.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::Bytes;
use config::{self, Config, Kind};
use env::fs::{Direct, File, Options};
use report::terminal::Ending;
use report::terminal::table::{size, table};
use rustix::fs::{Access, AtFlags, FallocateFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use utoipa::ToSchema;

use super::doctor_kernel::kernel;
use super::options::Doctor;
use super::show;
use crate::api::health::HealthStatus;
use crate::daemon::look::{self, Verdict};
use crate::daemon::serve;

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, but something is lost.
    Warn,
    /// It is not there, and only what it says is lost.
    Absent,
    /// It is not there, or not as it must be: the daemon would not start, or would do harm.
    Missing,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Absent => "absent",
            State::Missing => "missing",
        })
    }
}

/// One thing looked at.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Finding {
    /// `kernel`, `data`, `limits`, `device` or `tools`.
    #[schema(value_type = String)]
    pub area: &'static str,
    pub what: String,
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it; empty if nothing.
    pub todo: String,
}

#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        area: &'static str,
        what: &str,
        state: State,
        found: impl Into<String>,
        todo: &str,
    ) {
        self.0.push(Finding {
            area,
            what: what.to_owned(),
            state,
            found: found.into(),
            todo: match state {
                State::Ok => String::new(),
                _ => todo.to_owned(),
            },
        });
    }
}

/// Runs `tanada doctor`: exit status 4 if something is missing, 3 if something is lost, else 0.
pub fn run(arguments: &Doctor) -> anyhow::Result<ExitCode> {
    let data_dir = arguments.data_dir.as_deref();
    let (text, origin) = serve::load(arguments.config.as_deref(), data_dir)?;
    let config = config::read(&text, &origin, data_dir)?;
    let findings = examine(&config);
    show::answer(arguments.json, &findings, || render(&findings))?;
    let names = |state: State| {
        let found = findings.iter().filter(|it| it.state == state);
        found.map(|it| it.what.as_str()).collect::<Vec<_>>()
    };
    let (missing, warned) = (names(State::Missing), names(State::Warn));
    let verdict = match (missing.is_empty(), warned.is_empty()) {
        (false, _) => HealthStatus::Err,
        (true, false) => HealthStatus::Warn,
        (true, true) => HealthStatus::Ok,
    };
    if !missing.is_empty() {
        eprintln!("tanada: missing: {}", missing.join(", "));
    }
    Ok(Ending::from(verdict).into())
}

/// Looks at everything. `config` adds its own devices; the data directory is the configuration's.
pub fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::default();
    kernel(&mut findings);
    data_dir(&mut findings, &config.data_dir);
    limits(&mut findings);
    for device in &config.devices {
        if let Kind::Path { path, create, .. } = &device.kind {
            configured(&mut findings, &device.name, path, create.is_some());
        }
    }
    for seen in look::devices(config) {
        let state = match seen.verdict {
            Verdict::Bad => State::Missing,
            Verdict::Unknown => State::Warn,
            Verdict::Good => State::Ok,
        };
        let what = format!("on {}", seen.what);
        findings.add("device", &what, state, seen.found, &seen.todo);
    }
    tools(&mut findings);
    findings.0
}

/// The findings as people read them.
pub fn render(findings: &[Finding]) -> String {
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|finding| {
            vec![
                finding.state.to_string(),
                finding.area.to_owned(),
                finding.what.clone(),
                finding.found.clone(),
            ]
        })
        .collect();
    let mut text = table(&["STATE", "AREA", "WHAT", "FOUND"], &rows);
    let todo: Vec<&Finding> = findings
        .iter()
        .filter(|finding| !finding.todo.is_empty())
        .collect();
    if todo.is_empty() {
        text.push_str("\nNothing to do.\n");
        return text;
    }
    text.push_str("\nWhat would help:\n");
    for finding in todo {
        text.push_str(&format!("  {}: {}\n", finding.what, finding.todo));
    }
    text
}

/// A file that is gone again when this is dropped.
struct Trial(PathBuf);

impl Drop for Trial {
    fn drop(&mut self) {
        // Nothing more can be done about a file that will not go.
        let _ = fs::remove_file(&self.0);
    }
}

fn data_dir(findings: &mut Findings, dir: &Path) {
    // The directory may not be there yet: then what counts is where it would be made.
    let nearest = dir
        .ancestors()
        .map(|part| match part.as_os_str().is_empty() {
            true => Path::new("."),
            false => part,
        })
        .find(|part| part.is_dir())
        .unwrap_or(Path::new("/"));
    let shown = match nearest == dir {
        true => dir.display().to_string(),
        false => format!("{} (not made yet)", dir.display()),
    };
    if let Err(error) = rustix::fs::access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        let denied = error == Errno::ACCESS;
        let state = [State::Missing, State::Warn][usize::from(denied)];
        let todo = look::unusable("`tanada doctor`", nearest, denied);
        let found = format!("{shown}: {error}");
        return findings.add("data", "data directory", state, found, &todo);
    }
    findings.add("data", "data directory", State::Ok, shown, "");
    if let Ok(space) = rustix::fs::statvfs(nearest) {
        let free = space.f_bavail * space.f_frsize;
        findings.add(
            "data",
            "free space",
            if free < Bytes::gib(1).0 {
                State::Warn
            } else {
                State::Ok
            },
            size(free),
            "sparse files grow as data are written; a full file system fails those writes",
        );
    }
    let trial = Trial(nearest.join(format!(".tanada-doctor-{}", std::process::id())));
    if let Err(error) = try_file(findings, &trial.0) {
        findings.add(
            "data",
            "trial file",
            State::Missing,
            format!("{}: {error}", trial.0.display()),
            "check the file system's health and permissions",
        );
    }
}

/// What does the file system under `path` allow?
fn try_file(findings: &mut Findings, path: &Path) -> io::Result<()> {
    let file = fs::File::create_new(path)?;
    file.set_len(Bytes::mib(1).0)?;
    let stat = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let direct = fs::OpenOptions::new();
    let direct = {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = direct;
        options
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path)
    };
    let (state, found) = match direct {
        Ok(_) if stat.stx_dio_offset_align > 0 => (
            State::Ok,
            format!(
                "yes, memory aligned to {} and offsets to {} bytes",
                stat.stx_dio_mem_align, stat.stx_dio_offset_align
            ),
        ),
        Ok(_) => (State::Ok, "yes".to_owned()),
        Err(error) => (State::Warn, format!("refused: {error}")),
    };
    findings.add(
        "data",
        "direct I/O",
        state,
        found,
        "files here go through the page cache, so data are held twice; ext4, XFS and btrfs allow \
         direct I/O",
    );
    let punched = rustix::fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        0,
        4096,
    );
    let (state, found) = match punched {
        Ok(()) => (State::Ok, "yes".to_owned()),
        Err(error) => (State::Warn, format!("refused: {error}")),
    };
    findings.add(
        "data",
        "hole punching",
        state,
        found,
        "discards free no space here; ext4, XFS, btrfs and tmpfs can",
    );
    Ok(())
}

fn limits(findings: &mut Findings) {
    let files = getrlimit(Resource::Nofile);
    let enough = files.current.is_none_or(|current| current >= 4096);
    findings.add(
        "limits",
        "open files",
        if enough { State::Ok } else { State::Warn },
        limit(files.current, "", files.maximum),
        "ulimit -n 65536, or LimitNOFILE= in the service file: each client connection is one",
    );
    let memory = getrlimit(Resource::Memlock);
    let enough = memory
        .current
        .is_none_or(|current| current >= Bytes::mib(8).0);
    findings.add(
        "limits",
        "locked memory",
        if enough { State::Ok } else { State::Warn },
        limit(memory.current, " bytes", memory.maximum),
        "ulimit -l 65536, or LimitMEMLOCK= in the service file: rings on older kernels count \
         against it",
    );
}

fn limit(current: Option<u64>, unit: &str, maximum: Option<u64>) -> String {
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| format!("{n}{unit}"));
    match current == maximum {
        true => text(current),
        false => format!("{} (may be raised to {})", text(current), text(maximum)),
    }
}

/// A device or file of the configuration.
fn configured(findings: &mut Findings, name: &str, path: &Path, may_create: bool) {
    let shown = format!("{name} ({})", path.display());
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
            return findings.add("device", &shown, State::Ok, "will be created", "");
        }
        Err(error) => {
            let todo =
                "correct its path; lsblk lists devices, truncate -s 10G FILE makes a sparse file";
            return findings.add("device", &shown, State::Missing, error.to_string(), todo);
        }
    };
    if let Err(error) = rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
        let todo = "`sudo tanada device claim DISK` gives a disk to the group tanada, whose members may use it; a file, \
                    and a disk without serial number, need `chown`";
        return findings.add("device", &shown, State::Missing, error.to_string(), todo);
    }
    if !meta.file_type().is_block_device() {
        let found = format!("regular file, {}", size(meta.len()));
        return findings.add("device", &shown, State::Ok, found, "");
    }
    place(findings, &shown, meta.rdev());
    opens(findings, name, path);
}

/// Where a block device begins on its disk.
fn place(findings: &mut Findings, shown: &str, device: u64) {
    let folder = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let number = |file: &str| {
        fs::read_to_string(format!("{folder}/{file}"))
            .or_else(|_| fs::read_to_string(format!("{folder}/../{file}")))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let sectors = number("size").unwrap_or(0);
    let physical = number("queue/physical_block_size").unwrap_or(512);
    let start = number("start").unwrap_or(0) * base::SECTOR;
    let aligned = start.is_multiple_of(physical.max(4096));
    findings.add(
        "device",
        shown,
        if aligned { State::Ok } else { State::Warn },
        format!(
            "block device, {}, physical block {physical} bytes, begins at byte {start} of its disk",
            size(sectors * base::SECTOR)
        ),
        "the partition does not begin on a 4096-byte boundary, so many writes cost two; make it \
         anew with parted -a optimal",
    );
}

/// Can a block device be opened, and with direct I/O?
fn opens(findings: &mut Findings, name: &str, path: &Path) {
    let options = Options {
        read_only: true,
        direct: Direct::Auto,
        create: None,
    };
    // Opening within a runtime is what the daemon will do.
    let opened = env::Runtime::real(env::RealConfig::default()).and_then(|runtime| {
        let path = path.to_owned();
        runtime.block_on(async move { File::open(&path, &options).map(|file| file.direct()) })
    });
    match opened {
        Ok(true) => {}
        Ok(false) => findings.add(
            "device",
            &format!("{name} direct I/O"),
            State::Warn,
            "refused",
            "data of this device go through the page cache",
        ),
        Err(error) => findings.add(
            "device",
            &format!("{name} opens"),
            State::Missing,
            error.to_string(),
            "unmount it and end what uses it (lsof, fuser -v)",
        ),
    }
}

fn tools(findings: &mut Findings) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |tool: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(tool))
            .find(|file| {
                rustix::fs::access(file, Access::EXEC_OK).is_ok()
                    && fs::metadata(file).is_ok_and(|meta| meta.is_file())
            })
    };
    for (tool, package, purpose) in [
        ("nbdinfo", "libnbd-bin", "shows what an export offers"),
        ("nbdcopy", "libnbd-bin", "copies to and from exports"),
        ("nbdfuse", "libnbd-bin", "shows an export as a file"),
        ("qemu-img", "qemu-utils", "converts and compares images"),
        ("fio", "fio", "measures"),
        ("mariadbd", "mariadb-server", "is measured by `bench app`"),
        (
            "my_print_defaults",
            "mariadb-client-core",
            "is called by the database's installer",
        ),
        ("nbd-client", "nbd-client", "makes /dev/nbd0 of an export"),
    ] {
        match find(tool) {
            Some(file) => {
                findings.add("tools", tool, State::Ok, file.display().to_string(), "");
            }
            None => findings.add(
                "tools",
                tool,
                State::Absent,
                format!("not on PATH ({purpose})"),
                &format!("apt install {package}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::doctor_kernel::version;
    use super::*;

    #[test]
    fn a_kernel_release_is_read() {
        assert_eq!(version("6.18.5-amd64"), Some((6, 18)));
        assert_eq!(version("5.10.0"), Some((5, 10)));
        assert_eq!(version("strange"), None);
    }

    #[test]
    fn what_is_wrong_says_what_would_help() {
        let mut findings = Findings::default();
        findings.add(
            "tools",
            "fio",
            State::Missing,
            "not on PATH",
            "apt install fio",
        );
        findings.add("tools", "nbdinfo", State::Ok, "/usr/bin/nbdinfo", "unused");
        let text = render(&findings.0);
        assert!(text.contains("missing  tools  fio"), "{text}");
        assert!(
            text.ends_with("What would help:\n  fio: apt install fio\n"),
            "{text}"
        );
    }
}

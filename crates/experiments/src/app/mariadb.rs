//! A MariaDB server for one measurement: its own data directory, a Unix socket, no port.
//!
//! ```text
//! install (system tables) -> start -> ready: its socket answers -> connect ... -> stop: SIGTERM, clean shutdown
//! ```
//!
//! What decides whether the device is reached at all: the buffer pool is small beside the data, and data and log go past the page cache
//! (O_DIRECT), unless asked for otherwise.
//!
//! Always true:
//! 1. Never root: where we are root, the server runs as another user.
//! 2. Only its user and root can reach its socket.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base::Bytes;
use mysql::consts::CapabilityFlags;
use mysql::{Conn, OptsBuilder};
use serde::{Deserialize, Serialize};

use super::AppError;
use super::process::{Identity, Process, Stop, await_that, bound, find_program, room};

/// How long it may take until it answers.
const START: Duration = Duration::from_secs(120);
/// How long it may take to shut down: pages that are not written yet go to a slow device.
const STOP: Duration = Duration::from_secs(120);
/// When a commit is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// When its log is flushed to the device.
    #[default]
    Durable,
    /// At once; the log is flushed every second.
    Lazy,
}

/// How the server is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Memory for pages.
    pub buffer_pool: Bytes,
    /// The redo log's file.
    pub log: Bytes,
    /// When a commit is answered.
    pub commit: Commit,
    /// Past the page cache?
    pub direct: bool,
    /// Who it runs as, where we are root: `mysql`, else `nobody`, unless named.
    pub user: Option<String>,
}

impl Default for Settings {
    /// 16 MiB for pages, a log of 32 MiB, durable, direct.
    fn default() -> Settings {
        Settings {
            buffer_pool: Bytes::mib(16),
            log: Bytes::mib(32),
            commit: Commit::Durable,
            direct: true,
            user: None,
        }
    }
}

/// The programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    server: PathBuf,
    install: PathBuf,
}

impl Tools {
    /// Looks for them.
    ///
    /// # Errors
    /// [`AppError::Tool`] names what is missing.
    pub fn find() -> Result<Tools, AppError> {
        let need = |names: &[&str], package: &'static str| {
            find_program(names).ok_or_else(|| AppError::Tool {
                tool: names[0].to_owned(),
                package,
            })
        };
        need(&["setpriv"], "util-linux")?;
        // The installer calls it, and says much about other things where it is missing.
        need(&["my_print_defaults"], "mariadb-client-core")?;
        Ok(Tools {
            server: need(&["mariadbd", "mysqld"], "mariadb-server")?,
            install: need(
                &["mariadb-install-db", "mysql_install_db"],
                "mariadb-server",
            )?,
        })
    }
}

/// Who the server runs as; `None`: as we do.
///
/// # Errors
/// [`AppError::User`] if the named one is not there or is root.
pub fn identity(asked: Option<&str>) -> Result<Option<Identity>, AppError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let number = |which: &str, name: &str| -> Option<u32> {
        let answer = Command::new("id").args([which, name]).output().ok()?;
        String::from_utf8(answer.stdout).ok()?.trim().parse().ok()
    };
    let names = match asked {
        Some(name) => vec![name],
        None => vec!["mysql", "nobody"],
    };
    let found = names.iter().find_map(|name| {
        let (uid, gid) = (number("-u", name)?, number("-g", name)?);
        (uid != 0).then_some(Identity { uid, gid })
    });
    found.map(Some).ok_or_else(|| AppError::User {
        asked: names.join(" or "),
    })
}

/// Gives a folder and all in it to `identity`. No link is followed: what it leads to is not ours to give. The folder
/// comes last: until then its new owner cannot put a link in the place of what is in it.
pub(super) fn give(path: &Path, identity: Option<Identity>) -> std::io::Result<()> {
    let Some(Identity { uid, gid }) = identity else {
        return Ok(());
    };
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), identity)?;
        }
    }
    lchown(path, Some(uid), Some(gid))
}

/// Makes the system tables in `data`, a folder that is not there yet.
///
/// # Errors
/// [`AppError`]: a program is missing or fails.
pub fn install(tools: &Tools, data: &Path, settings: &Settings) -> Result<(), AppError> {
    let identity = identity(settings.user.as_deref())?;
    let made = fs::create_dir_all(data).and_then(|()| give(data, identity));
    made.map_err(|source| AppError::folder("make", data, source))?;
    let room = private_room(identity)?;
    let answer = bound(&tools.install, identity)
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .arg(temporary_folder(room.path()))
        .arg(format!("--innodb-log-file-size={}", settings.log.0))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .stdin(Stdio::null())
        // It works in the current folder, which its user may not be allowed to enter.
        .current_dir("/")
        .output();
    let answer = answer.map_err(|source| AppError::Start {
        what: "mariadb-install-db".to_owned(),
        source,
    })?;
    if !answer.status.success() {
        return Err(AppError::Server {
            what: "make its system tables",
            said: telling_lines(&format!(
                "{}{}",
                String::from_utf8_lossy(&answer.stdout),
                String::from_utf8_lossy(&answer.stderr)
            )),
        });
    }
    Ok(())
}

/// A temporary folder of `identity` alone, gone when it is dropped.
fn private_room(identity: Option<Identity>) -> Result<tempfile::TempDir, AppError> {
    let room = room("db");
    let room = room.map_err(|source| AppError::folder("make", &std::env::temp_dir(), source))?;
    let private = fs::set_permissions(room.path(), fs::Permissions::from_mode(0o700));
    private
        .and_then(|()| give(room.path(), identity))
        .map_err(|source| AppError::folder("give away", room.path(), source))?;
    Ok(room)
}

/// Where a server keeps its temporary files. In a folder shared with other servers they would be lost: a server that starts
/// removes every `#sql` file it finds there.
fn temporary_folder(room: &Path) -> String {
    format!("--tmpdir={}", room.display())
}

/// What shows that a line names a cause.
const CAUSES: [&str; 7] = [
    "fatal",
    "error",
    "cannot",
    "can't",
    "could not",
    "denied",
    "no space",
];
/// Lines of a program that are shown.
const LINES: usize = 8;

/// The lines that name a cause, the first ones first: behind them a program gives general advice, or says that it ends. Without
/// any such line, the last ones.
pub(super) fn telling_lines(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let all: Vec<&str> = lines.collect();
    let names_a_cause = |line: &&&str| {
        let lower = line.to_lowercase();
        CAUSES.iter().any(|word| lower.contains(word))
    };
    let causes: Vec<&str> = all.iter().filter(names_a_cause).copied().collect();
    match causes.is_empty() {
        true => all[all.len().saturating_sub(LINES)..].join("\n"),
        false => causes[..causes.len().min(LINES)].join("\n"),
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    process: Process,
    socket: PathBuf,
    log: PathBuf,
    /// Gone with the server.
    _room: tempfile::TempDir,
}

impl Server {
    /// Starts one on the data in `data` and waits until it answers.
    ///
    /// # Errors
    /// [`AppError`] with what it said, or [`AppError::Interrupted`].
    pub fn start(
        tools: &Tools,
        data: &Path,
        settings: &Settings,
        stop: &Stop,
    ) -> Result<Server, AppError> {
        let identity = identity(settings.user.as_deref())?;
        // Names of sockets are short, those of folders need not be: it has a room of its own.
        let room = private_room(identity)?;
        let socket = room.path().join("socket");
        let log = room.path().join("server.log");
        let mut command = bound(&tools.server, identity);
        command
            .args(arguments(data, &socket, &log, settings))
            .arg(temporary_folder(room.path()))
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::start(command, STOP).map_err(|source| AppError::Start {
            what: tools.server.display().to_string(),
            source,
        })?;
        let mut server = Server {
            process,
            socket,
            log,
            _room: room,
        };
        let mut dead = false;
        let answers = await_that(START, stop, || {
            dead = !matches!(server.process.ended(), Ok(None));
            dead || server.connect_once().is_ok()
        });
        if stop.is_set() {
            return Err(AppError::Interrupted);
        }
        if dead || !answers {
            return Err(AppError::Server {
                what: "start",
                said: server.said(),
            });
        }
        Ok(server)
    }

    fn connect_once(&self) -> Result<Conn, mysql::Error> {
        let options = OptsBuilder::new()
            .socket(Some(self.socket.display().to_string()))
            .user(Some("root"))
            // Updates count the records they found, also where nothing changed.
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS);
        Conn::new(options)
    }

    /// A connection.
    ///
    /// # Errors
    /// [`AppError::Sql`].
    pub fn connect(&self) -> Result<Conn, AppError> {
        self.connect_once().map_err(|source| AppError::Sql {
            what: "connect",
            source: Box::new(source),
        })
    }

    fn said(&self) -> String {
        telling_lines(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Shuts it down cleanly.
    ///
    /// # Errors
    /// [`AppError::Server`] if it had to be killed.
    pub fn stop(mut self) -> Result<(), AppError> {
        match self.process.end() {
            Ok(true) => Ok(()),
            Ok(false) => Err(AppError::Server {
                what: "shut down in time",
                said: self.said(),
            }),
            Err(source) => Err(AppError::Start {
                what: "the end of mariadbd".to_owned(),
                source,
            }),
        }
    }
}

/// The server's arguments: everything is said here, nothing is read from files of this machine.
fn arguments(data: &Path, socket: &Path, log: &Path, settings: &Settings) -> Vec<String> {
    let flush = match settings.commit {
        Commit::Durable => 1,
        Commit::Lazy => 0,
    };
    let method = match settings.direct {
        true => "O_DIRECT",
        false => "fsync",
    };
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--socket={}", socket.display()),
        format!("--pid-file={}", socket.with_extension("pid").display()),
        format!("--log-error={}", log.display()),
        format!("--innodb-buffer-pool-size={}", settings.buffer_pool.0),
        format!("--innodb-log-file-size={}", settings.log.0),
        format!("--innodb-flush-method={method}"),
        format!("--innodb-flush-log-at-trx-commit={flush}"),
        // What was in memory before must not come back by itself.
        "--innodb-buffer-pool-load-at-startup=0".to_owned(),
        "--innodb-buffer-pool-dump-at-shutdown=0".to_owned(),
    ];
    let plain = [
        "--skip-networking",
        "--skip-log-bin",
        "--performance-schema=0",
    ];
    arguments.extend(plain.map(str::to_owned));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_the_device_is_said_to_the_server() {
        let path = Path::new("/x");
        let said = |settings: &Settings| arguments(path, path, path, settings).join(" ");
        let plain = said(&Settings::default());
        for word in [
            "--innodb-flush-method=O_DIRECT",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-buffer-pool-size=16777216",
            "--skip-networking",
        ] {
            assert!(plain.contains(word), "{word}: {plain}");
        }
        let other = said(&Settings {
            commit: Commit::Lazy,
            direct: false,
            ..Settings::default()
        });
        assert!(other.contains("--innodb-flush-method=fsync"), "{other}");
        assert!(
            other.contains("--innodb-flush-log-at-trx-commit=0"),
            "{other}"
        );
    }

    #[test]
    fn what_a_program_says_of_the_cause_is_not_hidden_by_its_advice() {
        let said = "Installing MariaDB tables\n\nFATAL ERROR: Could not find my_print_defaults\n\n\
                    The following directories were searched:\n\n    /usr/bin\n    /usr/extra\n\n\
                    If you compiled from source, you need to run 'make install' to\ncopy the software.\n\
                    If you are using a binary release, you must run this script from\nwithin the directory of the \
                    extracted archive.\nThe latest information is available at\nhttps://mariadb.com/\n";
        assert_eq!(
            telling_lines(said),
            "FATAL ERROR: Could not find my_print_defaults"
        );
        let plain: Vec<String> = (0..20).map(|n| format!("line {n}")).collect();
        let excerpt = telling_lines(&plain.join("\n"));
        assert!(
            excerpt.starts_with("line 12") && excerpt.ends_with("line 19"),
            "{excerpt}"
        );
    }

    #[test]
    fn what_a_link_leads_to_keeps_its_owner() {
        use std::os::unix::fs::{MetadataExt, symlink};
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (ours, given) = (dir.path().join("ours"), dir.path().join("given"));
        fs::create_dir(&ours).unwrap();
        fs::write(ours.join("shadow"), "secret").unwrap();
        fs::create_dir(&given).unwrap();
        fs::write(given.join("table"), "").unwrap();
        symlink(ours.join("shadow"), given.join("file")).unwrap();
        symlink(&ours, given.join("folder")).unwrap();
        let (uid, gid) = (65534, 65534);
        give(&given, Some(Identity { uid, gid })).unwrap();
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        for path in ["", "table", "file", "folder"] {
            assert_eq!(owner(&given.join(path)), uid, "{path}");
        }
        assert_eq!(owner(&ours), 0);
        assert_eq!(owner(&ours.join("shadow")), 0);
    }

    #[test]
    fn a_server_is_never_root() {
        if !rustix::process::geteuid().is_root() {
            assert_eq!(identity(None).unwrap(), None);
            return;
        }
        let somebody = identity(None).unwrap().unwrap();
        assert_ne!(somebody.uid, 0);
        assert_eq!(
            identity(Some("root")).unwrap_err().to_string(),
            "cannot run the database as root: name a user that is on this machine and is not root (--user)"
        );
    }
}

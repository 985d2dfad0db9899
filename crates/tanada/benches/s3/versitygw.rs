//! The peer: versitygw over a folder, found or built.
//!
//! ```text
//! PATH | target/versitygw/bin | go install -> there -> a process over a folder, plain or durable
//! ```

use std::error::Error;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::daemon::Running;
use crate::signed::Client;

/// What is built where none is found.
const VERSION: &str = "v1.8.0";
const SOURCE: &str = "github.com/versity/versitygw/cmd/versitygw";
/// The access key of its owner, and the secret.
const KEY: [&str; 2] = ["bench", "bench-secret"];

/// The program, if it can be had; what to install is said on the standard error.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/versitygw/bin");
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(ours.clone());
    let there = |folders: &[PathBuf]| {
        let mut all = folders.iter().map(|it| it.join("versitygw"));
        all.find(|it| it.is_file())
    };
    if let Some(found) = there(&folders) {
        return Some(found);
    }
    eprintln!(
        "bench s3: building versitygw {VERSION} in {}",
        ours.display()
    );
    let built = fs::create_dir_all(&ours).and_then(|()| {
        Command::new("go")
            .args(["install", &format!("{SOURCE}@{VERSION}")])
            .env("GOBIN", ours.canonicalize()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
    });
    let why = match built {
        Ok(status) if status.success() => return there(&[ours]),
        Ok(status) => format!("`go install` failed ({status})"),
        Err(error) => format!("cannot start go: {error}"),
    };
    eprintln!(
        "bench s3: measured without versitygw: {why}; install Go (golang-go), or put versitygw {VERSION} in PATH"
    );
    None
}

/// One that serves a folder.
pub struct Versitygw {
    pub client: Client,
    pub root: PathBuf,
    running: Running,
}

impl Versitygw {
    /// Over a new folder; what is written there is made durable by the file system, if it shall be.
    pub fn start(
        program: &Path,
        root: PathBuf,
        durable: bool,
    ) -> Result<Versitygw, Box<dyn Error>> {
        fs::create_dir_all(&root)?;
        if durable {
            // What is made in it has the attribute from the folder.
            let set = Command::new("chattr").arg("+S").arg(&root).status()?;
            if !set.success() {
                return Err(format!("`chattr +S` failed on {} ({set})", root.display()).into());
            }
        }
        let host = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let child = Command::new(program)
            .args(["--port", &host, "--keep-alive", "--quiet", "posix"])
            .arg(&root)
            .env("ROOT_ACCESS_KEY", KEY[0])
            .env("ROOT_SECRET_KEY", KEY[1])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let versitygw = Versitygw {
            client: Client {
                host,
                id: KEY[0].to_owned(),
                secret: KEY[1].to_owned(),
            },
            root,
            running: Running(child),
        };
        for _ in 0..100 {
            if TcpStream::connect(&versitygw.client.host).is_ok() {
                return Ok(versitygw);
            }
            sleep(Duration::from_millis(100));
        }
        Err("versitygw does not listen after 10 s".into())
    }

    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }
}

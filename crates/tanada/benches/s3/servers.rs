//! The servers of a run: our daemon over a file, versitygw over folders beside it.

use std::error::Error;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::daemon::Daemon;
use crate::signed::Client;
use crate::versitygw::{self, Versitygw};

/// Where the store lies.
const SIZE: &str = "10GiB";
/// The bucket that a case's objects lie in, at each server.
pub const BUCKET: &str = "/bench";

/// Who serves, as the rows call it.
pub const GATEWAY: &str = "gateway";
pub const PLAIN: &str = "versitygw";
pub const DURABLE: &str = "versitygw, durable";

/// One of them, as a case uses it.
#[derive(Clone)]
pub struct Server {
    pub name: &'static str,
    pub client: Client,
    pid: u32,
}

impl Server {
    /// Seconds of a processor that its process has had so far.
    pub fn cpu_seconds(&self) -> f64 {
        let process = procfs::process::Process::new(self.pid as i32);
        let stat = process.and_then(|it| it.stat());
        let stat = stat.expect("the server runs");
        (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
    }
}

/// All of them.
pub struct Servers {
    _daemon: Daemon,
    /// Where the store's own clients connect.
    pub store: String,
    pub gateway: Server,
    plain: Option<Versitygw>,
    durable: Option<Versitygw>,
}

impl Servers {
    /// Starts them in a folder, each with a bucket.
    pub fn start(dir: &Path) -> Result<Servers, Box<dyn Error>> {
        let store = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let config = format!(
            "[[device]]\nname = \"disk\"\npath = \"disk.img\"\nsize = \"{SIZE}\"\n\
             [[store]]\nname = \"s0\"\ndevice = \"disk\"\nlisten = \"{store}\"\ncreate = true\nunauthenticated = true\n\
             read_speed = \"2GB/s\"\nwrite_speed = \"2GB/s\"\n\
             [[s3]]\nname = \"gw\"\nstore = \"s0\"\nlisten = \"127.0.0.1:0\"\n\
             [admin]\nlisten = \"unix:admin.sock\"\n"
        );
        let mut daemon = Daemon::new(&dir.join("tanada"), &config)?;
        daemon.begin()?;
        daemon.text(&["account", "create", "bench"])?;
        let gateway = Server {
            name: GATEWAY,
            client: Client::of(&daemon, "bench")?,
            pid: daemon.running.as_ref().expect("just started").0.id(),
        };
        let program = versitygw::find();
        let peer = |name: &str, durable| -> Result<Option<Versitygw>, Box<dyn Error>> {
            let start = |program| Versitygw::start(program, dir.join(name), durable);
            program.as_deref().map(start).transpose()
        };
        let plain = peer("plain", false)?;
        let durable = peer("durable", true).unwrap_or_else(|error| {
            eprintln!("bench s3: measured without durable writes of versitygw: {error}");
            None
        });
        let servers = Servers {
            _daemon: daemon,
            store,
            gateway,
            plain,
            durable,
        };
        for server in servers.all() {
            server.client.done(("PUT", BUCKET), &[])?;
        }
        Ok(servers)
    }

    /// The gateway, versitygw, and versitygw with durable writes, as far as they are there.
    pub fn all(&self) -> Vec<Server> {
        let mut all = self.beside();
        all.extend(self.durable.iter().map(|it| of(DURABLE, it)));
        all
    }

    /// Without the last one, where nothing is written.
    pub fn beside(&self) -> Vec<Server> {
        let mut all = vec![self.gateway.clone()];
        all.extend(self.plain.iter().map(|it| of(PLAIN, it)));
        all
    }

    /// Takes what versitygw has written from the page cache, once it is on the disk.
    pub fn drop_pages(&self, folder: &str) -> Result<(), Box<dyn Error>> {
        let Some(plain) = &self.plain else {
            return Ok(());
        };
        let folder = plain.root.join(BUCKET.trim_start_matches('/')).join(folder);
        for entry in fs::read_dir(folder)? {
            let file = fs::File::open(entry?.path())?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        Ok(())
    }
}

fn of(name: &'static str, versitygw: &Versitygw) -> Server {
    Server {
        name,
        client: versitygw.client.clone(),
        pid: versitygw.pid(),
    }
}

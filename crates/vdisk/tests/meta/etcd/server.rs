//! A real etcd on loopback, and a proxy that loses what the test asks it to.
//!
//! Each server runs beside a shell that kills it when our end of a pipe closes: it never outlives the test, however
//! that ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use base::Nanos;
use env::{RealConfig, Runtime};
use rustix::process::{Pid, Signal, kill_process};
use vdisk::meta::{Etcd, EtcdConfig};

/// Is etcd here? If not: skip, or fail where tools are required.
pub fn have_etcd() -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("etcd").is_file()));
    if !found {
        let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "etcd is required and not installed");
        println!("skipped: etcd not installed");
    }
    found
}

pub fn real<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    Runtime::real(RealConfig::default())
        .unwrap()
        .block_on(future)
}

/// A port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// One member, running or not.
pub struct Server {
    arguments: Vec<String>,
    directory: PathBuf,
    pub url: String,
    port: u16,
    running: Option<(Child, Pid)>,
}

/// Kills etcd and removes its directory when its input ends.
const KEEPER: &str = r#"
directory=$1; shift
etcd --data-dir "$directory" "$@" >"$directory/log" 2>&1 &
pid=$!
echo $pid
read -r last
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
[ "$last" = keep ] || rm -rf "$directory"
"#;

impl Server {
    /// One member alone, with more arguments for it.
    pub fn alone(scheme: &str, more: &[&str]) -> Server {
        let mut server = Server::cluster_with(1, scheme, more).remove(0);
        server.start();
        server
    }

    /// Members that know each other; none is started.
    pub fn cluster(count: usize) -> Vec<Server> {
        Server::cluster_with(count, "http", &[])
    }

    fn cluster_with(count: usize, scheme: &str, more: &[&str]) -> Vec<Server> {
        let peers: Vec<String> = (0..count)
            .map(|_| format!("http://127.0.0.1:{}", free_port()))
            .collect();
        let names: Vec<String> = (0..count)
            .map(|at| format!("m{at}={}", peers[at]))
            .collect();
        (0..count)
            .map(|at| {
                let port = free_port();
                let url = format!("{scheme}://127.0.0.1:{port}");
                let directory = tempfile::tempdir().unwrap().keep();
                let mut arguments: Vec<String> = [
                    ["--name", &format!("m{at}")],
                    ["--listen-client-urls", &url],
                    ["--advertise-client-urls", &url],
                    ["--listen-peer-urls", &peers[at]],
                    ["--initial-advertise-peer-urls", &peers[at]],
                    ["--initial-cluster", &names.join(",")],
                    // Loaded machines shall not elect all the time.
                    ["--heartbeat-interval", "100"],
                    ["--election-timeout", "1000"],
                ]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect();
                arguments.extend(more.iter().map(|it| (*it).to_owned()));
                Server {
                    arguments,
                    directory,
                    url,
                    port,
                    running: None,
                }
            })
            .collect()
    }

    pub fn start(&mut self) {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&self.directory)
            .args(&self.arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = keeper.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        self.running = Some((keeper, pid));
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.running.as_ref().unwrap().1, signal).unwrap();
    }

    /// Ends it as a power cut would; its data stay.
    pub fn kill_9(&mut self) {
        let (mut keeper, pid) = self.running.take().unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        keeper.stdin.take().unwrap().write_all(b"keep\n").unwrap();
        keeper.wait().unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Asks in plain HTTP, past the code under test.
    pub fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until it answers.
    pub fn when_up(self, config: &EtcdConfig) -> Server {
        wait_for(config, &|| self.log());
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((mut keeper, _)) = self.running.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        } else {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Waits until the cluster answers; `log` is shown if it never does.
pub fn wait_for(config: &EtcdConfig, log: &dyn Fn() -> String) {
    let etcd = Etcd::new(config).unwrap();
    let meta = etcd.handle();
    let up = real(async move {
        for _ in 0..150 {
            match meta.client().get("is it up").await {
                Ok(_) => return Ok(()),
                Err(error @ vdisk::meta::MetaError::Bad { .. }) => return Err(error),
                Err(_) => env::sleep(Nanos::millis(200)).await,
            }
        }
        meta.client().get("is it up").await.map(drop)
    });
    if let Err(error) = up {
        panic!("etcd does not come up: {error}\n{}", log());
    }
}

pub fn config(urls: &[&str]) -> EtcdConfig {
    EtcdConfig {
        endpoints: urls.iter().map(|url| (*url).to_owned()).collect(),
        ..EtcdConfig::default()
    }
}

/// What a [`Proxy`] does with what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Loses {
    Nothing,
    /// Requests arrive; when the answer comes, the connection is cut.
    Answers,
    /// Requests are taken in and go nowhere; the connection stays.
    Requests,
}

/// Lies between a client and a server.
pub struct Proxy {
    pub url: String,
    loses: Arc<AtomicU8>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub fn to(server: &Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let loses = Arc::new(AtomicU8::new(0));
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (port, kept, mode) = (server.port, Arc::clone(&open), Arc::clone(&loses));
        thread(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let both = [&client, &upstream].map(|it| it.try_clone().unwrap());
                kept.lock().unwrap().extend(both);
                for (from, to, lost_in) in [
                    (&client, &upstream, Loses::Requests),
                    (&upstream, &client, Loses::Answers),
                ] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let mode = Arc::clone(&mode);
                    thread(move || carry(from, to, lost_in, &mode));
                }
            }
        });
        Proxy { url, loses, open }
    }

    pub fn loses(&self, what: Loses) {
        self.loses.store(what as u8, Ordering::SeqCst);
    }

    /// Cuts all connections there are.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn thread(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().spawn(work).unwrap();
}

fn carry(mut from: TcpStream, mut to: TcpStream, lost_in: Loses, mode: &AtomicU8) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if mode.load(Ordering::SeqCst) == lost_in as u8 {
            match lost_in {
                Loses::Requests => continue,
                _ => break,
            }
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Certificates as PEM files: an authority, a server's and a client's.
pub struct Certificates {
    pub directory: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        use rcgen::{
            BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
            KeyPair,
        };
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = authority.self_signed(&authority_key).unwrap();
        write("authority", certificate.pem());
        let issuer = Issuer::new(authority, authority_key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            // etcd's gateway is a client of its own server, with the server's certificate.
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ];
            write(name, params.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}-key"), key.serialize_pem());
        }
        Certificates { directory }
    }

    pub fn path(&self, name: &str) -> String {
        Path::new(self.directory.path())
            .join(name)
            .display()
            .to_string()
    }

    pub fn pem(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

//! A node's certificate is revoked: when do nodes hang up on those who show it?
//!
//! ```text
//! client with a certificate of node n3 -> stores of n1 and n2: when bytes came, and why no more
//! client with a certificate of node n4 -> the same, but nothing is revoked: it goes on
//! revoked at n1 -> the last byte of the first from n1, and from n2
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use base::{Nanos, View};
use env::net::Address;
use env::{RealConfig, Runtime};
use store::net::client::{Client, ClientOptions, Credentials};
use store::{Change, ObjectCalls};
use tls::{Expected, Identity, Material};

use super::daemon;
use super::nodes::{Disks, Node, Nodes, Setting};
use super::report::{Bar, Report};

/// How often a certificate is revoked.
const TIMES: usize = 20;
/// What is read, again and again.
const OBJECT: &str = "x/big";
const BYTES: u64 = 256 << 10;
/// What came last before a certificate was revoked is no older.
const FLOWING: Duration = Duration::from_millis(250);

/// Certificates for three nodes, and daemons with them.
fn start() -> Result<Nodes, Box<dyn Error>> {
    let mut setting = Setting::of(Disks::Memory)?;
    let root = setting.root.path().to_owned();
    daemon::text(&root, &["cluster", "ca", "init", "ca"])?;
    for nth in 1..=3 {
        let (name, dir) = (format!("n{nth}"), root.join(format!("n{nth}")));
        fs::create_dir_all(&dir)?;
        let made = [
            "node",
            "create",
            &name,
            "--ca",
            "../ca",
            "--host",
            "127.0.0.1",
        ];
        daemon::text(&dir, &made)?;
    }
    let node = |_| Node {
        listen: "listen = \"tls:127.0.0.1:0\"\n".to_owned(),
        more: String::new(),
    };
    setting.nodes = (1..=3).map(node).collect();
    Nodes::with(setting)
}

/// Where store `s<nth>` listens.
fn address(nodes: &Nodes, nth: usize) -> Result<Address, Box<dyn Error>> {
    let status = nodes
        .node(nth)
        .connect()?
        .get(&format!("/v1/stores/s{nth}"))?;
    Ok(status["listen"][0].as_str().ok_or("an address")?.parse()?)
}

/// A certificate of a node that was never there, in a folder of its own.
fn issued(root: &Path, name: &str, nth: usize) -> Result<PathBuf, Box<dyn Error>> {
    let dir = root.join(format!("issued{nth}"));
    fs::create_dir_all(&dir)?;
    daemon::text(&dir, &["cluster", "ca", "issue", name, "--ca", "../ca"])?;
    Ok(dir.join(name))
}

/// Who comes, and where to.
#[derive(Clone)]
struct Coming {
    certificate: PathBuf,
    node: usize,
    there: Address,
    key: [u8; 32],
}

impl Coming {
    async fn connect(&self) -> Result<Client, String> {
        let file = |name: &str| fs::read(self.certificate.join(name)).map_err(|it| it.to_string());
        let material = Material {
            authority: file("ca.pem")?,
            own: Some((file("cert.pem")?, file("key.pem")?)),
        };
        let options = ClientOptions {
            tls: Some(tls::Client {
                identity: Identity::new(&material).map_err(|it| it.to_string())?,
                expected: Expected::Node(format!("n{}", self.node)),
            }),
            timeout: Nanos::secs(20),
            ..ClientOptions::default()
        };
        let come = Client::connect_with(&self.there, Credentials::NodeKey(self.key), &options);
        come.await.map_err(|it| it.to_string())
    }

    /// Reads until it is cut off or stopped: when bytes came, and why they came no more.
    fn read(self, stop: Arc<AtomicBool>) -> Result<Reading, Box<dyn Error>> {
        let thread = Builder::new().spawn(move || {
            let runtime = Runtime::real(RealConfig::default()).map_err(|it| it.to_string())?;
            runtime.block_on(async move {
                let client = self.connect().await?;
                let mut came = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match client.read(OBJECT, 0, BYTES).await {
                        Ok(_) => came.push(Instant::now()),
                        Err(error) => return Ok((came, Some(error.to_string()))),
                    }
                }
                Ok((came, None))
            })
        })?;
        Ok(Reading(thread))
    }

    /// Is it turned away when it comes anew, and in words that say why?
    fn turned_away(self) -> Result<bool, Box<dyn Error>> {
        let runtime = Runtime::real(RealConfig::default())?;
        let come = runtime.block_on(async move { self.connect().await.map(drop) });
        Ok(come.is_err_and(|why| why.contains("revoked")))
    }
}

type Came = (Vec<Instant>, Option<String>);

/// A client that reads.
struct Reading(JoinHandle<Result<Came, String>>);

impl Reading {
    fn joined(self) -> Result<Came, Box<dyn Error>> {
        Ok(self.0.join().map_err(|_| "a client panicked")??)
    }
}

/// What all revocations showed.
#[derive(Default)]
struct Tally {
    /// Seconds from the command to the last byte, at n1 and n2.
    last: [Vec<f64>; 2],
    /// What is not as it ought to be, in words.
    wrong: Vec<String>,
}

/// Revokes one certificate of n3 while its clients read.
fn revoked(
    nodes: &Nodes,
    tally: &mut Tally,
    (nth, root): (usize, &Path),
) -> Result<(), Box<dyn Error>> {
    let (stolen, honest) = (issued(root, "n3", nth)?, root.join("honest/n4"));
    let coming = |certificate: &Path, node: usize| -> Result<Coming, Box<dyn Error>> {
        Ok(Coming {
            certificate: certificate.to_owned(),
            node,
            there: address(nodes, node)?,
            key: nodes.key()?,
        })
    };
    let stop = Arc::new(AtomicBool::new(false));
    let others = coming(&honest, 2)?.read(Arc::clone(&stop))?;
    let mut clients = Vec::new();
    for node in [1, 2] {
        clients.push(coming(&stolen, node)?.read(Arc::clone(&stop))?);
    }
    sleep(Duration::from_secs(1));
    let asked = Instant::now();
    nodes.text(1, &["cluster", "ca", "revoke", "n3", "--ca", "../ca"])?;
    // Who is not cut off is stopped, and then says nothing of an end.
    while clients.iter().any(|it| !it.0.is_finished()) && asked.elapsed() < Duration::from_secs(30)
    {
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(200));
    stop.store(true, Ordering::Relaxed);
    for (client, node) in clients.into_iter().zip([1, 2]) {
        let (came, why) = client.joined()?;
        let before = came.iter().rev().find(|it| **it <= asked);
        if before.is_none_or(|it| asked.duration_since(*it) > FLOWING) {
            tally
                .wrong
                .push(format!("{nth}: n{node} sent nothing when it was revoked"));
        }
        if let Some(last) = came.last() {
            let late = last.saturating_duration_since(asked);
            tally.last[node - 1].push(late.as_secs_f64());
        }
        if why.as_ref().is_none_or(|it| !it.contains("revoked")) {
            tally
                .wrong
                .push(format!("{nth}: n{node} ended with {why:?}"));
        }
        if !coming(&stolen, node)?.turned_away()? {
            tally.wrong.push(format!("{nth}: n{node} lets it in again"));
        }
    }
    if let (_, Some(why)) = others.joined()? {
        tally.wrong.push(format!(
            "{nth}: another node's certificate was cut off: {why}"
        ));
    }
    Ok(())
}

pub fn tls(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = start()?;
    let root = nodes.root().to_owned();
    fs::create_dir_all(root.join("honest"))?;
    daemon::text(
        &root.join("honest"),
        &["cluster", "ca", "issue", "n4", "--ca", "../ca"],
    )?;
    for node in [1, 2] {
        let coming = Coming {
            certificate: root.join("honest/n4"),
            node,
            there: address(&nodes, node)?,
            key: nodes.key()?,
        };
        Runtime::real(RealConfig::default())?.block_on(async move {
            let client = coming.connect().await?;
            let text = |error: store::net::client::ClientError| error.to_string();
            client
                .create(OBJECT, &[], Change::default())
                .await
                .map_err(text)?;
            let data = View::copy_of(&vec![7; BYTES as usize]);
            client
                .write(OBJECT, 0, data, Change::default())
                .await
                .map_err(text)?;
            Ok::<(), String>(())
        })?;
    }
    let mut tally = Tally::default();
    for nth in 0..TIMES {
        revoked(&nodes, &mut tally, (nth, &root))?;
    }
    for (last, at) in tally
        .last
        .iter()
        .zip(["where it was revoked", "at another node"])
    {
        let most = last.iter().copied().fold(0.0, f64::max);
        let metric = format!("latest last byte {at}, of {}", last.len());
        report.row(&metric, most, "s", Bar::Most(1.0));
    }
    report.row(
        "what else is wrong",
        tally.wrong.len() as f64,
        "",
        Bar::Exactly(0.0),
    );
    tally.wrong.iter().take(5).for_each(|it| report.note(it));
    Ok(())
}

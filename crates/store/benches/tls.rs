//! What does TLS cost on the way to a store, and how fast is a revoked client cut off?
//!
//! ```text
//! cargo bench -p store --bench tls -- [--json] [--runs N] [--quick]
//!
//! one thread: three stores, each at 127.0.0.1 in the clear and in TLS     another: a client of all three
//!   modelled   disks of 60 MB/s in real time: what a cluster over a network sees
//!   memory     nothing but the wire: the cost itself
//!   cut        from the revocation to the last answer that a client reading all the time gets, and to its end
//! ```
//!
//! Each run takes one way after the other, so what the machine does besides meets both alike; a ratio is one of figures of
//! the same run. Both sides share the machine's cores, so both pay for the sum.
#![allow(clippy::print_stdout)]
// A benchmark is about real time and has threads of its own.
#![allow(clippy::disallowed_methods)]

#[path = "../../../benches/figures.rs"]
mod figures;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use base::{Bytes, Nanos, View};
use device::model::{ModelDisk, Spec, Store as Data};
use device::{Device, Memory};
use env::Runtime;
use env::net::{Address, Listener};
use env::sync::join_all;
use figures::Results;
use policy::share::{BytesPerSec, Costs};
use store::net::client::{Client, ClientOptions, Credentials};
use store::net::server::{Limits, Server};
use store::qos::manager::{Manager, ManagerOptions};
use store::{Change, ObjectCalls, Settings, Store};
use tls::authority::{Authority, KeyKind, Subject};
use tls::{Expected, Identity, Material, Peer, Serial};

const KEY: [u8; 32] = [7; 32];
const STORES: usize = 3;
const MIB: u64 = 1 << 20;
/// Objects of 1 MiB in each store.
const OBJECTS: u64 = 8;
/// Requests under way at each store.
const DEPTH: u64 = 4;

/// What each store is on.
const DISK: &str = include_str!("../../../benches/sixty.toml");

/// Certificates of the server and of its client.
struct Made {
    server: Material,
    client: Material,
    serial: Serial,
}

fn made() -> Made {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let ca = Authority::make("bench", KeyKind::P256, (now, 1), [1; 16]);
    let (ca, _) = ca.expect("made");
    let issue = |name: &str, random| {
        let peer = Peer::Node(name.to_owned());
        let subject = Subject {
            peer,
            account_id: None,
            hosts: Vec::new(),
        };
        let issued = ca.issue(&subject, (now, 1), random).expect("issued");
        let own = (issued.certificate.into_bytes(), issued.key.into_bytes());
        let authority = ca.certificate.clone().into_bytes();
        let own = Some(own);
        (Material { authority, own }, issued.says.serial)
    };
    let ((server, _), (client, serial)) = (issue("n1", [2; 16]), issue("n2", [3; 16]));
    Made {
        server,
        client,
        serial,
    }
}

fn runtime() -> Runtime {
    Runtime::real(env::RealConfig::default()).expect("a runtime")
}

async fn device(modelled: bool, number: usize) -> Rc<dyn Device> {
    let name = format!("disk {number}");
    let size = Bytes::mib(256);
    match modelled {
        false => Memory::new(&name, size),
        true => {
            let spec = Spec::parse("sixty", DISK).expect("it can be read");
            let disk = ModelDisk::new(&name, &spec, Some(size), Data::Memory, 1);
            disk.expect("it can be that small")
        }
    }
}

/// Serves three stores until `revoke` says which certificate is revoked, and then until it is closed.
async fn serve(
    modelled: bool,
    material: Material,
    places: Sender<[Address; 2]>,
    revoke: Receiver<Serial>,
) {
    let identity = Identity::new(&material).expect("usable");
    let mut servers = Vec::new();
    for number in 0..STORES {
        let device = device(modelled, number).await;
        let made = Store::format(Rc::clone(&device), Settings::default()).await;
        made.expect("formatted").close().await.expect("closed");
        let options = ManagerOptions {
            node_key: Some(KEY),
            scrub: None,
            memory: Bytes::mib(64),
            ..ManagerOptions::new(
                Costs::flat(BytesPerSec::mb(if modelled { 60 } else { 4000 })),
                [9; 32],
            )
        };
        let manager = Manager::open(device, options).await.expect("opened");
        let identity = Some(Rc::clone(&identity));
        let server = Server::with_tls(manager, Limits::default(), identity);
        let at = ["127.0.0.1:0", "tls:127.0.0.1:0"].map(|text| {
            let listener = Listener::bind(&text.parse().expect("an address"));
            let listener = listener.expect("a free port");
            let address = listener.address().clone();
            server.serve(listener).expect("served");
            address
        });
        places.send(at).expect("the other thread waits");
        servers.push(server);
    }
    loop {
        match revoke.try_recv() {
            Ok(serial) => identity.set_revoked(BTreeSet::from([serial])),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
        env::sleep(Nanos::millis(5)).await;
    }
}

/// What a client does for some seconds at each of three stores; MB/s of all together.
async fn rate(clients: &[Client], writes: bool, lasts: Duration) -> f64 {
    let (begun, data) = (Instant::now(), View::copy_of(&vec![5; MIB as usize]));
    let workers = (0..clients.len() as u64 * DEPTH).map(|worker| {
        let (client, data) = (&clients[(worker / DEPTH) as usize], data.clone());
        async move {
            let mut pieces = 0_u64;
            while begun.elapsed() < lasts {
                let object = format!("o{}", (worker + pieces) % OBJECTS);
                match writes {
                    true => {
                        let change = Change::default().creating();
                        let written = client.write(&object, 0, data.clone(), change).await;
                        written.expect("written");
                    }
                    false => {
                        let read = client.read(&object, 0, MIB).await.expect("read");
                        assert_eq!(read.len() as u64, MIB);
                    }
                }
                pieces += 1;
            }
            pieces
        }
    });
    let pieces: u64 = join_all(workers).await.into_iter().sum();
    (pieces * MIB) as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

async fn connect(address: &Address, identity: &Rc<Identity>) -> Client {
    let options = ClientOptions {
        tls: Some(tls::Client {
            identity: Rc::clone(identity),
            expected: Expected::Node("n1".to_owned()),
        }),
        ..ClientOptions::default()
    };
    let client = Client::connect_with(address, Credentials::NodeKey(KEY), &options).await;
    client.expect("let in")
}

/// What a client of all three stores finds.
struct Bench {
    case: &'static str,
    runs: usize,
    lasts: Duration,
    ways: [Vec<Client>; 2],
}

impl Bench {
    async fn new(
        case: &'static str,
        places: Vec<[Address; 2]>,
        client: &Material,
        (runs, lasts): (usize, Duration),
    ) -> Bench {
        let identity = Identity::new(client).expect("usable");
        let mut ways: [Vec<Client>; 2] = Default::default();
        for place in &places {
            for (way, address) in ways.iter_mut().zip(place) {
                way.push(connect(address, &identity).await);
            }
        }
        Bench {
            case,
            runs,
            lasts,
            ways,
        }
    }

    fn devices(&self) -> &'static str {
        match self.case {
            "memory" => "real",
            _ => "emulated",
        }
    }

    fn add(
        &self,
        results: &mut Results,
        (what, method, metric, unit): (&str, &str, &str, &str),
        runs: &[f64],
    ) {
        let case = format!("{}, {what}", self.case);
        results.add((&case, method, metric, unit), runs, self.devices());
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        let median = sorted[sorted.len() / 2];
        results.say(&format!(
            "{case:<24} {method:<6} {metric:<11} {median:>9.3} ({least:.3} - {most:.3}) {unit}"
        ));
    }

    /// Both ways in turn.
    async fn throughput(&self, results: &mut Results) {
        for (what, writes) in [("write 1 MiB", true), ("read 1 MiB", false)] {
            let mut found: [Vec<f64>; 2] = Default::default();
            // A round that does not count: objects are made, speeds are learnt.
            rate(&self.ways[0], writes, self.lasts / 2).await;
            for run in 0..self.runs {
                // The order changes from run to run.
                for way in [run % 2, (run + 1) % 2] {
                    found[way].push(rate(&self.ways[way], writes, self.lasts).await);
                }
            }
            let [plain, tls] = &found;
            let ratios = tls.iter().zip(plain).map(|(tls, plain)| tls / plain);
            let ratios: Vec<f64> = ratios.collect();
            self.add(results, (what, "plain", "throughput", "MB/s"), plain);
            self.add(results, (what, "tls", "throughput", "MB/s"), tls);
            self.add(results, (what, "tls", "of plain", "x"), &ratios);
        }
    }

    /// From the order to revoke until the last whole answer, and until the client knows of its end.
    async fn cut(&self, serial: Serial, revoke: &Sender<Serial>, results: &mut Results) {
        let readers = (0..DEPTH).map(|at| {
            let client = self.ways[1][0].clone();
            env::spawn(async move {
                let mut last = Instant::now();
                while client.read(&format!("o{at}"), 0, MIB).await.is_ok() {
                    last = Instant::now();
                }
                last
            })
        });
        let readers: Vec<_> = readers.collect();
        env::sleep(Nanos::millis(500)).await;
        let at = Instant::now();
        revoke.send(serial).expect("the other thread looks");
        let lasts = join_all(readers).await;
        let last = lasts.into_iter().max().expect("some read");
        self.ways[1][0].over().await;
        let over = Instant::now();
        for (metric, end) in [("last answer", last), ("hung up", over)] {
            let milliseconds = end.saturating_duration_since(at).as_secs_f64() * 1e3;
            self.add(results, ("cut", "tls", metric, "ms"), &[milliseconds]);
        }
    }
}

fn main() {
    let argument = |name: &str| std::env::args().any(|argument| argument == name);
    let mut arguments = std::env::args().skip_while(|it| it != "--runs");
    let given = arguments.nth(1).and_then(|runs| runs.parse().ok());
    let quick = argument("--quick");
    let runs = given.unwrap_or(if quick { 2 } else { 7 });
    let lasts = Duration::from_millis(if quick { 500 } else { 3000 });
    let mut results = Results::new("tls");
    for (case, modelled) in [("3 x 60 MB/s", true), ("memory", false)] {
        let made = made();
        let ((places, come), (revoke, orders)) = (channel(), channel());
        let server = made.server.clone();
        let serving = std::thread::spawn(move || {
            runtime().block_on(serve(modelled, server, places, orders));
        });
        let places: Vec<[Address; 2]> = come.iter().take(STORES).collect();
        results = runtime().block_on(async move {
            let bench = Bench::new(case, places, &made.client, (runs, lasts)).await;
            bench.throughput(&mut results).await;
            bench.cut(made.serial, &revoke, &mut results).await;
            results
        });
        serving.join().expect("it ended well");
    }
    results.finish();
}

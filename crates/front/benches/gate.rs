//! What does a gate cost an NBD server? Processor time of the whole server a request, 4 KiB random reads by fio.
//!
//! ```text
//! same thread:  fio -> NBD -> memory, all on one thread of the server
//! gate:         fio -> NBD, on the gate's thread -> ring -> memory, on its owner's thread
//! cargo bench -p front --bench gate -- [--json]
//! ```
//!
//! Real time; runs of the two take turns. Needs fio with its nbd engine.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::remote::{GateEnd, Opened, link};
use device::{Device, Memory, ready};
use env::net::Listener;
use env::{RealConfig, Runtime, sleep};
use figures::Results;
use front::nbd::{Config, Export, Server};
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 5;
const SIZE: Bytes = Bytes::mib(256);
const SECONDS: u64 = 4;
const DEPTHS: [u32; 2] = [1, 32];

/// Processor time of this process: fio is another one.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn runtime() -> Runtime {
    Runtime::real(RealConfig::default()).expect("a runtime")
}

/// Processor time a request in microseconds, and requests a second.
async fn measure(export: &str, socket: &Path, depth: u32) -> (f64, f64) {
    let before = cpu_us();
    let mut fio = Command::new("fio")
        .args(["--name=gate", "--ioengine=nbd", "--rw=randread", "--bs=4k"])
        .args(["--randrepeat=0", "--time_based", "--output-format=terse"])
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!(
            "--uri=nbd+unix:///{export}?socket={}",
            socket.display()
        ))
        .current_dir(socket.parent().expect("it lies in a folder"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("fio starts");
    while fio.try_wait().expect("fio is a child").is_none() {
        sleep(Nanos::millis(20)).await;
    }
    let spent = cpu_us() - before;
    let output = fio.wait_with_output().expect("fio has ended");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("3;"));
    let fields: Vec<&str> = line.expect("fio tells what it read").split(';').collect();
    let number = |at: usize| fields[at].parse::<f64>().expect("a number of fio's");
    let requests = number(5) / 4.0;
    assert!(requests > 0.0, "fio read nothing: {text}");
    (spent / requests, number(7))
}

async fn serve_both(gate: GateEnd, socket: &Path) -> Rc<Server> {
    let server = Server::new(Config::default());
    let here: Rc<dyn Device> = Memory::new("memory", SIZE);
    let there: Rc<dyn Device> = gate.join().open("memory").await.expect("it is there");
    for (name, device) in [("here", here), ("there", there)] {
        let export = Export {
            name: name.into(),
            description: String::new(),
            device,
            read_only: false,
        };
        server.add_export(export).expect("a name of its own");
    }
    let address = format!("unix:{}", socket.display());
    let address = address.parse().expect("an address");
    server.serve(Listener::bind(&address).expect("a free socket"));
    server
}

fn main() {
    let mut figures = Results::new("gate");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let (gate, owner) = link(256);
    let thread = std::thread::Builder::new().spawn(move || {
        runtime().block_on(async move {
            let disk = Memory::new("memory", SIZE);
            owner
                .serve(move |_| ready(Ok(Opened::of(disk.clone()))))
                .await;
        });
    });
    let rows = runtime().block_on(async move {
        let server = serve_both(gate, &socket).await;
        let mut rows = Vec::new();
        for depth in DEPTHS {
            let mut runs = [const { Vec::new() }; 2];
            for _ in 0..RUNS {
                for (export, runs) in ["here", "there"].into_iter().zip(&mut runs) {
                    runs.push(measure(export, &socket, depth).await);
                }
            }
            rows.push((depth, runs));
        }
        server.drain().await;
        rows
    });
    for (depth, runs) in rows {
        let case = format!("4 KiB reads over NBD, depth {depth}");
        for (method, runs) in ["same thread", "gate"].into_iter().zip(runs) {
            let runs: Vec<(f64, f64)> = runs;
            let metrics = [
                (
                    "processor time a request",
                    "us",
                    runs.iter().map(|run| run.0).collect(),
                ),
                (
                    "rate",
                    "requests/s",
                    runs.iter().map(|run| run.1).collect::<Vec<f64>>(),
                ),
            ];
            for (metric, unit, mut runs) in metrics {
                figures.add((&case, method, metric, unit), &runs, "real");
                runs.sort_by(f64::total_cmp);
                let (low, middle, high) = (runs[0], runs[RUNS / 2], runs[RUNS - 1]);
                figures.say(&format!(
                    "{case:<32} {method:<12} {metric:<24} {low:>10.2} {middle:>10.2} {high:>10.2} {unit}"
                ));
            }
        }
    }
    figures.finish();
    // The gate went with its runtime, so the owner's thread ends.
    thread.expect("a thread").join().expect("it ends");
}

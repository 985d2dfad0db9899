//! Several servers, each of a thread of its own as it were, over one device that another one owns.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, View};
use device::remote::{Opened, link};
use device::{Class, Device, DeviceExt, Memory, WriteFlags, ready};
use env::net::{Address, Listener};
use env::sync::join_all;
use env::{Rng, Runtime, Task};
use front::nbd::{Client, ClientOptions, Config, Limits, Server};

use crate::common::{export, memory};

const CLIENTS_PER_GATE: u64 = 2;
/// What one client has to itself.
const REGION: Bytes = Bytes::kib(64);
const REQUESTS: u64 = 60;
/// Fewer than clients have under way together, so that calls wait at the gate.
const DEPTH: usize = 6;

struct Gates {
    disk: Rc<Memory>,
    servers: Vec<Rc<Server>>,
    /// What serves each gate at the owner.
    owners: Vec<Task<()>>,
}

fn address(gate: u64) -> Address {
    let address = format!("127.0.0.1:{}", 10_809 + gate);
    address.parse().expect("an address")
}

async fn open(gates: u64) -> Gates {
    let disk = memory(Bytes(gates * CLIENTS_PER_GATE * REGION.0));
    let mut all = Gates {
        disk: Rc::clone(&disk),
        servers: Vec::new(),
        owners: Vec::new(),
    };
    for gate in 0..gates {
        let (end, owner) = link(DEPTH);
        let device = Rc::clone(&disk);
        let owner = env::spawn(owner.serve(move |_| ready(Ok(Opened::of(device.clone())))));
        all.owners.push(owner);
        let limits = Limits {
            drain: Nanos::secs(2),
            ..Limits::default()
        };
        let server = Server::new(Config { limits, tls: None });
        let remote = end.join().open("disk").await.expect("its owner is there");
        server.add_export(export("disk", remote)).expect("a name");
        server.serve(Listener::bind(&address(gate)).expect("a free port"));
        all.servers.push(server);
    }
    all
}

/// Writes and reads at random places of a region of its own, several at a time, and knows what must be there; how many
/// requests were answered well. After the first failure every later one fails too.
async fn load(client: Client, number: u64, mut rng: Rng) -> u64 {
    let first = number * REGION.0 / 512;
    let mut known = vec![0u8; REGION.usize()];
    let (mut done, mut failed) = (0, false);
    for request in 0..REQUESTS {
        let at = rng.below(REGION.0 / 512);
        let len = (rng.below(REGION.0 / 512 - at) + 1).min(16) as usize * 512;
        let range = at as usize * 512..at as usize * 512 + len;
        let answered = match rng.below(5) {
            0 | 1 => {
                let data = vec![request as u8 + 1; len];
                let flags = WriteFlags {
                    fua: rng.below(4) == 0,
                    ..WriteFlags::default()
                };
                let written = client
                    .write(Sector(first + at), View::copy_of(&data), flags)
                    .await;
                known[range].copy_from_slice(&data);
                written.is_ok()
            }
            2 => client.flush().await.is_ok(),
            // Two at once, which overlap.
            _ => {
                let read =
                    || client.read(Sector(first + at), Buf::for_read(len), Class::Foreground);
                let both = join_all([read(), read()]).await;
                for read in both.iter().flatten() {
                    assert_eq!(
                        read[..],
                        known[range.clone()],
                        "client {number}, request {request}"
                    );
                }
                both.iter().all(Result::is_ok)
            }
        };
        assert!(
            !(failed && answered),
            "client {number} was answered after a failure"
        );
        failed |= !answered;
        done += u64::from(answered);
    }
    client.close().await;
    done
}

/// One run; what all clients got, when it ended, and a sum of what the disk holds.
fn run(seed: u64, gates: u64, owner_dies: bool) -> (Vec<u64>, Nanos, u64) {
    Runtime::simulated(seed).block_on(async move {
        let all = open(gates).await;
        let mut clients = Vec::new();
        for number in 0..gates * CLIENTS_PER_GATE {
            let options = ClientOptions {
                export: "disk".into(),
                ..ClientOptions::default()
            };
            let client = Client::connect(&address(number % gates), &options).await;
            let rng = env::rng("client");
            clients.push(env::spawn(load(client.expect("connected"), number, rng)));
        }
        if owner_dies {
            env::sleep(Nanos::micros(300 + seed * 50)).await;
            all.owners.iter().for_each(Task::cancel);
        }
        let done = env::timeout(Nanos::secs(30), join_all(clients)).await;
        let done = done.expect("each request was answered, or its connection ended");
        let drained = join_all(all.servers.iter().map(|server| server.drain()));
        env::timeout(Nanos::secs(30), drained)
            .await
            .expect("drained");
        let whole = all.disk.read_at(Sector(0), all.disk.info().size).await;
        let sum = whole.expect("it is memory").iter().fold(0u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        (done, Nanos(env::now().0), sum)
    })
}

#[test]
fn clients_of_several_gates_see_one_disk_and_a_seed_gives_one_run() {
    for seed in 0..12 {
        let gates = seed % 4 + 1;
        let run = || run(seed, gates, false);
        let first = run();
        assert_eq!(
            first.0,
            vec![REQUESTS; (gates * CLIENTS_PER_GATE) as usize],
            "seed {seed}"
        );
        assert_eq!(first, run(), "seed {seed}");
    }
}

#[test]
fn when_the_owner_dies_no_client_of_a_gate_waits_for_ever() {
    let mut cut_short = 0;
    for seed in 0..16 {
        let (done, _, _) = run(seed, 3, true);
        cut_short += done.iter().filter(|done| **done < REQUESTS).count();
    }
    assert!(cut_short > 20, "the owner died too late: {cut_short}");
}

//! How many simulated requests per CPU-second? Aim: a million for disks and flash devices.
//!
//! ```text
//! core alone (submit, advance, take) | ModelDisk without data in virtual time
//! ```
//!
//! `cargo bench -p device --bench model -- [--json]`. Results are CPU time of this process, least, median and
//! most of several runs; what is modelled takes no time of its own.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::rc::Rc;

use base::{Buf, Bytes, Instant, Sector, Span, View};
use device::model::{ModelDisk, Request, Spec, Store};
use device::{Class, Device, Op, WriteFlags};
use figures::Results;

const RUNS: usize = 7;

/// CPU time of this process in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `of` is the device's model and what is asked of it, and what is asked: the core or the whole device.
fn report(figures: &mut Results, of: (&str, &str), requests: u64, run: impl Fn() -> u64) {
    let mut rates = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..RUNS {
        let start = cpu();
        answers.push(run());
        rates.push(requests as f64 / (cpu() - start) / 1e6);
    }
    assert!(
        answers.windows(2).all(|pair| pair[0] == pair[1]),
        "same seed, same end"
    );
    rates.sort_by(f64::total_cmp);
    let (case, method) = of;
    figures.say(&format!(
        "{:<58} {:>6.2} {:>6.2} {:>6.2}",
        format!("{method}: {case}"),
        rates[0],
        rates[RUNS / 2],
        rates[RUNS - 1]
    ));
    let of = (case, method, "rate", "M requests per CPU second");
    figures.add(of, &rates, "real");
}

/// A mix of 4 KiB requests, a share of them writes, at a depth; the moment of the last completion.
fn core(spec: &Spec, size: Bytes, depth: u64, writes: f64, requests: u64, filled: bool) -> u64 {
    let mut core = spec
        .timing(Some(size), 1)
        .expect("a size the model can have");
    if filled {
        core.fill();
    }
    let mut random = env::Rng::from_seed(1);
    let blocks = size.0 / 4096;
    let mut now = Instant(0);
    let mut sent = 0;
    let mut under_way = 0;
    while sent < requests || under_way > 0 {
        while under_way < depth && sent < requests {
            let op = match random.chance(writes) {
                true => Op::Write,
                false => Op::Read,
            };
            let span = Span::new(Sector(random.below(blocks) * 8), Bytes(4096));
            let (id, fua) = (sent, false);
            core.submit(now, Request { id, op, span, fua });
            sent += 1;
            under_way += 1;
        }
        match core.take_done() {
            Some(done) => {
                now = now.max(done.at);
                under_way -= 1;
            }
            None => {
                let next = core.next().expect("something is under way");
                core.advance(next);
            }
        }
    }
    now.0
}

/// The same through a device in virtual time, `depth` tasks.
fn disk(spec: &Spec, size: Bytes, depth: u64, writes: f64, requests: u64) -> u64 {
    let spec = spec.clone();
    env::Runtime::simulated(1).block_on(async move {
        let disk = ModelDisk::new("bench", &spec, Some(size), Store::None, 1);
        let disk: Rc<dyn Device> = disk.expect("a size the model can have");
        let clients = (0..depth).map(|_| {
            let disk = Rc::clone(&disk);
            env::spawn(async move {
                let mut random = env::rng("client");
                let data = View::copy_of(&[7; 4096]);
                let mut buf = Buf::for_read(4096);
                for _ in 0..requests / depth {
                    let at = Sector(random.below(size.0 / 4096) * 8);
                    if random.chance(writes) {
                        let flags = WriteFlags::default();
                        disk.write(at, data.clone(), flags).await.expect("no fault");
                    } else {
                        buf = disk
                            .read(at, buf, Class::Foreground)
                            .await
                            .expect("no fault");
                    }
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        env::sync::join_all(clients).await;
        env::now().0
    })
}

fn main() {
    let mut figures = Results::new("model");
    figures.say("millions of simulated requests per CPU-second (modelled)     min median    max");
    let requests = 1_000_000;
    let gib = Bytes::gib(24);
    for (name, writes) in [
        ("hdd-10k-sas", 0.0),
        ("hdd-10k-sas", 0.5),
        ("hdd-7200-sata", 0.5),
        ("ssd-sata-mlc", 0.0),
        ("ssd-sata-mlc", 0.5),
        ("ssd-nvme-tlc", 0.5),
        ("scm", 0.5),
    ] {
        let spec = Spec::find(name).expect("in the catalogue");
        let percent = (writes * 100.0) as u32;
        let case = format!("{name}, {percent} % writes");
        for (depth, method) in [(1, "core, depth 1"), (32, "core, depth 32")] {
            report(&mut figures, (&case, method), requests, || {
                core(&spec, gib, depth, writes, requests, false)
            });
        }
        let of = (case.as_str(), "ModelDisk, depth 32");
        report(&mut figures, of, requests, || {
            disk(&spec, gib, 32, writes, requests)
        });
    }
    // Collecting garbage all the time: the whole device written once, then over and over at random.
    let spec = Spec::find("ssd-nvme-tlc").expect("in the catalogue");
    let (size, requests) = (Bytes::gib(2), 2_000_000);
    let of = ("ssd-nvme-tlc, steady random writes", "core, depth 32");
    report(&mut figures, of, requests, || {
        core(&spec, size, 32, 1.0, requests, true)
    });
    figures.finish();
}

//! What goes wrong, at any moment, until it is stopped.
//!
//! Each run has some kinds of faults, drawn from its seed, so that runs differ in what they are about. Bits flip in
//! runs of their own, on one store only, and no store is lost there: what is damaged on one and out of date on all others is
//! gone, and no checker could say more.

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use env::Rng;
use env::net::sim::{self, Delay, Link};
use vdisk::meta::Faults;

use super::{Cluster, HOSTS, host};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A store node loses power, or comes back.
    NodeCrash,
    /// A way in one direction is cut.
    OneWay,
    /// Some stores, volume hosts and perhaps the meta store on one side, the others on the other.
    Partition,
    /// A link that is slow, narrow and loses segments.
    BadLink,
    /// All connections between two hosts break.
    Reset,
    /// A disk is far slower than it should be.
    FailSlow,
    /// A disk answers with errors.
    DiskErrors,
    /// A store has no room.
    Full,
    /// Bits flip on a disk.
    BitRot,
    /// The meta store does not answer, or seldom.
    MetaOutage,
    /// The meta store starts again.
    MetaRestart,
}

/// All that may come together.
const COMMON: [Fault; 10] = [
    Fault::NodeCrash,
    Fault::OneWay,
    Fault::Partition,
    Fault::BadLink,
    Fault::Reset,
    Fault::FailSlow,
    Fault::DiskErrors,
    Fault::Full,
    Fault::MetaOutage,
    Fault::MetaRestart,
];

/// What one run is about.
pub fn kinds(seed: u64, rng: &mut Rng) -> Vec<Fault> {
    if seed % 8 == 5 {
        return vec![Fault::BitRot, Fault::MetaOutage];
    }
    let most = 2 + rng.below(5);
    let drawn = (0..most).map(|_| COMMON[rng.below(COMMON.len() as u64) as usize]);
    drawn.collect()
}

/// Does one thing after the other, now and then repairing what is broken.
pub async fn inject(
    cluster: Rc<Cluster>,
    kinds: Vec<Fault>,
    over: Rc<Cell<bool>>,
    harder: bool,
    mut rng: Rng,
) {
    // Of the harder runs some have a fault every 5 ms, some every 80.
    let most = match harder {
        true => Nanos::millis(10 << rng.below(5)),
        false => Nanos::millis(150),
    };
    while !over.get() {
        env::sleep(Nanos(rng.below(most.0))).await;
        if over.get() {
            return;
        }
        match rng.below(4) {
            0 => heal_one(&cluster, &mut rng).await,
            _ => {
                let kind = kinds[rng.below(kinds.len() as u64) as usize];
                happens(&cluster, kind, &mut rng).await;
            }
        }
    }
}

async fn heal_one(cluster: &Cluster, rng: &mut Rng) {
    let node = &cluster.nodes[rng.below(cluster.nodes.len() as u64) as usize];
    match rng.below(3) {
        0 => node.heal().await,
        1 => sim::heal(),
        _ => {
            for number in 0..HOSTS {
                cluster.meta_faults(number, Faults::default());
            }
        }
    }
}

async fn happens(cluster: &Cluster, kind: Fault, rng: &mut Rng) {
    let node = &cluster.nodes[rng.below(cluster.nodes.len() as u64) as usize];
    let number = rng.below(HOSTS as u64) as usize;
    let home = host(number);
    match kind {
        Fault::NodeCrash if node.is_up() => node.crash(),
        Fault::NodeCrash => node.heal().await,
        Fault::OneWay => match rng.chance(0.5) {
            true => sim::cut(home, node.ip),
            false => sim::cut(node.ip, home),
        },
        Fault::Partition => partition(cluster, rng),
        Fault::BadLink => {
            let bad = Link {
                delay: Delay::Exponential {
                    least: Nanos::micros(100),
                    tail: Nanos::millis(rng.below(60)),
                },
                bandwidth: rng.chance(0.3).then_some(1 << 20),
                loss: 0.3 * rng.unit(),
                ..Link::LAN
            };
            sim::set_link(home, node.ip, bad);
            sim::set_link(node.ip, home, bad);
        }
        Fault::Reset => sim::reset_streams(home, node.ip),
        Fault::FailSlow => node.slow_down(Nanos::millis(1 + rng.below(400))),
        Fault::DiskErrors => node.fail_disk(),
        Fault::Full => node.fill().await,
        Fault::BitRot => cluster.nodes[0].rot(1 + rng.below(4)),
        Fault::MetaOutage => {
            let faults = Faults {
                refused: rng.chance(0.3),
                cut: rng.chance(0.3),
                answers_lost: 0.4 * rng.unit(),
                requests_lost: 0.3 * rng.unit(),
                delay_most: Nanos::millis(rng.below(60)),
                timeout: Nanos::millis(100),
                ..Faults::default()
            };
            match rng.chance(0.5) {
                true => cluster.meta_faults(number, faults),
                false => (0..HOSTS).for_each(|number| cluster.meta_faults(number, faults)),
            }
        }
        Fault::MetaRestart => cluster.meta_store.restart(),
    }
}

/// Two sides, the meta store on one of them.
fn partition(cluster: &Cluster, rng: &mut Rng) {
    let side = |all: &mut dyn Iterator<Item = usize>, rng: &mut Rng| -> (Vec<usize>, Vec<usize>) {
        all.partition(|_| rng.chance(0.5))
    };
    let (stores, other_stores) = side(&mut (0..cluster.nodes.len()), rng);
    let (hosts, other_hosts) = side(&mut (0..HOSTS), rng);
    for (hosts, stores) in [(&hosts, &other_stores), (&other_hosts, &stores)] {
        for (number, store) in hosts
            .iter()
            .flat_map(|it| stores.iter().map(move |to| (it, to)))
        {
            let node = &cluster.nodes[*store];
            sim::partition(&[host(*number)], &[node.ip]);
        }
    }
    let far = Faults {
        cut: true,
        timeout: Nanos::millis(100),
        ..Faults::default()
    };
    for number in other_hosts {
        cluster.meta_faults(number, far);
    }
}

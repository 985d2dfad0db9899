//! A run in real time: a daemon, clients over its sockets, and what it counted meanwhile.
//!
//! ```text
//! start -> connect -> floor: the device in memory -> counts -> requests at their moments -> counts -> end
//!            '-> a volume, or the objects of a store, are written first
//! ```
//!
//! Always true: the requests of a case are the first that its device tree was asked, but for what both sides write first.

use std::rc::Rc;

use base::Nanos;
use env::Polling;
use front::nbd;
use store::net::client as net;
use store::net::client::Credentials;
use trace::Request;

use super::cases::{Bed, Case, Extent, SESSIONS, for_floor, reads};
use super::client::{Disk, Sessions, Target, fill, fill_objects, send};
use super::common::{Bench, Trouble};
use super::daemon::Daemon;
use super::sample::{Sample, since, with_all_reads};
use super::setup::{
    COPIES, Disks, FLOOR, FLOOR_STORE, RATE_MB, STORE, VOLUME, disk, object, of_store, of_volume,
};
use crate::app::process::Stop;

/// About what a processor takes to wake: so long the client looks for answers before it sleeps.
const AWAKE: Nanos = Nanos::micros(60);

/// Runs `case`.
///
/// # Errors
/// [`Trouble::Interrupted`]; what the daemon, a client or a request said.
pub(super) fn run(case: &Case, requests: &[Request], bench: &Bench<'_>) -> Result<Sample, Trouble> {
    match case.bed {
        Bed::Hybrid(disks) => hybrid(&disks, requests, bench),
        Bed::Volume => volume(requests, bench),
        Bed::Store => store(requests, bench),
    }
}

fn hybrid(disks: &Disks, requests: &[Request], bench: &Bench<'_>) -> Result<Sample, Trouble> {
    let daemon = Daemon::start(bench.program, &disks.configuration(), bench.stop)?;
    let watched = Watched {
        daemon,
        devices: vec!["hdd0".to_owned(), "ssd0".to_owned()],
        hybrid: true,
    };
    let plan = Plan::of(requests, bench);
    in_real_time(async move {
        let served = Rc::new(export(&watched.daemon, VOLUME).await?);
        let memory = Rc::new(export(&watched.daemon, FLOOR).await?);
        let (served, memory) = (Rc::new(Disk::new(served)), Rc::new(Disk::new(memory)));
        plan.measure(&watched, served, memory).await
    })
}

/// As `volume::run`, through the daemon.
fn volume(requests: &[Request], bench: &Bench<'_>) -> Result<Sample, Trouble> {
    let daemon = Daemon::start(bench.program, &of_volume(), bench.stop)?;
    let (size, copies) = (bench.extent.image.0.to_string(), COPIES.to_string());
    let create = [
        "volume", "create", VOLUME, "--size", &size, "--copies", &copies,
    ];
    daemon.command(&create)?;
    let watched = Watched {
        daemon,
        devices: (0..COPIES).map(disk).collect(),
        hybrid: false,
    };
    let plan = Plan::of(requests, bench);
    in_real_time(async move {
        let served = Rc::new(export(&watched.daemon, VOLUME).await?);
        let memory = Rc::new(export(&watched.daemon, FLOOR).await?);
        fill(&*served, plan.extent.image).await?;
        env::sleep(plan.extent.settle).await;
        let (served, memory) = (Rc::new(Disk::new(served)), Rc::new(Disk::new(memory)));
        let sample = plan.measure(&watched, served, memory).await?;
        let counts = with_all_reads(sample.counts);
        Ok(Sample { counts, ..sample })
    })
}

/// As `store::run`, through the daemon.
fn store(requests: &[Request], bench: &Bench<'_>) -> Result<Sample, Trouble> {
    let daemon = Daemon::start(bench.program, &of_store(), bench.stop)?;
    let watched = Watched {
        daemon,
        devices: vec![disk(0)],
        hybrid: false,
    };
    let plan = Plan::of(requests, bench);
    in_real_time(async move {
        for name in [STORE, FLOOR_STORE] {
            let open = session(&watched.daemon, name, Credentials::Open).await?;
            fill_objects(&open, SESSIONS, plan.extent.image).await?;
            open.close().await;
        }
        env::sleep(plan.extent.settle).await;
        let served = Rc::new(Sessions::new(reserved(&watched.daemon, STORE).await?));
        let memory = Rc::new(Sessions::new(reserved(&watched.daemon, FLOOR_STORE).await?));
        plan.measure(&watched, served, memory).await
    })
}

/// A runtime of its own.
fn in_real_time<T: 'static>(
    work: impl Future<Output = Result<T, Trouble>> + 'static,
) -> Result<T, Trouble> {
    let config = env::RealConfig {
        polling: Polling::UpTo(AWAKE),
        ..env::RealConfig::default()
    };
    let runtime = env::Runtime::real(config).map_err(|error| error.to_string())?;
    runtime.block_on(work)
}

/// An export, as a device.
async fn export(daemon: &Daemon, name: &str) -> Result<nbd::Client, Trouble> {
    let options = nbd::ClientOptions {
        export: name.to_owned(),
        ..nbd::ClientOptions::default()
    };
    let client = nbd::Client::connect(&daemon.socket(name), &options).await;
    Ok(client.map_err(|error| format!("{name}: {error}"))?)
}

/// A session at a store.
async fn session(
    daemon: &Daemon,
    store: &str,
    credentials: Credentials,
) -> Result<net::Client, Trouble> {
    let client = net::Client::connect(&daemon.socket(store), credentials).await;
    Ok(client.map_err(|error| format!("{store}: {error}"))?)
}

/// Sessions on reservations of their own.
async fn reserved(daemon: &Daemon, store: &str) -> Result<Vec<net::Client>, Trouble> {
    let rate = format!("{RATE_MB}MB/s");
    let mut sessions = Vec::new();
    for nth in 0..SESSIONS {
        let way = if reads(nth) { "--read" } else { "--write" };
        let scope = object(nth);
        let wanted = [
            "reservation",
            "create",
            "--store",
            store,
            way,
            &rate,
            "--for",
            "1h",
            "--scope",
            &scope,
        ];
        let capability = daemon.command(&wanted)?.trim().to_owned();
        sessions.push(session(daemon, store, Credentials::Capability(capability)).await?);
    }
    Ok(sessions)
}

/// A daemon, and which of its devices are counted.
struct Watched {
    daemon: Daemon,
    devices: Vec<String>,
    hybrid: bool,
}

/// What is asked in one run.
struct Plan {
    requests: Vec<Request>,
    floor: Vec<Request>,
    extent: Extent,
    stop: Stop,
}

impl Plan {
    fn of(requests: &[Request], bench: &Bench<'_>) -> Plan {
        Plan {
            requests: requests.to_vec(),
            floor: for_floor(requests, bench.extent.floor),
            extent: *bench.extent,
            stop: bench.stop.below(),
        }
    }

    /// The floor first, then the case.
    async fn measure(
        &self,
        watched: &Watched,
        target: Rc<dyn Target>,
        memory: Rc<dyn Target>,
    ) -> Result<Sample, Trouble> {
        let floor = send(memory, &self.floor, &self.stop).await?;
        let counts = || watched.daemon.counts(&watched.devices, watched.hybrid);
        let before = counts()?;
        let took = send(target, &self.requests, &self.stop).await?;
        let after = counts()?;
        Ok(Sample::new(&took, since(&before, &after)).over(&floor))
    }
}

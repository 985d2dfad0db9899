//! The store of a gateway on a virtual disk, on the data thread of the cluster, while this node has the disk.
//!
//! ```text
//! volume, opened here -> a store on it, made if it is blank -> Blobs -> what the gateway asks
//!    the gateway ends | another node has the volume | store or index fail -> nothing is answered -> store closed -> volume closed
//! ```
//!
//! Always true:
//! 1. No other client has the volume beside the store.
//! 2. A store that is opened later meets no write of this one: the volume is closed with it, and is opened with a greater token.

use std::rc::Rc;

use anyhow::{Context, anyhow};
use base::Nanos;
use device::Device;
use s3::{Blobs, Jobs, SharedDisk};
use store::qos::manager::Manager;
use store::{OpenError, Settings, Store};
use tokio::sync::oneshot;
use vdisk::cluster::ClusterError;
use vdisk::cluster::slots::InUse;
use vdisk::record::Name;

use super::caps::ThreadCaps;
use super::cluster::OpenCluster;
use super::store::options_on_volume;

/// Between two looks whether this node still has the volume.
const LOOK_EVERY: Nanos = Nanos::secs(1);
/// A store that takes longer to close is left to the recovery of its next opening.
const CLOSES_IN: Nanos = Nanos::secs(10);
/// So many looks in a row find a store that makes nothing durable: it is opened anew.
const FAILED_LOOKS: u32 = 3;

/// A store that is open on a volume.
pub struct OnVolume {
    /// What tells it from others.
    pub identity: String,
    /// Answered when it is closed, and the volume with it: why.
    pub closed: oneshot::Receiver<String>,
    /// Dropped, it is closed without waiting for those who still ask.
    pub stop: oneshot::Sender<()>,
}

/// Another node serves: no failure.
#[derive(Debug, thiserror::Error)]
#[error("node {0} serves it")]
pub struct ServedBy(String);

/// Opens the volume and the store on it, and carries out what is asked there until nothing can ask any more, or another node has
/// it.
///
/// # Errors
/// The volume is not there, another node that is up has it, or it has other clients; what lies on it is no store.
pub async fn begin(
    (open, caps): (&OpenCluster, &ThreadCaps),
    volume: &Name,
    jobs: Jobs,
) -> anyhow::Result<OnVolume> {
    let in_use = open.cluster.openings.open_for_one(volume).await;
    let in_use = in_use.map_err(|error| match error {
        ClusterError::Elsewhere { node, .. } => ServedBy(node).into(),
        other => anyhow!("{other}"),
    })?;
    let engine: Rc<dyn Device> = Rc::clone(in_use.volume()) as _;
    let node = open_store(in_use.capped(Rc::clone(&engine)), volume, caps).await?;
    caps.add_store(&node);
    let asked = Rc::clone(in_use.volume());
    let disk = SharedDisk {
        disk: engine,
        room: Box::new(move || asked.room_left()),
    };
    let blobs = Rc::new(Blobs::on_shared(Rc::clone(&node), disk)?);
    let identity = format!("{:032x}", node.store().uuid());
    let openings = Rc::clone(&open.cluster.openings);
    let ((send, closed), (stop, stopped)) = (oneshot::channel(), oneshot::channel::<()>());
    env::spawn(async move {
        let why = tokio::select! {
            () = jobs.serve(Rc::clone(&blobs)) => "the gateway ended".to_owned(),
            _ = stopped => "the gateway ended".to_owned(),
            why = until_lost(&blobs, &in_use) => why,
        };
        let closing = env::timeout(CLOSES_IN, node.close()).await;
        if !matches!(closing, Ok(Ok(()))) {
            let name = in_use.volume().record().name;
            tracing::warn!(volume = %name, why, "the store of a gateway was not closed in good order: its next opening recovers it");
        }
        drop((blobs, node));
        openings.close_for_one(in_use).await;
        // The gateway may be gone.
        let _ = send.send(why);
    });
    Ok(OnVolume {
        identity,
        closed,
        stop,
    })
}

async fn open_store(
    disk: Rc<dyn Device>,
    volume: &Name,
    caps: &ThreadCaps,
) -> anyhow::Result<Rc<Manager>> {
    let options = options_on_volume(caps.of_accounts())?;
    let opened = match Manager::open(Rc::clone(&disk), options.clone()).await {
        Err(OpenError::NoStore { .. }) => {
            let settings = Settings {
                name: volume.to_string(),
                ..Settings::default()
            };
            let made = Store::format(Rc::clone(&disk), settings).await;
            let made = made.with_context(|| format!("cannot make a store on volume {volume}"))?;
            made.close().await?;
            tracing::info!(%volume, "made the store of a gateway");
            Manager::open(disk, options).await
        }
        done => done,
    };
    opened.with_context(|| format!("cannot open the store on volume {volume}"))
}

/// Waits until another node has the volume, or what is written does not become durable any more; in words.
async fn until_lost(blobs: &Blobs, in_use: &InUse) -> String {
    let mut failed = 0;
    loop {
        env::sleep(LOOK_EVERY).await;
        if !in_use.volume().is_open() {
            return "its volume was taken by another node".to_owned();
        }
        if blobs.index_failed() {
            return "a read or a write of its index failed, and it is opened anew".to_owned();
        }
        match blobs.flush().await {
            Ok(()) => failed = 0,
            Err(error) if failed == FAILED_LOOKS => {
                return format!("nothing becomes durable ({error}), and it is opened anew");
            }
            Err(_) => failed += 1,
        }
    }
}

//! The store of a gateway on a virtual disk, on the data thread of the cluster, while this node has the disk.
//!
//! ```text
//! volume, opened here -> a store on it, made if it is blank -> Blobs -> what the gateway asks
//!    the gateway ends | another node has the volume | the store fails -> nothing is answered -> store closed -> volume let go
//! ```
//!
//! Always true:
//! 1. The volume is let go after the store on it was closed.
//! 2. No other client has the volume beside the store.

use std::rc::Rc;

use anyhow::{Context, anyhow};
use base::Nanos;
use device::Device;
use s3::{Blobs, Jobs, SharedDisk};
use store::qos::manager::Manager;
use store::{OpenError, Settings, Store};
use tokio::sync::oneshot;
use vdisk::cluster::slots::InUse;
use vdisk::record::Name;

use super::caps::ThreadCaps;
use super::cluster::OpenCluster;
use super::store::options_on_volume;

/// Between two looks whether this node still has the volume.
const LOOK_EVERY: Nanos = Nanos::secs(1);
/// So many looks in a row find a store that makes nothing durable: it is opened anew.
const FAILED_LOOKS: u32 = 3;

/// A store that is open on a volume.
pub struct OnVolume {
    /// What tells it from others.
    pub identity: String,
    /// Answered when it is closed, and the volume let go.
    pub closed: oneshot::Receiver<()>,
}

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
    let in_use = in_use.map_err(|error| anyhow!("{error}"))?;
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
    let (send, closed) = oneshot::channel();
    env::spawn(async move {
        tokio::select! {
            () = jobs.serve(Rc::clone(&blobs)) => {}
            () = until_lost(&blobs, &in_use) => {}
        }
        if let Err(error) = node.close().await {
            let name = in_use.volume().record().name;
            tracing::warn!(volume = %name, %error, "the store of a gateway was not closed in good order");
        }
        drop((blobs, node, in_use));
        // The gateway may be gone.
        let _ = send.send(());
    });
    Ok(OnVolume { identity, closed })
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

/// Waits until another node has the volume, or what is written does not become durable any more.
async fn until_lost(blobs: &Blobs, in_use: &InUse) {
    let mut failed = 0;
    while in_use.volume().is_open() && failed < FAILED_LOOKS {
        env::sleep(LOOK_EVERY).await;
        failed = match blobs.flush().await {
            Ok(()) => 0,
            Err(_) => failed + 1,
        };
    }
}

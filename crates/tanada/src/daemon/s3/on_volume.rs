//! A gateway on a volume of the cluster: served by the node that has the volume, and by another one once that is gone.
//!
//! ```text
//! the volume can be opened here? no: why is shown, and again in a moment
//!   yes -> the gateway listens -> another node has it, or the daemon ends -> it listens no more -> store closed, volume let go
//! ```
//!
//! Always true: a gateway listens only while its node has the volume, as far as that node knows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use config::S3Config;
use env::Poster;
use report::terminal::said;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use vdisk::record::Name;

use super::counters::GatewayCounters;
use super::listen::GRACE;
use super::{Given, Open, Shown, about, open};
use crate::daemon::thread::command::{Command, ThreadHandle};
use crate::daemon::thread::gateway;

/// Between two tries to get the volume.
const AGAIN: Duration = Duration::from_secs(2);
/// The daemon's start waits so long for the first try: another node may have to say no.
const FIRST: Duration = Duration::from_secs(20);

/// A gateway that is on a volume, served here or not.
pub struct OnVolume {
    ended: watch::Sender<bool>,
    keeping: JoinHandle<()>,
}

impl OnVolume {
    /// Serves it whenever the volume can be had here, until [`OnVolume::end`].
    ///
    /// # Errors
    /// This daemon is no node of a cluster.
    pub async fn begin(
        config: &S3Config,
        volume: &Name,
        threads: &[ThreadHandle],
        given: &Given,
    ) -> anyhow::Result<OnVolume> {
        let cluster = threads.iter().find(|it| it.has.cluster);
        let cluster = cluster.ok_or_else(|| anyhow!("no data thread has the cluster"))?;
        let (ended, until) = watch::channel(false);
        let (tried, first) = oneshot::channel();
        let keeper = Keeper {
            config: config.clone(),
            volume: volume.clone(),
            commands: cluster.poster(),
            given: given.clone(),
            last: String::new(),
        };
        let keeping = tokio::spawn(keeper.keep(until, tried));
        // It goes on trying.
        let _ = tokio::time::timeout(FIRST, first).await;
        Ok(OnVolume { ended, keeping })
    }

    pub async fn end(self) {
        self.ended.send_replace(true);
        // What it panicked with was printed where it did.
        let _ = self.keeping.await;
    }
}

struct Keeper {
    config: S3Config,
    volume: Name,
    commands: Poster<Command>,
    given: Given,
    /// Why it was not served, as the log has it.
    last: String,
}

impl Keeper {
    async fn keep(mut self, mut ended: watch::Receiver<bool>, tried: oneshot::Sender<()>) {
        let mut tried = Some(tried);
        while !*ended.borrow() {
            let begun = self.begin().await;
            let why = match begun {
                Ok((open, closed)) => {
                    drop(tried.take());
                    self.last.clear();
                    self.serve(open, closed, &mut ended).await;
                    "its volume is not open here any more".to_owned()
                }
                Err(why) => said::words(&why),
            };
            self.show(why);
            drop(tried.take());
            // An error means the sender is gone, which is the end as well.
            let end = ended.wait_for(|it| *it);
            let _ = tokio::time::timeout(AGAIN, end).await;
        }
    }

    /// Opens the volume and the gateway on it.
    async fn begin(&self) -> anyhow::Result<(Open, oneshot::Receiver<()>)> {
        let (data, jobs) = s3::data(true);
        let (reply, answer) = oneshot::channel();
        let volume = self.volume.clone();
        let posted = self.commands.post(Command::Gateway {
            volume,
            jobs,
            reply,
        });
        posted.map_err(|_| anyhow!("the data thread of the cluster has ended"))?;
        let answer = answer.await;
        let gateway::OnVolume { identity, closed } =
            answer.context("the data thread of the cluster has ended")??;
        let open = open(&self.config, (data, identity), &self.given).await?;
        if let Some(why) = open.failed.clone() {
            open.end().await;
            bail!(why);
        }
        tracing::info!(gateway = self.config.name, volume = %self.volume, "served here");
        Ok((open, closed))
    }

    /// Until another node has the volume, or the daemon ends.
    async fn serve(
        &self,
        open: Open,
        mut closed: oneshot::Receiver<()>,
        ended: &mut watch::Receiver<bool>,
    ) {
        let is_closed = tokio::select! {
            _ = &mut closed => true,
            _ = ended.wait_for(|it| *it) => false,
        };
        open.end().await;
        if !is_closed {
            // Requests that were given up may still have a way to the store.
            let _ = tokio::time::timeout(GRACE, closed).await;
        }
    }

    fn show(&mut self, why: String) {
        if why != self.last {
            tracing::warn!(gateway = self.config.name, why, "it is not served here");
            self.last.clone_from(&why);
        }
        let mut about = about(&self.config);
        about.failed = Some(why);
        self.given.shared.show(Shown {
            about,
            index: std::sync::Weak::new(),
            counters: Arc::<GatewayCounters>::default(),
        });
    }
}

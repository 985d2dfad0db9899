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

use anyhow::{Context, anyhow};
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
/// Store and volume may take so long to close: the volume waits for what is under way.
const CLOSES_IN: Duration = Duration::from_secs(45);

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

    /// It is not to be served any more.
    pub fn begin_ending(&self) {
        self.ended.send_replace(true);
    }

    pub async fn end(self) {
        self.begin_ending();
        // What it panicked with was printed where it did.
        let _ = self.keeping.await;
    }
}

/// One that is served here.
struct Served {
    open: Open,
    /// Answers when its store is closed: why.
    closed: oneshot::Receiver<String>,
    stop: oneshot::Sender<()>,
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
            let begun = tokio::select! {
                begun = self.begin() => begun,
                _ = ended.wait_for(|it| *it) => return,
            };
            match begun {
                Ok(served) => {
                    drop(tried.take());
                    self.last.clear();
                    let why = self.serve(served, &mut ended).await;
                    self.show(why, false);
                }
                Err(why) => self.show(said::words(&why), why.is::<gateway::ServedBy>()),
            }
            drop(tried.take());
            // An error means the sender is gone, which is the end as well.
            let end = ended.wait_for(|it| *it);
            let _ = tokio::time::timeout(AGAIN, end).await;
        }
    }

    /// Opens the volume and the gateway on it.
    async fn begin(&self) -> anyhow::Result<Served> {
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
        let gateway::OnVolume {
            identity,
            closed,
            stop,
        } = answer.context("the data thread of the cluster has ended")??;
        let opened = open(&self.config, (data, identity), &self.given).await;
        let failed = match opened {
            Ok(Open {
                failed: Some(why), ..
            }) => anyhow!(why),
            Ok(open) => {
                tracing::info!(gateway = self.config.name, volume = %self.volume, "served here");
                return Ok(Served { open, closed, stop });
            }
            Err(why) => why,
        };
        // Else the next try would find this one there.
        drop(stop);
        let _ = tokio::time::timeout(CLOSES_IN, closed).await;
        Err(failed)
    }

    /// Until another node has the volume, or the daemon ends; why it ended.
    async fn serve(&self, served: Served, ended: &mut watch::Receiver<bool>) -> String {
        let Served {
            open,
            mut closed,
            stop,
        } = served;
        let why = tokio::select! {
            why = &mut closed => Some(why.unwrap_or_default()),
            _ = ended.wait_for(|it| *it) => None,
        };
        if let Some(why) = why {
            open.end().await;
            return why;
        }
        // What waits for stores, or for the meta store, is given up with the volume.
        let ending = tokio::spawn(open.end());
        tokio::pin!(ending);
        let in_time = tokio::time::timeout(2 * GRACE, &mut ending).await;
        drop(stop);
        let _ = tokio::time::timeout(CLOSES_IN, closed).await;
        if in_time.is_err() {
            let _ = tokio::time::timeout(CLOSES_IN, ending).await;
        }
        "the daemon ends".to_owned()
    }

    fn show(&mut self, why: String, as_it_should: bool) {
        let gateway = &self.config.name;
        if why != self.last {
            match as_it_should {
                true => tracing::info!(gateway, why, "it is not served here"),
                false => tracing::warn!(gateway, why, "it is not served here"),
            }
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

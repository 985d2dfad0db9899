//! One data thread: the devices, volumes and NBD servers that live on it, and the commands it answers.
//!
//! ```text
//! admin API -> message -> mailbox -> report at once | command as a task of its own -> answer
//! ```
//!
//! Always true:
//! 1. A report never waits for a command: a detach may take minutes.
//! 2. One volume carries out one command at a time.
//! 3. Closing goes from the top down: NBD servers drain, stores and hybrids close, devices are flushed.

pub mod behind;
pub mod caps;
mod change;
mod chosen;
pub mod cluster;
mod cluster_level;
pub mod command;
pub mod disks;
mod driver_call;
pub mod entrances;
pub mod export_calendars;
pub mod exports;
pub mod exports_wanted;
pub mod gate;
pub mod gates;
pub mod gateway;
pub mod health;
pub mod hybrid;
pub mod layers;
mod live_settings;
pub mod meta;
pub mod open;
pub mod queued;
mod recording;
pub mod records;
pub mod refused;
pub mod reservations;
pub mod scrub;
pub mod secured;
pub mod shown;
pub mod store;
pub mod tier;
pub mod ublk;
pub mod unserved;
pub mod vhost;
mod volume_commands;
mod ways;

use std::ops::ControlFlow;
use std::rc::Rc;

use anyhow::Context;
use base::{Instant, Nanos};
use config::{ExportConfig, Kind};
use device::{Device, Meter};
use env::Mailbox;
use policy::poll::Setting;
use vdisk::record::Name;

use crate::api::clients::{Gone, Which};
use crate::api::{self, refusal::Refusal};
use crate::daemon::common::polling;
use crate::daemon::thread::caps::ThreadCaps;
use crate::daemon::thread::cluster::OpenCluster;
use crate::daemon::thread::command::{
    Command, EntrancesChange, QueueOf, Reply, Started, StartedCluster, StartedExport, StartedStore,
    ThreadReport,
};
use crate::daemon::thread::entrances::Entrances;
use crate::daemon::thread::gateway::OnVolume;
use crate::daemon::thread::hybrid::OpenVolume;
use crate::daemon::thread::open::{OpenDevice, OpenServer, report_client, report_server};
use crate::daemon::thread::refused::Refused;
use crate::daemon::thread::secured::Secured;
use crate::daemon::thread::shown::{device_of, export_of};
use crate::daemon::thread::store::OpenStore;
use crate::daemon::thread::ublk::UblkDisk;

/// Everything on one data thread.
pub struct DataThread {
    driver: &'static str,
    /// What stands at its top.
    pub names: Vec<String>,
    /// What it does while it has nothing to do.
    pub poll: Setting,
    since: Instant,
    pub devices: Vec<OpenDevice>,
    /// In the order they were made: each after those it stands on.
    pub volumes: Vec<OpenVolume>,
    pub stores: Vec<Rc<OpenStore>>,
    pub cluster: Option<Rc<OpenCluster>>,
    /// Where clients come.
    pub entrances: Entrances,
    /// What clients of exports get at most.
    pub caps: ThreadCaps,
    /// What it shows where TLS is spoken.
    pub secured: Option<Rc<Secured>>,
    /// Lets clients in otherwise.
    pub change_entrances: fn(Rc<DataThread>, EntrancesChange),
}

impl DataThread {
    pub fn new(driver: &'static str) -> DataThread {
        DataThread {
            driver,
            names: Vec::new(),
            poll: Setting::default(),
            since: env::now(),
            devices: Vec::new(),
            volumes: Vec::new(),
            stores: Vec::new(),
            cluster: None,
            entrances: Entrances::default(),
            caps: ThreadCaps::default(),
            secured: None,
            change_entrances: |_, _| (),
        }
    }

    /// The device or volume called `name`, with its meter.
    pub fn find(&self, name: &str) -> Option<Rc<Meter>> {
        let devices = self.devices.iter().map(|d| (&*d.config.name, &d.meter));
        let volumes = self.volumes.iter().map(|v| (v.config.name(), &v.meter));
        devices
            .chain(volumes)
            .find(|(known, _)| *known == name)
            .map(|(_, meter)| Rc::clone(meter))
    }

    fn queue_behind(&self, export: &ExportConfig) -> Option<QueueOf> {
        let mut volumes = self.volumes.iter();
        let volume = volumes.find(|it| it.config.name() == export.device);
        volume.and_then(|volume| volume.queue_behind(export))
    }

    /// The queue of the hybrid that an export of this name shows, and how the hybrid writes.
    fn queue_of(&self, export: &str) -> Option<QueueOf> {
        let exports = self.entrances.exports();
        let mut exports = exports.iter().filter(|it| it.name == export);
        exports.find_map(|export| self.queue_behind(export))
    }

    /// The device behind an export by what is promised to it, without its cap.
    pub fn flowed(&self, export: &ExportConfig) -> Option<Rc<dyn Device>> {
        let device = self.find(&export.device)?;
        Some(match self.queue_behind(export) {
            Some(behind) => behind.queued.flowed(&export.name, device),
            None => device,
        })
    }

    /// Did the configuration make the device read-only?
    pub fn is_read_only(&self, device: &str) -> bool {
        self.devices
            .iter()
            .any(|open| open.config.name == device && open.config.read_only)
    }

    /// The stripe that a device is part of.
    fn stripe_of(&self, device: &str) -> Option<&str> {
        let mut stripes = self
            .devices
            .iter()
            .filter_map(|open| match &open.config.kind {
                Kind::Striped { members, .. } => Some((&*open.config.name, members)),
                _ => None,
            });
        stripes
            .find(|(_, members)| members.iter().any(|member| member == device))
            .map(|(name, _)| name)
    }

    /// The store that stands on a device.
    fn store_on(&self, device: &str) -> Option<&str> {
        let found = self.stores.iter().find(|it| it.config.device == device)?;
        Some(&found.config.name)
    }

    /// What a device is a part of.
    pub fn part_of(&self, device: &str) -> Option<String> {
        let volume = self.volumes.iter().find(|it| it.uses(device));
        let volume = volume.map(|it| it.config.name());
        let owner = volume
            .or(self.stripe_of(device))
            .or(self.store_on(device))?;
        Some(format!("part of {owner}"))
    }

    /// A device of this thread that nothing uses, for `volume`.
    pub fn spare(&self, name: &str, volume: &str) -> Result<Rc<Meter>, Refused> {
        let Some(device) = self.devices.iter().find(|d| d.config.name == name) else {
            let near: Vec<&str> = self.devices.iter().map(|d| &*d.config.name).collect();
            return Err(Refused::Unknown(Refusal {
                error: format!("{volume} can reach no device '{name}'"),
                what_to_do: format!(
                    "name one that lives on the same data thread: {}",
                    near.join(", ")
                ),
            }));
        };
        let exports = self.entrances.wanted();
        let in_use = self.part_of(name).or_else(|| {
            let export = exports.iter().find(|export| export.device == name)?;
            Some(format!("exported as {}", export.name))
        });
        match in_use {
            None => Ok(Rc::clone(&device.meter)),
            Some(use_of_it) => Err(Refused::Conflict(Refusal {
                error: format!("{name} is {use_of_it}"),
                what_to_do: format!("choose another device for {volume}"),
            })),
        }
    }

    /// What the starter wants to know.
    pub fn started(&self) -> Started {
        let devices = self.devices.iter().map(|d| (&*d.config.name, &d.meter));
        let volumes = self.volumes.iter().map(|v| (v.config.name(), &v.meter));
        Started {
            unix_seconds: env::wall_clock().0 / Nanos::secs(1).0,
            sizes: devices
                .chain(volumes)
                .map(|(name, meter)| (name.to_owned(), meter.info().size.0))
                .collect(),
            exports: (self.entrances.exports().iter())
                .map(|export| StartedExport {
                    name: export.name.clone(),
                    nbd: self.entrances.addresses(export),
                    ublk: self
                        .disk(export)
                        .map(|disk| disk.path.display().to_string()),
                    vhost_user: export.vhost_user.clone(),
                    tls: export.tls.is_some(),
                })
                .collect(),
            stores: self
                .stores
                .iter()
                .map(|store| StartedStore {
                    name: store.config.name.clone(),
                    listen: store.addresses(),
                    unauthenticated: store.node.unauthenticated(),
                    bytes: store.node.store().space().total.0,
                })
                .collect(),
            cluster: self.cluster.as_ref().map(|open| StartedCluster {
                node: open.config.node.clone(),
                meta: open.config.meta.describe(),
                nbd: open.addresses(),
                tls: open.config.tls.is_some(),
            }),
        }
    }

    /// The disk of the kernel that an export is.
    fn disk(&self, export: &ExportConfig) -> Option<Rc<UblkDisk>> {
        self.entrances
            .disks
            .find(&export.name)
            .filter(|_| export.ublk)
    }

    /// Answers messages until one of them ends the thread.
    pub async fn run(self: Rc<Self>, mut mailbox: Mailbox<Command>) {
        loop {
            match mailbox.receive().await.map(|command| self.answer(command)) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(reply)) => {
                    let troubles = self.close().await;
                    drop(reply.send(troubles));
                    return;
                }
                // The control thread is gone without a word: close all the same.
                Err(_) => {
                    for trouble in self.close().await {
                        tracing::error!("{trouble}");
                    }
                    return;
                }
            }
        }
    }

    /// Answers one message, or begins what it asks for; to close and end is left to the caller.
    fn answer(self: &Rc<Self>, command: Command) -> ControlFlow<Reply<Vec<String>>> {
        // The sender may have gone away; then no task misses the answer.
        match command {
            Command::Report(reply) => {
                let thread = Rc::clone(self);
                env::spawn(async move { drop(reply.send(thread.report().await)) });
            }
            Command::Volume(command) => volume_commands::answer(self, command),
            Command::Disconnect { which, reply } => {
                let thread = Rc::clone(self);
                env::spawn(async move { drop(reply.send(thread.disconnect(&which).await)) });
            }
            Command::Store { store, job } => {
                // Without one of this name the job is dropped, and with it the way of its answer.
                if let Some(store) = self.stores.iter().find(|it| it.config.name == store) {
                    job(Rc::clone(store));
                }
            }
            Command::Stores { stores, job } => {
                let find = |name: &String| self.stores.iter().find(|it| it.config.name == *name);
                if let Some(found) = stores.iter().map(find).collect::<Option<Vec<_>>>() {
                    job(found.into_iter().cloned().collect());
                }
            }
            Command::Entrances(change) => (self.change_entrances)(Rc::clone(self), change),
            Command::Accounts(terms) => self.caps.set_accounts(&terms),
            Command::Queue { export, job } => job(self.queue_of(&export)),
            Command::Gateway {
                volume,
                jobs,
                reply,
            } => {
                let thread = Rc::clone(self);
                env::spawn(async move { drop(reply.send(thread.on_volume(&volume, jobs).await)) });
            }
            Command::Cluster(job) => {
                if let Some(cluster) = &self.cluster {
                    job(Rc::clone(cluster));
                }
            }
            Command::Stop(reply) => return ControlFlow::Break(reply),
        }
        ControlFlow::Continue(())
    }

    async fn on_volume(&self, volume: &Name, jobs: s3::Jobs) -> anyhow::Result<OnVolume> {
        let cluster = self.cluster.as_ref();
        let cluster = cluster.context("this data thread has no cluster")?;
        gateway::begin((cluster, &self.caps), volume, jobs).await
    }

    /// Answers a question to a volume at once.
    pub(super) fn ask<T>(
        &self,
        name: &str,
        reply: Reply<Result<T, Refused>>,
        answer: impl FnOnce(&OpenVolume) -> Result<T, Refused>,
    ) {
        drop(reply.send(self.volume(name).and_then(answer)));
    }

    /// Carries a command out as a task of its own.
    pub(super) fn command<F>(
        self: &Rc<Self>,
        what: &'static str,
        name: String,
        reply: Reply<Result<api::volume::Volume, Refused>>,
        command: F,
    ) where
        F: AsyncFnOnce(&OpenVolume) -> Result<(), Refused> + 'static,
    {
        let thread = Rc::clone(self);
        env::spawn(async move {
            let answer = thread.carry_out(what, &name, command).await;
            drop(reply.send(answer));
        });
    }

    async fn carry_out<F>(
        &self,
        what: &'static str,
        name: &str,
        command: F,
    ) -> Result<api::volume::Volume, Refused>
    where
        F: AsyncFnOnce(&OpenVolume) -> Result<(), Refused>,
    {
        let volume = self.volume(name)?;
        let _busy = volume.begin(what)?;
        command(volume).await?;
        Ok(volume.report())
    }

    fn volume(&self, name: &str) -> Result<&OpenVolume, Refused> {
        let found = self.volumes.iter().find(|v| v.config.name() == name);
        found.ok_or_else(|| {
            Refused::Unknown(Refusal {
                error: format!("there is no volume '{name}'"),
                what_to_do: "`tanada volume list` shows what there is".to_owned(),
            })
        })
    }

    /// How everything here is now.
    async fn report(&self) -> ThreadReport {
        let gates = self.entrances.gates();
        let gates = env::sync::join_all(gates.iter().map(|at| at.report())).await;
        let exports = self.entrances.exports();
        ThreadReport {
            driver: self.driver.to_owned(),
            thread: polling::report(&self.names, self.poll, self.since),
            gates: gates.iter().flat_map(|at| at.gates.clone()).collect(),
            devices: self.devices.iter().map(|d| device_of(self, d)).collect(),
            volumes: self.volumes.iter().map(OpenVolume::report).collect(),
            stores: self.stores.iter().map(|store| store.report()).collect(),
            exports: exports
                .iter()
                .map(|export| export_of(self, export, &gates))
                .collect(),
            nbd: (self.nbd_servers().iter())
                .map(|it| report_server(&it.address, it.server.snapshot()))
                .chain(
                    gates
                        .iter()
                        .map(|at| report_server(&at.address, at.snapshot.clone())),
                )
                .collect(),
        }
    }

    /// Every address that NBD clients connect to, those of the cluster's volumes too.
    fn nbd_servers(&self) -> Vec<Rc<OpenServer>> {
        let volumes = self.cluster.iter().flat_map(|open| &open.servers);
        let mut all = self.entrances.servers();
        all.extend(volumes.cloned());
        all
    }

    async fn disconnect(&self, which: &Which) -> Vec<Gone> {
        let mut gone = Vec::new();
        for server in self.nbd_servers() {
            let listener = server.address.to_string();
            let ended = server
                .server
                .disconnect(|client| which.means(&listener, client));
            gone.extend(ended.into_iter().map(|client| Gone {
                listener: listener.clone(),
                client: report_client(client),
            }));
        }
        for at in self.entrances.gates() {
            gone.extend(at.disconnect(which).await);
        }
        gone
    }

    /// Closes everything, top down; says what went wrong.
    pub async fn close(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        self.entrances.begin_closing().await;
        self.entrances.close_gates();
        // Else the slowest that waits behind a cap would hold up the end.
        self.caps.lift();
        self.volumes.iter().for_each(OpenVolume::lift_caps);
        self.cluster.iter().for_each(|it| it.lift_caps());
        troubles.extend(self.entrances.drain().await);
        if let Some(cluster) = &self.cluster {
            troubles.extend(cluster.close().await);
        }
        troubles.extend(
            env::sync::join_all(self.stores.iter().map(|store| store.close()))
                .await
                .into_iter()
                .flatten(),
        );
        // A hybrid may stand on an earlier one.
        for volume in self.volumes.iter().rev() {
            if let Err(error) = volume.close().await {
                troubles.push(format!("volume {}: {error}", volume.config.name()));
            }
        }
        for device in &self.devices {
            if device.config.read_only {
                continue;
            }
            if let Err(error) = device.meter.flush().await {
                troubles.push(format!("device {}: {error}", device.config.name));
            }
        }
        troubles
    }
}

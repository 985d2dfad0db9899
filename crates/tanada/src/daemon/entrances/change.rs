//! Exports that the configuration, read anew, has otherwise: checked, with all that can fail done before; then changed.
//!
//! ```text
//! check: who uses what ends? -> certificates read, new addresses listened at -> Prepared
//! apply: what ends, ends -> what stays, on new terms -> what begins
//! ```
//!
//! Always true:
//! 1. A check changes nothing: what it opened is closed again where another part of the daemon refuses.
//! 2. An export that clients use neither ends nor changes, but for its caps: who came again by another name, or on other
//!    terms, could take another disk for its own.
//! 3. What fails while a change is made is not in force: the next reload tries it again.

use std::rc::Rc;

use config::{ExportConfig, StoreConfig};
use env::net::Address;
use front::nbd::{ConnectionSnapshot, Tls};
use report::terminal::said;

use super::listen::{listen_for_clients, listen_for_machines, listen_for_objects, read_tls};
use super::serve::{add_to, serve, showing, through_gates, volumes_at};
use crate::api::refusal::Refusal;
use crate::daemon::thread::DataThread;
use crate::daemon::thread::command::{EntrancesChange, Step};
use crate::daemon::thread::entrances::Prepared;
use crate::daemon::thread::exports_wanted::{Difference, addresses, at, default_at, other_gates};
use crate::daemon::thread::open::VhostDisk;
use crate::daemon::thread::refused::Refused;
use crate::daemon::thread::store::OpenStore;
use crate::daemon::thread::unserved::Unserved;
use crate::daemon::thread::{ublk, vhost};

/// What to do where a reload cannot.
const RESTART: &str = "restart the daemon for it, or take the line back";

/// Takes a step towards other exports, as a task of its own.
pub fn begin(thread: Rc<DataThread>, change: EntrancesChange) {
    env::spawn(async move {
        let done = match change.step {
            Step::Check => check(&thread, &change.exports, &change.stores).await,
            Step::Apply => apply(&thread, change.exports, &change.stores).await,
            Step::GiveUp => {
                thread.entrances.prepared.take();
                Ok(())
            }
        };
        // The asker may be gone.
        let _ = change.reply.send(done);
    });
}

/// Can these exports be those of the thread, and its stores go by these terms? The answer is no, or [`apply`] can begin.
async fn check(
    thread: &DataThread,
    after: &[ExportConfig],
    stores: &[StoreConfig],
) -> Result<(), Refused> {
    let entrances = &thread.entrances;
    entrances.prepared.take();
    let before = entrances.exports();
    let difference = Difference::between(&before, after);
    if let Some(address) = other_gates(&before, after) {
        let error = format!("{address} would have another number of gates");
        return Err(refused(error, RESTART));
    }
    may_change(thread, &difference, after).await?;
    let mut prepared = Prepared {
        difference,
        tls: certificates(after).map_err(cannot)?,
        cluster_tls: certificate_of_cluster(thread).map_err(cannot)?,
        listeners: Unserved::default(),
    };
    // What is open already is closed with `prepared` if one cannot be.
    listen_at_new(thread, &before, after, &mut prepared)
        .await
        .map_err(cannot)?;
    check_stores(thread, stores, &mut prepared.listeners).await?;
    *entrances.prepared.borrow_mut() = Some(prepared);
    Ok(())
}

/// Puts the exports and stores in force for which the last check was.
async fn apply(
    thread: &DataThread,
    after: Vec<ExportConfig>,
    stores: &[StoreConfig],
) -> Result<(), Refused> {
    let entrances = &thread.entrances;
    let (Some(prepared), Some(_making)) = (entrances.prepared.take(), entrances.begin_change())
    else {
        let error = "the exports were not checked, or the daemon closes".to_owned();
        return Err(refused(error, "ask for the reload once more"));
    };
    let Prepared {
        difference,
        mut listeners,
        tls,
        cluster_tls,
    } = prepared;
    // Clients may have come since.
    may_change(thread, &difference, &after).await?;
    // Access that is taken away waits for no client of an export.
    let changed = change_stores(thread, stores, &mut listeners);
    let before = addresses_of(thread);
    *entrances.exports.borrow_mut() = after.clone().into();
    thread.caps.set_exports(&after);
    if let Some(cluster) = &thread.cluster {
        cluster.set_exports(&after);
        for open in &cluster.servers {
            open.server.set_tls(cluster_tls.clone());
        }
    }
    end_addresses(thread, &after).await;
    let mut failed = change_servers(thread, &difference, &tls).await;
    change_gates(thread, &difference, &tls).await;
    end_sockets(thread, &difference.gone).await;
    for address in addresses(&after) {
        if !before.contains(address)
            && let Some(listener) = listeners.take(address)
        {
            let opened = (address.clone(), listener, tls_of(&tls, address));
            if let Err(error) = serve(thread, opened).await {
                let here = at(&after, address).map(|export| export.name.clone());
                failed.extend(here.map(|name| (name, said::words(&error))));
            }
        }
    }
    for export in &difference.new {
        if let Err(error) = begin_elsewhere(thread, export, &mut listeners).await {
            failed.push((export.name.clone(), said::words(&error)));
        }
    }
    forget(thread, &failed).and(changed)
}

/// Where NBD clients come before a change.
fn addresses_of(thread: &DataThread) -> Vec<Address> {
    let exports = thread.entrances.exports();
    addresses(&exports).into_iter().cloned().collect()
}

/// Can the stores go by this? Listens at the addresses that are new.
async fn check_stores(
    thread: &DataThread,
    stores: &[StoreConfig],
    listeners: &mut Unserved,
) -> Result<(), Refused> {
    let mode = thread.entrances.terms.socket_mode;
    for (open, config) in open_stores(thread, stores) {
        open.check(config)?;
        for address in config.listen.iter().filter(|it| !open.listens_at(it)) {
            let listener = listen_for_objects(address, mode).await.map_err(cannot)?;
            listeners.put(address, listener);
        }
    }
    Ok(())
}

/// The stores go by this; the first one that fails is told of, and the others change all the same.
fn change_stores(
    thread: &DataThread,
    stores: &[StoreConfig],
    listeners: &mut Unserved,
) -> Result<(), Refused> {
    let mut changed = Ok(());
    for (open, config) in open_stores(thread, stores) {
        // Each is changed, whatever became of the one before.
        let done = open.change(config, listeners);
        changed = changed.and(done);
    }
    changed
}

/// The stores of the thread that are configured.
fn open_stores<'a>(
    thread: &'a DataThread,
    stores: &'a [StoreConfig],
) -> impl Iterator<Item = (&'a Rc<OpenStore>, &'a StoreConfig)> {
    let of = |config: &'a StoreConfig| {
        let mut open = thread.stores.iter();
        Some((open.find(|it| it.config.name == config.name)?, config))
    };
    stores.iter().filter_map(of)
}

/// Exports that could not begin are not in force.
fn forget(thread: &DataThread, failed: &[(String, String)]) -> Result<(), Refused> {
    let Some((name, why)) = failed.first() else {
        return Ok(());
    };
    let exports = thread.entrances.exports();
    let served = exports
        .iter()
        .filter(|export| failed.iter().all(|(name, _)| *name != export.name));
    *thread.entrances.exports.borrow_mut() = served.cloned().collect();
    Err(Refused::Failed(Refusal {
        error: format!("export {name} cannot begin: {why}; what else is different is in force"),
        what_to_do: "see to it, and ask for the reload once more".to_owned(),
    }))
}

fn refused(error: String, what_to_do: &str) -> Refused {
    Refused::Conflict(Refusal {
        error,
        what_to_do: what_to_do.to_owned(),
    })
}

fn cannot(error: anyhow::Error) -> Refused {
    let words = said::words(&error);
    let (error, todo) = words
        .rsplit_once("; ")
        .unwrap_or((&words, "the log says more"));
    refused(error.to_owned(), todo)
}

fn tls_of(all: &[(Address, Option<Tls>)], address: &Address) -> Option<Tls> {
    let mut all = all.iter();
    all.find(|(of, _)| of == address)
        .and_then(|(_, tls)| tls.clone())
}

/// Refuses where clients would lose what they use, or find another disk in its place, or write to a part of a whole.
async fn may_change(
    thread: &DataThread,
    difference: &Difference,
    after: &[ExportConfig],
) -> Result<(), Refused> {
    for export in &difference.gone {
        may_end(thread, export).await?;
    }
    for export in &difference.new {
        may_begin(thread, export)?;
    }
    let before = thread.entrances.exports();
    for address in addresses(&before) {
        let stays = at(after, address).next().is_some();
        if stays && default_at(&before, address) != default_at(after, address) {
            let clients = clients_at(thread, address, |_| true).await;
            if clients > 0 {
                let error = format!(
                    "clients of {address} that ask for no export by its name would get another one"
                );
                return Err(refused(
                    error,
                    "leave the first export of that address the first one, or end the clients (`tanada client list`)",
                ));
            }
        }
    }
    Ok(())
}

async fn may_end(thread: &DataThread, export: &ExportConfig) -> Result<(), Refused> {
    let name = &export.name;
    if export.ublk {
        let error = format!("export {name} is a block device of the kernel");
        return Err(refused(error, RESTART));
    }
    let mut clients = 0;
    for address in &export.nbd {
        clients += clients_at(thread, address, |it| it == name).await;
    }
    if clients > 0 {
        let what = if clients == 1 { "client" } else { "clients" };
        return Err(refused(
            format!("export {name} has {clients} {what}"),
            "end them first (`tanada client list`, `tanada client delete`), or restart the daemon",
        ));
    }
    let machine = thread.entrances.socket(export);
    if machine.is_some_and(|it| it.server.snapshot().client.is_some()) {
        return Err(refused(
            format!("a virtual machine uses export {name}"),
            "detach the disk from it first, or restart the daemon",
        ));
    }
    Ok(())
}

/// Is what it shows free? A volume may have taken it since the start.
fn may_begin(thread: &DataThread, export: &ExportConfig) -> Result<(), Refused> {
    let device = &export.device;
    let mut volumes = thread.volumes.iter();
    if let Some(command) = volumes.find_map(|volume| volume.command()) {
        let error = format!(
            "what export {} shows may be taken: {command} is under way",
            export.name
        );
        return Err(refused(
            error,
            "wait for it (`tanada job list`), and ask once more",
        ));
    }
    if export.volume.is_none()
        && let Some(use_of_it) = thread.part_of(device)
    {
        let error = format!(
            "export {} shows {device}, which is {use_of_it}",
            export.name
        );
        return Err(refused(error, "export the whole instead"));
    }
    Ok(())
}

/// NBD clients at an address, of exports with such names.
async fn clients_at(
    thread: &DataThread,
    address: &Address,
    is_meant: impl Fn(&String) -> bool,
) -> usize {
    let mut clients = 0;
    let mut count = |seen: &[ConnectionSnapshot]| {
        let theirs = seen
            .iter()
            .filter(|it| it.export.as_ref().is_some_and(&is_meant));
        clients += theirs.count();
    };
    for open in thread.entrances.servers() {
        if open.configured == *address {
            count(&open.server.snapshot().connections);
        }
    }
    for gates in thread.entrances.gates() {
        if gates.configured == *address {
            count(&gates.report().await.snapshot.connections);
        }
    }
    clients
}

/// What each address shows where TLS is spoken, read anew.
fn certificates(exports: &[ExportConfig]) -> anyhow::Result<Vec<(Address, Option<Tls>)>> {
    let of = |address: &Address| {
        let mut here = at(exports, address);
        let tls = here.find_map(|export| export.tls.as_ref());
        Ok((address.clone(), tls.map(read_tls).transpose()?))
    };
    addresses(exports).into_iter().map(of).collect()
}

/// The same of where clients come to the volumes of the cluster.
fn certificate_of_cluster(thread: &DataThread) -> anyhow::Result<Option<Tls>> {
    let cluster = thread.cluster.as_ref();
    let tls = cluster.and_then(|it| it.config.tls.as_ref());
    tls.map(read_tls).transpose()
}

/// Listens at the addresses that are new, but for sockets of virtual machines that an export has which ends.
async fn listen_at_new(
    thread: &DataThread,
    before: &[ExportConfig],
    after: &[ExportConfig],
    prepared: &mut Prepared,
) -> anyhow::Result<()> {
    let mode = thread.entrances.terms.socket_mode;
    let known = addresses(before);
    for address in addresses(after) {
        if !known.contains(&address) {
            let listener = listen_for_clients(address, mode).await?;
            prepared.listeners.put(address, listener);
        }
    }
    for export in &prepared.difference.new {
        if let Some(address) = &export.vhost_user
            && thread.entrances.socket(export).is_none()
        {
            let listener = listen_for_machines(address, mode).await?;
            prepared.listeners.put(address, listener);
        }
    }
    if prepared.difference.new.iter().any(|export| export.ublk) {
        ublk::is_offered().await?;
    }
    Ok(())
}

/// Ends servers at whose addresses no export is any more.
async fn end_addresses(thread: &DataThread, after: &[ExportConfig]) {
    let entrances = &thread.entrances;
    let stays = addresses(after);
    let ends = |configured: &Address| !stays.contains(&configured);
    for open in entrances.servers().iter().filter(|it| ends(&it.configured)) {
        entrances
            .servers
            .borrow_mut()
            .retain(|it| !Rc::ptr_eq(it, open));
        open.server.drain().await;
        env::net::inherited::closed(&open.address);
    }
    for open in entrances.gates().iter().filter(|it| ends(&it.configured)) {
        entrances
            .gates
            .borrow_mut()
            .retain(|it| !Rc::ptr_eq(it, open));
        open.drain().await;
        env::net::inherited::closed(&open.address);
    }
}

/// The names of exports that end at an address.
fn gone_at(gone: &[ExportConfig], address: &Address) -> Vec<String> {
    let here = at(gone, address);
    here.map(|export| export.name.clone()).collect()
}

/// Changes what is found at addresses that stay; exports that cannot begin, and why.
async fn change_servers(
    thread: &DataThread,
    difference: &Difference,
    tls: &[(Address, Option<Tls>)],
) -> Vec<(String, String)> {
    let mut failed = Vec::new();
    for open in thread.entrances.servers() {
        open.server.set_tls(tls_of(tls, &open.configured));
        open.show(volumes_at(thread, &open.configured));
        let gone = gone_at(&difference.gone, &open.configured);
        if !gone.is_empty() {
            // Those who are being let in may have been shown what is gone; they come again.
            open.server.disconnect(|client| client.export.is_none());
        }
        for name in gone {
            // A volume's export is not in the list of the server.
            if open.server.remove_export(&name).await.is_err() {
                open.server.end_clients_of(&name).await;
            }
        }
        for export in at(&difference.new, &open.configured) {
            if let Err(error) = add_to(&open.server, thread, export) {
                failed.push((export.name.clone(), said::words(&error)));
            }
        }
        let exports = thread.entrances.exports();
        let mut devices = at(&exports, &open.configured).filter(|it| it.volume.is_none());
        if let Some(first) = devices.next() {
            // As at a start; one that could not begin is the default of no client.
            let _ = open.server.set_default(&first.name);
        }
    }
    failed
}

/// The same at addresses with gates.
async fn change_gates(
    thread: &DataThread,
    difference: &Difference,
    tls: &[(Address, Option<Tls>)],
) {
    for gates in thread.entrances.gates() {
        let volumes = volumes_at(thread, &gates.configured);
        volumes.iter().for_each(|it| it.found_at(&gates.address));
        let shown = through_gates(thread, &gates.configured, volumes);
        let gone = gone_at(&difference.gone, &gates.configured);
        let tls = tls_of(tls, &gates.configured);
        gates.change(shown, tls, &gone).await;
    }
}

/// Ends disks of virtual machines.
async fn end_sockets(thread: &DataThread, gone: &[ExportConfig]) {
    for export in gone {
        if let Some(socket) = thread.entrances.socket(export) {
            let is_other = |it: &Rc<VhostDisk>| !Rc::ptr_eq(it, &socket);
            thread.entrances.sockets.borrow_mut().retain(is_other);
            socket.server.drain().await;
            env::net::inherited::closed(&socket.address);
        }
    }
}

/// Shows an export to virtual machines and as a disk of the kernel; `ready` are sockets that are listened at.
pub async fn begin_elsewhere(
    thread: &DataThread,
    export: &ExportConfig,
    ready: &mut Unserved,
) -> anyhow::Result<()> {
    let terms = &thread.entrances.terms;
    if let Some(address) = &export.vhost_user {
        let listener = match ready.take(address) {
            Some(listener) => listener,
            None => listen_for_machines(address, terms.socket_mode).await?,
        };
        let disk = vhost::serve(thread, listener, &terms.data_dir);
        thread.entrances.sockets.borrow_mut().push(Rc::new(disk));
    }
    if export.ublk {
        let showing = showing(thread, export);
        thread.entrances.disks.show(showing).await?;
    }
    Ok(())
}

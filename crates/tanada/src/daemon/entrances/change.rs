//! Exports that the configuration, read anew, has otherwise: checked, with all that can fail done before; then changed.
//!
//! ```text
//! check: who uses what ends? -> certificates read, new addresses listened at -> Prepared
//! apply: what ends, ends -> what stays, on new terms -> what begins
//! ```
//!
//! Always true:
//! 1. A check changes nothing: what it opened is closed again where another part of the daemon refuses.
//! 2. No client loses its data under its hands: an export that clients use ends only where they find it again.

use std::rc::Rc;

use config::ExportConfig;
use env::net::{Address, Listener};
use front::nbd::Tls;
use report::terminal::said;

use super::listen::{listen, read_tls};
use super::serve::{add_to, serve, showing, through_gates, volumes_at};
use crate::api::refusal::Refusal;
use crate::daemon::thread::DataThread;
use crate::daemon::thread::command::{ExportsChange, Step};
use crate::daemon::thread::entrances::Prepared;
use crate::daemon::thread::exports_wanted::{Difference, Gone, addresses, at, other_gates};
use crate::daemon::thread::gates::Gates;
use crate::daemon::thread::open::{OpenServer, VhostDisk};
use crate::daemon::thread::refused::Refused;
use crate::daemon::thread::vhost;

/// Takes a step towards other exports, as a task of its own.
pub fn begin(thread: Rc<DataThread>, change: ExportsChange) {
    env::spawn(async move {
        let done = match change.step {
            Step::Check => check(&thread, &change.exports).await,
            Step::Apply => apply(&thread, change.exports).await,
            Step::GiveUp => {
                thread.entrances.prepared.take();
                Ok(())
            }
        };
        // The asker may be gone.
        let _ = change.reply.send(done);
    });
}

/// Can these exports be those of the thread? The answer is no, or [`apply`] can begin.
async fn check(thread: &DataThread, after: &[ExportConfig]) -> Result<(), Refused> {
    let entrances = &thread.entrances;
    entrances.prepared.take();
    let before = entrances.exports();
    let difference = Difference::between(&before, after);
    if let Some(address) = other_gates(&before, after) {
        let error = format!("{address} would have another number of gates");
        return Err(refused(
            error,
            "restart the daemon for it, or take the line back",
        ));
    }
    for gone in &difference.gone {
        may_end(thread, gone).await?;
    }
    let tls = certificates(after).map_err(cannot)?;
    let listeners = listeners(thread, &before, after).await.map_err(cannot)?;
    let sockets = sockets(thread, &difference).await.map_err(cannot)?;
    *entrances.prepared.borrow_mut() = Some(Prepared {
        difference,
        listeners,
        sockets,
        tls,
    });
    Ok(())
}

/// Puts the exports in force for which the last check was.
async fn apply(thread: &DataThread, after: Vec<ExportConfig>) -> Result<(), Refused> {
    let entrances = &thread.entrances;
    let Some(prepared) = entrances.prepared.take() else {
        return Err(refused(
            "the exports were not checked".to_owned(),
            "ask for the reload once more",
        ));
    };
    let Prepared {
        difference,
        listeners,
        sockets,
        tls,
    } = prepared;
    *entrances.exports.borrow_mut() = after.clone().into();
    thread.caps.set_exports(&after);
    if let Some(cluster) = &thread.cluster {
        cluster.set_exports(&after);
    }
    end_addresses(thread, &after).await;
    change_servers(thread, &difference, &tls)
        .await
        .map_err(cannot)?;
    change_gates(thread, &difference, &tls).await;
    end_elsewhere(thread, &difference.gone)
        .await
        .map_err(cannot)?;
    for (address, listener) in listeners {
        let tls = tls_of(&tls, &address);
        serve(thread, (address, listener, tls))
            .await
            .map_err(cannot)?;
    }
    begin_elsewhere(thread, &difference.new, sockets)
        .await
        .map_err(cannot)
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

/// Refuses where clients would lose what they use.
async fn may_end(thread: &DataThread, gone: &Gone) -> Result<(), Refused> {
    let name = &gone.export.name;
    if !gone.returns {
        let clients = clients_of(thread, &gone.export).await;
        if clients > 0 {
            let what = if clients == 1 { "client" } else { "clients" };
            return Err(refused(
                format!("export {name} has {clients} {what}, who would not find it again"),
                "end them first (`tanada client list`, `tanada client delete`), or leave the export as it was",
            ));
        }
    }
    let machine = thread.entrances.socket(&gone.export);
    if machine.is_some_and(|it| it.server.snapshot().client.is_some()) {
        return Err(refused(
            format!("a virtual machine uses export {name}"),
            "detach the disk from it first, or leave the export as it was",
        ));
    }
    let disk = thread
        .entrances
        .disks
        .find(name)
        .filter(|_| gone.export.ublk);
    if let Some(disk) = disk
        && disk.is_in_use().await.map_err(cannot)?
    {
        return Err(refused(
            format!("export {name} is in use as {}", disk.path.display()),
            "unmount it and close what has it open first, or leave the export as it was",
        ));
    }
    Ok(())
}

/// NBD clients of an export.
async fn clients_of(thread: &DataThread, export: &ExportConfig) -> u64 {
    let mut clients = 0;
    for open in thread.entrances.servers() {
        if export.nbd.contains(&open.configured) {
            clients += open.server.clients_of(&export.name);
        }
    }
    for gates in thread.entrances.gates() {
        if export.nbd.contains(&gates.configured) {
            let seen = gates.report().await.snapshot.connections;
            let theirs = seen
                .iter()
                .filter(|it| it.export.as_ref() == Some(&export.name));
            clients += theirs.count() as u64;
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

/// Listens at the addresses that are new.
async fn listeners(
    thread: &DataThread,
    before: &[ExportConfig],
    after: &[ExportConfig],
) -> anyhow::Result<Vec<(Address, Listener)>> {
    let known = addresses(before);
    let mut all = Vec::new();
    for address in addresses(after) {
        if !known.contains(&address) {
            let what = ("NBD clients", "[[export]] nbd");
            let listener = listen(address, thread.entrances.terms.socket_mode, what).await?;
            all.push((address.clone(), listener));
        }
    }
    Ok(all)
}

/// Listens where virtual machines are to come, but for sockets that an export has which ends.
async fn sockets(thread: &DataThread, difference: &Difference) -> anyhow::Result<Vec<Listener>> {
    let mut all = Vec::new();
    for export in &difference.new {
        if let Some(address) = &export.vhost_user
            && thread.entrances.socket(export).is_none()
        {
            all.push(listen_for_machines(thread, address).await?);
        }
    }
    Ok(all)
}

async fn listen_for_machines(thread: &DataThread, address: &Address) -> anyhow::Result<Listener> {
    let what = ("virtual machines", "[[export]] vhost-user");
    listen(address, thread.entrances.terms.socket_mode, what).await
}

/// Ends servers at whose addresses no export is any more.
async fn end_addresses(thread: &DataThread, after: &[ExportConfig]) {
    let entrances = &thread.entrances;
    let stays = addresses(after);
    let ends = |configured: &Address| !stays.contains(&configured);
    let servers: Vec<Rc<OpenServer>> = entrances.servers();
    for open in servers.iter().filter(|it| ends(&it.configured)) {
        entrances
            .servers
            .borrow_mut()
            .retain(|it| !Rc::ptr_eq(it, open));
        open.server.drain().await;
        env::net::inherited::closed(&open.address);
    }
    let gates: Vec<Rc<Gates>> = entrances.gates();
    for open in gates.iter().filter(|it| ends(&it.configured)) {
        entrances
            .gates
            .borrow_mut()
            .retain(|it| !Rc::ptr_eq(it, open));
        open.drain().await;
        env::net::inherited::closed(&open.address);
    }
}

/// The names of exports that end at an address.
fn gone_at(gone: &[Gone], address: &Address) -> Vec<String> {
    let here = gone.iter().filter(|it| it.export.nbd.contains(address));
    here.map(|it| it.export.name.clone()).collect()
}

/// Changes what is found at addresses that stay.
async fn change_servers(
    thread: &DataThread,
    difference: &Difference,
    tls: &[(Address, Option<Tls>)],
) -> anyhow::Result<()> {
    for open in thread.entrances.servers() {
        open.server.set_tls(tls_of(tls, &open.configured));
        open.show(volumes_at(thread, &open.configured));
        for name in gone_at(&difference.gone, &open.configured) {
            // A volume's export is not in the list of the server.
            if open.server.remove_export(&name).await.is_err() {
                open.server.end_clients_of(&name).await;
            }
        }
        for export in at(&difference.new, &open.configured) {
            add_to(&open.server, thread, export)?;
        }
    }
    Ok(())
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

/// Ends disks of the kernel and of virtual machines.
async fn end_elsewhere(thread: &DataThread, gone: &[Gone]) -> anyhow::Result<()> {
    for Gone { export, .. } in gone {
        if let Some(socket) = thread.entrances.socket(export) {
            let is_other = |it: &Rc<VhostDisk>| !Rc::ptr_eq(it, &socket);
            thread.entrances.sockets.borrow_mut().retain(is_other);
            socket.server.drain().await;
            env::net::inherited::closed(&socket.address);
        }
        if export.ublk {
            thread.entrances.disks.hide(&export.name).await?;
        }
    }
    Ok(())
}

/// Begins them; `ready` are sockets that were listened at before.
pub async fn begin_elsewhere(
    thread: &DataThread,
    new: &[ExportConfig],
    mut ready: Vec<Listener>,
) -> anyhow::Result<()> {
    let data_dir = &thread.entrances.terms.data_dir;
    for export in new {
        if let Some(address) = &export.vhost_user {
            let listener = match ready.iter().position(|it| it.address() == address) {
                Some(place) => ready.swap_remove(place),
                None => listen_for_machines(thread, address).await?,
            };
            let disk = vhost::serve(thread, listener, data_dir);
            thread.entrances.sockets.borrow_mut().push(Rc::new(disk));
        }
        if export.ublk {
            let showing = showing(thread, export);
            thread.entrances.disks.show(showing).await?;
        }
    }
    Ok(())
}

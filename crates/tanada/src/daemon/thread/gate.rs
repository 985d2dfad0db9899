//! A gate: a thread that speaks NBD with its clients, and leaves the devices to the data thread that owns them.
//!
//! ```text
//! data thread: accepts -> the gate with the fewest clients of that host
//! gate:        parse, TLS, copies -> device::remote ==rings of this client==> data thread: the device
//! ```
//!
//! Always true:
//! 1. When the answer to `Stop` is there, no device has a request of the gate left.
//! 2. What a connection has accepted is at the data thread, in a ring that has room for all of it: no client waits for what
//!    another one asked, and nothing is sent after a connection has ended.
//! 3. A data thread that died leaves no answer: its clients lose their connections, as without gates.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use base::Instant;
use device::DeviceError;
use device::remote::{OwnerEnd, link};
use env::net::{Address, Detached};
use env::{Mailbox, Poster};
use front::nbd::{
    Account, ConnectionSnapshot, ExportSnapshot, Leaving, Limits, Server, ServerSnapshot, Soon,
    Supplied, Supply, Tls,
};
use policy::poll::Setting;
use tokio::sync::oneshot;

use super::command::Reply;
use super::open::report_client;
use crate::api;
use crate::api::clients::{Gone, Which};
use crate::daemon::common::polling::{polling, report};

/// Requests of one connection accepted and not answered.
const REQUESTS: usize = 128;
/// Calls that they make at the data thread at most: a long discard makes eight at once, and so does a long read of a device
/// that takes 64 KiB at a time.
const CALLS: usize = 9 * REQUESTS;

/// What a gate is to be.
pub(super) struct Setup {
    /// From 0, of so many at its address.
    pub number: usize,
    pub of: usize,
    pub address: Address,
    pub limits: Limits,
    pub tls: Option<Tls>,
    pub poll: Setting,
    /// The first one is for clients that ask for no name.
    pub exports: Vec<ExportView>,
    /// The data thread serves what is sent there.
    pub owner: Poster<OwnerEnd>,
    /// Hears which driver the gate runs with, or why it cannot run.
    pub up: oneshot::Sender<Result<&'static str, String>>,
}

/// An export as its clients see it.
#[derive(Clone)]
pub struct ExportView {
    pub name: String,
    /// What it says of itself.
    pub description: String,
    pub read_only: bool,
    /// One for all gates: a client may come back at another one.
    pub leaving: Leaving,
}

/// What the data thread tells a gate.
pub(super) enum Message {
    /// A client that came; what is beside it is dropped when it has gone.
    Client(Detached, Place),
    Report(Reply<GateReport>),
    Disconnect(Which, Reply<Vec<Gone>>),
    /// Show these exports; clients of those that are `gone` end.
    Show {
        exports: Vec<ExportView>,
        tls: Option<Tls>,
        gone: Vec<String>,
        reply: Reply<()>,
    },
    /// Let the clients finish, and end.
    Stop(Reply<()>),
}

/// A client's place at a gate: one among all, and one among those of its host.
pub(super) type Place = (Arc<()>, Arc<()>);

/// How a gate is at one moment.
pub(super) struct GateReport {
    pub snapshot: ServerSnapshot,
    pub thread: api::status::Thread,
}

/// Puts a gate to work on a thread of its own.
///
/// # Errors
/// The system's, if there can be no further thread.
pub(super) fn start(setup: Setup, mailbox: Mailbox<Message>) -> std::io::Result<JoinHandle<()>> {
    let name = format!("gate {}", setup.number);
    std::thread::Builder::new().name(name).spawn(move || {
        let config = env::RealConfig {
            polling: polling(setup.poll),
            ..env::RealConfig::default()
        };
        match env::Runtime::real(config) {
            Ok(runtime) => {
                let driver = runtime.driver_name();
                runtime.block_on(serve(setup, driver, mailbox));
            }
            // The one who waits may be gone.
            Err(error) => drop(setup.up.send(Err(error.to_string()))),
        }
    })
}

/// Carries out what the data thread says until it says stop, or is gone.
async fn serve(setup: Setup, driver: &'static str, mut mailbox: Mailbox<Message>) {
    let exports = setup.exports.iter().cloned();
    let supply = Rc::new(Exports {
        owner: setup.owner,
        exports: RefCell::new(exports.map(with_account).collect()),
    });
    let server = Server::new(front::nbd::Config {
        limits: Limits {
            requests_per_connection: REQUESTS,
            ..setup.limits
        },
        tls: setup.tls,
    });
    server.set_supply(Rc::clone(&supply) as _);
    let numbers = Numbers {
        number: setup.number as u64,
        of: setup.of as u64,
    };
    let names = [format!("gate {} of {}", setup.number, setup.address)];
    let since: Instant = env::now();
    drop(setup.up.send(Ok(driver)));
    let stopped = loop {
        match mailbox.receive().await {
            Ok(Message::Client(client, place)) => match client.join() {
                Ok(stream) => server.admit_holding(stream, place),
                Err(error) => tracing::warn!(%error, "a client could not be taken over"),
            },
            // Those who ask may have gone away.
            Ok(Message::Report(reply)) => drop(reply.send(GateReport {
                snapshot: numbers.apply(supply.counted(server.snapshot())),
                thread: report(&names, setup.poll, since),
            })),
            Ok(Message::Disconnect(which, reply)) => {
                let listener = setup.address.to_string();
                drop(reply.send(disconnect(&server, (&which, &listener), numbers)));
            }
            Ok(Message::Show {
                exports,
                tls,
                gone,
                reply,
            }) => {
                server.set_tls(tls);
                supply.show(exports, &gone);
                if !gone.is_empty() {
                    // Those who are being let in may have been shown what is gone; they come again.
                    server.disconnect(|client| client.export.is_none());
                }
                env::spawn(end_clients(Rc::clone(&server), gone, reply));
            }
            Ok(Message::Stop(reply)) => break reply,
            // The data thread is gone: sockets close with this runtime.
            Err(_) => return,
        }
    };
    server.drain().await;
    // The asker may be gone.
    let _ = stopped.send(());
}

/// Ends connections at once; those that were.
fn disconnect(server: &Server, (which, listener): (&Which, &str), numbers: Numbers) -> Vec<Gone> {
    let ended =
        server.disconnect(|client| which.means(listener, &numbers.of_connection(client.clone())));
    let gone = ended.into_iter().map(|client| Gone {
        listener: listener.to_owned(),
        client: report_client(numbers.of_connection(client)),
    });
    gone.collect()
}

/// Clients of exports that are gone are answered, and end.
async fn end_clients(server: Rc<Server>, gone: Vec<String>, reply: Reply<()>) {
    for name in &gone {
        server.end_clients_of(name).await;
    }
    // The asker may be gone.
    let _ = reply.send(());
}

/// Numbers of connections that no other gate of the address gives.
#[derive(Clone, Copy)]
struct Numbers {
    number: u64,
    of: u64,
}

impl Numbers {
    /// The gate's own counts from 1.
    fn of_connection(self, of: ConnectionSnapshot) -> ConnectionSnapshot {
        ConnectionSnapshot {
            id: (of.id - 1) * self.of + self.number + 1,
            ..of
        }
    }

    fn apply(self, mut snapshot: ServerSnapshot) -> ServerSnapshot {
        let all = snapshot.connections.into_iter();
        snapshot.connections = all.map(|of| self.of_connection(of)).collect();
        snapshot
    }
}

/// The exports of the gate's address, each opened at its owner for every client.
struct Exports {
    owner: Poster<OwnerEnd>,
    exports: RefCell<Vec<(ExportView, Account)>>,
}

/// An export and its account, both new at this gate.
fn with_account(view: ExportView) -> (ExportView, Account) {
    let account = Account::beside(view.leaving.clone());
    (view, account)
}

impl Exports {
    /// These from now on; the counts of those that were there, and are not `gone`, go on. What clients left behind of one that
    /// is there again counts in any case.
    fn show(&self, views: Vec<ExportView>, gone: &[String]) {
        let mut exports = self.exports.borrow_mut();
        let of = |view: ExportView| {
            let known = exports.iter().find(|(known, _)| known.name == view.name);
            let Some((known, account)) = known else {
                return with_account(view);
            };
            let stays = !gone.contains(&view.name);
            let view = ExportView {
                leaving: known.leaving.clone(),
                ..view
            };
            match stays {
                true => (view, account.clone()),
                false => with_account(view),
            }
        };
        let all = views.into_iter().map(of).collect();
        *exports = all;
    }

    fn find(&self, name: &str) -> Option<(ExportView, Account)> {
        let exports = self.exports.borrow();
        exports.iter().find(|(view, _)| view.name == name).cloned()
    }

    /// With what was done for each export.
    fn counted(&self, mut snapshot: ServerSnapshot) -> ServerSnapshot {
        for (view, account) in &*self.exports.borrow() {
            let clients = snapshot.connections.iter();
            let theirs = clients.filter(|it| it.export.as_ref() == Some(&view.name));
            snapshot.exports.push(ExportSnapshot {
                name: view.name.clone(),
                connections: theirs.count() as u64,
                counts: account.counts(),
            });
        }
        snapshot
    }
}

impl Supply for Exports {
    fn open<'a>(&'a self, name: &'a str) -> Soon<'a, Result<Option<Supplied>, String>> {
        Box::pin(async move {
            let Some((view, account)) = self.find(name) else {
                return Ok(None);
            };
            let (end, owner) = link(CALLS);
            let gate = end.join();
            gate.fall_silent();
            // Without an owner the open below never ends, as is said above.
            drop(self.owner.post(owner));
            match gate.open(name).await {
                // It may have been taken away meanwhile.
                Ok(_) if self.find(name).is_none_or(|(_, it)| !it.is(&account)) => Ok(None),
                Ok(device) => Ok(Some(Supplied {
                    description: view.description,
                    device,
                    read_only: view.read_only,
                    account,
                    hold: Box::new(()),
                })),
                // The owner's own sentence.
                Err(DeviceError::Gone { why, .. }) => Err(why),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn list(&self) -> Soon<'_, Vec<(String, String)>> {
        let exports = self.exports.borrow();
        let names = exports.iter().map(|(view, _)| view.name.clone());
        let all = names.map(|name| (name, String::new())).collect();
        Box::pin(async { all })
    }

    fn default_export(&self) -> Option<String> {
        let exports = self.exports.borrow();
        exports.first().map(|(view, _)| view.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn no_two_gates_of_an_address_give_one_number() {
        let mut seen = Vec::new();
        for number in 0..3 {
            let numbers = Numbers { number, of: 3 };
            for id in 1..=4 {
                let of = ConnectionSnapshot {
                    id,
                    peer: String::new(),
                    export: None,
                    tls: false,
                    age: Nanos(0),
                    held_bytes: 0,
                    counts: front::nbd::Counters::default(),
                };
                seen.push(numbers.of_connection(of).id);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    }
}

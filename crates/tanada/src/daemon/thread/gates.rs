//! The gates of an NBD address, as the data thread has them: who gets the next client, and how do they all end?
//!
//! ```text
//! Listener -> accept -> the living gate with the fewest clients -> its mailbox
//! a gate's client names an export -> opened here, by the supply -> served over the gate's rings
//! ```
//!
//! Always true:
//! 1. A client is turned away by a full gate only where all are full.
//! 2. A gate that died takes no further client, and hides no other.

use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use device::Pending;
use device::remote::{Opened, link};
use env::net::{Address, Listener, Stream, accept_each};
use env::{Poster, Task};
use front::nbd::{Limits, ServerSnapshot, Tls};
use policy::poll::Setting;
use tokio::sync::oneshot;

use super::command::Reply;
use super::gate::{GateReport, Message, Setup, Shown, start};
use crate::api;
use crate::api::clients::{Gone, Which};

/// Calls of one gate under way at the data thread at once: those of some connections at full depth.
const DEPTH: usize = 1024;

/// The device of an export, for a client of a gate.
pub type Open = Rc<dyn Fn(&str) -> Pending<'static, Opened>>;

/// What an address with gates is to be.
pub struct GatesPlan {
    /// As the configuration has it.
    pub configured: Address,
    /// How many gates; at least one.
    pub count: usize,
    /// Of all gates together.
    pub limits: Limits,
    pub tls: Option<Tls>,
    pub poll: Setting,
    pub exports: Vec<Shown>,
    pub open: Open,
}

/// See the module's head.
pub struct Gates {
    pub configured: Address,
    /// The real one: port 0 asks for any.
    pub address: Address,
    gates: Rc<[OneGate]>,
    acceptor: Task<()>,
}

/// An address with gates at the moment of a report.
pub(super) struct AtGates {
    pub configured: Address,
    pub address: Address,
    pub snapshot: ServerSnapshot,
    pub threads: Vec<api::status::Thread>,
}

struct OneGate {
    poster: Poster<Message>,
    thread: JoinHandle<()>,
    /// Each client has a clone.
    places: Arc<()>,
}

impl OneGate {
    fn clients(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }
}

impl Gates {
    /// Lets clients in at `listener`'s address.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn open(listener: Listener, plan: GatesPlan) -> anyhow::Result<Gates> {
        let address = listener.address().clone();
        let limits = limits_of_one(plan.limits, plan.count);
        let mut gates = Vec::new();
        for number in 0..plan.count {
            let (end, owner) = link(DEPTH);
            let (poster, mailbox) = env::mailbox();
            let setup = Setup {
                number,
                of: plan.count,
                address: address.clone(),
                limits,
                tls: plan.tls.clone(),
                poll: plan.poll,
                exports: plan.exports.clone(),
                end,
            };
            let thread = start(setup, mailbox)
                .with_context(|| format!("cannot start gate {number} of {address}"))?;
            let open = Rc::clone(&plan.open);
            env::spawn(owner.serve(move |name| open(name)));
            gates.push(OneGate {
                poster,
                thread,
                places: Arc::new(()),
            });
        }
        let gates: Rc<[OneGate]> = gates.into();
        let to = Rc::clone(&gates);
        let acceptor = accept_each(
            listener,
            move |stream| assign(&to, stream),
            |listener, error| {
                tracing::warn!(%error, address = %listener.address(), "cannot accept");
            },
        );
        Ok(Gates {
            configured: plan.configured,
            address,
            gates,
            acceptor,
        })
    }

    /// Asks every living gate, and gathers what they answer.
    async fn ask<T>(&self, message: impl Fn(Reply<T>) -> Message) -> Vec<T> {
        let mut waiting = Vec::new();
        for gate in self.gates.iter() {
            let (reply, answer) = oneshot::channel();
            if gate.poster.post(message(reply)).is_ok() {
                waiting.push(answer);
            }
        }
        let mut answers = Vec::new();
        for answer in waiting {
            // One that died meanwhile hides no other.
            answers.extend(answer.await.ok());
        }
        answers
    }

    /// How the living gates are now.
    pub(super) async fn report(&self) -> AtGates {
        let reports = self.ask(Message::Report).await;
        AtGates {
            configured: self.configured.clone(),
            address: self.address.clone(),
            snapshot: joined(&reports),
            threads: reports.into_iter().map(|it| it.thread).collect(),
        }
    }

    /// Those that died, in words.
    pub fn dead(&self) -> Vec<String> {
        let gates = self.gates.iter().zip(0..);
        gates
            .filter(|(gate, _)| gate.thread.is_finished())
            .map(|(_, number)| format!("gate {number} of {}", self.address))
            .collect()
    }

    /// Ends connections at once; those that were.
    pub async fn disconnect(&self, which: &Which) -> Vec<Gone> {
        let asked = |reply| Message::Disconnect(which.clone(), reply);
        self.ask(asked).await.into_iter().flatten().collect()
    }

    /// Takes no further client, lets requests finish, and ends the gates. When this returns no device is used by them.
    pub async fn drain(&self) {
        self.acceptor.cancel();
        self.ask(Message::Stop).await;
    }
}

/// Gives a client to the gate that has the fewest.
fn assign(gates: &[OneGate], stream: Stream) {
    let of = gates.iter().map(|gate| {
        let is_alive = !gate.thread.is_finished();
        is_alive.then(|| gate.clients())
    });
    let Some(chosen) = fewest(of) else {
        tracing::error!(peer = stream.peer(), "turned away: every gate died");
        return;
    };
    let gate = &gates[chosen];
    match stream.detach() {
        Ok(client) => {
            let message = Message::Client(client, Arc::clone(&gate.places));
            // One that ends just now closes the connection, as it would have a moment later.
            drop(gate.poster.post(message));
        }
        Err(stream) => {
            tracing::warn!(peer = stream.peer(), "turned away: no descriptor is free");
        }
    }
}

/// Which of the living (`Some`: how many clients it has) has the fewest?
fn fewest(gates: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    let living = gates.enumerate();
    let living = living.filter_map(|(number, clients)| Some((clients?, number)));
    living.min().map(|(_, number)| number)
}

/// What each of `count` gates takes on, so that all together take on `limits`.
fn limits_of_one(limits: Limits, count: usize) -> Limits {
    let part = |bytes: base::Bytes| base::Bytes(bytes.0.div_ceil(count as u64));
    Limits {
        connections: limits.connections.div_ceil(count),
        connections_per_host: limits.connections_per_host.div_ceil(count),
        bytes: part(limits.bytes),
        bytes_per_host: part(limits.bytes_per_host),
        ..limits
    }
}

/// What several gates saw, as one server.
fn joined(reports: &[GateReport]) -> ServerSnapshot {
    let mut all = ServerSnapshot::default();
    for ServerSnapshot {
        exports,
        connections,
        accepted,
        turned_away,
        negotiations_failed,
        stalled,
        violations,
    } in reports.iter().map(|report| &report.snapshot)
    {
        all.exports.extend(exports.iter().cloned());
        all.connections.extend(connections.iter().cloned());
        all.accepted += accepted;
        all.turned_away += turned_away;
        all.negotiations_failed += negotiations_failed;
        all.stalled += stalled;
        all.violations += violations;
    }
    // The oldest first, as of one server.
    all.connections.sort_by_key(|of| std::cmp::Reverse(of.age));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_client_goes_where_the_fewest_are() {
        let to = |gates: &[Option<usize>]| fewest(gates.iter().copied());
        assert_eq!(to(&[Some(2), Some(1), Some(1)]), Some(1));
        assert_eq!(to(&[Some(0), Some(0)]), Some(0));
        assert_eq!(to(&[None, Some(9)]), Some(1));
        assert_eq!(to(&[None, None]), None);
    }

    #[test]
    fn gates_together_take_on_what_one_server_does() {
        let whole = Limits::default();
        for count in [1, 2, 3, 8, 64] {
            let one = limits_of_one(whole, count);
            assert!(one.connections * count >= whole.connections);
            assert!((one.connections - 1) * count < whole.connections);
            assert!(one.bytes.0 * count as u64 >= whole.bytes.0);
            assert_eq!(one.payload_max, whole.payload_max);
        }
    }
}

//! Tests of replica choice: case files, naive reference models, containment, the parts one by one, and a toy cluster in
//! virtual time.

mod baselines;
mod cases;
mod containment;
mod stronger;
mod toy;
mod twins;

use base::{Bytes, Instant, Nanos};

use super::*;

/// A read of `bytes` by `client` of a class.
fn read_of(client: u64, class: Class, bytes: u64) -> Request {
    Request {
        origin: Origin {
            client: ClientId(client),
            class,
        },
        op: Op::Read,
        bytes: Bytes(bytes),
        sequential: false,
        penalties: Penalties::NONE,
    }
}

/// A remote, rotating disk, the request at `byte`.
fn copy(disk: u32, byte: u64) -> Candidate {
    Candidate {
        disk: DiskId(disk),
        local: false,
        rotating: true,
        at: Some(At { object: 0, byte }),
    }
}

/// Each in a domain of its own, half full, nothing reserved.
fn target(disk: u32) -> Target {
    Target {
        candidate: Candidate {
            at: None,
            ..copy(disk, 0)
        },
        domain: DomainId(disk),
        free: Bytes::gib(50),
        capacity: Bytes::gib(100),
        reserved: Permille(0),
    }
}

fn sent(ticket: u64, disk: u32, request: Request) -> Sent {
    Sent {
        ticket: Ticket(ticket),
        candidate: copy(disk, 0),
        request,
        hedge: false,
    }
}

/// A disk with so much to do at a moment.
fn busy(at: u64, millis: u64) -> State {
    State {
        at: Instant(at),
        cost: Nanos::millis(millis),
        work: Nanos::millis(millis),
        ..State::idle(Weights::default())
    }
}

fn reply(millis: u64, state: Option<State>) -> Reply {
    Reply {
        residence: Nanos::millis(millis),
        service: Nanos::millis(millis),
        state,
    }
}

/// A moment so many milliseconds from the beginning.
fn ms(millis: u64) -> Instant {
    Instant(0) + Nanos::millis(millis)
}

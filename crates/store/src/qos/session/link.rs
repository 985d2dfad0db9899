//! A session's part of the node's link: which of its data cross by what is promised, which as best effort?
//!
//! ```text
//! promised reads: out by the rate, in as best effort | promised writes: the other way round | else both as best effort
//! ```
//!
//! Always true: without a `[network]` nothing waits.

use std::cell::RefCell;

use device::Class;
use policy::share::{Account, Direction, OpenError as Full, Priority, Terms};

use super::rights::Granted;
use crate::qos::network::{LinkFlow, Network};

/// Flows out and in.
#[derive(Default)]
pub(super) struct LinkFlows([RefCell<Option<LinkFlow>>; 2]);

impl LinkFlows {
    /// Takes flows with what is promised now. Best effort that finds none shares one.
    ///
    /// # Errors
    /// [`Full`] if a promise finds none.
    pub fn open(
        &self,
        network: &Network,
        (account, priority): (Account, Priority),
        promised: Option<&Granted>,
    ) -> Result<(), Full> {
        for (place, direction) in self.0.iter().zip(Direction::ALL) {
            // The one it had goes first: there are so many, and no more.
            place.take();
            let promised = promised.filter(|it| it.direction == direction);
            let terms = match promised {
                // What crosses is a write to the wire, whichever way.
                Some(granted) => Terms {
                    account,
                    direction: Direction::Write,
                    ..granted.terms()
                },
                None => Terms {
                    account,
                    priority,
                    ..Terms::best_effort()
                },
            };
            let queue = network.queue(direction);
            let flow = match promised {
                Some(granted) => {
                    let flow = LinkFlow::open(queue, terms);
                    let number = granted.reservation.0;
                    let full = |error: &Full| tracing::warn!(reservation = number, %error, "a promise finds no flow at the link");
                    Some(flow.inspect_err(full)?)
                }
                None if network.has_best_effort(direction) => LinkFlow::open(queue, terms).ok(),
                None => None,
            };
            *place.borrow_mut() = flow;
        }
        Ok(())
    }

    /// Whose what crosses is.
    pub fn class(&self, direction: Direction) -> Class {
        let flow = self.0[direction as usize].borrow();
        flow.as_ref().map_or(Class::Foreground, LinkFlow::class)
    }
}

//! The hand-over: how one thread gives work to another, without locks, bounded, and the same in virtual time.
//!
//! ```text
//! thread a: send -> ring (one producer, one consumer) -> receive: thread b
//!           wakes are kept until the turn of the executor ends: at most one a turn for each ring
//! virtual:  the same ring within one executor; each item waits a delay drawn from the seed before it is seen
//! ```
//!
//! A full ring makes `send` wait. [`mailbox`](crate::mailbox) is for commands, which are few and have many posters.
//!
//! Always true:
//! 1. Items come out once, in the order they were sent.
//! 2. What is sent to a consumer that is gone comes back; a consumer sees the end once all that was sent is taken.
//! 3. What is in the ring when the consumer goes is dropped, with either end.

mod atomics;
mod ring;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use base::{Instant, Nanos};

use crate::executor::wake_at_turn_end;
use crate::sync::Closed;
use crate::{Rng, Sleep};

pub use ring::Refused;

use ring::{Found, In, Out};

/// Virtual time: no item is under way longer.
const DELAY_MAX: Nanos = Nanos::micros(20);

/// When the consumer may see what is sent now.
enum Delay {
    /// Not known before the first item: the ends are made where no runtime runs.
    Unknown,
    /// Real time: at once.
    None,
    /// Virtual time: drawn from the seed; not before the item sent last.
    Drawn { rng: Rng, last: Instant },
}

impl Delay {
    fn due(&mut self) -> Instant {
        if let Delay::Unknown = self {
            *self = match crate::executor::try_current(|core| core.is_simulated()) {
                Some(true) => Delay::Drawn {
                    rng: crate::rng("handover"),
                    last: Instant(0),
                },
                _ => Delay::None,
            };
        }
        match self {
            Delay::Drawn { rng, last } => {
                let delay = match rng.chance(0.5) {
                    true => Nanos(rng.below(DELAY_MAX.0)),
                    false => Nanos(0),
                };
                *last = (*last).max(crate::true_now() + delay);
                *last
            }
            Delay::Unknown | Delay::None => Instant(0),
        }
    }
}

/// An item, and when the consumer may see it.
struct Sent<T> {
    due: Instant,
    item: T,
}

/// The end that sends. It may move to the thread that uses it.
pub struct Producer<T: Send> {
    into: In<Sent<T>>,
    delay: Delay,
}

/// The end that receives. It may move to the thread that uses it.
pub struct Consumer<T: Send> {
    out: Out<Sent<T>>,
    /// Taken out of the ring before it is due: virtual time only.
    early: Option<(Sent<T>, Sleep)>,
}

/// A hand-over from one thread to another, or from one task to another in virtual time, for `capacity` items (rounded up to a
/// power of two).
///
/// # Example
/// ```
/// let (mut producer, mut consumer) = env::handover(8);
/// let thread = std::thread::Builder::new().spawn(move || {
///     let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
///     runtime.block_on(async move { producer.send(7).await.unwrap() });
/// })?;
/// let runtime = env::Runtime::real(env::RealConfig::default())?;
/// assert_eq!(runtime.block_on(async move { consumer.receive().await }), Ok(7));
/// # thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn handover<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let (into, out) = ring::ring(capacity);
    let producer = Producer {
        into,
        delay: Delay::Unknown,
    };
    (producer, Consumer { out, early: None })
}

impl<T: Send> Producer<T> {
    /// Sends `item`, if there is room for it now.
    ///
    /// # Errors
    /// With the item: the ring is full, or the consumer is gone.
    pub fn try_send(&mut self, item: T) -> Result<(), Refused<T>> {
        let due = self.delay.due();
        match self.into.push(Sent { due, item }) {
            Ok(waker) => {
                if let Some(waker) = waker {
                    wake_at_turn_end(waker);
                }
                Ok(())
            }
            Err(Refused::Full(sent)) => Err(Refused::Full(sent.item)),
            Err(Refused::Closed(sent)) => Err(Refused::Closed(sent.item)),
        }
    }

    /// Sends `item`, waiting for room. Dropping the future drops the item, unless it was sent.
    ///
    /// # Errors
    /// With the item: the consumer is gone.
    pub async fn send(&mut self, item: T) -> Result<(), T> {
        let mut item = item;
        loop {
            match self.try_send(item) {
                Ok(()) => return Ok(()),
                Err(Refused::Closed(back)) => return Err(back),
                Err(Refused::Full(back)) => item = back,
            }
            // Waits once; what it finds then is looked at above.
            let mut waited = false;
            poll_fn(|cx| {
                if waited || !self.into.wait_for_room(cx.waker()) {
                    return Poll::Ready(());
                }
                waited = true;
                Poll::Pending
            })
            .await;
        }
    }
}

impl<T: Send> Drop for Producer<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.into.close() {
            wake_at_turn_end(waker);
        }
    }
}

impl<T: Send> Consumer<T> {
    /// The next item; [`Closed`] once the producer is gone and nothing is left. Dropping the future loses no item.
    pub async fn receive(&mut self) -> Result<T, Closed> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        loop {
            if let Some((_, sleep)) = &mut self.early {
                if Pin::new(sleep).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let (sent, _) = self.early.take().expect("looked at just now");
                return Poll::Ready(Ok(sent.item));
            }
            let (found, waker) = self.out.pop();
            if let Some(waker) = waker {
                wake_at_turn_end(waker);
            }
            match found {
                Found::Item(sent) if sent.due == Instant(0) => return Poll::Ready(Ok(sent.item)),
                Found::Item(sent) => {
                    let sleep = crate::time::sleep_until_truly(sent.due);
                    self.early = Some((sent, sleep));
                }
                Found::Closed => return Poll::Ready(Err(Closed)),
                Found::Nothing if self.out.wait_for_item(cx.waker()) => return Poll::Pending,
                Found::Nothing => {}
            }
        }
    }
}

impl<T: Send> Drop for Consumer<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.out.close() {
            wake_at_turn_end(waker);
        }
        // What is left goes now, not with the other end: it may hold what others wait for.
        while let (Found::Item(item), _) = self.out.pop() {
            drop(item);
        }
    }
}

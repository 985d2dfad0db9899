//! Time: sleeping, deadlines, and the virtual clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use base::{Instant, Nanos};

use crate::executor::{TimerId, now, try_current, with_current};

/// Waits for a moment; see [`sleep_until`].
pub struct Sleep {
    /// By the clock of the host that waits.
    deadline: Instant,
    /// When that is; known from the first poll on.
    due: Option<Instant>,
    /// The executor and its timer, while one waits.
    timer: Option<(u16, TimerId)>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_current(|core| {
            let deadline = self.deadline;
            let due = *self.due.get_or_insert_with(|| core.true_moment(deadline));
            if core.true_now() >= due {
                if core.is_simulated() {
                    // All timers due come before any task runs. In real time a poll may overtake the
                    // timer, which then goes with the drop.
                    self.timer = None;
                }
                return Poll::Ready(());
            }
            match self.timer {
                None => self.timer = Some((core.id(), core.at(due, cx.waker()))),
                Some((_, timer)) => core.rewaken(timer, cx.waker()),
            }
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((executor, timer)) = self.timer {
            try_current(|core| {
                if core.id() == executor {
                    core.forget(timer);
                }
            });
        }
    }
}

/// Waits until `deadline`; at once if it has passed.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        due: None,
        timer: None,
    }
}

/// Waits until `moment`, whatever the clock of this host shows.
pub(crate) fn sleep_until_truly(moment: Instant) -> Sleep {
    Sleep {
        deadline: moment,
        due: Some(moment),
        timer: None,
    }
}

/// Waits for `span`.
pub fn sleep(span: Nanos) -> Sleep {
    sleep_until(now() + span)
}

/// The time given to [`timeout`] ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0}")]
pub struct Elapsed(pub Nanos);

/// Waits for `future`, but no longer than `span`; then drops it.
pub async fn timeout<T>(span: Nanos, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = std::pin::pin!(future);
    let mut sleep = std::pin::pin!(sleep(span));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        sleep.as_mut().poll(cx).map(|()| Err(Elapsed(span)))
    })
    .await
}

/// Seconds since 1970, for logs, file names, certificates and tokens; never for decisions of a device or a store. In virtual
/// time it is 2000-01-01 plus the virtual clock. A thread without a runtime may ask, too.
pub fn wall_clock() -> Nanos {
    if crate::executor::try_current(|core| core.is_simulated()) == Some(true) {
        let ahead = with_current(|core| core.ahead());
        return Nanos(Nanos::secs(946_684_800).0 + now().0 + ahead.wall.0);
    }
    #[allow(clippy::disallowed_methods)] // This is the one place that may ask.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Nanos(since.map_or(0, |span| span.as_nanos() as u64))
}

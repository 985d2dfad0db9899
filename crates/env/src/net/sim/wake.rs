//! How does a task of the simulated network wait for another?

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, Waker};

use base::Instant;

use crate::time::{Sleep, sleep_until_truly};

pub(super) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// Waits until `place`, which this fills with a waker, is emptied by a wake, or until the moment.
pub(super) async fn wait_for_wake(
    place: impl Fn(&mut dyn FnMut(&mut Option<Waker>)),
    until: Option<Instant>,
) {
    let mut sleep: Option<Sleep> = until.map(sleep_until_truly);
    let mut asked = false;
    poll_fn(|cx| {
        let mut woken = false;
        place(&mut |waker| {
            woken = asked && waker.is_none();
            *waker = Some(cx.waker().clone());
        });
        asked = true;
        let late = sleep
            .as_mut()
            .is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
        match woken || late {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

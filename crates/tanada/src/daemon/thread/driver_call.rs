//! Calls of a driver that may take as long as they like, each on a thread of its own.
//!
//! ```text
//! work -> thread: the driver answers                   -> this thread goes on
//!                 not within a minute -> a warning, and again every minute
//! ```
//!
//! A call is never given up: the driver may still carry it out, and another one beside it would find half of it done.

use std::pin::pin;

use anyhow::anyhow;
use base::Nanos;

/// After so long without an answer the log says so.
const SILENCE: Nanos = Nanos::secs(60);

/// Runs `work`, which waits for the ublk driver, on a thread of its own.
///
/// # Errors
/// Those of `work`.
pub async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (poster, mut mailbox) = env::mailbox();
    let thread = std::thread::Builder::new().name("tanada-ublk".into());
    let thread = thread.spawn(move || {
        // A reader that went away misses nothing.
        let _ = poster.post(work());
    })?;
    let mut silent = Nanos(0);
    let warn = || {
        silent = Nanos(silent.0 + SILENCE.0);
        tracing::warn!(
            %silent,
            "the ublk driver has not answered yet; waiting on. If it stays silent, a request that no server answers holds \
             it up: `dmesg` names the tasks that hang, and only a restart of the machine frees them"
        );
    };
    let answer = with_warnings(mailbox.receive(), warn).await;
    // It has posted, or it panicked.
    let _ = thread.join();
    answer
        .map_err(|_| anyhow!("the thread that speaks to the ublk driver ended without an answer"))?
}

/// Waits for `answer`, and calls `warn` after each [`SILENCE`] that it takes.
async fn with_warnings<T>(answer: impl Future<Output = T>, mut warn: impl FnMut()) -> T {
    let mut answer = pin!(answer);
    loop {
        match env::timeout(SILENCE, answer.as_mut()).await {
            Ok(answer) => return answer,
            Err(_) => warn(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_of_silence_is_warned_of_and_the_answer_still_counts() {
        for (seconds, warnings) in [(59, 0), (61, 1), (301, 5)] {
            let runtime = env::Runtime::simulated(1);
            let counted = runtime.block_on(async move {
                let mut counted = 0;
                let answer = async {
                    env::sleep(Nanos::secs(seconds)).await;
                    seconds
                };
                assert_eq!(with_warnings(answer, || counted += 1).await, seconds);
                counted
            });
            assert_eq!(counted, warnings, "{seconds} s");
        }
    }
}

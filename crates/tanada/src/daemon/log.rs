//! The daemon's log: lines to standard error for which no thread waits.
//!
//! ```text
//! any thread -> line -> bounded queue -> a thread of its own -> standard error
//!                          | full: the line is lost, and counted
//! ```
//!
//! Standard error may be a pipe whose reader is slow or stands still. A data thread that wrote to it by itself would
//! stand still as well, with all its clients.
//!
//! Always true: no line makes the thread that says it wait.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that wait for their reader at most: some megabytes.
const LINES_MAX: usize = 16_384;
/// Between two looks at what was lost.
const LOOK: Duration = Duration::from_secs(1);

/// Writes out what is still in the queue when dropped.
static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

#[derive(Clone, Copy, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Lines that were dropped.
pub struct Lost(ErrorCounter);

/// Begins the log; once in a process.
pub fn start(format: LogFormat) -> Lost {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let (lines, writer) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .lossy(true)
        .thread_name("log")
        .finish(io::stderr());
    let lost = Lost(lines.error_counter());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(lines);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
    *WRITER.lock().expect("no code panics while it holds this") = Some(writer);
    log_panics();
    lost
}

/// Makes every panic a line of the log: on which thread, where, and what it said.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map(ToString::to_string);
        let said = env::Panicked::of(panic.payload()).0;
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(
            thread = thread.name().unwrap_or("?"),
            place = place.unwrap_or_default(),
            said,
            "a defect of this program, which ends what it belongs to; please report it\n{backtrace}"
        );
    }));
}

/// Writes out what is left, for a second at most; what is said later is lost.
pub fn end() {
    let writer = WRITER.lock();
    let writer = writer.expect("no code panics while it holds this").take();
    drop(writer);
}

impl Lost {
    /// Says, when lines are read again, that some are missing.
    pub async fn report(self) {
        let mut reported = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let lost = self.0.dropped_lines();
            if lost > reported {
                tracing::warn!(
                    lines = lost - reported,
                    "lines of this log are lost: they came faster than they were read"
                );
                // Were this one lost as well, it counts from here on.
                reported = lost;
            }
        }
    }
}

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

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use config::LogLevel;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

/// Lines that wait for their reader at most: some megabytes.
const LINES_MAX: usize = 16_384;
/// Between two looks at what was lost.
const LOOK: Duration = Duration::from_secs(1);

/// Writes out what is still in the queue when dropped.
static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Lines that were dropped.
#[derive(Clone)]
pub struct Lost(ErrorCounter);

/// Has the log say more or less, where the environment does not say how much.
static LEVEL: OnceLock<SetFilter> = OnceLock::new();
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// Begins the log; once in a process. `RUST_LOG` stands before `level`.
pub fn start(format: LogFormat, level: LogLevel) -> Lost {
    let said = EnvFilter::try_from_default_env().ok();
    let is_said = said.is_some();
    let filter = said.unwrap_or_else(|| filter_of(level));
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
    // Each form is a type of its own.
    let set_filter: SetFilter = match format {
        LogFormat::Text if is_journal() => {
            let log = log.event_format(ForJournal::new()).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Text => {
            let log = log.with_target(false).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let log = log.json().with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |filter| handle.reload(filter))
        }
    };
    if !is_said {
        // It is begun once.
        let _ = LEVEL.set(set_filter);
    }
    *WRITER.lock().expect("no code panics while it holds this") = Some(writer);
    log_panics();
    lost
}

/// What goes into the log at this level. The library that speaks S3 calls each request that it refuses an error.
fn filter_of(level: LogLevel) -> EnvFilter {
    EnvFilter::new(format!("{},s3s=off", level.name()))
}

/// From now on the log says so much, unless `RUST_LOG` says how much.
pub fn set_level(level: LogLevel) {
    if let Some(set) = LEVEL.get()
        && let Err(error) = set(filter_of(level))
    {
        tracing::error!(%error, "the log goes on as before");
    }
}

/// Does systemd's journal read standard error? It says which file that is.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let Ok(stat) = rustix::fs::fstat(io::stderr()) else {
        return false;
    };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// Lines with a priority before them and without a time: the journal reads the one and adds the other.
struct ForJournal(Format<Full, ()>);

impl ForJournal {
    fn new() -> ForJournal {
        let format = tracing_subscriber::fmt::format().without_time();
        ForJournal(format.with_target(false).with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
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
    /// How many, since the start.
    pub fn lines(&self) -> u64 {
        self.0.dropped_lines() as u64
    }

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

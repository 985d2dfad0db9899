//! The trace of a volume: what begins, bounds and ends its recording.
//!
//! ```text
//! configuration -> begin                                      \
//! change -> check: parsed, and the file made, not yet attached -> record -> stop, or another recorder
//! ```
//!
//! Always true: a volume has one recording at most, and serves whether it has one or not.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Bytes, Nanos};
use config::check_name;
use report::terminal::said;
use trace::record::{RecordError, Recorder, Recording, check_max};
use trace::tap::{Attached, Observer, Tap};

use super::refused::{Refused, cannot_set, failed};
use crate::api::refusal::Refusal;
use crate::api::volume::Change;

/// How often a recorder gets the time.
const TICK: Nanos = Nanos::secs(1);
/// How long the end of a recording waits for its file.
const TRACE_TIMEOUT: Nanos = Nanos::secs(5);
/// Where traces lie that a command began, in the data directory.
const TRACES: &str = "traces";

/// What a change says of the trace.
pub(super) enum Wanted {
    /// Nothing: what is recorded goes on.
    Same,
    /// No recording.
    Off,
    /// This one, begun and not attached yet.
    New(Recorder),
}

/// The recordings of one volume.
pub(super) struct Traces {
    volume: String,
    data_dir: PathBuf,
    tap: Rc<Tap>,
    recorder: RefCell<Option<(Attached, Rc<RefCell<Recorder>>)>>,
    /// Why the configuration's recording could not begin.
    not_begun: RefCell<Option<Recording>>,
    max: Cell<Bytes>,
}

impl Traces {
    /// None yet. Recorders look on at `tap`; a file has at most `max`.
    pub fn new(volume: &str, data_dir: &Path, tap: &Rc<Tap>, max: Bytes) -> Traces {
        Traces {
            volume: volume.to_owned(),
            data_dir: data_dir.to_owned(),
            tap: Rc::clone(tap),
            recorder: RefCell::new(None),
            not_begun: RefCell::new(None),
            max: Cell::new(max),
        }
    }

    /// Begins the recording the configuration asks for. A disk is worth more than its trace: if that
    /// fails, the volume serves all the same, and says why nothing is recorded.
    pub async fn begin(&self, file: &Path) {
        let max = self.max.get();
        // Only without a working directory a path stays relative.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match Recorder::open(&file, max).await {
            Ok(recorder) => self.record(recorder),
            Err(error) => {
                let why = said::words_of(&error);
                tracing::error!(volume = self.volume, "no trace is recorded: {why}");
                *self.not_begun.borrow_mut() = Some(Recording {
                    file,
                    max,
                    written: 0,
                    dropped: 0,
                    bytes: Bytes(0),
                    failed: Some(why),
                });
            }
        }
    }

    /// From now on the recorder sees every request.
    fn record(&self, recorder: Recorder) {
        tracing::info!(volume = self.volume, file = %recorder.status().file.display(), "recording a trace");
        let recorder = Rc::new(RefCell::new(recorder));
        // Idle, a recorder hears of the time from this task, which ends with the recording.
        let ticked = Rc::downgrade(&recorder);
        drop(env::spawn(async move {
            loop {
                env::sleep(TICK).await;
                let Some(recorder) = ticked.upgrade() else {
                    return;
                };
                recorder.borrow_mut().tick(env::now());
            }
        }));
        let observer = Rc::clone(&recorder) as Rc<RefCell<dyn Observer>>;
        let attached = self.tap.attach(observer);
        *self.not_begun.borrow_mut() = None;
        *self.recorder.borrow_mut() = Some((attached, recorder));
    }

    /// Ends the recording, if there is one.
    pub async fn stop(&self) {
        *self.not_begun.borrow_mut() = None;
        let Some((attached, recorder)) = self.recorder.borrow_mut().take() else {
            return;
        };
        self.tap.detach(attached);
        // The ticking task and a report hold it for a moment only, never while another task runs.
        if let Some(recorder) = Rc::into_inner(recorder) {
            let done = recorder.into_inner().finish(TRACE_TIMEOUT).await;
            tracing::info!(
                volume = self.volume,
                file = %done.file.display(),
                requests = done.written,
                dropped = done.dropped,
                "the trace is recorded"
            );
        }
    }

    /// The recording, or why there is none although one was asked for.
    pub fn status(&self) -> Option<Recording> {
        let recorder = self.recorder.borrow();
        match &*recorder {
            Some((_, recorder)) => Some(recorder.borrow().status()),
            None => self.not_begun.borrow().clone(),
        }
    }

    /// What a change says of the trace, checked.
    pub async fn check(&self, change: &Change) -> Result<Wanted, Refused> {
        let invalid = |key: &str, what: String| cannot_set(key, &self.volume, &what);
        let max = match &change.trace_max {
            None => self.max.get(),
            Some(text) => {
                let max = text
                    .parse::<Bytes>()
                    .map_err(|error| invalid("trace_max", error.to_string()))?;
                check_max(max).map_err(|error| invalid("trace_max", error.to_string()))?;
                max
            }
        };
        let file = match change.trace.as_deref() {
            None => return Ok(Wanted::Same),
            Some("off") => return Ok(Wanted::Off),
            Some(file) => file,
        };
        let path = self.path(file).map_err(|why| invalid("trace", why))?;
        let path = path.as_path();
        let why = |error: RecordError| said::words_of(&error);
        // The same file again: the old recording has to leave it first, and does so only if
        // nothing stands in the way of a new one.
        let same = |recording: Recording| recording.file == path;
        let restart = self.status().is_some_and(same);
        if restart {
            let checked = Recorder::check(path, max).await;
            checked.map_err(|error| invalid("trace", why(error)))?;
            self.stop().await;
        }
        let opened = Recorder::open(path, max).await;
        let recorder = opened.map_err(|error| match restart {
            false => invalid("trace", why(error)),
            true => Refused::Failed(Refusal {
                error: format!(
                    "cannot begin the trace of {} anew: {}",
                    self.volume,
                    why(error)
                ),
                what_to_do: "the recording so far has ended and its files are kept; \
                             nothing else was changed"
                    .into(),
            }),
        })?;
        Ok(Wanted::New(recorder))
    }

    /// Where a trace of this name goes: a command names a file of [`TRACES`], never a path.
    fn path(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.data_dir.join(TRACES);
        // Only without a working directory a path stays relative.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        if let Err(why) = check_name(name) {
            let configured =
                "a path of your own goes into the configuration, as trace of the [[hybrid]]";
            let lies = format!("a trace that a command begins is in {}", folder.display());
            return Err(format!(
                "{why}; {lies}, so write such as trace=vol0.csv; {configured}"
            ));
        }
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
        Ok(folder.join(name))
    }

    /// Makes a change that was checked.
    pub async fn change(&self, change: &Change, wanted: Wanted) -> Result<(), Refused> {
        if let Some(max) = change.trace_max.as_deref().and_then(|max| max.parse().ok()) {
            self.max.set(max);
            // A recording that another one replaces keeps its files.
            if matches!(wanted, Wanted::Same)
                && let Some((_, recorder)) = &*self.recorder.borrow()
            {
                let set = recorder.borrow().set_max(max);
                set.map_err(|error| failed(error.to_string()))?;
            }
        }
        match wanted {
            Wanted::Same => {}
            Wanted::Off => self.stop().await,
            Wanted::New(recorder) => {
                self.stop().await;
                self.record(recorder);
            }
        }
        Ok(())
    }
}

//! Long work of a daemon: which jobs run, how far each is, and how those ended that are over.
//!
//! ```text
//! a request begins work -> Registry::begin | claim ----\
//! status, cluster       -> sight: what is seen of work -> Registry::observe -> Job -> /v1/jobs
//! its answer comes      -> Registry::end --------------/
//! ```
//!
//! Pure but for the lock of `shared`: no clock, no thread, no socket; `http::jobs` looks and carries out.
//!
//! ```text
//! running -> done        observe (it is seen to have ended), end
//! running -> failed      observe, end
//! running -> cancelled   observe, after cancel, or where what it is about is there no longer
//! ```
//!
//! Always true:
//! 1. At most one job of a kind runs on a thing.
//! 2. How far a job is was said by the engine that does it; of what an engine says nothing, the job stays as it was.
//! 3. Of jobs that ended, the last [`ENDED_MAX`] are kept, for [`ENDED_SECONDS`].

pub mod shared;
pub mod sight;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use sight::{Look, Now, Sighting};

/// So many jobs that ended are listed at most.
pub const ENDED_MAX: usize = 100;
/// And each for a day.
pub const ENDED_SECONDS: f64 = 24.0 * 3600.0;
/// What no request began and was over sooner is not kept: a resync after each short silence of a store would push out all else.
const WORTH_SECONDS: f64 = 10.0;

/// What kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Scrub,
    Calibrate,
    Drain,
    Detach,
    Evacuate,
    Repair,
    Resync,
}

/// What a piece of work is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    Store,
    Volume,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Scrub => "scrub",
            Kind::Calibrate => "calibrate",
            Kind::Drain => "drain",
            Kind::Detach => "detach",
            Kind::Evacuate => "evacuate",
            Kind::Repair => "repair",
            Kind::Resync => "resync",
        }
    }

    pub fn thing(self) -> Thing {
        match self {
            Kind::Scrub | Kind::Calibrate | Kind::Drain => Thing::Store,
            Kind::Detach | Kind::Evacuate | Kind::Repair | Kind::Resync => Thing::Volume,
        }
    }

    /// In what its progress is counted.
    pub fn unit(self) -> &'static str {
        match self {
            Kind::Calibrate => "percent",
            Kind::Drain => "volumes",
            _ => "bytes",
        }
    }

    /// Does it end with the answer to the request that began it? Else it is seen to run, whatever began it.
    pub fn is_answered(self) -> bool {
        matches!(self, Kind::Detach | Kind::Repair)
    }

    /// Why it cannot be cancelled, and what to do; `None`: it can.
    pub fn why_not_cancelled(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Scrub | Kind::Drain => None,
            Kind::Calibrate => Some((
                "what was measured by halves says nothing of the device",
                "let it end; without --full it takes a quarter of an hour",
            )),
            Kind::Detach => Some((
                "dirty data are being written to the slow device, and a detach has no half",
                "let it end; `tanada volume attach` gives the volume a fast device again",
            )),
            Kind::Evacuate => Some((
                "the fast device fails, and its dirty data leave while they can be read",
                "let it end; `tanada health show` tells what to do about the device",
            )),
            Kind::Repair => Some((
                "it waits for copies that are made anyway",
                "let it end; --timeout of `tanada volume repair` is how long it waits",
            )),
            Kind::Resync => Some((
                "copies that miss writes have to get them",
                "let it end; it goes on while clients use the volume",
            )),
        }
    }
}

/// Work on one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub kind: Kind,
    /// The name of the store or volume.
    pub name: String,
}

impl Work {
    pub fn new(kind: Kind, name: impl Into<String>) -> Work {
        let name = name.into();
        Work { kind, name }
    }
}

/// How a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    Done,
    Failed,
    Cancelled,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }
}

/// How far work is, in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    /// So much of all is done.
    Of { done: u64, total: u64 },
    /// So much is left; what was there to do is the most that ever was.
    Left(u64),
}

/// One piece of long work.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Counted from 1 since the daemon began.
    pub id: u64,
    pub work: Work,
    /// Who asked for it; `None`: it began by itself, or before the daemon did.
    pub by: Option<String>,
    /// In seconds since 1970, as all moments here.
    pub begun: f64,
    pub ended: Option<f64>,
    pub state: State,
    pub done: u64,
    pub total: u64,
    /// How far it was when it was seen first, and when: what time is left goes by what was done since.
    first: Option<(u64, f64)>,
    /// What it does, or how it ended.
    pub words: String,
    /// It was told to stop.
    pub cancelling: bool,
    /// What it answered.
    pub result: Option<serde_json::Value>,
}

impl Job {
    fn new(id: u64, work: Work, by: Option<String>, now: f64) -> Job {
        Job {
            id,
            work,
            by,
            begun: now,
            ended: None,
            state: State::Running,
            done: 0,
            total: 0,
            first: None,
            words: String::new(),
            cancelling: false,
            result: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// How long it may still take, if it goes on as it went since it was seen first.
    pub fn left_seconds(&self, now: f64) -> Option<f64> {
        let (first, at) = self.first?;
        let (done, spent) = (self.done.checked_sub(first)?, now - at);
        let is_known = self.is_running() && done > 0 && spent > 0.0;
        let left = self.total.saturating_sub(self.done) as f64;
        is_known.then(|| left * spent / done as f64)
    }

    fn progress(&mut self, progress: Progress, now: f64) {
        (self.done, self.total) = match progress {
            Progress::Of { done, total } => (done, total.max(done)),
            Progress::Left(left) => {
                let total = self.total.max(left);
                (total - left, total)
            }
        };
        self.first.get_or_insert((self.done, now));
    }

    fn end(&mut self, state: State, words: String, now: f64) {
        // What failed before it was stopped has failed.
        let stopped = self.cancelling && !self.work.kind.is_answered() && state != State::Failed;
        self.state = if stopped { State::Cancelled } else { state };
        self.ended = Some(now);
        self.words = match stopped {
            true => "it was cancelled".to_owned(),
            false => words,
        };
        if self.state == State::Done {
            self.done = self.total;
        }
    }

    fn is_kept(&self, now: f64) -> bool {
        let ended = self.ended.unwrap_or(now);
        let was_asked = self.by.is_some();
        now - ended < ENDED_SECONDS && (was_asked || ended - self.begun >= WORTH_SECONDS)
    }
}

/// All jobs of a daemon.
#[derive(Debug, Default)]
pub struct Registry {
    count: u64,
    running: Vec<Job>,
    /// The newest last.
    ended: VecDeque<Job>,
}

impl Registry {
    /// Those that run and then those that ended, the newest first.
    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.running.iter().rev().chain(self.ended.iter().rev())
    }

    pub fn get(&self, id: u64) -> Option<&Job> {
        self.all().find(|job| job.id == id)
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// The job that does this work now.
    pub fn running(&self, work: &Work) -> Option<&Job> {
        self.running.iter().find(|job| job.work == *work)
    }

    /// Work was begun that `by` asked for; its number. Where a job does it already, it is that one.
    pub fn begin(&mut self, work: Work, by: String, now: f64) -> u64 {
        match self.running.iter_mut().find(|job| job.work == work) {
            Some(job) => {
                job.by.get_or_insert(by);
                job.id
            }
            None => self.enter(work, Some(by), now),
        }
    }

    /// Work is to begin that `by` asks for, and that none may do beside it; its number.
    ///
    /// # Errors
    /// The number of the job that does it.
    pub fn claim(&mut self, work: Work, by: String, now: f64) -> Result<u64, u64> {
        match self.running(&work) {
            Some(job) => Err(job.id),
            None => Ok(self.enter(work, Some(by), now)),
        }
    }

    fn enter(&mut self, work: Work, by: Option<String>, now: f64) -> u64 {
        self.count += 1;
        self.running.push(Job::new(self.count, work, by, now));
        self.count
    }

    /// It was refused before anything was begun: there is no such job.
    pub fn withdraw(&mut self, id: u64) {
        self.running.retain(|job| job.id != id);
        self.ended.retain(|job| job.id != id);
    }

    /// It is told to stop; it runs until it is seen to have stopped.
    pub fn cancel(&mut self, id: u64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.id == id) {
            job.cancelling = true;
            job.words = "it is being cancelled".to_owned();
        }
    }

    /// The answer to what began it has come.
    pub fn end(&mut self, id: u64, answer: Result<serde_json::Value, String>, now: f64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.id == id) {
            match answer {
                Ok(result) => {
                    job.end(State::Done, String::new(), now);
                    job.result = Some(result);
                }
                Err(why) => job.end(State::Failed, why, now),
            }
        }
        self.sweep(now);
    }

    /// Brings all jobs up to what was seen of their work.
    pub fn observe(&mut self, look: Look, now: f64) {
        for job in &mut self.running {
            let is_there = look.seen.iter().any(|seen| seen.work == job.work);
            if !is_there && look.whole.contains(&job.work.kind) {
                job.end(
                    State::Cancelled,
                    format!("{} is not here any more", job.work.name),
                    now,
                );
            }
        }
        for seen in look.seen {
            self.see(seen, now);
        }
        self.sweep(now);
    }

    fn see(&mut self, seen: Sighting, now: f64) {
        let is_it = |job: &Job| job.is_running() && job.work == seen.work;
        let known = self.running.iter().position(is_it);
        let (progress, words) = match seen.now {
            Now::Running(progress, words) => (progress, words),
            Now::Ended(state, words) => {
                if let Some(at) = known.filter(|_| !seen.work.kind.is_answered()) {
                    self.running[at].end(state, words, now);
                }
                return;
            }
        };
        let at = known.unwrap_or(self.running.len());
        if known.is_none() {
            // What ends with an answer began with a request: it is entered there.
            if seen.work.kind.is_answered() {
                return;
            }
            self.enter(seen.work, None, now);
        }
        let job = &mut self.running[at];
        job.progress(progress, now);
        if !job.cancelling {
            job.words = words;
        }
    }

    /// What ended goes to the others, and what is old goes.
    fn sweep(&mut self, now: f64) {
        let ended = self.running.extract_if(.., |job| !job.is_running());
        self.ended.extend(ended);
        self.ended.retain(|job| job.is_kept(now));
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }
}

//! The thread that changes an index: all that waits becomes durable together.
//!
//! ```text
//! jobs that wait, at most 256 -> one transaction -> each decides and writes -> commit -> each is answered
//! ```
//!
//! Always true:
//! 1. A job is answered well only when what it wrote is durable.
//! 2. After a commit that failed nothing is taken any more: what is on the disk is not known until it is opened again.
//! 3. A job that meets a damaged record spoils what waits with it, and nothing else: none of it is committed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use redb::Database;

use super::error::IndexError;
use super::transaction::Transaction;

/// How many jobs one commit has at most.
const BATCH: usize = 256;

/// Writes, and says how to answer once it is known whether that is durable.
pub(super) type Job = Box<dyn FnOnce(&mut Transaction<'_>) -> Answer + Send>;
/// Answers a job; its argument is why what it wrote is not durable.
pub(super) type SendAnswer = Box<dyn FnOnce(Option<&str>) + Send>;

/// What comes after a job.
pub(super) struct Answer {
    pub send: SendAnswer,
    /// The transaction is not to be committed: why, and whether nothing is taken from then on.
    pub spoilt: Option<(String, bool)>,
}

/// The thread, as long as it is used.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn begin(database: Arc<Database>) -> std::io::Result<Writer> {
        let (jobs, waiting) = channel();
        // The database waits for what it lies on: no thread of requests may.
        let thread = std::thread::Builder::new()
            .name("s3 index".to_owned())
            .spawn(move || work(&database, &waiting))?;
        Ok(Writer {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Has the job carried out; `false`: the thread has ended.
    pub fn send(&self, job: Job) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

fn work(database: &Database, waiting: &Receiver<Job>) {
    let mut broken: Option<String> = None;
    while let Ok(first) = waiting.recv() {
        let more = std::iter::from_fn(|| waiting.try_recv().ok());
        let jobs: Vec<Job> = std::iter::once(first).chain(more).take(BATCH).collect();
        if broken.is_none() {
            broken = commit(database, jobs);
        } else {
            drop(jobs);
        }
    }
}

/// Carries the jobs out and answers them; why nothing more may be done.
fn commit(database: &Database, jobs: Vec<Job>) -> Option<String> {
    let (answers, done) = carry_out(database, jobs);
    let why = done.err();
    if let Some((why, _)) = &why {
        tracing::error!("the index of the gateway was not written: {why}");
    }
    for answer in answers {
        (answer.send)(why.as_ref().map(|it| &*it.0));
    }
    why.filter(|it| it.1).map(|it| it.0)
}

/// The answers of those that were carried out, and why none of it is durable, and for how long.
type CarriedOut = (Vec<Answer>, Result<(), (String, bool)>);

fn carry_out(database: &Database, jobs: Vec<Job>) -> CarriedOut {
    let mut answers = Vec::with_capacity(jobs.len());
    let failed = |error: IndexError| Err((error.to_string(), true));
    let transaction = match database.begin_write() {
        Ok(transaction) => transaction,
        Err(error) => return (answers, failed(error.into())),
    };
    {
        let mut open = match Transaction::open(&transaction) {
            Ok(open) => open,
            Err(error) => return (answers, failed(error)),
        };
        for job in jobs {
            let answer = job(&mut open);
            let spoilt = answer.spoilt.clone();
            answers.push(answer);
            if let Some(spoilt) = spoilt {
                return (answers, Err(spoilt));
            }
        }
    }
    match transaction.commit() {
        Ok(()) => (answers, Ok(())),
        Err(error) => (answers, failed(error.into())),
    }
}

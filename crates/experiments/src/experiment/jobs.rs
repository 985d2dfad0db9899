//! Pieces of an experiment, done side by side over the cores.
//!
//! ```text
//! jobs -> what the journal has | done by a free core, written down -> answers in the order of the jobs
//! ```
//!
//! Always true: the answers are the same on however many cores, and whether they were done in one go or several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Progress};

/// One piece of work.
pub(crate) struct Job<'a, T> {
    /// For the progress and the journal: no two jobs of an experiment share it.
    pub name: String,
    /// What it does.
    pub work: Box<dyn Fn() -> Result<T, ExperimentError> + Send + Sync + 'a>,
}

impl<'a, T> Job<'a, T> {
    /// A piece of work by its name.
    pub fn new(
        name: impl Into<String>,
        work: impl Fn() -> Result<T, ExperimentError> + Send + Sync + 'a,
    ) -> Job<'a, T> {
        Job {
            name: name.into(),
            work: Box::new(work),
        }
    }
}

/// Does all jobs but those that the journal has, the first ones first; progress is reported in this thread.
///
/// # Errors
/// The first of a job, or of the journal. The jobs under way are waited for.
pub(crate) fn side_by_side<T: Send + Serialize + DeserializeOwned>(
    jobs: &[Job<'_, T>],
    journal: &mut Journal,
    progress: &mut Progress<'_>,
) -> Result<Vec<T>, ExperimentError> {
    let mut answers: Vec<Option<T>> = jobs.iter().map(|job| journal.get(&job.name)).collect();
    let left: Vec<usize> = (0..jobs.len())
        .filter(|at| answers[*at].is_none())
        .collect();
    let mut done = jobs.len() - left.len();
    let next = AtomicUsize::new(0);
    let (left, next) = (&left, &next);
    let (sender, receiver) = mpsc::channel();
    let mut failed = None;
    rayon::in_place_scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            let sender = sender.clone();
            scope.spawn(move |_| {
                while let Some(at) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((*at, (jobs[*at].work)())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        while let Ok((at, answer)) = receiver.recv() {
            done += 1;
            let name = &jobs[at].name;
            progress(name, done as f64 / jobs.len() as f64);
            match answer.and_then(|answer| journal.put(name, &answer).map(|()| answer)) {
                Ok(answer) => answers[at] = Some(answer),
                Err(error) => {
                    failed.get_or_insert(error);
                    next.store(left.len(), Ordering::Relaxed);
                }
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(answers.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::experiment::Options;

    #[test]
    fn what_a_journal_has_is_not_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let options = Options {
            resume: Some(&path),
            ..Options::default()
        };
        let count = AtomicU32::new(0);
        let run = |fails_at: u32| {
            let work = |n: u32| {
                let count = &count;
                Job::new(format!("job {n}"), move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    match n == fails_at {
                        true => Err(ExperimentError::Machine {
                            experiment: "test",
                            why: "it was interrupted".to_owned(),
                        }),
                        false => Ok(f64::from(n) / 3.0),
                    }
                })
            };
            let jobs: Vec<Job<'_, f64>> = (0..20).map(work).collect();
            let mut journal = Journal::open("test", &options).unwrap();
            side_by_side(&jobs, &mut journal, &mut |_, _| {})
        };
        assert!(run(10).is_err());
        let first = count.swap(0, Ordering::Relaxed);
        assert!((10..=20).contains(&first), "{first}");
        let all = run(u32::MAX).unwrap();
        assert_eq!(all, (0..20).map(|n| f64::from(n) / 3.0).collect::<Vec<_>>());
        // The one that failed was not written down.
        assert_eq!(first - 1 + count.swap(0, Ordering::Relaxed), 20);
        run(u32::MAX).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}

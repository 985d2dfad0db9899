//! Simulation: runs the production policies and engines on a trace; no device is needed.
//!
//! ```text
//! trace -> cache: the policies alone, no devices, no time: which requests miss at which size
//!       -> tier:  the tiering rules alone: which regions they would have had on the fast tier
//!       -> advise: which cache or tier would do the trace good; a shadow does so beside a running volume
//!       -> run:   the whole stack over device models, in virtual time -> response times, bytes, energy
//! ```
//!
//! Always true: the same trace and options give the same figures, bit for bit, whatever the number of
//! threads.

pub mod advise;
pub mod cache;
pub mod run;
pub mod tier;

/// Why no threads could be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {jobs} threads; ask for fewer jobs")]
pub struct ThreadsError {
    jobs: usize,
    source: rayon::ThreadPoolBuildError,
}

/// Does `work` with `jobs` threads (0: one per processor) under whatever in it goes parallel.
///
/// # Errors
/// [`ThreadsError`] if the system refuses the threads.
///
/// # Example
/// ```
/// assert_eq!(sim::on_threads(1, || 6 * 7)?, 42);
/// # Ok::<(), sim::ThreadsError>(())
/// ```
pub fn on_threads<R: Send>(
    jobs: usize,
    work: impl FnOnce() -> R + Send,
) -> Result<R, ThreadsError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    let pool = pool.map_err(|source| ThreadsError { jobs, source })?;
    Ok(pool.install(work))
}

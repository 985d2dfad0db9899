//! Processor time of a piece of work, for benchmarks.
//!
//! Read from the kernel's account of this thread, so that what else the machine does does not count; where there
//! is no such account, the time on the clock.

/// Time spent on the processor since its start.
pub struct Stopwatch {
    on_cpu_ns: Option<u64>,
    clock: std::time::Instant,
}

impl Stopwatch {
    /// Starts counting.
    pub fn start() -> Stopwatch {
        #[allow(clippy::disallowed_methods)] // A benchmark is about real time.
        let clock = std::time::Instant::now();
        Stopwatch {
            on_cpu_ns: Self::on_cpu_ns(),
            clock,
        }
    }

    fn on_cpu_ns() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let first = text.split_whitespace().next()?;
        first.parse().ok().filter(|&ns| ns > 0)
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        match (self.on_cpu_ns, Self::on_cpu_ns()) {
            (Some(from), Some(to)) => (to - from) as f64 / 1e9,
            _ => self.clock.elapsed().as_secs_f64(),
        }
    }
}

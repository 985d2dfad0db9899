//! When are dirty pages written to the slow device, and how fast?
//!
//! ```text
//! load, marks, ages --Cleaner--> Hold | Clean { rate } | Urgent
//! ```
//!
//! Which pages, and in what order, the engine reads off its map: in address order, see `hybrid::destage`.
//!
//! Between the low and the high mark the cleaner takes the slow device's spare time, the more of it
//! the more is dirty. Above the high mark it takes a share even of a busy device, up to all of it at
//! the urgent mark. An idle device is used at full rate whatever is dirty.
//!
//! A burst of writes that fits below the high mark is left alone: what it writes again is then written to the slow device
//! once, and its own requests meet no cleaner. It counts as one until users rest from writing, or for a minute.
//!
//! Energy mode lets the slow device sleep:
//!
//! ```text
//! Holding -> Burning   high mark, or a page too old, or the device is awake and idle anyway
//! Burning -> Holding   nothing is dirty
//! ```
//!
//! Pure: time and observations come in, a decision goes out.
//!
//! Always true:
//! 1. With nothing dirty the answer is `Hold`.
//! 2. At or above the urgent mark the answer is `Urgent`.
//! 3. The rate never falls when more is dirty, and never rises when the device is busier.

use base::{Bytes, Instant, Nanos};

/// What the cleaner goes by; fixed at open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerOptions {
    /// Share of the cache that may stay dirty undisturbed.
    pub low_mark: f64,
    /// Share from which cleaning does not wait for spare time.
    pub high_mark: f64,
    /// Share from which cleaning comes first.
    pub urgent_mark: f64,
    /// A page dirty for longer is written even below the low mark.
    pub age_max: Nanos,
    /// The slow device counts as idle after this long without a request.
    pub idle_after: Nanos,
    /// A burst of writes ends after this long without one.
    pub burst_rest: Nanos,
    /// Writes that go on for longer are no burst; counted from the oldest dirty page.
    pub burst_max: Nanos,
    /// What the slow device writes in a second when left alone.
    pub slow_bytes_per_second: Bytes,
    /// Let the slow device sleep: hold until the high mark or the age limit, then write all.
    pub energy: bool,
}

impl Default for CleanerOptions {
    /// 10, 50 and 80 %; a page may be dirty for 10 minutes; idle after 100 ms; a burst ends after a second and is a minute
    /// long at most; 60 MB/s, about what a disk writes in sorted runs.
    fn default() -> Self {
        CleanerOptions {
            low_mark: 0.1,
            high_mark: 0.5,
            urgent_mark: 0.8,
            age_max: Nanos::secs(600),
            idle_after: Nanos::millis(100),
            burst_rest: Nanos::secs(1),
            burst_max: Nanos::secs(60),
            slow_bytes_per_second: Bytes(60_000_000),
            energy: false,
        }
    }
}

/// What the cleaner decides from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The time.
    pub now: Instant,
    /// Dirty bytes in the cache.
    pub dirty: Bytes,
    /// Bytes the cache holds at most.
    pub capacity: Bytes,
    /// When the slow device finished its last foreground request; `None`: one is under way.
    pub slow_idle_since: Option<Instant>,
    /// The share of its time the slow device spends on foreground requests, 0 to 1.
    pub slow_busy: f64,
    /// When the page dirty for longest became so; `None`: nothing is dirty.
    pub dirty_since: Option<Instant>,
    /// When a user last wrote something that is dirty now or was; `None`: never.
    pub written_at: Option<Instant>,
    /// Does the slow device sleep?
    pub standby: bool,
}

/// What to do until asked again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Nothing.
    Hold,
    /// Write dirty pages at this rate.
    Clean {
        /// Bytes to write per second.
        bytes_per_second: Bytes,
    },
    /// Write dirty pages as fast as the slow device takes them; new writes may have to wait.
    Urgent,
}

/// Decides when to clean and how fast.
///
/// # Example
/// ```
/// use base::{Bytes, Instant, Nanos};
/// use policy::cache::cleaner::{Cleaner, CleanerOptions, Decision, Load};
/// let mut cleaner = Cleaner::new(CleanerOptions::default());
/// let load = Load {
///     now: Instant(0) + Nanos::secs(10),
///     dirty: Bytes::gib(3),
///     capacity: Bytes::gib(10),
///     slow_idle_since: None,
///     slow_busy: 0.5,
///     dirty_since: Some(Instant(0)),
///     written_at: None,
///     standby: false,
/// };
/// // Halfway between the marks, half of the time spare: a quarter of 60 MB/s.
/// let quarter = Decision::Clean { bytes_per_second: Bytes(15_000_000) };
/// assert_eq!(cleaner.decide(&load), quarter);
/// assert_eq!(cleaner.decide(&Load { dirty: Bytes::gib(9), ..load }), Decision::Urgent);
/// ```
#[derive(Clone, Debug)]
pub struct Cleaner {
    options: CleanerOptions,
    /// Energy mode: writing all that is dirty while the device spins.
    burning: bool,
}

impl Cleaner {
    /// The share of its time a fully busy slow device spends on cleaning at the high mark.
    const SHARE_AT_HIGH_MARK: f64 = 0.1;

    /// A cleaner that goes by `options`.
    ///
    /// # Panics
    /// If the marks are not ascending within 0 to 1.
    pub fn new(options: CleanerOptions) -> Cleaner {
        let CleanerOptions {
            low_mark: low,
            high_mark: high,
            urgent_mark: urgent,
            ..
        } = options;
        assert!(
            0.0 <= low && low < high && high < urgent && urgent <= 1.0,
            "marks must ascend within 0..=1: low {low}, high {high}, urgent {urgent}"
        );
        Cleaner {
            options,
            burning: false,
        }
    }

    /// Goes by `options` from now on. Where they are other ones, energy mode begins anew unless marks and rate alone differ.
    ///
    /// # Panics
    /// As [`Cleaner::new`].
    pub fn set(&mut self, options: CleanerOptions) {
        if options == self.options {
            return;
        }
        let same_mode =
            (options.energy, options.age_max) == (self.options.energy, self.options.age_max);
        let burning = self.burning && same_mode;
        *self = Cleaner {
            burning,
            ..Cleaner::new(options)
        };
    }

    /// The options it goes by.
    pub fn options(&self) -> &CleanerOptions {
        &self.options
    }

    /// Is energy mode writing all that is dirty?
    pub fn is_burning(&self) -> bool {
        self.burning
    }

    /// What to do under this load.
    pub fn decide(&mut self, load: &Load) -> Decision {
        if load.dirty == Bytes(0) {
            self.burning = false;
            return Decision::Hold;
        }
        let dirty = load.dirty.0 as f64 / load.capacity.0.max(1) as f64;
        if dirty >= self.options.urgent_mark {
            self.burning = self.options.energy;
            return Decision::Urgent;
        }
        let old = load
            .dirty_since
            .is_some_and(|at| load.now.since(at) >= self.options.age_max);
        let idle = load
            .slow_idle_since
            .is_some_and(|at| load.now.since(at) >= self.options.idle_after);
        if self.options.energy {
            let awake = idle && !load.standby;
            self.burning |= old || awake || dirty >= self.options.high_mark;
            if !self.burning {
                return Decision::Hold;
            }
            // All of it, soon: each second of spinning costs.
            let share = self
                .share(1.0, load.slow_busy)
                .max(Self::SHARE_AT_HIGH_MARK);
            return self.at(if idle { 1.0 } else { share });
        }
        if dirty < self.options.high_mark && self.is_burst(load) {
            return Decision::Hold;
        }
        if idle {
            return self.at(1.0);
        }
        if dirty < self.options.low_mark && !old {
            return Decision::Hold;
        }
        let CleanerOptions {
            low_mark: low,
            high_mark: high,
            urgent_mark: urgent,
            ..
        } = self.options;
        if dirty < high {
            // Old pages alone move the cleaner gently: a tenth of the spare time.
            let pressure = ((dirty - low) / (high - low)).max(if old { 0.1 } else { 0.0 });
            return self.at(self.share(pressure, load.slow_busy));
        }
        let beyond = (dirty - high) / (urgent - high);
        let taken = Self::SHARE_AT_HIGH_MARK + (1.0 - Self::SHARE_AT_HIGH_MARK) * beyond;
        self.at(self.share(1.0, load.slow_busy).max(taken))
    }

    /// So much dirty makes [`Cleaner::decide`] think anew under a load under which it held; time may do so before.
    pub fn holds_until(&self, load: &Load) -> Bytes {
        let mark = match (load.dirty, self.is_burst(load)) {
            // The first page begins to grow old.
            (Bytes(0), _) => return Bytes(0),
            (_, true) => self.options.high_mark,
            (_, false) => self.options.low_mark,
        };
        Bytes((load.capacity.0 as f64 * mark) as u64)
    }

    /// Do users write, and not for long?
    fn is_burst(&self, load: &Load) -> bool {
        let writes = load
            .written_at
            .is_some_and(|at| load.now.since(at) < self.options.burst_rest);
        let lasts = load
            .dirty_since
            .is_some_and(|at| load.now.since(at) >= self.options.burst_max);
        writes && !lasts && !self.options.energy
    }

    /// `pressure` of the device's spare time.
    fn share(&self, pressure: f64, busy: f64) -> f64 {
        pressure.clamp(0.0, 1.0) * (1.0 - busy.clamp(0.0, 1.0))
    }

    fn at(&self, share: f64) -> Decision {
        let rate = self.options.slow_bytes_per_second.0 as f64 * share;
        match rate.round() as u64 {
            0 => Decision::Hold,
            rate => Decision::Clean {
                bytes_per_second: Bytes(rate),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// 3 of 10 GiB dirty for 10 s, the slow device half busy and awake.
    const LOAD: Load = Load {
        now: Instant(10_000_000_000),
        dirty: Bytes::gib(3),
        capacity: Bytes::gib(10),
        slow_idle_since: None,
        slow_busy: 0.5,
        dirty_since: Some(Instant(0)),
        written_at: None,
        standby: false,
    };

    fn decide(load: Load) -> Decision {
        Cleaner::new(CleanerOptions::default()).decide(&load)
    }

    fn clean(megabytes: u64) -> Decision {
        Decision::Clean {
            bytes_per_second: Bytes(megabytes * MB),
        }
    }

    #[test]
    fn nothing_dirty_or_little_means_hold() {
        assert_eq!(
            decide(Load {
                dirty: Bytes(0),
                dirty_since: None,
                ..LOAD
            }),
            Decision::Hold
        );
        assert_eq!(
            decide(Load {
                dirty: Bytes::mib(900),
                ..LOAD
            }),
            Decision::Hold
        );
    }

    #[test]
    fn between_the_marks_the_rate_is_a_part_of_the_spare_time() {
        assert_eq!(decide(LOAD), clean(15));
        assert_eq!(
            decide(Load {
                slow_busy: 0.0,
                ..LOAD
            }),
            clean(30)
        );
        assert_eq!(
            decide(Load {
                slow_busy: 1.0,
                ..LOAD
            }),
            Decision::Hold
        );
        assert_eq!(
            decide(Load {
                dirty: Bytes::gib(4),
                ..LOAD
            }),
            Decision::Clean {
                bytes_per_second: Bytes(22_500_000)
            }
        );
    }

    #[test]
    fn above_the_high_mark_even_a_busy_device_gives_a_share() {
        let busy = Load {
            slow_busy: 1.0,
            ..LOAD
        };
        assert_eq!(
            decide(Load {
                dirty: Bytes::gib(5),
                ..busy
            }),
            clean(6)
        );
        let more = decide(Load {
            dirty: Bytes::mib(6656),
            ..busy
        });
        assert_eq!(
            more,
            clean(33),
            "half way to the urgent mark: 0.1 + 0.9 / 2"
        );
        assert_eq!(
            decide(Load {
                dirty: Bytes::gib(8),
                ..busy
            }),
            Decision::Urgent
        );
    }

    #[test]
    fn an_idle_device_is_used_at_full_rate_whatever_is_dirty() {
        let idle = Load {
            slow_idle_since: Some(Instant(9_900_000_000)),
            ..LOAD
        };
        assert_eq!(
            decide(Load {
                dirty: Bytes(4096),
                ..idle
            }),
            clean(60)
        );
        let just = Load {
            slow_idle_since: Some(Instant(9_900_000_001)),
            ..LOAD
        };
        assert_eq!(
            decide(Load {
                dirty: Bytes(4096),
                ..just
            }),
            Decision::Hold
        );
    }

    /// Users write to the fast device alone, and have for 10 s.
    const BURST: Load = Load {
        slow_idle_since: Some(Instant(0)),
        slow_busy: 0.0,
        written_at: Some(Instant(9_999_000_000)),
        ..LOAD
    };

    #[test]
    fn a_burst_that_fits_below_the_high_mark_is_left_alone_until_it_ends() {
        for dirty in [Bytes(4096), Bytes::gib(3), Bytes::mib(5119)] {
            assert_eq!(decide(Load { dirty, ..BURST }), Decision::Hold, "{dirty}");
        }
        let reads = Load {
            slow_idle_since: None,
            slow_busy: 0.5,
            ..BURST
        };
        assert_eq!(
            decide(reads),
            Decision::Hold,
            "beside reads of the disk too"
        );
        let over = Load {
            written_at: Some(Instant(9_000_000_000)),
            ..BURST
        };
        assert_eq!(decide(over), clean(60), "a second without a write");
    }

    #[test]
    fn a_burst_beyond_the_high_mark_is_cleaned_as_any_load() {
        let dirty = Bytes::gib(5);
        assert_eq!(decide(Load { dirty, ..BURST }), clean(60));
        let busy = Load {
            dirty,
            slow_idle_since: None,
            slow_busy: 1.0,
            ..BURST
        };
        assert_eq!(decide(busy), clean(6));
        let dirty = Bytes::gib(8);
        assert_eq!(decide(Load { dirty, ..BURST }), Decision::Urgent);
    }

    #[test]
    fn writes_that_go_on_for_a_minute_are_no_burst() {
        let later = |seconds: u64| {
            let now = Instant(0) + Nanos::secs(seconds);
            decide(Load {
                now,
                written_at: Some(now),
                ..BURST
            })
        };
        assert_eq!(later(59), Decision::Hold);
        assert_eq!(later(60), clean(60));
    }

    #[test]
    fn a_cleaner_that_holds_says_how_much_dirt_changes_that() {
        let cleaner = Cleaner::new(CleanerOptions::default());
        let until = |load: Load| cleaner.holds_until(&load);
        assert_eq!(until(BURST), Bytes::gib(5));
        assert_eq!(until(LOAD), Bytes::gib(1));
        let nothing = Load {
            dirty: Bytes(0),
            dirty_since: None,
            ..BURST
        };
        assert_eq!(until(nothing), Bytes(0));
        let little = Load {
            dirty: Bytes::mib(100),
            ..LOAD
        };
        for load in [BURST, little] {
            assert_eq!(decide(load), Decision::Hold);
            let dirty = Bytes(until(load).0 + Bytes::mib(1).0);
            assert_ne!(decide(Load { dirty, ..load }), Decision::Hold, "{dirty}");
        }
    }

    #[test]
    fn energy_mode_knows_no_burst() {
        let mut cleaner = energy();
        let written_at = Some(LOAD.now);
        let awake = Load {
            slow_idle_since: Some(Instant(9_000_000_000)),
            written_at,
            ..LOAD
        };
        assert_eq!(cleaner.decide(&awake), clean(60));
    }

    #[test]
    fn old_pages_are_written_even_below_the_low_mark() {
        let old = Load {
            dirty: Bytes::mib(1),
            now: Instant(0) + Nanos::secs(600),
            ..LOAD
        };
        assert_eq!(decide(old), clean(3));
        assert_eq!(
            decide(Load {
                now: Instant(0) + Nanos::secs(599),
                ..old
            }),
            Decision::Hold
        );
    }

    #[test]
    fn the_rate_never_falls_with_dirt_nor_rises_with_load() {
        let rate = |dirty: u64, busy: u64| {
            let dirty = Bytes(LOAD.capacity.0 * dirty / 100);
            match decide(Load {
                dirty,
                slow_busy: busy as f64 / 100.0,
                ..LOAD
            }) {
                Decision::Hold => 0,
                Decision::Clean { bytes_per_second } => bytes_per_second.0,
                Decision::Urgent => u64::MAX,
            }
        };
        for dirty in 0..=100 {
            for busy in 0..=100 {
                assert!(
                    dirty == 0 || rate(dirty, busy) >= rate(dirty - 1, busy),
                    "{dirty} {busy}"
                );
                assert!(
                    busy == 0 || rate(dirty, busy) <= rate(dirty, busy - 1),
                    "{dirty} {busy}"
                );
            }
        }
    }

    fn energy() -> Cleaner {
        Cleaner::new(CleanerOptions {
            energy: true,
            ..CleanerOptions::default()
        })
    }

    /// The device sleeps since it has been idle for long.
    const ASLEEP: Load = Load {
        slow_idle_since: Some(Instant(0)),
        slow_busy: 0.0,
        standby: true,
        ..LOAD
    };

    #[test]
    fn energy_mode_lets_the_device_sleep_until_the_high_mark_then_writes_all() {
        let mut cleaner = energy();
        assert_eq!(cleaner.decide(&ASLEEP), Decision::Hold);
        assert_eq!(
            cleaner.decide(&Load {
                dirty: Bytes::gib(5),
                ..ASLEEP
            }),
            clean(60)
        );
        let spinning = Load {
            standby: false,
            ..ASLEEP
        };
        for dirty in [Bytes::gib(4), Bytes::gib(1), Bytes(4096)] {
            assert_eq!(
                cleaner.decide(&Load { dirty, ..spinning }),
                clean(60),
                "{dirty} left"
            );
            assert!(cleaner.is_burning());
        }
        assert_eq!(
            cleaner.decide(&Load {
                dirty: Bytes(0),
                ..spinning
            }),
            Decision::Hold
        );
        assert_eq!(
            cleaner.decide(&ASLEEP),
            Decision::Hold,
            "and it sleeps again"
        );
    }

    #[test]
    fn energy_mode_wakes_the_device_for_a_page_too_old() {
        let mut cleaner = energy();
        let late = Load {
            now: Instant(0) + Nanos::secs(600),
            dirty: Bytes(4096),
            ..ASLEEP
        };
        assert_eq!(cleaner.decide(&late), clean(60));
    }

    #[test]
    fn energy_mode_uses_a_device_that_is_awake_anyway_before_it_sleeps_again() {
        let mut cleaner = energy();
        assert_eq!(cleaner.decide(&LOAD), Decision::Hold, "awake but busy");
        let idle = Load {
            slow_idle_since: Some(Instant(9_000_000_000)),
            ..LOAD
        };
        assert_eq!(cleaner.decide(&idle), clean(60));
        assert_eq!(
            cleaner.decide(&LOAD),
            clean(30),
            "once begun it goes on in the spare time"
        );
        assert_eq!(
            cleaner.decide(&Load {
                slow_busy: 1.0,
                ..LOAD
            }),
            clean(6)
        );
        assert_eq!(
            cleaner.decide(&Load {
                dirty: Bytes::gib(9),
                ..LOAD
            }),
            Decision::Urgent
        );
    }

    #[test]
    #[should_panic(expected = "marks must ascend")]
    fn marks_out_of_order_are_refused() {
        Cleaner::new(CleanerOptions {
            low_mark: 0.6,
            ..CleanerOptions::default()
        });
    }
}

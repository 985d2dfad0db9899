//! When do learned parameters take the place of those in force?
//!
//! ```text
//! intervals as they end -> History (days) -> every EVERY: learn -> better by MARGIN, also on what it had not seen?
//!                                                               -> change, once
//! ```
//!
//! Region and period stay: what was counted with them is all that is known.
//!
//! Always true:
//! 1. A change is only made if it would have gained [`MARGIN`] both over all that is known and, found in the first
//!    half of it, over the second.
//! 2. Between two looks at least [`EVERY`] passes, and the first needs as much.

use std::collections::VecDeque;

use base::{Bytes, Nanos};
use policy::tier::{Count, Parameters};

use super::history::History;
use super::score::{Terms, all};
use super::search::{Freedom, Learned, Setting, learn};

/// How often parameters are looked at.
///
/// Choice: six hours; a change twice a day at most follows days and nights and costs a second of one processor.
pub const EVERY: Nanos = Nanos::secs(6 * 3600);
/// How far back is looked.
pub const BACK: Nanos = Nanos::secs(4 * 24 * 3600);
/// What a change must gain, in net share of the slow device's time.
pub const MARGIN: f64 = 0.02;
/// Too few requests say nothing.
pub const REQUESTS_MIN: u64 = 10_000;

/// Watches one volume.
#[derive(Debug, Clone)]
pub struct Auto {
    every: Nanos,
    history: History,
    /// The interval after the last one taken in, by its number since the volume was opened.
    next: u64,
    /// How much has been taken in since the last look.
    since: Nanos,
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Too little is known.
    TooLittle,
    /// What is set stays; what was learned gains too little.
    Stay(Learned),
    /// Set these.
    Change(Learned),
}

impl Auto {
    /// For a volume with regions of `region` and intervals of `period`; looks every `every`.
    pub fn new(region: Bytes, period: Nanos, every: Nanos) -> Auto {
        Auto {
            every,
            history: History::new(region, period),
            next: 0,
            since: Nanos(0),
        }
    }

    /// Is it about this grain?
    pub fn fits(&self, region: Bytes, period: Nanos) -> bool {
        (self.history.region, self.history.period) == (region, period)
    }

    /// Intervals before number `first` are of another grain: it takes them for known.
    pub fn begin_at(&mut self, first: u64) {
        self.next = first;
    }

    /// The number of the first interval it has not taken in.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes in the interval `number`; one known already is left out, one of another length too.
    pub fn take(&mut self, number: u64, length: Nanos, counts: Vec<Count>) {
        if number < self.next {
            return;
        }
        self.next = number + 1;
        // A change of the period cuts an interval short.
        if length.0.abs_diff(self.history.period.0) > self.history.period.0 / 4 {
            return;
        }
        self.history.push(counts);
        self.history
            .forget((BACK.0 / self.history.period.0.max(1)) as usize);
        self.since += length;
    }

    /// Is it time to look? Only once each time.
    pub fn due(&mut self) -> bool {
        let due = self.since >= self.every;
        if due {
            self.since = Nanos(0);
        }
        due
    }

    /// What is known now.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Should `present` change?
    pub fn judge(history: &History, present: &Parameters, terms: &Terms) -> Verdict {
        if history.requests() < REQUESTS_MIN || busy(&history.intervals) < 20 {
            return Verdict::TooLittle;
        }
        let setting = Setting {
            region: history.region,
            parameters: *present,
        };
        let learned = learn(history, &setting, terms, Freedom::Parameters);
        let gained = learned.score.net() - learned.present.net();
        let held_out = learned.held_out.net() - learned.present_held_out.net();
        match gained >= MARGIN && held_out >= MARGIN && learned.setting != setting {
            true => Verdict::Change(learned),
            false => Verdict::Stay(learned),
        }
    }
}

/// Intervals with a request.
fn busy(intervals: &VecDeque<Vec<Count>>) -> usize {
    intervals.iter().filter(|counts| all(counts) > 0).count()
}

#[cfg(test)]
mod tests {
    use super::super::search::tests::{made, terms};
    use super::*;

    fn feed(auto: &mut Auto, history: &History, from: u64) {
        for (number, counts) in (from..).zip(&history.intervals) {
            auto.take(number, history.period, counts.clone());
        }
    }

    #[test]
    fn hot_spots_of_two_minutes_change_the_papers_parameters_once() {
        let history = made(Nanos::secs(120), 400, 3);
        let mut auto = Auto::new(history.region, history.period, Nanos::secs(3600));
        feed(&mut auto, &history, 0);
        assert!(auto.due(), "an hour and more has passed");
        assert!(!auto.due(), "just looked");
        let known = auto.history().clone();
        let mut parameters = Parameters {
            period: history.period,
            streak_min: 18,
            timeout: 60,
            ..Parameters::default()
        };
        let Verdict::Change(learned) = Auto::judge(&known, &parameters, &terms()) else {
            panic!("nothing was changed");
        };
        assert!(learned.setting.parameters.streak_min < 18);
        assert_eq!(learned.setting.parameters.period, history.period);
        parameters = learned.setting.parameters;
        // The same work goes on: what was learned stays.
        feed(&mut auto, &made(Nanos::secs(120), 400, 4), 400);
        assert!(auto.due(), "another hour has passed");
        let known = auto.history();
        assert_eq!(known.intervals.len(), 800);
        assert!(matches!(
            Auto::judge(known, &parameters, &terms()),
            Verdict::Stay(_)
        ));
    }

    /// The engine itself, in virtual time: hot spots of two minutes on a disk of 4 GiB whose tier waits three.
    #[test]
    fn a_volume_that_learns_serves_more_from_its_fast_device_from_then_on() {
        use std::rc::Rc;

        use base::{Buf, Sector};
        use device::model::{ModelDisk, Spec, Store};
        use device::{Class, Device};
        use hybrid::{Hybrid, Mode, Settings, Tier, Ties};

        let disk = |name: &str, model: &str, size| -> Rc<dyn Device> {
            let spec = Spec::find(model).expect("a model");
            ModelDisk::new(name, &spec, Some(size), Store::None, 1).expect("a good model")
        };
        env::Runtime::simulated(1).block_on(async move {
            let period = Nanos::secs(10);
            let settings = Settings {
                mode: Mode::Tier,
                tier: Tier {
                    region: Bytes::mib(64),
                    parameters: Parameters {
                        period,
                        iops_min: 1.0,
                        streak_min: 18,
                        timeout: 60,
                        ..Parameters::default()
                    },
                    auto: true,
                    ..Tier::default()
                },
                ..Settings::default()
            };
            let slow = disk("slow", "hdd-7200-sata", Bytes::gib(4));
            let fast = disk("fast", "ssd-sata-mlc", Bytes::gib(1));
            let made = Hybrid::create(settings, slow, fast, Ties::default()).await;
            let hybrid = made.expect("a good pair");
            let mut auto = Auto::new(Bytes::mib(64), period, Nanos::secs(1800));
            let mut state = 9u64;
            let mut below = move |n: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            let mut shares = Vec::new();
            let mut before = (0, 0);
            let mut changes = 0;
            for minute in 0..70u64 {
                let hot = (minute / 2 * 7) % 64 * 16_384;
                for _ in 0..30 * 60 {
                    let page = match below(10) {
                        0..9 => hot + below(2048),
                        _ => below(1 << 20),
                    };
                    let buf = Buf::for_read(4096);
                    let read = hybrid.read(Sector(page * 8), buf, Class::Foreground);
                    read.await.expect("a model reads");
                    env::sleep(Nanos::millis(33)).await;
                }
                let heat = hybrid.heat().expect("there is a tier");
                for interval in heat.intervals {
                    auto.take(interval.number, interval.length, interval.counts);
                }
                let mut settings = hybrid.settings();
                if auto.due() {
                    let terms = Terms {
                        room: Bytes(hybrid.tier().expect("there is a tier").room.room_bytes),
                        ..terms()
                    };
                    let verdict = Auto::judge(auto.history(), &settings.tier.parameters, &terms);
                    if let Verdict::Change(learned) = verdict {
                        settings.tier.parameters = learned.setting.parameters;
                        hybrid.set(settings).await.expect("good parameters");
                        changes += 1;
                    }
                }
                let status = hybrid.status();
                let now = (status.requests.home_requests, status.requests.user_requests);
                shares.push((now.0 - before.0) as f64 / (now.1 - before.1) as f64);
                before = now;
            }
            assert_eq!(changes, 1, "{shares:?}");
            let tier = hybrid.settings().tier;
            assert!(tier.parameters.streak_min < 12, "{tier:?}");
            let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
            let (first, last) = (mean(&shares[10..28]), mean(&shares[50..]));
            assert!(last > first + 0.2, "{first} {last} {shares:?}");
            hybrid.close().await.expect("a clean end");
        });
    }

    #[test]
    fn what_is_known_already_and_what_is_too_little_changes_nothing() {
        let history = made(Nanos::secs(120), 30, 3);
        let mut auto = Auto::new(history.region, history.period, Nanos::secs(60));
        feed(&mut auto, &history, 0);
        feed(&mut auto, &history, 0);
        assert_eq!((auto.history().intervals.len(), auto.next()), (30, 30));
        auto.take(30, Nanos::secs(3), Vec::new());
        assert_eq!((auto.history().intervals.len(), auto.next()), (30, 31));
        let few = made(Nanos::secs(120), 5, 3);
        let verdict = Auto::judge(&few, &Parameters::default(), &terms());
        assert_eq!(verdict, Verdict::TooLittle);
    }
}

//! How much longer will something hot stay hot?
//!
//! ```text
//! the hot ones of every interval --Lives--> ages; which lived on and which ended at which age
//!                                        -> the expected rest of a life at any age
//! ```
//!
//! Ages are classed by doubling (0, 1-2, 3-6, 7-14, ... intervals). In each class it is counted how many intervals
//! were lived and how many lives ended; their ratio is the chance to end in an interval, and the expected rest of a
//! life is what a walk through the classes from its age on adds up to.
//!
//! Choice: until something is known, what has lived for a while lives as long again. The paper's figures are of
//! this kind: 83 % of hot spots last 3 minutes or more, and half of all 10.
//!
//! Source: AST 2.1.

use base::{Map, Set};

/// Classes of age; the last begins at 4095 intervals and is taken to be as long as it begins late.
const CLASSES: usize = 13;

/// The statistics of lives by age.
///
/// # Example
/// ```
/// use policy::tier::lives::Lifetimes;
/// let mut lifetimes = Lifetimes::default();
/// assert!(lifetimes.rest(20) > lifetimes.rest(2));
/// // An extent that lives at all lives one interval, and never a second.
/// for _ in 0..1_000 {
///     lifetimes.lived(0);
///     lifetimes.ended(0);
/// }
/// assert!(lifetimes.rest(0) < 1.1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Lifetimes {
    /// Intervals lived in each class.
    lived: [f64; CLASSES],
    /// Lives that ended in each class.
    ended: [f64; CLASSES],
}

/// The class of an age in intervals.
fn class(age: u64) -> usize {
    ((age + 1).ilog2() as usize).min(CLASSES - 1)
}

/// The first age of a class.
fn begin(class: usize) -> u64 {
    (1 << class) - 1
}

impl Lifetimes {
    /// When a class has counted so many intervals all of it is halved: what was long ago counts less and less.
    const FULL: f64 = 65_536.0;

    /// Something of this age lived through one more interval.
    pub fn lived(&mut self, age: u64) {
        let class = class(age);
        self.lived[class] += 1.0;
        if self.lived[class] >= Self::FULL {
            self.lived[class] /= 2.0;
            self.ended[class] /= 2.0;
        }
    }

    /// Something ended at this age: it lived through the interval of this age and no other.
    pub fn ended(&mut self, age: u64) {
        self.ended[class(age)] += 1.0;
    }

    /// The expected number of intervals that something which has lived for `age` intervals lives on.
    pub fn rest(&self, age: u64) -> f64 {
        let (mut rest, mut alive) = (0.0, 1.0);
        let mut age = age;
        for class in class(age)..CLASSES {
            let end = begin(class + 1);
            let length = end.saturating_sub(age).max(1);
            let hazard = self.hazard(class);
            // The sum of a geometric series: alive after one interval, after two, ...
            let through = (1.0 - hazard).powi(length as i32);
            rest += alive * (1.0 - through) * (1.0 - hazard) / hazard;
            alive *= through;
            age = end;
        }
        rest
    }

    /// The chance to end in an interval of this class; what was seen counts beside one life that ended when it had
    /// lived as long again.
    fn hazard(&self, class: usize) -> f64 {
        let before = begin(class) as f64 + 2.0;
        ((self.ended[class] + 1.0) / (self.lived[class] + before)).min(1.0)
    }
}

/// Which extents are hot, for how long, and what that teaches.
#[derive(Debug, Clone)]
pub struct Lives {
    /// So many intervals in a row without being hot end a life.
    grace: u64,
    now: u64,
    /// For each that lives, the first and the last interval in which it was hot.
    alive: Map<u32, (u64, u64)>,
    lifetimes: Lifetimes,
}

impl Lives {
    /// A life ends when its extent was not hot for `grace` intervals in a row (at least 1); those do not count as
    /// lived.
    pub fn new(grace: u64) -> Lives {
        Lives {
            grace: grace.max(1),
            now: 0,
            alive: Map::default(),
            lifetimes: Lifetimes::default(),
        }
    }

    /// These were hot in the interval that has just ended; each counts once.
    pub fn interval(&mut self, hot: impl IntoIterator<Item = u32>) {
        let mut seen: Set<u32> = Set::default();
        for extent in hot {
            if !seen.insert(extent) {
                continue;
            }
            let (first, last) = self.alive.entry(extent).or_insert((self.now, self.now));
            // A gap that was shorter than the grace period was lived through as well.
            let already = if *first == self.now {
                0
            } else {
                *last + 1 - *first
            };
            *last = self.now;
            for age in already..=self.now - *first {
                self.lifetimes.lived(age);
            }
        }
        let (now, grace, lifetimes) = (self.now, self.grace, &mut self.lifetimes);
        self.alive.retain(|_, (first, last)| {
            let ends = now - *last >= grace;
            if ends {
                lifetimes.ended(*last - *first);
            }
            !ends
        });
        self.now += 1;
    }

    /// For how many intervals `extent` has been hot; none if it is not.
    pub fn age(&self, extent: u32) -> Option<u64> {
        let (first, last) = self.alive.get(&extent)?;
        Some(last + 1 - first)
    }

    /// For how many more intervals `extent` is expected to be hot; one that is not hot yet counts as new.
    pub fn rest(&self, extent: u32) -> f64 {
        self.lifetimes.rest(self.age(extent).unwrap_or(0))
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.alive.len()
    }

    /// Is no extent alive?
    pub fn is_empty(&self) -> bool {
        self.alive.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_double() {
        let classes: Vec<usize> = (0..16).map(class).collect();
        assert_eq!(classes, [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert!((0..CLASSES).all(|one| class(begin(one)) == one));
        assert_eq!(class(u64::MAX - 1), CLASSES - 1);
    }

    #[test]
    fn until_something_is_known_what_has_lived_lives_as_long_again() {
        let lifetimes = Lifetimes::default();
        for age in [3u64, 10, 40, 160] {
            let rest = lifetimes.rest(age) / age as f64;
            assert!((0.6..6.0).contains(&rest), "{age}: {rest}");
        }
        assert!(lifetimes.rest(u64::MAX - 1).is_finite());
    }

    #[test]
    fn lives_of_always_ten_intervals_are_learned() {
        let mut lives = Lives::new(2);
        for round in 0..400u32 {
            for _ in 0..10 {
                lives.interval([round]);
            }
            lives.interval([]);
            lives.interval([]);
        }
        assert!(lives.is_empty());
        let rest = |age| lives.lifetimes.rest(age);
        // A new one has about ten before it, one of 7 about 3. Nothing is known of an extent that lived for 20.
        assert!((8.0..13.0).contains(&rest(0)), "{}", rest(0));
        assert!(rest(7) < 7.0, "{}", rest(7));
        assert!(rest(20) > 5.0, "{}", rest(20));
    }

    #[test]
    fn a_short_gap_does_not_end_a_life() {
        let mut lives = Lives::new(3);
        lives.interval([7]);
        lives.interval([]);
        lives.interval([]);
        lives.interval([7, 7]);
        assert_eq!(lives.age(7), Some(4));
        for _ in 0..3 {
            lives.interval([]);
        }
        assert_eq!(lives.age(7), None);
        assert_eq!(lives.lifetimes.ended, {
            let mut ended = [0.0; CLASSES];
            ended[class(3)] = 1.0;
            ended
        });
        assert_eq!(lives.lifetimes.lived.iter().sum::<f64>(), 4.0);
    }

    proptest! {
        /// The same from a plain list of what was hot when.
        #[test]
        fn counts_are_those_of_a_plain_list(
            hot in prop::collection::vec(prop::collection::vec(any::<bool>(), 3), 0..60),
            grace in 1u64..4,
        ) {
            let mut lives = Lives::new(grace);
            for of_interval in &hot {
                lives.interval((0..3).filter(|extent| of_interval[*extent as usize]));
            }
            let (mut lived, mut ended) = ([0.0; CLASSES], [0.0; CLASSES]);
            for extent in 0..3 {
                let times: Vec<u64> = (0..hot.len()).filter(|at| hot[*at][extent]).map(|at| at as u64).collect();
                for life in times.chunk_by(|a, b| b - a <= grace) {
                    let (first, last) = (life[0], life[life.len() - 1]);
                    (0..=last - first).for_each(|age| lived[class(age)] += 1.0);
                    if last + grace < hot.len() as u64 {
                        ended[class(last - first)] += 1.0;
                    }
                }
            }
            prop_assert_eq!(lives.lifetimes.lived, lived);
            prop_assert_eq!(lives.lifetimes.ended, ended);
        }

        /// The walk through the classes is the plain sum over intervals.
        #[test]
        fn the_rest_of_a_life_is_the_plain_sum(
            ends in prop::collection::vec((0u64..300, 1u32..9), 0..40),
            age in 0u64..500,
        ) {
            let mut lifetimes = Lifetimes::default();
            for (end, times) in ends {
                for _ in 0..times {
                    (0..=end).for_each(|age| lifetimes.lived(age));
                    lifetimes.ended(end);
                }
            }
            let (mut rest, mut alive) = (0.0, 1.0);
            for age in age..begin(CLASSES) {
                alive *= 1.0 - lifetimes.hazard(class(age));
                rest += alive;
            }
            let got = lifetimes.rest(age);
            prop_assert!((got - rest).abs() <= 1e-6 * rest.max(1.0), "{got} and {rest}");
        }
    }
}

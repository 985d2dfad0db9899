//! On-the-fly tiering: which regions should live on the fast tier, decided minute by minute?
//!
//! ```text
//! one interval of counts -> candidate groups (i, n, m) -> streaks (c) and absences (o) -> moves
//! ```
//!
//! Source: AST 3.2.2, figures 1-4.
//!
//! Always true:
//! 1. The same state and counts give the same moves, in the same order.
//! 2. An interval below `iops_min` changes nothing.
//! 3. A region is never sent to the tier it already lives on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Count, Decision, Interval, Move, Parameters, Reason, Region, TierPolicy, Way};

/// The published decision.
///
/// # Example
/// ```
/// use policy::tier::{Count, Interval, OnTheFly, Parameters, Region, TierPolicy};
/// let parameters = Parameters::default();
/// let mut policy = OnTheFly::new(parameters, 24);
/// let counts = [65, 66, 67].map(|region| Count { region: Region(region), reads: 2_000, writes: 0 });
/// let ups: Vec<usize> = (0..3)
///     .map(|number| {
///         let interval = Interval { number, length: parameters.period, counts: &counts };
///         policy.step(&interval).moves.len()
///     })
///     .collect();
/// assert_eq!(ups, [0, 0, 3]);
/// assert_eq!(policy.residents(), [Region(65), Region(66), Region(67)]);
/// ```
#[derive(Debug, Clone)]
pub struct OnTheFly {
    // Fixed until changed by an administrator.
    parameters: Parameters,
    room: usize,
    // Per interval.
    /// The candidate groups of the last interval that was evaluated, ascending.
    groups: Vec<Group>,
    /// Regions that are up, and for how many intervals in a row each was no candidate.
    up: BTreeMap<Region, u32>,
}

/// Adjacent regions `first..=last` that are candidates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    first: Region,
    last: Region,
    ios: u64,
    /// So many intervals in a row it has been a candidate.
    streak: u32,
    /// It has been judged to move. (Its streak is long enough then, unless the parameters have changed since.)
    moves: bool,
}

impl Group {
    fn holds(&self, region: Region) -> bool {
        (self.first..=self.last).contains(&region)
    }
}

impl OnTheFly {
    /// A rule for a fast tier that holds `room` regions, with nothing up.
    ///
    /// # Panics
    /// If `parameters` do not [check](Parameters::check).
    pub fn new(parameters: Parameters, room: u32) -> OnTheFly {
        parameters.assert();
        OnTheFly {
            parameters,
            room: room as usize,
            groups: Vec::new(),
            up: BTreeMap::new(),
        }
    }

    /// Is `ios` more than the share that the candidates have to exceed?
    fn exceeds_share(&self, ios: u64, all: u64) -> bool {
        // A quotient, not a product: it is rounded as the configured decimal is, so equal shares compare equal.
        ios as f64 * 100.0 / all as f64 > self.parameters.share_min
    }

    /// Steps 2 to 4: the busiest regions, in groups of neighbours; of these, busiest first, as many as exceed
    /// the share. No streaks yet.
    ///
    /// Source: AST 3.2.2.1, figure 1.
    ///
    /// Choice: equal counts, and groups of equal sum: the lower region first. A region without a request is not
    /// considered. If the busiest together do not exceed the share there are no candidates.
    fn candidates(&self, counts: &[Count], all: u64) -> Vec<Group> {
        let mut kept: Vec<Count> = counts.iter().filter(|c| c.all() > 0).copied().collect();
        kept.sort_unstable_by_key(|count| (Reverse(count.all()), count.region));
        kept.truncate(self.parameters.sub_luns_max as usize);
        if !self.exceeds_share(kept.iter().map(Count::all).sum(), all) {
            return Vec::new();
        }
        kept.sort_unstable_by_key(|count| count.region);
        let mut groups: Vec<Group> = kept
            .chunk_by(|one, next| one.region.0 + 1 == next.region.0)
            .map(|neighbours| Group {
                first: neighbours[0].region,
                last: neighbours[neighbours.len() - 1].region,
                ios: neighbours.iter().map(Count::all).sum(),
                streak: 0,
                moves: false,
            })
            .collect();
        groups.sort_unstable_by_key(|group| (Reverse(group.ios), group.first));
        let mut taken = 0;
        let enough = groups.iter().position(|group| {
            taken += group.ios;
            self.exceeds_share(taken, all)
        });
        groups.truncate(enough.map_or(groups.len(), |last| last + 1));
        groups
    }

    /// The groups of the interval before that share a region with `group`.
    fn forebears(&self, group: &Group) -> &[Group] {
        // Groups do not touch and ascend, so those that overlap stand together.
        let begin = self.groups.partition_point(|old| old.last < group.first);
        let end = self.groups.partition_point(|old| old.first <= group.last);
        &self.groups[begin..end]
    }

    /// Regions that stayed away too long go, each on its own.
    ///
    /// Source: AST 3.2.2.3, figures 3 and 4.
    fn demote(&mut self, groups: &[Group], moves: &mut Vec<Move>) {
        let timeout = self.parameters.timeout;
        self.up.retain(|region, absent| {
            let at = groups.partition_point(|group| group.last < *region);
            let is_candidate = groups.get(at).is_some_and(|group| group.holds(*region));
            *absent = if is_candidate { 0 } else { *absent + 1 };
            if *absent >= timeout {
                moves.push(Move {
                    region: *region,
                    way: Way::Down,
                    why: Reason::Absent(*absent),
                });
            }
            *absent < timeout
        });
    }

    /// The members of one group that was judged to move and are not up yet come up, as long as there is room.
    ///
    /// Source: AST 3.2.2.2, figure 2.
    ///
    /// Choice: when the fast tier is full newcomers are skipped, and no region is demoted for them.
    fn promote(&mut self, group: &Group, moves: &mut Vec<Move>) {
        for region in (group.first.0..=group.last.0).map(Region) {
            if self.up.len() >= self.room {
                return;
            }
            if self.up.contains_key(&region) {
                continue;
            }
            let mut forebears = self.forebears(group).iter();
            let was_there = self.forebears(group).iter().any(|old| old.holds(region));
            let why = match forebears.any(|old| old.moves) && !was_there {
                true => Reason::Joined,
                false => Reason::Streak(group.streak),
            };
            moves.push(Move {
                region,
                way: Way::Up,
                why,
            });
            self.up.insert(region, 0);
        }
    }
}

impl TierPolicy for OnTheFly {
    /// # Source
    /// AST 3.2.2.
    ///
    /// Choice: the paper divides by t; the last, shorter interval of a trace is divided by t too. A group's streak
    /// is one more than the longest among the groups of the last evaluated interval that it overlaps; "judged to
    /// move" is inherited the same way and lost after one evaluated interval without overlap. Regions go down,
    /// ascending, before others come up: by group, the busiest first, members ascending.
    fn step(&mut self, interval: &Interval<'_>) -> Decision {
        let all: u64 = interval.counts.iter().map(Count::all).sum();
        // Step 1.
        if (all as f64 / self.parameters.period.secs_f64()) < self.parameters.iops_min {
            return Decision::default();
        }
        // Steps 2 to 4, then step 5: what overlaps a group of before is that group, one interval older.
        let mut by_ios = self.candidates(interval.counts, all);
        for group in &mut by_ios {
            let forebears = self.forebears(group);
            let longest = forebears.iter().map(|old| old.streak).max().unwrap_or(0);
            group.streak = longest.saturating_add(1);
            group.moves =
                group.streak >= self.parameters.streak_min || forebears.iter().any(|old| old.moves);
        }
        let mut groups = by_ios.clone();
        groups.sort_unstable_by_key(|group| group.first);
        // Step 6, then those that are promoted.
        let mut moves = Vec::new();
        self.demote(&groups, &mut moves);
        for group in by_ios.iter().filter(|group| group.moves) {
            self.promote(group, &mut moves);
        }
        let members = |group: &Group| (group.first.0..=group.last.0).map(Region);
        let candidates = groups.iter().flat_map(members).collect();
        self.groups = groups;
        Decision { candidates, moves }
    }

    fn residents(&self) -> Vec<Region> {
        self.up.keys().copied().collect()
    }

    fn set_room(&mut self, regions: u32) {
        self.room = regions as usize;
    }

    fn adopt(&mut self, residents: &[Region]) {
        for region in residents {
            self.up.entry(*region).or_insert(0);
        }
    }

    fn withdrawn(&mut self, region: Region) {
        self.up.remove(&region);
    }

    fn set_parameters(&mut self, parameters: Parameters) {
        parameters.assert();
        self.parameters = parameters;
    }
}

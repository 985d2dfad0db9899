//! Which parts does a reservation need at which stores? Pure.
//!
//! ```text
//! volume, R read, W written, c copies on n stores, t losses tolerated
//!   any      read min(R, 1.25 R/(c-t)), write W                       any pattern of requests, t stores lost
//!   spread   read min(R, 1.25 R/(n-t)), write min(W, 1.25 W c/(n-t))  all extents asked for evenly
//! stores     each R; striped over k: each 1.1 R/k
//! ```
//!
//! The 1.25 and 1.1 are room for chance: requests do not fall on stores quite evenly.

use std::collections::BTreeSet;

use policy::share::Direction;
use vdisk::StoreNumber;

use crate::record::{PlanKind, Promise};

/// What one store is to promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The store.
    pub store: StoreNumber,
    /// Which way.
    pub direction: Direction,
    /// In bytes per second.
    pub rate: u64,
}

/// What becomes of a fraction of a byte per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// At least what was asked.
    Up,
    /// Several together are no more than the whole of which they are: inside an allotment.
    Down,
}

/// The parts of a volume's reservation; none where no store is named.
pub fn of_volume(
    promise: &Promise,
    copies: u8,
    stores: &BTreeSet<StoreNumber>,
    rounding: Rounding,
) -> Vec<Wanted> {
    let (c, n) = (u64::from(copies.max(1)), stores.len() as u64);
    let t = u64::from(promise.tolerate);
    let over = match promise.plan {
        PlanKind::Any => c,
        PlanKind::Spread => n,
    };
    let left = over.saturating_sub(t).max(1);
    // 1.25 times as much, over those that are left.
    let quarter_more = |rate: u64, times: u64| share(rate, (5 * times, 4 * left), rounding);
    let read = promise.read.min(quarter_more(promise.read, 1));
    let write = match promise.plan {
        PlanKind::Any => promise.write,
        PlanKind::Spread => promise.write.min(quarter_more(promise.write, c)),
    };
    at_each(stores.iter().copied(), read, write)
}

/// The parts of a reservation over stores.
pub fn of_stores(
    promise: &Promise,
    stripe: bool,
    stores: &[StoreNumber],
    rounding: Rounding,
) -> Vec<Wanted> {
    let k = stores.len() as u64;
    let each = |rate: u64| match stripe && k > 1 {
        true => rate.min(share(rate, (11, 10 * k), rounding)),
        false => rate,
    };
    let (read, write) = (each(promise.read), each(promise.write));
    at_each(stores.iter().copied(), read, write)
}

/// `rate` times `num` / `den`; of a rate something is left.
fn share(rate: u64, (num, den): (u64, u64), rounding: Rounding) -> u64 {
    let (product, den) = (u128::from(rate) * u128::from(num), u128::from(den.max(1)));
    let part = match rounding {
        Rounding::Up => product.div_ceil(den),
        Rounding::Down => product / den,
    };
    u64::try_from(part)
        .unwrap_or(u64::MAX)
        .max(u64::from(rate > 0 && num > 0))
}

fn at_each(stores: impl Iterator<Item = StoreNumber>, read: u64, write: u64) -> Vec<Wanted> {
    let ways = [(Direction::Read, read), (Direction::Write, write)];
    let of = |store| {
        let part = move |(direction, rate)| Wanted {
            store,
            direction,
            rate,
        };
        ways.into_iter().filter(|(_, rate)| *rate > 0).map(part)
    };
    stores.flat_map(of).collect()
}

/// What of `rate` holds with `lost` of a volume's stores gone, where `tolerate` may be; `over` as in the table.
pub fn left_of(rate: u64, over: u64, tolerate: u8, lost: u64) -> u64 {
    if lost <= u64::from(tolerate) {
        return rate;
    }
    let planned = over.saturating_sub(u64::from(tolerate)).max(1);
    share(rate, (over.saturating_sub(lost), planned), Rounding::Up).min(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(read: u64, write: u64, tolerate: u8, plan: PlanKind) -> Promise {
        Promise {
            read,
            write,
            from: 0,
            until: 1,
            tolerate,
            plan,
            window_ns: 1,
            probability_ppm: 1,
            space: 0,
        }
    }

    fn stores(n: u16) -> BTreeSet<StoreNumber> {
        (1..=n).map(StoreNumber).collect()
    }

    fn rates(all: &[Wanted], direction: Direction) -> Vec<u64> {
        let of = all.iter().filter(|it| it.direction == direction);
        of.map(|it| it.rate).collect()
    }

    #[test]
    fn the_published_example_is_125_at_each_of_three() {
        let ask = promise(200, 0, 1, PlanKind::Any);
        let parts = of_volume(&ask, 3, &stores(3), Rounding::Up);
        assert_eq!(rates(&parts, Direction::Read), [125, 125, 125]);
        assert!(rates(&parts, Direction::Write).is_empty());
    }

    #[test]
    fn any_pattern_costs_more_than_an_even_one_and_never_more_than_all() {
        for (c, n, t) in [(1, 1, 0), (2, 2, 1), (2, 5, 1), (3, 9, 2)] {
            let any = of_volume(
                &promise(1000, 1000, t, PlanKind::Any),
                c,
                &stores(n),
                Rounding::Up,
            );
            let spread = of_volume(
                &promise(1000, 1000, t, PlanKind::Spread),
                c,
                &stores(n),
                Rounding::Up,
            );
            for direction in [Direction::Read, Direction::Write] {
                let (any, spread) = (rates(&any, direction), rates(&spread, direction));
                assert_eq!((any.len(), spread.len()), (n as usize, n as usize));
                assert!(spread.iter().zip(&any).all(|(a, b)| a <= b && *b <= 1000));
                // With t of them lost the others still come to the whole.
                let left = spread.iter().skip(t.into()).sum::<u64>();
                let needed = if direction == Direction::Read {
                    1000
                } else {
                    1000 * u64::from(c)
                };
                assert!(
                    left >= needed.min(1000 * (u64::from(n) - u64::from(t))),
                    "{c} {n} {t} {direction:?} {left}"
                );
            }
        }
        let spread = of_volume(
            &promise(1000, 1000, 1, PlanKind::Spread),
            2,
            &stores(5),
            Rounding::Up,
        );
        assert_eq!(rates(&spread, Direction::Read), [313; 5]);
        assert_eq!(rates(&spread, Direction::Write), [625; 5]);
    }

    #[test]
    fn striped_stores_share_the_rate_with_a_tenth_more() {
        let three: Vec<StoreNumber> = stores(3).into_iter().collect();
        let ask = promise(300, 90, 0, PlanKind::Any);
        assert_eq!(
            rates(
                &of_stores(&ask, true, &three, Rounding::Up),
                Direction::Read
            ),
            [110; 3]
        );
        assert_eq!(
            rates(
                &of_stores(&ask, true, &three, Rounding::Up),
                Direction::Write
            ),
            [33; 3]
        );
        assert_eq!(
            rates(
                &of_stores(&ask, false, &three, Rounding::Up),
                Direction::Read
            ),
            [300; 3]
        );
        assert_eq!(
            rates(
                &of_stores(&ask, true, &three[..1], Rounding::Up),
                Direction::Read
            ),
            [300]
        );
        let most = promise(u64::MAX, 0, 0, PlanKind::Any);
        assert!(
            rates(
                &of_stores(&most, true, &three, Rounding::Up),
                Direction::Read
            )[0] < u64::MAX
        );
    }

    #[test]
    fn losses_within_what_is_tolerated_leave_the_promise_whole() {
        assert_eq!(
            [0, 1, 2, 3].map(|lost| left_of(200, 3, 1, lost)),
            [200, 200, 100, 0]
        );
        assert_eq!([0, 1].map(|lost| left_of(200, 1, 0, lost)), [200, 0]);
    }
}

//! Does what was chosen on accesses of 1 MiB by equation (1) hold for other mixes of requests and bookings, too?
//!
//! ```text
//! mix: bookings with a direction, a request size and a part -> rates by the part set aside -> tags and rounds
//!     -> overhead needed, newcomers ("held-out") -> the tuned claims, judged anew ("held-out claims")
//! ```
//!
//! Which mixes and seeds these are was written down (`experiments/reserve/README.md`) before the first of them ran.
//!
//! Choice: a booking's rate is its part of the device's time: of what one access alone would get with its direction and
//! its request size, less the part set aside. With one size and one direction that is equation (1) with other ratios.
//!
//! Always true: nothing here depends on how the tuned cells came out.

use base::{Bytes, Instant, Nanos};
use policy::share::violations::Window;
use policy::share::{BytesPerSec, Direction, Share, Terms};
use report::{Evidence, Row};

use super::bed::{Client, IO, Method, share};
use super::compare::{BASELINES, NEWCOMER, find, worse_cells};
use super::needed::{Cell, SECOND, TARGETS, case_of, rows_of};
use super::plan::{Found, Piece, Plan, piece, row};
use super::scenes::{OVERHEAD, joined};
use super::single::access_of;

/// The first seed; none of them was run before.
const SEED: u64 = 201;
/// A quarter of the paper's I/O.
const SMALL: Bytes = Bytes::kib(256);
/// The last booking comes so long after the first.
const COMING: u64 = 2_000_000_000;

const TABLE: &str = "held-out";
const CLAIMS: &str = "held-out claims";

/// A part of the device's time for requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Booking {
    direction: Direction,
    io: Bytes,
    parts: u64,
}

/// Bookings that share a device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mix {
    pub(super) name: String,
    bookings: Vec<Booking>,
}

/// All there are.
pub(super) fn mixes() -> Vec<Mix> {
    let mut all = Vec::new();
    for direction in Direction::ALL {
        let of = |io, parts| Booking {
            direction,
            io,
            parts,
        };
        for n in [6, 16] {
            all.push(Mix {
                name: format!("{direction} 256 KiB n={n}"),
                bookings: (1..=n).map(|parts| of(SMALL, parts)).collect(),
            });
        }
        let small = [of(IO, 1); 10];
        all.push(Mix {
            name: format!("{direction} ten small, one of half n=11"),
            bookings: small.into_iter().chain([of(IO, 10)]).collect(),
        });
        let sizes = |n: u64| if n.is_multiple_of(2) { IO } else { SMALL };
        all.push(Mix {
            name: format!("{direction} both sizes n=12"),
            bookings: (1..=12).map(|n| of(sizes(n), n)).collect(),
        });
    }
    let reads = [1, 1, 2, 2, 4].map(|parts| Booking {
        direction: Direction::Read,
        io: SMALL,
        parts,
    });
    let writes = [3, 7].map(|parts| Booking {
        direction: Direction::Write,
        io: IO,
        parts,
    });
    all.push(Mix {
        name: "five reads, two writes n=7".to_owned(),
        bookings: reads.into_iter().chain(writes).collect(),
    });
    all
}

impl Mix {
    /// What each booking's access would get alone.
    pub(super) fn alone(&self, plan: &Plan) -> Vec<BytesPerSec> {
        let mut found: Vec<(Booking, BytesPerSec)> = Vec::new();
        let mut of = |it: &Booking| {
            let alike = |(other, _): &&(Booking, BytesPerSec)| {
                (other.direction, other.io) == (it.direction, it.io)
            };
            if let Some((_, rate)) = found.iter().find(alike) {
                return *rate;
            }
            let rate = access_of(plan, it.direction, it.io);
            found.push((*it, rate));
            rate
        };
        self.bookings.iter().map(&mut of).collect()
    }

    /// The clients with `overhead` percent set aside, one coming after the other.
    pub(super) fn clients(&self, alone: &[BytesPerSec], overhead: f64) -> Vec<Client> {
        let left = u128::from(Share::WHOLE.saturating_sub(share(overhead)).0);
        let parts: u64 = self.bookings.iter().map(|it| it.parts).sum();
        let gaps = self.bookings.len().saturating_sub(1).max(1) as u64;
        let client = |(at, (it, alone)): (usize, (&Booking, &BytesPerSec))| {
            let of = u128::from(parts) * u128::from(Share::WHOLE.0);
            let rate = u128::from(alone.0) * left * u128::from(it.parts) / of;
            let start = Instant(0) + Nanos(COMING * at as u64 / gaps);
            Client::new(
                Terms::reserved(it.direction, BytesPerSec(rate as u64)),
                start,
            )
            .asking(it.io)
        };
        let both = self.bookings.iter().zip(alone);
        both.enumerate().map(client).collect()
    }

    /// Do all read?
    fn is_reads(&self) -> bool {
        self.bookings
            .iter()
            .all(|it| it.direction == Direction::Read)
    }
}

/// The same plan with seeds that played no part in any choice.
pub(super) fn plan(plan: &Plan) -> Plan {
    Plan {
        seed: SEED,
        ..*plan
    }
}

fn work(plan: &Plan, method: &Method, mix: &Mix) -> Found {
    let alone = mix.alone(plan);
    let mut cell = Cell::with(plan, method, mix.name.clone(), |overhead| {
        mix.clients(&alone, overhead)
    });
    let mut rows = rows_of(&mut cell, TABLE, &[0, 1, 2, 3], &TARGETS).rows;
    let clients = mix.clients(&alone, OVERHEAD);
    let rates = clients.iter().zip(&alone);
    let largest = rates.max_by_key(|(client, _)| client.terms.rate.0);
    let largest = largest.map_or(BytesPerSec(1), |(_, alone)| *alone);
    rows.extend(joined(plan, (TABLE, &mix.name), method, &clients, largest).rows);
    for row in &mut rows {
        row.evidence = Evidence::HeldOut;
    }
    Found {
        rows,
        ..Found::default()
    }
}

pub(super) fn pieces(plan: &Plan) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for mix in mixes() {
        let methods = [
            Method::rounds(64),
            Method::rounds_at("rounds-depth3", 3),
            Method::tags("tags", |_| {}),
        ];
        for method in methods {
            let name = format!("{}, {}", mix.name, method.name);
            let mix = mix.clone();
            let work = move || work(plan, &method, &mix);
            pieces.push(piece(TABLE, Some(method.name), name, work));
        }
    }
    pieces
}

/// What must show on the mixes, as on the tuned cells.
pub(super) fn claims(rows: &[Row]) -> Vec<Row> {
    let mixes = mixes();
    let names: Vec<String> = mixes.iter().map(|mix| mix.name.clone()).collect();
    let beside = |baseline: &str| {
        let (bad, note) = worse_cells(rows, TABLE, &names, baseline);
        let case = format!("all mixes: no more overhead than {baseline}");
        let bad = bad.map(|bad| bad as f64);
        claim((&case, "cells_worse", "cells"), 0.0, bad, note)
    };
    let mut all: Vec<Row> = BASELINES.map(beside).to_vec();
    for mix in &mixes {
        let needed = |window| {
            let case = case_of(&mix.name, window, 1.0);
            find(rows, TABLE, &case, "tags", "overhead_percent")
        };
        if mix.is_reads() {
            let most = Window::JUDGED.into_iter().filter_map(needed);
            all.push(claim(
                (
                    &format!("{}: 1 % violated", mix.name),
                    "overhead_percent",
                    "percent",
                ),
                5.0,
                most.reduce(f64::max),
                "the most over windows; as for reads of up to 16 accesses".to_owned(),
            ));
        }
        all.push(claim(
            (
                &format!("{}: windows of a second", mix.name),
                "overhead_percent",
                "percent",
            ),
            15.0,
            needed(SECOND),
            "for 1 % violated; holds where 15 % or less is enough".to_owned(),
        ));
        let lag = |metric| find(rows, TABLE, &mix.name, "tags", metric);
        all.push(claim(
            (&format!("{}: {NEWCOMER}", mix.name), "lag_kib", "KiB"),
            lag("bound_kib").unwrap_or(f64::NAN),
            lag("lag_kib"),
            "the most behind in its first second; a quantum is 256 KiB".to_owned(),
        ));
    }
    all
}

/// A claim that ours is at most the bar.
fn claim(
    (case, metric, unit): (&str, &str, &str),
    bar: f64,
    ours: Option<f64>,
    note: String,
) -> Row {
    row(CLAIMS, case, "tags", metric, unit, ours)
        .evidence(Evidence::HeldOut)
        .claimed(bar, ours.is_some_and(|ours| ours <= bar))
        .noted(note)
}

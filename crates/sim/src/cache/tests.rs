//! Do simulations miss exactly where others' do? Public traces, published counts, through the readers.

use policy::cache::Kind;

use super::*;
use trace::{ReadOptions, open};

/// A shared trace in compact form; `None` where traces are absent and not required.
fn shared(name: &str, unit: Unit) -> Option<Compact> {
    let path = testkit::traces::shared(name)?;
    let mut trace = open(&path, &ReadOptions::default()).expect("the shared trace opens");
    let loaded = Compact::load(&mut trace, unit, Ops::All, &mut |_| ());
    Some(loaded.expect("the shared trace is whole"))
}

fn cloudphysics(unit: Unit) -> Option<Compact> {
    shared("cloudphysics/cloudPhysicsIO.vscsi.zst", unit)
}

#[test]
fn cloudphysics_misses_exactly_as_published() {
    let Some(trace) = cloudphysics(Unit::Request) else {
        return;
    };
    assert_eq!((trace.requests(), trace.footprint()), (113_872, 48_974));
    let plan = Plan {
        methods: Method::list("lru,fifo,clock,sieve").expect("all are policies"),
        sizes: [500, 2_000, 4_897, 20_000].map(Size::Objects).to_vec(),
        mode: Mode::default(),
    };
    let rows = plan.run(&trace, &|_, _| ()).expect("the sizes fit");
    let misses: Vec<u64> = rows.iter().map(|row| row.misses).collect();
    let published = [
        [95_398, 94_189, 91_657, 72_053],
        [96_483, 94_588, 91_716, 72_229],
        [95_293, 94_081, 91_599, 72_151],
        [94_379, 93_411, 90_040, 64_431],
    ];
    assert_eq!(misses, published.concat());
    // One percent of 48,974 objects and 490 of them are the same.
    assert_eq!(Size::Percent(10.0).objects(&trace), Ok(4_897));
}

#[test]
fn the_bound_on_cloudphysics_is_the_published_one() {
    let Some(trace) = cloudphysics(Unit::Request) else {
        return;
    };
    let future = Future::of(&trace);
    let least = future.misses(&trace, 4_897, Bound::Demand);
    assert_eq!(format!("{:.4}", least.miss_ratio()), "0.6290");
    let refusing = future.misses(&trace, 4_897, Bound::Refusing);
    assert!(refusing.misses <= least.misses);
    for kind in Kind::ALL {
        let counters = simulate(&trace, kind, 4_897, Mode::default());
        assert!(counters.misses > least.misses, "{kind}");
    }
}

#[test]
fn lru_hits_on_the_oltp_pages_as_its_authors_published() {
    let Some(trace) = shared("arc/OLTP.lis.zst", Unit::Block(base::Bytes(512))) else {
        return;
    };
    assert_eq!(trace.accesses(), 914_145);
    let curve = exact_lru(&trace);
    let percent = [1_000, 2_000, 5_000, 10_000, 15_000].map(|pages| {
        let counters = simulate(&trace, Kind::Lru, pages, Mode::default());
        let one_pass = curve.at(pages as f64).miss_ratio;
        assert!((one_pass - counters.miss_ratio()).abs() < 1e-12);
        format!("{:.2}", 100.0 * (1.0 - counters.miss_ratio()))
    });
    assert_eq!(percent, ["32.83", "42.47", "53.65", "60.70", "64.63"]);
}

/// The mean and the greatest error of one-percent samples, over ten of them.
fn errors(trace: &Compact) -> (f64, f64) {
    let exact = exact_lru(trace);
    let errors: Vec<f64> = (0..10)
        .map(|seed| exact.mean_difference(&Part::draw(trace, 0.01, seed).lru(trace)))
        .collect();
    let greatest = errors.iter().copied().fold(0.0, f64::max);
    (errors.iter().sum::<f64>() / 10.0, greatest)
}

#[test]
fn one_percent_of_a_real_traces_blocks_give_its_curve_within_a_hundredth() {
    for unit in [Unit::Request, Unit::PAGE] {
        let Some(trace) = cloudphysics(unit) else {
            return;
        };
        let (mean, greatest) = errors(&trace);
        println!(
            "{unit}: {} objects, mean error {mean:.4}, greatest {greatest:.4}",
            trace.footprint()
        );
        assert!(
            greatest < 0.01,
            "{unit}: mean {mean:.4}, greatest {greatest:.4}"
        );
    }
}

#[test]
fn a_curve_is_simulated_at_every_size_that_tables_show() {
    use trace::{Op, Request};
    let mut rng = env::Rng::from_seed(9);
    let mut builder = Builder::new(Unit::PAGE, Ops::All);
    for n in 0..20_000u64 {
        // A hot part, and a scan that comes round.
        let page = match n % 3 {
            0 => 1_000 + n / 3 % 2_300,
            _ => {
                let most = 1 + rng.below(1_000);
                rng.below(most)
            }
        };
        let request = Request {
            at: base::Nanos(n),
            offset: base::Bytes(page * 4096),
            size: base::Bytes(4096),
            device: 0,
            op: Op::Read,
        };
        builder.push(&request).expect("a page is an access");
    }
    let trace = builder.finish().expect("there are reads");
    let methods = Method::list("lru,s3-fifo,arc,belady").expect("all are methods");
    let curves = Curves {
        methods: methods.clone(),
        mode: Mode::default(),
        rate: Some(1.0),
        seed: 1,
    };
    let curves = curves.run(&trace, &|_, _| ());
    let plan = Plan {
        methods,
        sizes: SHARES.map(Size::Percent).to_vec(),
        mode: Mode::default(),
    };
    let rows = plan.run(&trace, &|_, _| ()).expect("the sizes fit");
    for (curve, rows) in curves.iter().zip(rows.chunks(SHARES.len())) {
        for row in rows {
            let on_curve = curve.curve.at(row.objects as f64);
            let near = |one: f64, other: f64| (one - other).abs() < 1e-12;
            assert!(
                near(on_curve.miss_ratio, row.miss_ratio)
                    && near(on_curve.byte_miss_ratio, row.byte_miss_ratio),
                "{} at {}: {on_curve:?}, simulated {}",
                row.policy,
                row.size,
                row.miss_ratio
            );
        }
    }
    let sizes = curves[1].curve.points().len() - 1;
    assert!((32..=44).contains(&sizes), "{sizes}");
    assert_eq!(curves[0].origin(), "exact curve");
    assert_eq!(
        curves[1].origin(),
        format!("simulated at {sizes} sizes, lines between")
    );
}

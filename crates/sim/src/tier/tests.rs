//! Rows by hand, the generated workloads against the figures of docs/generator.md, and what is refused.

use super::*;
use testkit::on_the_fly::OnTheFly;
use trace::Requests;
use trace::generate::{Generator, Part, Profile, Settings};

fn request(at: Nanos, region: u64, op: Op) -> Request {
    Request {
        at,
        offset: Bytes::gib(region - 1) + Bytes(512),
        size: Bytes::mib(2),
        device: 0,
        op,
    }
}

/// Runs `requests`, each a second, a region and how many.
fn run(options: Options, requests: &[(u64, u64, u64)]) -> (Vec<Row>, Summary) {
    let mut simulation = Simulation::new(options).unwrap();
    let mut rows = Vec::new();
    for (second, region, times) in requests {
        for n in 0..*times {
            let op = if n % 2 == 0 { Op::Read } else { Op::Write };
            let request = request(Nanos::secs(*second), *region, op);
            simulation
                .push(&request, &mut |row| rows.push(row))
                .unwrap();
        }
    }
    let summary = simulation.finish(&mut |row| rows.push(row));
    (rows, summary)
}

fn one_interval() -> Options {
    Options {
        parameters: Parameters {
            streak_min: 1,
            timeout: 2,
            iops_min: 0.0,
            ..Parameters::default()
        },
        ..Options::default()
    }
}

/// An interval: its number, its requests, what is promoted, what is demoted, what is fast.
type Short<'a> = (u64, u64, &'a [u32], &'a [u32], &'a [u32]);

#[test]
fn empty_intervals_and_the_last_partial_one_have_rows() {
    let (rows, summary) = run(
        one_interval(),
        &[(0, 5, 10), (59, 5, 10), (60, 5, 4), (250, 7, 1)],
    );
    let short: Vec<Short<'_>> = rows
        .iter()
        .map(|row| {
            (
                row.interval,
                row.ios,
                &row.up[..],
                &row.down[..],
                &row.resident[..],
            )
        })
        .collect();
    let expected: [Short<'_>; 5] = [
        (0, 20, &[5], &[], &[5]),
        (1, 4, &[], &[], &[5]),
        (2, 0, &[], &[], &[5]),
        (3, 0, &[], &[5], &[]),
        (4, 1, &[7], &[], &[7]),
    ];
    assert_eq!(short, expected);
    let expected = Summary {
        intervals: 5,
        ios: 25,
        // The four of the second interval.
        resident_ios: 4,
        up: 2,
        down: 1,
        resident_max: 1,
    };
    assert_eq!(summary, expected);
    assert!((summary.resident_share() - 0.16).abs() < 1e-12);
}

#[test]
fn a_request_counts_once_and_in_the_region_of_its_first_byte() {
    let mut simulation = Simulation::new(one_interval()).unwrap();
    let mut rows = Vec::new();
    let mut last = request(Nanos(0), 3, Op::Write);
    last.offset = Bytes::gib(3) - Bytes(512);
    for one in [
        last,
        request(Nanos(0), 9, Op::Flush),
        request(Nanos(0), 9, Op::Discard),
        request(Nanos::secs(60), 9, Op::Flush),
    ] {
        simulation.push(&one, &mut |row| rows.push(row)).unwrap();
    }
    let summary = simulation.finish(&mut |row| rows.push(row));
    assert_eq!((rows[0].ios, &rows[0].candidates[..]), (1, &[3][..]));
    // A flush is no request of a region, but time goes on.
    assert_eq!((rows.len(), summary.intervals, summary.ios), (2, 2, 1));
}

#[test]
fn nothing_comes_of_nothing() {
    let (rows, summary) = run(Options::default(), &[]);
    assert_eq!((rows.len(), summary), (0, Summary::default()));
    assert_eq!(summary.resident_share(), 0.0);
}

#[test]
fn a_row_in_json_has_these_fields_in_this_order() {
    let (rows, _) = run(one_interval(), &[(0, 65, 3)]);
    assert_eq!(
        serde_json::to_string(&rows[0]).unwrap(),
        r#"{"interval":0,"ios":3,"candidates":[65],"up":[65],"down":[],"resident":[65]}"#
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let good = Options::default();
    let period = |period| Options {
        parameters: Parameters {
            period,
            ..good.parameters
        },
        ..good
    };
    #[rustfmt::skip]
    let refused = [
        (period(Nanos(0)), "period is 0"),
        (period(Nanos(999_999)), "period is 1000.00 us, less than 1 ms"),
        (Options { region: Bytes::mib(3), ..good }, "region is 3145728 bytes"),
        (Options { region: Bytes(1 << 19), ..good }, "region is 524288 bytes"),
        (Options { region: Bytes(0), ..good }, "region is 0 bytes"),
        (Options { fast_regions: 0, ..good }, "fast_regions is 0"),
    ];
    for (options, why) in refused {
        let said = Simulation::new(options).err().unwrap().to_string();
        assert!(said.starts_with(why), "{said}");
        assert!(Window::new(options).is_err());
    }
}

#[test]
fn requests_that_cannot_be_counted_are_errors() {
    let options = Options {
        region: Bytes::mib(1),
        ..Options::default()
    };
    let mut simulation = Simulation::new(options).unwrap();
    let mut one = request(Nanos(0), 1, Op::Read);
    one.offset = Bytes(u64::MAX);
    let said = simulation.push(&one, &mut |_| {}).unwrap_err().to_string();
    assert!(said.contains("choose larger regions"), "{said}");
    one.device = 4;
    let said = simulation.push(&one, &mut |_| {}).unwrap_err().to_string();
    assert!(
        said.contains("device 0 and on device 4") && said.contains("--device 0"),
        "{said}"
    );
}

fn generated(profile: Profile, part: Part, mut visit: impl FnMut(&Request)) {
    let settings = Settings {
        part: Some(part),
        ..Settings::default()
    };
    let mut trace = Generator::new(profile, &settings).unwrap();
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch).unwrap() {
        batch.iter().for_each(&mut visit);
    }
}

/// The published decision on a generated window, minute by minute against the plain one of the generator's tests;
/// and static tiering given the window before.
fn figures(profile: Profile) -> (Summary, Summary) {
    let options = Options::default();
    let mut reference = OnTheFly::default();
    let mut counts = vec![0u32; 293];
    let mut check = |row: Row, counts: &mut Vec<u32>| {
        reference.step(counts);
        let up: Vec<u32> = reference.up.keys().map(|region| region + 1).collect();
        assert_eq!(row.resident, up, "{profile}, interval {}", row.interval);
        counts.fill(0);
    };
    let fixed = Options {
        kind: Kind::Static,
        parameters: Parameters {
            window: Some(Nanos::secs(24 * 3600)),
            ..Parameters::default()
        },
        ..options
    };
    let mut before = Window::new(fixed).unwrap();
    generated(profile, Part::Before, |one| before.push(one).unwrap());
    let mut placed = Simulation::placed(fixed, &before).unwrap();
    let mut simulation = Simulation::new(options).unwrap();
    generated(profile, Part::Window, |one| {
        placed.push(one, &mut |_| {}).unwrap();
        let end = &mut |row| check(row, &mut counts);
        simulation.push(one, end).unwrap();
        counts[(one.offset.0 >> 30) as usize] += 1;
    });
    let summary = simulation.finish(&mut |row| check(row, &mut counts));
    (summary, placed.finish(&mut |_| {}))
}

#[test]
fn the_published_decision_gets_its_shares_of_the_generated_workloads() {
    let (first, second) = rayon::join(|| figures(Profile::Src1_0), || figures(Profile::Src1_1));
    for ((moving, fixed), (share, most, beaten_by)) in [first, second]
        .into_iter()
        .zip([(0.278, 16, 0.2), (0.495, 22, 0.4)])
    {
        println!("{moving:?}\n{fixed:?}");
        assert!(
            (moving.resident_share() - share).abs() < 0.0006,
            "{moving:?}"
        );
        assert_eq!(moving.resident_max, most);
        // Published for static tiering: 1 %.
        assert!((fixed.resident_share() - 0.010).abs() < 0.0006, "{fixed:?}");
        assert!(moving.resident_share() > fixed.resident_share() + beaten_by);
        assert_eq!((fixed.up, fixed.down, fixed.resident_max), (0, 0, 24));
    }
}

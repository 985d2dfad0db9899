//! Are the figures what plain code, and counting by hand, finds?

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn request(at_ms: u64, op: Op, offset: u64, size: u64, device: u32) -> Request {
    Request {
        at: Nanos::millis(at_ms),
        offset: Bytes(offset),
        size: Bytes(size),
        device,
        op,
    }
}

fn summary(requests: &[Request], options: Options) -> Summary {
    let mut statistics = Statistics::new(options).expect("sane options");
    statistics.add(requests).expect("a small trace");
    statistics.finish().expect("requests")
}

#[test]
fn a_small_trace_by_hand() {
    let requests = [
        request(0, Op::Read, 0, 4096, 0),
        request(10_000, Op::Read, 4096, 8192, 0),
        request(30_000, Op::Write, 1 << 30, 512, 0),
        request(61_000, Op::Write, (1 << 30) + 512, 512, 3),
        request(62_000, Op::Flush, 0, 0, 0),
        request(120_000, Op::Discard, 5 << 30, 1 << 30, 0),
    ];
    let result = summary(
        &requests,
        Options {
            min_io: 2,
            ..Options::default()
        },
    );
    assert_eq!(
        (
            result.totals.requests,
            result.totals.span_s,
            result.totals.devices
        ),
        (6, 120.0, 2)
    );
    assert_eq!(
        (
            result.totals.read_pct,
            result.totals.read_bytes_pct,
            result.totals.mean_size
        ),
        (50.0, 92.31, 3328)
    );
    assert_eq!(
        (result.extent.regions_touched, result.extent.regions_total),
        (3, 6 + 2)
    );
    assert_eq!(
        (result.extent.max_offset_gib, result.extent.touched_1mib_gib),
        (6.0, 0.003)
    );
    assert_eq!(
        result.extent.footprint.pages_gib,
        rounded(5.0 * 4096.0 / GIB, 6)
    );
    assert_eq!(
        (result.rates.iops_mean, result.rates.iops_peak_minute),
        (Some(0.05), Some(0.05))
    );
    assert_eq!(result.minutes.iops_per_minute, [3, 2, 1]);
    assert_eq!(result.rates.bytes_per_second_peak_minute, Some(213.0));
    assert_eq!(
        (
            result.alignment.aligned_4kib_pct,
            result.alignment.offset_aligned_4kib_pct
        ),
        (50.0, 75.0)
    );
    let order = result.order.sequentiality.expect("reads and writes");
    assert_eq!(
        (order.sequential_pct, order.runs, order.run_max),
        (25.0, 3, 2)
    );
    let gaps = result.order.interarrival.expect("several requests");
    assert_eq!((gaps.mean_ms, gaps.max_ms), (24_000.0, 58_000.0));
    // Gaps 10, 20, 31, 1, 58 s: mean 24, standard deviation 19.73.
    assert_eq!(gaps.cv, Some(0.822));
    assert_eq!(
        result.ops.discard,
        OpFigures {
            requests: 1,
            bytes: 1 << 30
        }
    );
    assert_eq!(result.series.reads.iter().sum::<u64>(), 2);
    assert_eq!(result.series.others.iter().sum::<u64>(), 2);
    assert_eq!(
        (result.per_window.windows_busy, result.windows[0].requests),
        (1, 3)
    );
    assert_eq!(result.per_window.top.top1pct_share_mean, Some(0.667));
    assert_eq!(result.hottest.whole_trace_top1pct_share, Some(0.5));
}

#[test]
fn times_that_run_backwards_count_as_at_the_last_moment() {
    let result = summary(
        &[
            request(0, Op::Read, 0, 512, 0),
            request(100_000, Op::Read, 0, 512, 0),
            request(50_000, Op::Read, 0, 512, 0),
        ],
        Options::default(),
    );
    assert_eq!(
        (result.totals.span_s, result.minutes.iops_per_minute),
        (100.0, vec![1, 2])
    );
}

#[test]
fn the_far_end_of_addresses_and_time_is_no_trouble() {
    let mut requests = vec![request(0, Op::Read, 1 << 63, 4096, 7)];
    let mut last = request(0, Op::Write, u64::MAX, u64::MAX, u32::MAX);
    last.at = Nanos(u64::MAX);
    requests.extend([last, last, last]);
    let result = summary(
        &requests,
        Options {
            region: Bytes(4096),
            window: Nanos(1),
            min_io: 1,
        },
    );
    assert_eq!(
        (result.totals.requests, result.extent.regions_touched),
        (4, 2)
    );
    assert!(result.heat.rows.len() <= 256 && result.minutes.iops_per_minute.len() <= 1 << 16);
    let json = serde_json::to_string(&result).expect("serializes");
    assert!(json.len() < 1 << 20, "{}", json.len());
}

#[test]
fn nothing_is_refused_with_a_reason() {
    let refused = |options| Statistics::new(options).expect_err("zero").to_string();
    let no_region = Options {
        region: Bytes(0),
        ..Options::default()
    };
    assert_eq!(
        refused(no_region),
        "a region of 0 makes no sense; give one above 0"
    );
    let no_window = Options {
        window: Nanos(0),
        ..Options::default()
    };
    assert_eq!(
        refused(no_window),
        "a window of 0 makes no sense; give one above 0"
    );
    let empty = Statistics::new(Options::default()).expect("sane").finish();
    assert_eq!(
        empty.expect_err("empty").to_string(),
        "the trace has no requests"
    );
}

#[test]
fn more_devices_than_are_counted_apart_end_it() {
    let mut statistics = Statistics::new(Options::default()).expect("sane");
    let mut last = Ok(());
    for device in 0..=DEVICES_MAX as u32 {
        // A flush opens no tables.
        last = statistics.add(&[request(0, Op::Flush, 0, 0, device)]);
    }
    let message = last.expect_err("one too many").to_string();
    assert!(
        message.starts_with("the trace has more than 131072 devices"),
        "{message}"
    );
}

/// `concentration` and its surroundings, written down plainly with all requests at hand.
fn plain(requests: &[Request], options: Options) -> BTreeMap<&'static str, Option<f64>> {
    let mut result = BTreeMap::new();
    let ends = requests
        .iter()
        .fold(BTreeMap::new(), |mut ends: BTreeMap<u32, u64>, one| {
            let end = ends.entry(one.device).or_default();
            *end = (*end).max(one.offset.0 + one.size.0);
            ends
        });
    let regions: u64 = ends
        .values()
        .map(|end| end.div_ceil(options.region.0))
        .sum();
    result.insert("regions_total", Some(regions as f64));
    let top = ((regions as f64 * 0.01).ceil() as usize).max(1);
    let mut windows: BTreeMap<u64, BTreeMap<(u32, u64), u64>> = BTreeMap::new();
    for one in requests {
        let window = windows.entry(one.at.0 / options.window.0).or_default();
        *window
            .entry((one.device, one.offset.0 / options.region.0))
            .or_default() += 1;
    }
    windows.retain(|_, counts| counts.values().sum::<u64>() >= options.min_io);
    result.insert("windows_busy", Some(windows.len() as f64));
    let mut hot: BTreeMap<(u32, u64), BTreeMap<u64, u64>> = BTreeMap::new();
    let (mut shares, mut all) = (0.0, 0.0);
    for (window, counts) in &windows {
        let mut ranked: Vec<_> = counts.iter().map(|(place, n)| (*n, *place)).collect();
        ranked.sort_by_key(|(n, place)| (std::cmp::Reverse(*n), *place));
        ranked.truncate(top);
        shares += ranked.iter().map(|(n, _)| *n as f64).sum::<f64>();
        let total: u64 = counts.values().sum();
        all += total as f64;
        for (n, place) in ranked {
            if counts.len() == 1 || n as f64 >= 2.0 * total as f64 / counts.len() as f64 {
                hot.entry(place).or_default().insert(*window, n);
            }
        }
    }
    result.insert("top1", (all > 0.0).then(|| rounded(shares / all, 3)));
    result.insert("hot_regions", Some(hot.len() as f64));
    let (mut io, mut io3, mut starts) = (0, 0, BTreeSet::new());
    for (place, by) in &hot {
        let windows: Vec<u64> = by.keys().copied().collect();
        for run in windows.chunk_by(|a, b| a + 1 == *b) {
            let amount: u64 = run.iter().map(|window| by[window]).sum();
            io += amount;
            io3 += amount * u64::from(run.len() >= 3);
            starts.insert((run[0], *place));
        }
    }
    result.insert("io3", (io > 0).then(|| rounded(io3 as f64 / io as f64, 3)));
    let first = starts.first().map_or(0, |(window, _)| *window);
    let new: Vec<_> = starts
        .iter()
        .filter(|(window, _)| *window > first)
        .collect();
    let back = new
        .iter()
        .filter(|(window, place)| hot[place].range(..window).count() > 0);
    let near = new.iter().filter(|(window, (device, region))| {
        [region.wrapping_sub(1), region + 1].iter().any(|next| {
            hot.get(&(*device, *next))
                .is_some_and(|by| by.contains_key(&(window - 1)))
        })
    });
    let share = |n: usize| (!new.is_empty()).then(|| rounded(n as f64 / new.len() as f64, 3));
    result.insert("revisit", share(back.count()));
    result.insert("adjacent", share(near.count()));
    result
}

prop_compose! {
    /// Some minutes over a handful of regions, so that hot spots come, stay, go and return.
    fn traces()(steps in prop::collection::vec((0u64..9_000, 0u64..40, 0u32..2, 0u64..8), 1..300))
        -> Vec<Request>
    {
        let mut at = 0;
        let mut favourite = 0;
        steps.into_iter().map(|(gap, region, device, mood)| {
            at += gap;
            if mood == 0 {
                favourite = region;
            }
            let region = if mood < 6 { favourite } else { region };
            request(at, Op::Read, region << 20, 4096, device)
        }).collect()
    }
}

proptest! {
    #[test]
    fn concentration_is_what_plain_code_finds_however_the_trace_is_cut(
        requests in traces(), cut in 1usize..50, min_io in 1u64..6,
    ) {
        let options = Options { region: Bytes::mib(1), min_io, ..Options::default() };
        let mut statistics = Statistics::new(options).expect("sane");
        for batch in requests.chunks(cut) {
            statistics.add(batch).expect("small");
        }
        let result = statistics.finish().expect("requests");
        prop_assert_eq!(&result, &summary(&requests, options));
        let figures = &result.per_window;
        let found = BTreeMap::from([
            ("regions_total", Some(result.extent.regions_total as f64)),
            ("windows_busy", Some(figures.windows_busy as f64)),
            ("top1", figures.top.top1pct_share_mean),
            ("hot_regions", Some(figures.hot.hot_regions as f64)),
            ("io3", figures.runs.hot_io_in_runs_ge3),
            ("revisit", figures.hot.hot_starts_revisit),
            ("adjacent", figures.hot.hot_starts_adjacent),
        ]);
        prop_assert_eq!(found, plain(&requests, options));
        let sum: u64 = result.minutes.iops_per_minute.iter().sum();
        prop_assert_eq!(sum, result.totals.requests);
        let drawn: u32 = result.heat.rows.iter().flat_map(|row| &row.counts).sum();
        prop_assert_eq!(u64::from(drawn), result.totals.requests);
    }
}

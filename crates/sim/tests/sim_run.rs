//! A real trace on whole stacks: the same figures twice, and sums that hold.

use base::Bytes;
use device::model::Spec;
use sim::run::{Fit, Layout, Made, Modelled, Outcome, Pace, Replay, Stack, Survey, run};
use trace::{ReadOptions, open};

fn stacks() -> [Stack; 2] {
    let hdd = Spec::find("hdd-7200-sata").unwrap();
    let bare = Stack::bare("hdd", &hdd, Bytes::gib(32));
    let mut cached = bare.clone();
    cached.name = "cache".to_owned();
    cached.volume = "vol".to_owned();
    cached.devices.push(Modelled {
        name: "ssd".to_owned(),
        spec: Spec::find("ssd-sata-mlc").unwrap(),
        size: Bytes::gib(4),
    });
    cached.hybrids.push(Made {
        settings: hybrid::Settings {
            name: "vol".to_owned(),
            ..hybrid::Settings::default()
        },
        slow: "hdd".to_owned(),
        fast: "ssd".to_owned(),
    });
    [bare, cached]
}

#[test]
fn the_cloudphysics_trace_runs_on_whole_stacks() {
    let Some(path) = testkit::traces::shared("cloudphysics/cloudPhysicsIO.vscsi.zst") else {
        return;
    };
    let options = ReadOptions::default();
    let opened = || open(&path, &options).unwrap();
    let survey = Survey::of(&mut opened(), None, None, &mut |_| {})
        .unwrap()
        .unwrap();
    // As measured apart from us: requests, and seconds.
    assert_eq!(survey.requests, 113_872);
    assert!((survey.span.secs_f64() - 7200.09).abs() < 0.01);
    let layout = Layout::of(&survey, None, Fit::Refuse).unwrap();
    assert!(layout.needed() > Bytes::gib(31) && layout.needed() <= Bytes::gib(32));
    let [bare, cached] = stacks();
    let replay = |pace| Replay {
        pace,
        layout: layout.clone(),
        ..Replay::default()
    };
    let go = |stack: &Stack, pace| run(stack, &mut opened(), &replay(pace)).unwrap();

    // As recorded: as long as the trace, whatever it runs on.
    let open_loop = Pace::Open { speed: 1.0 };
    let slow = go(&bare, open_loop);
    let fast = go(&cached, open_loop);
    let mean = |outcome: &Outcome| outcome.response("all").unwrap().mean_us;
    for outcome in [&slow, &fast] {
        assert_eq!(outcome.counts.requests, 113_872);
        assert_eq!(
            (outcome.counts.reads * 10_000).div_ceil(outcome.counts.requests),
            4_126
        );
        assert!(
            (7200.0..7205.0).contains(&outcome.speed.seconds),
            "{}",
            outcome.speed.seconds
        );
        assert_eq!(outcome.counts.left_out.sum(), 0);
        assert!((72..=360).contains(&outcome.series.points.len()));
    }
    assert_eq!(slow.counts.read_bytes, fast.counts.read_bytes);
    assert!(
        mean(&fast) < mean(&slow),
        "{} against {} us",
        mean(&fast),
        mean(&slow)
    );
    let cache = &fast.caches[0];
    assert_eq!(cache.hit_bytes + cache.miss_bytes, fast.counts.read_bytes);
    assert_eq!(cache.status.upkeep.bad_checksums, 0);
    assert!(cache.hit_share.unwrap() > 0.1);

    // As fast as possible, twice.
    let closed = Pace::Closed { depth: 16 };
    let first = go(&cached, closed);
    assert!(first.speed.seconds < 7200.0 / 10.0);
    let json = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
    assert_eq!(json(&first), json(&go(&cached, closed)));
}

//! Who makes samples, for whom, and until when.

use http_body_util::BodyExt;

use super::*;
use crate::api::figures::{Latency, Operation};
use crate::daemon::http::document_tests::control;

/// A daemon without threads, and what makes its samples.
struct Bed {
    control: Arc<Control>,
    sampler: Arc<Sampler>,
}

fn run(scene: impl AsyncFnOnce(Bed)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let (control, sampler) = (control(), Arc::default());
        scene(Bed { control, sampler }).await;
    });
}

impl Bed {
    fn is_running(&self) -> bool {
        let task = self.sampler.task.lock().expect("no panic");
        task.is_some()
    }

    /// The stream that a client gets.
    async fn open(&self, samples: Option<u64>) -> Body {
        let (control, sampler) = (Arc::clone(&self.control), Arc::clone(&self.sampler));
        let asked = Ok(Query(EventsAsk { samples }));
        let answer = get_events(State(control), Extension(sampler), asked).await;
        answer.unwrap_or_else(|_| panic!("refused")).into_body()
    }
}

async fn next(stream: &mut Body) -> Bytes {
    let frame = stream.frame().await.expect("it goes on");
    let frame = frame.expect("no error");
    frame.into_data().expect("data")
}

#[test]
fn viewers_share_one_sampler_and_each_sample_and_none_is_made_for_none() {
    run(async |bed| {
        assert!(!bed.is_running(), "before any viewer");
        let (mut one, mut two) = (bed.open(None).await, bed.open(None).await);
        let (first, second) = (next(&mut one).await, next(&mut two).await);
        assert_eq!(first.as_ptr(), second.as_ptr(), "the same bytes");
        let text = std::str::from_utf8(&first).expect("text");
        let data = text.strip_prefix("data: ").expect("an event");
        assert!(data.ends_with("\n\n"), "{text:?}");
        let sample: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(sample["seconds"], 0.0, "it has no rates yet");
        assert_ne!(next(&mut one).await, first, "a second later");
        drop(one);
        next(&mut two).await;
        assert!(bed.is_running(), "for the one that is left");
        drop(two);
        while bed.is_running() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(bed.sampler.newest.receiver_count(), 0);
        // Who comes then starts it anew.
        next(&mut bed.open(None).await).await;
        assert!(bed.is_running());
    });
}

#[test]
fn a_viewer_that_does_not_read_holds_up_no_other() {
    run(async |bed| {
        let (slow, mut quick) = (bed.open(None).await, bed.open(None).await);
        let mut before = next(&mut quick).await;
        for _ in 0..3 {
            let now = next(&mut quick).await;
            assert_ne!(now, before);
            before = now;
        }
        drop(slow);
    });
}

#[test]
fn a_stream_ends_after_as_many_samples_as_were_asked_for() {
    run(async |bed| {
        let body = bed.open(Some(2)).await;
        let whole = body.collect().await.expect("it ends").to_bytes();
        let text = String::from_utf8(whole.to_vec()).expect("text");
        assert_eq!(text.matches("data: ").count(), 2, "{text}");
    });
}

/// What was asked in the first `seconds`: so many reads of 1 byte, each of which took so long.
fn figures(seconds: u64, reads: u64, took_ns: u64) -> Counters {
    let operation = Operation {
        op: "read".to_owned(),
        class: "foreground".to_owned(),
        requests: reads,
        bytes: reads,
        errors: 0,
        abandoned: 0,
        latency: Latency {
            buckets: vec![(took_ns, reads)],
            ..Latency::default()
        },
    };
    Counters {
        over_ns: seconds * 1_000_000_000,
        operations: vec![operation],
        ..Counters::default()
    }
}

fn hybrid(name: &str, slow: &str, figures: Counters) -> Volume {
    let cache = crate::api::volume::Cache::from(&hybrid::Status::default());
    let json = serde_json::json!({
        "name": name, "size_bytes": 1, "slow": slow, "fast": "ssd0", "health": "healthy", "why": "",
        "settings": {"mode": "cache", "policy": "lru", "write": "back", "admission": "always", "block_bytes": 4096,
            "sequential_bypass_bytes": null, "dirty_low": 1, "dirty_high": 2, "energy": false, "age_limit_seconds": null,
            "standby_after_seconds": null, "flash_writes_per_day_bytes": null, "fast_size_bytes": null},
        "cache": serde_json::to_value(cache).expect("it is JSON"), "figures": figures,
    });
    serde_json::from_value(json).expect("it is a volume")
}

/// A daemon with these hybrids, and virtual disks open by their numbers.
async fn look(bed: &Bed, hybrids: Vec<Volume>, disks: Vec<(u32, Counters)>) -> Look {
    let mut look = Look::take(&bed.control).await;
    look.status.volumes = hybrids;
    let open = |(id, figures): (u32, Counters)| OpenDisk {
        id: VolumeId(id),
        figures,
    };
    look.disks = disks.into_iter().map(open).collect();
    look
}

#[test]
fn the_total_is_of_hybrids_and_open_virtual_disks_and_counts_each_request_once() {
    run(async |bed| {
        let hybrids = |seconds, reads| {
            vec![
                hybrid("vol0", "hdd0", figures(seconds, reads, 10)),
                // It stands below the other one, and is asked more than that.
                hybrid("hdd0", "disk", figures(seconds, 3 * reads, 70)),
            ]
        };
        let disks = vec![(1, figures(5, 0, 0)), (2, figures(100, 7, 0))];
        let before = look(&bed, hybrids(2, 0), disks).await;
        // The second was closed and opened again; the third was opened since.
        let disks = vec![
            (1, figures(6, 50, 900)),
            (2, figures(0, 9, 0)),
            (3, figures(0, 9, 0)),
        ];
        let now = look(&bed, hybrids(3, 100), disks).await;
        let sample = now.sample(Some(&before), &bed.control);
        let total = sample.total.expect("there was an earlier look");
        assert_eq!(total.reads_per_second, 150.0);
        assert_eq!(
            (total.latency_ns_p50, total.latency_ns_p99),
            (Some(10), Some(900))
        );
        let part_of: Vec<Option<&str>> = sample
            .volumes
            .iter()
            .map(|it| it.part_of.as_deref())
            .collect();
        assert_eq!(part_of, [None, Some("vol0")]);
        // Each is shown by itself all the same.
        let below = sample.volumes[1].rates.as_ref().expect("rates");
        assert_eq!(below.reads_per_second, 300.0);
        let first = now.sample(None, &bed.control);
        assert_eq!(first.total, None);
    });
}

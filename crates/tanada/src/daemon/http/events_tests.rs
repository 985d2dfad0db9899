//! Who makes samples, for whom, and until when.

use http_body_util::BodyExt;

use super::*;
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

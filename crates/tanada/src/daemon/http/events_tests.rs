//! Who makes samples, for whom, and until when.

use http_body_util::BodyExt;

use super::*;
use crate::daemon::http::document_tests::control;

fn run(scene: impl AsyncFnOnce(Arc<Control>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(async { scene(control()).await });
}

fn is_running(control: &Control) -> bool {
    let task = control.sampler.task.lock().expect("no panic");
    task.is_some()
}

/// The stream that a client gets.
async fn open(control: &Arc<Control>) -> Body {
    let asked = Ok(Query(EventsAsk::default()));
    let answer = get_events(State(Arc::clone(control)), asked).await;
    answer.unwrap_or_else(|_| panic!("refused")).into_body()
}

async fn next(stream: &mut Body) -> Bytes {
    let frame = stream.frame().await.expect("it goes on");
    let frame = frame.expect("no error");
    frame.into_data().expect("data")
}

#[test]
fn viewers_share_one_sampler_and_each_sample_and_none_is_made_for_none() {
    run(async |control| {
        assert!(!is_running(&control), "before any viewer");
        let (mut one, mut two) = (open(&control).await, open(&control).await);
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
        assert!(is_running(&control), "for the one that is left");
        drop(two);
        while is_running(&control) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(control.sampler.newest.receiver_count(), 0);
        // Who comes then starts it anew.
        next(&mut open(&control).await).await;
        assert!(is_running(&control));
    });
}

#[test]
fn a_viewer_that_does_not_read_holds_up_no_other() {
    run(async |control| {
        let (slow, mut quick) = (open(&control).await, open(&control).await);
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
    run(async |control| {
        let asked = Ok(Query(EventsAsk { samples: Some(2) }));
        let answer = get_events(State(Arc::clone(&control)), asked).await;
        let body = answer.unwrap_or_else(|_| panic!("refused")).into_body();
        let whole = body.collect().await.expect("it ends").to_bytes();
        let text = String::from_utf8(whole.to_vec()).expect("text");
        assert_eq!(text.matches("data: ").count(), 2, "{text}");
    });
}

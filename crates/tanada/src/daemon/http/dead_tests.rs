//! Data threads that panic or fall silent, beside one that does not.

use std::rc::Rc;
use std::sync::Arc;

use axum::extract::State;
use tokio::sync::oneshot;

use super::*;
use crate::daemon::common::heartbeat::Heartbeat;
use crate::daemon::thread::DataThread;
use crate::daemon::thread::command::{Command, Things, ThreadHandle};
use crate::daemon::thread::records::Records;

fn data_thread(name: &str, panics: bool) -> ThreadHandle {
    let (poster, mailbox) = env::mailbox();
    let names = vec![name.to_owned()];
    let own = names.clone();
    // A data thread, as the daemon starts them.
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
        runtime.block_on(async move {
            assert!(!panics, "planted");
            let mut thread = DataThread::new("test");
            thread.names = own;
            Rc::new(thread).run(mailbox).await;
        });
    });
    let thread = thread.expect("a thread");
    let posts = (poster, Heartbeat::new());
    ThreadHandle::new(names, Things::default(), posts, thread)
}

/// A data thread that takes messages and answers none, until the other end is dropped.
fn silent_thread(name: &str) -> (ThreadHandle, std::sync::mpsc::Sender<()>) {
    let (poster, mailbox) = env::mailbox();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().spawn(move || {
        // An error: the other end is gone.
        let _ = ended.recv();
        drop(mailbox);
    });
    let names = vec![name.to_owned()];
    let thread = thread.expect("a thread");
    let posts = (poster, Heartbeat::new());
    let handle = ThreadHandle::new(names, Things::default(), posts, thread);
    (handle, end)
}

fn control_of(threads: Vec<ThreadHandle>) -> Arc<Control> {
    Arc::new(Control {
        started: super::control::Began::now(0),
        jobs: crate::daemon::jobs::shared::Jobs::default(),
        threads,
        access: Access::default(),
        records: Records::in_dir(std::path::Path::new("/nonexistent")),
        s3: std::sync::Arc::default(),
        audit: None,
        searching: Arc::new(tokio::sync::Semaphore::new(1)),
        kernel_disks: kernel_disks::KernelDisks::default(),
        revocation: crate::daemon::common::revocation::Revocation::default(),
        making: charged::Making::default(),
        settings: super::settings_book::SettingsBook::new(
            "no-such-folder".as_ref(),
            Default::default(),
        ),
        health: crate::daemon::health::Watch::unwatched(),
        loaded: crate::daemon::reload::Loaded::built_in("test"),
        certificates: crate::daemon::common::certificates::Folder::at("no-such-folder".as_ref()),
    })
}

async fn stop(control: &Control, thread: usize) {
    let (reply, answer) = oneshot::channel();
    let stopped = control.threads[thread].post(Command::Stop(reply));
    assert!(stopped.is_ok());
    assert!(answer.await.expect("it closes").is_empty());
}

#[test]
fn a_silent_data_thread_costs_its_own_figures_and_not_the_page() {
    let (silent, end) = silent_thread("stuck");
    let control = control_of(vec![silent, data_thread("good", false)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        const {
            assert!(
                health::TIMEOUT.as_millis() < 2000,
                "a scrape takes 2 s at most"
            )
        };
        // Until it is up, it is silent too.
        let (reply, answer) = oneshot::channel();
        assert!(control.threads[1].post(Command::Report(reply)).is_ok());
        assert!(answer.await.is_ok());
        let caller = Extension(Caller::nothing());
        let answer = get_metrics(State(Arc::clone(&control)), caller, HeaderMap::new()).await;
        let answer = answer.map_err(|failure| failure.refusal).expect("a page");
        assert_eq!(answer.status(), StatusCode::OK);
        let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
        let text = String::from_utf8(text.expect("a body").to_vec()).expect("text");
        for expected in [
            "tanada_thread_up{thread=\"stuck\"} 0.0",
            "tanada_thread_up{thread=\"good\"} 1.0",
            "tanada_thread_spun_seconds_total{thread=\"good\"",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        stop(&control, 1).await;
    });
    drop(end);
}

#[test]
fn a_data_thread_that_panics_is_named_by_health_and_hides_no_other() {
    let control = control_of(vec![data_thread("good", false), data_thread("bad", true)]);
    while !control.threads[1].is_dead() {
        std::thread::yield_now();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let status = control.status().await.map_err(|failure| failure.refusal);
        assert_eq!(status.expect("the other answers").dead, ["bad"]);
        let health = get_health(State(Arc::clone(&control))).await;
        let said = health.map_err(|failure| failure.refusal.error);
        assert_eq!(
            said.unwrap_err(),
            "the data threads of bad died; the others serve"
        );
        stop(&control, 0).await;
    });
}

//! A data thread that panics, beside one that does not.

use std::rc::Rc;
use std::sync::Arc;

use axum::extract::State;
use tokio::sync::oneshot;

use super::*;
use crate::daemon::common::heartbeat::Heartbeat;
use crate::daemon::thread::DataThread;
use crate::daemon::thread::command::{Command, ThreadHandle};
use crate::daemon::thread::records::Records;

fn data_thread(name: &str, panics: bool) -> ThreadHandle {
    let (poster, mailbox) = env::mailbox();
    // A data thread, as the daemon starts them.
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
        runtime.block_on(async move {
            assert!(!panics, "planted");
            Rc::new(DataThread::new("test")).run(mailbox).await;
        });
    });
    let thread = thread.expect("a thread");
    let names = vec![name.to_owned()];
    let posts = (poster, Heartbeat::new());
    ThreadHandle::new(names, Vec::new(), Vec::new(), false, posts, thread)
}

#[test]
fn a_data_thread_that_panics_is_named_by_health_and_hides_no_other() {
    let control = Arc::new(Control {
        origin: "test".to_owned(),
        started_unix_seconds: 0,
        started: tokio::time::Instant::now(),
        threads: vec![data_thread("good", false), data_thread("bad", true)],
        access: Access::default(),
        records: Records::in_dir(std::path::Path::new("/nonexistent")),
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
        loaded: crate::daemon::reload::Loaded::built_in(),
        certificates: crate::daemon::common::certificates::Folder::at("no-such-folder".as_ref()),
    });
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
        let (reply, answer) = oneshot::channel();
        let stopped = control.threads[0].post(Command::Stop(reply));
        assert!(stopped.is_ok());
        assert!(answer.await.expect("it closes").is_empty());
    });
}

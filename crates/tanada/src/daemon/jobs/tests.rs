//! Which jobs there are after requests, sights and answers.

use serde_json::json;

use super::sight::{Look, Now, Sighting};
use super::*;

fn at(kind: Kind, name: &str, now: Now) -> Look {
    let work = Work::new(kind, name);
    Look {
        seen: vec![Sighting { work, now }],
        whole: Vec::new(),
    }
}

fn running(kind: Kind, name: &str, progress: Progress) -> Look {
    at(kind, name, Now::Running(progress, String::new()))
}

fn over(kind: Kind, name: &str) -> Look {
    at(kind, name, Now::Ended(State::Done, "well".to_owned()))
}

fn of(done: u64, total: u64) -> Progress {
    Progress::Of { done, total }
}

fn scrub() -> Work {
    Work::new(Kind::Scrub, "s0")
}

fn user() -> String {
    "user 0".to_owned()
}

#[test]
fn work_that_runs_already_is_joined_and_work_with_an_answer_refuses_a_second_one() {
    let mut jobs = Registry::default();
    let first = jobs.begin(scrub(), user(), 1.0);
    assert_eq!(jobs.begin(scrub(), "user 9".to_owned(), 2.0), first);
    assert_eq!(jobs.get(first).unwrap().by, Some(user()), "the first asked");
    let other = jobs.begin(Work::new(Kind::Scrub, "s1"), user(), 2.0);
    assert_ne!(other, first, "of another store");
    let detach = Work::new(Kind::Detach, "s0");
    let claimed = jobs.claim(detach.clone(), user(), 3.0).unwrap();
    assert_eq!(jobs.claim(detach.clone(), user(), 3.0), Err(claimed));
    jobs.end(claimed, Err("the device failed".to_owned()), 4.0);
    let failed = jobs.get(claimed).unwrap();
    assert_eq!(
        (failed.state, failed.words.as_str()),
        (State::Failed, "the device failed")
    );
    assert!(
        jobs.claim(detach, user(), 5.0).is_ok(),
        "it may be tried again"
    );
}

#[test]
fn a_job_goes_as_far_as_its_engine_says_and_what_time_is_left_follows_from_it() {
    let mut jobs = Registry::default();
    let id = jobs.begin(scrub(), user(), 0.0);
    // A round that goes on where it was cut off begins at 40.
    jobs.observe(running(Kind::Scrub, "s0", of(40, 100)), 10.0);
    assert_eq!(jobs.get(id).unwrap().left_seconds(10.0), None);
    jobs.observe(running(Kind::Scrub, "s0", of(60, 100)), 20.0);
    assert_eq!(jobs.get(id).unwrap().left_seconds(20.0), Some(20.0));
    jobs.observe(over(Kind::Scrub, "s0"), 41.0);
    let job = jobs.get(id).unwrap();
    assert_eq!(
        (job.state, job.done, job.ended),
        (State::Done, 100, Some(41.0))
    );
    assert_eq!((job.words.as_str(), job.left_seconds(42.0)), ("well", None));
    assert!(jobs.is_idle());
}

#[test]
fn what_is_left_is_counted_from_the_most_that_ever_was() {
    let mut jobs = Registry::default();
    let id = jobs
        .claim(Work::new(Kind::Detach, "v"), user(), 0.0)
        .unwrap();
    for (left, done, total) in [(50, 0, 50), (80, 0, 80), (20, 60, 80), (0, 80, 80)] {
        jobs.observe(running(Kind::Detach, "v", Progress::Left(left)), 1.0);
        let job = jobs.get(id).unwrap();
        assert_eq!((job.done, job.total), (done, total));
        assert!(job.is_running(), "its answer ends it");
    }
    jobs.end(id, Ok(json!({"name": "v"})), 2.0);
    assert_eq!(jobs.get(id).unwrap().result, Some(json!({"name": "v"})));
}

#[test]
fn work_that_a_restart_outlived_is_a_job_again_and_what_only_an_answer_ends_is_not() {
    let mut jobs = Registry::default();
    jobs.observe(running(Kind::Drain, "s0", Progress::Left(3)), 100.0);
    jobs.observe(running(Kind::Detach, "v", Progress::Left(3)), 100.0);
    let all: Vec<_> = jobs
        .all()
        .map(|job| (job.work.kind, job.by.clone()))
        .collect();
    assert_eq!(all, [(Kind::Drain, None)]);
    let drain = Work::new(Kind::Drain, "s0");
    assert_eq!(
        jobs.begin(drain, user(), 101.0),
        1,
        "who asks again joins it"
    );
    assert_eq!(jobs.get(1).unwrap().by, Some(user()));
}

#[test]
fn a_silent_thread_ends_no_job_and_a_store_that_is_gone_ends_its_own() {
    let mut jobs = Registry::default();
    jobs.begin(scrub(), user(), 0.0);
    jobs.begin(Work::new(Kind::Drain, "s1"), user(), 0.0);
    jobs.observe(Look::default(), 1.0);
    assert!(jobs.all().all(Job::is_running));
    let whole = Look {
        seen: Vec::new(),
        whole: vec![Kind::Drain, Kind::Resync],
    };
    jobs.observe(whole, 2.0);
    assert_eq!(jobs.get(1).unwrap().state, State::Running);
    let gone = jobs.get(2).unwrap();
    assert_eq!(
        (gone.state, gone.words.as_str()),
        (State::Cancelled, "s1 is not here any more")
    );
}

#[test]
fn a_job_that_is_to_stop_is_cancelled_when_it_has() {
    let mut jobs = Registry::default();
    let id = jobs.begin(scrub(), user(), 0.0);
    jobs.cancel(id);
    jobs.observe(running(Kind::Scrub, "s0", of(1, 9)), 1.0);
    let job = jobs.get(id).unwrap();
    assert_eq!(
        (job.state, job.words.as_str()),
        (State::Running, "it is being cancelled")
    );
    jobs.observe(over(Kind::Scrub, "s0"), 2.0);
    let job = jobs.get(id).unwrap();
    assert_eq!((job.state, job.done), (State::Cancelled, 1));
    for kind in [
        Kind::Calibrate,
        Kind::Detach,
        Kind::Evacuate,
        Kind::Repair,
        Kind::Resync,
    ] {
        assert!(kind.why_not_cancelled().is_some(), "{kind:?}");
    }
    for kind in [Kind::Scrub, Kind::Drain] {
        assert_eq!(kind.why_not_cancelled(), None);
    }
}

#[test]
fn jobs_that_ended_are_kept_for_a_day_and_a_hundred_of_them() {
    let mut jobs = Registry::default();
    for n in 0..ENDED_MAX + 5 {
        let id = jobs.begin(scrub(), user(), n as f64);
        jobs.observe(over(Kind::Scrub, "s0"), n as f64);
        assert!(jobs.get(id).is_some());
    }
    assert_eq!(jobs.all().count(), ENDED_MAX);
    assert_eq!(
        jobs.all().next().unwrap().id,
        ENDED_MAX as u64 + 5,
        "the newest first"
    );
    assert!(jobs.get(5).is_none() && jobs.get(6).is_some());
    jobs.observe(Look::default(), 50.0 + ENDED_SECONDS);
    assert_eq!(jobs.all().count(), 54, "those from second 51 on");
}

#[test]
fn what_nobody_asked_for_is_kept_only_if_it_took_a_while() {
    let mut jobs = Registry::default();
    for (from, until) in [(0.0, 9.0), (20.0, 31.0)] {
        jobs.observe(running(Kind::Resync, "v", Progress::Left(9)), from);
        jobs.observe(over(Kind::Resync, "v"), until);
    }
    let kept: Vec<_> = jobs.all().map(|job| job.begun).collect();
    assert_eq!(kept, [20.0]);
}

#[test]
fn what_was_refused_at_once_was_no_job() {
    let mut jobs = Registry::default();
    let work = Work::new(Kind::Detach, "nothing");
    let id = jobs.claim(work, user(), 0.0).unwrap();
    jobs.end(id, Err("there is no volume".to_owned()), 0.0);
    jobs.withdraw(id);
    assert_eq!(jobs.all().count(), 0);
}

//! Jobs of a real Slurm with bookings: none starts without, none leaves one, and no token is left anywhere.
//!
//! `TANADA_ROUNDS=20` runs 200 jobs, ends bookings without a job each minute, as the timer does, and looks at the clock: how
//! long `paths` takes of a controller that starts, ends and cancels jobs meanwhile, and how soon no booking is left.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::program::stderr;
use tokio::time::Instant;

use crate::cluster::{Cluster, Hooks, wait_until};
use crate::common;
use crate::daemon::Daemon;
use crate::service::{Event, Service};

/// No files.
const NONE: [PathBuf; 0] = [];

/// Jobs of a round.
const ROUND: usize = 10;

/// `paths` runs in the controller, under its locks: so long at most, in microseconds.
const PATHS_MAX: u64 = 10_000;
/// So soon no booking is left, once all jobs have ended.
const NONE_LEFT: Duration = Duration::from_secs(120);

/// A job that waits for so long on an idle machine will wait for ever: the killed controller was starting it, and has
/// forgotten that its hooks are to run.
const STUCK: Duration = Duration::from_secs(40);

/// How many, and whether clocks are judged.
fn rounds() -> (usize, bool) {
    let rounds = std::env::var("TANADA_ROUNDS");
    let rounds = rounds.map(|rounds| rounds.parse().expect("TANADA_ROUNDS is a number"));
    rounds.map_or((3, false), |rounds| (rounds, true))
}

/// `tanada slurm reap` now and then.
struct Timer {
    every: Duration,
    last: Option<Instant>,
}

impl Timer {
    fn tick(&mut self, cluster: &Cluster) {
        if self.last.is_none_or(|last| last.elapsed() >= self.every) {
            self.last = Some(Instant::now());
            let reaped = cluster.tanada(&["reap"]);
            assert!(reaped.status.success(), "{}", stderr(&reaped));
        }
    }
}

/// The bookings of jobs, as the daemon lists them.
fn bookings(dir: &Path) -> Vec<Value> {
    let list = common::text(dir, &["reservation", "list", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&list).unwrap();
    let is_ours = |one: &Value| {
        let name = one["name"].as_str().unwrap_or_default();
        name.starts_with("slurm-c1-") && one["state"] != "ended" && one["state"] != "aborted"
    };
    all.into_iter().filter(is_ours).collect()
}

/// A job that says whether it has its capability, and for which booking. Slurm keeps its script: what is looked for in
/// Slurm's files does not stand in it.
const JOB: &str = "#!/bin/sh
#BB_LUA tanada store=s0 scope=jobs/ read=100kB/s pool=tanada capacity=100KB
case $TANADA_CAPABILITY in
  @*) token=$(cat ${TANADA_CAPABILITY#@}) ;;
esac
case $token in
  tanada[s]et1.?*) echo booked $TANADA_RESERVATION ;;
  *) echo without ;;
esac
sleep $((SLURM_JOB_ID % 9))
";

/// What jobs wrote.
fn outputs(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir.join("out")).unwrap();
    let names = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("/job.sh."));
    names
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// Runs jobs, cancels a tenth of them, kills the controller once.
fn bookings_come_and_go(dir: &Path, cluster: &mut Cluster) {
    let (rounds, is_timed) = rounds();
    let count = rounds * ROUND;
    let mut timer = Timer {
        every: Duration::from_secs(if is_timed { 60 } else { 0 }),
        last: None,
    };
    let jobs: Vec<u32> = (0..count)
        .map(|_| cluster.submit(&[], JOB).unwrap())
        .collect();
    // A controller that dies sooner loses jobs.
    let saved = || {
        fs::metadata(dir.join("state/job_state"))
            .and_then(|meta| meta.modified())
            .ok()
    };
    let mut cancelled: BTreeSet<u32> = BTreeSet::new();
    let is_done = |job: &u32, cluster: &Cluster| {
        let of = job.to_string();
        cluster.run("squeue", &["-h", "-j", &of]).stdout.is_empty()
    };
    // Some while they wait, some while they run; one that is over by then is none.
    let mut cancel = |job: u32, cluster: &Cluster| {
        let done = cluster.run("scancel", &[&job.to_string()]);
        if done.status.success() {
            cancelled.insert(job);
        }
    };
    for job in jobs.iter().rev().take(count / 20) {
        cancel(*job, cluster);
    }
    wait_until("a third of the jobs has started", || {
        outputs(dir).len() >= count / 3
    });
    assert_eq!(cluster.files_with("tanadaset1"), NONE, "while jobs run");
    let running = jobs
        .iter()
        .filter(|job| !is_done(job, cluster))
        .take(count / 20 + count % 20 / 10);
    for job in running.copied().collect::<Vec<u32>>() {
        cancel(job, cluster);
    }
    let before = saved();
    wait_until("the controller has saved its state", || saved() != before);
    cluster.kill_controller();
    let mut tries = 0;
    let (mut waits, mut stuck) = (None, Vec::new());
    wait_until("all jobs have ended", || {
        tries += 1;
        cluster.clear_up(tries % 30 == 5);
        timer.tick(cluster);
        let waiting = cluster.only_waiting();
        match (&mut waits, waiting) {
            (Some((since, before)), Some(now)) if *before == now => {
                let since: &Instant = since;
                if since.elapsed() >= STUCK {
                    // What is left to their users: cancel them, and submit them again.
                    for job in now {
                        cluster.run("scancel", &[&job.to_string()]);
                        stuck.push((job, cluster.submit(&[], JOB).unwrap()));
                    }
                    waits = None;
                }
            }
            (waits, now) => *waits = now.map(|now| (Instant::now(), now)),
        }
        cluster.unfinished() == Some(0)
    });
    let ended = Instant::now();
    let notes = || fs::read_dir(dir.join("notes/jobs")).unwrap().count();
    wait_until("no booking and no note is left", || {
        timer.tick(cluster);
        bookings(dir).is_empty() && notes() == 0
    });
    let none_left = ended.elapsed();
    let left = bookings(dir).len();
    assert_eq!(left, 0);
    // One that was put back and started again wrote as well.
    let ran = |job: &&u32| {
        let text = fs::read_to_string(dir.join(format!("out/job.sh.{job}")));
        text.is_ok_and(|text| text.contains(&format!("booked slurm-c1-{job}\n")))
    };
    // One that was stuck is the one that was submitted in its place.
    let instead = |job: &u32| stuck.iter().find(|it| it.0 == *job).map_or(*job, |it| it.1);
    let all = jobs.iter().map(instead);
    let (booked, silent): (Vec<u32>, Vec<u32>) = all.partition(|job| ran(&job));
    let vanished: Vec<u32> = silent
        .into_iter()
        .filter(|job| !cancelled.contains(job))
        .collect();
    let outputs = outputs(dir);
    let without = outputs
        .iter()
        .filter(|text| text.contains("without"))
        .count();
    assert_eq!(without, 0, "{outputs:?}");
    // A job that was cancelled while it started wrote nothing; all others did.
    assert_eq!(
        vanished,
        [] as [u32; 0],
        "of {jobs:?}, without {cancelled:?}"
    );
    let tokens = cluster.files_with("tanadaset1");
    assert_eq!(tokens, NONE, "after all");
    assert_eq!(
        fs::read_dir(dir.join("notes/jobs")).unwrap().count(),
        0,
        "a note is left"
    );
    let paths = took(&cluster.log(), "slurm_bb_paths ran for usec=");
    let (median, most) = (paths[paths.len() / 2], paths[paths.len() - 1]);
    let above = paths.iter().filter(|it| **it > PATHS_MAX).count();
    let row = serde_json::json!({
        "name": "slurm", "jobs": count, "ran": booked.len(), "cancelled": cancelled.len(), "vanished": vanished.len(),
        "stuck": stuck.len(),
        "bookings_left": left, "seconds_to_none_left": none_left.as_secs_f64(), "tokens": tokens.len(),
        "controller": "busy", "machine_load": load(), "paths": paths.len(), "paths_us_median": median,
        "paths_us_max": most, "paths_above_bar": above,
    });
    println!("{row}");
    if is_timed {
        assert!(most <= PATHS_MAX, "paths took {most} us at most: {row}");
        assert!(
            none_left <= NONE_LEFT,
            "the last booking was left for {none_left:?}"
        );
    }
}

/// How many programs of this machine wanted a processor in the last minute: they keep the controller waiting, too.
fn load() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").expect("this is Linux");
    load.split(' ').next().unwrap().parse().expect("a number")
}

/// How long calls of a hook took in microseconds, the shortest first.
fn took(log: &str, before: &str) -> Vec<u64> {
    let number = |line: &str| line.split_once(before)?.1.trim().parse().ok();
    let mut all: Vec<u64> = log.lines().filter_map(number).collect();
    all.sort_unstable();
    assert!(!all.is_empty(), "the controller logs how long hooks take");
    all
}

#[test]
fn jobs_run_with_their_bookings_and_leave_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let Some(mut cluster) = Cluster::start(dir, Hooks::BurstBuffer, "{user}") else {
        return;
    };
    bookings_come_and_go(dir, &mut cluster);
    let events = service.events();
    let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
    let booked = count(|event| matches!(event, Event::Booked(_)));
    assert_eq!(
        booked,
        count(|event| matches!(event, Event::Ended(_))),
        "{events:?}"
    );
}

#[test]
fn jobs_run_with_bookings_of_a_real_daemon_and_leave_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Some(_daemon) = Daemon::start(dir) else {
        return;
    };
    // The daemon's owner books for all.
    let Some(mut cluster) = Cluster::start(dir, Hooks::BurstBuffer, "") else {
        return;
    };
    bookings_come_and_go(dir, &mut cluster);
}

#[test]
fn jobs_whose_lines_make_no_sense_or_do_not_fit_do_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let Some(cluster) = Cluster::start(dir, Hooks::BurstBuffer, "{user}") else {
        return;
    };
    for (line, part) in [
        (
            "tanada volume=vm1",
            "nothing is reserved; say read= or write=",
        ),
        ("tanada volume=vm1 read=fast", "line 2: 'fast' is no rate"),
        (
            "tanada volume=vm1 read=2MB/s pool=tanada capacity=1MB",
            "capacity= is less than the sum",
        ),
        ("other volume=vm1 read=1MB/s", "comes the word tanada"),
    ] {
        let refused = cluster
            .submit(&[], &format!("#!/bin/sh\n#BB_LUA {line}\ntrue\n"))
            .unwrap_err();
        assert!(refused.contains(part), "{line}: {refused}");
    }
    assert_eq!(cluster.unfinished(), Some(0));

    // More than the service has: back into the queue, with the reason and what would fit.
    let big = "#!/bin/sh\n#BB_LUA tanada volume=vm1 read=20GB/s\necho started\n";
    let job = cluster.submit(&[], big).unwrap();
    let shown = || {
        let done = cluster.run("scontrol", &["show", "job", &job.to_string()]);
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    wait_until("the job is back in the queue", || {
        let shown = shown();
        shown.contains("JobState=PENDING") && shown.contains("cannot reserve")
    });
    assert!(shown().contains("for 50m"), "{}", shown());
    assert_eq!(service.events(), []);
    assert_eq!(outputs(dir), [] as [&str; 0]);
    cluster.run("scancel", &[&job.to_string()]);

    // A daemon that is away for a moment delays a job, and no more.
    service.be_silent(2);
    let small =
        "#!/bin/sh\n#BB_LUA tanada volume=vm1 read=1MB/s\necho started $TANADA_RESERVATION\n";
    let job = cluster.submit(&[], small).unwrap();
    wait_until("the job has run", || {
        outputs(dir)
            .iter()
            .any(|text| text == &format!("started slurm-c1-{job}\n"))
    });
    wait_until("its booking is over", || bookings(dir).is_empty());
    // A capability's file is its user's, and goes with the job.
    let script = "#!/bin/sh\n#BB_LUA tanada store=s0 scope=a/ read=1MB/s\nstat -c 'mode %a' ${TANADA_CAPABILITY#@}\n";
    cluster.submit(&[], script).unwrap();
    wait_until("it has run", || {
        outputs(dir).iter().any(|text| text == "mode 600\n")
    });
    wait_until("its file is gone", || {
        fs::read_dir(dir.join("files")).unwrap().count() == 0
    });
    wait_until("its booking is over", || bookings(dir).is_empty());
    let said = cluster.run("scontrol", &["show", "bbstat"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("cluster c1: no job has anything booked"),
        "{said}"
    );
}

#[test]
fn without_burst_buffers_prolog_books_and_epilog_releases() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let service = Service::start(dir);
    let Some(cluster) = Cluster::start(dir, Hooks::Prolog, "{user}") else {
        return;
    };
    let script = "#!/bin/sh\necho has ${TANADA_CAPABILITY:-none} of ${TANADA_RESERVATION:-none}\nread line <go\n";
    let fifo = Command::new("mkfifo")
        .arg(dir.join("out/go"))
        .status()
        .unwrap();
    assert!(fifo.success());
    Command::new("chmod")
        .arg("666")
        .arg(dir.join("out/go"))
        .status()
        .unwrap();
    let comment = "--comment=tanada store=s0 scope=jobs/ read=1MB/s";
    let job = cluster.submit(&[comment], script).unwrap();
    wait_until("the job runs", || {
        outputs(dir).iter().any(|text| text.ends_with('\n'))
    });
    let out = outputs(dir);
    assert!(out[0].starts_with("has tanadaset1."), "{out:?}");
    assert!(
        out[0].ends_with(&format!(" of slurm-c1-{job}\n")),
        "{out:?}"
    );
    assert_eq!(bookings(dir).len(), 1);
    // While it runs its booking stays, and another user has no answer, not even root.
    assert!(cluster.tanada(&["reap"]).status.success());
    assert_eq!(bookings(dir).len(), 1);
    let mut asked = Command::new(dir.join("tanada"));
    asked
        .args(["slurm", "--settings", "slurm.toml", "task-prolog"])
        .current_dir(dir);
    asked
        .env("SLURM_JOB_ID", job.to_string())
        .env("TANADA_RESERVATION", "x");
    asked.env("SLURM_CONF", dir.join("slurm.conf"));
    let asked = asked.output().unwrap();
    if fs::metadata(dir).unwrap().uid() == 0 {
        assert_eq!(asked.status.code(), Some(1));
        assert!(
            stderr(&asked).contains(&format!("user 0 has no job {job}")),
            "{}",
            stderr(&asked)
        );
    }
    fs::write(dir.join("out/go"), "\n").unwrap();
    wait_until("the booking is over", || bookings(dir).is_empty());
    assert_eq!(service.events().len(), 2, "{:?}", service.events());
    assert_eq!(cluster.files_with("tanadaset1"), NONE);

    // A job without a comment for us is left alone.
    let plain = cluster.submit(
        &["--comment=for the paper"],
        "#!/bin/sh\necho plain [$TANADA_CAPABILITY]\n",
    );
    plain.unwrap();
    wait_until("it has run", || {
        outputs(dir).iter().any(|text| text == "plain []\n")
    });
    assert_eq!(service.events().len(), 2, "{:?}", service.events());

    // Nor does one whose comment makes no sense start, or put the node out of service.
    let odd = cluster
        .submit(&["--comment=tanada volume=vm1"], "#!/bin/sh\necho odd\n")
        .unwrap();
    let shown = || {
        let done = cluster.run("scontrol", &["show", "job", &odd.to_string()]);
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    wait_until("it is held", || {
        let shown = shown();
        shown.contains("JobState=PENDING")
            && shown.contains("Priority=0")
            && shown.contains("say read= or write=")
    });
    assert!(
        !outputs(dir).iter().any(|text| text.contains("odd")),
        "{}",
        shown()
    );
    let state = cluster.run("sinfo", &["-h", "-o", "%T"]);
    assert_eq!(String::from_utf8_lossy(&state.stdout), "idle\n");
}

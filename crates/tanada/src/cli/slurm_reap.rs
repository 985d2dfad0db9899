//! `tanada slurm reap`: ends bookings whose job is gone, and renews those whose job may run longer. For a timer.
//!
//! ```text
//! bookings slurm-CLUSTER-JOB, then squeue -> keep | renew | end: asked once more under the job's lock, then done
//! ```
//!
//! Hooks end bookings; this is for what they could not: Slurm gives up after two retries, controllers die.
//!
//! Always true:
//! 1. Nothing is ended unless the controller answered, is that of this cluster, and this user sees all of its jobs.
//! 2. A booking listed before the queue was is of a job that the queue would have: jobs are there before they are booked.

use anyhow::{bail, ensure};
use base::Nanos;
use report::terminal::said;

use super::reservation_service::{Changed, Service, Which};
use super::slurm_book::{JobLock, SLACK, WITHOUT_LIMIT, is_live, noted, release_held, until};
use super::slurm_jobs::{Cluster, Job, Slurm, State};
use super::slurm_settings::Settings;
use crate::api::reservation::WholeReservation;
use crate::daemon::common::when;

/// What is to become of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// It is to last so long from now on.
    Renew(Nanos),
    End(&'static str),
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    pub kept: usize,
    pub renewed: usize,
    pub ended: usize,
    pub failed: usize,
}

/// Looks at all bookings of the cluster once.
///
/// # Errors
/// Slurm or the daemon does not answer, or this user does not see all jobs.
pub fn reap(settings: &Settings) -> anyhow::Result<Reaped> {
    let slurm = Slurm::new(settings.slurm_bin.clone());
    may_judge(settings, &slurm.cluster()?)?;
    let service = settings.service()?;
    // In this order: see the head.
    let bookings = service.list()?;
    let notes = noted(settings);
    let jobs = slurm.jobs()?;
    let find = |id: u32| jobs.iter().find(|job| job.id == id);
    let mut reaped = Reaped::default();
    let ours = bookings.iter().filter(|one| is_live(one));
    let ours: Vec<(u32, &WholeReservation)> = ours
        .filter_map(|one| Some((settings.job_of(&one.name)?, one)))
        .collect();
    for (job, booking) in &ours {
        match judge(
            find(*job),
            Some(booking.until_unix_seconds),
            settings.prolog,
        ) {
            Verdict::Keep => reaped.kept += 1,
            Verdict::Renew(span) => match renew(&service, booking, span) {
                Ok(()) => reaped.renewed += 1,
                Err(error) => reaped.fail(&booking.name, &error),
            },
            Verdict::End(why) => match end(settings, &slurm, &service, *job, Some(booking)) {
                Ok(true) => {
                    println!("ended {}: {why}", booking.name);
                    reaped.ended += 1;
                }
                Ok(false) => reaped.kept += 1,
                Err(error) => reaped.fail(&booking.name, &error),
            },
        }
    }
    // What is noted of jobs that left no booking.
    let has_booking = |job: &u32| ours.iter().any(|(of, _)| of == job);
    for job in notes.into_iter().filter(|job| !has_booking(job)) {
        if judge(find(job), None, true) != Verdict::Keep
            && let Err(error) = end(settings, &slurm, &service, job, None)
        {
            reaped.fail(&settings.booking(job), &error);
        }
    }
    Ok(reaped)
}

impl Reaped {
    fn fail(&mut self, name: &str, error: &anyhow::Error) {
        eprintln!("tanada: {name}: {}", said::words(error));
        self.failed += 1;
    }
}

/// Does this user see all jobs of the cluster that the settings name?
fn may_judge(settings: &Settings, cluster: &Cluster) -> anyhow::Result<()> {
    ensure!(
        cluster.name == settings.cluster,
        "scontrol answers for the cluster {}, and the settings are for {}: nothing is ended",
        cluster.name,
        settings.cluster
    );
    let me = rustix::process::geteuid().as_raw();
    if me != 0 && me != cluster.slurm_user {
        bail!(
            "user {me} may not see all jobs: run this as root or as SlurmUser, user {}",
            cluster.slurm_user
        );
    }
    Ok(())
}

/// Decides about a booking that lasts `until`, or about a mere note. With `keeps_waiting` a job that waits keeps what it has.
fn judge(job: Option<&Job>, until: Option<u64>, keeps_waiting: bool) -> Verdict {
    let Some(job) = job else {
        return Verdict::End("its job is gone");
    };
    match job.state {
        State::Over => Verdict::End("its job is over"),
        State::Waits if keeps_waiting => Verdict::Keep,
        State::Waits => Verdict::End("its job does not run"),
        State::Runs => until.map_or(Verdict::Keep, |until| renewal(job, until)),
    }
}

/// A job whose time limit was raised, or that has none, outlasts what was booked.
fn renewal(job: &Job, until: u64) -> Verdict {
    let now = when::now().0 / Nanos::secs(1).0;
    let slack = SLACK.0 / Nanos::secs(1).0;
    let wanted = match (job.limit_seconds, job.end_unix_seconds) {
        (Some(_), Some(end)) => end + slack,
        (Some(_), None) => return Verdict::Keep,
        (None, _) if until > now + WITHOUT_LIMIT.0 / Nanos::secs(2).0 => return Verdict::Keep,
        (None, _) => now + WITHOUT_LIMIT.0 / Nanos::secs(1).0,
    };
    match wanted > until + slack / 2 && wanted > now {
        true => Verdict::Renew(Nanos::secs(wanted - now)),
        false => Verdict::Keep,
    }
}

fn renew(service: &Service, booking: &WholeReservation, span: Nanos) -> anyhow::Result<()> {
    let which = Which {
        id: &booking.id,
        account: None,
    };
    match service.change(which, &until(span))? {
        // It ended meanwhile.
        Changed::Done(_) | Changed::Absent => Ok(()),
        Changed::Refused(refusal) => bail!(
            "its job may run longer than what is booked: {}",
            refusal.error
        ),
    }
}

/// Ends what a job has, if it is still to be ended under its lock; was it?
fn end(
    settings: &Settings,
    slurm: &Slurm,
    service: &Service,
    job: u32,
    booking: Option<&WholeReservation>,
) -> anyhow::Result<bool> {
    let held = JobLock::take(settings, job)?;
    let now = slurm.job(job)?;
    let until = booking.map(|booking| booking.until_unix_seconds);
    let keeps_waiting = settings.prolog || booking.is_none();
    if !matches!(judge(now.as_ref(), until, keeps_waiting), Verdict::End(_)) {
        return Ok(false);
    }
    if let Some(booking) = booking {
        let which = Which {
            id: &booking.id,
            account: None,
        };
        service.delete(which)?;
    }
    release_held(settings, job, &held)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: State, limit: Option<u64>, end: Option<u64>) -> Job {
        Job {
            id: 7,
            user: 1000,
            user_name: "ann".to_owned(),
            state,
            limit_seconds: limit,
            end_unix_seconds: end,
            account: String::new(),
        }
    }

    fn now() -> u64 {
        when::now().0 / Nanos::secs(1).0
    }

    #[test]
    fn a_booking_ends_when_its_job_is_gone_over_or_back_in_the_queue() {
        let of = |job: Option<&Job>, keeps| judge(job, Some(now() + 600), keeps);
        assert_eq!(of(None, false), Verdict::End("its job is gone"));
        let over = job(State::Over, Some(60), None);
        assert_eq!(of(Some(&over), true), Verdict::End("its job is over"));
        let waits = job(State::Waits, Some(60), None);
        assert_eq!(
            of(Some(&waits), false),
            Verdict::End("its job does not run")
        );
        // Where Prolog books, on nodes that share no lock with this.
        assert_eq!(of(Some(&waits), true), Verdict::Keep);
        let runs = job(State::Runs, Some(600), Some(now() + 500));
        assert_eq!(of(Some(&runs), false), Verdict::Keep);
    }

    #[test]
    fn a_booking_is_renewed_when_its_job_may_run_longer() {
        let longer = job(State::Runs, Some(7200), Some(now() + 3600));
        let Verdict::Renew(span) = judge(Some(&longer), Some(now() + 60), false) else {
            panic!("it is renewed");
        };
        let seconds = span.0 / Nanos::secs(1).0;
        assert!((3655..=3660).contains(&seconds), "{seconds}");
        let for_ever = job(State::Runs, None, None);
        let renewed = judge(Some(&for_ever), Some(now() + 3600), false);
        assert!(matches!(renewed, Verdict::Renew(_)), "{renewed:?}");
        let kept = judge(Some(&for_ever), Some(now() + 80_000), false);
        assert_eq!(kept, Verdict::Keep);
    }

    #[test]
    fn nothing_is_ended_for_another_cluster_or_by_a_user_who_sees_a_part() {
        let text = "cluster = \"c1\"";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slurm.toml");
        std::fs::write(&file, text).unwrap();
        let settings = Settings::read(&file).unwrap();
        let me = rustix::process::geteuid().as_raw();
        let of = |name: &str, slurm_user| {
            let name = name.to_owned();
            may_judge(&settings, &Cluster { name, slurm_user })
        };
        assert!(of("c1", me).is_ok());
        assert!(of("c2", me).unwrap_err().to_string().contains("c2"));
        assert_eq!(of("c1", me + 1).is_ok(), me == 0);
    }
}

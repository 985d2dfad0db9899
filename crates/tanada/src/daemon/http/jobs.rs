//! Long work over the admin API: listed, followed, cancelled.
//!
//! ```text
//! work that goes on by itself:   request -> begin -> command to its thread -> answered at once, with its job
//! work that ends with an answer: request -> Answering   -> a task waits for it   -> the answer, or the job at once
//! now and then, and when asked:  look -> status, cluster -> jobs::sight -> jobs::Registry
//! ```
//!
//! Always true: while work is begun nothing looks, so none is seen to have ended that only begins.

use std::sync::Arc;
use std::time::Duration;

use access::caller::Caller;
use access::role::Action;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;
use vdisk::cluster::stores::StoreState;

use super::booking::Stores;
use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, query, unprocessable};
use super::disk_terms::called;
use crate::api::job::{BeginAsk, Job};
use crate::api::refusal::Refusal;
use crate::daemon::common::when::unix_seconds;
use crate::daemon::jobs::sight::Look;
use crate::daemon::jobs::{self, Kind, Registry, Thing, Work};

/// Between two looks while something runs, and while nothing is known to.
const BUSY: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(15);
/// A look waits no longer for data threads, nor for the cluster.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// What is refused sooner is answered as a refusal, and was no job.
const REFUSED_WITHIN: Duration = Duration::from_millis(250);

/// Has `begun` begin work; answers what that did, and the number of the work's job.
///
/// # Errors
/// Those of `begun`; where the work runs already, with the job that does it.
pub(super) async fn begin<T>(
    control: &Control,
    work: Work,
    caller: &Caller,
    begun: impl Future<Output = Result<T, Failure>>,
) -> Result<(T, u64), Failure> {
    let _turn = control.jobs.looking.lock().await;
    match begun.await {
        Ok(now) => {
            let by = caller.to_string();
            let job = control.jobs.registry().begin(work, by, unix_seconds());
            Ok((now, job))
        }
        Err(mut failure) => {
            let registry = control.jobs.registry();
            let job = registry.running(&work);
            if let Some(job) = job.filter(|_| failure.status == StatusCode::CONFLICT) {
                failure.refusal.what_to_do = follows(job.id);
            }
            Err(failure)
        }
    }
}

/// The job of that number as `caller` sees it.
fn shown_of(control: &Control, id: u64, caller: &Caller) -> Result<Job, Failure> {
    let registry = control.jobs.registry();
    let job = registry.get(id).ok_or_else(|| {
        Failure::new(
            StatusCode::NOT_FOUND,
            format!("there is no job {id}"),
            "`tanada job list` shows those that run, and those that ended within a day while this daemon ran",
        )
    })?;
    Ok(shown(job, caller, true))
}

fn follows(job: u64) -> String {
    format!("`tanada job show {job}` tells how far it is")
}

/// How a client wants long work to be answered.
pub(super) fn begin_ask(
    asked: Result<Query<BeginAsk>, QueryRejection>,
) -> Result<BeginAsk, Failure> {
    query(asked, "the key is wait, true or false")
}

/// Work whose end is the answer to the request that began it; it goes on if the client leaves.
pub(super) struct Answering<T> {
    control: Arc<Control>,
    caller: Caller,
    job: u64,
    answer: oneshot::Receiver<Result<T, Failure>>,
}

impl<T: Serialize + Send + 'static> Answering<T> {
    /// Begins it.
    ///
    /// # Errors
    /// Status 409: it is under way.
    pub fn begin<F>(
        control: &Arc<Control>,
        work: Work,
        caller: &Caller,
        doing: impl FnOnce(Arc<Control>) -> F,
    ) -> Result<Answering<T>, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let by = caller.to_string();
        let busy = format!("a {} of {} runs already", work.kind.word(), work.name);
        let claimed = control.jobs.registry().claim(work, by, unix_seconds());
        let job = claimed.map_err(|job| Failure::new(StatusCode::CONFLICT, busy, follows(job)))?;
        let (reply, answer) = oneshot::channel();
        let (done, of) = (doing(Arc::clone(control)), Arc::clone(control));
        tokio::spawn(async move {
            let done = done.await;
            let said = match &done {
                Ok(answer) => Ok(serde_json::to_value(answer).unwrap_or_default()),
                Err(failure) => Err(failure.refusal.to_string()),
            };
            of.jobs.registry().end(job, said, unix_seconds());
            // The client may be gone, or have its job.
            let _ = reply.send(done);
        });
        Ok(Answering {
            control: Arc::clone(control),
            caller: caller.clone(),
            job,
            answer,
        })
    }

    /// What came of it, or, if that is not waited for, its job.
    pub async fn answer(mut self, ask: BeginAsk) -> Result<Response, Failure> {
        let early = match ask.wait {
            true => (&mut self.answer).await.ok(),
            false => match timeout(REFUSED_WITHIN, &mut self.answer).await {
                Ok(answer) => answer.ok(),
                Err(_) => None,
            },
        };
        match early {
            Some(Err(failure)) => {
                if failure.status.is_client_error() {
                    self.control.jobs.registry().withdraw(self.job);
                }
                Err(failure)
            }
            Some(Ok(answer)) if ask.wait => Ok(Json(answer).into_response()),
            _ => {
                let job = shown_of(&self.control, self.job, &self.caller)?;
                Ok((StatusCode::ACCEPTED, Json(job)).into_response())
            }
        }
    }
}

/// Keeps the list of jobs true; never ends.
pub async fn keep(control: Arc<Control>) {
    loop {
        look(&control).await;
        let is_idle = control.jobs.registry().is_idle();
        tokio::time::sleep(if is_idle { IDLE } else { BUSY }).await;
    }
}

/// Looks how far all work is.
async fn look(control: &Control) {
    let _turn = control.jobs.looking.lock().await;
    let status = control.status_within(LOOK_MAX).await;
    let cluster = ClusterThread(control);
    let cluster = match cluster.has_cluster() {
        true => timeout(LOOK_MAX, cluster.snapshot()).await.ok(),
        false => None,
    };
    let cluster = cluster.and_then(Result::ok);
    let seen = Look::at(&status, cluster.as_ref());
    control.jobs.registry().observe(seen, unix_seconds());
}

/// Looks, but waits not long where another one looks or work is being begun.
async fn look_soon(control: &Control) {
    // Of what could not be looked at is shown what was known.
    let _ = timeout(LOOK_MAX, look(control)).await;
}

fn shown(job: &jobs::Job, caller: &Caller, is_whole: bool) -> Job {
    let sees = caller.may(Action::Names, None);
    let kind = job.work.kind;
    Job {
        id: job.id,
        kind: kind.word().to_owned(),
        object: match kind.thing() {
            Thing::Store => "store",
            Thing::Volume => "volume",
        }
        .to_owned(),
        name: job.work.name.clone(),
        by: job.by.clone().filter(|_| sees),
        begun_unix_seconds: job.begun,
        ended_unix_seconds: job.ended,
        state: job.state.word().to_owned(),
        unit: kind.unit().to_owned(),
        done: job.done,
        total: job.total,
        left_seconds: job.left_seconds(unix_seconds()),
        words: job.words.clone(),
        cancellable: job.is_running() && !job.cancelling && kind.why_not_cancelled().is_none(),
        result: job.result.clone().filter(|_| sees && is_whole),
    }
}

fn number(path: Result<Path<u64>, PathRejection>) -> Result<u64, Failure> {
    let refused = |_| unprocessable("that is no number of a job", "write such as /v1/jobs/3");
    path.map(|Path(id)| id).map_err(refused)
}

/// The jobs that run, then those that ended within a day (the last 100), each the newest first.
#[utoipa::path(get, path = "/v1/jobs", responses((status = 200, body = Vec<Job>)))]
pub(super) async fn get_jobs(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Json<Vec<Job>> {
    look_soon(&control).await;
    let registry = control.jobs.registry();
    let all = registry.all().map(|job| shown(job, &caller, false));
    Json(all.collect())
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = u64, Path)), responses(
    (status = 200, body = Job),
    (status = 404, body = Refusal),
))]
pub(super) async fn get_job(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<u64>, PathRejection>,
) -> Answer<Job> {
    let id = number(id)?;
    look_soon(&control).await;
    shown_of(&control, id, &caller).map(Json)
}

/// Has a job stop where it is. Answers at once; it runs until what it does has stopped.
#[utoipa::path(delete, path = "/v1/jobs/{id}", params(("id" = u64, Path)), responses(
    (status = 200, description = "The job as it is now", body = Job),
    (status = 404, body = Refusal),
    (status = 409, description = "It has ended, or cannot be cancelled", body = Refusal),
))]
pub(super) async fn cancel_job(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<u64>, PathRejection>,
) -> Answer<Job> {
    let id = number(id)?;
    look_soon(&control).await;
    let job = shown_of(&control, id, &caller)?;
    let work = to_cancel(&control.jobs.registry(), id)?;
    let Some(work) = work else {
        return Ok(Json(job));
    };
    stop(&control, &work).await?;
    control.jobs.registry().cancel(id);
    look_soon(&control).await;
    shown_of(&control, id, &caller).map(Json)
}

/// The work that is to stop; `None`: it was told to already.
fn to_cancel(registry: &Registry, id: u64) -> Result<Option<Work>, Failure> {
    let refused = |error, todo: &str| Err(Failure::new(StatusCode::CONFLICT, error, todo));
    let Some(job) = registry.get(id).filter(|job| job.is_running()) else {
        return refused(format!("job {id} has ended"), "nothing need be done");
    };
    match job.work.kind.why_not_cancelled() {
        Some((why, todo)) => refused(format!("job {id} cannot be cancelled: {why}"), todo),
        None => Ok((!job.cancelling).then(|| job.work.clone())),
    }
}

async fn stop(control: &Control, work: &Work) -> Result<(), Failure> {
    match work.kind {
        Kind::Scrub => {
            let stores = Stores(control);
            stores
                .at_store(&work.name, async |store| store.scrub.stop())
                .await
        }
        Kind::Drain => {
            let name = called(&work.name)?;
            let undone = ClusterThread(control).at_cluster(async move |open| {
                let membership = &open.cluster.membership;
                membership.set_state(&name, StoreState::Active).await
            });
            undone.await.map(drop)
        }
        kind => unreachable!("{kind:?} says why it cannot be cancelled"),
    }
}

//! What the handlers of the admin API share: the data threads, how they are asked, and refusals.
//!
//! ```text
//! handler -> Control -> command to the data thread that owns it -> Answer | Failure: a status and what to do
//! ```
//!
//! Always true: a data thread that died hides no other.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;

use super::audit_log::AuditLog;
use super::charged::Making;
use super::kernel_disks::KernelDisks;
use super::settings_book::SettingsBook;
use crate::api::access::Access;
use crate::api::refusal::Refusal;
use crate::api::status::{Machine, Status};
use crate::daemon::common::certificates::{Folder, own_certificate};
use crate::daemon::common::revocation::Revocation;
use crate::daemon::health::Watch;
use crate::daemon::jobs::shared::Jobs;
use crate::daemon::reload::Loaded;
use crate::daemon::s3::Shared;
use crate::daemon::thread::command::{Command, Reply, ThreadHandle, ThreadReport, VolumeCommand};
use crate::daemon::thread::records::Records;
use crate::daemon::thread::refused::Refused;

/// How long a data thread may take to say how it is.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a query asks for; `keys` says which keys it may have.
pub(super) fn query<T>(
    asked: Result<Query<T>, QueryRejection>,
    keys: &'static str,
) -> Result<T, Failure> {
    let refused = |error: QueryRejection| unprocessable(error.body_text(), keys);
    asked.map(|Query(asked)| asked).map_err(refused)
}

/// What the handlers share.
pub struct Control {
    pub started: Began,
    pub threads: Vec<ThreadHandle>,
    /// Who commands the daemon, and where.
    pub access: Access,
    /// Where accounts, tokens and quotas are.
    pub records: Records,
    /// Gateways for S3 clients, and who comes in there.
    pub s3: Arc<Shared>,
    /// What was done; tests go without.
    pub audit: Option<Arc<AuditLog>>,
    /// Held while parameters of a tier are searched for.
    pub searching: Arc<tokio::sync::Semaphore>,
    pub kernel_disks: KernelDisks,
    /// What this daemon shows where TLS is spoken.
    pub certificates: Folder,
    /// Tells all threads which certificates are revoked.
    pub revocation: Revocation,
    /// Reservations of accounts that are being made at its stores.
    pub making: Making,
    /// What was set of volumes and lasts.
    pub settings: SettingsBook,
    /// What the verdict goes by.
    pub health: Watch,
    /// The configuration, and where it is read anew.
    pub loaded: Loaded,
    /// Its long work.
    pub jobs: Jobs,
}

/// When a daemon began.
#[derive(Debug, Clone, Copy)]
pub struct Began {
    pub unix_seconds: u64,
    pub at: tokio::time::Instant,
}

impl Began {
    /// It begins now; by the clock of the machine at `unix_seconds`.
    pub fn now(unix_seconds: u64) -> Began {
        let at = tokio::time::Instant::now();
        Began { unix_seconds, at }
    }
}

/// An answer that is no success.
pub(crate) struct Failure {
    pub(super) status: StatusCode,
    pub(super) refusal: Refusal,
}

impl Failure {
    pub(super) fn new(
        status: StatusCode,
        error: impl Into<String>,
        what_to_do: impl Into<String>,
    ) -> Failure {
        Failure {
            status,
            refusal: Refusal {
                error: error.into(),
                what_to_do: what_to_do.into(),
            },
        }
    }

    /// Of a sentence that says behind its last semicolon what to do; `else_todo` where it does not.
    pub(super) fn of_sentence(status: StatusCode, said: &str, else_todo: &str) -> Failure {
        let (error, todo) = said.rsplit_once("; ").unwrap_or((said, else_todo));
        Failure::new(status, error, todo)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let status = match &refused {
            Refused::Unknown(_) => StatusCode::NOT_FOUND,
            Refused::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::Conflict(_) => StatusCode::CONFLICT,
            Refused::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failure {
            status,
            refusal: refused.into_refusal(),
        }
    }
}

/// What was not made or changed: why not, or with what would be instead.
pub enum NotMade<R> {
    Failure(Failure),
    /// Status 409.
    Refused(Box<R>),
}

impl<R> From<Failure> for NotMade<R> {
    fn from(failure: Failure) -> NotMade<R> {
        NotMade::Failure(failure)
    }
}

impl<R: serde::Serialize> IntoResponse for NotMade<R> {
    fn into_response(self) -> Response {
        match self {
            NotMade::Failure(failure) => failure.into_response(),
            NotMade::Refused(refusal) => (StatusCode::CONFLICT, Json(refusal)).into_response(),
        }
    }
}

pub(super) type Answer<T> = Result<Json<T>, Failure>;

impl Control {
    /// What stood on data threads that died.
    pub(super) fn dead(&self) -> Vec<String> {
        let dead = self.threads.iter().filter(|thread| thread.is_dead());
        dead.map(|thread| thread.names.join(", ")).collect()
    }

    /// Asks every data thread how it is, and all must answer.
    pub(super) async fn reports(&self) -> Result<Vec<ThreadReport>, Failure> {
        let asked = self.asked(REPORT_TIMEOUT).await.into_iter();
        let answered = asked.map(|(thread, report)| {
            report.map_err(|missing| match missing {
                Missing::Ended => gone(thread),
                Missing::Late => late(thread),
            })
        });
        answered.collect()
    }

    /// What each data thread that lives says of itself within `timeout`, all asked side by side.
    async fn asked(
        &self,
        timeout: Duration,
    ) -> Vec<(&ThreadHandle, Result<ThreadReport, Missing>)> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut waiting = Vec::new();
        // One that died is named by the health and the log; it hides no other.
        for it in self.threads.iter().filter(|it| !it.is_dead()) {
            let (reply, answer) = oneshot::channel();
            // Of a message that is dropped the answer ends.
            let _ = it.post(Command::Report(reply));
            waiting.push((it, answer));
        }
        let mut reports = Vec::new();
        for (thread, answer) in waiting {
            let report = tokio::time::timeout_at(deadline, answer).await;
            let report = report.map_err(|_| Missing::Late);
            reports.push((thread, report.and_then(|it| it.map_err(|_| Missing::Ended))));
        }
        reports
    }

    /// What the data threads say, all of them; the kernel's disks that wait are not asked for.
    pub(super) async fn status(&self) -> Result<Status, Failure> {
        let reports = self.reports().await?;
        Ok(self.status_of(reports))
    }

    /// What those data threads say that answer within `timeout`; the others are named as silent.
    pub(super) async fn status_within(&self, timeout: Duration) -> Status {
        let mut silent = Vec::new();
        let mut reports = Vec::new();
        for (thread, report) in self.asked(timeout).await {
            match report {
                Ok(report) => reports.push(report),
                Err(_) => silent.push(thread.names.join(", ")),
            }
        }
        let mut status = self.status_of(reports);
        status.machine.silent = silent;
        status
    }

    fn status_of(&self, reports: Vec<ThreadReport>) -> Status {
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            config: self.loaded.origin.clone(),
            started_unix_seconds: self.started.unix_seconds,
            uptime_seconds: self.started.at.elapsed().as_secs_f64(),
            dead: self.dead(),
            drivers: Vec::new(),
            threads: Vec::new(),
            gates: Vec::new(),
            devices: Vec::new(),
            volumes: Vec::new(),
            stores: Vec::new(),
            exports: Vec::new(),
            nbd: Vec::new(),
            machine: Machine {
                certificate: own_certificate(&self.certificates).unwrap_or_default(),
                ..Machine::default()
            },
        };
        for report in reports {
            status.drivers.push(report.driver);
            status.threads.push(report.thread);
            status.gates.extend(report.gates);
            status.devices.extend(report.devices);
            status.volumes.extend(report.volumes);
            status.stores.extend(report.stores);
            status.exports.extend(report.exports);
            status.nbd.extend(report.nbd);
        }
        status
    }

    /// Sends a command about `volume` to the thread it lives on.
    pub(super) async fn command<T, C: Into<VolumeCommand>>(
        &self,
        volume: &str,
        command: impl FnOnce(Reply<Result<T, Refused>>) -> C,
    ) -> Answer<T> {
        let thread = self
            .threads
            .iter()
            .find(|thread| thread.has.volumes.iter().any(|name| name == volume))
            .ok_or_else(|| self.unknown(volume))?;
        let (reply, answer) = oneshot::channel();
        let command = Command::Volume(command(reply).into());
        thread.post(command).map_err(|_| gone(thread))?;
        let done = answer.await.map_err(|_| gone(thread))?;
        Ok(Json(done?))
    }

    pub(super) fn unknown(&self, volume: &str) -> Failure {
        // Where there is a cluster there are others, which it knows.
        let what = match self.threads.iter().any(|thread| thread.has.cluster) {
            true => "hybrid",
            false => "volume",
        };
        let known = self.hybrids();
        let todo = match known.is_empty() {
            true => format!("this daemon has no {what}s: its configuration has no [[hybrid]]"),
            false => format!("the {what}s are {}", known.join(", ")),
        };
        Failure::new(
            StatusCode::NOT_FOUND,
            format!("there is no {what} '{volume}'"),
            todo,
        )
    }

    /// The names of this daemon's hybrids.
    pub(super) fn hybrids(&self) -> Vec<String> {
        let all = self.threads.iter().flat_map(|thread| &thread.has.volumes);
        all.cloned().collect()
    }
}

/// Why a data thread said nothing of itself.
enum Missing {
    Late,
    Ended,
}

fn late(thread: &ThreadHandle) -> Failure {
    let error = format!(
        "the data thread of {} gave no answer within {} s",
        thread.names.join(", "),
        REPORT_TIMEOUT.as_secs()
    );
    let todo = "look at the daemon's log; ask again later";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, todo)
}

pub(super) fn gone(thread: &ThreadHandle) -> Failure {
    Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the data thread of {} has ended", thread.names.join(", ")),
        "the daemon is stopping, or its log says what happened",
    )
}

/// What was asked makes no sense.
pub(super) fn unprocessable(error: impl Into<String>, todo: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
}

/// A JSON body read strictly; nothing at all counts as `{}`.
pub(super) fn body<T: serde::de::DeserializeOwned + Default>(
    headers: &HeaderMap,
    text: &[u8],
    example: &str,
) -> Result<T, Failure> {
    if text.is_empty() {
        return Ok(T::default());
    }
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| kind.split(';').next() == Some("application/json"));
    if !is_json {
        return Err(Failure::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is not declared as JSON",
            "send the header Content-Type: application/json",
        ));
    }
    serde_json::from_slice(text).map_err(|error| {
        Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the body cannot be used: {error}"),
            format!("send such as {example}"),
        )
    })
}

//! The verdict on the daemon: observed each few seconds, and whenever it is asked for.
//!
//! ```text
//! threads, cluster, process -> observe -> health::Watch: verdict, log of changes -> GET /v1/health, /v1/status
//! ```
//!
//! Always true: a thread or a meta store that gives no answer delays no verdict by more than [`TIMEOUT`].

use std::sync::Arc;
use std::time::Duration;

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, body, unprocessable};
use super::names;
use crate::api::health::{Health, MuteAsk};
use crate::api::refusal::Refusal;
use crate::api::status::Status;
use crate::daemon::common::when::unix_seconds;
use crate::daemon::health::codes::CODES;
use crate::daemon::health::mutes::{Mutes, mute_of};
use crate::daemon::health::rules::{Nodes, Observed, Process};
use crate::daemon::metrics::page::ClusterSnapshot;
use ::access::caller::Caller;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};

/// How long threads and cluster may take to say how they are.
pub const TIMEOUT: Duration = Duration::from_millis(1500);
/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// A thread whose heart, which beats each second, did not for so long stands still.
const SILENT: Duration = Duration::from_secs(5);
const DAY: u64 = 86_400;
const MUTE_MAX: u64 = 30 * DAY;

/// The status of the daemon, with the verdict on it.
pub(super) async fn observe(control: &Control) -> Status {
    observe_all(control).await.0
}

/// The same, and the cluster, as far as its thread answered.
pub(super) async fn observe_all(control: &Control) -> (Status, ClusterSnapshot) {
    let cluster = ClusterThread(control);
    let (mut status, seen, waiting) = tokio::join!(
        control.status_within(TIMEOUT),
        tokio::time::timeout(TIMEOUT, cluster.snapshot()),
        control.kernel_disks.waiting(),
    );
    let seen = seen.ok().and_then(Result::ok);
    status.machine.ublk_waiting = waiting;
    let process = Process {
        silent: silent(control),
        is_replaced: is_replaced(),
        audit_trouble: control.audit.as_ref().and_then(|audit| audit.trouble()),
        shadowed: shadowed(control),
        log_lines_lost: control.health.log_lines_lost(),
        is_cluster_silent: seen.is_none(),
    };
    let seen = seen.unwrap_or_default();
    let observed = Observed {
        status: &status,
        cluster: Nodes {
            disks: &seen.disks,
            stores: &seen.stores,
            in_trash: seen.in_trash,
            silent_seconds: seen.meta_silent_seconds.unwrap_or(0.0),
            level: seen.level.as_ref(),
        },
        process: &process,
    };
    status.machine.health = control.health.judge(&observed);
    (status, seen)
}

/// Threads that have not ended and do nothing.
fn silent(control: &Control) -> Vec<String> {
    let alive = control.threads.iter().filter(|thread| !thread.is_dead());
    let silent = alive.filter(|thread| thread.heartbeat.age() > SILENT);
    silent.map(|thread| thread.names.join(", ")).collect()
}

/// Is the program of this process another one by now?
fn is_replaced() -> bool {
    let program = std::fs::read_link("/proc/self/exe");
    program.is_ok_and(|program| program.to_string_lossy().ends_with(" (deleted)"))
}

/// Lines of the configuration that were written after what is set instead.
fn shadowed(control: &Control) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let volumes = control
        .threads
        .iter()
        .flat_map(|thread| &thread.has.volumes);
    for volume in volumes {
        for key in control.settings.keys(volume) {
            let Some(set) = control.settings.of(volume, &key) else {
                continue;
            };
            let at = set.when.parse::<jiff::Timestamp>();
            let at = at.map_or(0, |at| at.as_second().unsigned_abs());
            if let Some(line) = control.loaded.hidden(volume, &key, &set.value, at) {
                let what = format!(
                    "the configuration says {key} = {line}, and {} is in force",
                    set.value
                );
                all.push((format!("{volume} {key}"), what));
            }
        }
    }
    all
}

/// Looks each few seconds, so that the log says what came and went.
pub async fn keep(control: Arc<Control>) {
    loop {
        observe(&control).await;
        tokio::time::sleep(EVERY).await;
    }
}

/// Is the daemon well, and if not, what is to be done?
#[utoipa::path(get, path = "/v1/health", responses((status = 200, body = Health)))]
pub(super) async fn get_verdict(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Json<Health> {
    let mut health = observe(&control).await.machine.health;
    names::hide_in_health(&caller, &mut health);
    Json(health)
}

fn change_mutes<T>(
    control: &Control,
    work: impl FnOnce(&mut Mutes) -> std::io::Result<T>,
) -> Result<T, Failure> {
    control.health.change_mutes(work).map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the mute cannot be written: {error}"),
            "see that the data directory can be written",
        )
    })
}

fn code_of(code: &str) -> Result<&'static str, Failure> {
    let found = CODES.iter().find(|it| it.name == code);
    found.map(|it| it.name).ok_or_else(|| {
        let codes: Vec<&str> = CODES.iter().map(|it| it.name).collect();
        Failure::new(
            StatusCode::NOT_FOUND,
            format!("there is no code '{code}'"),
            format!("the codes are {}", codes.join(", ")),
        )
    })
}

/// Does not count a code for a while, unless it gets worse.
#[utoipa::path(put, path = "/v1/health/mutes/{code}", params(("code" = String, Path)), request_body = MuteAsk, responses(
    (status = 200, description = "The verdict as it is now", body = Health),
    (status = 404, description = "No such code", body = Refusal),
    (status = 422, description = "A span that makes no sense", body = Refusal),
))]
pub(super) async fn mute(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(code): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Health> {
    let code = code_of(&code)?;
    let asked: MuteAsk = body(&headers, &text, r#"{"for_seconds": 7200}"#)?;
    let seconds = match asked.for_seconds {
        0 => DAY,
        seconds if seconds <= MUTE_MAX => seconds,
        _ => {
            let what = "a code can be muted for 30 days at most";
            return Err(unprocessable(what, "mute it for less; 0 is a day"));
        }
    };
    let checks = observe(&control).await.machine.health.checks;
    let until = unix_seconds() as u64 + seconds;
    let mute = mute_of(code, &checks, until, caller.to_string());
    change_mutes(&control, |mutes| mutes.mute(mute))?;
    Ok(Json(observe(&control).await.machine.health))
}

/// Counts a code again.
#[utoipa::path(delete, path = "/v1/health/mutes/{code}", params(("code" = String, Path)), responses(
    (status = 200, description = "The verdict as it is now", body = Health),
    (status = 404, description = "It is not muted", body = Refusal),
))]
pub(super) async fn unmute(
    State(control): State<Arc<Control>>,
    Path(code): Path<String>,
) -> Answer<Health> {
    let code = code_of(&code)?;
    if !change_mutes(&control, |mutes| mutes.unmute(code))? {
        let what = format!("{code} is not muted");
        let todo = "`tanada health show` lists what is";
        return Err(Failure::new(StatusCode::NOT_FOUND, what, todo));
    }
    Ok(Json(observe(&control).await.machine.health))
}

//! The admin API: what the daemon reports about itself, and the commands it takes.
//!
//! ```text
//! TCP or Unix socket -> listen -> door: guard, access, rights -> route -> commands to the data threads -> JSON, metrics
//!                                   \-> audit log                      \-> records: accounts, tokens, quotas
//! ```
//!
//! Runs on one tokio thread. Nothing here touches a device: every question and command is a message to
//! the thread that owns the device. Every refusal is JSON that says what to do.
//!
//! Always true: a request that changes something, or asks for what is not in `api::access::READABLE`, comes from the
//! daemon's owner, from root, or from an account whose role may do that (`rights`).

pub mod access;
mod account_records;
pub mod account_terms;
mod accounts;
mod audit;
pub mod audit_log;
pub mod booking;
mod certificates;
mod change_log;
pub mod charged;
pub mod clients;
pub mod cluster;
mod cluster_thread;
pub mod control;
#[cfg(test)]
mod dead_tests;
mod detach;
mod disk_terms;
#[cfg(test)]
mod document_tests;
mod door;
pub mod doors;
pub mod events;
pub mod export_booking;
pub mod flattened;
pub mod gate;
pub mod guard;
pub mod health;
pub mod jobs;
pub mod kernel_disks;
pub mod learn;
mod level;
mod level_report;
pub mod listen;
mod names;
mod release;
pub mod reload;
mod repair;
mod reservation_words;
mod reservations;
mod reserve;
pub mod reserve_words;
mod rights;
#[cfg(test)]
mod rights_tests;
mod routes;
pub mod s3_keys;
mod s3_terms;
pub mod settings_book;
pub mod slots;
mod stores;
mod trash;
mod volume_settings;
mod volumes;
mod web;

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use utoipa::OpenApi;

use crate::api::access::Access;
use crate::api::refusal::Refusal;
use crate::api::status::{Device, Export, Status};
use crate::api::tier::{Ask, Heat, Moves};
use crate::api::volume::{Advice, Attach, Volume};
use crate::daemon::http::control::{Answer, Control, Failure, body};
use crate::daemon::http::gate::Gate;
use crate::daemon::metrics;
use crate::daemon::metrics::format::Format;
use crate::daemon::metrics::page::Page;
use crate::daemon::thread::command::VolumeCommand;
use ::access::caller::Caller;
use ::access::role::Action;
use door::Door;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tanada admin API",
        description = "Looks at a running `tanada serve` and commands it. Errors are JSON with \
                       `error` and `what_to_do`."
    ),
    paths(
        get_status,
        get_devices,
        volumes::get_volumes,
        volumes::get_volume,
        get_advice,
        get_heat,
        get_moves,
        learn::get_tier_advice,
        volume_settings::change_volume,
        volume_settings::reset_volume,
        volume_settings::get_settings,
        detach::detach_volume,
        attach_volume,
        export_booking::get_reservations,
        export_booking::add_reservation,
        export_booking::cancel_reservation,
        stores::get_stores,
        stores::get_store,
        stores::scrub_store,
        stores::rotate_key,
        stores::calibrate_store,
        stores::get_calibration,
        stores::get_calendar,
        reserve::get_reservations,
        reserve::add_reservation,
        reserve::offer_reservation,
        reserve::get_reservation,
        reserve::capability,
        reserve::cancel_reservation,
        reservations::create,
        reservations::list,
        reservations::show,
        reservations::capability,
        reservations::change,
        reservations::release,
        cluster::get_cluster,
        cluster::get_disks,
        cluster::create_disk,
        cluster::get_disk,
        cluster::change_disk,
        trash::remove_disk,
        trash::get_trash,
        trash::restore,
        trash::delete_for_good,
        cluster::take_snapshot,
        cluster::clone_snapshot,
        cluster::roll_back,
        cluster::remove_snapshot,
        repair::repair_disk,
        cluster::take_over,
        cluster::add_store,
        cluster::change_store,
        cluster::remove_store,
        level::upgrade_cluster,
        get_exports,
        clients::disconnect_clients,
        accounts::get_accounts,
        accounts::create_account,
        accounts::get_account,
        accounts::change_account,
        accounts::delete_account,
        accounts::set_quota,
        accounts::get_tokens,
        accounts::create_token,
        accounts::revoke_token,
        s3_keys::get_gateways,
        s3_keys::get_keys,
        s3_keys::create_key,
        s3_keys::delete_key,
        s3_terms::set_key,
        s3_terms::get_buckets,
        s3_terms::set_bucket,
        s3_terms::create_credentials,
        audit::get_audit,
        get_access,
        certificates::get_certificates,
        certificates::revoke_certificates,
        get_metrics,
        get_health,
        health::get_verdict,
        health::mute,
        health::unmute,
        reload::post_reload,
        jobs::get_jobs,
        jobs::get_job,
        jobs::cancel_job,
        events::get_events,
        web::get_page,
        web::get_file
    )
)]
struct Document;

/// The OpenAPI document of this API.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let paths = serde_json::to_string(&document.paths).unwrap_or_default();
    let is_used = |name: &str| paths.contains(&format!("#/components/schemas/{name}\""));
    if let Some(components) = &mut document.components {
        components.schemas = flattened::whole(std::mem::take(&mut components.schemas), is_used);
    }
    document
}

/// The routes, behind a gate.
pub fn router(control: Arc<Control>, gate: Gate, doors: Arc<doors::Doors>) -> Router {
    let mut router = Router::new();
    for (path, methods) in routes::routes() {
        router = router.route(path, methods);
    }
    let door = Arc::new(Door {
        gate,
        behind: router.clone().with_state(Arc::clone(&control)),
        control: Arc::clone(&control),
    });
    router
        .route("/openapi.json", get(async || Json(openapi())))
        .fallback(async |request: Request| {
            Failure::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {}", request.uri().path()),
                "GET /openapi.json lists what there is",
            )
        })
        .method_not_allowed_fallback(async |request: Request| {
            Failure::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!(
                    "{} cannot be asked with {}",
                    request.uri().path(),
                    request.method()
                ),
                "GET /openapi.json lists what can be asked how",
            )
        })
        .layer(DefaultBodyLimit::max(listen::BODY_MAX))
        .layer(Extension(Arc::<events::Sampler>::default()))
        .layer(Extension(doors))
        .layer(axum::middleware::from_fn_with_state(door, door::stand))
        .with_state(control)
}

/// Everything at once: the verdict, devices, volumes, exports and their figures.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status)))]
async fn get_status(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Json<Status> {
    let mut status = health::observe(&control).await;
    names::hide_in_status(&caller, &mut status);
    Json(status)
}

/// The devices of the configuration.
#[utoipa::path(get, path = "/v1/devices", responses((status = 200, body = Vec<Device>)))]
async fn get_devices(State(control): State<Arc<Control>>) -> Answer<Vec<Device>> {
    Ok(Json(control.status().await?.devices))
}

/// What other sizes of its cache would do, as a shadow of the volume found since `advise` was set.
#[utoipa::path(get, path = "/v1/volumes/{name}/advice", params(("name" = String, Path)), responses(
    (status = 200, body = Advice),
    (status = 404, body = Refusal),
    (status = 409, description = "No shadow watches: set `advise` first", body = Refusal),
))]
async fn get_advice(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<Advice> {
    let volume = name.clone();
    control
        .command(&name, |reply| VolumeCommand::Advice { volume, reply })
        .await
}

/// What a query asks for.
fn asked(query: Result<Query<Ask>, QueryRejection>) -> Result<Ask, Failure> {
    control::query(
        query,
        "the keys are after, limit, last_seconds and region, each a number",
    )
}

/// What was asked of each region of a volume in the last intervals, and what lived on its fast device: at most
/// `limit` intervals (200, at most 1000) with a number greater than `after`, oldest first.
#[utoipa::path(get, path = "/v1/volumes/{name}/heat", params(("name" = String, Path), Ask), responses(
    (status = 200, body = Heat),
    (status = 404, body = Refusal),
    (status = 409, description = "It has no tier", body = Refusal),
    (status = 422, description = "A query that makes no sense", body = Refusal),
))]
async fn get_heat(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    query: Result<Query<Ask>, QueryRejection>,
) -> Answer<Heat> {
    let ask = asked(query)?;
    let volume = name.clone();
    control
        .command(&name, |reply| VolumeCommand::Heat { volume, ask, reply })
        .await
}

/// The log of moves of a volume's tier, as far as it is kept: at most `limit` (200, at most 1000) with a number
/// greater than `after`, oldest first.
#[utoipa::path(get, path = "/v1/volumes/{name}/moves", params(("name" = String, Path), Ask), responses(
    (status = 200, body = Moves),
    (status = 404, body = Refusal),
    (status = 409, description = "It has no tier", body = Refusal),
    (status = 422, description = "A query that makes no sense", body = Refusal),
))]
async fn get_moves(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
    query: Result<Query<Ask>, QueryRejection>,
) -> Answer<Moves> {
    let ask = asked(query)?;
    let volume = name.clone();
    control
        .command(&name, |reply| VolumeCommand::Moves { volume, ask, reply })
        .await
}

/// Gives a detached volume a fast device again, with an empty cache.
#[utoipa::path(post, path = "/v1/volumes/{name}/attach", params(("name" = String, Path)),
    request_body = Attach, responses(
    (status = 200, description = "The volume as it is now", body = Volume),
    (status = 404, body = Refusal),
    (status = 409, description = "Attached already, the device belongs to another pair, or the cache that is not there is not given up", body = Refusal),
))]
async fn attach_volume(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Volume> {
    let attach: Attach = body(&headers, &text, r#"{"fast": "ssd0"}"#)?;
    if attach.force || attach.lose_dirty {
        caller.check(Action::Destroy, None)?;
    }
    let volume = name.clone();
    control
        .command(&name, |reply| VolumeCommand::Attach {
            volume,
            attach,
            reply,
        })
        .await
}

/// What clients can connect to.
#[utoipa::path(get, path = "/v1/exports", responses((status = 200, body = Vec<Export>)))]
async fn get_exports(State(control): State<Arc<Control>>) -> Answer<Vec<Export>> {
    Ok(Json(control.status().await?.exports))
}

/// Who commands the daemon, and where: paths, no secret. And what the caller is here.
#[utoipa::path(get, path = "/v1/access", responses((status = 200, body = Access)))]
async fn get_access(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
) -> Json<Access> {
    Json(Access {
        role: caller.role.map(|role| role.to_string()),
        account: caller.account.map(|account| account.to_string()),
        ..control.access.clone()
    })
}

/// Figures for Prometheus: text 0.0.4, or OpenMetrics where `Accept` asks for that. A data thread that is silent costs its
/// own figures, and `tanada_thread_up` says so.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "docs/metrics.md lists what it has", content(
        (String = "text/plain; version=0.0.4"),
        (String = "application/openmetrics-text; version=1.0.0"),
    )),
))]
async fn get_metrics(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (mut status, cluster) = health::observe_all(&control).await;
    names::hide_in_status(&caller, &mut status);
    let page = Page {
        status,
        cluster,
        process: metrics::process::look(),
        gateways: control.s3.counters(),
    };
    let accept = headers.get(header::ACCEPT);
    let format = Format::asked(accept.and_then(|it| it.to_str().ok()));
    let text = metrics::encode(page, format).map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the figures cannot be written: {error}"),
            "report this as a bug",
        )
    })?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// 200 while every data thread answers.
#[utoipa::path(get, path = "/healthz", responses(
    (status = 200, body = String),
    (status = 503, body = Refusal),
))]
async fn get_health(State(control): State<Arc<Control>>) -> Result<&'static str, Failure> {
    let todo = "the daemon's log says why; what is on them is served again when the daemon is started anew";
    let died = |what: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, todo);
    let dead = control.dead();
    if !dead.is_empty() {
        let dead = dead.join(" and of ");
        return Err(died(format!(
            "the data threads of {dead} died; the others serve"
        )));
    }
    let reports = control.reports().await?;
    let gates = reports.into_iter().flat_map(|it| it.gates);
    let gates: Vec<String> = gates.filter(|it| it.dead).map(|it| it.name).collect();
    match gates.is_empty() {
        true => Ok("ok\n"),
        false => Err(died(format!(
            "{} died; the others serve",
            gates.join(" and ")
        ))),
    }
}

//! What answers where.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::control::Control;
use super::{
    accounts, audit, certificates, clients, cluster, detach, events, export_booking, health, jobs,
    learn, level, reload, repair, reservations, reserve, s3_keys, s3_terms, stores, trash,
    volume_settings, volumes, web,
};

/// A path, and what answers there.
pub(super) type Route = (&'static str, MethodRouter<Arc<Control>>);

/// All that the document lists, and nothing else.
pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        ("/v1/status", get(super::get_status)),
        ("/v1/devices", get(super::get_devices)),
        ("/v1/exports", get(super::get_exports)),
        ("/v1/access", get(super::get_access)),
        ("/v1/certificates", get(certificates::get_certificates)),
        (
            "/v1/certificates/revoked",
            post(certificates::revoke_certificates),
        ),
        ("/v1/clients/disconnect", post(clients::disconnect_clients)),
        ("/metrics", get(super::get_metrics)),
        ("/healthz", get(super::get_health)),
        ("/v1/health", get(health::get_verdict)),
        ("/v1/reload", post(reload::post_reload)),
        (
            "/v1/health/mutes/{code}",
            put(health::mute).delete(health::unmute),
        ),
        ("/v1/jobs", get(jobs::get_jobs)),
        ("/v1/jobs/{id}", get(jobs::get_job).delete(jobs::cancel_job)),
        ("/v1/events", get(events::get_events)),
        ("/", get(web::get_page)),
        ("/web/{file}", get(web::get_file)),
    ];
    let all = [
        own,
        volume_routes(),
        store_routes(),
        cluster_routes(),
        trash_routes(),
        account_routes(),
    ];
    all.into_iter().flatten().collect()
}

fn volume_routes() -> Vec<Route> {
    vec![
        ("/v1/volumes", get(volumes::get_volumes)),
        (
            "/v1/volumes/{name}",
            get(volumes::get_volume).patch(volume_settings::change_volume),
        ),
        (
            "/v1/volumes/{name}/settings",
            delete(volume_settings::reset_volume),
        ),
        ("/v1/settings", get(volume_settings::get_settings)),
        ("/v1/volumes/{name}/advice", get(super::get_advice)),
        ("/v1/volumes/{name}/heat", get(super::get_heat)),
        ("/v1/volumes/{name}/moves", get(super::get_moves)),
        (
            "/v1/volumes/{name}/tier-advice",
            get(learn::get_tier_advice),
        ),
        ("/v1/volumes/{name}/detach", post(detach::detach_volume)),
        ("/v1/volumes/{name}/attach", post(super::attach_volume)),
    ]
}

fn account_routes() -> Vec<Route> {
    vec![
        (
            "/v1/accounts",
            get(accounts::get_accounts).post(accounts::create_account),
        ),
        (
            "/v1/accounts/{name}",
            get(accounts::get_account)
                .patch(accounts::change_account)
                .delete(accounts::delete_account),
        ),
        ("/v1/accounts/{name}/quota", put(accounts::set_quota)),
        (
            "/v1/tokens",
            get(accounts::get_tokens).post(accounts::create_token),
        ),
        ("/v1/tokens/{id}", delete(accounts::revoke_token)),
        ("/v1/s3", get(s3_keys::get_gateways)),
        (
            "/v1/s3/keys",
            get(s3_keys::get_keys).post(s3_keys::create_key),
        ),
        (
            "/v1/s3/keys/{id}",
            delete(s3_keys::delete_key).patch(s3_terms::set_key),
        ),
        ("/v1/s3/credentials", post(s3_terms::create_credentials)),
        ("/v1/s3/buckets", get(s3_terms::get_buckets)),
        (
            "/v1/s3/buckets/{gateway}/{bucket}",
            patch(s3_terms::set_bucket),
        ),
        ("/v1/audit", get(audit::get_audit)),
    ]
}

fn store_routes() -> Vec<Route> {
    vec![
        (
            "/v1/exports/{name}/reservations",
            get(export_booking::get_reservations).post(export_booking::add_reservation),
        ),
        (
            "/v1/exports/{name}/reservations/{number}",
            delete(export_booking::cancel_reservation),
        ),
        ("/v1/stores", get(stores::get_stores)),
        ("/v1/stores/{name}", get(stores::get_store)),
        ("/v1/stores/{name}/scrub", post(stores::scrub_store)),
        ("/v1/stores/{name}/rotate-key", post(stores::rotate_key)),
        ("/v1/stores/{name}/calibrate", post(stores::calibrate_store)),
        (
            "/v1/stores/{name}/calibration",
            get(stores::get_calibration),
        ),
        ("/v1/stores/{name}/calendar", get(stores::get_calendar)),
        (
            "/v1/reservations",
            get(reserve::get_reservations).post(reserve::add_reservation),
        ),
        ("/v1/reservations/offer", post(reserve::offer_reservation)),
        (
            "/v1/reservations/{store}/{number}",
            get(reserve::get_reservation).delete(reserve::cancel_reservation),
        ),
        (
            "/v1/reservations/{store}/{number}/capability",
            post(reserve::capability),
        ),
    ]
}

fn trash_routes() -> Vec<Route> {
    vec![
        ("/v1/cluster/trash", get(trash::get_trash)),
        ("/v1/cluster/trash/{name}", delete(trash::delete_for_good)),
        ("/v1/cluster/trash/{name}/restore", post(trash::restore)),
    ]
}

fn cluster_routes() -> Vec<Route> {
    vec![
        (
            "/v2/reservations",
            get(reservations::list).post(reservations::create),
        ),
        (
            "/v2/reservations/{name}",
            get(reservations::show)
                .patch(reservations::change)
                .delete(reservations::release),
        ),
        (
            "/v2/reservations/{name}/capability",
            post(reservations::capability),
        ),
        ("/v1/cluster", get(cluster::get_cluster)),
        (
            "/v1/cluster/volumes",
            get(cluster::get_disks).post(cluster::create_disk),
        ),
        (
            "/v1/cluster/volumes/{name}",
            get(cluster::get_disk)
                .patch(cluster::change_disk)
                .delete(trash::remove_disk),
        ),
        (
            "/v1/cluster/volumes/{name}/repair",
            post(repair::repair_disk),
        ),
        (
            "/v1/cluster/volumes/{name}/takeover",
            post(cluster::take_over),
        ),
        (
            "/v1/cluster/volumes/{name}/snapshots",
            post(cluster::take_snapshot),
        ),
        (
            "/v1/cluster/volumes/{name}/snapshots/{snapshot}",
            delete(cluster::remove_snapshot),
        ),
        (
            "/v1/cluster/volumes/{name}/snapshots/{snapshot}/clone",
            post(cluster::clone_snapshot),
        ),
        (
            "/v1/cluster/volumes/{name}/snapshots/{snapshot}/rollback",
            post(cluster::roll_back),
        ),
        ("/v1/cluster/upgrade", post(level::upgrade_cluster)),
        ("/v1/cluster/stores", post(cluster::add_store)),
        (
            "/v1/cluster/stores/{name}",
            patch(cluster::change_store).delete(cluster::remove_store),
        ),
    ]
}

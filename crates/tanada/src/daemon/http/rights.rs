//! What does each route take? One table.
//!
//! ```text
//! (method, path) -> Action -> access::role: which role may
//! ```
//!
//! Where something of an account is asked for, the handler looks whose it is; here stands what may be asked at all.
//!
//! Always true:
//! 1. What stands in no row takes an admin.
//! 2. What takes [`Action::Look`] is `GET` of `api::access::READABLE`: its handlers leave out names of accounts and holders
//!    for a caller without a role (`names`), and answer no capability, no record of who did what, and nothing that costs.

use access::role::Action;
use axum::http::Method;

/// What a route takes.
struct Right(&'static str, &'static str, Action);

/// Every route of the document.
#[rustfmt::skip]
const RIGHTS: [Right; 92] = [
    Right("GET", "/healthz", Action::Look),
    Right("GET", "/metrics", Action::Look),
    Right("GET", "/openapi.json", Action::Look),
    Right("GET", "/v1/access", Action::Look),
    Right("GET", "/v1/status", Action::Look),
    Right("GET", "/v1/health", Action::Look),
    Right("POST", "/v1/reload", Action::Configure),
    Right("PUT", "/v1/health/mutes/{code}", Action::Operate),
    Right("DELETE", "/v1/health/mutes/{code}", Action::Operate),
    Right("GET", "/", Action::Look),
    Right("GET", "/web/{file}", Action::Look),
    Right("GET", "/v1/events", Action::Look),
    Right("GET", "/v1/jobs", Action::Look),
    Right("GET", "/v1/jobs/{id}", Action::Look),
    Right("DELETE", "/v1/jobs/{id}", Action::Operate),

    Right("GET", "/v1/devices", Action::Look),
    Right("GET", "/v1/exports", Action::Look),
    Right("GET", "/v1/exports/{name}/reservations", Action::Read),
    Right("POST", "/v1/exports/{name}/reservations", Action::Operate),
    Right("DELETE", "/v1/exports/{name}/reservations/{number}", Action::Operate),
    Right("POST", "/v1/clients/disconnect", Action::Operate),

    Right("GET", "/v1/volumes", Action::Look),
    Right("GET", "/v1/volumes/{name}", Action::Look),
    Right("PATCH", "/v1/volumes/{name}", Action::Operate),
    Right("DELETE", "/v1/volumes/{name}/settings", Action::Operate),
    Right("GET", "/v1/settings", Action::Read),
    Right("GET", "/v1/volumes/{name}/advice", Action::Look),
    Right("GET", "/v1/volumes/{name}/heat", Action::Look),
    Right("GET", "/v1/volumes/{name}/moves", Action::Look),
    Right("GET", "/v1/volumes/{name}/tier-advice", Action::Read),
    Right("POST", "/v1/volumes/{name}/detach", Action::Operate),
    Right("POST", "/v1/volumes/{name}/attach", Action::Operate),

    Right("GET", "/v1/stores", Action::Look),
    Right("GET", "/v1/stores/{name}", Action::Look),
    Right("POST", "/v1/stores/{name}/scrub", Action::Operate),
    Right("POST", "/v1/stores/{name}/rotate-key", Action::Configure),
    Right("POST", "/v1/stores/{name}/calibrate", Action::Operate),
    Right("GET", "/v1/stores/{name}/calibration", Action::Read),
    Right("GET", "/v1/stores/{name}/calendar", Action::Look),

    Right("GET", "/v1/reservations", Action::Read),
    Right("POST", "/v1/reservations", Action::Book),
    Right("POST", "/v1/reservations/offer", Action::Offer),
    Right("GET", "/v1/reservations/{store}/{number}", Action::Read),
    Right("DELETE", "/v1/reservations/{store}/{number}", Action::Book),
    Right("POST", "/v1/reservations/{store}/{number}/capability", Action::Capability),

    Right("GET", "/v2/reservations", Action::Read),
    Right("POST", "/v2/reservations", Action::Book),
    Right("GET", "/v2/reservations/{name}", Action::Read),
    Right("PATCH", "/v2/reservations/{name}", Action::Book),
    Right("DELETE", "/v2/reservations/{name}", Action::Book),
    Right("POST", "/v2/reservations/{name}/capability", Action::Capability),

    Right("GET", "/v1/cluster", Action::Look),
    Right("GET", "/v1/cluster/volumes", Action::Look),
    Right("POST", "/v1/cluster/volumes", Action::Operate),
    Right("GET", "/v1/cluster/volumes/{name}", Action::Look),
    Right("PATCH", "/v1/cluster/volumes/{name}", Action::Operate),
    Right("DELETE", "/v1/cluster/volumes/{name}", Action::Destroy),
    Right("POST", "/v1/cluster/volumes/{name}/repair", Action::Operate),
    Right("POST", "/v1/cluster/volumes/{name}/takeover", Action::Operate),
    Right("POST", "/v1/cluster/volumes/{name}/snapshots", Action::Operate),
    Right("DELETE", "/v1/cluster/volumes/{name}/snapshots/{snapshot}", Action::Destroy),
    Right("POST", "/v1/cluster/volumes/{name}/snapshots/{snapshot}/clone", Action::Operate),
    Right("POST", "/v1/cluster/volumes/{name}/snapshots/{snapshot}/rollback", Action::Destroy),
    Right("GET", "/v1/cluster/trash", Action::Read),
    Right("POST", "/v1/cluster/trash/{name}/restore", Action::Operate),
    Right("DELETE", "/v1/cluster/trash/{name}", Action::Destroy),
    Right("POST", "/v1/cluster/upgrade", Action::Configure),
    Right("POST", "/v1/cluster/stores", Action::Configure),
    Right("PATCH", "/v1/cluster/stores/{name}", Action::Operate),
    Right("DELETE", "/v1/cluster/stores/{name}", Action::Destroy),

    Right("GET", "/v1/certificates", Action::Read),
    Right("POST", "/v1/certificates/revoked", Action::Configure),

    Right("GET", "/v1/accounts", Action::Accounts),
    Right("POST", "/v1/accounts", Action::Accounts),
    Right("GET", "/v1/accounts/{name}", Action::Account),
    Right("PATCH", "/v1/accounts/{name}", Action::Accounts),
    Right("DELETE", "/v1/accounts/{name}", Action::Accounts),
    Right("PUT", "/v1/accounts/{name}/quota", Action::Accounts),
    Right("GET", "/v1/tokens", Action::Tokens),
    Right("POST", "/v1/tokens", Action::Accounts),
    Right("DELETE", "/v1/tokens/{id}", Action::Tokens),
    Right("GET", "/v1/s3", Action::Read),
    Right("GET", "/v1/s3/keys", Action::Tokens),
    Right("POST", "/v1/s3/keys", Action::Accounts),
    Right("PATCH", "/v1/s3/keys/{id}", Action::Tokens),
    Right("DELETE", "/v1/s3/keys/{id}", Action::Tokens),
    Right("POST", "/v1/s3/credentials", Action::Capability),
    Right("GET", "/v1/s3/buckets", Action::Tokens),
    Right("PATCH", "/v1/s3/buckets/{gateway}/{bucket}", Action::Tokens),
    Right("GET", "/v1/audit", Action::Audit),

    // Asked with HEAD they answer as with GET.
    Right("HEAD", "/healthz", Action::Look),
    Right("HEAD", "/metrics", Action::Look),
];

/// Looking at these goes into the audit log, too: what they answer is more than figures.
const NOTED: [&str; 6] = [
    "/v1/accounts",
    "/v1/accounts/{name}",
    "/v1/audit",
    "/v1/reservations/{store}/{number}",
    "/v1/s3/keys",
    "/v1/tokens",
];

/// What a request takes whose path is one of this route.
pub(super) fn action(method: &Method, route: &str) -> Action {
    let is_it = |right: &&Right| right.0 == method.as_str() && right.1 == route;
    let right = RIGHTS.iter().find(is_it);
    right.map_or(Action::Configure, |right| right.2)
}

/// Does a request go into the audit log whatever its answer?
pub(super) fn is_noted(method: &Method, route: &str) -> bool {
    let looks = method == Method::GET || method == Method::HEAD;
    !looks || NOTED.contains(&route)
}

#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    RIGHTS.iter().map(|right| (right.0, right.1))
}

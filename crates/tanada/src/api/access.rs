//! Who commands the daemon and where, what others may look at; accounts, tokens and the record of what was done.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What every process of this machine may `GET`: health, metrics, the dashboard and what it shows; no secret, and no name
/// of an account or holder. What stands in braces is any one part of a path.
pub const READABLE: [&str; 24] = [
    "/",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/v1/access",
    "/v1/cluster",
    "/v1/cluster/volumes",
    "/v1/cluster/volumes/{name}",
    "/v1/devices",
    "/v1/events",
    "/v1/exports",
    "/v1/health",
    "/v1/jobs",
    "/v1/jobs/{id}",
    "/v1/status",
    "/v1/stores",
    "/v1/stores/{name}",
    "/v1/stores/{name}/calendar",
    "/v1/volumes",
    "/v1/volumes/{name}",
    "/v1/volumes/{name}/advice",
    "/v1/volumes/{name}/heat",
    "/v1/volumes/{name}/moves",
    "/web/{file}",
];

/// Is a path one of [`READABLE`]?
pub fn is_readable(path: &str) -> bool {
    READABLE.iter().any(|route| is_of(route, path))
}

fn is_of(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    loop {
        match (route.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(given)) if part == given => {}
            (Some(part), Some(given)) if part.starts_with('{') && !given.is_empty() => {}
            _ => return false,
        }
    }
}

/// The header by which a user of several accounts says for which one it asks.
pub const ACCOUNT_HEADER: &str = "tanada-account";

/// Where commands are taken, readable without a token: paths, no secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Access {
    /// The user who owns the daemon; this user and root command it.
    pub owner_user: u32,
    /// The group whose members command it, too: the daemon's, where root made the admin socket for it; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_group: Option<u32>,
    /// The Unix sockets that take commands of the owner, and of users whom accounts name.
    pub sockets: Vec<String>,
    /// The file that holds the admin token; the owner alone can read it.
    pub token_file: String,
    /// What the caller is here: `reader`, `booker`, `operator` or `admin`; absent: it has no role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The caller's account; absent: it has none, as the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// What an account may have. What is left out has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// All its bookings together, at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<u64>,
    /// Promised in any 30 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booked_bytes: Option<u64>,
    /// A booking begins at most so far ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_seconds: Option<u64>,
    /// And lasts at most so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_seconds: Option<u64>,
    /// At most so many bookings that are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Room at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_bytes: Option<u64>,
    /// Its part of what is not promised, relative to other accounts: 1 to 1000; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What it reads at most at each daemon, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_read_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_write_bytes_per_second: Option<u64>,
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_read_iops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_write_iops: Option<u64>,
}

/// What counts against a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Used {
    /// Bookings that are not over, those of projects included.
    pub count: u64,
    /// Promised now.
    pub rate_bytes_per_second: u64,
    /// Room set aside now.
    pub room_bytes: u64,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// `NAME`, or `ACCOUNT/PROJECT`.
    pub name: String,
    /// 16 hexadecimal digits, by which it is told from a later account of the same name: certificates have them.
    #[serde(default)]
    pub id: String,
    /// `reader`, `booker`, `operator` or `admin`.
    pub role: String,
    /// `on`, `off`, or `deleted` while its bookings last.
    pub state: String,
    /// Users of the daemon's machine who are it at the Unix socket.
    pub users: Vec<String>,
    /// Groups whose members are.
    pub groups: Vec<String>,
    pub created_unix_seconds: u64,
    pub quota: Quota,
    pub used: Used,
}

/// An account to be made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    /// `NAME`, or `ACCOUNT/PROJECT` of an account that is there.
    pub name: String,
    /// `reader` (if absent), `booker`, `operator` or `admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Names or numbers.
    #[serde(default)]
    pub users: Vec<String>,
    /// Names or numbers.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub quota: Quota,
}

/// What is to change of an account; what is absent stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Is it let in?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<bool>,
    /// All its users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// All its groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
}

/// Accounts that are gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AccountsGone {
    /// The account, and its projects.
    pub deleted: Vec<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// 16 hexadecimal digits.
    pub id: String,
    pub account: String,
    /// `good`, `expired` or `revoked`.
    pub state: String,
    pub created_unix_seconds: u64,
    pub expires_unix_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_unix_seconds: Option<u64>,
    /// What it is for.
    pub note: String,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    pub account: String,
    /// How long it is good; 90 days if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    /// What it is for, for people.
    #[serde(default)]
    pub note: String,
}

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// The token itself: shown here and never again.
    pub token: String,
    pub about: Token,
}

/// Which lines of the audit log are asked for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditAsk {
    /// Only lines with a greater number.
    pub after: Option<u64>,
    /// At most so many; 200 if absent, 1000 at most.
    pub limit: Option<usize>,
}

/// Lines of the audit log, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub lines: Vec<AuditLine>,
    /// `after` of the next page; absent: there is no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Something that was asked and answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    pub number: u64,
    pub at_unix_seconds: f64,
    pub who: String,
    /// Whence.
    pub from: String,
    pub what: String,
    /// The status of the answer; 0: none.
    pub answer: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_readable_if_it_is_a_route_of_the_list_part_by_part() {
        for path in [
            "/",
            "/v1/status",
            "/v1/volumes/vol0",
            "/v1/volumes/vol0/heat",
            "/web/main.js",
        ] {
            assert!(is_readable(path), "{path}");
        }
        for path in [
            "",
            "//",
            "/v1/status/",
            "/v1/volumes/",
            "/v1/volumes//heat",
            "/v1/volumes/vol0/detach",
            "/v1/volumes/a/b/heat",
            "/v1/reservations",
            "/v1/reservations/s0/1",
            "/v1/audit",
            "/web/",
            "/web/a/b",
        ] {
            assert!(!is_readable(path), "{path}");
        }
    }
}

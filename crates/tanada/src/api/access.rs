//! Who commands the daemon and where, and what others may look at.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What every process that reaches the TCP listener may `GET`.
pub const READABLE: [&str; 5] = [
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/v1/access",
    "/v1/status",
];

/// Where commands are taken, readable without a token: paths, no secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Access {
    /// The user who owns the daemon; this user and root command it.
    pub owner_user: u32,
    /// The Unix sockets that take commands of the owner.
    pub sockets: Vec<String>,
    /// The file that holds the bearer token; the owner alone can read it.
    pub token_file: String,
}

//! Gateways for S3 clients, and the access keys that such clients sign with.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Gateway {
    pub name: String,
    /// The stores that its objects lie in.
    pub stores: Vec<String>,
    /// Where clients connect: `HOST:PORT`, `tls:HOST:PORT`.
    pub listen: Vec<String>,
    /// What clients call the place of its buckets.
    pub region: String,
    /// Why it is not served; absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// An access key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Key {
    /// What clients show: the access key ID.
    pub id: String,
    /// Whose it is; absent: the daemon's owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Is it let in? Not where its account is switched off or gone.
    pub good: bool,
    pub created_unix_seconds: u64,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// An access key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewS3Key {
    /// Absent: the daemon's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What it is for, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// An access key that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeS3Key {
    /// The secret access key: shown here and never again.
    pub secret: String,
    pub about: S3Key,
}

//! Gateways for S3 clients, and the access keys that such clients sign with.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Gateway {
    pub name: String,
    /// The stores that its objects lie in; none where they lie on a volume.
    pub stores: Vec<String>,
    /// The volume of the cluster that its objects lie on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Where clients connect: `HOST:PORT`, `tls:HOST:PORT`.
    pub listen: Vec<String>,
    /// What clients call the place of its buckets.
    pub region: String,
    /// Why it is not served here; absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl S3Gateway {
    /// What its objects lie in, in words.
    pub fn below(&self) -> String {
        match &self.volume {
            Some(volume) => format!("volume {volume}"),
            None => self.stores.join(", "),
        }
    }
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
    /// How requests with it are served.
    #[serde(flatten)]
    pub terms: S3Terms,
    /// It is good until then; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_seconds: Option<u64>,
}

/// How requests with a key, or to a bucket, are served.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct S3Terms {
    /// The id of the reservation that they come under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// At most so many bytes per second, of all requests together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_read: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_write: Option<u64>,
    /// At most so many requests per second; each MiB of a longer one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_read_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_write_iops: Option<u64>,
}

/// A change of how requests are served; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct S3Change {
    /// A reservation of stores, by its name in the account or its id; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Such as `20MB/s`, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_read: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_write: Option<String>,
    /// Such as `500`, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_read_iops: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_write_iops: Option<String>,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct S3Bucket {
    pub gateway: String,
    pub name: String,
    /// Whose it is; absent: the daemon's owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub created_unix_seconds: u64,
    /// How requests to it are served, where their access key says nothing, or less.
    #[serde(flatten)]
    pub terms: S3Terms,
}

/// A temporary access key to be made, under a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewS3Credentials {
    /// A reservation of stores, by its name in the account or its id.
    pub reservation: String,
    /// Whose reservation; absent: the caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// How long it is good, such as `1h`; at most 12 hours.
    #[serde(rename = "for")]
    pub span: String,
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
    /// How requests with it are to be served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<S3Change>,
}

/// An access key that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeS3Key {
    /// The secret access key: shown here and never again.
    pub secret: String,
    /// Of a temporary one: the session token that every request with it shows, the capability set of its reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
    pub about: S3Key,
}

//! The certificate that a daemon shows to other nodes and clients, and which certificates are revoked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a daemon shows where TLS is spoken, and whom it sends away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Certificates {
    /// Its own; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnCertificate>,
    /// Serial numbers of revoked certificates, in hexadecimal digits.
    pub revoked: Vec<String>,
}

/// A daemon's own certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnCertificate {
    /// Whose it is, such as `node n1`.
    pub whose: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// Its last second since 1970.
    pub expires_unix_seconds: u64,
    /// It expires soon, or has: what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A certificate to be revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoke {
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// Whose it is, for people: `node n2`.
    pub whose: String,
}

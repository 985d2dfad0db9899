//! The verdict on a daemon: is it well, and if not, what is to be done?

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The worst of what is wrong and not muted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
pub enum HealthStatus {
    /// Nothing is wrong.
    #[default]
    #[serde(rename = "HEALTH_OK")]
    Ok,
    /// All is served, and something needs attention.
    #[serde(rename = "HEALTH_WARN")]
    Warn,
    /// Something is not served, or data are in danger.
    #[serde(rename = "HEALTH_ERR")]
    Err,
}

impl HealthStatus {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            HealthStatus::Ok => "HEALTH_OK",
            HealthStatus::Warn => "HEALTH_WARN",
            HealthStatus::Err => "HEALTH_ERR",
        }
    }
}

/// How bad one thing is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Warning,
    Error,
}

impl Severity {
    /// What the daemon is with that.
    pub fn status(self) -> HealthStatus {
        match self {
            Severity::Warning => HealthStatus::Warn,
            Severity::Error => HealthStatus::Err,
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthCheck {
    /// Such as `DIRTY_OLD`; `docs/health.md` lists all.
    pub code: String,
    pub severity: Severity,
    /// The volume, store, node, export or thread that it is about; absent: the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// What is wrong.
    pub message: String,
    pub what_to_do: String,
    /// It does not count, since an operator muted its code.
    #[serde(default)]
    pub muted: bool,
}

/// The verdict, and the reasons for it, the worst first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: HealthStatus,
    pub checks: Vec<HealthCheck>,
    /// Codes that do not count for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutes: Vec<Mute>,
}

/// A code that does not count for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mute {
    pub code: String,
    /// Seconds since 1970.
    pub until_unix_seconds: u64,
    /// Who muted it.
    pub who: String,
    /// What it was about then; the mute ends when it is about more, or becomes an error.
    pub about: Vec<String>,
    pub severity: Severity,
}

/// For how long a code is muted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MuteAsk {
    /// 1 second to 30 days; 0: a day.
    pub for_seconds: u64,
}

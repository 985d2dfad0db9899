//! Settings that are not as the configuration says.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One of a volume, on its data thread.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Override {
    pub key: String,
    pub configured: Value,
    pub kept: Option<Value>,
    pub until_restart: Option<Value>,
}

/// A setting of a volume that is not as its configuration says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    pub volume: String,
    /// As `tanada volume set` takes it; of a tier `tier.period`.
    pub key: String,
    /// What the configuration says, or what is built in; null where it has no such figure.
    pub configured: Value,
    /// What is kept in `DATA_DIR/settings.toml`; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptValue>,
    /// What holds until the restart; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_restart: Option<Value>,
}

/// A value that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeptValue {
    pub value: Value,
    /// By whom.
    pub who: String,
    /// Such as `2026-11-26T19:10:00Z`.
    pub when: String,
}

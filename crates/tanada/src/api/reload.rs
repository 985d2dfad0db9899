//! The configuration read anew: what is different, and what became of it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// When a line of the configuration can be put in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// While the daemon runs.
    Live,
    /// At a restart.
    Restart,
}

impl Effect {
    pub fn word(self) -> &'static str {
        match self {
            Effect::Live => "live",
            Effect::Restart => "restart",
        }
    }
}

/// A line that is different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChange {
    /// Such as `hybrid.vol0.write`.
    pub key: String,
    /// What it said; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it says; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    pub effect: Effect,
}

/// What a reload found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// By key.
    pub changes: Vec<ConfigChange>,
    /// It is in force; else it was only asked for.
    pub applied: bool,
}

/// How the configuration is read anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ReloadAsk {
    /// Only say what is different.
    pub dry_run: bool,
}

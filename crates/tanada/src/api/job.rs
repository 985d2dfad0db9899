//! Long work of a daemon: what runs, how far it is, how it ended.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A piece of long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Counted from 1 since the daemon began.
    pub id: u64,
    /// `scrub`, `calibrate`, `drain`, `detach`, `evacuate`, `repair` or `resync`.
    pub kind: String,
    /// `store` or `volume`.
    pub object: String,
    /// Its name.
    pub name: String,
    /// Who asked for it; absent: it began by itself, or the caller may not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub begun_unix_seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_seconds: Option<f64>,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Of `done` and `total`: `bytes`, `volumes` or `percent`.
    pub unit: String,
    pub done: u64,
    /// 0: it is not known.
    pub total: u64,
    /// If it goes on as it did; absent: that cannot be said yet, or it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// What it does now, or how it ended.
    pub words: String,
    /// Can it be cancelled?
    pub cancellable: bool,
    /// What it answered when it was done, as the request that began it would have been answered; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<serde_json::Value>,
}

/// How long work is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct BeginAsk {
    /// Is it answered when it is done, or at once, with its job and status 202?
    pub wait: bool,
}

impl Default for BeginAsk {
    fn default() -> BeginAsk {
        BeginAsk { wait: true }
    }
}

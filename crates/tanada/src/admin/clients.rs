//! Clients of NBD: ending the connections of those that do not answer or are not wanted.
//!
//! Always true: what a request has begun runs to its end; only its answer is lost.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use front::nbd::ConnectionSnapshot;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::api::{NbdClient, Refusal};
use super::{Answer, Control, Failure, body};
use crate::thread::Command;

/// Which clients are meant: those of whom everything holds that is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// At this address of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// With this number at its listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// That use this export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
}

impl Which {
    pub fn means(&self, listener: &str, client: &ConnectionSnapshot) -> bool {
        let there = self.listener.as_ref().is_none_or(|it| it == listener);
        let number = self.id.is_none_or(|id| id == client.id);
        let export = self.export.is_none() || self.export == client.export;
        there && number && export
    }

    /// Does it say enough that not every client is meant by an oversight?
    fn is_some(&self) -> bool {
        self.export.is_some() || (self.listener.is_some() && self.id.is_some())
    }
}

/// A client whose connection was ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gone {
    pub listener: String,
    pub client: NbdClient,
}

/// Ends connections of NBD clients: one by `listener` and `id`, or all of an `export`.
#[utoipa::path(post, path = "/v1/clients/disconnect", request_body = Which, responses(
    (status = 200, description = "Those that were ended", body = Vec<Gone>),
    (status = 404, description = "There is no such client", body = Refusal),
    (status = 422, body = Refusal),
))]
pub(super) async fn disconnect_clients(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Vec<Gone>> {
    let example = r#"{"listener": "127.0.0.1:10809", "id": 3} or {"export": "vol0"}"#;
    let which: Which = body(&headers, &text, example)?;
    if !which.is_some() {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "which client is meant? neither an export nor a listener with a number is named",
            format!("send such as {example}"),
        ));
    }
    let mut waiting = Vec::new();
    for thread in &control.threads {
        let (reply, answer) = oneshot::channel();
        let which = which.clone();
        // A thread that has ended has no clients.
        if thread.post(Command::Disconnect { which, reply }).is_ok() {
            waiting.push(answer);
        }
    }
    let mut gone = Vec::new();
    for answer in waiting {
        gone.extend(answer.await.unwrap_or_default());
    }
    match gone.is_empty() {
        false => Ok(Json(gone)),
        true => Err(Failure::new(
            StatusCode::NOT_FOUND,
            "no client is connected that this would mean",
            "`tanada client list` shows those that are",
        )),
    }
}

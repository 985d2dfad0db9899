//! Clients of NBD: ending the connections of those that do not answer or are not wanted.
//!
//! Always true: what a request has begun runs to its end; only its answer is lost.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::control::{Answer, Control, Failure, body};
use crate::api::clients::{Gone, Which};
use crate::api::refusal::Refusal;
use crate::daemon::thread::command::Command;

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

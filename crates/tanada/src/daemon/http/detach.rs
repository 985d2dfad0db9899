//! A volume's fast device is let go.

use std::sync::Arc;

use access::caller::Caller;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::control::{Control, Failure};
use super::jobs::{Answering, begin_ask};
use crate::api::job::{BeginAsk, Job};
use crate::api::refusal::Refusal;
use crate::api::volume::Volume;
use crate::daemon::jobs::{Kind, Work};
use crate::daemon::thread::command::VolumeCommand;

/// Writes all dirty data to the slow device and goes on without the fast one. Answers when done, or with `wait=false` at
/// once.
#[utoipa::path(post, path = "/v1/volumes/{name}/detach", params(("name" = String, Path), BeginAsk), responses(
    (status = 200, description = "The volume as it is now", body = Volume),
    (status = 202, description = "It goes on as a job", body = Job),
    (status = 404, body = Refusal),
    (status = 409, description = "Detached already, or being detached", body = Refusal),
    (status = 500, description = "A device failed", body = Refusal),
))]
pub(super) async fn detach_volume(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    query: Result<Query<BeginAsk>, QueryRejection>,
) -> Result<Response, Failure> {
    let ask = begin_ask(query)?;
    let work = Work::new(Kind::Detach, name.as_str());
    let begun = Answering::begin(&control, work, &caller, async move |control| {
        let volume = name.clone();
        let done = control.command(&name, |reply| VolumeCommand::Detach { volume, reply });
        done.await.map(|done| done.0)
    });
    begun?.answer(ask).await
}

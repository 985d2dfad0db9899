//! Settings of hybrids: changed, kept over restarts, shown and taken back.
//!
//! ```text
//! PATCH /v1/volumes/{name} -> data thread: checked, in force -> DATA_DIR/settings.toml -> answered
//!       ?until_restart=true                                 -> answered
//! ```
//!
//! Always true: of two changes of a volume the one that is in force last is the one that is kept.

use std::sync::Arc;

use ::access::caller::Caller;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::control::{Answer, Control, Failure, body, query};
use crate::api::refusal::Refusal;
use crate::api::settings::{Override, Setting};
use crate::api::volume::{Change, Volume};
use crate::daemon::common::saved_settings::keys_of;
use crate::daemon::thread::command::SettingsCommand;

/// It is in force, and could not be written.
fn not_kept(control: &Control, volume: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!(
            "{volume} is changed, but only until the daemon ends: cannot write {}: {error}",
            control.settings.path().display()
        ),
        "see to that file and its folder, then set it again",
    )
}

/// How long a change lasts.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Lasts {
    /// `true`: until the daemon ends; else it is kept in `DATA_DIR/settings.toml`.
    until_restart: bool,
}

/// What is taken back.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Taken {
    /// Keys with commas between them, such as `write,tier.period`; absent: all.
    keys: Option<String>,
}

/// Changes settings while the volume runs, and from now on: they are kept in `DATA_DIR/settings.toml`, before what the
/// configuration says. A trace that is begun is not.
#[utoipa::path(patch, path = "/v1/volumes/{name}", params(("name" = String, Path), Lasts), request_body = Change, responses(
    (status = 200, description = "The volume as it is now", body = Volume),
    (status = 404, body = Refusal),
    (status = 409, description = "Not in this state", body = Refusal),
    (status = 422, description = "A setting makes no sense; none was changed", body = Refusal),
    (status = 500, description = "It is in force, and cannot be kept", body = Refusal),
))]
pub(super) async fn change_volume(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    lasts: Result<Query<Lasts>, QueryRejection>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Volume> {
    let lasts = !query(lasts, "the key is until_restart, true or false")?.until_restart;
    let change: Change = body(&headers, &text, r#"{"write": "through"}"#)?;
    let keys = keys_of(&change);
    let turn = turn(&control, &name).await?;
    // Carried out to its end whether or not the client waits: what is in force is written.
    let changing = tokio::spawn(async move {
        let _turn = turn;
        let (volume, wanted) = (name.clone(), Box::new(change.clone()));
        let done = control.command(&name, |reply| SettingsCommand::Change {
            volume,
            change: wanted,
            lasts,
            who: caller.to_string(),
            reply,
        });
        let answer = done.await?;
        if lasts {
            let (who, when) = (caller.to_string(), jiff::Timestamp::now());
            let when = format!("{when:.0}");
            let kept = control
                .settings
                .keep(|kept| kept.set(&name, keys, (&who, &when)));
            kept.map_err(|error| not_kept(&control, &name, &error))?;
            let (volume, change) = (name.clone(), Box::new(change));
            let saved = control.command(&name, |reply| SettingsCommand::Saved {
                volume,
                change,
                reply,
            });
            let Json(()) = saved.await?;
        }
        Ok(answer)
    });
    ended(changing).await
}

/// Waits until no other change of a volume that is there is being made or written.
async fn turn(
    control: &Control,
    volume: &str,
) -> Result<tokio::sync::OwnedMutexGuard<()>, Failure> {
    let mut threads = control.threads.iter();
    match threads.any(|thread| thread.has.volumes.iter().any(|it| it == volume)) {
        true => Ok(control.settings.turn(volume).await),
        false => Err(control.unknown(volume)),
    }
}

async fn ended(changing: tokio::task::JoinHandle<Answer<Volume>>) -> Answer<Volume> {
    match changing.await {
        Ok(done) => done,
        Err(error) => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("a change of settings ended: {error}"),
            "look at the volume's settings, and set them again",
        )),
    }
}

/// Takes settings back to what the configuration says.
#[utoipa::path(delete, path = "/v1/volumes/{name}/settings", params(("name" = String, Path), Taken), responses(
    (status = 200, description = "The volume as it is now", body = Volume),
    (status = 404, description = "No such volume, or no such setting of it is kept", body = Refusal),
    (status = 409, description = "Not in this state", body = Refusal),
    (status = 422, description = "A key is empty, or without them the others make no sense; none was changed", body = Refusal),
    (status = 500, description = "It is in force, and cannot be kept", body = Refusal),
))]
pub(super) async fn reset_volume(
    State(control): State<Arc<Control>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    taken: Result<Query<Taken>, QueryRejection>,
) -> Answer<Volume> {
    let keys = named(query(taken, "the key is keys, such as keys=write,tier.period")?.keys)?;
    let turn = turn(&control, &name).await?;
    let changing = tokio::spawn(async move {
        let _turn = turn;
        let volume = name.clone();
        let overrides =
            control.command(&name, |reply| SettingsCommand::Overrides { volume, reply });
        let Json(overrides) = overrides.await?;
        let mut known: Vec<String> = overrides.into_iter().map(|it| it.key).collect();
        let in_force = known.clone();
        known.extend(control.settings.keys(&name));
        known.sort_unstable();
        known.dedup();
        let keys = match keys {
            Some(keys) => keys,
            None => known.clone(),
        };
        if let Some(unknown) = keys.iter().find(|key| !known.contains(key)) {
            return Err(as_configured(&name, unknown, &known));
        }
        // One that could not be written before is in the file alone.
        let reset = keys.iter().filter(|key| in_force.contains(key)).cloned();
        let (volume, reset) = (name.clone(), reset.collect());
        let done = control.command(&name, |reply| SettingsCommand::Reset {
            volume,
            keys: reset,
            who: caller.to_string(),
            reply,
        });
        let answer = done.await?;
        let kept = control.settings.keep(|kept| kept.reset(&name, &keys));
        kept.map_err(|error| not_kept(&control, &name, &error))?;
        Ok(answer)
    });
    ended(changing).await
}

/// The keys that are named; `None`: all.
fn named(keys: Option<String>) -> Result<Option<Vec<String>>, Failure> {
    let Some(keys) = keys else {
        return Ok(None);
    };
    let keys: Vec<String> = keys.split(',').map(str::to_owned).collect();
    match keys.iter().any(String::is_empty) {
        false => Ok(Some(keys)),
        true => Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a key is empty; nothing was changed",
            "name keys such as keys=write,tier.period, or leave keys out for all",
        )),
    }
}

fn as_configured(volume: &str, key: &str, known: &[String]) -> Failure {
    Failure::new(
        StatusCode::NOT_FOUND,
        format!("{key} of {volume} is as the configuration says"),
        match known.is_empty() {
            true => "no setting of it was changed".to_owned(),
            false => format!("what was changed: {}", known.join(", ")),
        },
    )
}

/// Settings of all volumes that are not as the configuration says.
#[utoipa::path(get, path = "/v1/settings", responses((status = 200, body = Vec<Setting>)))]
pub(super) async fn get_settings(State(control): State<Arc<Control>>) -> Answer<Vec<Setting>> {
    let threads = control.threads.iter();
    let names: Vec<&String> = threads.flat_map(|thread| &thread.has.volumes).collect();
    let mut all = Vec::new();
    for name in names {
        let volume = name.clone();
        let asked = control.command(name, |reply| SettingsCommand::Overrides { volume, reply });
        // Of one whose data thread died what is kept is shown.
        let mut overrides = asked.await.map_or_else(|_| Vec::new(), |Json(all)| all);
        for key in control.settings.keys(name) {
            if !overrides.iter().any(|it| it.key == key) {
                overrides.push(Override {
                    key,
                    ..Override::default()
                });
            }
        }
        all.extend(overrides.into_iter().map(|it| Setting {
            kept: control.settings.of(name, &it.key),
            volume: name.clone(),
            key: it.key,
            configured: it.configured,
            until_restart: it.until_restart,
        }));
    }
    Ok(Json(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_keys_are_all_and_an_empty_one_is_a_mistake() {
        let of = |keys: Option<&str>| named(keys.map(str::to_owned)).map_err(|it| it.status);
        assert_eq!(of(None), Ok(None));
        let two = ["write".to_owned(), "tier.period".to_owned()];
        assert_eq!(of(Some("write,tier.period")), Ok(Some(two.to_vec())));
        for keys in ["", ",", "write,", ",write"] {
            assert_eq!(
                of(Some(keys)),
                Err(StatusCode::UNPROCESSABLE_ENTITY),
                "{keys:?}"
            );
        }
    }
}

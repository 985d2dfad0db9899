//! The configuration read anew while the daemon runs: all that is different is put in force, or nothing.
//!
//! ```text
//! SIGHUP | POST /v1/reload -> file -> config::read -> diff -> one needs a restart: refused
//!    -> each hybrid checks; each thread its exports, and listens at new addresses; the admin API, too: one cannot, all give up
//!    -> each hybrid applies, each thread its exports, the admin API
//! ```
//!
//! Always true: one reload at a time; what `volume set` made last stands before the file, as at a start.

use std::sync::Arc;
use std::time::Duration;

use access::caller::Caller;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use config::{Config, ExportConfig, HybridConfig, StoreConfig};
use report::terminal::said;
use tokio::sync::oneshot;

use super::control::{Answer, Control, Failure, gone, query};
use super::doors::Doors;
use crate::api::refusal::Refusal;
use crate::api::reload::{ConfigChange, Effect, ReloadAsk, Reloaded};
use crate::daemon::common::log;
use crate::daemon::reload::exports::by_thread;
use crate::daemon::reload::lines::Written;
use crate::daemon::reload::{Loaded, diff, modified};
use crate::daemon::thread::command::{
    Command, EntrancesChange, SettingsCommand, Step, Things, ThreadHandle,
};

/// How long a data thread may take for a step.
const ANSWER: Duration = Duration::from_secs(60);

/// Reads the configuration anew and puts in force what is different.
#[utoipa::path(post, path = "/v1/reload", params(ReloadAsk), responses(
    (status = 200, body = Reloaded),
    (status = 409, description = "Something needs a restart, or a hybrid refuses; nothing was changed", body = Refusal),
    (status = 422, description = "The configuration is not good; nothing was changed", body = Refusal),
))]
pub(super) async fn post_reload(
    State(control): State<Arc<Control>>,
    Extension(doors): Extension<Arc<Doors>>,
    Extension(caller): Extension<Caller>,
    asked: Result<Query<ReloadAsk>, QueryRejection>,
) -> Answer<Reloaded> {
    let asked = query(asked, "the key is dry_run, true or false")?;
    let who = caller.to_string();
    reload(&control, &doors, (asked.dry_run, &who))
        .await
        .map(Json)
}

/// As the signal does it: the log says what came of it.
pub async fn on_signal(control: &Control, doors: &Doors) {
    match reload(control, doors, (false, "SIGHUP")).await {
        Ok(done) if done.changes.is_empty() => {
            tracing::info!("the configuration was read anew: nothing is different");
        }
        Ok(done) => {
            let keys: Vec<&str> = done.changes.iter().map(|it| it.key.as_str()).collect();
            tracing::info!("the configuration was read anew: {}", keys.join(", "));
        }
        Err(failure) => {
            let Refusal { error, what_to_do } = failure.refusal;
            tracing::error!("the configuration was not read anew: {error}; {what_to_do}");
        }
    }
}

/// `who` has it read.
async fn reload(
    control: &Control,
    doors: &Doors,
    (dry_run, who): (bool, &str),
) -> Result<Reloaded, Failure> {
    let loaded = &control.loaded;
    let _turn = loaded.turn.lock().await;
    let (written, config) = read(loaded)?;
    let before = loaded.written();
    let changes = diff::changes(&before.lines, &written.lines);
    if dry_run {
        return Ok(Reloaded {
            changes,
            applied: false,
        });
    }
    needs_no_restart(&changes)?;
    let mut hybrids = config.hybrids.clone();
    let names = diff::hybrids(&before.lines, &written.lines);
    hybrids.retain(|it| names.contains(it.name()));
    let mut turns = Vec::new();
    for hybrid in &hybrids {
        // No setting changes between the check and the rest.
        turns.push(control.settings.turn(hybrid.name()).await);
    }
    for hybrid in &hybrids {
        configure(control, hybrid, true).await?;
    }
    let opened = doors.listen(&config.admin).await;
    let opened = opened.map_err(|error| {
        let words = said::words(&error);
        Failure::of_sentence(StatusCode::CONFLICT, &words, "the log says more")
    })?;
    let exports = exports_of_threads(control, &config)?;
    check_entrances(control, &exports, &config.stores).await?;
    for (number, hybrid) in hybrids.iter().enumerate() {
        let done = configure(control, hybrid, false).await;
        if let Err(failure) = done {
            give_up(control);
            return Err(half_done(failure, &hybrids[..number]));
        }
    }
    let mut failed = None;
    for (thread, exports) in control.threads.iter().zip(exports) {
        let done = entrances_step(thread, exports, &config.stores, Step::Apply).await;
        failed = failed.or(done.err());
    }
    doors.change(&config.admin, opened);
    if let Some(failure) = failed {
        // The file is not in force as a whole: what is left is tried at the next reload.
        return Err(half_done(failure, &hybrids));
    }
    say(&changes, who);
    log::set_level(config.log);
    loaded.set(written, config);
    Ok(Reloaded {
        changes,
        applied: true,
    })
}

fn say(changes: &[ConfigChange], who: &str) {
    for change in changes {
        let (key, before, after) = (&change.key, &change.before, &change.after);
        tracing::info!(who, key, ?before, ?after, "configured anew");
    }
}

/// What the configuration has for each data thread.
fn exports_of_threads(
    control: &Control,
    config: &Config,
) -> Result<Vec<Vec<ExportConfig>>, Failure> {
    let before = control.loaded.config().map(|it| it.exports);
    let all: Vec<&Things> = control.threads.iter().map(|it| &it.has).collect();
    let split = by_thread(&before.unwrap_or_default(), &config.exports, &all);
    split.map_err(|why| {
        let todo = "restart the daemon when a pause of some seconds suits, or take the line back";
        Failure::new(
            StatusCode::CONFLICT,
            format!("{why}; nothing was changed"),
            todo,
        )
    })
}

/// Has each thread check its exports and stores; if one cannot, none keeps what it opened for that.
async fn check_entrances(
    control: &Control,
    exports: &[Vec<ExportConfig>],
    stores: &[StoreConfig],
) -> Result<(), Failure> {
    for (thread, exports) in control.threads.iter().zip(exports) {
        let checked = entrances_step(thread, exports.clone(), stores, Step::Check).await;
        if checked.is_err() {
            give_up(control);
            return checked;
        }
    }
    Ok(())
}

/// No thread keeps what it opened for a change that is not made.
fn give_up(control: &Control) {
    for thread in &control.threads {
        // For its answer nothing waits; where it has ended nothing is open.
        let _ = thread.post(Command::Entrances(EntrancesChange {
            step: Step::GiveUp,
            exports: Vec::new(),
            stores: Vec::new(),
            reply: oneshot::channel().0,
        }));
    }
}

async fn entrances_step(
    thread: &ThreadHandle,
    exports: Vec<ExportConfig>,
    stores: &[StoreConfig],
    step: Step,
) -> Result<(), Failure> {
    let (reply, answer) = oneshot::channel();
    let stores = stores
        .iter()
        .filter(|it| thread.has.stores.contains(&it.name));
    let stores = stores.cloned().collect();
    let command = Command::Entrances(EntrancesChange {
        step,
        exports,
        stores,
        reply,
    });
    thread.post(command).map_err(|_| gone(thread))?;
    let silent = |_| {
        let names = thread.names.join(", ");
        let error = format!(
            "the data thread of {names} gave no answer within {} s",
            ANSWER.as_secs()
        );
        let todo = "look at the daemon's log; `tanada reload --dry-run` says what is not in force";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, todo)
    };
    let done = tokio::time::timeout(ANSWER, answer).await.map_err(silent)?;
    Ok(done.map_err(|_| gone(thread))??)
}

fn read(loaded: &Loaded) -> Result<(Written, Config), Failure> {
    let Some(file) = &loaded.file else {
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "this daemon has no file of a configuration that could be read anew",
            "start it with one: `tanada config example` prints a beginning",
        ));
    };
    let wrong = |error: String| {
        let todo = "correct the file; nothing was changed, and the daemon goes on as before";
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, error, todo)
    };
    let name = file.display().to_string();
    // Before the text: a line that comes between counts as older, not as newer.
    let modified = modified(file);
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| wrong(format!("cannot read {name}: {error}")))?;
    let config = config::read(&text, &name, loaded.data_dir.as_deref());
    let config = config.map_err(|error| wrong(error.to_string()))?;
    Ok((Written::of(&text, modified), config))
}

fn needs_no_restart(changes: &[ConfigChange]) -> Result<(), Failure> {
    let restart = changes.iter().filter(|it| it.effect == Effect::Restart);
    let keys: Vec<&str> = restart.map(|it| it.key.as_str()).collect();
    match keys.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            StatusCode::CONFLICT,
            format!(
                "a restart alone puts in force: {}; nothing was changed",
                keys.join(", ")
            ),
            "restart the daemon when a pause of some seconds suits, or take these lines back",
        )),
    }
}

/// A hybrid could not go by what it had agreed to: a device failed.
fn half_done(failure: Failure, done: &[HybridConfig]) -> Failure {
    let names: Vec<&str> = done.iter().map(HybridConfig::name).collect();
    if names.is_empty() {
        return failure;
    }
    let Refusal { error, what_to_do } = failure.refusal;
    let error = format!("{error}; {} go by the new file already", names.join(", "));
    Failure::new(failure.status, error, what_to_do)
}

/// Has a hybrid check what the configuration says of it now, or go by it.
async fn configure(
    control: &Control,
    hybrid: &HybridConfig,
    is_check: bool,
) -> Result<(), Failure> {
    let name = hybrid.name().to_owned();
    let (volume, config) = (name.clone(), Box::new(hybrid.clone()));
    let done = control.command(&name, |reply| SettingsCommand::Configure {
        volume,
        config,
        is_check,
        reply,
    });
    done.await.map(|Json(_)| ())
}

//! Parameters of tiers, learned from what volumes were asked: on request, and kept current where `auto` is on.
//!
//! ```text
//! every LOOK: each volume with a tier hands out what it counted, if it is time -> a thread that may compute
//!             -> learned parameters that are worth it -> a change of settings, named in the log and the status
//! GET .../tier-advice: the same at once, and nothing is changed
//! ```
//!
//! What was learned outlasts the daemon, in `DATA_DIR/learned.json`: it is in force again at the next start if the
//! configuration says the same as when it was learned.
//!
//! Always true: a data thread only copies counts; the search runs beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use config::tier::{Said, TierKeys};
use policy::tier::Parameters;
use serde::{Deserialize, Serialize};
use sim::advise::tier::{Auto, Learned, Verdict};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::control::{Answer, Control, Failure};
use crate::api::learn::TierSeen;
use crate::api::learn::{Simulated, TierAdvice};
use crate::api::refusal::Refusal;
use crate::api::volume::Change;
use crate::daemon::common::whole_file;
use crate::daemon::thread::command::{SettingsCommand, TierState, VolumeCommand};

/// How often volumes are asked what they counted; they keep longer than that.
const LOOK: Duration = Duration::from_secs(20);

fn simulated(score: &sim::advise::tier::Score) -> Simulated {
    Simulated {
        share: score.share(),
        net_share: score.net(),
        regions_up_most: score.up_most,
        moves_up: score.ups,
        moves_down: score.downs,
    }
}

impl TierAdvice {
    fn new(volume: &str, state: &TierState, learned: &Learned, worth_it: bool) -> TierAdvice {
        let parameters = &learned.setting.parameters;
        let keys = serde_json::to_value(keys(&state.parameters, parameters)).unwrap_or_default();
        let changes = keys.as_object().into_iter().flatten();
        TierAdvice {
            seen: TierSeen {
                volume: volume.to_owned(),
                known_seconds: state.history.span().secs_f64(),
                requests: state.history.requests(),
                region_bytes: learned.setting.region.0,
                period_seconds: parameters.period.secs_f64(),
            },
            iops_min: parameters.iops_min,
            sub_luns_max: parameters.sub_luns_max,
            share_min: parameters.share_min,
            streak_min: parameters.streak_min,
            timeout: parameters.timeout,
            simulated: simulated(&learned.score),
            present: simulated(&learned.present),
            held_out: simulated(&learned.held_out),
            present_held_out: simulated(&learned.present_held_out),
            worth_it,
            changes: changes
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect(),
        }
    }
}

/// The keys that make `new` of `old`.
fn keys(old: &Parameters, new: &Parameters) -> TierKeys {
    let said = |differs: bool, value: String| differs.then_some(Said(value));
    TierKeys {
        iops_min: said(old.iops_min != new.iops_min, new.iops_min.to_string()),
        sub_luns_max: said(
            old.sub_luns_max != new.sub_luns_max,
            new.sub_luns_max.to_string(),
        ),
        share_min: said(old.share_min != new.share_min, new.share_min.to_string()),
        streak_min: said(old.streak_min != new.streak_min, new.streak_min.to_string()),
        timeout: said(old.timeout != new.timeout, new.timeout.to_string()),
        ..TierKeys::default()
    }
}

/// The turn of a search that was asked for: each takes a processor and much memory, so there is one at a time.
fn claim(searching: &Arc<Semaphore>, name: &str) -> Result<OwnedSemaphorePermit, Failure> {
    Arc::clone(searching).try_acquire_owned().map_err(|_| {
        Failure::new(
            StatusCode::CONFLICT,
            format!("parameters for the tier of {name} cannot be searched for now: another search is under way"),
            "ask again in a minute: there is one at a time",
        )
    })
}

/// Parameters for the tier of a volume, learned from what it was asked in the last days. Nothing is changed.
#[utoipa::path(get, path = "/v1/volumes/{name}/tier-advice", params(("name" = String, Path)), responses(
    (status = 200, body = TierAdvice),
    (status = 404, body = Refusal),
    (status = 409, description = "It has no tier, too little is known, or another search is under way", body = Refusal),
))]
pub(super) async fn get_tier_advice(
    State(control): State<Arc<Control>>,
    Path(name): Path<String>,
) -> Answer<TierAdvice> {
    let turn = claim(&control.searching, &name)?;
    let volume = name.clone();
    let Json(state) = control
        .command(&name, |reply| VolumeCommand::TierState {
            volume,
            asked: true,
            reply,
        })
        .await?;
    let judged = tokio::task::spawn_blocking(move || {
        // Held by the search itself: it goes on if the asker goes away.
        let _turn = turn;
        let learned = match Auto::judge(&state.history, &state.parameters, &state.terms) {
            Verdict::TooLittle => None,
            Verdict::Change(learned) => Some((learned, true)),
            Verdict::Stay(learned) => Some((learned, false)),
        };
        (state, learned)
    });
    let failed = |error: tokio::task::JoinError| {
        let error = format!("the search for parameters of {name} failed: {error}");
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error,
            "report this as a bug",
        )
    };
    match judged.await.map_err(failed)? {
        (state, Some((learned, worth_it))) => {
            Ok(Json(TierAdvice::new(&name, &state, &learned, worth_it)))
        }
        (state, None) => Err(Failure::new(
            StatusCode::CONFLICT,
            format!(
                "too little is known of {name} for advice on its tier: {} requests in {} s",
                state.history.requests(),
                state.history.span().secs_f64()
            ),
            "let it work as usual for some hours, and ask again",
        )),
    }
}

/// What is learned or configured: the parameters by which regions go up and down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Choice {
    policy: String,
    region_bytes: u64,
    period_nanos: u64,
    iops_min: f64,
    sub_luns_max: u32,
    share_min: f64,
    streak_min: u32,
    timeout: u32,
}

impl Choice {
    fn of(state: &TierState) -> Choice {
        let parameters = &state.parameters;
        Choice {
            policy: state.terms.kind.to_string(),
            region_bytes: state.history.region().0,
            period_nanos: parameters.period.0,
            iops_min: parameters.iops_min,
            sub_luns_max: parameters.sub_luns_max,
            share_min: parameters.share_min,
            streak_min: parameters.streak_min,
            timeout: parameters.timeout,
        }
    }

    /// The same, with what is learned of `parameters`.
    fn learning(&self, parameters: &Parameters) -> Choice {
        Choice {
            iops_min: parameters.iops_min,
            sub_luns_max: parameters.sub_luns_max,
            share_min: parameters.share_min,
            streak_min: parameters.streak_min,
            timeout: parameters.timeout,
            ..self.clone()
        }
    }

    fn parameters(&self, old: &Parameters) -> Parameters {
        Parameters {
            iops_min: self.iops_min,
            sub_luns_max: self.sub_luns_max,
            share_min: self.share_min,
            streak_min: self.streak_min,
            timeout: self.timeout,
            ..*old
        }
    }
}

/// What was learned of one volume, and what was configured then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Lesson {
    configured: Choice,
    learned: Choice,
}

/// What was learned, kept in a file; and what each volume was configured with at this start.
struct Lessons {
    file: PathBuf,
    kept: BTreeMap<String, Lesson>,
    configured: BTreeMap<String, Choice>,
}

impl Lessons {
    /// What is kept in `data_dir`. A file that makes no sense is logged and begun anew: it can be learned again.
    fn read(data_dir: &std::path::Path) -> Lessons {
        let file = data_dir.join("learned.json");
        let kept = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let shown = file.display();
                tracing::warn!("what tiers have learned is lost, {shown} makes no sense: {error}");
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        Lessons {
            file,
            kept,
            configured: BTreeMap::new(),
        }
    }

    /// The parameters of `name` were looked at: what was learned of it before, if this is the first look since the start
    /// and it was configured then as it is now.
    fn begin(&mut self, name: &str, now: Choice) -> Option<Choice> {
        if self.configured.contains_key(name) {
            return None;
        }
        let lesson = self.kept.get(name);
        let fits = lesson.filter(|one| one.configured == now && one.learned != now);
        let learned = fits.map(|lesson| lesson.learned.clone());
        self.configured.insert(name.to_owned(), now);
        learned
    }

    /// `name` goes by `learned` from now on. What cannot be written lasts until the daemon ends.
    fn keep(&mut self, name: &str, learned: Choice) {
        let Some(configured) = self.configured.get(name).cloned() else {
            return;
        };
        let lesson = Lesson {
            configured,
            learned,
        };
        self.kept.insert(name.to_owned(), lesson);
        if let Err(error) = self.write() {
            let shown = self.file.display();
            tracing::warn!("what the tier of {name} learned is not kept, {shown}: {error}");
        }
    }

    fn write(&self) -> std::io::Result<()> {
        whole_file::replace(&self.file, &serde_json::to_vec_pretty(&self.kept)?)
    }
}

/// Keeps the parameters of every tier current where `auto` is on, and what it learns in `data_dir`; never ends.
pub async fn keep_current(control: Arc<Control>, data_dir: PathBuf) {
    let mut lessons = Lessons::read(&data_dir);
    loop {
        let volumes = control
            .threads
            .iter()
            .flat_map(|thread| thread.has.volumes.iter());
        for volume in volumes {
            look(&control, &mut lessons, volume).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One look at one volume.
async fn look(control: &Control, lessons: &mut Lessons, name: &str) {
    let volume = name.to_owned();
    // A volume without a tier refuses; there is nothing to keep current then.
    let state = control.command(name, |reply| VolumeCommand::TierState {
        volume,
        asked: false,
        reply,
    });
    let Ok(Json(state)) = state.await else { return };
    let before = state.parameters;
    let choice = Choice::of(&state);
    let earlier = lessons.begin(name, choice.clone());
    if let Some(earlier) = earlier.filter(|_| state.auto) {
        let keys = keys(&before, &earlier.parameters(&before));
        match change(control, name, &keys).await {
            Ok(()) => tracing::info!(
                volume = name,
                keys = serde_json::to_string(&keys).unwrap_or_default(),
                "the tier goes by what it learned before"
            ),
            Err(failure) => tracing::warn!(
                volume = name,
                "what was learned before was not taken: {}",
                failure.refusal
            ),
        }
        return;
    }
    if !state.due {
        return;
    }
    let Some(learned) = search(control, name, state).await else {
        return;
    };
    let keys = keys(&before, &learned.setting.parameters);
    match change(control, name, &keys).await {
        Ok(()) => {
            tracing::info!(
                volume = name,
                keys = serde_json::to_string(&keys).unwrap_or_default(),
                saved_now = learned.present.net(),
                saved_then = learned.score.net(),
                "the tier has learned new parameters"
            );
            lessons.keep(name, choice.learning(&learned.setting.parameters));
        }
        Err(failure) => {
            tracing::warn!(
                volume = name,
                "learned parameters were not taken: {}",
                failure.refusal
            );
        }
    }
}

/// Parameters that would do the tier of `name` enough good.
async fn search(control: &Control, name: &str, state: TierState) -> Option<Learned> {
    // Fails only once the daemon ends.
    let turn = Arc::clone(&control.searching).acquire_owned().await.ok()?;
    let judged = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        Auto::judge(&state.history, &state.parameters, &state.terms)
    });
    match judged.await {
        Ok(Verdict::Change(learned)) => return Some(learned),
        Ok(Verdict::Stay(learned)) => tracing::debug!(
            volume = name,
            now = learned.present.net(),
            best = learned.score.net(),
            "the parameters of the tier still suit"
        ),
        Ok(Verdict::TooLittle) => {}
        Err(error) => {
            tracing::error!(volume = name, "the search for parameters failed: {error}");
        }
    }
    None
}

/// Sets `keys` of the tier of `name`.
async fn change(control: &Control, name: &str, keys: &TierKeys) -> Result<(), Failure> {
    let change = Change {
        tier: Some(keys.clone()),
        ..Change::default()
    };
    let volume = name.to_owned();
    let changed = control.command(name, |reply| SettingsCommand::Change {
        who: "its tier, which keeps its parameters current".to_owned(),
        volume,
        change: Box::new(change),
        // What was learned is kept where it was learned.
        lasts: false,
        reply,
    });
    changed.await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(share_min: f64) -> Choice {
        Choice {
            policy: "on-the-fly".to_owned(),
            region_bytes: 1 << 30,
            period_nanos: 10_000_000_000,
            iops_min: 50.0,
            sub_luns_max: 40,
            share_min,
            streak_min: 2,
            timeout: 60,
        }
    }

    #[test]
    fn parameters_of_tiers_are_searched_for_one_volume_at_a_time() {
        let searching = Arc::new(Semaphore::new(1));
        let first = claim(&searching, "vol0").ok().unwrap();
        let refused = claim(&searching, "vol1").err().unwrap();
        assert_eq!(refused.status, StatusCode::CONFLICT);
        assert!(refused.refusal.error.contains("another search"));
        drop(first);
        assert!(claim(&searching, "vol1").is_ok());
    }

    #[test]
    fn learned_parameters_return_after_a_restart_unless_configured_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut lessons = Lessons::read(dir.path());
        assert_eq!(lessons.begin("vol0", choice(80.0)), None);
        lessons.keep("vol0", choice(95.0));
        assert_eq!(lessons.begin("vol0", choice(95.0)), None, "not twice");
        let again = || Lessons::read(dir.path());
        assert_eq!(again().begin("vol0", choice(80.0)), Some(choice(95.0)));
        assert_eq!(again().begin("vol0", choice(70.0)), None, "configured anew");
        assert_eq!(again().begin("vol1", choice(80.0)), None, "another volume");
        // Learned upon what was learned before: it stands for the configuration still.
        let mut second = again();
        second.begin("vol0", choice(80.0));
        second.keep("vol0", choice(60.0));
        assert_eq!(again().begin("vol0", choice(80.0)), Some(choice(60.0)));
        let old = Parameters::default();
        let new = choice(60.0).parameters(&old);
        assert_eq!((new.share_min, new.period), (60.0, old.period));
    }

    #[test]
    fn a_damaged_file_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("learned.json"), "{\"vol0\": 7").unwrap();
        let mut lessons = Lessons::read(dir.path());
        assert_eq!(lessons.begin("vol0", choice(80.0)), None);
        lessons.keep("vol0", choice(95.0));
        let again = Lessons::read(dir.path()).begin("vol0", choice(80.0));
        assert_eq!(again, Some(choice(95.0)));
    }

    #[test]
    fn only_what_differs_is_changed() {
        let old = Parameters::default();
        let new = Parameters {
            streak_min: 1,
            share_min: 80.0,
            ..old
        };
        let found = keys(&old, &new);
        assert_eq!(
            serde_json::to_string(&found).unwrap(),
            r#"{"share_min":"80","streak_min":"1"}"#
        );
        let tier = found.apply(&hybrid::Tier::default()).unwrap();
        assert_eq!(tier.parameters.share_min, 80.0);
        assert_eq!(keys(&old, &old), TierKeys::default());
    }
}

//! Opening a pair: is `fast` the volume's cache, and is it to be recovered or made anew?

use std::rc::Rc;

use device::Device;

use super::Begin;
use super::disk::Engine;
use super::format::{check_free, format};
use super::recover::recover;
use super::setup::{Ties, check_lane, keeper, refused_words};
use crate::attach::error::OpenError;
use crate::attach::label::{Label, Unlabelled};
use crate::attach::pair::{Verdict, is_ours, judge};
use crate::attach::refuse::loses;

/// May a lane of several begin on `fast`, which shows `found`? Nothing is written.
///
/// # Errors
/// Why not.
pub(super) async fn may_begin(
    engine: &Engine,
    how: Begin,
    fast: &Rc<dyn Device>,
    found: &Result<Label, Unlabelled>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let name = &engine.volume.name;
    let record = keeper(name, ties)?.record();
    let force = ties.force && how == Begin::OpenOrCreate;
    let verdict = judge(name, record, found, &ties.abandoned, force);
    match (how, verdict, found) {
        (Begin::Open | Begin::OpenOrCreate, Verdict::Open, Ok(label)) => {
            check_lane(engine, fast, label)
        }
        (Begin::Open, Verdict::Refuse(refusal), _) => {
            Err(refused_words(engine, fast, found, refusal, None))
        }
        (Begin::Open, ..) => Err(no_cache(fast, found)),
        _ => check_free(engine, fast, found, record, ties).await,
    }
}

/// Nothing is on `fast` that could be opened.
fn no_cache(fast: &Rc<dyn Device>, found: &Result<Label, Unlabelled>) -> OpenError {
    let why = match found {
        Ok(_) => "the cache on it was detached or given up",
        Err(_) => "it is blank",
    };
    OpenError::NoCache {
        fast: fast.info().name,
        why: why.to_owned(),
    }
}

/// See [`crate::Hybrid::open`].
pub(super) async fn open(
    engine: &Engine,
    fast: Rc<dyn Device>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let name = &engine.volume.name;
    let keeper = keeper(name, ties)?;
    let found = Label::read(&fast).await?;
    let verdict = judge(name, keeper.record(), &found, &ties.abandoned, false);
    match (verdict, found) {
        (Verdict::Open, Ok(label)) => {
            check_lane(engine, &fast, &label)?;
            recover(engine, fast, label, ties, keeper).await
        }
        (Verdict::Refuse(refusal), found) => {
            Err(refused_words(engine, &fast, &found, refusal, None))
        }
        (_, found) => Err(no_cache(&fast, &found)),
    }
}

/// See [`crate::Hybrid::open_or_create`].
pub(super) async fn open_or_create(
    engine: &Engine,
    fast: Rc<dyn Device>,
    ties: &Ties,
) -> Result<(), OpenError> {
    let name = &engine.volume.name;
    let keeper = keeper(name, ties)?;
    let found = Label::read(&fast).await?;
    let verdict = judge(name, keeper.record(), &found, &ties.abandoned, ties.force);
    let (Verdict::Open, Ok(label)) = (verdict, found) else {
        return format(engine, fast, ties).await;
    };
    check_lane(engine, &fast, &label)?;
    let ours = is_ours(name, keeper.record(), &label);
    let may_force = ties.force && ours && !keeper.now().dirty;
    match recover(engine, Rc::clone(&fast), label, ties, keeper).await {
        Err(error) if may_force && !matches!(error, OpenError::Device(_)) => {
            tracing::warn!("{}", loses(name, &error));
            format(engine, fast, ties).await
        }
        answer => answer,
    }
}

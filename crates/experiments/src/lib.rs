//! The papers' experiments by name, and the form of their results.
//!
//! ```text
//! name + Options -> run -> Vec<Row>: one figure, one row, published and ours side by side
//! ```
//!
//! Always true:
//! 1. The same options give the same rows, bit for bit, but for what runs in real time (`predict-loop`, `truth`, a part of `reserve`).
//! 2. A short run (`Options::quick`) has the same rows as a long one; only their values and notes differ.

pub mod app;
pub mod cache;
mod experiment;
pub mod predict;
pub mod predict_loop;
pub mod replica;
pub mod reserve;
pub mod tiering;
pub mod truth;

pub use experiment::{ExperimentError, Listing, Options, Part, Progress, Results};
use report::Row;

/// Every experiment there is.
pub fn list() -> Vec<Listing> {
    vec![
        cache::LISTING,
        predict::LISTING,
        predict_loop::LISTING,
        replica::LISTING,
        reserve::LISTING,
        tiering::LISTING,
        truth::LISTING,
    ]
}

/// Runs the experiment `name`.
///
/// # Errors
/// [`ExperimentError::Unknown`] names the choices; the others say which case of which method failed.
pub fn run(
    name: &str,
    options: Options<'_>,
    progress: &mut Progress<'_>,
) -> Result<Results, ExperimentError> {
    let rows_alone = |rows| Results {
        rows,
        figures: Vec::new(),
    };
    match name {
        "cache" => cache::run(options, progress).map(rows_alone),
        "predict" => predict::run(options, progress).map(rows_alone),
        "predict-loop" => predict_loop::run(options, progress).map(rows_alone),
        "replica" => replica::run(options, progress),
        "reserve" => reserve::run(options, progress),
        "tiering" => tiering::run(options, progress),
        "truth" => truth::run(options, progress),
        _ => Err(ExperimentError::Unknown {
            asked: name.to_owned(),
            known: list()
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// What in `rows` must not be: figures that have to come out as printed and do not, as a sentence each.
pub fn failures(name: &str, rows: &[Row]) -> Vec<String> {
    match name {
        "predict" => predict::differences(rows),
        // The others' devices are models: differences are part of the result.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_refused_with_the_choices() {
        let refusal = run("cash", Options::default(), &mut |_, _| {}).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "there is no experiment 'cash'; choose one of cache, predict, predict-loop, replica, reserve, tiering, truth"
        );
    }
}

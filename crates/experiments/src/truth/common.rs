//! What all parts name: the experiment, its sides, why a run did not end, and what a real run needs.

use std::path::Path;

use super::cases::Extent;
use crate::app::process::Stop;
use crate::experiment::Listing;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "truth",
    paper: "-",
    about: "the simulator beside a whole daemon in real time: the same requests over the same models",
};

/// The sides, as methods.
pub(super) const VIRTUAL: &str = "virtual";
pub(super) const REAL: &str = "real";

/// Why a run did not come to an end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Words(String),
    #[error("interrupted")]
    Interrupted,
}

impl From<String> for Trouble {
    fn from(words: String) -> Trouble {
        Trouble::Words(words)
    }
}

/// What runs in real time, one after the other.
pub(super) struct Bench<'a> {
    pub program: &'a Path,
    pub extent: &'a Extent,
    pub stop: &'a Stop,
}

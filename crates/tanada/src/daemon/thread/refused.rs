//! Why a data thread did not carry out a command.

use crate::api::refusal::Refusal;

/// Why a command was not carried out.
#[derive(Debug)]
pub enum Refused {
    /// What was named is not there.
    Unknown(Refusal),
    /// A setting makes no sense.
    Invalid(Refusal),
    /// Not in this state.
    Conflict(Refusal),
    /// It was tried and failed.
    Failed(Refusal),
}

impl Refused {
    pub fn into_refusal(self) -> Refusal {
        match self {
            Refused::Unknown(refusal)
            | Refused::Invalid(refusal)
            | Refused::Conflict(refusal)
            | Refused::Failed(refusal) => refusal,
        }
    }
}

/// A setting that makes no sense.
pub fn cannot_set(key: &str, volume: &str, what: &str) -> Refused {
    Refused::Invalid(Refusal {
        error: format!("cannot set {key} of {volume}: {what}"),
        what_to_do: "nothing was changed".into(),
    })
}

pub fn failed(error: String) -> Refused {
    Refused::Failed(Refusal {
        error,
        what_to_do: "the daemon's log may say more".into(),
    })
}

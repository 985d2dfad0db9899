//! Why a request was not carried out.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What was asked and what stood in the way.
    pub error: String,
    /// What to do next.
    pub what_to_do: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what_to_do.is_empty() {
            true => f.write_str(&self.error),
            false => write!(f, "{}; {}", self.error, self.what_to_do),
        }
    }
}

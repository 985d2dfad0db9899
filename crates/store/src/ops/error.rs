//! Why a request was not done, for a caller that only must know what may have happened.
//!
//! ```text
//! error of a store, a session, a client --> fenced | not done, and of which kind | indeterminate
//! ```
//!
//! Always true: [`ObjectError::Indeterminate`] is the only answer to a change that may have happened or may yet happen.

use policy::place::State;

use super::{Limits, ObjectOps, Pending, Request, Response};
use crate::object::error::StoreError;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The fence was sealed with a greater token. Nothing was done.
    #[error("{why}")]
    Fenced {
        /// The greater one.
        found: u64,
        /// The store's words.
        why: String,
    },
    /// The object is not there. Nothing was done.
    #[error("{0}")]
    Absent(String),
    /// What was read, or what a change would keep a part of, is not what was written. Nothing was done.
    #[error("{0}")]
    Damaged(String),
    /// No room. Nothing was done.
    #[error("{0}")]
    Full(String),
    /// Refused for another reason. Nothing was done.
    #[error("{0}")]
    Refused(String),
    /// The store's disk was put back to an earlier state. Nothing was done.
    #[error("{0}")]
    PutBack(String),
    /// There is no way to the store. Nothing was done.
    #[error("{0}")]
    Gone(String),
    /// Indeterminate: it may have been done, and may yet be.
    #[error("{0}")]
    Indeterminate(String),
}

impl ObjectError {
    /// Is the connection of no more use?
    pub fn ends_connection(&self) -> bool {
        matches!(self, ObjectError::Gone(_) | ObjectError::Indeterminate(_))
    }

    /// Is it not known whether the change was made?
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, ObjectError::Indeterminate(_))
    }
}

impl From<&StoreError> for ObjectError {
    fn from(error: &StoreError) -> ObjectError {
        let text = error.to_string();
        match error {
            StoreError::Fenced { found, .. } => ObjectError::Fenced {
                found: *found,
                why: text,
            },
            StoreError::NotFound { .. } => ObjectError::Absent(text),
            StoreError::Damaged { .. } => ObjectError::Damaged(text),
            StoreError::NoSpace { .. } | StoreError::TableFull { .. } => ObjectError::Full(text),
            // What failed at its end may have happened.
            StoreError::Device { .. } | StoreError::Failed { .. } | StoreError::Closed { .. } => {
                ObjectError::Indeterminate(text)
            }
            _ => ObjectError::Refused(text),
        }
    }
}

impl From<StoreError> for ObjectError {
    fn from(error: StoreError) -> ObjectError {
        ObjectError::from(&error)
    }
}

/// A way to a store whose errors become [`ObjectError`]s.
pub struct ObjectErrors<O>(pub O);

impl<O: ObjectOps<Error: Into<ObjectError>>> ObjectOps for ObjectErrors<O> {
    type Error = ObjectError;

    fn call(&self, request: Request) -> Pending<'_, Response> {
        Box::pin(async move { self.0.call(request).await.map_err(Into::into) })
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn load(&self) -> Option<State> {
        self.0.load()
    }
}

//! Why a store or a file did not do what it was asked, on its way to an exception.
//!
//! ```text
//! ObjectError | FileError | ClientError -> Failure: which exception, which words -> PyErr
//! ```

use files::FileError;
use pyo3::{PyErr, import_exception};
use store::net::client::ClientError;
use store::ops::ObjectError;

import_exception!(tanada._errors, Conflict);
import_exception!(tanada._errors, Exists);
import_exception!(tanada._errors, Indeterminate);
import_exception!(tanada._errors, NotFound);
import_exception!(tanada._errors, Refused);
import_exception!(tanada._errors, StoreError);

/// Which exception it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Absent,
    Conflict,
    Exists,
    Indeterminate,
    Refused,
    Other,
}

/// Crosses threads as data; the exception is made by the caller.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    text: String,
}

impl Failure {
    pub fn new(kind: Kind, text: impl Into<String>) -> Failure {
        let text = text.into();
        Failure { kind, text }
    }

    pub fn other(text: impl Into<String>) -> Failure {
        Failure::new(Kind::Other, text)
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Failure {
        let kind = match &error {
            ObjectError::Absent(_) => Kind::Absent,
            ObjectError::Refused(_) | ObjectError::Full(_) => Kind::Refused,
            ObjectError::Indeterminate(_) => Kind::Indeterminate,
            _ => Kind::Other,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::from(ObjectError::from(error))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let kind = match &error {
            FileError::Store(error) => return Failure::from(error.clone()),
            FileError::Absent { .. } => Kind::Absent,
            FileError::Exists { .. } => Kind::Exists,
            FileError::Changed { .. } | FileError::Replaced { .. } => Kind::Conflict,
            _ => Kind::Other,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let text = failure.text;
        match failure.kind {
            Kind::Absent => NotFound::new_err(text),
            Kind::Conflict => Conflict::new_err(text),
            Kind::Exists => Exists::new_err(text),
            Kind::Indeterminate => Indeterminate::new_err(text),
            Kind::Refused => Refused::new_err(text),
            Kind::Other => StoreError::new_err(text),
        }
    }
}

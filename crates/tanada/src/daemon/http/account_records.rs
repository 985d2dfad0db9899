//! The accounts, in the meta store that has them: how the handlers ask, and what a refusal becomes.

use access::registry::{AccessError, Registry};
use axum::http::StatusCode;

use super::control::{Control, Failure};

/// The accounts of this daemon.
#[derive(Clone, Copy)]
pub(super) struct Accounts<'a>(pub &'a Control);

impl Accounts<'_> {
    /// Has `work` done with the accounts, where they are.
    ///
    /// # Errors
    /// What is answered then; 503 if the meta store is silent.
    pub(super) async fn ask<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&Registry) -> Result<T, AccessError> + Send + 'static,
    ) -> Result<T, Failure> {
        let asked = self.0.records.with(&self.0.threads, async move |meta| {
            work(&Registry::new(meta))
                .await
                .map_err(|error| failure(&error))
        });
        asked.await.map_err(|silent| {
            let todo = "the daemon's owner and root go on at the Unix socket; look at the daemon's log and the meta store";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, silent.to_string(), todo)
        })?
    }
}

fn failure(error: &AccessError) -> Failure {
    let status = match error {
        AccessError::NoAccount { .. } | AccessError::NoToken(_) => StatusCode::NOT_FOUND,
        AccessError::Exists(_) | AccessError::NameWaits { .. } | AccessError::NoParent { .. } => {
            StatusCode::CONFLICT
        }
        AccessError::TooManyUsers { .. } | AccessError::BadToken(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        AccessError::Token(_) | AccessError::NotOfAccount { .. } | AccessError::Revoked(_) => {
            StatusCode::UNAUTHORIZED
        }
        AccessError::Ambiguous { .. } => StatusCode::FORBIDDEN,
        AccessError::Busy(_) | AccessError::Meta(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::of_sentence(status, &error.to_string(), "look at the daemon's log")
}

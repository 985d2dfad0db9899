//! How a command ends: its exit status, decided in one place.
//!
//! ```text
//! error -> ConfigError 2 | the daemon's answer (ClientError) | a store's answer -> Ending
//!       -> Usage 2, Refused 5, all else 1 (report::terminal)
//! ```

use report::terminal::{Ending, find};
use store::net::client::{ClientError as StoreClientError, RefusedKind};
use store::{OpenError, StoreError};

use super::client::ClientError;
use crate::api::health::HealthStatus;

/// How a command ends with `error`, where it is one of this program's own.
pub fn of(error: &anyhow::Error) -> Option<Ending> {
    if find::<config::ConfigError>(error).is_some() {
        return Some(Ending::Usage);
    }
    if let Some(OpenError::Occupied { .. }) = find::<OpenError>(error) {
        return Some(Ending::Refused);
    }
    if let Some(error) = find::<device::OpenError>(error) {
        return of_device(error);
    }
    let of_daemon = find::<ClientError>(error).map(ClientError::ending);
    of_daemon.or_else(|| find::<StoreClientError>(error).map(of_store))
}

impl From<HealthStatus> for Ending {
    fn from(status: HealthStatus) -> Ending {
        match status {
            HealthStatus::Ok => Ending::Done,
            HealthStatus::Warn => Ending::HealthWarn,
            HealthStatus::Err => Ending::HealthErr,
        }
    }
}

/// A device that another program uses is left as it is.
fn of_device(error: &device::OpenError) -> Option<Ending> {
    match error {
        device::OpenError::InUse { .. }
        | device::OpenError::Locked { .. }
        | device::OpenError::Mounted { .. } => Some(Ending::Refused),
        _ => None,
    }
}

/// By what a store answered, or did not.
fn of_store(error: &StoreClientError) -> Ending {
    match error {
        StoreClientError::Store(error) => refused_by_store(error),
        StoreClientError::Refused { kind, .. } => match kind {
            RefusedKind::Access
            | RefusedKind::Session
            | RefusedKind::NodeKeyOnly
            | RefusedKind::Ended => Ending::NotAllowed,
            _ => Ending::Refused,
        },
        StoreClientError::Unreachable { .. }
        | StoreClientError::Version { .. }
        | StoreClientError::Impostor { .. } => Ending::NoDaemon,
        _ => Ending::Failed,
    }
}

/// A store that cannot do what is asked changes nothing; one whose device or data fail is another matter.
fn refused_by_store(error: &StoreError) -> Ending {
    match error {
        StoreError::Damaged { .. }
        | StoreError::Device { .. }
        | StoreError::Failed { .. }
        | StoreError::Closed { .. } => Ending::Failed,
        _ => Ending::Refused,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_device_in_use_is_refused_and_one_that_is_not_there_failed() {
        let path = std::path::PathBuf::from("d0.img");
        let used = device::OpenError::Locked {
            path: path.clone(),
            pid: None,
            read_only: true,
        };
        let used = Err::<(), _>(used).context("cannot check").unwrap_err();
        assert_eq!(of(&used), Some(Ending::Refused));
        let missing = anyhow::Error::from(device::OpenError::Missing { path });
        assert_eq!(of(&missing), None);
    }

    #[test]
    fn an_answer_of_a_store_ends_a_command_by_its_kind() {
        let refused = |kind| StoreClientError::Refused {
            kind,
            text: "no".to_owned(),
            offer: None,
        };
        for (kind, ending) in [
            (RefusedKind::Access, Ending::NotAllowed),
            (RefusedKind::Ended, Ending::NotAllowed),
            (RefusedKind::Reservation, Ending::Refused),
        ] {
            let error = Err::<(), _>(refused(kind))
                .context("cannot put a")
                .unwrap_err();
            assert_eq!(of(&error), Some(ending), "{kind:?}");
        }
        let absent = StoreError::NotFound {
            store: "s".to_owned(),
            object: "a".to_owned(),
        };
        let error = anyhow::Error::from(StoreClientError::Store(absent));
        assert_eq!(of(&error), Some(Ending::Refused));
        assert_eq!(of(&anyhow::anyhow!("no room")), None);
    }
}

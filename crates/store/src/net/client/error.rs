//! Why a call to a store somewhere else did not do what it was asked.

use std::io;

use base::Nanos;
use policy::share::calendar::Offer;

use crate::net::wire::{Failure, RefusedKind};
use crate::object::error::StoreError;
use crate::ops::ObjectError;

/// Why a call failed. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The store's own error, as it was made there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manager or the server refused it.
    #[error("{text}")]
    Refused {
        /// On what ground.
        kind: RefusedKind,
        /// The sentence, as it was made there.
        text: String,
        /// What would fit, where a reservation does not.
        offer: Option<Offer>,
    },
    /// The connection ended before the answer came.
    #[error("no answer from {server} to {what}: {why}; {}", fate(*.sent, *.changes))]
    Lost {
        /// The server.
        server: String,
        /// What was asked.
        what: String,
        /// Was it sent, in part at least? Then it may or may not have happened.
        sent: bool,
        /// Would it change anything?
        changes: bool,
        /// Why the connection ended.
        why: String,
    },
    /// The answer did not come in time. The connection stands.
    #[error("no answer from {server} to {what} within {after}; {}", fate(*.sent, *.changes))]
    Late {
        /// The server.
        server: String,
        /// What was asked.
        what: String,
        /// How long was waited.
        after: Nanos,
        /// Was it sent, in part at least? Then it may have happened, or may yet happen.
        sent: bool,
        /// Would it change anything?
        changes: bool,
    },
    /// There is no connection.
    #[error("cannot reach the store at {server}: {why}")]
    Unreachable {
        /// The server.
        server: String,
        /// The system's kind of error.
        kind: io::ErrorKind,
        /// What happened.
        why: String,
    },
    /// No version of the protocol that both sides speak.
    #[error(
        "the store at {server} speaks versions {min} to {max} of the protocol, this program {ours}; use programs of \
         one release"
    )]
    Version {
        /// The server.
        server: String,
        /// The least it speaks.
        min: u16,
        /// The greatest.
        max: u16,
        /// What this program speaks.
        ours: u16,
    },
    /// The server does not know the node key.
    #[error(
        "what answers at {server} does not know the node key: it is no node of this cluster; look at the address and \
         at the keys"
    )]
    Impostor {
        /// The server.
        server: String,
    },
    /// What the server sent is not the protocol.
    #[error("the store at {server} does not speak the protocol as it should: {why}")]
    Protocol {
        /// The server.
        server: String,
        /// What is wrong.
        why: String,
    },
}

fn fate(sent: bool, changes: bool) -> &'static str {
    match (sent, changes) {
        (false, _) => "it was not sent: nothing happened",
        (true, true) => "it was sent: it may or may not have happened",
        (true, false) => "it changes nothing and can be asked again",
    }
}

impl ClientError {
    pub(super) fn unreachable(server: &str, error: &io::Error) -> ClientError {
        ClientError::Unreachable {
            server: server.to_owned(),
            kind: error.kind(),
            why: error.to_string(),
        }
    }

    /// At a `tls:` address, without an authority by which the server can be checked.
    pub(super) fn no_authority(server: &str) -> ClientError {
        ClientError::Unreachable {
            server: server.to_owned(),
            kind: io::ErrorKind::InvalidInput,
            why: "TLS is spoken there, and no authority is named by which its certificate could be checked: on a node \
                  make certificates with `tanada node create`, elsewhere name ca.pem with --ca or TANADA_CA"
                .to_owned(),
        }
    }

    /// Is it known that nothing was changed? A refused or unsent request changed nothing; so did one that could not.
    pub fn changed_nothing(&self) -> bool {
        match self {
            ClientError::Lost { sent, changes, .. } | ClientError::Late { sent, changes, .. } => {
                !sent || !changes
            }
            // A flush that failed at the end of a durable write may have been too late to prevent it.
            ClientError::Store(
                StoreError::Device { .. } | StoreError::Failed { .. } | StoreError::Closed { .. },
            ) => false,
            _ => true,
        }
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> ClientError {
        match failure {
            Failure::Store(error) => ClientError::Store(error),
            Failure::Refused { kind, text, offer } => ClientError::Refused { kind, text, offer },
        }
    }
}

impl From<ClientError> for ObjectError {
    fn from(error: ClientError) -> ObjectError {
        let text = error.to_string();
        match &error {
            ClientError::Store(error) => ObjectError::from(error),
            ClientError::Lost { .. } | ClientError::Late { .. } => match error.changed_nothing() {
                true => ObjectError::Gone(text),
                false => ObjectError::Indeterminate(text),
            },
            ClientError::Refused { .. } => ObjectError::Refused(text),
            _ => ObjectError::Gone(text),
        }
    }
}

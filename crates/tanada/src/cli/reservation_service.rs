//! The daemon's reservation service, as commands ask it.
//!
//! ```text
//! create, offer, get, list, change, delete, capability -> /v2/reservations -> done | absent | refused, and what would fit
//! ```
//!
//! Always true: what is not there is no error here; the caller knows whether it was to be.

use std::time::Duration;

use hyper::{Method, StatusCode};
use report::terminal::Usage;
use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError};
use crate::api::reservation::{
    ReservationAsk, ReservationChange, ReservationOffer, ReservationRefusal, WholeReservation,
};

/// Parts on several nodes are held for half a minute at most before an answer.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);
const ROOT: &str = "/v2/reservations";

/// Which reservation: its id, or its name in an account.
#[derive(Debug, Clone, Copy)]
pub struct Which<'a> {
    pub id: &'a str,
    /// Whose it is; `None`: the caller's.
    pub account: Option<&'a str>,
}

/// What became of a request for a reservation.
#[derive(Debug)]
pub enum Made {
    /// It was made.
    New(WholeReservation),
    /// One of that name is there already.
    Existing(WholeReservation),
    /// It does not fit.
    Refused(ReservationRefusal),
}

/// What became of a change.
#[derive(Debug)]
pub enum Changed {
    Done(Box<WholeReservation>),
    Absent,
    Refused(ReservationRefusal),
}

/// What there is to reserve.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct There {
    pub volumes: Vec<String>,
    pub stores: Vec<String>,
}

/// One daemon's service.
pub struct Service {
    client: Client,
}

impl Service {
    pub fn new(client: Client) -> Service {
        Service { client }
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        self.client.ask(method, path, body, WORK_TIMEOUT)
    }

    /// Reserves, or finds what was reserved by that name before.
    pub fn create(&self, asked: &ReservationAsk) -> Result<Made, ClientError> {
        let answer = self.ask(Method::POST, ROOT, Some(asked))?;
        match answer.0 {
            StatusCode::CONFLICT => self.client.parse(&answer.1).map(Made::Refused),
            StatusCode::CREATED => self.client.read(answer, ROOT).map(Made::New),
            _ => self.client.read(answer, ROOT).map(Made::Existing),
        }
    }

    /// Would it fit? Nothing is set aside.
    pub fn offer(&self, asked: &ReservationAsk) -> Result<ReservationOffer, ClientError> {
        let path = format!("{ROOT}?dry_run=true");
        let answer = self.ask(Method::POST, &path, Some(asked))?;
        self.client.read(answer, &path)
    }

    pub fn list(&self) -> Result<Vec<WholeReservation>, ClientError> {
        let answer = self.ask(Method::GET, ROOT, None::<&()>)?;
        self.client.read(answer, ROOT)
    }

    pub fn get(&self, which: Which<'_>) -> anyhow::Result<Option<WholeReservation>> {
        let path = path(which, "")?;
        let answer = self.ask(Method::GET, &path, None::<&()>)?;
        self.if_there(answer, &path)
    }

    pub fn change(&self, which: Which<'_>, change: &ReservationChange) -> anyhow::Result<Changed> {
        let path = path(which, "")?;
        let answer = self.ask(Method::PATCH, &path, Some(change))?;
        if answer.0 == StatusCode::CONFLICT {
            return Ok(Changed::Refused(self.client.parse(&answer.1)?));
        }
        let done = self.if_there(answer, &path)?;
        Ok(done.map_or(Changed::Absent, |done| Changed::Done(Box::new(done))))
    }

    /// Ends it.
    pub fn delete(&self, which: Which<'_>) -> anyhow::Result<Option<WholeReservation>> {
        let path = path(which, "")?;
        let answer = self.ask(Method::DELETE, &path, None::<&()>)?;
        self.if_there(answer, &path)
    }

    /// It, with its capability set; only its owner has an answer.
    pub fn capability(&self, which: Which<'_>) -> anyhow::Result<Option<WholeReservation>> {
        let path = path(which, "/capability")?;
        let answer = self.ask(Method::POST, &path, Some(&serde_json::json!({})))?;
        self.if_there(answer, &path)
    }

    /// Is the daemon in a cluster, by which whole reservations are made?
    pub fn has_cluster(&self) -> Result<bool, ClientError> {
        match self.client.get::<serde::de::IgnoredAny>("/v1/cluster") {
            Err(error) if error.is_absent() => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// What there is to reserve.
    pub fn there(&self) -> Result<There, ClientError> {
        /// Of all that is answered only the name.
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        #[derive(Deserialize)]
        struct Cluster {
            stores: Vec<Named>,
        }
        let names = |all: Vec<Named>| all.into_iter().map(|it| it.name).collect();
        let volumes: Vec<Named> = self.client.get("/v1/cluster/volumes")?;
        let cluster: Cluster = self.client.get("/v1/cluster")?;
        Ok(There {
            volumes: names(volumes),
            stores: names(cluster.stores),
        })
    }

    fn if_there(
        &self,
        answer: (StatusCode, Vec<u8>),
        path: &str,
    ) -> anyhow::Result<Option<WholeReservation>> {
        match answer.0 {
            StatusCode::NOT_FOUND => Ok(None),
            _ => Ok(Some(self.client.read(answer, path)?)),
        }
    }
}

/// The path of a reservation. What cannot be a name is refused before it becomes a strange URL.
fn path(which: Which<'_>, rest: &str) -> Result<String, Usage> {
    config::check_name(which.id).map_err(Usage)?;
    let query = match which.account {
        None => String::new(),
        Some(account) => {
            check_account(account).map_err(Usage)?;
            format!("?account={account}")
        }
    };
    Ok(format!("{ROOT}/{}{rest}{query}", which.id))
}

/// An account's name, or `account/project`.
///
/// # Errors
/// What is wrong with it.
pub fn check_account(account: &str) -> Result<(), String> {
    account.split('/').try_for_each(config::check_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_reservation_and_whose_it_is() {
        let path = |id, account| path(Which { id, account }, "").map_err(|error| error.0);
        assert_eq!(path("nightly", None).unwrap(), "/v2/reservations/nightly");
        assert_eq!(
            path("r-7f3a", Some("astro/run2")).unwrap(),
            "/v2/reservations/r-7f3a?account=astro/run2"
        );
        for (id, account) in [
            ("../x", None),
            ("a?b", None),
            ("a", Some("b&c")),
            ("a", Some("b/")),
        ] {
            assert!(
                path(id, account).unwrap_err().contains("is not a name"),
                "{id}"
            );
        }
    }
}

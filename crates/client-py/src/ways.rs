//! Ways to stores: one connection for each store and direction.
//!
//! ```text
//! address, capability, direction -> Client -> its store's identity -> Way { reads, writes }
//! ```
//!
//! A capability is for one direction, so a store that is read and written has two connections.

use base::Nanos;
use env::net::Address;
use files::Place;
use pyo3::prelude::*;
use std::rc::Rc;
use store::net::client::{Client, ClientOptions, Credentials};
use store::ops::{ObjectError, ObjectErrors};
use tls::{Identity, Material};

use crate::failure::{Failure, Kind};

/// Where a store is, and what is shown there.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Entrance {
    address: String,
    capability: Option<String>,
    /// `read` or `write`; nothing: both.
    direction: Option<String>,
}

/// What holds for all connections.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Terms {
    /// The authorities by which servers are checked, as PEM.
    ca: Option<Vec<u8>>,
    /// An own certificate and its key.
    own: Option<(Vec<u8>, Vec<u8>)>,
    timeout_seconds: f64,
}

/// A store, and how it is reached.
pub struct Way {
    pub identity: String,
    pub name: String,
    reads: Option<Client>,
    writes: Option<Client>,
}

/// The objects of one store, with errors that say what may have happened.
pub type Store = ObjectErrors<Client>;

/// All stores of a connection, in the order in which they were said.
pub struct Ways(pub Vec<Way>);

impl Ways {
    /// Connects to all of them.
    pub async fn connect(entrances: Vec<Entrance>, terms: Terms) -> Result<Ways, Failure> {
        let mut ways = Ways(Vec::new());
        for entrance in entrances {
            let client = client(&entrance, &terms).await?;
            let identity = format!("{:032x}", client.store_uuid());
            let found = ways.0.iter().position(|way| way.identity == identity);
            let at = found.unwrap_or(ways.0.len());
            if found.is_none() {
                let name = client.store_name().to_owned();
                ways.0.push(Way {
                    identity,
                    name,
                    reads: None,
                    writes: None,
                });
            }
            let direction = entrance.direction.as_deref();
            let way = &mut ways.0[at];
            if direction != Some("write") {
                way.reads.get_or_insert_with(|| client.clone());
            }
            if direction != Some("read") {
                way.writes.get_or_insert(client);
            }
        }
        Ok(ways)
    }

    /// A store by its number.
    pub fn way(&self, at: usize) -> Result<&Way, Failure> {
        let count = self.0.len();
        let way = self.0.get(at);
        way.ok_or_else(|| Failure::other(format!("there is no store {at} of {count}")))
    }

    /// Where files are read.
    pub fn readable(&self) -> Vec<Place> {
        let reads = self
            .0
            .iter()
            .filter_map(|way| Some((way, way.reads.as_ref()?)));
        reads.map(|(way, client)| way.place(client)).collect()
    }

    /// Where files are written: on all stores or on none.
    pub fn writable(&self) -> Result<Vec<Place>, Failure> {
        let place = |way: &Way| Ok(way.place(&way.writer()?.0));
        self.0.iter().map(place).collect()
    }

    /// Says goodbye to all.
    pub async fn close(&self) {
        let clients = self.0.iter().flat_map(|way| [&way.reads, &way.writes]);
        let closed = clients.flatten().map(|client| client.clone().close());
        env::sync::join_all(closed).await;
    }
}

impl Way {
    fn place(&self, client: &Client) -> Place {
        Place {
            identity: self.identity.clone(),
            objects: Rc::new(ObjectErrors(client.clone())),
        }
    }

    /// Can data be read, and written?
    pub fn directions(&self) -> (bool, bool) {
        (self.reads.is_some(), self.writes.is_some())
    }

    /// For reading data.
    pub fn reader(&self) -> Result<Store, Failure> {
        self.of(self.reads.as_ref(), "reads")
    }

    /// For changes.
    pub fn writer(&self) -> Result<Store, Failure> {
        self.of(self.writes.as_ref(), "writes")
    }

    /// For names and sizes, which either way has.
    pub fn looker(&self) -> Result<Store, Failure> {
        self.reader().or_else(|_| self.writer())
    }

    fn of(&self, client: Option<&Client>, what: &str) -> Result<Store, Failure> {
        let client = client.cloned().map(ObjectErrors);
        client.ok_or_else(|| {
            let name = &self.name;
            let why = format!("the capabilities for {name} allow no {what}; reserve {what}, too");
            Failure::new(Kind::Refused, why)
        })
    }
}

async fn client(entrance: &Entrance, terms: &Terms) -> Result<Client, Failure> {
    let address: Address = entrance
        .address
        .parse()
        .map_err(|error| Failure::other(format!("{}: {error}", entrance.address)))?;
    let credentials = match &entrance.capability {
        Some(token) => Credentials::Capability(token.clone()),
        None => Credentials::Open,
    };
    let tls = match address.is_tls() {
        true => Some(authority(terms, &address)?),
        false => None,
    };
    let options = ClientOptions {
        timeout: Nanos((terms.timeout_seconds.max(0.0) * 1e9) as u64),
        tls,
        ..ClientOptions::default()
    };
    let client = Client::connect_with(&address, credentials, &options).await;
    client.map_err(|error| match ObjectError::from(error) {
        // Nothing was asked yet that could have been done.
        ObjectError::Indeterminate(text) => Failure::other(text),
        error => error.into(),
    })
}

fn authority(terms: &Terms, address: &Address) -> Result<tls::Client, Failure> {
    let Some(authority) = terms.ca.clone() else {
        return Err(Failure::other(format!(
            "at {address} TLS is spoken, and nothing says by which authority its certificate is checked; name the \
             cluster's ca.pem with ca or TANADA_CA"
        )));
    };
    let own = terms.own.clone();
    let identity = Identity::new(&Material { authority, own });
    let identity = identity.map_err(|error| Failure::other(error.to_string()))?;
    Ok(tls::Client::at(&identity, address))
}

//! Exports that are opened when a client asks for them, and closed when it leaves.
//!
//! ```text
//! option names an export -> not on the server's own list -> Supply::open -> held by the connection -> dropped at its end
//! ```
//!
//! Always true:
//! 1. Nothing is opened for a client that has yet to start TLS where that is required.
//! 2. A connection holds at most one opened export.
//! 3. What a client's certificate does not allow is neither listed nor opened for it: it is not there.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use device::Device;

use super::super::negotiate::{Catalogue, Offer, Wanted};
use super::super::tls::Allowed;
use super::counters::{Counters, LiveCounters};
use super::leaving::Leaving;
use super::requests::Target;
use super::{Export, Server, Shelf};

/// Something that takes a while.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The requests of all clients of one export, counted also when they are gone. Its clones count as one.
#[derive(Clone, Default)]
pub struct Account(Rc<LiveCounters>, Leaving);

impl Account {
    /// A new one. The export's clients are let in by other servers too: one that comes back waits for what it left behind
    /// at any of those with a clone of `leaving`.
    #[must_use]
    pub fn beside(leaving: Leaving) -> Account {
        Account(Rc::default(), leaving)
    }

    /// So far.
    pub fn counts(&self) -> Counters {
        self.0.counts()
    }

    /// Is the other one a clone of it?
    pub fn is(&self, other: &Account) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// An export that was opened for a client.
pub struct Supplied {
    /// What is served.
    pub device: Rc<dyn Device>,
    /// A description for people; may be empty.
    pub description: String,
    /// Refuse writes even if the device takes them.
    pub read_only: bool,
    /// Where its requests are counted besides its connection.
    pub account: Account,
    /// Dropped when the client is gone.
    pub hold: Box<dyn Any>,
}

/// Opens exports by their names. Held as `Rc<dyn Supply>`.
pub trait Supply {
    /// The export of that name, for one client; `None` if there is none.
    ///
    /// # Errors
    /// The sentence that the client gets.
    fn open<'a>(&'a self, name: &'a str) -> Soon<'a, Result<Option<Supplied>, String>>;

    /// Name and description of every export there is now.
    fn list(&self) -> Soon<'_, Vec<(String, String)>>;

    /// What a client gets that asks for no name, where the server has no exports of its own.
    fn default_export(&self) -> Option<String> {
        None
    }
}

/// What was opened or looked up for one negotiation.
#[derive(Default)]
pub(super) struct Prepared {
    shelf: Option<Rc<Shelf>>,
    listed: Vec<(String, String)>,
    /// Why the export of this name cannot be had.
    refused: Option<(String, String)>,
    allowed: Allowed,
}

impl Prepared {
    /// From now on only these exports are there.
    pub fn allow(&mut self, allowed: Allowed) {
        *self = Prepared {
            allowed,
            ..Prepared::default()
        };
    }

    /// Opens or lists what the next answer needs.
    pub async fn prepare(&mut self, server: &Server, wanted: Wanted<'_>) {
        let Some(supply) = server.supply() else {
            return;
        };
        match wanted {
            Wanted::Nothing => {}
            Wanted::List => self.listed = supply.list().await,
            Wanted::Export(name) => {
                if server.shelf(name).is_some() {
                    return;
                }
                let default = supply.default_export().filter(|_| name.is_empty());
                let real = default.as_deref().unwrap_or(name);
                let has = |shelf: &Rc<Shelf>| shelf.export.name == real;
                if self.shelf.as_ref().is_some_and(has) {
                    return;
                }
                self.shelf = None;
                self.refused = None;
                if !self.allowed.has(real) {
                    return;
                }
                match supply.open(real).await {
                    Ok(Some(opened)) => self.shelf = Some(shelf(real, opened)),
                    Ok(None) => {}
                    Err(why) => self.refused = Some((name.to_owned(), why)),
                }
            }
        }
    }

    /// The export of that name, for the transmission; that which was opened last if there is none.
    pub fn shelf(&self, server: &Server, name: &str) -> Option<Rc<Shelf>> {
        let is_it = |it: &&Rc<Shelf>| name.is_empty() || it.export.name == name;
        let own = self.shelf.as_ref().filter(is_it);
        server.shelf(name).or(own.cloned())
    }

    /// All exports as the client sees them.
    pub fn catalogue<'a>(&'a self, server: &'a Server) -> impl Catalogue + 'a {
        View {
            server,
            prepared: self,
        }
    }
}

fn shelf(name: &str, opened: Supplied) -> Rc<Shelf> {
    Rc::new(Shelf {
        target: Target::new(Rc::clone(&opened.device)),
        export: Export {
            name: name.to_owned(),
            description: opened.description,
            device: opened.device,
            read_only: opened.read_only,
        },
        counters: opened.account.0,
        leaving: opened.account.1,
        closed: RefCell::default(),
        _hold: Some(opened.hold),
    })
}

/// The server's own exports, and what was prepared.
struct View<'a> {
    server: &'a Server,
    prepared: &'a Prepared,
}

impl Catalogue for View<'_> {
    fn find(&self, name: &str) -> Option<Offer> {
        let offer = match self.server.find(name) {
            Some(offer) => offer,
            None if self.server.why_not(name).is_some() => return None,
            None => {
                let shelf = self.prepared.shelf(self.server, name)?;
                self.server.offer(&shelf.export)
            }
        };
        self.prepared.allowed.has(&offer.name).then_some(offer)
    }

    fn list(&self) -> Vec<(String, String)> {
        let mut all = self.server.list();
        for (name, description) in &self.prepared.listed {
            if all.iter().all(|(known, _)| known != name) {
                all.push((name.clone(), description.clone()));
            }
        }
        all.retain(|(name, _)| self.prepared.allowed.has(name));
        all
    }

    fn closing(&self) -> bool {
        self.server.closing()
    }

    fn why_not(&self, name: &str) -> Option<String> {
        let is_allowed = |shelf: &Rc<Shelf>| self.prepared.allowed.has(&shelf.export.name);
        let own = self.server.shelf(name).filter(is_allowed);
        let refused = self.prepared.refused.as_ref();
        let supplied = refused.filter(|(refused, _)| refused == name);
        own.and_then(|shelf| shelf.why_closed())
            .or(supplied.map(|(_, why)| why.clone()))
    }
}

//! What can be asked of the objects of a store, whichever way leads there?
//!
//! ```text
//! ObjectCalls: read, write, list ... (typed)  ->  Request  ->  ObjectOps::call  ->  Response  ->  the typed answer
//!                                                                  |
//!                 Store, Session (rights, flow), Fenced (a token), Client (a connection), and what wraps one of them
//! ```
//!
//! A wrapper delays, refuses or changes requests without knowing one of them by name. The typed calls stand once, in
//! `typed`, for all of them; codec and server take requests as they are.
//!
//! Always true:
//! 1. A call that is not polled does nothing.
//! 2. Each request has one kind of response; an error is never inside of one.
//! 3. Data of a read or a write are not copied on the way.

mod error;
mod request;
mod store;
mod typed;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use policy::place::State;

pub use error::{ObjectError, ObjectErrors};
pub use request::{Request, Response};
pub(crate) use store::carry_out;
pub use typed::{Call, ObjectCalls};

/// An answer, some time.
pub type Pending<'a, T, E = ObjectError> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// How much one request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest write in bytes.
    pub write_max: u64,
    /// The longest read in bytes.
    pub read_max: u64,
}

/// What carries out requests on objects. [`ObjectCalls`] has them by name.
pub trait ObjectOps {
    /// Why a request was not done.
    type Error;

    /// Carries one request out.
    fn call(&self, request: Request) -> Pending<'_, Response, Self::Error>;

    /// How much one request takes.
    fn limits(&self) -> Limits;

    /// How long the store's queue is, as it was last heard; `None`: nothing was.
    fn load(&self) -> Option<State>;
}

impl<O: ObjectOps + ?Sized> ObjectOps for Rc<O> {
    type Error = O::Error;

    fn call(&self, request: Request) -> Pending<'_, Response, O::Error> {
        (**self).call(request)
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn load(&self) -> Option<State> {
        (**self).load()
    }
}

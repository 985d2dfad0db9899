//! Where a modelled device keeps its data, and how a request reaches them.
//!
//! Always true: a store in memory, or none, answers at once.

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use base::{Buf, Bytes, Sector, Span, View};

use super::error::SpecError;
use super::spec::Spec;
use crate::{Class, Device, DeviceError, Memory, WriteFlags};

/// Where a modelled device keeps its data.
#[derive(Clone, Default)]
pub enum Store {
    /// In memory, as much as is written.
    #[default]
    Memory,
    /// Nowhere: reads give zeroes. For simulations too large to hold.
    None,
    /// On another device: a sparse file in real time, a crash or fault device in tests.
    Device(Rc<dyn Device>),
}

impl From<Rc<dyn Device>> for Store {
    fn from(device: Rc<dyn Device>) -> Store {
        Store::Device(device)
    }
}

/// A store in use.
pub(super) enum Data {
    Memory(Rc<Memory>),
    None,
    Device(Rc<dyn Device>),
}

/// What the store has to do for a request.
pub(super) enum Action {
    Read(Sector, Buf, Class),
    Write(Sector, View, WriteFlags),
    Zero(Span, WriteFlags),
    Discard(Span),
    Flush,
    /// Nothing: the request is a matter of time alone.
    Nothing,
}

/// What a read gives back, or that a change is done.
pub(super) type Answer = Result<Option<Buf>, DeviceError>;

/// A request that the store has begun.
pub(super) enum Begun<F> {
    /// It is done already.
    Done(Answer),
    /// It takes its time.
    Waits(F),
}

impl Data {
    /// Opens the store of the device `name`; with it, the longest single request.
    ///
    /// # Errors
    /// [`SpecError::Size`] if the store is too small.
    pub(super) fn of(
        store: Store,
        name: &str,
        spec: &Spec,
        size: Bytes,
    ) -> Result<(Data, Bytes), SpecError> {
        Ok(match store {
            Store::Memory => (Data::Memory(Memory::new(name, size)), spec.max_io),
            Store::None => (Data::None, spec.max_io),
            Store::Device(device) => {
                let below = device.info();
                if below.size < size {
                    return Err(SpecError::Size {
                        model: spec.name.clone(),
                        asked: size,
                        why: format!("its store {} holds only {}", below.name, below.size),
                    });
                }
                (Data::Device(device), spec.max_io.min(below.max_io))
            }
        })
    }

    /// Does what a request asks, or begins to.
    #[inline]
    pub(super) fn begin(&self, action: Action) -> Begun<impl Future<Output = Answer> + use<>> {
        match (self, action) {
            (_, Action::Nothing) => Begun::Done(Ok(None)),
            (Data::None, Action::Read(_, mut buf, _)) => {
                buf.zero();
                Begun::Done(Ok(Some(buf)))
            }
            (Data::None, _) => Begun::Done(Ok(None)),
            (Data::Memory(memory), action) => {
                let store: Rc<dyn Device> = Rc::<Memory>::clone(memory);
                let mut doing = Box::pin(carry_out(store, action));
                // Memory without a latency never waits: its future is ready when it is made.
                match doing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(answer) => Begun::Done(answer),
                    Poll::Pending => unreachable!("memory answers at once"),
                }
            }
            (Data::Device(device), action) => Begun::Waits(carry_out(Rc::clone(device), action)),
        }
    }
}

async fn carry_out(store: Rc<dyn Device>, action: Action) -> Answer {
    match action {
        Action::Read(at, buf, class) => store.read(at, buf, class).await.map(Some),
        Action::Write(at, data, flags) => store.write(at, data, flags).await.map(|()| None),
        Action::Zero(span, flags) => store.write_zeroes(span, flags).await.map(|()| None),
        Action::Discard(span) => store.discard(span).await.map(|()| None),
        Action::Flush => store.flush().await.map(|()| None),
        Action::Nothing => Ok(None),
    }
}

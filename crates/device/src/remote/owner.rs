//! The owner's side: which device is meant, and what does it answer?
//!
//! ```text
//! request -> a task of its own: device -> answer -> ring
//! open    -> the supplier's device -> kept under the gate's handle until it is closed, or the gate is gone
//! ```
//!
//! Always true:
//! 1. A call that began ends, whether or not the gate is still there, and its device is held until then.
//! 2. There is room for each answer: the gate sends no more than the ring of answers holds.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Map, Parcel, View};
use env::sync::Event;
use env::{Consumer, Producer};

use super::call::{Answer, Call, Handle, Outcome, Request};
use crate::{Device, DeviceError, Pending};

/// The owner's end of a link. It goes to the thread that has the devices.
pub struct OwnerEnd {
    requests: Consumer<Request>,
    answers: Producer<Answer>,
}

/// A device that a gate opened, and what is dropped when the gate gives it up.
pub struct Opened {
    device: Rc<dyn Device>,
    _hold: Box<dyn Any>,
}

impl Opened {
    /// Nothing is held beside the device.
    pub fn of(device: Rc<dyn Device>) -> Opened {
        Opened::holding(device, Box::new(()))
    }

    /// `hold` is dropped after the gate gave the device up and every call of it has ended.
    pub fn holding(device: Rc<dyn Device>, hold: Box<dyn Any>) -> Opened {
        Opened {
            device,
            _hold: hold,
        }
    }
}

/// What the tasks of one link share.
struct Served<S> {
    supply: S,
    /// None where the supplier is still at it.
    open: RefCell<Map<Handle, Option<Rc<Opened>>>>,
    answers: RefCell<Producer<Answer>>,
    /// What writes of zeroes are given: one buffer for all, as long as the longest.
    zeroes: RefCell<View>,
    // Calls under way, but for opens.
    calls: Cell<usize>,
    none_left: Event,
}

impl OwnerEnd {
    pub(super) fn new(requests: Consumer<Request>, answers: Producer<Answer>) -> OwnerEnd {
        OwnerEnd { requests, answers }
    }

    /// Serves the gate until it is gone. `supply` has the device of a name, or says why there is none; what it gave is kept
    /// until the gate gives it up.
    ///
    /// When it returns, no call of the gate uses a device any more. An open that is under way then ends by itself.
    pub async fn serve<S>(self, supply: S)
    where
        S: Fn(&str) -> Pending<'static, Opened> + 'static,
    {
        let OwnerEnd {
            mut requests,
            answers,
        } = self;
        let served = Rc::new(Served {
            supply,
            open: RefCell::default(),
            answers: RefCell::new(answers),
            zeroes: RefCell::new(View::empty()),
            calls: Cell::new(0),
            none_left: Event::default(),
        });
        while let Ok(request) = requests.receive().await {
            served.begin(request);
        }
        // Tasks under way keep their devices themselves.
        let open = served.open.take();
        drop(open);
        while served.calls.get() > 0 {
            served.none_left.wait().await;
        }
    }
}

impl<S> Served<S>
where
    S: Fn(&str) -> Pending<'static, Opened> + 'static,
{
    /// Has one request carried out.
    fn begin(self: &Rc<Self>, request: Request) {
        let Request { slot, device, call } = request;
        let served = Rc::clone(self);
        match call {
            Call::Open(name) => {
                let opening = (self.supply)(&name);
                self.open.borrow_mut().insert(device, None);
                env::spawn(async move {
                    let outcome = opening.await.map(|opened| {
                        let info = opened.device.info();
                        // Closed meanwhile, or the gate is gone: it is given up again.
                        if let Some(place) = served.open.borrow_mut().get_mut(&device) {
                            *place = Some(Rc::new(opened));
                        }
                        Outcome::Info(info)
                    });
                    served.answer(slot, outcome);
                });
            }
            Call::Close => {
                let closed = self.open.borrow_mut().remove(&device);
                // With no borrow held: its last owner may do anything.
                drop(closed);
                self.answer(slot, Ok(Outcome::Done));
            }
            call => {
                let found = self.open.borrow().get(&device).cloned().flatten();
                let Some(found) = found else {
                    return self.answer(slot, Err(not_open(&call)));
                };
                self.calls.set(self.calls.get() + 1);
                env::spawn(async move {
                    let request = env::client_request();
                    let outcome = served.carry_out(&*found.device, call).await;
                    drop((request, found));
                    served.answer(slot, outcome);
                    served.calls.set(served.calls.get() - 1);
                    if served.calls.get() == 0 {
                        served.none_left.notify_all();
                    }
                });
            }
        }
    }

    async fn carry_out(&self, device: &dyn Device, call: Call) -> Result<Outcome, DeviceError> {
        match call {
            Call::Look => Ok(Outcome::Info(device.info())),
            Call::Read(at, parcel, class) => {
                let buf = device.read(at, parcel.open(), class).await?;
                Ok(Outcome::Read(Parcel::new(buf)))
            }
            Call::Write(at, parcel, flags) => {
                let data = parcel.open().freeze();
                device.write(at, data.clone(), flags).await?;
                Ok(Outcome::Written(Parcel::of_sole_view(data)))
            }
            Call::WriteZeroData(at, len, flags) => {
                let written = device.write(at, self.zeroes(len.usize()), flags).await;
                written.map(|()| Outcome::Done)
            }
            Call::Flush => device.flush().await.map(|()| Outcome::Done),
            Call::Discard(span) => device.discard(span).await.map(|()| Outcome::Done),
            Call::WriteZeroes(span, flags) => {
                let zeroed = device.write_zeroes(span, flags).await;
                zeroed.map(|()| Outcome::Done)
            }
            Call::Allocation(span) => device.allocation(span).await.map(Outcome::Allocation),
            Call::Open(_) | Call::Close => unreachable!("looked at before"),
        }
    }

    /// So many zero bytes.
    fn zeroes(&self, len: usize) -> View {
        let mut zeroes = self.zeroes.borrow_mut();
        if zeroes.len() < len {
            *zeroes = Buf::zeroed(len).freeze();
        }
        zeroes.slice(0, len)
    }

    fn answer(&self, slot: u32, outcome: Result<Outcome, DeviceError>) {
        let sent = self.answers.borrow_mut().try_send(Answer { slot, outcome });
        match sent {
            Ok(()) | Err(env::Refused::Closed(_)) => {}
            Err(env::Refused::Full(_)) => unreachable!("a gate keeps to the depth of its link"),
        }
    }
}

fn not_open(call: &Call) -> DeviceError {
    DeviceError::Gone {
        device: "a device of another thread".to_owned(),
        op: call.op(),
        why: "it is not open".to_owned(),
    }
}

//! A client in an open loop: each request is sent at its moment, and its response time counts from there.
//!
//! ```text
//! request -> sleep until its moment -> a task of its own -> Target -> answer -> distribution
//! ```
//!
//! The same code asks in virtual and in real time.
//!
//! Always true: every request is answered and counted once, or the first that was not is the error.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, WriteFlags};
use env::sync::Event;
use sim::run::Distribution;
use store::{Change, ObjectCalls};
use trace::{Op, Request};

use super::common::Trouble;
use super::setup::object;
use crate::app::process::Stop;

/// What is written, at most at once.
const LONGEST: usize = 1 << 20;

/// A request under way.
pub(super) type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// Who carries requests out.
pub(super) trait Target {
    fn carry_out(&self, request: Request) -> Asked<'_>;
}

/// A disk.
pub(super) struct Disk {
    device: Rc<dyn Device>,
    zeroes: View,
}

impl Disk {
    pub fn new(device: Rc<dyn Device>) -> Disk {
        let zeroes = Buf::zeroed(LONGEST).freeze();
        Disk { device, zeroes }
    }
}

impl Target for Disk {
    fn carry_out(&self, request: Request) -> Asked<'_> {
        Box::pin(async move {
            let (device, len) = (&self.device, request.size.usize());
            let span = Span::bytes(request.offset.0, request.size.0);
            let done = match request.op {
                Op::Read => {
                    let buf = Buf::for_read(len);
                    let read = device.read(span.start, buf, Class::Foreground);
                    read.await.map(drop)
                }
                Op::Write => {
                    let data = self.zeroes.slice(0, len);
                    device.write(span.start, data, WriteFlags::default()).await
                }
                Op::Discard => device.discard(span).await,
                Op::Flush => device.flush().await,
            };
            done.map_err(|error| error.to_string())
        })
    }
}

/// Sessions at a store, by the devices of requests.
pub(super) struct Sessions<O> {
    sessions: Vec<O>,
    zeroes: View,
}

impl<O> Sessions<O> {
    pub fn new(sessions: Vec<O>) -> Sessions<O> {
        let zeroes = Buf::zeroed(LONGEST).freeze();
        Sessions { sessions, zeroes }
    }
}

impl<O: ObjectCalls<Error: std::fmt::Display>> Target for Sessions<O> {
    fn carry_out(&self, request: Request) -> Asked<'_> {
        Box::pin(async move {
            let session = &self.sessions[request.device as usize];
            let (name, at, len) = (object(request.device), request.offset.0, request.size);
            let done = match request.op {
                Op::Read => session.read(&name, at, len.0).done().await,
                _ => {
                    let data = self.zeroes.slice(0, len.usize());
                    session
                        .write(&name, at, data, Change::default())
                        .done()
                        .await
                }
            };
            done.map_err(|error| error.to_string())
        })
    }
}

/// What is counted while requests are under way.
#[derive(Default)]
struct Tally {
    took: RefCell<Distribution>,
    under_way: Cell<u64>,
    ended: Event,
    failed: RefCell<Option<String>>,
}

/// Sends all requests at their moments, the first of which begins now.
///
/// # Errors
/// [`Trouble::Interrupted`]; else the first request that failed.
pub(super) async fn send(
    target: Rc<dyn Target>,
    requests: &[Request],
    stop: &Stop,
) -> Result<Distribution, Trouble> {
    let tally = Rc::new(Tally::default());
    let begin = env::now();
    for request in requests {
        let due = begin + request.at;
        if due > env::now() {
            env::sleep_until(due).await;
        }
        if stop.is_set() {
            return Err(Trouble::Interrupted);
        }
        if tally.failed.borrow().is_some() {
            break;
        }
        tally.under_way.set(tally.under_way.get() + 1);
        let (target, tally, request) = (Rc::clone(&target), Rc::clone(&tally), *request);
        env::spawn(async move {
            let answer = target.carry_out(request).await;
            tally.took.borrow_mut().record(env::now().since(due));
            if let Err(why) = answer {
                let why = format!("{:?} at byte {}: {why}", request.op, request.offset.0);
                tally.failed.borrow_mut().get_or_insert(why);
            }
            tally.under_way.set(tally.under_way.get() - 1);
            tally.ended.notify_all();
        });
    }
    while tally.under_way.get() > 0 {
        tally.ended.wait().await;
    }
    match tally.failed.take() {
        Some(why) => Err(Trouble::Words(why)),
        None => Ok(tally.took.take()),
    }
}

/// Writes `size` of a disk, so that nothing of it is read as what was never there.
///
/// # Errors
/// The device's, in words.
pub(super) async fn fill(device: &dyn Device, size: Bytes) -> Result<(), Trouble> {
    let data = View::copy_of(&vec![7; LONGEST]);
    for at in (0..size.0).step_by(LONGEST) {
        let sector = Sector(at / base::SECTOR);
        let written = device.write(sector, data.clone(), WriteFlags::default());
        written.await.map_err(|error| error.to_string())?;
    }
    device.flush().await.map_err(|error| error.to_string())?;
    Ok(())
}

/// Writes the objects of all sessions, `size` each.
///
/// # Errors
/// The store's, in words.
pub(super) async fn fill_objects<O: ObjectCalls<Error: std::fmt::Display>>(
    store: &O,
    sessions: u32,
    size: Bytes,
) -> Result<(), Trouble> {
    let data = View::copy_of(&vec![7; LONGEST]);
    for session in 0..sessions {
        let name = object(session);
        for at in (0..size.0).step_by(LONGEST) {
            let change = Change::default().creating();
            let written = store.write(&name, at, data.clone(), change);
            written.await.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    /// Takes as many milliseconds as a request has sectors, one after the other.
    struct OneByOne(RefCell<base::Instant>);

    impl Target for OneByOne {
        fn carry_out(&self, request: Request) -> Asked<'_> {
            Box::pin(async move {
                let takes = Nanos::millis(request.size.0 / base::SECTOR);
                let free = (*self.0.borrow()).max(env::now()) + takes;
                *self.0.borrow_mut() = free;
                env::sleep_until(free).await;
                match request.op {
                    Op::Discard => Err("no discards here".to_owned()),
                    _ => Ok(()),
                }
            })
        }
    }

    fn request(at: u64, sectors: u64, op: Op) -> Request {
        Request {
            at: Nanos::millis(at),
            offset: Bytes(0),
            size: Bytes(sectors * base::SECTOR),
            device: 0,
            op,
        }
    }

    fn sent(requests: Vec<Request>, stop: Stop) -> Result<Distribution, Trouble> {
        env::Runtime::simulated(1).block_on(async move {
            let target = Rc::new(OneByOne(RefCell::new(env::now())));
            send(target, &requests, &stop).await
        })
    }

    #[test]
    fn response_times_count_from_the_moment_a_request_was_due() {
        // The second one waits for the first: due after 1 ms, answered after 20.
        let requests = vec![request(0, 10, Op::Read), request(1, 10, Op::Write)];
        let response = sent(requests, Stop::default()).unwrap().response("all");
        assert_eq!(response.requests, 2);
        assert_eq!(response.mean_us, 14_500.0);
        assert_eq!(response.max_us, 19_000.0);
    }

    #[test]
    fn the_first_request_that_fails_is_the_error_and_a_stop_ends_it() {
        let requests = vec![request(0, 1, Op::Read), request(1, 1, Op::Discard)];
        let failed = sent(requests.clone(), Stop::default()).err().unwrap();
        assert_eq!(failed.to_string(), "Discard at byte 0: no discards here");
        let stop = Stop::default();
        stop.set();
        let failed = sent(requests, stop).err().unwrap();
        assert!(matches!(failed, Trouble::Interrupted), "{failed}");
    }
}

//! Rates promised to exports of a hybrid: a queue before its slow device, and a manager of what is promised there.
//!
//! ```text
//! client of an export -> Flowed: what is reserved for the export -> hybrid: a hit ends here
//!   -> queue (promises, then best effort; cleaner and mover are background work) -> slow device
//! DATA_DIR/bookings/NAME.store   a small store: reservations, the speed that was seen of which disk
//!   cannot be used -> the hybrid opens all the same, promises nothing, and says so
//!   is no book any more -> kept aside, and nothing is promised until the operator has moved that away
//! ```
//!
//! Reservations are made at the [`Manager`] as at a store's, for the holder that [`holder_of`] names. Reads are promised in any
//! mode; writes only where they go to the slow device at once, since what the cleaner destages later is no export's.
//!
//! Always true:
//! 1. All clients of an export share one session, wherever they come in.
//! 2. What is promised is what the slow device does; hits come on top, and are not counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context;
use base::Bytes;
use config::scheduling::HybridQueue;
use device::{Device, FileOptions, Memory};
use env::sync::{Permit, Semaphore};
use hybrid::WriteMode;
use policy::share::cap::{Caps, check_booked};
use policy::share::{BytesPerSec, Costs, Direction};
use store::OpenError;
use store::qos::manager::{BookDevice, Manager, ManagerOptions, ReservationRequest, open_beside};
use store::qos::session::{Access, Flowed, Session};

use super::store::signing_key_of;
use crate::api::refusal::Refusal;
use crate::daemon::common::secrets;

/// What is forgotten with the daemon, where nothing is promised.
const NO_BOOK: Bytes = Bytes::mib(64);
/// A sparse file: some 10,000 reservations of an allocation unit each.
const BOOK: Bytes = Bytes::gib(1);
/// An I/O of a round.
const UNIT: Bytes = Bytes::mib(1);

/// Whose reservations an export's requests are served by.
pub fn holder_of(export: &str) -> String {
    format!("export:{export}")
}

/// The queue before the slow device of a hybrid.
pub struct Queued {
    manager: Rc<Manager>,
    sessions: RefCell<BTreeMap<String, Rc<Session>>>,
    /// What is decided by all that is promised here, one at a time.
    turns: Rc<Semaphore>,
}

impl Queued {
    /// That of `device`, the slow one of the hybrid `name`, with what was promised before. Where that cannot be read nothing
    /// is promised, and the log and the queue's figures say so.
    pub async fn open(
        name: &str,
        config: HybridQueue,
        (device, identity): (Rc<dyn Device>, Option<String>),
        costs: Costs,
        data_dir: &Path,
    ) -> anyhow::Result<Queued> {
        let what = || format!("the queue of volume {name}");
        let signer = secrets::read_or_make(&signing_key_of(data_dir, name))?;
        let mut options = ManagerOptions::new(costs, signer);
        options.device_identity = identity;
        let dir = data_dir.join("bookings");
        let path = dir.join(format!("{name}.store"));
        let why = match earlier_aside(&path) {
            Some(aside) => unacknowledged(name, &aside),
            None => {
                let tried = async {
                    std::fs::create_dir_all(&dir)?;
                    let (book, making) = file(name, &path)?;
                    let opened = Queued::on(book, config, Rc::clone(&device), options.clone());
                    let opened = opened.await?;
                    if let Some(making) = making
                        && let Err(error) = made(&making, &path)
                    {
                        opened.close().await;
                        return Err(error.into());
                    }
                    Ok::<Queued, anyhow::Error>(opened)
                };
                match tried.await {
                    Ok(queued) => return Ok(queued),
                    Err(error) => without_book(name, &path, &error),
                }
            }
        };
        tracing::error!(volume = name, "{why}");
        options.best_effort_only = Some(why);
        let book = Memory::new(format!("{name}.bookings"), NO_BOOK);
        let opened = Queued::on(BookDevice::New(book), config, device, options).await;
        opened.with_context(what)
    }

    /// As [`Queued::open`], with what is promised on `book`.
    pub async fn on(
        book: BookDevice,
        config: HybridQueue,
        device: Rc<dyn Device>,
        mut options: ManagerOptions,
    ) -> Result<Queued, OpenError> {
        let costs = options.queue.share.costs;
        options.scrub = None;
        config.scheduling.put_into(UNIT, &mut options.queue);
        // Nothing else wants what users leave, and a full cache must be destaged as fast as the device can.
        options.queue.ceiling = costs.read.rate.max(costs.write.rate);
        let manager = open_beside(book, device, options).await?;
        Ok(Queued {
            manager,
            sessions: RefCell::default(),
            turns: Semaphore::new(1),
        })
    }

    /// Reservations are made and ended here.
    pub fn manager(&self) -> &Rc<Manager> {
        &self.manager
    }

    /// The turn to look at what is promised here and to hold beside it; until it is dropped.
    pub async fn turn(&self) -> Permit {
        self.turns.acquire(1).await
    }

    /// What the hybrid takes for its slow device.
    pub fn device(&self) -> Rc<dyn Device> {
        Rc::clone(self.manager.queue()) as Rc<dyn Device>
    }

    /// The hybrid `device` as clients of an export have it.
    pub fn flowed(&self, export: &str, device: Rc<dyn Device>) -> Rc<dyn Device> {
        let mut sessions = self.sessions.borrow_mut();
        let session = sessions.entry(export.to_owned()).or_insert_with(|| {
            let session = self.manager.open_session(Access::NodeKey);
            let session = session.expect("best effort always finds a flow");
            let attached = session.attach_reservations(Some(&holder_of(export)));
            attached.expect("it has no reservation of its own");
            session
        });
        Flowed::new(device, Rc::clone(session))
    }

    /// Why a rate of this direction cannot be promised while the hybrid writes so.
    pub fn refusal(direction: Direction, write: WriteMode) -> Option<String> {
        let slow_first = !matches!(write, WriteMode::Back | WriteMode::OnlyWrites);
        (direction == Direction::Write && !slow_first).then(|| {
            format!(
                "writes are not promised with write = {write}: they go to the fast device, and when they come to the slow one is \
                 not theirs to say; ask for reads, or set write=through"
            )
        })
    }

    /// May the caps of the hybrid be these, beside what is booked for its exports?
    ///
    /// # Errors
    /// Both, and what to do.
    pub fn check_caps(&self, volume: &str, caps: &Caps) -> Result<(), Refusal> {
        let now = self.manager.now();
        let all = self.manager.reservations();
        let mut largest = [BytesPerSec(0); 2];
        for of in all
            .iter()
            .map(|it| &it.request)
            .filter(|it| now < it.slot.end)
        {
            let most = &mut largest[of.direction as usize];
            *most = of.rate.max(*most);
        }
        check_booked(caps, largest).map_err(|why| Refusal {
            error: format!("cannot cap {volume} so: {why}"),
            what_to_do: "set a higher cap, or end the reservation of its export first".to_owned(),
        })
    }

    /// A reservation for an export, as the manager takes it.
    pub fn request(export: &str, request: ReservationRequest) -> ReservationRequest {
        request.holder(&holder_of(export))
    }

    /// Ends it, after the hybrid.
    pub async fn close(&self) -> Option<String> {
        self.sessions.borrow_mut().clear();
        let closed = self.manager.close().await;
        closed.err().map(|error| error.to_string())
    }
}

/// The book at `path`; where there is none, one under another name, which is the second answer, until it is whole.
fn file(name: &str, path: &Path) -> anyhow::Result<(BookDevice, Option<PathBuf>)> {
    let of = |path: &Path, create| {
        let options = FileOptions {
            create,
            ..FileOptions::default()
        };
        device::File::open(format!("{name}.bookings"), path, options)
    };
    if std::fs::exists(path)? {
        return Ok((BookDevice::Existing(of(path, None)?), None));
    }
    let making = path.with_extension("making");
    // What a start left that was cut off; nothing was promised on it.
    if std::fs::exists(&making)? {
        std::fs::remove_file(&making)?;
    }
    Ok((BookDevice::New(of(&making, Some(BOOK))?), Some(making)))
}

/// The book that was made is whole: it is found under its name from now on.
fn made(making: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::rename(making, path)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::File::open(dir)?.sync_all()
}

/// Keeps a book aside that is no book any more; what that means, and the cure.
fn without_book(name: &str, path: &Path, error: &anyhow::Error) -> String {
    let says = format!(
        "the bookings of volume {name} cannot be used ({error:#}); nothing is promised to its exports, and all are best effort"
    );
    let at = path.display();
    let error = error.downcast_ref::<OpenError>();
    if error.is_some_and(OpenError::is_newer) {
        return format!("{says}. Start the program that wrote {at}");
    }
    if !error.is_some_and(OpenError::is_damage) {
        return format!(
            "{says}. {at} is left as it is: see to it that the daemon can read and write it, and restart the daemon; or move \
             it away first, to begin with an empty one"
        );
    }
    match kept_aside(path) {
        Some(aside) => format!("{says}. {}", cure(&aside)),
        None => {
            format!("{says}. Move {at} away, and restart the daemon to begin with an empty one")
        }
    }
}

/// What is said as long as a book that was kept aside is there.
fn unacknowledged(name: &str, aside: &Path) -> String {
    format!(
        "the bookings of volume {name} were lost; nothing is promised to its exports, and all are best effort. {}",
        cure(aside)
    )
}

fn cure(aside: &Path) -> String {
    format!(
        "The file is kept as {}; move it elsewhere or delete it, restart the daemon to begin with an empty one, then book anew",
        aside.display()
    )
}

/// Names beside a book, for what was one.
fn asides(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..1000).map(|nth: u32| path.with_extension(format!("broken-{nth}")))
}

/// One that was kept aside and is still there.
fn earlier_aside(path: &Path) -> Option<PathBuf> {
    asides(path).find(|it| it.symlink_metadata().is_ok())
}

/// The file under a name that no other has yet, if it can have one.
fn kept_aside(path: &Path) -> Option<PathBuf> {
    let free = asides(path).find(|it| it.symlink_metadata().is_err())?;
    std::fs::rename(path, &free).ok()?;
    Some(free)
}

#[cfg(test)]
mod tests;

//! The exports of a data thread that are disks of the kernel: which are shown, and which wait for their volume?
//!
//! ```text
//! export -> is its device there? shown | away: looked for again and again -> shown
//! ```
//!
//! Always true: what is away keeps nothing else from starting or closing.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use base::Nanos;
use config::ExportConfig;
use device::Device;
use env::sync::Event;
use report::terminal::said;

use super::exports::VolumeExport;
use super::ublk::{UblkDisk, Wanted};

/// Between two looks at a volume that is away.
const LOOK_EVERY: Nanos = Nanos::secs(2);
/// After a volume that seemed to be there could not be shown.
const AGAIN_AFTER: Nanos = Nanos::secs(30);

/// What stands behind a disk.
pub enum Behind {
    /// A device of this thread; does it show every write that an earlier daemon answered?
    Device(Rc<dyn Device>, bool),
    Volume(Rc<VolumeExport>),
}

/// An export that is to be shown.
pub struct Showing {
    pub export: ExportConfig,
    pub data_dir: PathBuf,
    /// What the device stands on, in words that no other device has.
    pub identity: String,
    pub read_only: bool,
    pub behind: Behind,
}

/// An export whose volume is away, and why.
struct Away {
    export: String,
    why: String,
}

/// See the module's head.
#[derive(Default)]
pub struct Disks {
    shown: RefCell<Vec<Rc<UblkDisk>>>,
    away: RefCell<Vec<Away>>,
    looking: RefCell<Vec<env::Task<()>>>,
    closes: Cell<bool>,
    closing: Event,
}

impl Showing {
    /// Shows it, if its volume is there.
    ///
    /// # Errors
    /// What the driver refuses, in words.
    async fn show(&self) -> anyhow::Result<Result<UblkDisk, String>> {
        let (device, found_all, hold): (_, _, Box<dyn Any>) = match &self.behind {
            Behind::Device(device, found_all) => (Rc::clone(device), *found_all, Box::new(())),
            Behind::Volume(volume) => match volume.open().await {
                Ok(supplied) => {
                    let found_all = supplied.device.info().crash_keeping;
                    (supplied.device, found_all, supplied.hold)
                }
                Err(why) => return Ok(Err(why)),
            },
        };
        let disk = UblkDisk::open(Wanted {
            export: &self.export.name,
            data_dir: &self.data_dir,
            found_all,
            device,
            identity: &self.identity,
            read_only: self.read_only,
            hold,
        });
        disk.await.map(Ok)
    }

    /// Why its volume is away, as far as is known.
    fn away(&self) -> Option<String> {
        match &self.behind {
            Behind::Device(..) => None,
            Behind::Volume(volume) => volume.away(),
        }
    }
}

impl Disks {
    /// Shows an export now, or as soon as its volume is there.
    ///
    /// # Errors
    /// What the driver refuses, in words.
    pub async fn show(self: &Rc<Self>, showing: Showing) -> anyhow::Result<()> {
        match showing.show().await? {
            Ok(disk) => self.shown.borrow_mut().push(Rc::new(disk)),
            Err(why) => {
                // The node's stores must not wait for it: the volume may be on them.
                tracing::error!(
                    export = showing.export.name,
                    why,
                    "no block device is made of it yet; it is made as soon as the volume is there"
                );
                self.note(&showing, why);
                let looking = env::spawn(Rc::clone(self).look_for(showing));
                self.looking.borrow_mut().push(looking);
            }
        }
        Ok(())
    }

    async fn look_for(self: Rc<Self>, showing: Showing) {
        let mut pause = LOOK_EVERY;
        while !self.ends_within(pause).await {
            pause = LOOK_EVERY;
            if let Some(why) = showing.away() {
                self.note(&showing, why);
                continue;
            }
            match showing.show().await {
                Ok(Ok(disk)) => {
                    let mut away = self.away.borrow_mut();
                    away.retain(|away| away.export != showing.export.name);
                    self.shown.borrow_mut().push(Rc::new(disk));
                    return;
                }
                Ok(Err(why)) => self.note(&showing, why),
                Err(error) => {
                    let (export, why) = (&showing.export.name, said::words(&error));
                    tracing::error!(export, why, "no block device is made of it; tried again");
                    self.note(&showing, why);
                }
            }
            pause = AGAIN_AFTER;
        }
    }

    /// Waits for so long; does the thread close meanwhile?
    async fn ends_within(&self, span: Nanos) -> bool {
        let closing = async {
            while !self.closes.get() {
                self.closing.wait().await;
            }
        };
        env::timeout(span, closing).await.is_ok()
    }

    fn note(&self, showing: &Showing, why: String) {
        let export = showing.export.name.clone();
        let mut away = self.away.borrow_mut();
        away.retain(|away| away.export != export);
        away.push(Away { export, why });
    }

    /// The disk that an export is.
    pub fn find(&self, export: &str) -> Option<Rc<UblkDisk>> {
        let shown = self.shown.borrow();
        shown.iter().find(|disk| disk.export == export).cloned()
    }

    /// Why an export is no disk yet, if it is to be one.
    pub fn why_away(&self, export: &str) -> Option<String> {
        let away = self.away.borrow();
        let away = away.iter().find(|away| away.export == export)?;
        Some(format!(
            "its block device waits for the volume, which is looked for again and again: {}",
            away.why
        ))
    }

    /// Ends all of them; what went wrong.
    pub async fn close(&self) -> Vec<String> {
        self.closes.set(true);
        self.closing.notify_all();
        for looking in self.looking.take() {
            looking.await;
        }
        let mut troubles = Vec::new();
        let shown = self.shown.borrow().clone();
        for disk in shown {
            if let Err(error) = disk.close().await {
                troubles.push(said::words(&error));
            }
        }
        troubles
    }
}

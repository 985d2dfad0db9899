//! The exports of a data thread that are disks of the kernel: which are shown, and which wait for their volume?
//!
//! ```text
//! export -> is its device there? shown | away: looked for again and again -> shown
//! ```
//!
//! Always true:
//! 1. What is away keeps nothing else from starting.
//! 2. A volume that is looked for or opened keeps nothing from closing. A disk that the driver makes just then is waited
//!    for, and closed with the others.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::task::Poll;

use base::Nanos;
use config::ExportConfig;
use device::Device;
use env::sync::Event;
use hybrid::Hybrid;
use report::terminal::said;

use super::exports::VolumeExport;
use super::ublk::{UblkDisk, Wanted};

/// Between two looks at a volume that is away.
const LOOK_EVERY: Nanos = Nanos::secs(2);
/// After a volume that seemed to be there could not be opened, or was made no block device.
const AGAIN_AFTER: Nanos = Nanos::secs(30);

/// What stands behind a disk.
pub enum Behind {
    /// A device of this thread; does it show every write that an earlier daemon answered?
    Device(Rc<dyn Device>, bool),
    /// A hybrid of this thread whose cache is missed, and the device that it is then.
    Hybrid(Hybrid, Rc<dyn Device>),
    Volume(Rc<VolumeExport>),
}

/// An export that is to be shown.
pub struct Showing {
    pub export: ExportConfig,
    pub data_dir: PathBuf,
    /// What the device stands on, in words that no other device has.
    pub identity: String,
    /// What it stood on before: disks that wait for that end.
    pub former: Vec<String>,
    pub read_only: bool,
    pub behind: Behind,
}

/// What keeps an export from being a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// The volume is not there, or cannot be opened.
    Volume,
    /// The volume is there, and the driver makes no block device of it.
    Driver,
}

/// An export that is no block device yet, and why.
struct Away {
    export: String,
    lacks: Lacks,
    why: String,
}

impl Away {
    /// For people.
    fn said(&self) -> String {
        let why = &self.why;
        match self.lacks {
            Lacks::Volume => format!(
                "its block device waits for the volume, which is looked for again and again: {why}"
            ),
            Lacks::Driver => format!(
                "its volume is there, but the driver makes no block device of it, which is tried again every {} s: {why}",
                AGAIN_AFTER.secs_f64()
            ),
        }
    }
}

/// What a disk is made of.
struct Found {
    device: Rc<dyn Device>,
    found_all: bool,
    hold: Box<dyn Any>,
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
    /// Opens what stands behind it.
    ///
    /// # Errors
    /// Why its volume is away, in words.
    async fn open(&self) -> Result<Found, String> {
        match &self.behind {
            Behind::Device(device, found_all) => Ok(Found {
                device: Rc::clone(device),
                found_all: *found_all,
                hold: Box::new(()),
            }),
            Behind::Hybrid(hybrid, device) => match hybrid.why_withheld() {
                Some(why) => Err(why),
                None => Ok(Found {
                    device: Rc::clone(device),
                    // What the lost cache had is lost.
                    found_all: false,
                    hold: Box::new(()),
                }),
            },
            Behind::Volume(volume) => volume.open().await.map(|supplied| Found {
                found_all: supplied.device.info().crash_keeping,
                device: supplied.device,
                hold: supplied.hold,
            }),
        }
    }

    /// Shows it.
    ///
    /// # Errors
    /// What the driver refuses, in words.
    async fn show(&self, found: Found) -> anyhow::Result<Rc<UblkDisk>> {
        let disk = UblkDisk::open(Wanted {
            export: &self.export.name,
            data_dir: &self.data_dir,
            found_all: found.found_all,
            device: found.device,
            identity: &self.identity,
            former: &self.former,
            read_only: self.read_only,
            hold: found.hold,
        });
        disk.await.map(Rc::new)
    }

    /// Why its volume is away, as far as is known.
    fn away(&self) -> Option<String> {
        match &self.behind {
            Behind::Device(..) => None,
            Behind::Hybrid(hybrid, _) => hybrid.why_withheld(),
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
        match showing.open().await {
            Ok(found) => {
                let disk = showing.show(found).await?;
                self.shown.borrow_mut().push(disk);
            }
            Err(why) => {
                // The node's stores must not wait for it: the volume may be on them.
                tracing::error!(
                    export = showing.export.name,
                    why,
                    "no block device is made of it yet; it is made as soon as the volume is there"
                );
                self.note(&showing, Lacks::Volume, why);
                let looking = env::spawn(Rc::clone(self).look_for(showing));
                self.looking.borrow_mut().push(looking);
            }
        }
        Ok(())
    }

    async fn look_for(self: Rc<Self>, showing: Showing) {
        let mut pause = LOOK_EVERY;
        while self.unless_closing(env::sleep(pause)).await.is_some() {
            pause = LOOK_EVERY;
            if let Some(why) = showing.away() {
                self.note(&showing, Lacks::Volume, why);
                continue;
            }
            pause = AGAIN_AFTER;
            // The volume may take long, and given up it is not open.
            let Some(found) = self.unless_closing(showing.open()).await else {
                return;
            };
            let shown = match found {
                Ok(found) => showing.show(found).await,
                Err(why) => {
                    self.note(&showing, Lacks::Volume, why);
                    continue;
                }
            };
            match shown {
                Ok(disk) => {
                    let mut away = self.away.borrow_mut();
                    away.retain(|away| away.export != showing.export.name);
                    self.shown.borrow_mut().push(disk);
                    return;
                }
                Err(error) => {
                    let (export, why) = (&showing.export.name, said::words(&error));
                    tracing::error!(export, why, "no block device is made of it; tried again");
                    self.note(&showing, Lacks::Driver, why);
                }
            }
        }
    }

    /// What `work` comes to; nothing if the thread closes before, and then `work` is dropped.
    async fn unless_closing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let mut closing = std::pin::pin!(async {
            while !self.closes.get() {
                self.closing.wait().await;
            }
        });
        std::future::poll_fn(|cx| {
            if closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    fn note(&self, showing: &Showing, lacks: Lacks, why: String) {
        let export = showing.export.name.clone();
        let mut away = self.away.borrow_mut();
        away.retain(|away| away.export != export);
        away.push(Away { export, lacks, why });
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
        Some(away.said())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_export_lacks_is_said_of_the_volume_or_of_the_driver() {
        let disks = Disks::default();
        let away = |export: &str, lacks, why: &str| Away {
            export: export.to_owned(),
            lacks,
            why: why.to_owned(),
        };
        disks.away.borrow_mut().extend([
            away("a", Lacks::Volume, "no volume vm1"),
            away("b", Lacks::Driver, "no memory"),
        ]);
        assert_eq!(
            disks.why_away("a").unwrap(),
            "its block device waits for the volume, which is looked for again and again: no volume vm1"
        );
        assert_eq!(
            disks.why_away("b").unwrap(),
            "its volume is there, but the driver makes no block device of it, which is tried again every 30 s: no memory"
        );
        assert_eq!(disks.why_away("c"), None);
    }

    /// Says that it is gone.
    struct Gone(Rc<Cell<bool>>);

    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn closing_gives_up_what_is_being_opened_and_waits_for_nothing() {
        env::Runtime::simulated(1).block_on(async {
            let disks = Rc::new(Disks::default());
            assert_eq!(disks.unless_closing(async { 7 }).await, Some(7));
            let gone = Rc::new(Cell::new(false));
            let looking = env::spawn({
                let (disks, opening) = (Rc::clone(&disks), Gone(Rc::clone(&gone)));
                async move {
                    let never = async move {
                        let _opening = opening;
                        env::sleep(Nanos::secs(600)).await;
                    };
                    assert_eq!(disks.unless_closing(never).await, None);
                }
            });
            disks.looking.borrow_mut().push(looking);
            env::sleep(Nanos::secs(5)).await;
            assert!(!gone.get(), "it goes on while nothing closes");
            let before = env::now();
            assert!(disks.close().await.is_empty());
            assert!(gone.get(), "it was dropped");
            assert!(env::now() < before + Nanos::secs(1));
            let late = disks.unless_closing(async { 7 });
            assert_eq!(late.await, None, "nothing begins any more");
        });
    }
}

//! Mistakes that tests plant around a store, to see that the checkers catch them.
//!
//! The store itself is as it is: a mistake stands before its commits, or between it and its device.

use std::rc::Rc;

use base::{Buf, Sector, Span, View};
use device::{Class, Device, Info, Pending, WriteFlags};
use ledger::{CommitSource, Cut, Ledger, Prepared};

use crate::object::open;
use crate::object::parts::Parts;
use crate::object::record;
use crate::{OpenError, Store};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A flush flushes nothing; the crash run tells its device so.
    SkippedFlush,
    /// A page is free before the commit that forgets it is durable.
    EarlyFree,
    /// A commit leaves a record for the next one.
    LateRecord,
    /// A unit is free again before the device has discarded it.
    LooseTrim,
    /// What is released is discarded before its commit.
    EarlyTrim,
}

/// Opens the store on `device` with a mistake.
pub(super) async fn open(
    device: Rc<dyn Device>,
    mutation: Option<Mutation>,
) -> Result<Store, OpenError> {
    let device = match mutation {
        Some(Mutation::LooseTrim) => Rc::new(LooseTrim(device)),
        _ => device,
    };
    let source = |parts: &Rc<Parts>| -> Rc<dyn CommitSource> {
        let parts = Rc::clone(parts);
        match mutation {
            Some(mutation) => Rc::new(Mistaken { parts, mutation }),
            None => parts,
        }
    };
    Ok(Store::from(open::open(device, source).await?))
}

struct Mistaken {
    parts: Rc<Parts>,
    mutation: Mutation,
}

impl CommitSource for Mistaken {
    fn pending(&self) -> bool {
        self.parts.pending()
    }

    fn cut(&self, ledger: &Ledger) -> Prepared {
        let parts = &self.parts;
        match self.mutation {
            Mutation::EarlyFree => {
                let prepared = parts.cut(ledger);
                parts.space.change().committed();
                parts.room.notify_all();
                prepared
            }
            Mutation::LateRecord => {
                let late = parts.table.change().set_aside(record::SEGMENT);
                let prepared = parts.cut(ledger);
                parts.table.change().put_back(late);
                prepared
            }
            Mutation::EarlyTrim => {
                for page in uncut(parts) {
                    let span = parts.disk.superblock.span(page, 1);
                    let device = Rc::clone(&parts.disk.device);
                    env::spawn(async move { device.discard(span).await });
                }
                parts.cut(ledger)
            }
            Mutation::SkippedFlush | Mutation::LooseTrim => parts.cut(ledger),
        }
    }

    fn durable(&self, cut: Cut) {
        self.parts.durable(cut);
    }
}

/// Pages released since the last cut.
fn uncut(parts: &Parts) -> Vec<u32> {
    let mut space = parts.space.change();
    let count = space.reclaim.uncut();
    let mut pages = Vec::new();
    // They are the first that it looks at.
    space.reclaim.retain(|page| {
        pages.push(*page);
        true
    });
    pages.truncate(count);
    pages
}

/// A device that answers a discard before it is done.
struct LooseTrim(Rc<dyn Device>);

impl Device for LooseTrim {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.0.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.0.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        let device = Rc::clone(&self.0);
        env::spawn(async move { device.discard(span).await });
        device::ready(Ok(()))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write_zeroes(span, flags)
    }
}

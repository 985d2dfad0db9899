//! Since when have writers of volumes been gone?
//!
//! ```text
//! a look at all records and leases -> names a writer whose lease is gone -> since when, as long as a record names a writer
//!       a look failed, or none for long -> nothing is known, and each time begins again
//! ```
//!
//! A writer whose lease has run out may have crashed. It may as well be cut off from the meta store alone. Then its clients'
//! requests wait, and background work must not make them fail.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use base::{Instant, Nanos};

use crate::image::tree::Versioned;
use crate::names::VolumeId;
use crate::record::{VolumeRecord, writer_key};

/// Nothing but a client takes a volume sooner that its writer did not close.
pub(super) const WRITER_GONE: Nanos = Nanos::secs(600);
/// Looks may be so far apart; while the meta store is away no writer can come back.
const GAP_MOST: Nanos = Nanos::secs(60);

/// Volumes that their writers did not close.
#[derive(Default)]
pub(super) struct Left {
    /// Since when a writer's lease has been gone. An opening that fails names another writer only for a while.
    since: RefCell<BTreeMap<(VolumeId, u64), Instant>>,
    looked: Cell<Option<Instant>>,
}

impl Left {
    /// What a look at all records and all leases that last found.
    pub fn looked<'a>(
        &self,
        all: impl Iterator<Item = &'a Versioned<VolumeRecord>>,
        held: &BTreeSet<String>,
    ) {
        let now = env::now();
        let last = self.looked.replace(Some(now));
        let mut since = self.since.borrow_mut();
        if last.is_none_or(|it| now.since(it) > GAP_MOST) {
            since.clear();
        }
        let mut named = BTreeSet::new();
        for (id, writer) in all.filter_map(|it| Some((it.record.id, it.record.writer.as_ref()?))) {
            named.insert(id);
            if !held.contains(&writer_key(writer.lease)) {
                since.entry((id, writer.lease)).or_insert(now);
            }
        }
        since.retain(|(id, _), _| named.contains(id));
    }

    /// The meta store was not read: writers cannot have come back either.
    pub fn forget(&self) {
        self.since.borrow_mut().clear();
        self.looked.set(None);
    }

    /// May a volume be opened on `node` that no client asks for, now that no lease of a writer lasts? What was open on this very
    /// node is left by a process that is gone.
    pub fn is_free(&self, known: &Versioned<VolumeRecord>, node: &str) -> bool {
        let Some(writer) = &known.record.writer else {
            return true;
        };
        let since = self.since.borrow();
        let since = since.get(&(known.record.id, writer.lease));
        let long = since.is_some_and(|since| env::now().since(*since) >= WRITER_GONE);
        long || writer.node == node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Revision;
    use crate::names::ImageId;
    use crate::record::Writer;

    fn left(lease: u64) -> Versioned<VolumeRecord> {
        let name = "vm1".parse().unwrap();
        let mut record = VolumeRecord::new(VolumeId(3), name, 2, 1, ImageId(9));
        record.writer = Some(Writer {
            node: "n1".to_owned(),
            lease,
            waits: false,
        });
        let changed = Some(Revision(5));
        Versioned { record, changed }
    }

    /// Looks for so many seconds, and may the volume be opened then?
    async fn after(left: &Left, known: &Versioned<VolumeRecord>, seconds: u64) -> bool {
        for _ in 0..seconds / 10 {
            left.looked([known].into_iter(), &BTreeSet::new());
            env::sleep(Nanos::secs(10)).await;
        }
        left.is_free(known, "n2")
    }

    #[test]
    fn a_volume_is_free_after_its_writer_was_gone_for_ten_minutes_on_end() {
        env::Runtime::simulated(1).block_on(async {
            let (gone, known) = (Left::default(), left(5));
            assert!(gone.is_free(&known, "n1"), "its own node, started again");
            assert!(!gone.is_free(&known, "n2"), "never looked");
            assert!(!after(&gone, &known, 590).await);
            assert!(after(&gone, &known, 10).await);
            assert!(!gone.is_free(&left(6), "n2"), "it took another lease");
            gone.forget();
            assert!(!after(&gone, &known, 590).await, "a look failed");
            env::sleep(Nanos::secs(61)).await;
            assert!(!after(&gone, &known, 500).await, "looks were missing");
            // Another node tries to open it, in vain.
            let held: BTreeSet<String> = [writer_key(6)].into();
            gone.looked([&left(6)].into_iter(), &held);
            assert!(after(&gone, &known, 100).await);
            assert!(!after(&gone, &left(6), 590).await, "another writer");
            assert!(after(&gone, &left(6), 10).await);
            let mut closed = left(6);
            closed.record.writer = None;
            assert!(Left::default().is_free(&closed, "n2"));
        });
    }
}

//! Is everything as it should be? Every disagreement is reported, nothing is changed.
//!
//! ```text
//! superblocks -> ledger (with what is readable of a damaged one) -> objects, space -> their data, if asked for
//! ```

use std::rc::Rc;

use base::{Buf, Bytes, crc::crc32c};
use device::{Class, Device};
use ledger::{Ledger, LedgerError};

use crate::object::error::OpenError;
use crate::object::finding::{BadBlock, Finding};
use crate::object::layout::{Found, Superblock, VERSION};
use crate::object::load::{Loaded, Records};
use crate::object::segment::PAGES;
use crate::object::types::SpaceFigures;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is not as it should be; the first ten thousand.
    pub findings: Vec<Finding>,
    /// How many there are.
    pub count: usize,
    /// Objects found.
    pub objects: u64,
    /// Objects whose deletion was cut off; the next open goes on with it.
    pub deleting: u64,
    /// Room, as far as the records show.
    pub space: SpaceFigures,
    /// Pages read and compared with their checksums.
    pub pages_read: u64,
}

impl Report {
    /// Is all well?
    pub fn is_clean(&self) -> bool {
        self.count == 0
    }

    fn find(&mut self, finding: Finding) {
        self.count += 1;
        if self.findings.len() < 10_000 {
            self.findings.push(finding);
        }
    }

    fn superblocks(&mut self, newest: &Superblock, found: [Found; 2]) {
        for (copy, found) in ['A', 'B'].into_iter().zip(found) {
            let why = match found {
                Found::Whole(_) => continue,
                Found::Bad(why) => why.to_owned(),
                Found::Version(version) => format!("has version {version}"),
            };
            // A store that was only formatted has written one.
            if newest.sequence > 1 || why != "is blank" {
                self.find(Finding::Superblock { copy, why });
            }
        }
    }

    fn figures(&mut self, superblock: &Superblock, loaded: &Loaded) {
        let page = superblock.page.0;
        let (table, snapshot) = (&loaded.table, loaded.space.snapshot());
        self.deleting = table.deleting.len() as u64;
        self.objects = table.names.len() as u64;
        let total = u64::from(loaded.space.total());
        let reserved = table.promised().min(u64::from(snapshot.free));
        self.space = SpaceFigures {
            total: Bytes(total * page),
            used: Bytes((total - u64::from(snapshot.free)) * page),
            reserved: Bytes(reserved * page),
            free: Bytes((u64::from(snapshot.free) - reserved) * page),
            units_free: u64::from(snapshot.units_free),
            units_begun: u64::from(snapshot.units_begun),
            units: superblock.units,
            unit: superblock.unit,
            page: superblock.page,
            objects: self.objects,
            table: Bytes(table.live()),
            table_max: Bytes(superblock.live_max()),
            ..SpaceFigures::default()
        };
    }

    /// Reads every page of every object.
    async fn data(&mut self, device: &dyn Device, superblock: &Superblock, loaded: &Loaded) {
        let objects = loaded.table.objects.iter().flatten();
        for object in objects.filter(|object| !object.deleting) {
            for number in object.segments.keys() {
                let segment = object.segment(*number).expect("just listed");
                for (at, entry) in segment.entries.iter().enumerate() {
                    let Some(entry) = entry.filter(|entry| entry.place < loaded.space.total())
                    else {
                        continue;
                    };
                    let buf = Buf::for_read(superblock.page.usize());
                    let sector = superblock.sector(entry.place);
                    let read = device.read(sector, buf, Class::Background).await;
                    self.pages_read += 1;
                    let why = match read {
                        Ok(buf) if crc32c(&buf) == entry.crc => continue,
                        Ok(_) => "the checksum differs".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    self.find(Finding::Data(BadBlock {
                        object: object.name.to_string(),
                        offset: (u64::from(*number) * PAGES + at as u64) * superblock.page.0,
                        len: superblock.page,
                        page: entry.place,
                        why,
                    }));
                }
            }
        }
    }
}

/// Checks the store on `device`, which must not be open, without changing anything; with `data`, reads every page
/// and compares it with its checksum.
///
/// # Errors
/// [`OpenError::NoStore`], [`OpenError::Version`] and [`OpenError::Device`], if there is nothing to check. All
/// else is in the report.
///
/// # Example
/// ```
/// # env::Runtime::simulated(1).block_on(async {
/// let device = device::Memory::new("disk", base::Bytes::mib(8));
/// store::Store::format(device.clone(), store::Settings::default()).await?.close().await.unwrap();
/// let report = store::check(device, true).await?;
/// assert!(report.is_clean());
/// # Ok::<(), store::OpenError>(())
/// # })?;
/// # Ok::<(), store::OpenError>(())
/// ```
pub async fn check(device: Rc<dyn Device>, data: bool) -> Result<Report, OpenError> {
    let (superblock, found) = read_superblock(&device).await?;
    let mut report = Report::default();
    report.superblocks(&superblock, found);
    let (records, damage) = read_records(&device, &superblock).await;
    if let Some(why) = damage {
        report.find(Finding::Ledger { why });
    }
    let mut loaded = records.load(&superblock);
    report.count += loaded.findings_count;
    report.findings.append(&mut loaded.findings);
    report.figures(&superblock, &loaded);
    if data {
        report.data(&*device, &superblock, &loaded).await;
    }
    Ok(report)
}

/// What the ledger shows, or what is readable of a damaged one, and what is wrong with it.
async fn read_records(
    device: &Rc<dyn Device>,
    superblock: &Superblock,
) -> (Records, Option<String>) {
    let mut records = Records::default();
    let visit = |record: ledger::Record<'_>| records.visit(record);
    let opened = Ledger::open(Rc::clone(device), superblock.ledger, visit).await;
    let Err(error) = opened else {
        return (records, None);
    };
    let mut damage = error.to_string();
    records = Records::default();
    if matches!(error, LedgerError::Damaged { .. }) {
        let visit = |record: ledger::Record<'_>| records.visit(record);
        let salvaged = Ledger::open_salvage(Rc::clone(device), superblock.ledger, visit).await;
        if let Err(error) = salvaged {
            damage = error.to_string();
        }
    }
    (records, Some(damage))
}

/// The superblock that counts, and both as found.
pub(crate) async fn read_superblock(
    device: &Rc<dyn Device>,
) -> Result<(Superblock, [Found; 2]), OpenError> {
    let name = device.info().name;
    let found = Superblock::read(device)
        .await
        .map_err(|source| OpenError::Device {
            device: name.clone(),
            what: "read the superblocks of",
            source,
        })?;
    // A newer program may have written over one of ours: both must be of a version we know.
    if let Some(version) = found.iter().find_map(|one| match one {
        Found::Version(version) => Some(*version),
        _ => None,
    }) {
        return Err(OpenError::Version {
            device: name,
            found: version,
            known: VERSION,
        });
    }
    if let Some(newest) = Superblock::newest(&found) {
        return Ok((newest.clone(), found));
    }
    let why = |found: &Found| match found {
        Found::Bad(why) => why,
        _ => "is of another version",
    };
    Err(OpenError::NoStore {
        device: name,
        a: why(&found[0]),
        b: why(&found[1]),
    })
}

//! The file: what it holds, and how that is read and written.

use std::path::Path;

use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use base::Nanos;

use super::error::{RedbError, VERSION};
use crate::meta::{Entry, LeaseId, Revision};

pub(super) const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("tanada-meta");
pub(super) const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
pub(super) const LEASES: TableDefinition<u64, u64> = TableDefinition::new("leases");

/// What the file held when it was opened.
pub(super) struct Found {
    pub revision: Revision,
    pub next_lease: u64,
    pub entries: Vec<Entry>,
    pub leases: Vec<(LeaseId, Nanos)>,
    /// It was closed in good order by its last process, or before that one with leases that may last.
    pub closed: bool,
}

/// Opens the file, or makes one.
pub(super) fn open(path: &Path) -> Result<(Database, Found), RedbError> {
    let failed = |source: ::redb::Error| match source {
        ::redb::Error::DatabaseAlreadyOpen => RedbError::InUse {
            path: path.to_owned(),
        },
        source => RedbError::Database {
            path: path.to_owned(),
            source: Box::new(source),
        },
    };
    let database = Database::create(path).map_err(|error| failed(error.into()))?;
    let found = find(&database, path, &failed)?;
    Ok((database, found))
}

/// What a database holds; a new one is formatted first.
pub(super) fn find(
    database: &Database,
    path: &Path,
    failed: &impl Fn(::redb::Error) -> RedbError,
) -> Result<Found, RedbError> {
    if is_new(database).map_err(failed)? {
        format(database).map_err(failed)?;
    }
    read(database, path, failed)
}

fn is_new(database: &Database) -> Result<bool, ::redb::Error> {
    Ok(database.begin_read()?.list_tables()?.next().is_none())
}

fn format(database: &Database) -> Result<(), ::redb::Error> {
    let txn = database.begin_write()?;
    {
        let mut counters = txn.open_table(COUNTERS)?;
        counters.insert("version", VERSION)?;
        counters.insert("revision", 1)?;
        counters.insert("next_lease", 1)?;
        txn.open_table(ENTRIES)?;
        txn.open_table(LEASES)?;
    }
    txn.commit()?;
    Ok(())
}

fn read(
    database: &Database,
    path: &Path,
    failed: &impl Fn(::redb::Error) -> RedbError,
) -> Result<Found, RedbError> {
    let damaged = |what: &str| RedbError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    };
    let inner = || -> Result<Result<Found, RedbError>, ::redb::Error> {
        let txn = database.begin_read()?;
        let ours = |table: ::redb::UntypedTableHandle| table.name() == COUNTERS.name();
        if !txn.list_tables()?.any(ours) {
            let path = path.to_owned();
            return Ok(Err(RedbError::Foreign { path }));
        }
        let counters = txn.open_table(COUNTERS)?;
        let counter = |name: &str| Ok::<_, ::redb::Error>(counters.get(name)?.map(|it| it.value()));
        match counter("version")? {
            Some(VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                let path = path.to_owned();
                return Ok(Err(RedbError::Version { path, version }));
            }
        }
        let (Some(revision), Some(next_lease)) = (counter("revision")?, counter("next_lease")?)
        else {
            return Ok(Err(damaged("its counters are missing")));
        };
        let closed = counter("closed")? == Some(1);
        let mut leases = Vec::new();
        for row in txn.open_table(LEASES)?.iter()? {
            let (id, ttl) = row?;
            leases.push((LeaseId(id.value()), Nanos(ttl.value())));
        }
        let entries = match read_entries(&txn, revision, &leases)? {
            Ok(entries) => entries,
            Err(key) => {
                let what = format!("the entry of key '{}'", key.escape_debug());
                return Ok(Err(damaged(&what)));
            }
        };
        Ok(Ok(Found {
            revision: Revision(revision),
            next_lease,
            entries,
            leases,
            closed,
        }))
    };
    inner().map_err(failed)?
}

/// All entries; else the key of one that is not what was written.
fn read_entries(
    txn: &::redb::ReadTransaction,
    revision: u64,
    leases: &[(LeaseId, Nanos)],
) -> Result<Result<Vec<Entry>, String>, ::redb::Error> {
    let lease_is_there = |id: LeaseId| leases.binary_search_by_key(&id, |it| it.0).is_ok();
    let mut entries = Vec::new();
    for row in txn.open_table(ENTRIES)?.iter()? {
        let (key, record) = row?;
        let sound = decode(key.value(), record.value())
            .filter(|entry| entry.changed.0 <= revision && entry.lease.is_none_or(lease_is_there));
        match sound {
            Some(entry) => entries.push(entry),
            None => return Ok(Err(key.value().to_owned())),
        }
    }
    Ok(Ok(entries))
}

/// The bytes before the value: created, changed, lease.
const RECORD_HEAD: usize = 24;

/// The bytes of an entry's record.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let mut record = Vec::with_capacity(RECORD_HEAD + entry.value.len());
    let lease = entry.lease.map_or(0, |lease| lease.0);
    for number in [entry.created.0, entry.changed.0, lease] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&entry.value);
    record
}

fn decode(key: &str, record: &[u8]) -> Option<Entry> {
    let (head, value) = record.split_at_checked(RECORD_HEAD)?;
    let number = |at: usize| {
        let bytes = head[8 * at..8 * (at + 1)].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    let (created, changed, lease) = (number(0), number(1), number(2));
    Some(Entry {
        key: key.to_owned(),
        value: value.to_vec(),
        created: Revision(created),
        changed: Revision(changed),
        lease: (lease != 0).then_some(LeaseId(lease)),
    })
}

/// Says in the file whether it is closed in good order.
pub(super) fn note_closed(database: &Database, closed: bool) -> Result<(), ::redb::Error> {
    let txn = database.begin_write()?;
    txn.open_table(COUNTERS)?
        .insert("closed", u64::from(closed))?;
    txn.commit()?;
    Ok(())
}

//! The tables of an index, and what of them is the same for those who read and those who change.
//!
//! ```text
//! buckets   name                                  -> Bucket
//! objects   (bucket, key, all ones - number)      -> Version, and a small object's bytes; the newest version first
//! uploads   (bucket, key, upload)                 -> Upload
//! parts     (upload, number of the part)          -> Part
//! blobs     blob                                  -> how many versions and parts have it
//! dead      blob                                  -> BlobRef; its bytes are to be deleted
//! counters  what                                  -> number
//! about     what                                  -> text
//! ```
//!
//! Bytes compare as S3 wants it: keys by their UTF-8.

use redb::{ReadableTable, TableDefinition};

use super::error::IndexError;
use super::record::{Bucket, Version, VersionId, decode, decode_version};

/// Bucket, key, number of the version turned round.
pub type ObjectKey = (u64, &'static [u8], u64);
/// Bucket, key, upload.
pub type UploadKey = (u64, &'static [u8], &'static str);

pub const BUCKETS: TableDefinition<&str, &[u8]> = TableDefinition::new("buckets");
pub const OBJECTS: TableDefinition<ObjectKey, &[u8]> = TableDefinition::new("objects");
pub const UPLOADS: TableDefinition<UploadKey, &[u8]> = TableDefinition::new("uploads");
pub const PARTS: TableDefinition<(&str, u32), &[u8]> = TableDefinition::new("parts");
pub const BLOBS: TableDefinition<&str, u64> = TableDefinition::new("blobs");
pub const DEAD: TableDefinition<&str, &[u8]> = TableDefinition::new("dead");
pub const ABOUT: TableDefinition<&str, &str> = TableDefinition::new("about");
pub const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("tanada-s3");

/// Of the whole index, under `version` in [`COUNTERS`].
pub const LAYOUT: u64 = 1;

/// A version that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Counted over all buckets.
    pub number: u64,
    /// What it is.
    pub version: Version,
    /// The object's bytes, if they are in the index.
    pub inline: Vec<u8>,
}

impl Found {
    /// As clients name it.
    pub fn id(&self) -> VersionId {
        match self.version.null {
            true => VersionId::Null,
            false => VersionId::Number(self.number),
        }
    }

    /// The same, without the object's bytes.
    pub(super) fn decode_alone(turned: u64, value: &[u8]) -> Result<Found, IndexError> {
        let (version, _) = decode_version(value)?;
        Ok(Found {
            number: u64::MAX - turned,
            version,
            inline: Vec::new(),
        })
    }

    /// The value of a row of [`OBJECTS`].
    pub(super) fn decode(turned: u64, value: &[u8]) -> Result<Found, IndexError> {
        let (version, inline) = decode_version(value)?;
        Ok(Found {
            number: u64::MAX - turned,
            version,
            inline: inline.to_vec(),
        })
    }
}

pub fn bucket(
    buckets: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<Bucket>, IndexError> {
    let found = buckets.get(name)?;
    Ok(found.map(|it| decode(it.value())).transpose()?)
}

/// The newest version of a key.
pub fn newest(
    objects: &impl ReadableTable<ObjectKey, &'static [u8]>,
    bucket: u64,
    key: &str,
) -> Result<Option<Found>, IndexError> {
    let mut range = objects.range(all_versions(bucket, key))?;
    let Some(row) = range.next() else {
        return Ok(None);
    };
    let (at, value) = row?;
    Found::decode(at.value().2, value.value()).map(Some)
}

/// The version of a key with this name.
pub fn named(
    objects: &impl ReadableTable<ObjectKey, &'static [u8]>,
    bucket: u64,
    key: &str,
    id: VersionId,
) -> Result<Option<Found>, IndexError> {
    let VersionId::Number(number) = id else {
        for row in objects.range(all_versions(bucket, key))? {
            let (at, value) = row?;
            let found = Found::decode(at.value().2, value.value())?;
            if found.version.null {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    };
    let turned = u64::MAX - number;
    let found = objects.get((bucket, key.as_bytes(), turned))?;
    let found = found.map(|value| Found::decode(turned, value.value()));
    Ok(found.transpose()?.filter(|it| !it.version.null))
}

fn all_versions(bucket: u64, key: &str) -> std::ops::RangeInclusive<(u64, &[u8], u64)> {
    let key = key.as_bytes();
    (bucket, key, 0)..=(bucket, key, u64::MAX)
}

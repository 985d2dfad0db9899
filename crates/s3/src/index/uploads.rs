//! Uploads in parts: begun, filled, completed or ended, each step one change of the index.
//!
//! ```text
//! (none) -> begun    begin
//! begun  -> begun    put_part     a part of the same number replaces the one before
//! begun  -> (none)   complete     the parts that are named become the object, the rest is dead
//! begun  -> (none)   abort        all parts are dead
//! ```
//!
//! Always true: the bytes of a part are not copied; the object that comes of it has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use redb::ReadableTable;

use super::error::{IndexError, Refused};
use super::record::{
    Checksum, Content, Part, PartSize, Upload, Version, VersionId, decode, encode,
};
use super::tables::Found;
use super::transaction::{Condition, Transaction};

/// All parts but the last have at least so many bytes.
pub const PART_MIN: u64 = 5 << 20;
/// The greatest number of a part.
pub const PARTS_MAX: u32 = 10_000;

/// The most uploads of one bucket that are under way.
pub const UPLOADS_MAX: usize = 1000;

/// A part as the client that completes an upload names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPart {
    /// As it was numbered.
    pub number: u32,
    /// As it was answered; `None`: whichever came.
    pub etag: Option<String>,
}

/// Which upload: its bucket, its key and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRef {
    /// The name of the bucket.
    pub bucket: String,
    /// The key of the object that comes of it.
    pub key: String,
    /// As `begin` was given it.
    pub id: String,
}

type Done<T> = Result<T, IndexError>;

/// The uploads within a transaction.
pub struct Uploads<'a, 't>(pub &'a mut Transaction<'t>);

impl Uploads<'_, '_> {
    /// Begins an upload with a name that no other one has.
    ///
    /// # Errors
    /// [`Refused::NoBucket`].
    pub fn begin(&mut self, at: &UploadRef, upload: &Upload) -> Done<()> {
        let bucket = self.0.bucket(&at.bucket)?.id;
        let all = (self.0.uploads).range((bucket, &[][..], "")..(bucket + 1, &[][..], ""))?;
        if all.take(UPLOADS_MAX).count() == UPLOADS_MAX {
            return Err(Refused::TooManyUploads(UPLOADS_MAX).into());
        }
        let row = (bucket, at.key.as_bytes(), &*at.id);
        self.0.uploads.insert(row, &*encode(upload))?;
        Ok(())
    }

    /// The upload, and the number of its bucket.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::NoUpload`].
    pub fn upload(&self, at: &UploadRef) -> Done<(u64, Upload)> {
        let bucket = self.0.bucket(&at.bucket)?.id;
        let found = self.0.uploads.get((bucket, at.key.as_bytes(), &*at.id))?;
        let found = found.ok_or_else(|| Refused::NoUpload(at.id.clone()))?;
        Ok((bucket, decode(found.value())?))
    }

    /// A part has come, and its bytes are durable.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::NoUpload`].
    pub fn put_part(&mut self, at: &UploadRef, number: u32, part: &Part) -> Done<()> {
        self.upload(at)?;
        let before = self.0.parts.get((&*at.id, number))?;
        let before: Option<Part> = before.map(|it| decode(it.value())).transpose()?;
        for blob in &part.blobs {
            self.0.count_up(blob)?;
        }
        self.0.parts.insert((&*at.id, number), &*encode(part))?;
        for blob in before.iter().flat_map(|it| &it.blobs) {
            self.0.count_down(blob)?;
        }
        Ok(())
    }

    /// All parts that have come, by number.
    pub fn parts_of(&self, upload: &str) -> Done<Vec<(u32, Part)>> {
        let rows = self.0.parts.range((upload, 0)..=(upload, u32::MAX))?;
        let parts = rows.map(|row| {
            let (at, part) = row?;
            Ok((at.value().1, decode(part.value())?))
        });
        parts.collect()
    }

    /// Makes an object of the parts that are `named`; what it is, and its version's name where the bucket has versions.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::NoUpload`], [`Refused::NoPart`], [`Refused::PartOrder`], [`Refused::PartTooSmall`],
    /// [`Refused::Precondition`], [`Refused::NoKey`]; what `combine` refuses. One that was completed before answers again.
    pub fn complete(
        &mut self,
        at: &UploadRef,
        named: &[NamedPart],
        (condition, now): (&Condition, u64),
        combine: impl FnOnce(&Upload, &[(u32, Part)]) -> Result<Option<Checksum>, Refused>,
    ) -> Done<(Content, Option<VersionId>)> {
        let upload = match self.upload(at) {
            Err(IndexError::Refused(Refused::NoUpload(id))) => return self.completed(at, id),
            found => found?.1,
        };
        let (used, unused) = chosen(self.parts_of(&at.id)?, named)?;
        let content = Content {
            size: used.iter().map(|(_, part)| part.size).sum(),
            etag: etag_of_parts(&used),
            about: upload.about.clone(),
            checksum: combine(&upload, &used)?,
            upload: Some(at.id.clone()),
            parts: (used.iter())
                .map(|(number, part)| PartSize {
                    number: *number,
                    size: part.size,
                    checksum: part.checksum.as_ref().map(|it| it.value.clone()),
                })
                .collect(),
            blobs: used
                .iter()
                .flat_map(|(_, part)| part.blobs.clone())
                .collect(),
        };
        let version = Version {
            modified: now,
            owner: upload.owner,
            grants: upload.grants,
            lock: upload.lock,
            content: Some(content.clone()),
            ..Version::default()
        };
        let version = self.0.put((&at.bucket, &at.key), version, &[], condition)?;
        // The object counts what it has by itself.
        self.end(at, used.into_iter().chain(unused))?;
        Ok((content, version))
    }

    /// What an upload that was completed before became, if that is there still.
    fn completed(&self, at: &UploadRef, id: String) -> Done<(Content, Option<VersionId>)> {
        let bucket = self.0.bucket(&at.bucket)?;
        let found = self.0.newest(bucket.id, &at.key)?;
        let version = found
            .as_ref()
            .map(Found::id)
            .filter(|it| *it != VersionId::Null);
        let content = found.and_then(|it| it.version.content);
        match content.filter(|it| it.upload.as_deref() == Some(&at.id)) {
            Some(content) => Ok((content, version)),
            None => Err(Refused::NoUpload(id).into()),
        }
    }

    /// Ends an upload; what came is deleted.
    ///
    /// # Errors
    /// [`Refused::NoBucket`], [`Refused::NoUpload`].
    pub fn abort(&mut self, at: &UploadRef) -> Done<()> {
        self.upload(at)?;
        let parts = self.parts_of(&at.id)?;
        self.end(at, parts)
    }

    /// Ends all uploads of a bucket.
    pub(super) fn abort_all(&mut self, name: &str, bucket: u64) -> Done<()> {
        let rows = (self.0.uploads).range((bucket, &[][..], "")..(bucket + 1, &[][..], ""))?;
        let all = rows.map(|row| {
            let (at, _) = row?;
            let (_, key, id) = at.value();
            Ok(UploadRef {
                bucket: name.to_owned(),
                key: String::from_utf8_lossy(key).into_owned(),
                id: id.to_owned(),
            })
        });
        for at in all.collect::<Done<Vec<_>>>()? {
            self.abort(&at)?;
        }
        Ok(())
    }

    fn end(&mut self, at: &UploadRef, parts: impl IntoIterator<Item = (u32, Part)>) -> Done<()> {
        let bucket = self.0.bucket(&at.bucket)?.id;
        for (number, part) in parts {
            self.0.parts.remove((&*at.id, number))?;
            for blob in &part.blobs {
                self.0.count_down(blob)?;
            }
        }
        self.0
            .uploads
            .remove((bucket, at.key.as_bytes(), &*at.id))?;
        Ok(())
    }
}

/// The parts that are named, in their order, and the rest.
type Chosen = (Vec<(u32, Part)>, Vec<(u32, Part)>);

fn chosen(came: Vec<(u32, Part)>, named: &[NamedPart]) -> Result<Chosen, Refused> {
    if named.is_empty() || !named.is_sorted_by(|a, b| a.number < b.number) {
        return Err(Refused::PartOrder);
    }
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    let mut wanted = named.iter().peekable();
    for one in came {
        match wanted.next_if(|it| it.number == one.0) {
            None => unused.push(one),
            Some(part) if part.etag.as_ref().is_none_or(|etag| *etag == one.1.etag) => {
                used.push(one);
            }
            Some(part) => return Err(Refused::NoPart(part.number)),
        }
    }
    if let Some(part) = wanted.next() {
        return Err(Refused::NoPart(part.number));
    }
    let all_but_last = &used[..used.len() - 1];
    if let Some((number, part)) = all_but_last.iter().find(|it| it.1.size < PART_MIN) {
        return Err(Refused::PartTooSmall {
            number: *number,
            size: part.size,
            least: PART_MIN,
        });
    }
    Ok((used, unused))
}

/// The MD5 of the parts' MD5s, and how many there are.
fn etag_of_parts(parts: &[(u32, Part)]) -> String {
    let mut md5 = Md5::new();
    for (_, part) in parts {
        md5.update(bytes_of_hex(&part.etag));
    }
    format!("{}-{}", hex(&md5.finalize()), parts.len())
}

/// Two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|it| it as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// The checksum of the checksums of parts, for the algorithms that are put together so.
pub fn composite(hash: impl Fn(&[u8]) -> Vec<u8>, parts: &[(u32, Part)]) -> Option<String> {
    let mut all = Vec::new();
    for (_, part) in parts {
        all.extend(STANDARD.decode(&part.checksum.as_ref()?.value).ok()?);
    }
    Some(format!("{}-{}", STANDARD.encode(hash(&all)), parts.len()))
}

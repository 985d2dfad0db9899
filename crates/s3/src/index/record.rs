//! What the index of a gateway has of buckets, versions of objects and uploads in parts, and the bytes of each.
//!
//! ```text
//! value of a version:  format (1 byte) | length of the JSON (u32, little-endian) | JSON | bytes of a small object
//! value of the rest:   format (1 byte) | JSON
//! ```
//!
//! Pure. JSON, so that a field can be added; the format is counted up where one changes its meaning.
//!
//! Always true: a value of an unknown format is an error, never taken for another.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::lock::{Lock, LockRule};
use super::settings::{BucketPolicy, CorsRule, Ownership};

/// Of all values.
const FORMAT: u8 = 1;
/// The longest object whose bytes lie in the index, beside its record.
pub const INLINE_MAX: usize = 16 << 10;

/// Names with values: headers, metadata, tags.
pub type Pairs = BTreeMap<String, String>;

/// Does a bucket have old versions of its objects?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Versioning {
    /// It never had: what is put replaces what was there.
    #[default]
    Off,
    /// Each put makes one more version.
    Enabled,
    /// No more: a put replaces the version called `null`, and those with a number stay.
    Suspended,
}

/// Who gets something by a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grantee {
    /// One account.
    Account(String),
    /// All that have an access key: nothing else comes in.
    Everyone,
    /// The same, as S3 tells them apart.
    Authenticated,
}

/// What a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// A bucket is listed, an object is got.
    Read,
    /// Objects of a bucket are put and deleted.
    Write,
    /// The grants are shown.
    ReadAcl,
    /// They are changed.
    WriteAcl,
    /// All of it.
    Full,
}

/// A line of an access control list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Who gets it.
    pub to: Grantee,
    /// What.
    pub permission: Permission,
}

impl Grant {
    /// Is it to a group?
    pub fn is_public(&self) -> bool {
        !matches!(self.to, Grantee::Account(_))
    }
}

/// What a bucket does about grants to groups and public policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PublicBlock {
    /// Grants to groups are refused.
    pub refuses_grants: bool,
    /// Policies that open it to all are refused.
    pub refuses_policies: bool,
    /// Grants to groups count for nothing.
    pub ignores_grants: bool,
    /// A public policy opens it to its own account alone.
    pub restricts: bool,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// Never given twice.
    pub id: u64,
    /// The account that it belongs to.
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Of its objects.
    #[serde(default)]
    pub versioning: Versioning,
    /// Of the bucket itself.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub tags: Pairs,
    /// Who else may what; `None`: the owner alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
    /// What is done about those to groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_block: Option<PublicBlock>,
    /// What else it allows, and denies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<BucketPolicy>,
    /// Whose objects of other accounts are; `None`: theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<Ownership>,
    /// For browsers; none: pages of other origins ask for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cors: Vec<CorsRule>,
    /// Its versions can be locked; once so, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockRule>,
}

/// Which version of a key, as clients name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionId {
    /// The one that was put while the bucket had no versions.
    Null,
    /// Counted over all buckets.
    Number(u64),
}

impl VersionId {
    /// Reads what a client wrote; `None` if no version is called so.
    ///
    /// # Example
    /// ```
    /// use s3::VersionId;
    /// assert_eq!(VersionId::parse("null"), Some(VersionId::Null));
    /// assert_eq!(VersionId::parse(&VersionId::Number(7).to_string()), Some(VersionId::Number(7)));
    /// assert_eq!(VersionId::parse("7"), None);
    /// ```
    pub fn parse(text: &str) -> Option<VersionId> {
        if text == "null" {
            return Some(VersionId::Null);
        }
        let lower = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = (lower && text.len() == 16).then(|| u64::from_str_radix(text, 16));
        number?.ok().map(VersionId::Number)
    }
}

impl std::fmt::Display for VersionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VersionId::Null => f.write_str("null"),
            VersionId::Number(number) => write!(f, "{number:016x}"),
        }
    }
}

/// A version of an object, or the mark that it was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Version {
    /// Milliseconds since 1970.
    pub modified: u64,
    /// The account that put it.
    pub owner: String,
    /// Clients call it `null`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub null: bool,
    /// Who else may what; `None`: the owner alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
    /// What keeps it from being removed.
    #[serde(default, skip_serializing_if = "Lock::is_empty")]
    pub lock: Lock,
    /// `None`: a delete marker.
    pub content: Option<Content>,
}

/// What an object is and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Content {
    /// In bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// As the client gave it, to be given back.
    #[serde(flatten)]
    pub about: About,
    /// Of the bytes; verified when they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Of an upload in parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartSize>,
    /// The upload that it came of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// Where the bytes are, in order; none where they are in the index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobRef>,
}

/// What a client says of an object beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct About {
    /// `content-type` and its like, by lower-case name.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub headers: Pairs,
    /// `x-amz-meta-` without that.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub metadata: Pairs,
    /// Tags of the object.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub tags: Pairs,
}

/// A checksum that a client can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// `CRC32`, `CRC32C`, `CRC64NVME`, `SHA1` or `SHA256`.
    pub algorithm: String,
    /// In base64; of checksums of parts with `-` and their number.
    pub value: String,
    /// Of the whole object, not of the checksums of its parts.
    pub full_object: bool,
}

/// A part of an object that came in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSize {
    /// As the client numbered it.
    pub number: u32,
    /// In bytes.
    pub size: u64,
    /// Of this part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// Bytes that were written once and are never changed, in the stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobRef {
    /// The bucket for which they were written.
    pub folder: String,
    /// Seconds since 1970 and 64 bits of chance, in hexadecimal digits.
    pub id: String,
    /// In bytes.
    pub size: u64,
}

/// An upload in parts that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Milliseconds since 1970.
    pub begun: u64,
    /// The account that began it.
    pub owner: String,
    /// Of the object that comes of it.
    #[serde(flatten)]
    pub about: About,
    /// Of the object that comes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
    /// Of the object that comes of it.
    #[serde(default, skip_serializing_if = "Lock::is_empty")]
    pub lock: Lock,
    /// Which checksum its parts have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// The object's is that of all its bytes.
    #[serde(default)]
    pub full_object: bool,
}

/// A part that has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Milliseconds since 1970.
    pub modified: u64,
    /// In bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// Of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Where its bytes are; nowhere if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobRef>,
}

/// Why a value of the index is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a later program.
    #[error(
        "it has format {0}, and this program knows format {FORMAT}; start the program that wrote it"
    )]
    Format(u8),
    /// It is cut off.
    #[error("it is cut off")]
    Short,
    /// It is no JSON of this kind.
    #[error("it cannot be read: {0}")]
    Json(String),
}

/// The bytes of a record.
pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    serde_json::to_writer(&mut bytes, record).expect("a record has no maps but of strings");
    bytes
}

/// The record of these bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    json(after_format(bytes)?)
}

/// The bytes of a version, and of its object if it is small.
pub(crate) fn encode_version(version: &Version, inline: &[u8]) -> Vec<u8> {
    let record = serde_json::to_vec(version).expect("a record has no maps but of strings");
    let mut bytes = Vec::with_capacity(5 + record.len() + inline.len());
    bytes.push(FORMAT);
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&record);
    bytes.extend_from_slice(inline);
    bytes
}

/// The version of these bytes, and where the object's own begin.
pub(crate) fn decode_version(bytes: &[u8]) -> Result<(Version, &[u8]), RecordError> {
    let rest = after_format(bytes)?;
    let (len, rest) = rest.split_first_chunk::<4>().ok_or(RecordError::Short)?;
    let (record, inline) = rest
        .split_at_checked(u32::from_le_bytes(*len) as usize)
        .ok_or(RecordError::Short)?;
    Ok((json(record)?, inline))
}

fn after_format(bytes: &[u8]) -> Result<&[u8], RecordError> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => Ok(rest),
        Some((other, _)) => Err(RecordError::Format(*other)),
        None => Err(RecordError::Short),
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    serde_json::from_slice(bytes).map_err(|error| RecordError::Json(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        let mut about = About::default();
        about
            .headers
            .insert("content-type".into(), "text/plain".into());
        about.metadata.insert("colour".into(), "grün".into());
        Version {
            modified: 1_795_345_200_000,
            owner: "astro".into(),
            null: true,
            content: Some(Content {
                size: 3,
                etag: "900150983cd24fb0d6963f7d28e17f72".into(),
                about,
                ..Content::default()
            }),
            ..Version::default()
        }
    }

    #[test]
    fn records_of_before_locks_and_policies_are_read() {
        let bucket =
            b"\x01{\"id\":7,\"owner\":\"astro.1\",\"created\":5,\"versioning\":\"enabled\"}";
        let expected = Bucket {
            id: 7,
            owner: "astro.1".into(),
            created: 5,
            versioning: Versioning::Enabled,
            ..Bucket::default()
        };
        assert_eq!(decode::<Bucket>(bucket), Ok(expected.clone()));
        // What is not set is not written: a program of before reads it, too.
        assert!(!encode(&expected).windows(6).any(|it| it == b"policy"));
        let version = b"\x01\x42\0\0\0{\"modified\":9,\"owner\":\"bio\",\"content\":{\"size\":3,\"etag\":\"e\",\"x\":1}}abc";
        let (found, inline) = decode_version(version).unwrap();
        assert_eq!(
            (found.modified, &*found.owner, inline),
            (9, "bio", &b"abc"[..])
        );
        assert!(found.lock.is_empty() && found.content.is_some_and(|it| it.size == 3));
        let upload = b"\x01{\"begun\":1,\"owner\":\"bio\",\"full_object\":true}";
        assert!(decode::<Upload>(upload).unwrap().lock.is_empty());
    }

    #[test]
    fn a_locked_version_is_written_as_it_is_documented() {
        let mut locked = version();
        locked.lock.legal_hold = Some(true);
        locked.lock.retention = Some(crate::index::lock::Retention {
            mode: crate::index::lock::LockMode::Compliance,
            until: 8,
        });
        let bytes = encode_version(&locked, b"");
        let text = String::from_utf8_lossy(&bytes[5..]);
        let lock = r#""lock":{"retention":{"mode":"compliance","until":8},"legal_hold":true}"#;
        assert!(text.contains(lock), "{text}");
        assert_eq!(decode_version(&bytes).unwrap().0, locked);
    }

    #[test]
    fn a_version_comes_back_with_the_bytes_behind_it() {
        let bytes = encode_version(&version(), b"abc");
        let (found, inline) = decode_version(&bytes).unwrap();
        assert_eq!((found, inline), (version(), &b"abc"[..]));
        for cut in 0..bytes.len() - 3 {
            assert!(decode_version(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_later_format_is_refused_and_says_what_to_do() {
        let mut bytes = encode(&Versioning::Enabled);
        assert_eq!(decode::<Versioning>(&bytes), Ok(Versioning::Enabled));
        bytes[0] = 2;
        let error = decode::<Versioning>(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it has format 2, and this program knows format 1; start the program that wrote it"
        );
    }
}

//! How requests to buckets are served, in a meta store: where an access key says nothing, or less.
//!
//! ```text
//! s3bucket/GATEWAY/BUCKET   {"version":1,"bucket":7,"terms":{"reservation":"r-..","caps":{"read":..}}}
//! ```
//!
//! Always true: what is said of a bucket is of that one, by its number, never of a later one of its name.

use serde::{Deserialize, Serialize};
use vdisk::meta::{Compare, Op, whole_range};
use vdisk::record::{RecordError, read};

use crate::error::AccessError;
use crate::registry::Registry;
use crate::s3_keys::S3Terms;
use crate::swap::{again, swap};

/// Before the gateway, in a meta store.
const S3_BUCKETS: &str = "s3bucket/";

/// What is said of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Bucket {
    /// 1.
    pub version: u32,
    /// Its number in its gateway.
    pub bucket: u64,
    /// How requests to it are served.
    pub terms: S3Terms,
}

/// What is said of buckets, in a meta store.
pub struct S3Buckets<'a>(pub &'a Registry);

type Result<T, E = AccessError> = std::result::Result<T, E>;

fn key(gateway: &str, bucket: &str) -> String {
    format!("{S3_BUCKETS}{gateway}/{bucket}")
}

impl S3Buckets<'_> {
    /// All of it: gateway, bucket, and what is said.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn all(&self) -> Result<Vec<(String, String, S3Bucket)>> {
        let (entries, _) = whole_range(self.0.meta(), S3_BUCKETS).await?;
        let read_one = |key: &str, value: &[u8]| -> Result<_, RecordError> {
            let record: S3Bucket = read(key, value)?;
            let name = key.strip_prefix(S3_BUCKETS).unwrap_or_default();
            let (gateway, bucket) = name.split_once('/').unwrap_or((name, ""));
            Ok((gateway.to_owned(), bucket.to_owned(), record))
        };
        let all = entries.iter().map(|it| read_one(&it.key, &it.value));
        Ok(all.collect::<Result<_, RecordError>>()?)
    }

    /// Changes how requests to a bucket are served, which has the number `id` at its gateway.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn set(
        &self,
        (gateway, bucket, id): (&str, &str, u64),
        change: impl Fn(&mut S3Terms),
    ) -> Result<S3Terms> {
        let at = key(gateway, bucket);
        let set = again(bucket, async || {
            let entry = self.0.meta().get(&at).await?;
            let before = entry.as_ref().map(|it| read::<S3Bucket>(&at, &it.value));
            let before = before.transpose()?.filter(|it| it.bucket == id);
            let mut terms = before.map(|it| it.terms).unwrap_or_default();
            change(&mut terms);
            let compare = match &entry {
                Some(entry) => Compare::Unchanged(at.clone(), entry.changed),
                None => Compare::Absent(at.clone()),
            };
            let record = S3Bucket {
                version: 1,
                bucket: id,
                terms,
            };
            let value = serde_json::to_vec(&record).expect("plain data");
            let op = match record.terms.are_plain() {
                true => Op::Delete { key: at.clone() },
                false => Op::put(at.clone(), value),
            };
            let done = swap(self.0.meta(), vec![compare], vec![op]).await?;
            Ok(done.map(|()| record.terms.clone()))
        });
        set.await
    }
}

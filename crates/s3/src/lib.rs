//! Buckets of objects over stores, for every S3 client.
//!
//! ```text
//! S3 client -> HTTP -> s3s: signature, XML -> gateway: may this account? -> blobs: bytes, durable -> index: one commit -> 200
//!                                               '-> looks: index -> blobs -> bytes
//! ```
//!
//! - `gateway` what S3 asks, done with index and blobs; on threads of requests.
//! - `index` buckets, versions, uploads; durable in one step each.
//! - `lanes` for whom the stores are asked: accounts, reservations, caps.
//! - `blobs` the bytes, on the data thread of the stores; `data` the way there.
//!
//! Always true:
//! 1. An object that was answered is whole after any crash, and so is a completed upload; one that was not is whole or not there.
//! 2. Nothing is answered without a signature, but what a bucket's rules let pages of other origins ask.

mod blobs;
mod data;
mod gateway;
mod index;
mod lanes;
mod sweep;

pub use blobs::{Blobs, CHUNK, PREFIX, SharedDisk};
pub use data::{Data, DataError, Job, Jobs, data};
pub use gateway::{
    AccessKey, Endpoint, FORM_MAX, Gateway, Keys, Reserved, ServiceTerms, TRANSFERS, Terms, is_form,
};
pub use index::record::{
    About, BlobRef, Bucket, Checksum, Content, INLINE_MAX, Pairs, Part, PartSize, Upload, Version,
    VersionId, Versioning,
};
pub use index::{
    BUCKETS_MAX, CACHE, Condition, DeleteIf, Deleted, Disk, Found, Index, IndexError, Listed,
    NamedPart, PART_MIN, PARTS_MAX, Ranges, Refused, Transaction, UploadRef, Uploads, Wanted,
    composite,
};
pub use lanes::{Delivered, Qos};
pub use sweep::sweep;

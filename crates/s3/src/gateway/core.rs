//! What the requests of a gateway share, and whose buckets are whose.

use std::sync::Arc;

use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::entrance::{Caller, Entrance, Keys};
use super::failure::failed;
use super::grants::{Owners, allows, of_headers, unblocked};
use super::service::ServiceTerms;
use super::turns::Turns;
use crate::data::Data;
use crate::index::record::{BlobRef, Bucket, Grant, Permission};
use crate::index::{Index, Refused};

/// What is said of a gateway when it is opened.
#[derive(Debug, Clone)]
pub struct Terms {
    /// What clients call the place of its buckets, `us-east-1` where they do not care.
    pub region: String,
    /// Milliseconds since 1970.
    pub clock: fn() -> u64,
    /// So many long objects come at once, and as many go; others wait.
    pub transfers: usize,
}

/// The longest object that comes in a form, which is in memory until it is known to be good: 16 MiB.
pub const FORM_MAX: u64 = 16 << 20;
/// As many unless asked otherwise: each has some 6 MiB of buffers.
pub const TRANSFERS: usize = 64;

/// A gateway, as its requests share it.
pub struct Gateway {
    pub(super) index: Arc<Index>,
    pub(super) data: Data,
    pub(super) terms: Terms,
    keys: Arc<dyn Keys>,
    /// Turns of what comes. Who has one waits for none of the others.
    pub(super) coming: Turns,
    /// Turns of what goes.
    pub(super) going: Turns,
}

impl Gateway {
    /// Of this index and the stores behind `data`, for those who come with one of `keys`.
    pub fn new(index: Arc<Index>, data: Data, terms: Terms, keys: Arc<dyn Keys>) -> Gateway {
        Gateway {
            index,
            data,
            keys,
            coming: Turns::new(terms.transfers),
            going: Turns::new(terms.transfers),
            terms,
        }
    }

    /// The HTTP service of this gateway.
    pub fn service(self) -> S3Service {
        let keys = Arc::clone(&self.keys);
        let mut builder = S3ServiceBuilder::new(self);
        builder.set_auth(Entrance(Arc::clone(&keys)));
        builder.set_access(Entrance(keys));
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
        builder.build()
    }

    /// The account of this name, if something can be granted to it.
    pub(super) fn account(&self, name: &str) -> Option<String> {
        self.keys.account(name)
    }

    /// Is there room for more?
    pub(super) fn check_room(&self) -> S3Result<()> {
        if !self.index.is_full() {
            return Ok(());
        }
        let code = S3ErrorCode::Custom("InsufficientStorage".into());
        let mut error = S3Error::with_message(
            code,
            "the stores of this gateway are full but for what deletions need: delete objects",
        );
        error.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
        Err(error)
    }

    /// May a request whose bytes took their time still do this? Its key, its bucket and what is granted may have ended.
    pub(super) fn may_still(
        &self,
        caller: &Caller,
        (name, id): (&str, u64),
        wanted: Permission,
    ) -> S3Result<()> {
        if self
            .keys
            .find(&caller.key)
            .is_none_or(|it| it.account != caller.account)
        {
            return Err(s3_error!(
                InvalidAccessKeyId,
                "the access key has ended meanwhile"
            ));
        }
        let found = self.index.bucket(name).map_err(failed)?;
        let of = |bucket: &Bucket| {
            let of = (&*bucket.owner, &*caller.account);
            allows(bucket, bucket.grants.as_deref(), of, wanted)
        };
        match found.filter(|it| it.id == id) {
            Some(bucket) if of(&bucket) => Ok(()),
            Some(_) => Err(denied(name)),
            None => Err(failed(Refused::NoBucket(name.to_owned()).into())),
        }
    }

    /// How requests to this bucket are served.
    pub(super) fn bucket_terms(&self, id: u64) -> ServiceTerms {
        self.keys.bucket_terms(id)
    }

    pub(super) fn now(&self) -> u64 {
        (self.terms.clock)()
    }

    /// A name for bytes that no other blob has.
    pub(super) fn new_blob(&self, folder: &str) -> S3Result<BlobRef> {
        let mut chance = [0; 8];
        getrandom::fill(&mut chance).map_err(s3s::S3Error::internal_error)?;
        Ok(BlobRef {
            folder: folder.to_owned(),
            id: format!("{:010x}{}", self.now() / 1000, crate::index::hex(&chance)),
            size: 0,
        })
    }

    /// What the headers of a request grant of what it makes, for `owner`; in `bucket`, or of a bucket itself.
    pub(super) fn grants(
        &self,
        headers: &hyper::HeaderMap,
        owner: &str,
        bucket: Option<&Bucket>,
    ) -> S3Result<Option<Vec<Grant>>> {
        let of_bucket = bucket.map_or(owner, |it| &it.owner);
        let owners = Owners { owner, of_bucket };
        let grants = of_headers(headers, owners, &|name| self.account(name))?;
        match (grants, bucket) {
            (Some(grants), Some(bucket)) => unblocked(bucket, grants).map(Some),
            (grants, _) => Ok(grants),
        }
    }

    /// The bucket, if it is the caller's.
    pub(super) fn bucket_of<T>(
        &self,
        request: &S3Request<T>,
        name: &str,
    ) -> S3Result<(Bucket, Caller)> {
        let (bucket, caller) = self.any_bucket(request, name)?;
        match bucket.owner == caller.account {
            true => Ok((bucket, caller)),
            false => Err(denied(name)),
        }
    }

    /// The bucket, if the caller may do this with it.
    pub(super) fn bucket_for<T>(
        &self,
        request: &S3Request<T>,
        name: &str,
        wanted: Permission,
    ) -> S3Result<(Bucket, Caller)> {
        let (bucket, caller) = self.any_bucket(request, name)?;
        let of = (&*bucket.owner, &*caller.account);
        match allows(&bucket, bucket.grants.as_deref(), of, wanted) {
            true => Ok((bucket, caller)),
            false => Err(denied(name)),
        }
    }

    /// The bucket, whosever it is, and who asks.
    pub(super) fn any_bucket<T>(
        &self,
        request: &S3Request<T>,
        name: &str,
    ) -> S3Result<(Bucket, Caller)> {
        let caller = Caller::of(request)?;
        let found = self.index.bucket(name).map_err(failed)?;
        let bucket = found.ok_or_else(|| failed(Refused::NoBucket(name.to_owned()).into()))?;
        Ok((bucket, caller))
    }
}

/// What a request may take of memory before it is known to be good.
fn limits() -> S3Config {
    let mut limits = S3Config::default();
    limits.xml_max_body_size = 4 << 20;
    limits.form_max_field_size = 20 << 10;
    limits.form_max_fields_size = 64 << 10;
    limits.post_object_max_file_size = FORM_MAX;
    limits
}

fn denied(bucket: &str) -> S3Error {
    s3_error!(
        AccessDenied,
        "bucket {bucket} belongs to another account, which has not granted this"
    )
}

pub(super) type Request<T> = S3Request<T>;
pub(super) type Answer<T> = S3Result<S3Response<T>>;

//! What the requests of a gateway share, and whose buckets are whose.

use std::sync::Arc;

use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::access::{Judge, denied};
use super::asked::Asked;
use super::endpoint::Endpoint;
use super::entrance::{Entrance, Keys};
use super::failure::failed;
use super::grants::{Owners, of_headers, unblocked};
use super::look::look_up;
use super::owners::owner_of;
use super::service::ServiceTerms;
use super::turns::Turns;
use crate::data::Data;
use crate::index::record::{BlobRef, Bucket, Content, Grant};
use crate::index::settings::Ownership;
use crate::index::{Found, Index, Refused};

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
    pub fn service(self) -> Endpoint {
        let (index, data) = (Arc::clone(&self.index), self.data.clone());
        let entrance = || Entrance {
            keys: Arc::clone(&self.keys),
            data: self.data.clone(),
        };
        let (auth, access) = (entrance(), entrance());
        let region = self.terms.region.clone();
        let mut builder = S3ServiceBuilder::new(self);
        builder.set_auth(auth);
        builder.set_access(access);
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
        Endpoint {
            s3: builder.build(),
            index,
            data,
            region,
            connection: None,
        }
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

    /// May a request whose bytes took their time still do this to the bucket of this number? Its key, its bucket and what is
    /// granted may have ended.
    pub(super) fn may_still(&self, asked: &Asked, id: u64) -> S3Result<()> {
        let caller = &asked.caller;
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
        match self.admit(asked)?.id == id {
            true => Ok(()),
            false => Err(no_bucket(&asked.bucket)),
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

    /// Whose an object is that `caller` makes in `bucket`, and what the headers of the request grant of it.
    pub(super) fn owned(
        &self,
        headers: &hyper::HeaderMap,
        caller: &str,
        bucket: &Bucket,
    ) -> S3Result<(String, Option<Vec<Grant>>)> {
        let owner = owner_of(headers, caller, bucket)?;
        if bucket.ownership == Some(Ownership::BucketOwnerEnforced) {
            return Ok((owner.to_owned(), None));
        }
        let of_bucket = &bucket.owner;
        let owners = Owners { owner, of_bucket };
        let grants = of_headers(headers, owners, &|name| self.account(name))?;
        let grants = grants.map(|it| unblocked(bucket, it)).transpose()?;
        Ok((owner.to_owned(), grants))
    }

    /// The bucket, if the request may do to it what it asks.
    pub(super) fn admit(&self, asked: &Asked) -> S3Result<Bucket> {
        let bucket = self.bucket(&asked.bucket)?;
        Judge::of(&asked.bucket, &bucket).check(asked, None)?;
        Ok(bucket)
    }

    /// The object, or the version of it that is named, if the request may do to it what it asks. What is not there learns only
    /// who may list the bucket.
    pub(super) fn admit_to(&self, asked: &Asked, version: Option<&str>) -> S3Result<Admitted> {
        let bucket = self.bucket(&asked.bucket)?;
        let judge = Judge::of(&asked.bucket, &bucket);
        let key = asked.key.as_deref().unwrap_or_default();
        let (found, content) = match look_up(&self.index, bucket.id, key, version) {
            Ok(found) => found,
            Err(error) if judge.lists(asked) => return Err(error),
            Err(_) => return Err(denied(asked)),
        };
        judge.check(asked, Some(&found.version))?;
        Ok((bucket, found, content))
    }

    /// Judges what is asked of a bucket that is there.
    pub(super) fn judged<T>(
        &self,
        name: &str,
        judge: impl FnOnce(&Judge<'_>, &Bucket) -> T,
    ) -> S3Result<T> {
        let bucket = self.bucket(name)?;
        Ok(judge(&Judge::of(name, &bucket), &bucket))
    }

    fn bucket(&self, name: &str) -> S3Result<Bucket> {
        let found = self.index.bucket(name).map_err(failed)?;
        found.ok_or_else(|| no_bucket(name))
    }
}

fn no_bucket(name: &str) -> S3Error {
    failed(Refused::NoBucket(name.to_owned()).into())
}

/// An object that a request was let in to, in its bucket.
pub(super) type Admitted = (Bucket, Found, Content);

/// What a request may take of memory before it is known to be good.
fn limits() -> S3Config {
    let mut limits = S3Config::default();
    limits.xml_max_body_size = 4 << 20;
    limits.form_max_field_size = 20 << 10;
    limits.form_max_fields_size = 64 << 10;
    limits.post_object_max_file_size = FORM_MAX;
    limits
}

pub(super) type Request<T> = S3Request<T>;
pub(super) type Answer<T> = S3Result<S3Response<T>>;

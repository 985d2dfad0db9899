//! What S3 calls what went wrong.

use s3s::{S3Error, S3ErrorCode, s3_error};

use crate::data::DataError;
use crate::index::{IndexError, Refused};
use store::ops::ObjectError;

/// The index did not do it.
pub(super) fn failed(error: IndexError) -> S3Error {
    match error {
        IndexError::Refused(refused) => S3Error::with_message(code(&refused), refused.to_string()),
        IndexError::Ended(_) => {
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, error.to_string())
        }
        other => {
            tracing::error!("{other}");
            S3Error::internal_error(other)
        }
    }
}

fn code(refused: &Refused) -> S3ErrorCode {
    match refused {
        Refused::NoBucket(_) => S3ErrorCode::NoSuchBucket,
        Refused::BucketExists { own: true, .. } => S3ErrorCode::BucketAlreadyOwnedByYou,
        Refused::BucketExists { .. } => S3ErrorCode::BucketAlreadyExists,
        Refused::NotEmpty(_) => S3ErrorCode::BucketNotEmpty,
        Refused::TooManyBuckets(_) => S3ErrorCode::TooManyBuckets,
        Refused::NoKey(_) => S3ErrorCode::NoSuchKey,
        Refused::NoVersion { .. } => S3ErrorCode::NoSuchVersion,
        Refused::IsMarker(_) => S3ErrorCode::MethodNotAllowed,
        Refused::Precondition(_) => S3ErrorCode::PreconditionFailed,
        Refused::NoUpload(_) => S3ErrorCode::NoSuchUpload,
        Refused::Locked(_) => S3ErrorCode::AccessDenied,
        Refused::NoLock => S3ErrorCode::InvalidRequest,
        Refused::LockNeedsVersions => S3ErrorCode::InvalidBucketState,
        Refused::HasGrants => S3ErrorCode::InvalidBucketAclWithObjectOwnership,
        Refused::TooManyUploads(_) => S3ErrorCode::SlowDown,
        Refused::NoPart(_) => S3ErrorCode::InvalidPart,
        Refused::PartOrder => S3ErrorCode::InvalidPartOrder,
        Refused::OtherChecksum { .. } => S3ErrorCode::BadDigest,
        Refused::PartTooSmall { .. } => S3ErrorCode::EntityTooSmall,
    }
}

/// A store did not do it.
pub(super) fn unstored(error: DataError) -> S3Error {
    tracing::warn!("{error}");
    match &error {
        DataError::Store(ObjectError::Full(_)) => {
            // S3 has no word for a full store; clients try this one again later.
            s3_error!(ServiceUnavailable, "{error}; delete objects")
        }
        DataError::Closed | DataError::Store(ObjectError::Gone(_)) => {
            s3_error!(ServiceUnavailable, "{error}")
        }
        DataError::Store(_) => S3Error::internal_error(error),
    }
}

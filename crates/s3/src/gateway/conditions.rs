//! On what a read is done: `If-Match` and its like, compared with the version that was found.
//!
//! Source: RFC 9110, 13.2.2, for the order in which they are looked at.

use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};

use super::headers::{etag, second};
use crate::index::Condition;
use crate::index::record::{Content, Version};

/// What a read expects.
pub(super) struct Expected {
    pub matches: Option<ETagCondition>,
    pub none_matches: Option<ETagCondition>,
    pub modified_since: Option<Timestamp>,
    pub unmodified_since: Option<Timestamp>,
}

impl Expected {
    /// Is it so? A copy answers with the same error whichever it is.
    pub fn check(&self, version: &Version, content: &Content) -> S3Result<()> {
        let is_it = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(other) => other.value() == content.etag,
        };
        let modified = second(version.modified);
        let failed = || {
            s3_error!(
                PreconditionFailed,
                "the object is not as the request expects it"
            )
        };
        match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) if !is_it(condition) => return Err(failed()),
            (None, Some(since)) if modified > *since => return Err(failed()),
            _ => {}
        }
        let same = match (&self.none_matches, &self.modified_since) {
            (Some(condition), _) => is_it(condition),
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        match same {
            true => Err(not_modified(content)),
            false => Ok(()),
        }
    }
}

fn not_modified(content: &Content) -> S3Error {
    let mut error = s3_error!(NotModified);
    let mut headers = hyper::HeaderMap::new();
    if let Ok(value) = etag(&content.etag).to_http_header() {
        headers.insert(hyper::header::ETAG, value);
    }
    error.set_headers(headers);
    error
}

/// What a change expects of the object that is there.
pub(super) fn of_change(
    matches: Option<&ETagCondition>,
    none_matches: Option<&ETagCondition>,
) -> S3Result<Condition> {
    match (matches, none_matches) {
        (None, None) => Ok(Condition::Any),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Etag(etag.value().to_owned())),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (None, Some(ETagCondition::ETag(etag))) => {
            Ok(Condition::OtherEtag(etag.value().to_owned()))
        }
        (Some(_), Some(_)) => Err(s3_error!(
            NotImplemented,
            "If-Match and If-None-Match in one request: send one of them"
        )),
    }
}

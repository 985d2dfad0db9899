//! The version that a request names, found in the index.

use s3s::{S3Error, S3Result};

use super::failure::failed;
use crate::index::record::{Content, VersionId};
use crate::index::{Found, Index, Refused};

/// Finds a version; an error where it is a delete marker. Who may learn of it is asked elsewhere.
pub(super) fn look_up(
    index: &Index,
    bucket: u64,
    key: &str,
    version: Option<&str>,
) -> S3Result<(Found, Content)> {
    let no_version = || {
        let (key, version) = (key.to_owned(), version.unwrap_or_default().to_owned());
        failed(Refused::NoVersion { key, version }.into())
    };
    let id = match version {
        Some(text) => Some(VersionId::parse(text).ok_or_else(no_version)?),
        None => None,
    };
    let found = index.version(bucket, key, id).map_err(failed)?;
    let Some(found) = found else {
        return Err(match version {
            Some(_) => no_version(),
            None => failed(Refused::NoKey(key.to_owned()).into()),
        });
    };
    match found.version.content.clone() {
        Some(content) => Ok((found, content)),
        None => Err(marked(&found, key, id.is_some())),
    }
}

/// The answer where the version is a delete marker.
fn marked(found: &Found, key: &str, named: bool) -> S3Error {
    let refused = match named {
        true => Refused::IsMarker(key.to_owned()),
        false => Refused::NoKey(key.to_owned()),
    };
    let mut error = failed(refused.into());
    let mut headers = hyper::HeaderMap::new();
    headers.insert(
        "x-amz-delete-marker",
        hyper::http::HeaderValue::from_static("true"),
    );
    if let Ok(id) = hyper::http::HeaderValue::from_str(&found.id().to_string()) {
        headers.insert("x-amz-version-id", id);
    }
    error.set_headers(headers);
    error
}

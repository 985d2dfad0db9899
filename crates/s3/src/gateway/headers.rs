//! What clients say of an object beside its bytes, and how it is given back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3s::dto::{ETag, Metadata, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

use crate::index::record::{About, Pairs};

/// The most bytes of headers that describe an object, names and values.
const HEADERS_MAX: usize = 8192;
/// The most bytes of metadata, names and values.
const METADATA_MAX: usize = 2048;

/// What of an object is said in headers.
#[derive(Default)]
pub(super) struct Said {
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub content_type: Option<String>,
    pub expires: Option<Timestamp>,
    pub metadata: Option<Metadata>,
    pub tagging: Option<String>,
}

/// Takes the fields that all inputs that make an object have.
macro_rules! said {
    ($input:expr) => {
        $crate::gateway::headers::Said {
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            content_type: $input.content_type.take(),
            expires: $input.expires.take(),
            metadata: $input.metadata.take(),
            tagging: $input.tagging.take(),
        }
    };
}

/// Gives an output what was said of its object.
macro_rules! show_about {
    ($output:expr, $about:expr) => {{
        let header = |name: &str| $about.headers.get(name).cloned();
        $output.cache_control = header("cache-control");
        $output.content_disposition = header("content-disposition");
        $output.content_encoding = header("content-encoding");
        $output.content_language = header("content-language");
        $output.content_type = header("content-type");
        $output.expires = $crate::gateway::headers::expires_of(&$about);
        $output.metadata = $crate::gateway::headers::metadata_of(&$about);
    }};
}

pub(super) use {said, show_about};

impl Said {
    /// As it is put into a record.
    pub fn into_about(self) -> S3Result<About> {
        let mut headers = Pairs::new();
        let encoding = self.content_encoding.and_then(|it| without_chunks(&it));
        let expires = self.expires.map(|it| text_of(&it));
        for (name, value) in [
            ("cache-control", self.cache_control),
            ("content-disposition", self.content_disposition),
            ("content-encoding", encoding),
            ("content-language", self.content_language),
            ("content-type", self.content_type),
            ("expires", expires),
        ] {
            headers.extend(value.map(|value| (name.to_owned(), value)));
        }
        let bytes: usize = headers
            .iter()
            .map(|it: (&String, &String)| it.0.len() + it.1.len())
            .sum();
        if bytes > HEADERS_MAX {
            return Err(s3_error!(
                MetadataTooLarge,
                "{bytes} bytes of headers that describe an object are more than {HEADERS_MAX}"
            ));
        }
        let metadata: Pairs = self.metadata.unwrap_or_default().into_iter().collect();
        let bytes: usize = metadata.iter().map(|it| it.0.len() + it.1.len()).sum();
        if bytes > METADATA_MAX {
            return Err(s3_error!(
                MetadataTooLarge,
                "{bytes} bytes of metadata are more than {METADATA_MAX}"
            ));
        }
        let tags = match &self.tagging {
            Some(text) => super::tag_set::of_header(text)?,
            None => Pairs::new(),
        };
        Ok(About {
            headers,
            metadata,
            tags,
        })
    }
}

/// How the request came is no property of the object.
fn without_chunks(encoding: &str) -> Option<String> {
    let parts = encoding.split(',').map(str::trim);
    let rest: Vec<&str> = parts
        .filter(|it| *it != "aws-chunked" && !it.is_empty())
        .collect();
    (!rest.is_empty()).then(|| rest.join(", "))
}

fn text_of(time: &Timestamp) -> String {
    let mut text = Vec::new();
    // A time that cannot be written is not given back.
    let _ = time.format(TimestampFormat::HttpDate, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

pub(super) fn expires_of(about: &About) -> Option<Timestamp> {
    let text = about.headers.get("expires")?;
    Timestamp::parse(TimestampFormat::HttpDate, text).ok()
}

pub(super) fn metadata_of(about: &About) -> Option<Metadata> {
    let pairs = about.metadata.iter();
    Some(
        pairs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

/// A moment in milliseconds since 1970.
pub(super) fn moment(milliseconds: u64) -> Timestamp {
    let since: SystemTime = UNIX_EPOCH + Duration::from_millis(milliseconds);
    since.into()
}

/// The same in whole seconds, as headers and conditions have it.
pub(super) fn second(milliseconds: u64) -> Timestamp {
    moment(milliseconds / 1000 * 1000)
}

/// Seconds since 1970.
pub(super) fn seconds(time: &Timestamp) -> u64 {
    let since =
        SystemTime::from(time::OffsetDateTime::from(time.clone())).duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

pub(super) fn etag(text: &str) -> ETag {
    ETag::Strong(text.to_owned())
}

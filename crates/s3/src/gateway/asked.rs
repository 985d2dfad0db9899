//! What a request asks of a bucket, as policies, lists and locks judge it.
//!
//! ```text
//! headers, query, connection -> Asked: who, which action, of which key, and what is said beside -> access
//! ```
//!
//! Always true: what a condition compares is what the operation goes by: a header that is read twice is read the same way.

use std::collections::BTreeMap;

use hyper::HeaderMap;
use s3s::{S3Request, S3Result, s3_error};

use super::endpoint::Connection;
use super::entrance::Caller;
use super::policies::{Action, REQUEST_TAG, SECURE, SOURCE_IP};
use super::tag_set;
use crate::index::record::Pairs;

/// Headers that conditions ask for by `s3:` and their name.
const HEADERS: [&str; 8] = [
    "x-amz-acl",
    "x-amz-grant-read",
    "x-amz-grant-write",
    "x-amz-grant-read-acp",
    "x-amz-grant-write-acp",
    "x-amz-grant-full-control",
    "x-amz-metadata-directive",
    "x-amz-storage-class",
];
/// So many of these, the first, name a list.
const LISTS: usize = 6;
/// Tags that a request gives to what it makes.
const TAGGING: &str = "x-amz-tagging";
const TAGGING_DIRECTIVE: &str = "x-amz-tagging-directive";
const COPY_SOURCE: &str = "x-amz-copy-source";
/// A request means to remove what is retained in Governance.
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// What one request asks.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub caller: Caller,
    pub bucket: String,
    pub key: Option<String>,
    pub action: Action,
    /// Actions that it comes with: each is to be allowed as well.
    pub with: Vec<Action>,
    /// Actions that it comes with: none may be denied.
    pub beside: Vec<Action>,
    /// What is said, by the key of a condition.
    pub said: BTreeMap<String, String>,
    /// It means to bypass Governance.
    pub bypass: bool,
}

impl Asked {
    /// What a request asks of a bucket.
    pub fn of<T>(request: &S3Request<T>, bucket: &str, action: Action) -> S3Result<Asked> {
        let headers = &request.headers;
        let mut asked = Asked {
            caller: Caller::of(request)?,
            bucket: bucket.to_owned(),
            key: None,
            action,
            with: Vec::new(),
            beside: Vec::new(),
            said: BTreeMap::new(),
            bypass: text(headers, BYPASS).is_some_and(|it| it.eq_ignore_ascii_case("true")),
        };
        for name in HEADERS {
            asked.say(&format!("s3:{name}"), text(headers, name));
        }
        asked.say("aws:referer", text(headers, "referer"));
        asked.say("aws:useragent", text(headers, "user-agent"));
        if let Some(connection) = request.extensions.get::<Connection>() {
            let address = connection.address.to_canonical().to_string();
            asked.said.insert(SOURCE_IP.to_owned(), address);
            let secure = connection.secure.to_string();
            asked.said.insert(SECURE.to_owned(), secure);
        }
        if action == Action::PutObject {
            asked.come_with(headers)?;
        }
        Ok(asked)
    }

    /// What the headers of a request give to the object that it makes.
    fn come_with(&mut self, headers: &HeaderMap) -> S3Result<()> {
        if HEADERS[..LISTS].iter().any(|it| headers.contains_key(*it)) {
            self.beside.push(Action::PutObjectAcl);
        }
        if headers.contains_key(TAGGING) && text(headers, TAGGING).is_none() {
            return Err(s3_error!(InvalidArgument, "{TAGGING} is no text"));
        }
        // A copy has the tags of its source, unless it says otherwise.
        let keeps_tags = headers.contains_key(COPY_SOURCE)
            && text(headers, TAGGING_DIRECTIVE).is_none_or(|it| it != "REPLACE");
        if let Some(tags) = text(headers, TAGGING).filter(|_| !keeps_tags) {
            self.tag(&tag_set::of_header(tags)?);
            self.beside.push(Action::PutObjectTagging);
        }
        // A lock binds the owner of the bucket: that one says who may set it.
        if headers.contains_key("x-amz-object-lock-mode") {
            self.with.push(Action::PutObjectRetention);
        }
        if headers.contains_key("x-amz-object-lock-legal-hold") {
            self.with.push(Action::PutObjectLegalHold);
        }
        Ok(())
    }

    /// Of an object.
    #[must_use]
    pub fn key(mut self, key: &str) -> Asked {
        self.key = Some(key.to_owned());
        self
    }

    /// Of the version that is named, if one is.
    #[must_use]
    pub fn version(mut self, version: Option<&str>) -> Asked {
        if let Some(version) = version.filter(|it| !it.is_empty()) {
            self.action = self.action.of_version();
            self.say("s3:versionid", Some(version));
        }
        self
    }

    /// With what is said under this key.
    #[must_use]
    pub fn saying(mut self, key: &str, value: Option<&str>) -> Asked {
        self.say(key, value);
        self
    }

    /// With these tags in the request.
    #[must_use]
    pub fn tagging(mut self, tags: &Pairs) -> Asked {
        self.tag(tags);
        self
    }

    /// The same of another action.
    #[must_use]
    pub fn instead(&self, action: Action) -> Asked {
        Asked {
            action,
            with: Vec::new(),
            beside: Vec::new(),
            ..self.clone()
        }
    }

    /// The object of which a policy is asked, or the bucket.
    pub fn resource(&self) -> String {
        match &self.key {
            Some(key) => format!("{}/{key}", self.bucket),
            None => self.bucket.clone(),
        }
    }

    fn say(&mut self, key: &str, value: Option<&str>) {
        let value = value.map(str::to_owned);
        self.said.extend(value.map(|it| (key.to_owned(), it)));
    }

    fn tag(&mut self, tags: &Pairs) {
        for (name, value) in tags {
            self.say(&format!("{REQUEST_TAG}{name}"), Some(value));
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|it| it.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::service::ServiceTerms;

    #[test]
    fn a_copy_says_only_those_tags_that_it_puts() {
        let tags_with = |headers: &[(&'static str, &str)]| {
            let mut asked = Asked {
                caller: Caller {
                    account: "bio.1".into(),
                    key: String::new(),
                    payer: None,
                    terms: ServiceTerms::default(),
                },
                bucket: "photos".into(),
                key: None,
                action: Action::PutObject,
                with: Vec::new(),
                beside: Vec::new(),
                said: BTreeMap::new(),
                bypass: false,
            };
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            asked.come_with(&map).unwrap();
            asked.said.len()
        };
        let (tags, copy) = ((TAGGING, "a=1"), (COPY_SOURCE, "b/k"));
        assert_eq!(tags_with(&[tags]), 1);
        assert_eq!(tags_with(&[tags, copy]), 0);
        assert_eq!(tags_with(&[tags, copy, (TAGGING_DIRECTIVE, "COPY")]), 0);
        assert_eq!(tags_with(&[tags, copy, (TAGGING_DIRECTIVE, "REPLACE")]), 1);
    }
}

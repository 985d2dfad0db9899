//! Who comes in: access key -> secret, to compare signatures; and its account.
//!
//! Always true:
//! 1. Without a signature nothing is answered, and a key that ended opens nothing from then on.
//! 2. Nothing is answered from an index that another node had taken over when the request came.

use std::sync::Arc;

use hyper::{HeaderMap, Method};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Request, S3Result, s3_error};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ours::check_ours;
use super::service::ServiceTerms;
use crate::data::Data;

/// What an access key is good for. Its secret is in no `Debug`.
#[derive(Clone)]
pub struct AccessKey {
    /// With which requests are signed.
    pub secret: String,
    /// Whose it is: a name, and where there may be a later account of it, a dot and what tells them apart.
    pub account: String,
    /// What stores call it; `None`: the daemon's owner.
    pub payer: Option<String>,
    /// How its requests are served.
    pub terms: ServiceTerms,
    /// The SHA-256 of the session token that comes with it, signed; `None`: it comes without.
    pub session: Option<[u8; 32]>,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AccessKey(of {}, secret)", self.account)
    }
}

/// The access keys that are good now.
pub trait Keys: Send + Sync + 'static {
    /// What the key of this name is good for; `None`: nothing.
    fn find(&self, name: &str) -> Option<AccessKey>;

    /// The account that is called so, or is this one, if it has a key that is good.
    fn account(&self, name: &str) -> Option<String>;

    /// How requests to the bucket of this number are served.
    fn bucket_terms(&self, id: u64) -> ServiceTerms;
}

/// Whose a request is, once its signature is verified.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub account: String,
    /// The name of the access key.
    pub key: String,
    /// What stores call the account.
    pub payer: Option<String>,
    /// How requests with the key are served.
    pub terms: ServiceTerms,
}

impl Caller {
    pub fn of<T>(request: &S3Request<T>) -> S3Result<Caller> {
        let caller = request.extensions.get::<Caller>();
        caller.cloned().ok_or_else(unsigned)
    }
}

fn unsigned() -> s3s::S3Error {
    s3_error!(
        AccessDenied,
        "sign the request with an access key: `tanada s3 key create`"
    )
}

/// Headers that may come unsigned: they say nothing of what is asked, or are looked at with the signature itself.
const UNSIGNED: [&str; 6] = [
    "x-amz-checksum-mode",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-trailer",
    "x-amz-user-agent",
];
/// What a temporary access key comes with.
const TOKEN: &str = "x-amz-security-token";
/// How long a signed URL is good at most, in seconds: seven days.
const EXPIRES_MAX: u64 = 7 * 24 * 3600;

/// Refuses what the signature does not cover, and signatures of before 2014: a signed URL that was handed on does what it was
/// signed for, and nothing else.
fn check_signed(method: &Method, headers: &HeaderMap, query: &str) -> S3Result<()> {
    let pairs = super::tag_set::pairs(query)?;
    let of_query = |wanted: &str| {
        let mut found = pairs.iter().filter(|it| it.0.eq_ignore_ascii_case(wanted));
        found.next().map(|it| it.1.as_str())
    };
    let shown = headers.get("authorization").and_then(|it| it.to_str().ok());
    let is_old = shown.is_some_and(|it| it.starts_with("AWS "));
    if is_old || of_query("AWSAccessKeyId").is_some() || of_query("Signature").is_some() {
        return Err(s3_error!(InvalidRequest, "sign with Signature Version 4"));
    }
    let seconds = of_query("X-Amz-Expires").and_then(|it| it.parse::<u64>().ok());
    if seconds.is_some_and(|it| it > EXPIRES_MAX) {
        return Err(s3_error!(
            AuthorizationQueryParametersError,
            "a signed URL is good for at most {EXPIRES_MAX} s"
        ));
    }
    let in_header = shown.and_then(|it| {
        let rest = it.split("SignedHeaders=").nth(1)?;
        rest.split([',', ' ']).next()
    });
    // As signatures are looked for: that of a form is of its policy, which covers no header; then that of the query.
    let signed = match of_query("X-Amz-Signature") {
        _ if is_form(method, headers) => "",
        Some(_) if headers.contains_key("authorization") => {
            return Err(s3_error!(
                InvalidRequest,
                "sign in the URL or in the header, not in both"
            ));
        }
        Some(_) => of_query("X-Amz-SignedHeaders").unwrap_or_default(),
        None => in_header.unwrap_or_default(),
    };
    let is_signed = |name: &str| signed.split(';').any(|it| it.eq_ignore_ascii_case(name));
    let asks = |name: &str| name.starts_with("x-amz-") && !UNSIGNED.contains(&name);
    let mut names = headers.keys().map(|it| it.as_str());
    match names.find(|name| asks(name) && !is_signed(name)) {
        Some(name) => Err(s3_error!(
            AccessDenied,
            "the signature does not cover the header {name}"
        )),
        None => Ok(()),
    }
}

/// Is it a form, which is signed by its policy, and whose fields are in memory before it is known whose it is?
pub fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    let kind = headers.get(hyper::header::CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |it| it.as_bytes()).trim_ascii_start();
    let is_multipart = kind.len() >= 10 && kind[..10].eq_ignore_ascii_case(b"multipart/");
    method == Method::POST && is_multipart
}

/// The token in the header, or in a signed URL, is the one that the key was made with.
fn check_session(key: &AccessKey, headers: &HeaderMap, query: &str) -> S3Result<()> {
    let in_header = headers.get(TOKEN).and_then(|it| it.to_str().ok());
    let in_query = query
        .split('&')
        .filter_map(|it| it.split_once('='))
        .find(|it| it.0.eq_ignore_ascii_case(TOKEN))
        .map(|it| it.1);
    let shown = in_header.or(in_query);
    let is_it = match (&key.session, shown) {
        (None, None) => true,
        (Some(expected), Some(shown)) => {
            bool::from(Sha256::digest(shown.as_bytes())[..].ct_eq(&expected[..]))
        }
        _ => false,
    };
    match is_it {
        true => Ok(()),
        false => Err(s3_error!(
            InvalidToken,
            "the session token is not the one that this access key was made with"
        )),
    }
}

pub(super) struct Entrance {
    pub keys: Arc<dyn Keys>,
    pub data: Data,
}

impl Entrance {
    fn find(&self, name: &str) -> S3Result<AccessKey> {
        self.keys.find(name).ok_or_else(|| {
            s3_error!(
                InvalidAccessKeyId,
                "no access key is called so, or it was deleted"
            )
        })
    }
}

#[async_trait::async_trait]
impl S3Auth for Entrance {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(self.find(access_key)?.secret))
    }
}

#[async_trait::async_trait]
impl S3Access for Entrance {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let shown = cx.credentials().ok_or_else(unsigned)?;
        let key = shown.access_key.clone();
        let found = self.find(&key)?;
        let query = cx.uri().query().unwrap_or_default();
        check_signed(cx.method(), cx.headers(), query)?;
        check_session(&found, cx.headers(), query)?;
        check_ours(&self.data).await?;
        let caller = Caller {
            account: found.account,
            key,
            payer: found.payer,
            terms: found.terms,
        };
        cx.extensions_mut().insert(caller);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&'static str, &str)], query: &str) -> bool {
        check_as(&Method::GET, pairs, query)
    }

    fn check_as(method: &Method, pairs: &[(&'static str, &str)], query: &str) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        check_signed(method, &headers, query).is_ok()
    }

    #[test]
    fn a_temporary_key_comes_with_its_token_and_another_one_with_none() {
        let mut key = AccessKey {
            secret: String::new(),
            account: "astro.1".into(),
            payer: None,
            terms: ServiceTerms::default(),
            session: None,
        };
        let mut headers = HeaderMap::new();
        let url = "X-Amz-Expires=60&X-Amz-Security-Token=tanadaset1.abc";
        assert!(check_session(&key, &headers, "").is_ok());
        assert!(check_session(&key, &headers, url).is_err());
        key.session = Some(Sha256::digest("tanadaset1.abc").into());
        assert!(check_session(&key, &headers, "").is_err());
        assert!(check_session(&key, &headers, url).is_ok());
        headers.insert(TOKEN, "tanadaset1.abd".parse().unwrap());
        assert!(check_session(&key, &headers, "").is_err());
        headers.insert(TOKEN, "tanadaset1.abc".parse().unwrap());
        assert!(check_session(&key, &headers, "").is_ok());
    }

    #[test]
    fn a_header_that_is_not_signed_asks_for_nothing() {
        let signed = "AWS4-HMAC-SHA256 Credential=TA/1/r/s3/aws4_request, SignedHeaders=host;x-amz-acl, Signature=00";
        let copy = ("x-amz-copy-source", "/b/k");
        assert!(check(
            &[("authorization", signed), ("x-amz-acl", "private")],
            ""
        ));
        assert!(!check(&[("authorization", signed), copy], ""));
        // A signed URL that is handed on.
        let url = "X-Amz-SignedHeaders=host%3Bx-amz-acl&X-Amz-Expires=60&X-Amz-Signature=00";
        assert!(check(&[("x-amz-acl", "private"), ("x-amz-date", "x")], url));
        assert!(!check(&[copy], url));
        // One that comes beside it says nothing of what the URL signs, however its name is written.
        let beside = "x SignedHeaders=x-amz-copy-source";
        assert!(!check(&[("authorization", beside), copy], url));
        let encoded = url.replace("X-Amz-Signature", "X-Amz%2DSignature");
        assert!(!check(&[("authorization", beside), copy], &encoded));
        // A form signs no header.
        let form = ("content-type", "multipart/form-data; boundary=x");
        let grant = ("x-amz-acl", "public-read");
        assert!(!check_as(&Method::POST, &[form, grant], url));
        assert!(!check_as(
            &Method::POST,
            &[form, grant, ("authorization", signed)],
            ""
        ));
        assert!(check_as(&Method::POST, &[form], ""));
        assert!(!check(&[], "X-Amz-SignedHeaders=host&X-Amz-Expires=604801"));
        // Version 2, in either place.
        assert!(!check(&[("authorization", "AWS TA:00")], ""));
        assert!(!check(&[], "AWSAccessKeyId=TA&Expires=1&Signature=00"));
    }
}

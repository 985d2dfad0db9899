//! The HTTP service of a gateway: S3, and before it what browsers ask for pages of other origins.
//!
//! ```text
//! OPTIONS  -> rules of the bucket -> 200 with what is allowed | 400 | 403
//! the rest -> S3 -> its answer, with what the rules let a page read
//! ```
//!
//! A preflight is unsigned by nature, so it says nothing but what rules allow.
//!
//! Always true: a bucket without rules is answered as one that is not there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{HeaderMap, ORIGIN};
use hyper::{Method, StatusCode, Uri};
use s3s::region::Region;
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpRequest, HttpResponse};

use super::cross::Cross;
use super::ours::check_ours;
use crate::data::Data;
use crate::index::Index;
use crate::index::settings::CorsRule;

/// The method of the request that a preflight is for.
const METHOD: &str = "access-control-request-method";
/// And its headers.
const HEADERS: &str = "access-control-request-headers";

/// Headers that policies and rules have patterns for.
const COMPARED: [&str; 5] = ["origin", "referer", "user-agent", METHOD, HEADERS];
/// How long they are at most: patterns are tried at each of their bytes.
const COMPARED_MAX: usize = 1024;

/// How a request came, as its listener says it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    /// Of the client.
    pub address: IpAddr,
    /// In TLS.
    pub secure: bool,
}

/// Answers the HTTP requests of a gateway; cloned for each connection.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) s3: S3Service,
    pub(super) index: Arc<Index>,
    pub(super) data: Data,
    /// What requests are signed for.
    pub(super) region: String,
    pub(super) connection: Option<Connection>,
}

impl Endpoint {
    /// The same for one connection: where its client is, and whether TLS is spoken. What is not said here lets in no request
    /// of which a policy asks it.
    #[must_use]
    pub fn at(&self, client: Option<SocketAddr>, secure: bool) -> Endpoint {
        let connection = client.map(|it| Connection {
            address: it.ip(),
            secure,
        });
        Endpoint {
            connection,
            ..self.clone()
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// What ends the connection.
    pub async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(name) = too_long(request.headers()) {
            let why = format!("the header {name} has more than {COMPARED_MAX} bytes");
            return Ok(refused(StatusCode::BAD_REQUEST, "InvalidRequest", &why));
        }
        if request.method() == Method::OPTIONS {
            // Rules of which another node knows better let in nothing.
            if let Err(error) = check_ours(&self.data).await {
                let why = error.message().unwrap_or_default();
                let code = error.code().as_str();
                return Ok(refused(StatusCode::SERVICE_UNAVAILABLE, code, why));
            }
            return Ok(self.preflight(&request));
        }
        if is_of_no_region(request.headers()) {
            let region = &self.region;
            let elements = format!(
                "<Code>AuthorizationHeaderMalformed</Code><Message>sign for the region {region}</Message>\
                 <Region>{region}</Region>"
            );
            return Ok(error(StatusCode::BAD_REQUEST, &elements));
        }
        if let Some(connection) = self.connection {
            request.extensions_mut().insert(connection);
        }
        let cross = text(request.headers(), ORIGIN.as_str()).map(|origin| Cross {
            origin,
            method: request.method().as_str().to_owned(),
            headers: Vec::new(),
        });
        let rules = cross.as_ref().map(|_| self.rules(request.uri()));
        let mut response = self.s3.call(request).await?;
        if let Some((cross, rules)) = cross.zip(rules)
            && let Some(rule) = cross.rule(&rules)
        {
            cross.show(rule, response.headers_mut());
        }
        Ok(response)
    }

    fn preflight(&self, request: &HttpRequest) -> HttpResponse {
        let headers = request.headers();
        let asked = text(headers, ORIGIN.as_str()).zip(text(headers, METHOD));
        let Some((origin, method)) = asked else {
            return refused(
                StatusCode::BAD_REQUEST,
                "BadRequest",
                "a preflight has Origin and Access-Control-Request-Method",
            );
        };
        let named = text(headers, HEADERS).unwrap_or_default();
        let named = named.split(',').map(|it| it.trim().to_ascii_lowercase());
        let cross = Cross {
            origin,
            method,
            headers: named.filter(|it| !it.is_empty()).collect(),
        };
        let rules = self.rules(request.uri());
        let Some(rule) = cross.rule(&rules) else {
            return refused(
                StatusCode::FORBIDDEN,
                "AccessForbidden",
                "no rule of such a bucket lets a page of this origin do that",
            );
        };
        let mut response = HttpResponse::new(Body::empty());
        cross.show(rule, response.headers_mut());
        response
    }

    /// The rules of the bucket in a path; none where there is no such bucket.
    fn rules(&self, uri: &Uri) -> Vec<CorsRule> {
        let name = uri.path().split('/').nth(1).unwrap_or_default();
        match self.index.bucket(name) {
            Ok(found) => found.map(|it| it.cors).unwrap_or_default(),
            Err(error) => {
                tracing::error!("{error}");
                Vec::new()
            }
        }
    }
}

/// The header that is too long to be compared with patterns, if one is.
fn too_long(headers: &HeaderMap) -> Option<&'static str> {
    let of = |name: &str| {
        let all = headers.get_all(name).iter();
        all.map(|it| it.len()).sum::<usize>()
    };
    COMPARED.into_iter().find(|name| of(name) > COMPARED_MAX)
}

/// Is a request signed for what is no region? s3cmd signs for `US` by default, and again for the region that it is answered.
fn is_of_no_region(headers: &HeaderMap) -> bool {
    let shown = text(headers, "authorization").unwrap_or_default();
    let scope = shown.split("Credential=").nth(1).unwrap_or_default();
    let scope = scope.split([',', ' ']).next().unwrap_or_default();
    // KEY/DATE/REGION/s3/aws4_request
    let region = scope.rsplit('/').nth(2).unwrap_or_default();
    !region.is_empty() && Region::new(region.into()).is_err()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

fn refused(status: StatusCode, code: &str, why: &str) -> HttpResponse {
    error(
        status,
        &format!("<Code>{code}</Code><Message>{why}</Message>"),
    )
}

fn error(status: StatusCode, elements: &str) -> HttpResponse {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error>{elements}</Error>");
    let mut response = HttpResponse::new(Body::from(body));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/xml");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use s3s::service::S3ServiceBuilder;

    use super::*;
    use crate::index::{Disk, Ranges, Transaction};

    /// S3 without any operation.
    struct Nothing;

    impl s3s::S3 for Nothing {}

    #[derive(Debug, Default)]
    struct Memory(Mutex<Vec<u8>>);

    impl Disk for Memory {
        fn length(&self) -> io::Result<u64> {
            Ok(self.0.lock().unwrap().len() as u64)
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = self.0.lock().unwrap();
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
            Ok(())
        }
        fn write(&self, cut: u64, len: u64, ranges: Ranges) -> io::Result<()> {
            let mut bytes = self.0.lock().unwrap();
            bytes.truncate(cut as usize);
            bytes.resize(len as usize, 0);
            for (offset, data) in ranges {
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            }
            Ok(())
        }
        fn has_blobs(&self) -> io::Result<bool> {
            Ok(false)
        }
    }

    /// Buckets `open`, which lets pages of a.org put, and `shut`, without rules.
    async fn endpoint() -> Endpoint {
        let index = Index::open(Memory::default(), 1 << 20, "s0").unwrap();
        let make = |t: &mut Transaction<'_>| {
            t.create_bucket("shut", "bio", 1)?;
            let open = t.create_bucket("open", "bio", 1)?;
            t.change_bucket(("open", open.id), |it| {
                it.cors = vec![CorsRule {
                    origins: vec!["https://a.org".into()],
                    methods: vec!["PUT".into()],
                    ..CorsRule::default()
                }];
            })
        };
        index.change(make).await.unwrap();
        Endpoint {
            s3: S3ServiceBuilder::new(Nothing).build(),
            index: Arc::new(index),
            data: crate::data(false).0,
            region: "us-east-1".into(),
            connection: None,
        }
    }

    /// The status, the origin that is let in, and the body.
    async fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut request = hyper::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let mut response = endpoint().await.call(request).await.unwrap();
        let origin = text(response.headers(), "access-control-allow-origin");
        let body = response.body_mut().store_all_limited(1 << 16).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        (response.status().as_u16(), origin.unwrap_or_default(), body)
    }

    #[tokio::test]
    async fn a_preflight_says_what_rules_allow_and_nothing_of_buckets_without() {
        let put = [("origin", "https://a.org"), (METHOD, "PUT")];
        let answer = ask("OPTIONS", "/open/k?X-Amz-Signature=0", &put).await;
        assert_eq!((answer.0, &*answer.1), (200, "https://a.org"));
        let other = [("origin", "https://b.org"), (METHOD, "PUT")];
        let refused = ask("OPTIONS", "/open/k", &other).await;
        assert_eq!((refused.0, &*refused.1), (403, ""));
        let without = ask("OPTIONS", "/shut/k", &put).await;
        assert_eq!(without, ask("OPTIONS", "/none/k", &put).await);
        assert_eq!(without, refused);
        let bad = ask("OPTIONS", "/open/k", &put[..1]).await;
        assert_eq!(bad, ask("OPTIONS", "/none/k", &put[..1]).await);
        assert_eq!(bad.0, 400);
    }

    #[tokio::test]
    async fn an_answer_has_the_headers_of_a_rule_whatever_it_is() {
        let page = [("origin", "https://a.org")];
        for (method, path, shown) in [
            ("PUT", "/open/k", "https://a.org"),
            ("GET", "/open/k", ""),
            ("PUT", "/shut/k", ""),
            ("PUT", "/none/k", ""),
        ] {
            let answer = ask(method, path, &page).await;
            assert_eq!((answer.0, &*answer.1), (501, shown), "{method} {path}");
        }
        assert_eq!(ask("PUT", "/open/k", &[]).await.1, "");
    }

    #[tokio::test]
    async fn a_request_signed_for_no_region_is_answered_with_the_region() {
        let signed = |region: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=TA/20260101/{region}/s3/aws4_request,SignedHeaders=host,Signature=00"
            )
        };
        let us = signed("US");
        let (status, _, body) = ask("PUT", "/open", &[("authorization", &us)]).await;
        assert!(
            status == 400
                && body.contains("<Code>AuthorizationHeaderMalformed</Code>")
                && body.contains("<Region>us-east-1</Region>"),
            "{status} {body}"
        );
        for region in ["us-east-1", "eu-north-7", ""] {
            let (_, _, body) = ask("PUT", "/open", &[("authorization", &signed(region))]).await;
            assert!(!body.contains("Region"), "{region}: {body}");
        }
    }
}

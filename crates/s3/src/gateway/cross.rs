//! Rules of a bucket for pages of other origins: read, and which of them a browser meets.
//!
//! ```text
//! Origin, method, headers  ->  the first rule that has them all  ->  what the browser is answered
//! ```
//!
//! Pure.
//!
//! Source: the Fetch standard, 3.2, and Amazon S3's CORS configuration.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, VARY};
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::policies::matches;
use crate::index::settings::CorsRule;

/// The most rules of a bucket.
const RULES_MAX: usize = 100;
/// The most bytes of all of them.
const BYTES_MAX: usize = 64 << 10;
/// What a rule may let a page do.
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// What a browser says of a request from a page of another origin.
pub(super) struct Cross {
    pub origin: String,
    pub method: String,
    /// That the page wants to send, in lower case.
    pub headers: Vec<String>,
}

impl Cross {
    /// The first rule that lets it.
    pub fn rule<'r>(&self, rules: &'r [CorsRule]) -> Option<&'r CorsRule> {
        let is_allowed = |rule: &CorsRule, header: &String| {
            let mut patterns = rule.headers.iter();
            patterns.any(|it| matches(&it.to_ascii_lowercase(), header))
        };
        rules.iter().find(|rule| {
            rule.origins.iter().any(|it| matches(it, &self.origin))
                && rule.methods.contains(&self.method)
                && self.headers.iter().all(|it| is_allowed(rule, it))
        })
    }

    /// What the browser is answered by `rule`.
    pub fn show(&self, rule: &CorsRule, headers: &mut HeaderMap) {
        // One for all is said so where the rule does; else each origin hears of itself.
        let origin = match rule.origins.iter().any(|it| it == "*") {
            true => "*",
            false => &self.origin,
        };
        let seconds = rule.seconds.map(|it| it.to_string()).unwrap_or_default();
        for (name, value) in [
            ("access-control-allow-origin", origin),
            ("access-control-allow-methods", &rule.methods.join(", ")),
            ("access-control-allow-headers", &self.headers.join(", ")),
            ("access-control-expose-headers", &rule.exposed.join(", ")),
            ("access-control-max-age", &seconds),
        ] {
            if let Some(value) = HeaderValue::from_str(value)
                .ok()
                .filter(|it| !it.is_empty())
            {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let vary = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";
        headers.append(VARY, HeaderValue::from_static(vary));
    }
}

fn rule_of(rule: CORSRule) -> S3Result<CorsRule> {
    let bad = |what: String| S3Error::with_message(S3ErrorCode::InvalidRequest, what);
    let rule = CorsRule {
        id: rule.id,
        origins: rule.allowed_origins,
        methods: rule.allowed_methods,
        headers: rule.allowed_headers.unwrap_or_default(),
        exposed: rule.expose_headers.unwrap_or_default(),
        seconds: match rule.max_age_seconds.map(u32::try_from) {
            Some(Err(_)) => return Err(bad("MaxAgeSeconds is below zero".to_owned())),
            seconds => seconds.transpose().ok().flatten(),
        },
    };
    if rule.origins.is_empty() || rule.methods.is_empty() {
        return Err(s3_error!(
            MalformedXML,
            "a rule has an AllowedOrigin and an AllowedMethod"
        ));
    }
    if let Some(method) = rule.methods.iter().find(|it| !METHODS.contains(&&***it)) {
        return Err(bad(format!("{method:?} is no method that a rule allows")));
    }
    let mut patterns = rule.origins.iter().chain(&rule.headers);
    if let Some(pattern) = patterns.find(|it| it.matches('*').count() > 1 || it.contains('?')) {
        return Err(bad(format!(
            "{pattern:?}: one * is the most, and ? is none"
        )));
    }
    let mut shown = rule.exposed.iter();
    match shown.find(|it| HeaderName::from_bytes(it.as_bytes()).is_err() || it.contains('*')) {
        Some(name) => Err(bad(format!("{name:?} is the name of no header"))),
        None => Ok(rule),
    }
}

/// The rules that XML says.
pub(super) fn rules_of(configuration: CORSConfiguration) -> S3Result<Vec<CorsRule>> {
    let rules = configuration.cors_rules.into_iter().map(rule_of);
    let rules: Vec<CorsRule> = rules.collect::<S3Result<_>>()?;
    let bytes: usize = rules.iter().map(length).sum();
    match (1..=RULES_MAX).contains(&rules.len()) && bytes <= BYTES_MAX {
        true => Ok(rules),
        false => Err(s3_error!(
            InvalidRequest,
            "a bucket has 1 to {RULES_MAX} rules, of at most {BYTES_MAX} bytes together"
        )),
    }
}

fn length(rule: &CorsRule) -> usize {
    let lists = [&rule.origins, &rule.methods, &rule.headers, &rule.exposed];
    let texts = lists.into_iter().flatten().chain(&rule.id);
    texts.map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origin: &str, methods: &[&str], headers: &[&str]) -> CORSRule {
        let list = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        CORSRule {
            allowed_headers: Some(list(headers)),
            allowed_methods: list(methods),
            allowed_origins: vec![origin.to_owned()],
            expose_headers: None,
            id: None,
            max_age_seconds: Some(60),
        }
    }

    #[test]
    fn the_first_rule_that_has_origin_method_and_headers_is_answered() {
        let rules = rules_of(CORSConfiguration {
            cors_rules: vec![
                rule("https://*.a.org", &["GET"], &["x-amz-*"]),
                rule("*", &["GET", "PUT"], &[]),
            ],
        });
        let rules = rules.unwrap();
        for (origin, method, headers, shown) in [
            (
                "https://b.a.org",
                "GET",
                &["x-amz-date"][..],
                Some("https://b.a.org"),
            ),
            ("https://b.a.org", "PUT", &[], Some("*")),
            ("https://b.a.org", "GET", &["range"], None),
            ("http://b.a.org", "GET", &[], Some("*")),
            ("http://b.a.org", "DELETE", &[], None),
        ] {
            let cross = Cross {
                origin: origin.into(),
                method: method.into(),
                headers: headers.iter().map(|it| (*it).to_owned()).collect(),
            };
            let mut answer = HeaderMap::new();
            if let Some(rule) = cross.rule(&rules) {
                cross.show(rule, &mut answer);
            }
            let found = answer.get("access-control-allow-origin");
            let found = found.and_then(|it| it.to_str().ok());
            assert_eq!(found, shown, "{origin} {method} {headers:?}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in [
            rule("*.a.*", &["GET"], &[]),
            rule("*", &["OPTIONS"], &[]),
            rule("*", &["get"], &[]),
            rule("*", &[], &[]),
            rule("*", &["GET"], &["x-*-*"]),
        ] {
            let configuration = CORSConfiguration {
                cors_rules: vec![bad.clone()],
            };
            assert!(rules_of(configuration).is_err(), "{bad:?}");
        }
        let none = CORSConfiguration { cors_rules: vec![] };
        assert!(rules_of(none).is_err());
    }
}

//! A line in the log for each change made over the admin API: who made it, from where, what, and what was before and is now.
//!
//! ```text
//! request -> GET of the same path: before -> handler -> answer: after -> what is different of SET -> a line
//! ```
//!
//! Settings of hybrids have a line of their own, which the data thread writes.
//!
//! Always true: no token and no capability stands in a line; of an answer only [`SET`] does.

use std::time::Duration;

use access::caller::Caller;
use access::role::Action;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value};

use super::access::Entrance;
use super::control::Failure;
use super::door::without_secrets;
use super::listen::BODY_MAX;
use super::rights;
use crate::daemon::common::differences::differences;

/// What is set of volumes, accounts and stores, as answers name it; all else in them are figures.
const SET: [&str; 15] = [
    "name",
    "size_bytes",
    "copies",
    "min_copies",
    "priority",
    "fairness",
    "holder",
    "on_meta_loss",
    "caps",
    "snapshots",
    "role",
    "state",
    "users",
    "groups",
    "quota",
];
/// How long what was before may take to be read.
const LOOK: Duration = Duration::from_secs(1);
/// Their data thread says what is different.
const SETTINGS: [(&Method, &str); 2] = [
    (&Method::PATCH, "/v1/volumes/{name}"),
    (&Method::DELETE, "/v1/volumes/{name}/settings"),
];

/// Is a request of this route a change that gets a line here?
pub(super) fn is_change(method: &Method, route: &str) -> bool {
    let looks = method == Method::GET || method == Method::HEAD;
    let gives = matches!(
        rights::action(method, route),
        Action::Capability | Action::Offer
    );
    !looks && !gives && !SETTINGS.contains(&(method, route))
}

/// Has a change made, and writes its line if it was.
pub(super) async fn run(
    (request, next): (Request, Next),
    behind: Router,
    by: (&Caller, &Entrance),
) -> Response {
    let (parts, body) = request.into_parts();
    let body = match to_bytes(Body::new(body), BODY_MAX).await {
        Ok(body) => body,
        Err(error) => return unreadable(&error).into_response(),
    };
    if is_dry(&parts, &body) {
        return next.run(Request::from_parts(parts, Body::from(body))).await;
    }
    let (what, asked) = (what(&parts), asked(&body));
    let method = parts.method.clone();
    let before = match method == Method::POST {
        // It makes something: what else is there says nothing of that.
        true => None,
        false => {
            let before = before(parts.uri.path(), behind, by.0);
            // A store of records that is silent is waited for once: by the change.
            let before = tokio::time::timeout(LOOK, before).await;
            before.ok().flatten()
        }
    };
    let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
    if !answer.status().is_success() {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return unreadable(&error).into_response(),
    };
    let after = serde_json::from_slice(&body).ok();
    let after = after.filter(|_| method != Method::DELETE);
    let (who, from) = (by.0.to_string(), by.1.to_string());
    let words = words(before.as_ref(), after.as_ref());
    tracing::info!(who, from, what, asked, "changed{words}");
    Response::from_parts(parts, Body::from(body))
}

fn unreadable(error: &axum::Error) -> Failure {
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body cannot be read: {error}"),
        format!("send at most {BODY_MAX} bytes"),
    )
}

/// The request in one line.
fn what(parts: &Parts) -> String {
    let path = without_secrets(parts.uri.path(), '/');
    let query = parts.uri.query().map(|it| without_secrets(it, '='));
    let query = query.map_or(String::new(), |it| format!("?{it}"));
    format!("{} {path}{query}", parts.method)
}

/// Where it can be asked what would be done. Elsewhere such words change nothing of what is done.
const DRY: [&str; 3] = ["/v1/reload", "/v1/cluster/upgrade", "/v2/reservations"];

/// Is only asked what would be done?
fn is_dry(parts: &Parts, body: &[u8]) -> bool {
    if !DRY.contains(&parts.uri.path()) {
        return false;
    }
    let mut query = parts.uri.query().unwrap_or_default().split('&');
    let body: Option<Value> = serde_json::from_slice(body).ok();
    query.any(|it| it == "dry_run=true") || body.is_some_and(|it| it["dry_run"] == true)
}

/// What it says, as one line of JSON.
fn asked(body: &[u8]) -> String {
    let value: Result<Value, _> = serde_json::from_slice(body);
    value.map_or(String::new(), |it| without_secrets(&it.to_string(), '"'))
}

/// What is there before, where that can be read.
async fn before(path: &str, behind: Router, caller: &Caller) -> Option<Value> {
    let mut look = Request::new(Body::empty());
    *look.uri_mut() = path.parse().ok()?;
    look.extensions_mut().insert(caller.clone());
    let Ok(answer) = TowerToHyperService::new(behind).call(look).await;
    if !answer.status().is_success() {
        return None;
    }
    let body = to_bytes(answer.into_body(), usize::MAX).await.ok()?;
    serde_json::from_slice(&body).ok()
}

/// What is set, out of an answer.
fn set(of: &Value) -> Value {
    let known = |(key, value): (&String, &Value)| {
        let value = match value {
            // Of a snapshot its name says enough.
            Value::Array(all) if key == "snapshots" => {
                all.iter().map(|it| it["name"].clone()).collect()
            }
            value => value.clone(),
        };
        SET.contains(&key.as_str()).then(|| (key.clone(), value))
    };
    let set = of.as_object().map(|it| it.iter().filter_map(known));
    Value::Object(set.map_or_else(Map::new, Iterator::collect))
}

fn words(before: Option<&Value>, after: Option<&Value>) -> String {
    match (before.map(set), after.map(set)) {
        (Some(before), Some(after)) => format!(": {}", differences(&before, &after)),
        (Some(before), None) => format!(": it was {before}"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_what_is_set_before_and_after_and_no_figures() {
        let disk = |size: u64, priority: &str, clients: u64| {
            json!({"name": "vm1", "size_bytes": size, "priority": priority, "clients": clients,
                   "snapshots": [{"name": "monday", "unix_seconds": 7}], "token": "tanada_secret"})
        };
        let (before, after) = (disk(1, "low", 3), disk(2, "low", 4));
        assert_eq!(words(Some(&before), Some(&after)), ": size_bytes: 1 -> 2");
        let gone = words(Some(&before), None);
        assert!(gone.contains(r#""snapshots":["monday"]"#), "{gone}");
        assert!(
            !gone.contains("clients") && !gone.contains("secret"),
            "{gone}"
        );
        assert_eq!(words(None, Some(&after)), "");
    }

    #[test]
    fn what_is_asked_stands_in_a_line_without_secrets() {
        assert_eq!(asked(b"{\"name\":  \"monday\"}"), r#"{"name":"monday"}"#);
        assert_eq!(asked(b""), "");
        let token = format!("tanada_{}", "a".repeat(60));
        let shown = asked(json!({"note": token}).to_string().as_bytes());
        assert_eq!(shown, r#"{"note":".."}"#);
    }

    #[test]
    fn what_would_be_done_is_no_change() {
        let dry = |path: &str, body: &[u8]| {
            let request = Request::post(path).body(()).unwrap();
            is_dry(&request.into_parts().0, body)
        };
        let upgrade = "/v1/cluster/upgrade";
        assert!(dry("/v1/reload?dry_run=true", b"{}") && dry(upgrade, b"{\"dry_run\": true}"));
        assert!(!dry("/v1/reload?dry_run=false", b"{}") && !dry(upgrade, b"no JSON"));
        assert!(!dry(upgrade, b"{\"dry_run\": false}") && !dry("/v1/reload?a=b", b""));
        assert!(
            !dry("/v1/trash/vm1?dry_run=true", b""),
            "it takes no such key"
        );
    }

    #[test]
    fn looking_and_settings_of_hybrids_get_no_line_here() {
        let of = |method, route| is_change(&method, route);
        assert!(of(Method::PATCH, "/v1/cluster/volumes/{name}"));
        assert!(of(Method::POST, "/v1/tokens") && of(Method::PUT, "/v1/health/mutes/{code}"));
        assert!(!of(Method::GET, "/v1/tokens") && !of(Method::PATCH, "/v1/volumes/{name}"));
        assert!(!of(Method::POST, "/v2/reservations/{name}/capability"));
    }
}

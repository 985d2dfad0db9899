//! The dashboard: which files it is made of, and what a browser is told beside them.
//!
//! ```text
//! GET / -> index.html        GET /web/{file} -> a file of src/web, embedded    -> with a policy that lets nothing else in
//! ```
//!
//! Always true:
//! 1. A page asks nothing of any other server, runs no script and takes no style but the files here.
//! 2. The files hold no figure and no name: what is shown comes from `/v1`, by its rights.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::crc::crc32c;

use super::control::Failure;

/// What a page may load and do.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// A file of the dashboard: its name, what it is, its text.
struct Asset(&'static str, &'static str, &'static str);

macro_rules! assets {
    ($($name:literal $kind:ident,)*) => {
        [$(Asset($name, $kind, include_str!(concat!("../../web/", $name))),)*]
    };
}

/// The page itself, and what it loads.
#[rustfmt::skip]
const ASSETS: [Asset; 19] = assets![
    "index.html" HTML,
    "actions.js" SCRIPT,
    "advice.js" SCRIPT,
    "api.js" SCRIPT,
    "dom.js" SCRIPT,
    "draw.css" STYLE,
    "draw.js" SCRIPT,
    "energy.js" SCRIPT,
    "icon.svg" PICTURE,
    "look.css" STYLE,
    "main.js" SCRIPT,
    "overview.js" SCRIPT,
    "parts.js" SCRIPT,
    "rates.js" SCRIPT,
    "replication.js" SCRIPT,
    "reservations.js" SCRIPT,
    "stores.js" SCRIPT,
    "units.js" SCRIPT,
    "volumes.js" SCRIPT,
];

/// The dashboard, for a browser.
#[utoipa::path(get, path = "/", responses((status = 200, body = String, content_type = "text/html")))]
pub(super) async fn get_page(headers: HeaderMap) -> Response {
    answer(&ASSETS[0], &headers)
}

/// A file that the dashboard loads.
#[utoipa::path(get, path = "/web/{file}", params(("file" = String, Path)), responses(
    (status = 200, body = String),
    (status = 304, description = "As the client has it (`If-None-Match`)"),
    (status = 404, body = crate::api::refusal::Refusal),
))]
pub(super) async fn get_file(
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let found = ASSETS.iter().find(|asset| asset.0 == file);
    let asset = found.ok_or_else(|| {
        Failure::new(
            StatusCode::NOT_FOUND,
            format!("the dashboard has no file '{file}'"),
            "open / in a browser",
        )
    })?;
    Ok(answer(asset, &headers))
}

fn answer(asset: &Asset, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:08x}\"", crc32c(asset.2.as_bytes()));
    let given = headers.get(header::IF_NONE_MATCH);
    let is_same = given.is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let head: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, asset.1),
        // Asked for each time, and sent when it is another one: an upgrade is seen at once.
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &tag),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    match is_same {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, asset.2).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be sent to a browser that has nothing of it.
    const PAGE_MAX: usize = 200_000;

    #[test]
    fn the_whole_page_is_small() {
        let whole: usize = ASSETS.iter().map(|asset| asset.2.len()).sum();
        assert!(whole <= PAGE_MAX, "{whole} bytes");
    }

    #[test]
    fn each_file_says_what_it_is_and_is_asked_for_by_another() {
        let all: String = ASSETS.iter().map(|asset| asset.2).collect();
        for Asset(name, kind, text) in &ASSETS {
            let (_, ending) = name.rsplit_once('.').expect("an ending");
            let expected = match ending {
                "html" => HTML,
                "css" => STYLE,
                "js" => SCRIPT,
                _ => PICTURE,
            };
            assert_eq!(*kind, expected, "{name}");
            assert!(!text.trim().is_empty(), "{name}");
            let is_asked = all.contains(&format!("/{name}\""));
            assert!(is_asked || *name == "index.html", "{name}");
        }
    }

    #[test]
    fn what_a_file_loads_is_there() {
        for Asset(name, _, text) in &ASSETS {
            let imports = text.split("from \"./").skip(1);
            let loads = text.split("=\"/web/").skip(1);
            for rest in imports.chain(loads) {
                let (file, _) = rest.split_once('"').expect("an end");
                let is_there = ASSETS.iter().any(|asset| asset.0 == file);
                assert!(is_there, "{name} loads {file}");
            }
        }
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
        for Asset(name, _, text) in &ASSETS {
            // A name of a namespace, asked for by no browser.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for foreign in [
                "http:",
                "https:",
                "@import",
                "url(",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=",
                " onclick=",
                " onload=",
                "<script>",
                "<style",
                "<base",
                "<iframe",
                "EventSource",
                "localStorage",
                "document.cookie",
            ] {
                assert!(!text.contains(foreign), "{name} has {foreign}");
            }
        }
    }

    #[test]
    fn each_answer_says_what_a_browser_may_do_and_what_changed() {
        let first = answer(&ASSETS[0], &HeaderMap::new());
        let of = |name: HeaderName| first.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(
            of(header::CONTENT_SECURITY_POLICY),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri \
             'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(of(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(of(header::REFERRER_POLICY), "no-referrer");
        let tag = of(header::ETAG);
        let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag.parse().expect("one"))]);
        assert_eq!(
            answer(&ASSETS[0], &asked).status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(answer(&ASSETS[1], &asked).status(), StatusCode::OK);
    }
}

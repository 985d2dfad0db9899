//! The routes and the document that tells of them.

use std::collections::BTreeSet;

use axum::body::Body;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::routes::routes;
use super::*;
use crate::daemon::thread::records::Records;

/// One that has no data threads.
pub(super) fn control() -> Arc<Control> {
    Arc::new(Control {
        started: super::control::Began::now(0),
        jobs: crate::daemon::jobs::shared::Jobs::default(),
        threads: Vec::new(),
        access: Access::default(),
        records: Records::in_dir(std::path::Path::new("/nonexistent")),
        s3: std::sync::Arc::default(),
        audit: None,
        searching: Arc::new(tokio::sync::Semaphore::new(1)),
        kernel_disks: kernel_disks::KernelDisks::default(),
        revocation: crate::daemon::common::revocation::Revocation::default(),
        making: charged::Making::default(),
        settings: super::settings_book::SettingsBook::new(
            "no-such-folder".as_ref(),
            Default::default(),
        ),
        health: crate::daemon::health::Watch::unwatched(),
        loaded: crate::daemon::reload::Loaded::built_in("test"),
        certificates: crate::daemon::common::certificates::Folder::at("no-such-folder".as_ref()),
    })
}

fn document() -> serde_json::Value {
    serde_json::to_value(openapi()).expect("plain data")
}

#[test]
fn each_route_is_in_the_document_with_its_methods_and_no_other() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let known: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
    let listed: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    assert_eq!(known, listed);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        for (path, methods) in routes() {
            let there = path.replace("{number}", "1").replace(['{', '}'], "");
            let router = Router::new().route(path, methods).with_state(control());
            let router = TowerToHyperService::new(router);
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                let request = Request::builder().method(method).uri(&there);
                let request = request.body(Body::empty()).expect("a request");
                let Ok(answer) = router.call(request).await;
                let listed = paths[path].get(method.to_lowercase()).is_some();
                let answered = answer.status() != StatusCode::METHOD_NOT_ALLOWED;
                assert_eq!(answered, listed, "{method} {path}");
            }
        }
    });
}

#[test]
fn each_schema_that_the_document_names_is_in_it() {
    let document = document();
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    let text = document.to_string();
    let named = text.split("\"#/components/schemas/").skip(1);
    let named: BTreeSet<&str> = named.filter_map(|rest| rest.split('"').next()).collect();
    assert!(
        named.contains("AnyVolume") && named.contains("Volume"),
        "{named:?}"
    );
    for name in named {
        assert!(schemas.contains_key(name), "{name}");
    }
}

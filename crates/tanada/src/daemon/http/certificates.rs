//! Certificates over the admin API: what this daemon shows, and which are revoked.
//!
//! ```text
//! GET  -> the files in DATA_DIR/tls
//! POST -> a record in the cluster's meta store, which every node follows; without a cluster: DATA_DIR/tls/revoked
//! ```

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use report::terminal::said;
use tls::Serial;
use vdisk::cluster::ClusterError;

use super::cluster_thread::ClusterThread;
use super::control::{Answer, Control, Failure, body, unprocessable};
use crate::api::certificates::{Certificates, Revoke};
use crate::api::refusal::Refusal;
use crate::daemon::common::certificates::own_certificate;

fn failed(error: &anyhow::Error) -> Failure {
    let todo = "look at the files in DATA_DIR/tls; `tanada node create` makes them anew";
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, said::words(error), todo)
}

/// The certificate that this daemon shows where TLS is spoken, and those that open nothing here any more.
#[utoipa::path(get, path = "/v1/certificates", responses(
    (status = 200, body = Certificates),
    (status = 500, description = "Its files cannot be read", body = Refusal),
))]
pub async fn get_certificates(State(control): State<Arc<Control>>) -> Answer<Certificates> {
    let read = || {
        anyhow::Ok(Certificates {
            own: own_certificate(&control.certificates)?,
            revoked: {
                let revoked = control.certificates.read_revoked()?.into_iter();
                revoked.map(|serial| serial.to_string()).collect()
            },
        })
    };
    read().map(Json).map_err(|error| failed(&error))
}

/// Revokes certificates: on every node of the cluster, or on this daemon if it is in none. Connections under them end within a
/// second.
#[utoipa::path(post, path = "/v1/certificates/revoked", request_body = Vec<Revoke>, responses(
    (status = 200, body = Certificates),
    (status = 422, description = "That is no serial number", body = Refusal),
    (status = 503, description = "The meta store does not answer: ask again", body = Refusal),
))]
pub async fn revoke_certificates(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    text: axum::body::Bytes,
) -> Answer<Certificates> {
    let example = r#"[{"serial": "5f01c3...", "whose": "node n2"}]"#;
    let asked: Vec<Revoke> = body(&headers, &text, example)?;
    let mut revoked: Vec<(Serial, String)> = Vec::new();
    for Revoke { serial, whose } in asked {
        let Some(serial) = Serial::parse(&serial) else {
            let why = format!("'{serial}' is no serial number");
            return Err(unprocessable(why, "`tanada cluster ca list` shows them"));
        };
        revoked.push((serial, whose.chars().take(200).collect()));
    }
    let cluster = ClusterThread(&control);
    if cluster.has_cluster() {
        let records = revoked.clone();
        let recorded = cluster.at_cluster(async move |open| {
            for (serial, whose) in &records {
                let done = open.cluster.revocations.revoke(serial, whose).await;
                done.map_err(ClusterError::Meta)?;
            }
            Ok(())
        });
        recorded.await?;
    }
    let numbers = revoked.iter().map(|(serial, _)| serial.clone());
    control.revocation.spread(&numbers.collect());
    // In a cluster the file has it in a moment all the same; here whose it was is known, too.
    let kept = control.certificates.add_revoked(&revoked);
    kept.map_err(|error| failed(&error))?;
    for (serial, whose) in &revoked {
        tracing::warn!(%serial, whose, "a certificate was revoked over the admin API");
    }
    get_certificates(State(control)).await
}

//! NBD addresses: listened at, with or without TLS.

use anyhow::{Context, anyhow};
use base::Nanos;
use config::TlsConfig;
use env::net::{Address, Listener};
use front::nbd;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::daemon::common::address::plain;
use crate::daemon::common::{secrets, socket_folder};

/// How long to wait for an address that another process has.
const ADDRESS_TIMEOUT: Nanos = Nanos::secs(2);

/// Listens, once the address is free: the kernel gives the sockets of a killed daemon back a moment after
/// its end.
pub async fn listen(
    address: &Address,
    mode: u32,
    (clients, key): (&str, &str),
) -> anyhow::Result<Listener> {
    socket_folder::make(address)?;
    let deadline = env::now() + ADDRESS_TIMEOUT;
    let error = loop {
        match Listener::bind_as(address, mode) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse && env::now() < deadline => {
                env::sleep(Nanos::millis(100)).await;
            }
            Err(error) => break error,
        }
    };
    Err(match error.kind() {
        ErrorKind::AddrInUse => anyhow!(
            "cannot listen on {address} for {clients}: another program has it, perhaps another \
             `tanada serve`; end it, or write another address in {key}"
        ),
        _ => anyhow!(
            "cannot listen on {address} for {clients}: {}; write another address in {key}",
            plain(&error)
        ),
    })
}

pub fn read_tls(tls: &TlsConfig) -> anyhow::Result<nbd::Tls> {
    let read = |path: &PathBuf| {
        std::fs::read(path).with_context(|| format!("tls: cannot read {}", path.display()))
    };
    let key = secrets::read_private(&tls.key, "the key").context("tls")?;
    let authority = tls.client_ca.as_ref().map(read).transpose()?;
    let read = nbd::Tls::from_pem(
        nbd::TlsMode::Required,
        &read(&tls.certificate)?,
        &key,
        authority.as_deref(),
    )
    .context("tls")?;
    Ok(match &tls.clients {
        Some(clients) => read.with_clients(clients.clone()),
        None => read,
    })
}

/// Listens for clients of exports.
pub async fn listen_for_clients(address: &Address, mode: u32) -> anyhow::Result<Listener> {
    listen(address, mode, ("NBD clients", "[[export]] nbd")).await
}

/// Listens for clients of a store.
pub async fn listen_for_objects(address: &Address, mode: u32) -> anyhow::Result<Listener> {
    let what = ("clients of a store", "[[store]] listen");
    listen(address, mode, what).await
}

/// Listens for virtual machines.
pub async fn listen_for_machines(address: &Address, mode: u32) -> anyhow::Result<Listener> {
    let what = ("virtual machines", "[[export]] vhost-user");
    listen(address, mode, what).await
}

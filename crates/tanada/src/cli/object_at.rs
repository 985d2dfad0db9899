//! Which store an object command works on: its address, what is shown there, and how its server is checked.
//!
//! ```text
//! --store, or what the daemon says -> address -> TLS, if it is spoken there -> credentials -> a client
//! ```

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use base::Nanos;
use clap::Args;
use env::net::Address;
use report::terminal::Usage;
use store::net::client::{Client, ClientOptions, Credentials};
use tls::{Identity, Material};

use super::capability_set::CapabilitySet;
use super::client::{Client as Admin, Target};
use crate::api::store::Store;
use crate::daemon::common::certificates::Folder;
use crate::daemon::common::secrets;

/// Which store, and what is shown there.
#[derive(Debug, Args, Clone)]
pub struct At {
    /// The store: HOST:PORT, tls:HOST:PORT, unix:/path, or its name at the daemon [default: the daemon's only one]
    #[arg(long, env = "TANADA_STORE", value_name = "ADDR|NAME")]
    store: Option<String>,
    /// The capability, or set of them, that `tanada reservation create` or `tanada reservation create` printed, or @FILE with it.
    #[arg(
        long,
        env = "TANADA_CAPABILITY",
        hide_env_values = true,
        value_name = "TOKEN|@FILE"
    )]
    capability: Option<String>,
    /// The file with the node key; a client that has it may do everything, without a promise.
    #[arg(long, value_name = "FILE", conflicts_with = "capability")]
    node_key: Option<PathBuf>,
    /// The authorities by which a store at a tls: address is checked, as PEM: ca.pem of the cluster.
    #[arg(long, env = "TANADA_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A folder with an own certificate, as `tanada cluster ca issue` makes it; its ca.pem is used, too.
    #[arg(long, env = "TANADA_IDENTITY", value_name = "DIR")]
    identity: Option<PathBuf>,
    /// The daemon's admin API, to look names of stores up: HOST:PORT or unix:/path [default: as of `tanada status`]
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default(),
        hide_default_value = true
    )]
    admin: Target,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Connects, works, and says goodbye.
pub(super) fn with_client<T: 'static>(
    (at, direction): (&At, Option<&str>),
    work: impl AsyncFnOnce(Client) -> anyhow::Result<T> + 'static,
) -> anyhow::Result<T> {
    let (address, credentials) = entrance(at, direction)?;
    let material = material(at, &address)?;
    let folder = at.identity.as_deref().map(Folder::at);
    let runtime =
        env::Runtime::real(env::RealConfig::default()).context("cannot make a data runtime")?;
    runtime.block_on(async move {
        // A slow reservation is no reason to give up: an answer may wait for its turn.
        let identity = material.as_ref().map(Identity::new).transpose()?;
        if let (Some(identity), Some(folder)) = (&identity, &folder) {
            identity.set_revoked(folder.read_revoked()?);
        }
        let options = ClientOptions {
            timeout: Nanos::secs(120),
            tls: identity.map(|identity| tls::Client::at(&identity, &address)),
            ..ClientOptions::default()
        };
        let client = Client::connect_with(&address, credentials, &options).await?;
        let done = work(client.clone()).await;
        client.close().await;
        done
    })
}

/// Where the store is: as said, or as the daemon reports.
fn address(at: &At) -> anyhow::Result<Address> {
    if let Some(store) = &at.store
        && store.contains(':')
    {
        return Ok(store.parse().map_err(|error| Usage(format!("{error}")))?);
    }
    let client = Admin::new(at.admin.clone())?;
    let found = match &at.store {
        Some(name) => {
            config::check_name(name).map_err(Usage)?;
            client.get::<Store>(&format!("/v1/stores/{name}"))?
        }
        None => {
            let mut all: Vec<Store> = client.get("/v1/stores")?;
            match all.len() {
                0 => {
                    return Err(anyhow!(
                        "the daemon at {} has no stores; name one elsewhere with --store HOST:PORT",
                        at.admin
                    ));
                }
                1 => all.remove(0),
                _ => {
                    let names: Vec<&str> =
                        all.iter().map(|store| store.basics.name.as_str()).collect();
                    let said = format!("which store? say --store with one of {}", names.join(", "));
                    return Err(Usage(said).into());
                }
            }
        }
    };
    let addresses = found
        .basics
        .listen
        .iter()
        .filter_map(|text| text.parse().ok());
    // A daemon behind a network is not reached by its loopback addresses.
    let addresses: Vec<Address> = addresses.collect();
    let best = addresses
        .iter()
        .find(|address| matches!(address, Address::Tcp(_)));
    let plain = || addresses.iter().find(|address| !address.is_tls());
    let best = best.or_else(plain).or(addresses.first());
    best.cloned()
        .ok_or_else(|| anyhow!("the store {} listens nowhere", found.basics.name))
}

/// What TLS needs, for an address where it is spoken.
fn material(at: &At, address: &Address) -> anyhow::Result<Option<Material>> {
    if !address.is_tls() {
        return Ok(None);
    }
    let own = at.identity.as_deref().map(Folder::at);
    let mut material = match &own {
        Some(folder) => folder.material()?,
        None => Material {
            authority: Vec::new(),
            own: None,
        },
    };
    match (&at.ca, &own) {
        (Some(path), _) => {
            let said = || format!("cannot read the authorities {}", path.display());
            material.authority = fs::read(path).with_context(said)?;
        }
        (None, Some(_)) => {}
        (None, None) => {
            return Err(Usage(format!(
                "at {address} TLS is spoken, and nothing says by which authority its certificate is checked; name the \
                 cluster's ca.pem with --ca or TANADA_CA"
            ))
            .into());
        }
    }
    Ok(Some(material))
}

/// Where the store is and what is shown there; a capability set says both, if it is of one store.
fn entrance(at: &At, direction: Option<&str>) -> anyhow::Result<(Address, Credentials)> {
    if let Some(path) = &at.node_key {
        return Ok((address(at)?, Credentials::NodeKey(secrets::read(path)?)));
    }
    let Some(token) = capability(at)? else {
        return Ok((address(at)?, Credentials::Open));
    };
    let Some(set) = CapabilitySet::parse(&token)? else {
        return Ok((address(at)?, Credentials::Capability(token)));
    };
    let said = at.store.as_ref().map(|_| address(at)).transpose()?;
    let entry = set.choose(said.as_ref(), direction)?;
    let known = entry.address.parse().map_err(|error| anyhow!("{error}"));
    let credentials = Credentials::Capability(entry.token.clone());
    Ok((said.map_or(known, Ok)?, credentials))
}

/// The capability, or the set of them, that was said.
fn capability(at: &At) -> anyhow::Result<Option<String>> {
    let Some(said) = at.capability.as_deref().filter(|said| !said.is_empty()) else {
        return Ok(None);
    };
    let token = match said.strip_prefix('@') {
        Some(path) => fs::read_to_string(path)
            .with_context(|| format!("cannot read the capability {path}"))?,
        None => said.to_owned(),
    };
    Ok(Some(token.trim().to_owned()))
}

//! `[[s3]]`: buckets over a store, for every S3 client.
//!
//! Always true of an `S3Config`:
//! 1. Its stores are there, and no other gateway has one of them.
//! 2. No other machine reaches it but in TLS.

use env::net::Address;

use super::export::ExportConfig;
use super::keys::{At, Keys};
use super::store::{StoreConfig, unknown_store};
use super::types::{AdminConfig, S3Config};
use super::values::{any_port, is_local, read_new_name};

/// Where a gateway is unless configured: the port after the store's.
pub const LISTEN: &str = "127.0.0.1:10882";
/// What clients call the place of its buckets unless configured.
pub const REGION: &str = "us-east-1";

/// Reads all `[[s3]]`.
pub(super) fn read_gateways(
    root: &mut Keys<'_, '_>,
    stores: &[StoreConfig],
    others: (&[ExportConfig], &AdminConfig),
) -> Vec<S3Config> {
    let mut gateways = Vec::new();
    for mut keys in root.tables("s3") {
        let gateway = read_s3(&mut keys, stores, &gateways, others);
        gateways.extend(gateway);
        keys.finish();
    }
    gateways
}

/// Reads one of them.
fn read_s3(
    keys: &mut Keys<'_, '_>,
    stores: &[StoreConfig],
    earlier: &[S3Config],
    (exports, admin): (&[ExportConfig], &AdminConfig),
) -> Option<S3Config> {
    let is_taken = |name: &str| earlier.iter().any(|other| other.name == name);
    let name = read_new_name(keys, is_taken, "gateway");
    let named = read_stores(keys, stores, earlier);
    let listen = keys.parse_list("listen", str::parse::<Address>);
    let region = keys.parse_or("region", REGION.to_owned(), read_region);
    let missing = format!(
        "listen is missing; say where clients connect: listen = \"{LISTEN}\" or \"tls:IP:PORT\""
    );
    let listen = keys.need(listen, &missing)?;
    check_addresses(keys, &listen, (stores, earlier, exports, admin));
    Some(S3Config {
        name: name?,
        stores: named?,
        listen: listen.value,
        region,
    })
}

fn read_stores(
    keys: &mut Keys<'_, '_>,
    stores: &[StoreConfig],
    earlier: &[S3Config],
) -> Option<Vec<String>> {
    let found = keys.parse_list("store", |text| Ok::<String, String>(text.to_owned()));
    let missing = "store is missing; name the [[store]] that its objects lie in: store = \"...\"";
    let At { value: named, at } = keys.need(found, missing)?;
    let mut good = !named.is_empty();
    if named.is_empty() {
        keys.complain_at(at, "store", "name at least one store");
    }
    for (place, name) in named.iter().enumerate() {
        let other = earlier.iter().find(|other| other.stores.contains(name));
        let what = if !stores.iter().any(|store| store.name == *name) {
            unknown_store(name, stores.iter().map(|store| &*store.name))
        } else if named[..place].contains(name) {
            format!("\"{name}\" is named twice")
        } else if let Some(other) = other {
            format!("\"{name}\" is a store of the gateway \"{}\"", other.name)
        } else {
            continue;
        };
        keys.complain_at(at, "store", what);
        good = false;
    }
    good.then_some(named)
}

fn read_region(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match !text.is_empty() && text.len() <= 32 && text.bytes().all(good) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is no region: one has 1 to 32 of a-z, 0-9 and -, such as {REGION}"
        )),
    }
}

/// What listens elsewhere in this configuration.
type Others<'a> = (
    &'a [StoreConfig],
    &'a [S3Config],
    &'a [ExportConfig],
    &'a AdminConfig,
);

fn check_addresses(
    keys: &Keys<'_, '_>,
    listen: &At<Vec<Address>>,
    (stores, earlier, exports, admin): Others<'_>,
) {
    if listen.value.is_empty() {
        let what = "name at least one address, or no client can connect";
        keys.complain_at(listen.at, "listen", what);
    }
    for address in &listen.value {
        if matches!(address, Address::Unix(_)) {
            let what =
                format!("{address} is a Unix socket, and S3 clients speak TCP; write IP:PORT");
            keys.complain_at(listen.at, "listen", what);
        } else if !is_local(address) && !address.is_tls() {
            let what = format!(
                "{address} can be reached from other machines, and in the clear who is on the way reads all objects; write \
                 listen = \"tls:{address}\" and make certificates (`tanada cluster ca init`, then `tanada node create`), or \
                 listen on 127.0.0.1"
            );
            keys.complain_at(listen.at, "listen", what);
        }
        if any_port(address) {
            continue;
        }
        let store = stores.iter().find(|it| it.listen.contains(address));
        let gateway = earlier.iter().find(|it| it.listen.contains(address));
        let export = exports.iter().find(|it| it.nbd.contains(address));
        let taken = if admin.has(address) {
            "the admin API".to_owned()
        } else if let Some(store) = store {
            format!("the store \"{}\"", store.name)
        } else if let Some(gateway) = gateway {
            format!("the gateway \"{}\"", gateway.name)
        } else if let Some(export) = export {
            format!("the export \"{}\"", export.name)
        } else {
            continue;
        };
        let what = format!("{address} is where {taken} listens; take another one");
        keys.complain_at(listen.at, "listen", what);
    }
}

//! `[[s3]]`: buckets over stores, or on a virtual disk, for every S3 client.
//!
//! Always true of an `S3Config`:
//! 1. Its stores are there; no other gateway has one of them, nor its volume, and no export shows that.
//! 2. No other machine reaches it but in TLS.

use env::net::Address;
use vdisk::record::Name;

use super::export::ExportConfig;
use super::keys::{At, Keys};
use super::store::{StoreConfig, unknown_store};
use super::types::{AdminConfig, S3Below, S3Config};
use super::values::{any_port, is_local, read_new_name};

/// Where a gateway is unless configured: the port after the store's.
pub const LISTEN: &str = "127.0.0.1:10882";
/// What clients call the place of its buckets unless configured.
pub const REGION: &str = "us-east-1";

/// Reads all `[[s3]]`.
pub(super) fn read_gateways(
    root: &mut Keys<'_, '_>,
    stores: &[StoreConfig],
    has_cluster: bool,
    (exports, admin): (&[ExportConfig], &AdminConfig),
) -> Vec<S3Config> {
    let mut gateways = Vec::new();
    for mut keys in root.tables("s3") {
        let gateway = read_s3(&mut keys, has_cluster, (stores, &gateways, exports, admin));
        gateways.extend(gateway);
        keys.finish();
    }
    gateways
}

/// Reads one of them.
fn read_s3(keys: &mut Keys<'_, '_>, has_cluster: bool, others: Others<'_>) -> Option<S3Config> {
    let (stores, earlier, exports, _) = others;
    let is_taken = |name: &str| earlier.iter().any(|other| other.name == name);
    let name = read_new_name(keys, is_taken, "gateway");
    let below = match keys.has("volume") {
        true => read_volume(keys, has_cluster, (earlier, exports)).map(S3Below::Volume),
        false => read_stores(keys, stores, earlier).map(S3Below::Stores),
    };
    let listen = keys.parse_list("listen", str::parse::<Address>);
    let region = keys.parse_or("region", REGION.to_owned(), read_region);
    let missing = format!(
        "listen is missing; say where clients connect: listen = \"{LISTEN}\" or \"tls:IP:PORT\""
    );
    let listen = keys.need(listen, &missing)?;
    check_addresses(keys, &listen, others);
    Some(S3Config {
        name: name?,
        below: below?,
        listen: listen.value,
        region,
    })
}

fn read_volume(
    keys: &mut Keys<'_, '_>,
    has_cluster: bool,
    (earlier, exports): (&[S3Config], &[ExportConfig]),
) -> Option<Name> {
    let named = keys.parse("volume", str::parse::<Name>);
    let is_both = keys.take::<toml::Value>("store").is_some();
    let At { value: name, at } = named?;
    let other = earlier.iter().find(|it| it.volume() == Some(&name));
    let is_shown = |it: &&ExportConfig| it.volume.as_ref().is_some_and(|it| it.name == name);
    let what = if is_both {
        "its objects lie in stores or on a volume: leave out store, or volume".to_owned()
    } else if !has_cluster {
        format!(
            "\"{name}\" is a volume of a cluster, and this node is of none: add a [cluster] section"
        )
    } else if let Some(other) = other {
        format!("\"{name}\" is the volume of the gateway \"{}\"", other.name)
    } else if let Some(export) = exports.iter().find(is_shown) {
        format!(
            "\"{name}\" is exported as \"{}\", and what its clients write would destroy the objects; leave out one of them",
            export.name
        )
    } else {
        return Some(name);
    };
    keys.complain_at(at, "volume", what);
    None
}

fn read_stores(
    keys: &mut Keys<'_, '_>,
    stores: &[StoreConfig],
    earlier: &[S3Config],
) -> Option<Vec<String>> {
    let found = keys.parse_list("store", |text| Ok::<String, String>(text.to_owned()));
    let missing = "store is missing; name the [[store]] that its objects lie in: store = \"...\", or a virtual disk: \
                   volume = \"...\"";
    let At { value: named, at } = keys.need(found, missing)?;
    let mut good = !named.is_empty();
    if named.is_empty() {
        keys.complain_at(at, "store", "name at least one store");
    }
    for (place, name) in named.iter().enumerate() {
        let other = earlier.iter().find(|other| other.stores().contains(name));
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    const STORES: &str = r#"
        [[device]]
        name = "a"
        path = "a.img"
        size = "64MiB"
        [[device]]
        name = "b"
        path = "b.img"
        size = "64MiB"
        [[store]]
        name = "s0"
        device = "a"
        listen = "127.0.0.1:10881"
        [[store]]
        name = "s1"
        device = "b"
        listen = "unix:s1.sock"
    "#;

    fn read(gateways: &str) -> Result<crate::Config, String> {
        let read = crate::read(
            &format!("{STORES}{gateways}"),
            "t.toml",
            Some(Path::new("d")),
        );
        read.map_err(|error| {
            let mistakes = error.mistakes.iter().map(ToString::to_string);
            mistakes.collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn a_gateway_is_read_with_its_stores_in_their_order() {
        let config = read(
            "[[s3]]\nname = \"gw\"\nstore = [\"s1\", \"s0\"]\nlisten = [\"127.0.0.1:10882\", \"tls:10.0.0.1:443\"]\n",
        );
        let gateway = &config.unwrap().s3[0];
        assert_eq!((&*gateway.name, &*gateway.region), ("gw", "us-east-1"));
        assert_eq!(gateway.stores(), ["s1", "s0"]);
        assert_eq!(gateway.listen.len(), 2);
    }

    #[test]
    fn a_gateway_on_a_volume_has_it_alone_in_a_cluster() {
        let gateway = |keys: &str| format!("[[s3]]\nlisten = \"127.0.0.1:0\"\n{keys}\n");
        let on = |name: &str| gateway(&format!("name = \"{name}\"\nvolume = \"photos\""));
        let cluster = "[cluster]\nnode = \"n1\"\n";
        let config = read(&format!("{cluster}{}", on("gw"))).unwrap();
        let below = &config.s3[0];
        assert_eq!(below.volume().unwrap().as_str(), "photos");
        assert!(below.stores().is_empty());
        let export = "[[export]]\ndevice = \"volume:photos\"\nnbd = \"unix:x.sock\"\n";
        let both = gateway("name = \"gw\"\nvolume = \"photos\"\nstore = \"s0\"");
        let odd = gateway("name = \"gw\"\nvolume = \"a/b\"");
        for (text, said) in [
            (on("gw"), "add a [cluster] section"),
            (
                format!("{cluster}{}{}", on("gw"), on("other")),
                "the volume of the gateway \"gw\"",
            ),
            (
                format!("{cluster}{export}{}", on("gw")),
                "exported as \"photos\"",
            ),
            (format!("{cluster}{both}"), "leave out store, or volume"),
            (format!("{cluster}{odd}"), "a/b"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
            assert!(!error.contains("store is missing"), "{error}");
        }
    }

    #[test]
    fn every_mistake_of_a_gateway_is_named() {
        for (keys, said) in [
            ("listen = \"127.0.0.1:1\"", "store is missing"),
            ("store = \"s0\"", "listen is missing"),
            (
                "store = \"s2\"\nlisten = \"127.0.0.1:1\"",
                "there is no store 's2'",
            ),
            (
                "store = [\"s0\", \"s0\"]\nlisten = \"127.0.0.1:1\"",
                "named twice",
            ),
            ("store = \"s0\"\nlisten = \"10.0.0.1:1\"", "in the clear"),
            ("store = \"s0\"\nlisten = \"unix:s3.sock\"", "a Unix socket"),
            (
                "store = \"s0\"\nlisten = \"127.0.0.1:10881\"",
                "the store \"s0\" listens",
            ),
            ("store = \"s0\"\nlisten = []", "at least one address"),
            (
                "store = \"s0\"\nlisten = \"127.0.0.1:1\"\nregion = \"EU\"",
                "is no region",
            ),
            (
                "store = \"s0\"\nlisten = \"127.0.0.1:1\"\nbucket = \"b\"",
                "bucket",
            ),
        ] {
            let error = read(&format!("[[s3]]\nname = \"gw\"\n{keys}\n")).unwrap_err();
            assert!(error.contains(said), "{keys}: {error}");
        }
        let one = "[[s3]]\nname = \"gw\"\nstore = \"s0\"\nlisten = \"127.0.0.1:1\"\n";
        let error = read(&one.repeat(2)).unwrap_err();
        for said in [
            "gw",
            "is a store of the gateway",
            "the gateway \"gw\" listens",
        ] {
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}

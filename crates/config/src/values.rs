//! Single values: names, spans of time, permissions, addresses.

use std::net::IpAddr;
use std::path::PathBuf;

use base::{Map, Nanos};
use env::fs::Direct;
use env::net::Address;

use crate::keys::{At, Keys, instead};

/// What has been named so far and who uses it.
#[derive(Default)]
pub(crate) struct Things {
    /// Names in the order of the text; a broken device still counts, lest one mistake cause many.
    pub(crate) names: Vec<String>,
    /// Thing -> the stripe, hybrid or store it is part of.
    pub(crate) part_of: Map<String, String>,
    /// File or device path -> the device that uses it.
    pub(crate) paths: Map<PathBuf, String>,
}

impl Things {
    /// Complains about `key`, which stands at `at`, unless there is a thing called `name`.
    pub(crate) fn find(&self, keys: &Keys<'_, '_>, key: &str, name: &str, at: usize) -> Option<()> {
        if self.names.iter().any(|known| known == name) {
            return Some(());
        }
        let known = self.names.iter().map(String::as_str);
        let what = format!(
            "there is no [[device]], [[stripe]] or [[hybrid]] called \"{name}\"{}",
            instead(name, known, "there are")
        );
        keys.complain_at(at, key, what);
        None
    }

    /// Makes `name` a part of the table being read, and of nothing else. `twice` says what is wrong if that table has
    /// it already.
    pub(crate) fn take_part(
        &mut self,
        keys: &Keys<'_, '_>,
        key: &str,
        name: &str,
        at: usize,
        twice: Option<&str>,
    ) -> Option<()> {
        let own = keys.title();
        let Some(other) = self.part_of.insert(name.to_owned(), own.to_owned()) else {
            return Some(());
        };
        let what = match twice.filter(|_| other == own) {
            Some(twice) => format!("\"{name}\" {twice}"),
            None => format!("\"{name}\" is part of {other} already; each device has one use"),
        };
        keys.complain_at(at, key, what);
        None
    }
}

/// Names go into URLs, metrics and file names.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_well = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    if starts_well && name.len() <= 64 && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!(
        "'{name}' is not a name: use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
    ))
}

/// As [`check_name`]; the name.
pub(crate) fn valid_name(name: &str) -> Result<String, String> {
    check_name(name).map(|()| name.to_owned())
}

/// The name in `name`, unless `is_taken`; the complaint says what have names of their own.
pub(crate) fn read_new_name(
    keys: &mut Keys<'_, '_>,
    is_taken: impl Fn(&str) -> bool,
    all: &str,
) -> Option<String> {
    let found = keys.take::<String>("name");
    let At { value: name, at } = keys.need(found, "name is missing; write name = \"...\"")?;
    let refused = match check_name(&name) {
        Err(what) => what,
        Ok(()) if is_taken(&name) => {
            format!("\"{name}\" is taken already; every {all} has its own name")
        }
        Ok(()) => return Some(name),
    };
    keys.complain_at(at, "name", refused);
    None
}

pub(crate) fn read_name(keys: &mut Keys<'_, '_>, things: &mut Things) -> Option<String> {
    let is_taken = |name: &str| things.names.iter().any(|known| known == name);
    let name = read_new_name(keys, is_taken, "device and hybrid")?;
    things.names.push(name.clone());
    Some(name)
}

/// Is the address out of reach of other machines?
pub fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(socket) | Address::Tls(socket) => match socket.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        },
    }
}

/// Port 0 asks for any free one, each time another.
pub(crate) fn any_port(address: &Address) -> bool {
    address.socket().is_some_and(|socket| socket.port() == 0)
}

/// An address where TLS is not spoken from the first byte: of NBD, whose clients ask for it.
pub(crate) fn without_tls(text: &str) -> Result<Address, String> {
    match text.parse::<Address>() {
        Ok(address) if address.is_tls() => Err(format!(
            "{address}: only stores and the admin API listen at tls: addresses; write {} here (NBD speaks TLS by a table of its own: tls = {{ \
             certificate = \"...\", key = \"...\" }})",
            address
                .socket()
                .map(|it| it.to_string())
                .unwrap_or_default()
        )),
        Ok(address) => Ok(address),
        Err(error) => Err(error.to_string()),
    }
}

/// `90s`, `10m`, `1h 30m`.
pub fn read_span(text: &str) -> Result<Nanos, String> {
    let span = humantime::parse_duration(text)
        .map_err(|why| format!("'{text}' is not a span of time ({why}); write such as \"10m\""))?;
    u64::try_from(span.as_nanos())
        .map(Nanos)
        .map_err(|_| format!("'{text}' is longer than 500 years"))
}

/// Permissions such as `0660`.
pub(crate) fn read_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
        format!(
            "'{text}' is no set of permissions; write octal digits such as \"0660\" (owner and group connect), \"0600\" \
             (the owner alone) or \"0666\" (every user)"
        )
    })
}

pub(crate) fn read_direct(text: &str) -> Result<Direct, String> {
    match text {
        "yes" => Ok(Direct::Yes),
        "no" => Ok(Direct::No),
        "auto" => Ok(Direct::Auto),
        other => Err(format!(
            "'{other}' is not one of \"auto\" (around the page cache where the target allows it), \
             \"yes\" and \"no\""
        )),
    }
}

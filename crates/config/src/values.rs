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
    pub(crate) fn find(&self, name: &str) -> Result<(), String> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        let known = self.names.iter().map(String::as_str);
        Err(format!(
            "there is no [[device]], [[stripe]] or [[hybrid]] called \"{name}\"{}",
            instead(name, known, "there are")
        ))
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

pub(crate) fn read_name(keys: &mut Keys<'_, '_>, things: &mut Things) -> Option<String> {
    let Some(At { value: name, at }) = keys.take::<String>("name") else {
        keys.complain("", "name is missing; write name = \"...\"");
        return None;
    };
    if let Err(what) = check_name(&name) {
        keys.complain_at(at, "name", what);
        return None;
    }
    if things.names.contains(&name) {
        let what = format!("\"{name}\" is taken already; every device and hybrid has its own name");
        keys.complain_at(at, "name", what);
        return None;
    }
    things.names.push(name.clone());
    Some(name)
}

/// Is the address out of reach of other machines?
pub fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(socket) => match socket.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        },
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

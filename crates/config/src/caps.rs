//! `max_read`, `max_write`, `max_read_iops`, `max_write_iops`: what clients get at most.
//!
//! Always true: what was read lets something pass.

use policy::share::BytesPerSec;
use policy::share::cap::Caps;

use super::keys::Keys;

/// The keys, in the order of [`change`]'s texts.
pub const KEYS: [&str; 4] = ["max_read", "max_write", "max_read_iops", "max_write_iops"];

/// `100MB/s`, or `off`.
fn rate(text: &str) -> Result<Option<BytesPerSec>, String> {
    match text {
        "off" => Ok(None),
        text => match text.parse::<BytesPerSec>() {
            Ok(rate) => Ok(Some(rate)),
            Err(error) => Err(format!("{error}, or \"off\"")),
        },
    }
}

/// `500`, or `off`.
fn requests(text: &str) -> Result<Option<u64>, String> {
    match text {
        "off" => Ok(None),
        text => match text.parse::<u64>() {
            Ok(requests) => Ok(Some(requests)),
            Err(_) => Err(format!(
                "'{text}' is no number of requests in a second; write such as 500, or \"off\""
            )),
        },
    }
}

/// `caps` with what `texts` say, in the order of [`KEYS`]; what is `None` stays.
///
/// # Errors
/// The key that cannot be, and why.
pub fn change(caps: Caps, texts: [Option<&str>; 4]) -> Result<Caps, (&'static str, String)> {
    let mut new = caps;
    for (key, text) in KEYS.into_iter().zip(texts) {
        let Some(text) = text else { continue };
        let set = match key {
            "max_read" => rate(text).map(|it| new.read.bytes = it),
            "max_write" => rate(text).map(|it| new.write.bytes = it),
            "max_read_iops" => requests(text).map(|it| new.read.requests = it),
            _ => requests(text).map(|it| new.write.requests = it),
        };
        let checked = set.and_then(|()| new.check().map_err(|error| error.to_string()));
        checked.map_err(|what| (key, what))?;
    }
    Ok(new)
}

/// Reads them; rates are texts, and requests numbers or texts.
pub(super) fn read_caps(keys: &mut Keys<'_, '_>) -> Caps {
    #[derive(serde::Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a rate such as \"100MB/s\" or a number of requests in a second such as 500, or \"off\""
    )]
    enum Value {
        Number(u64),
        Text(String),
    }
    let mut caps = Caps::default();
    for (place, key) in KEYS.into_iter().enumerate() {
        let Some(value) = keys.take::<Value>(key) else {
            continue;
        };
        let text = match value.value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
        };
        let mut texts = [None; 4];
        texts[place] = Some(&*text);
        match change(caps, texts) {
            Ok(new) => caps = new,
            Err((_, what)) => keys.complain_at(value.at, key, what),
        }
    }
    caps
}

//! A capability set: what a reservation over several stores shows at each of them.
//!
//! ```text
//! tanadaset1.<base64url of [{store, address, token}]> -> the entry of a store and a direction
//! ```
//!
//! What a token says of itself is looked at to choose among them; the store verifies it.

use std::fs;

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use env::net::Address;
use report::terminal::Usage;
use reservations::capability::{SET, StoreCapability, decode_set};
use serde::Deserialize;

/// The entries, in the order of the reservation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CapabilitySet(Vec<StoreCapability>);

impl CapabilitySet {
    /// The set that `text` is; `None` if it is something else, such as one capability.
    ///
    /// # Errors
    /// Where it begins like a set and is none.
    pub fn parse(text: &str) -> anyhow::Result<Option<CapabilitySet>> {
        if !text.starts_with(SET) {
            return Ok(None);
        }
        match decode_set(text) {
            Some(all) => Ok(Some(CapabilitySet(all))),
            None => Err(anyhow!(
                "this is no capability set; pass the whole line that `tanada reservation create` printed"
            )),
        }
    }

    /// The entry for `direction` (any, if none is said) at `address`, or of the only store there is.
    ///
    /// # Errors
    /// If the store is not among them, or none is said and there are several.
    pub fn choose(
        &self,
        address: Option<&Address>,
        direction: Option<&str>,
    ) -> anyhow::Result<&StoreCapability> {
        let at = |entry: &&StoreCapability| match address {
            Some(address) => entry
                .address
                .parse()
                .is_ok_and(|known| same(&known, address)),
            None => true,
        };
        let here: Vec<&StoreCapability> = self.0.iter().filter(at).collect();
        let stores = |all: &[&StoreCapability]| {
            let mut stores: Vec<String> = all.iter().map(|it| it.store.clone()).collect();
            stores.sort();
            stores.dedup();
            stores.len()
        };
        if stores(&here) != 1 {
            let known: Vec<&str> = self.0.iter().map(|it| &*it.address).collect();
            let said = format!("which store? say --store with one of {}", known.join(", "));
            return Err(Usage(said).into());
        }
        let fits = |entry: &&&StoreCapability| {
            direction.is_none_or(|wanted| direction_of(&entry.token).as_deref() == Some(wanted))
        };
        // One for the other direction is refused by the store, with its own words.
        let found = here.iter().find(fits).or(here.first());
        Ok(found.expect("one store at least"))
    }
}

/// Do both lead to the same place? A socket may be written in more than one way.
fn same(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Unix(a), Address::Unix(b)) => {
            a == b
                || fs::canonicalize(a)
                    .ok()
                    .is_some_and(|a| Some(a) == fs::canonicalize(b).ok())
        }
        _ => a == b,
    }
}

/// What a token says of its direction.
fn direction_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Payload {
        direction: String,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let payload: Payload = serde_json::from_slice(&payload).ok()?;
    Some(payload.direction)
}

#[cfg(test)]
mod tests {
    use reservations::capability::encode_set;

    use super::*;

    fn entry(store: &str, address: &str, direction: &str) -> StoreCapability {
        let payload = format!("{{\"direction\": \"{direction}\"}}");
        StoreCapability {
            store: store.to_owned(),
            address: address.to_owned(),
            token: format!("tanada1.{}.x", URL_SAFE_NO_PAD.encode(payload)),
        }
    }

    fn set(all: &[StoreCapability]) -> CapabilitySet {
        let text = encode_set(all).unwrap();
        CapabilitySet::parse(&text).unwrap().unwrap()
    }

    #[test]
    fn an_entry_is_chosen_by_store_and_direction() {
        let all = [
            entry("a", "127.0.0.1:1", "read"),
            entry("a", "127.0.0.1:1", "write"),
            entry("b", "127.0.0.1:2", "read"),
        ];
        let set = set(&all);
        let (first, second): (Address, Address) = (
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        );
        assert_eq!(set.choose(Some(&first), Some("write")).unwrap(), &all[1]);
        assert_eq!(set.choose(Some(&first), None).unwrap(), &all[0]);
        assert_eq!(set.choose(Some(&second), Some("write")).unwrap(), &all[2]);
        let none = set.choose(None, None).unwrap_err().to_string();
        assert!(none.contains("127.0.0.1:2"), "{none}");
        let elsewhere: Address = "127.0.0.1:3".parse().unwrap();
        assert!(set.choose(Some(&elsewhere), None).is_err());
        let one = self::set(&all[..2]);
        assert_eq!(one.choose(None, Some("write")).unwrap(), &all[1]);
    }

    #[test]
    fn what_is_no_set_is_left_and_what_looks_like_one_is_refused() {
        assert_eq!(CapabilitySet::parse("tanada1.x.y").unwrap(), None);
        for odd in ["tanadaset1.", "tanadaset1.!", "tanadaset1.W10"] {
            let refused = CapabilitySet::parse(odd).unwrap_err().to_string();
            assert!(refused.contains("no capability set"), "{refused}");
        }
    }
}

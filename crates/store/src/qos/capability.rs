//! A reservation as a token: a client that shows it may use what was reserved, and the store asks no other component.
//!
//! ```text
//! Grant -> Signer::sign -> "tanada1.<payload>.<signature>" -> Keyring::verify -> Grant | why not
//! ```
//!
//! The payload is JSON, the signature Ed25519 over everything before the last dot; both are written in base64url
//! without padding. The payload names the key it was signed with, so keys can change: the signer signs with the
//! new one, the ring goes on accepting the old public key until the last grant signed with it has ended.
//!
//! What took the place of another reservation keeps, as `first`, a digest of the first one's grant; a part of a reservation
//! over several stores one of the whole. So the capability of any of them tells that they are one reservation, which was
//! renewed. The store then goes by the last one's slot.
//!
//! Pure: time is an argument, and nothing but the ring is looked at.
//!
//! Source: PROBS 3.1 (the storage manager signs what it allots; the server in front of the device verifies it).
//!
//! Choice: all of the form; the paper names none. Clocks differ, so a signature is good `skew` seconds before the grant
//! begins and after it ends. Early clients are let in without a promise. After the end no client is let in: by its own
//! clock the store has forgotten the reservation by then. What is *promised* goes by the store's own clock, too.
//!
//! Always true:
//! 1. A text that differs in any bit from one that was signed is refused.
//! 2. Of what a signature covers only the key's name is looked at before the signature was.

mod error;

use std::fmt;

use base::{Bytes, Nanos};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use policy::share::calendar::BookingId;
use policy::share::{BytesPerSec, Contract, Direction, Probability, Second, Slot};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::error::CapabilityError;
use crate::object::types::NAME_MAX;

/// What a capability begins with: its form and version.
const PREFIX: &str = "tanada1";
/// The longest text looked at: a scope of the longest name, each byte escaped, and the rest.
const TEXT_MAX: usize = 12 << 10;

/// What a capability allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The reservation it is of.
    pub reservation: BookingId,
    /// The store's number.
    pub store: u128,
    /// Objects whose names begin with this; empty: all.
    pub scope: String,
    /// Reads or writes.
    pub direction: Direction,
    /// What is promised.
    pub rate: BytesPerSec,
    /// The window it is judged by.
    pub window: Nanos,
    /// The share of windows that keep it.
    pub probability: Probability,
    /// Room booked for what is written; zero for none.
    pub space: Bytes,
    /// When.
    pub slot: Slot,
    /// What it has in common with all that take its place: of a part of a reservation over several stores
    /// [`of_whole`](Grant::of_whole), else the [`lineage`](Grant::lineage) of the first one. `None`: it took the place of none.
    pub first: Option<u128>,
}

impl Grant {
    /// The grant of a reservation in a store that took the place of no other one.
    pub fn of(reservation: BookingId, store: u128, scope: String, contract: &Contract) -> Grant {
        Grant {
            reservation,
            store,
            scope,
            direction: contract.direction,
            rate: contract.rate,
            window: contract.window,
            probability: contract.probability,
            space: contract.space,
            slot: contract.slot,
            first: None,
        }
    }

    /// What parts of `whole` have in common at `store`, in one scope and direction, also one that was lost and made anew.
    pub fn of_whole(whole: u128, store: u128, scope: &str, direction: Direction) -> u128 {
        let mut digest = Sha256::new();
        digest.update(whole.to_be_bytes());
        digest.update(store.to_be_bytes());
        digest.update(direction.name());
        // Its end is the end: nothing follows.
        digest.update(scope);
        u128::from_be_bytes(*digest.finalize().first_chunk().expect("32 bytes"))
    }

    /// What it has in common with all that take its place, and with nothing else: what was written down as `first`, or a
    /// digest of its own.
    pub fn lineage(&self) -> u128 {
        self.first.unwrap_or_else(|| {
            let payload = serde_json::to_vec(&Payload::of(self, KeyId(0)));
            let digest = Sha256::digest(payload.expect("numbers and texts"));
            u128::from_be_bytes(*digest.first_chunk().expect("32 bytes"))
        })
    }
}

/// The name of a key: the first half of its public key's first 16 bytes, in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

impl KeyId {
    fn of(public: &[u8; 32]) -> KeyId {
        let first = public.first_chunk().expect("32 bytes");
        KeyId(u64::from_be_bytes(*first))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The payload as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    key: String,
    reservation: u64,
    store: String,
    scope: String,
    direction: String,
    rate: u64,
    window_ns: u64,
    probability_ppm: u32,
    space: u64,
    from: u64,
    until: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<String>,
}

impl Payload {
    fn of(grant: &Grant, key: KeyId) -> Payload {
        Payload {
            key: key.to_string(),
            reservation: grant.reservation.0,
            store: format!("{:032x}", grant.store),
            scope: grant.scope.clone(),
            direction: grant.direction.name().to_owned(),
            rate: grant.rate.0,
            window_ns: grant.window.0,
            probability_ppm: grant.probability.0,
            space: grant.space.0,
            from: grant.slot.start.0,
            until: grant.slot.end.0,
            first: grant.first.map(|it| format!("{it:032x}")),
        }
    }

    fn key(&self) -> Result<KeyId, CapabilityError> {
        let key = (self.key.len() == 16).then(|| u64::from_str_radix(&self.key, 16));
        match key {
            Some(Ok(key)) => Ok(KeyId(key)),
            _ => Err(malformed("it names no key")),
        }
    }

    fn grant(self) -> Result<Grant, CapabilityError> {
        let store = u128::from_str_radix(&self.store, 16);
        let direction = Direction::ALL
            .into_iter()
            .find(|it| it.name() == self.direction);
        let first = self.first.map(|it| u128::from_str_radix(&it, 16));
        let first = first.transpose();
        if self.scope.len() > NAME_MAX {
            return Err(malformed("its scope is longer than a name"));
        }
        if self.window_ns == 0 || self.rate == 0 || self.probability_ppm > 1_000_000 {
            return Err(malformed("it promises what no store can promise"));
        }
        Ok(Grant {
            reservation: BookingId(self.reservation),
            store: store.map_err(|_| malformed("it names no store"))?,
            scope: self.scope,
            direction: direction.ok_or(malformed("it is for neither reads nor writes"))?,
            rate: BytesPerSec(self.rate),
            window: Nanos(self.window_ns),
            probability: Probability(self.probability_ppm),
            space: Bytes(self.space),
            slot: Slot {
                start: Second(self.from),
                end: Second(self.until),
            },
            first: first.map_err(|_| malformed("it names no first one"))?,
        })
    }
}

const fn malformed(why: &'static str) -> CapabilityError {
    CapabilityError::Malformed { why }
}

/// Signs grants.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::share::{BytesPerSec, Contract, Direction, Second, Slot, calendar::BookingId};
/// use store::qos::capability::{CapabilityError, Grant, Keyring, Signer};
/// let signer = Signer::new(&[7; 32]);
/// let mut ring = Keyring::default();
/// ring.accept(signer.public(), Second(0), None);
/// let slot = Slot::new(Second(1000), 60);
/// let contract = Contract::new(BytesPerSec::mb(85), Direction::Read, slot);
/// let grant = Grant::of(BookingId(3), 77, "songs/".to_owned(), &contract);
/// let token = signer.sign(&grant);
/// assert_eq!(ring.verify(&token, 77, Second(1030), 5), Ok(grant));
/// let early = ring.verify(&token, 77, Second(900), 5);
/// assert!(matches!(early, Err(CapabilityError::NotYet { wait: 100, .. })));
/// ```
pub struct Signer {
    key: SigningKey,
}

impl Signer {
    /// From 32 secret bytes.
    pub fn new(secret: &[u8; 32]) -> Signer {
        Signer {
            key: SigningKey::from_bytes(secret),
        }
    }

    /// The public key, for rings.
    pub fn public(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// The key's name.
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.public())
    }

    /// The capability of `grant`. The same grant gives the same text.
    pub fn sign(&self, grant: &Grant) -> String {
        let payload = serde_json::to_vec(&Payload::of(grant, self.id()));
        let payload = payload.expect("numbers and texts");
        let signed = format!("{PREFIX}.{}", URL_SAFE_NO_PAD.encode(payload));
        let signature = self.key.sign(signed.as_bytes()).to_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.id())
    }
}

/// A public key, and when it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The key.
    pub public: [u8; 32],
    /// From then on.
    pub from: Second,
    /// To just before then; `None`: for good.
    pub until: Option<Second>,
}

impl Accepted {
    /// The key's name.
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.public)
    }

    /// Is it accepted at `now`, if clocks differ by no more than `skew` seconds?
    fn at(&self, now: Second, skew: u64) -> bool {
        let over = |until: Second| until.0.saturating_add(skew) <= now.0;
        self.from.0 <= now.0.saturating_add(skew) && !self.until.is_some_and(over)
    }
}

/// The public keys whose signatures are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    keys: Vec<Accepted>,
}

impl Keyring {
    /// Accepts no key but `public` any more, if it was accepted.
    pub fn void_others(&mut self, public: &[u8; 32]) {
        self.keys.retain(|key| key.public == *public);
    }

    /// Accepts a key; if it is known already, from the earlier of both times on and to the later.
    pub fn accept(&mut self, public: [u8; 32], from: Second, until: Option<Second>) {
        match self.keys.iter_mut().find(|key| key.public == public) {
            Some(known) => {
                known.from = known.from.min(from);
                known.until = match (known.until, until) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    _ => None,
                };
            }
            None => self.keys.push(Accepted {
                public,
                from,
                until,
            }),
        }
    }

    /// Accepts a key no longer than `until`.
    pub fn retire(&mut self, public: &[u8; 32], until: Second) {
        for key in &mut self.keys {
            if key.public == *public {
                key.until = Some(key.until.map_or(until, |old| old.min(until)));
            }
        }
    }

    /// Forgets keys that are accepted no more; were there any?
    pub fn forget(&mut self, now: Second, skew: u64) -> bool {
        let before = self.keys.len();
        let over = |until: Second| until.0.saturating_add(skew) <= now.0;
        self.keys.retain(|key| !key.until.is_some_and(over));
        self.keys.len() < before
    }

    /// All keys, in the order they were accepted.
    pub fn keys(&self) -> &[Accepted] {
        &self.keys
    }

    /// What `token` allows in `store` at `now`, if clocks differ by no more than `skew` seconds.
    ///
    /// # Errors
    /// [`CapabilityError`]: one for each thing that can be wrong, the first that is.
    pub fn verify(
        &self,
        token: &str,
        store: u128,
        now: Second,
        skew: u64,
    ) -> Result<Grant, CapabilityError> {
        let signed = self.read(token)?;
        signed.check(signed.grant.slot, store, now, skew)?;
        Ok(signed.grant)
    }

    /// What `token` says, if it was signed with a key of the ring. When and where it is good is not looked at.
    ///
    /// # Errors
    /// [`CapabilityError`] if it is malformed, forged, or signed with a key that is not known.
    pub fn read(&self, token: &str) -> Result<Signed, CapabilityError> {
        if token.len() > TEXT_MAX {
            return Err(malformed("it is far too long"));
        }
        let (signed, signature) = token
            .rsplit_once('.')
            .ok_or(malformed("it has no signature"))?;
        let payload = match signed.split_once('.') {
            Some((PREFIX, payload)) => payload,
            _ => return Err(malformed("it does not begin with \"tanada1.\"")),
        };
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let signature: [u8; 64] = decoded(signature)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(malformed("its signature is none"))?;
        let payload = decoded(payload).ok_or(malformed("it is not base64url"))?;
        let payload: Payload =
            serde_json::from_slice(&payload).map_err(|_| malformed("its fields are others"))?;
        let named = payload.key()?;
        let key = self.keys.iter().find(|key| key.id() == named);
        let key = key.ok_or(CapabilityError::UnknownKey { key: named })?;
        VerifyingKey::from_bytes(&key.public)
            .and_then(|public| {
                public.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature))
            })
            .map_err(|_| CapabilityError::BadSignature)?;
        Ok(Signed {
            grant: payload.grant()?,
            key: *key,
        })
    }
}

/// A capability that was signed with a key of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// What it says.
    pub grant: Grant,
    key: Accepted,
}

impl Signed {
    /// Is it good in `store` at `now`, if its reservation has `slot`?
    ///
    /// # Errors
    /// [`CapabilityError`]: one for each thing that can be wrong, the first that is.
    pub fn check(
        &self,
        slot: Slot,
        store: u128,
        now: Second,
        skew: u64,
    ) -> Result<(), CapabilityError> {
        in_time(self.grant.reservation, slot, now, skew)?;
        self.is_accepted(store, now, skew)
    }

    /// The same without a look at its reservation's slot.
    ///
    /// # Errors
    /// [`CapabilityError`] if its key is not accepted now, or it is for another store.
    pub fn is_accepted(&self, store: u128, now: Second, skew: u64) -> Result<(), CapabilityError> {
        if !self.key.at(now, skew) {
            return Err(CapabilityError::KeyRetired {
                key: self.key.id(),
                from: self.key.from,
                until: self.key.until.unwrap_or(Second(u64::MAX)),
                now,
            });
        }
        if self.grant.store != store {
            return Err(CapabilityError::WrongStore {
                granted: self.grant.store,
                here: store,
            });
        }
        Ok(())
    }
}

/// Has the slot of `reservation` begun, and not ended?
fn in_time(
    reservation: BookingId,
    slot: Slot,
    now: Second,
    skew: u64,
) -> Result<(), CapabilityError> {
    let Slot { start, end } = slot;
    if now.0.saturating_add(skew) < start.0 {
        return Err(CapabilityError::NotYet {
            reservation,
            begins: start,
            now,
            wait: start.0 - now.0,
            skew,
        });
    }
    if now.0 >= end.0.saturating_add(skew) {
        return Err(CapabilityError::Expired {
            reservation,
            ended: end,
            now,
            ago: now.0 - end.0,
            skew,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORE: u128 = 0x1234_5678_9abc_def0_1122_3344_5566_7788;

    fn grant(scope: &str) -> Grant {
        let slot = Slot::new(Second(1_000), 60);
        let contract = Contract {
            space: Bytes::mib(3),
            ..Contract::new(BytesPerSec::mb(85), Direction::Write, slot)
        };
        Grant::of(BookingId(3), STORE, scope.to_owned(), &contract)
    }

    fn signer_and_ring() -> (Signer, Keyring) {
        let signer = Signer::new(&[7; 32]);
        let mut ring = Keyring::default();
        ring.accept(signer.public(), Second(0), None);
        (signer, ring)
    }

    fn refusal(answer: Result<Grant, CapabilityError>) -> String {
        answer.unwrap_err().to_string()
    }

    #[test]
    fn what_was_signed_is_what_is_read() {
        let (signer, ring) = signer_and_ring();
        for scope in ["", "songs/", "ü \"\\\n", &"n".repeat(NAME_MAX)] {
            let token = signer.sign(&grant(scope));
            assert_eq!(
                ring.verify(&token, STORE, Second(1_030), 0),
                Ok(grant(scope))
            );
            assert_eq!(token, signer.sign(&grant(scope)));
        }
        let worst = signer.sign(&grant(&"\u{1}".repeat(NAME_MAX)));
        assert!(
            ring.verify(&worst, STORE, Second(1_030), 0).is_ok(),
            "{}",
            worst.len()
        );
    }

    #[test]
    fn a_flipped_bit_anywhere_is_refused() {
        let (signer, ring) = signer_and_ring();
        let token = signer.sign(&grant("songs/"));
        assert!(ring.verify(&token, STORE, Second(1_030), 0).is_ok());
        let mut looked_at = 0;
        for at in 0..token.len() {
            for bit in 0..8 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(flipped) = String::from_utf8(bytes) else {
                    continue;
                };
                looked_at += 1;
                let answer = ring.verify(&flipped, STORE, Second(1_030), 0);
                assert!(answer.is_err(), "bit {bit} of byte {at}: {answer:?}");
            }
        }
        assert!(looked_at > 7 * token.len() / 8 * 7);
        for cut in 0..token.len() {
            assert!(ring.verify(&token[..cut], STORE, Second(1_030), 0).is_err());
        }
        assert!(
            ring.verify(&format!("{token}="), STORE, Second(1_030), 0)
                .is_err()
        );
    }

    #[test]
    fn a_grant_holds_in_its_slot_and_a_little_around_it() {
        let (signer, ring) = signer_and_ring();
        let token = signer.sign(&grant(""));
        let at = |second, skew| ring.verify(&token, STORE, Second(second), skew);
        for (second, skew) in [(1_000, 0), (1_059, 0), (995, 5), (1_064, 5)] {
            assert!(at(second, skew).is_ok(), "{second} {skew}");
        }
        assert_eq!(
            refusal(at(994, 5)),
            "the capability of reservation 3 begins in 6 s (at second 1000, it is second 994 here, 5 s of \
             difference are allowed): come back then; if it should have begun, this store's clock is behind"
        );
        assert_eq!(
            refusal(at(1_065, 5)),
            "the capability of reservation 3 ended 5 s ago (at second 1060, it is second 1065 here, 5 s of \
             difference are allowed); reserve anew, or set the clocks if they disagree"
        );
        assert!(at(0, u64::MAX).is_ok());
    }

    #[test]
    fn each_thing_that_is_wrong_has_its_own_words() {
        let (signer, ring) = signer_and_ring();
        let token = signer.sign(&grant(""));
        let now = Second(1_030);
        assert!(refusal(ring.verify(&token, 5, now, 0)).contains("is for store 123456789abcdef0"));
        let other = Signer::new(&[8; 32]);
        let unknown = refusal(ring.verify(&other.sign(&grant("")), STORE, now, 0));
        assert!(unknown.contains(&format!(
            "key {}, which this store does not know",
            other.id()
        )));
        // The payload of one with the signature of another.
        let (payload, _) = token.rsplit_once('.').unwrap();
        let stolen = signer.sign(&grant("songs/"));
        let (_, signature) = stolen.rsplit_once('.').unwrap();
        let forged = ring.verify(&format!("{payload}.{signature}"), STORE, now, 0);
        assert_eq!(forged, Err(CapabilityError::BadSignature));
        for (text, why) in [
            ("", "it has no signature"),
            ("tanada2.e30.e30", "it does not begin with \"tanada1.\""),
            ("tanada1.e30.e30", "its signature is none"),
        ] {
            let found = ring.verify(text, STORE, now, 0);
            assert_eq!(found, Err(malformed(why)), "{text}");
        }
        let long = "x".repeat(TEXT_MAX + 1);
        assert_eq!(
            ring.verify(&long, STORE, now, 0),
            Err(malformed("it is far too long"))
        );
    }

    #[test]
    fn what_took_the_place_of_another_is_of_its_lineage_and_nothing_else_is() {
        let (signer, ring) = signer_and_ring();
        let first = grant("songs/");
        let second = Grant {
            reservation: BookingId(9),
            rate: BytesPerSec::mb(10),
            slot: Slot::new(Second(1_030), 60),
            first: Some(first.lineage()),
            ..first.clone()
        };
        assert_eq!(
            (first.lineage(), second.lineage()),
            (first.lineage(), first.lineage())
        );
        let token = signer.sign(&second);
        assert_eq!(ring.verify(&token, STORE, Second(1_050), 0), Ok(second));
        // The number alone, given again by a store that was put back, is not enough.
        for other in [
            Grant {
                slot: Slot::new(Second(1_001), 60),
                ..first.clone()
            },
            Grant {
                rate: BytesPerSec::mb(84),
                ..first.clone()
            },
            Grant {
                reservation: BookingId(4),
                ..first.clone()
            },
            Grant {
                store: 1,
                ..first.clone()
            },
        ] {
            assert_ne!(other.lineage(), first.lineage(), "{other:?}");
        }
        // It is written down in stores: a digest of these very bytes.
        assert_eq!(
            format!("{:032x}", first.lineage()),
            "a19a21f7b2c915ba5090b98d61670833"
        );
    }

    #[test]
    fn a_retired_key_is_accepted_to_its_end_and_the_new_one_from_the_start() {
        let (old, mut ring) = signer_and_ring();
        let token = old.sign(&grant(""));
        let new = Signer::new(&[9; 32]);
        ring.accept(new.public(), Second(0), None);
        ring.retire(&old.public(), Second(1_040));
        assert!(ring.verify(&token, STORE, Second(1_039), 0).is_ok());
        assert!(
            ring.verify(&new.sign(&grant("")), STORE, Second(1_059), 0)
                .is_ok()
        );
        let late = ring.verify(&token, STORE, Second(1_040), 0);
        assert!(
            matches!(late, Err(CapabilityError::KeyRetired { .. })),
            "{late:?}"
        );
        assert!(ring.forget(Second(1_040), 0) && !ring.forget(Second(1_040), 0));
        let forgotten = ring.verify(&token, STORE, Second(1_039), 0);
        assert!(matches!(forgotten, Err(CapabilityError::UnknownKey { .. })));
    }

    proptest! {
        #[test]
        fn no_text_upsets_it(text in "\\PC*", second: u64, skew: u64) {
            let (_, ring) = signer_and_ring();
            prop_assert!(ring.verify(&text, STORE, Second(second), skew).is_err());
            let dressed = format!("tanada1.{}.{}", URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode([7; 64]));
            prop_assert!(ring.verify(&dressed, STORE, Second(second), skew).is_err());
        }

        #[test]
        fn no_field_of_a_signed_payload_upsets_it(
            key in "[0-9a-f]{16}", store in "\\PC{0,40}", from: u64, until: u64, rate: u64, window_ns: u64,
            probability_ppm: u32, second: u64, skew: u64, ours: bool, first in proptest::option::of("\\PC{0,40}"),
        ) {
            let (signer, ring) = signer_and_ring();
            let payload = Payload {
                key: if ours { signer.id().to_string() } else { key },
                reservation: 1,
                store,
                scope: String::new(),
                direction: "read".to_owned(),
                rate,
                window_ns,
                probability_ppm,
                space: 0,
                from,
                until,
                first,
            };
            let payload = serde_json::to_vec(&payload).unwrap();
            let signed = format!("tanada1.{}", URL_SAFE_NO_PAD.encode(payload));
            let signature = signer.key.sign(signed.as_bytes()).to_bytes();
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
            let _ = ring.verify(&token, STORE, Second(second), skew).map_err(|error| error.to_string());
        }
    }
}

//! Bytes from outside: tokens that clients show, records that a meta store holds.

use proptest::prelude::*;

use crate::account::Account;
use crate::name::AccountName;
use crate::quota::{Commitment, Quota};
use crate::token::{Token, TokenError, TokenRecord};
use crate::usage::{COMMITMENTS_MAX, USAGE_BYTES_MAX, Usage};

fn fresh(seed: u64) -> Token {
    env::Runtime::simulated(seed).block_on(async { Token::fresh() })
}

#[test]
fn a_token_is_read_as_it_was_shown_and_its_secret_is_in_no_debug() {
    let token = fresh(1);
    let shown = token.reveal();
    assert_eq!(shown.len(), "tanada_".len() + 16 + 1 + 43);
    assert_eq!(Token::parse(&shown).unwrap().reveal(), shown);
    let (_, secret) = shown.rsplit_once('_').unwrap_or_default();
    assert!(!format!("{token:?}").contains(&secret[..6.min(secret.len())]) || secret.is_empty());
    let record = TokenRecord::new(
        &token,
        ("astro".parse().unwrap(), 5),
        (100, 50),
        String::new(),
    );
    let kept = String::from_utf8(record.encode()).unwrap();
    let secret = &shown["tanada_".len() + 17..];
    assert!(!kept.contains(secret), "{kept}");
    let read = TokenRecord::decode(&TokenRecord::key(token.id), kept.as_bytes());
    assert_eq!(read.unwrap(), (token.id, record.clone()));
    assert_eq!(record.judge(&token, 149), Ok(()));
    assert!(matches!(
        record.judge(&token, 150),
        Err(TokenError::Expired { ago: 0, .. })
    ));
    assert!(matches!(
        record.judge(&fresh(2), 0),
        Err(TokenError::Unknown(_))
    ));
}

#[test]
fn a_token_with_one_character_changed_is_another_or_none() {
    let token = fresh(3);
    let record = TokenRecord::new(&token, ("a".parse().unwrap(), 0), (0, 100), String::new());
    let shown = token.reveal();
    for at in 0..shown.len() {
        for other in ['A', 'f', '0', '_', '-', '=', ' ', '\n', '\u{e4}'] {
            let mut changed: Vec<char> = shown.chars().collect();
            if changed[at] == other {
                continue;
            }
            changed[at] = other;
            let changed: String = changed.into_iter().collect();
            match Token::parse(&changed) {
                Err(error) => assert_eq!(error, TokenError::Malformed),
                Ok(other) if other.id == token.id => {
                    assert!(record.judge(&other, 1).is_err(), "{changed}");
                }
                Ok(other) => assert_ne!(other.id, token.id),
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_is_taken_for_a_token_but_one(text in "\\PC{0,90}", tail in "[A-Za-z0-9_=-]{0,60}") {
        for odd in [text.clone(), format!("tanada_{text}"), format!("tanada_{tail}"), format!("tanada_0123456789abcdef_{tail}")] {
            if let Ok(token) = Token::parse(&odd) {
                prop_assert_eq!(token.reveal(), odd);
            }
        }
    }

    #[test]
    fn bytes_of_a_meta_store_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Account::decode("account/a", &bytes);
        let _ = Quota::decode("quota/a", &bytes);
        let _ = TokenRecord::decode("token/0123456789abcdef", &bytes);
        if let Ok(usage) = Usage::decode("usage/a", &bytes) {
            prop_assert_eq!(usage.encode(), bytes);
        }
    }

    #[test]
    fn a_usage_is_read_as_it_was_written_and_its_parts_are_refused(
        all in prop::collection::vec((any::<u128>(), any::<u64>(), 0..1_u64 << 40, 1..u32::MAX, any::<u64>()), 0..20),
        now in 0..1_u64 << 40,
        cut in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let mut usage = Usage::default();
        for (id, rate, from, length, space) in all {
            let commitment = Commitment { id, rate, from, until: from + u64::from(length), space };
            usage = usage.with(&commitment, now);
        }
        let bytes = usage.encode();
        prop_assert_eq!(&Usage::decode("usage/a", &bytes).unwrap(), &usage);
        let end = cut.index(bytes.len());
        prop_assert!(Usage::decode("usage/a", &bytes[..end]).is_err());
        let mut changed = bytes.clone();
        let at = flip.index(bytes.len());
        changed[at] ^= 0x80;
        if let Ok(other) = Usage::decode("usage/a", &changed) {
            prop_assert_eq!(other.encode(), changed);
            // Whatever it says, it can be worked with.
            let new = Commitment { id: 1, rate: u64::MAX, from: now, until: now + 9, space: u64::MAX };
            let quota = Quota { rate: Some(1), booked: Some(1), room: Some(1), count: Some(1), ..Quota::default() };
            let _ = crate::quota::fits(&quota, &other, &new, now);
            let _ = other.with(&new, now).without(1, now + 5).encode();
        }
    }
}

#[test]
fn a_full_usage_fits_twice_into_a_transaction() {
    let mut usage = Usage::default();
    for id in 0..50 {
        let day = 86_400 * id;
        let over = Commitment {
            id: id.into(),
            rate: 1,
            from: day,
            until: day + 60,
            space: 0,
        };
        usage = usage.with(&over, day + 100);
    }
    assert!(
        usage.encode().len() < 1000,
        "what is over takes a line a day, thirty days long"
    );
    let bytes = 2 * USAGE_BYTES_MAX + 64 * 1024;
    assert!(bytes < vdisk::meta::TXN_BYTES_MAX, "{bytes}");
    const { assert!(USAGE_BYTES_MAX < vdisk::meta::VALUE_MAX) };
    assert_eq!(COMMITMENTS_MAX, 10_000);
}

#[test]
fn an_account_of_another_version_or_name_is_refused() {
    let good = br#"{"version":1,"name":"a/b","id":1,"role":"booker","state":"on","created":0}"#;
    assert!(Account::decode("account/a/b", good).is_ok());
    assert!(Account::decode("account/a", good).is_err(), "another's key");
    let text = String::from_utf8(good.to_vec()).unwrap();
    for odd in [
        text.replace(":1,\"name", ":2,\"name"),
        text.replace("booker", "root"),
        text.replace("\"id\"", "\"more\":1,\"id\""),
        text.replace("a/b", "a/b/c"),
    ] {
        assert!(
            Account::decode("account/a/b", odd.as_bytes()).is_err(),
            "{odd}"
        );
    }
    for odd in [
        "",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "a b",
        ".a",
        "a\n",
        "\u{e4}",
        &"a".repeat(65),
    ] {
        assert!(odd.parse::<AccountName>().is_err(), "{odd:?}");
    }
}

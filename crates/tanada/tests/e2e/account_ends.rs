//! Reservations of accounts, store by store: what they count against, whose they are, and what ends them.

use std::fs;
use std::path::Path;

use access::charge::charge_alone;
use access::quota::Commitment;
use serde_json::Value;
use vdisk::meta::{Op, Redb};

use crate::access::ask;
use crate::accounts::{account, get, post};
use crate::common::{Daemon, bearer, json, text};
use crate::store::STORES;

fn booking(stores: &[&str], rate: u64) -> Value {
    serde_json::json!({
        "stores": stores, "direction": "read", "rate_bytes_per_second": rate, "for_seconds": 600, "scope": "results/",
    })
}

fn used(dir: &Path, name: &str) -> (u64, u64) {
    let shown = json(dir, &["account", "show", name, "--json"]);
    let number = |key: &str| shown["used"][key].as_u64().expect("a number");
    (number("count"), number("rate_bytes_per_second"))
}

fn there_are(dir: &Path) -> usize {
    let all = json(dir, &["reservation", "list", "--parts", "--json"]);
    all.as_array().expect("a list").len()
}

#[test]
fn reservations_at_stores_count_against_the_quota_and_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    let astro = account(dir, "astro", "booker");
    let quota = ["--rate", "3MB/s", "--booked", "100TB"];
    text(dir, &[&["account", "set", "astro"], &quota[..]].concat());
    let book =
        |stores: &[&str], rate| post(&address, "/v1/reservations", &astro, &booking(stores, rate));
    let (code, made) = book(&["s0"], 2_000_000);
    assert_eq!(code, 200, "{made}");
    assert_eq!(used(dir, "astro"), (1, 2_000_000));
    let (code, said) = book(&["s0"], 2_000_000);
    assert!(
        code == 409
            && said["error"]
                .as_str()
                .unwrap()
                .contains("the quota of account astro"),
        "{said}"
    );
    // What would be over already takes nothing, whatever it asks for.
    let second = env::wall_clock().0 / base::Nanos::secs(1).0;
    let mut over = booking(&["s0"], u64::MAX);
    over["from_unix_seconds"] = (second - 2).into();
    over["for_seconds"] = 1.into();
    let (code, said) = post(&address, "/v1/reservations", &astro, &over);
    assert!(
        code == 422 && said.to_string().contains("is over"),
        "{said}"
    );
    // At each of several stores as much.
    assert_eq!(book(&["s0", "s1"], 600_000).0, 409);
    assert_eq!(book(&["s0", "s1"], 500_000).0, 200);
    assert_eq!(used(dir, "astro"), (2, 3_000_000));
    // What a store refuses is given back.
    text(dir, &["account", "set", "astro", "--rate", "none"]);
    assert_eq!(book(&["s0", "s1"], 40_000_000_000).0, 409);
    assert_eq!(used(dir, "astro"), (2, 3_000_000));
    for id in [made[0]["id"].as_str().unwrap(), "s1/1"] {
        let path = format!("/v1/reservations/{id}");
        let (code, said) = ask(&address, "DELETE", &path, &astro);
        assert_eq!(code, 200, "{said}");
    }
    assert_eq!((used(dir, "astro"), there_are(dir)), ((0, 0), 0));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn reservations_at_stores_end_with_their_account_and_none_inherits_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    // The daemon's owner books for a user, who gets an account of that name later.
    let mut for_ann = booking(&["s0"], 1_000_000);
    for_ann["holder"] = "ann".into();
    let (code, made) = post(&address, "/v1/reservations", &bearer(dir), &for_ann);
    assert_eq!(code, 200, "{made}");
    let of_ann = format!("/v1/reservations/{}", made[0]["id"].as_str().unwrap());
    let ann = account(dir, "ann", "booker");
    let (code, one) = get(&address, &of_ann, &ann);
    assert_eq!(
        (code, &one["capability"], &one["holder"]),
        (200, &Value::Null, &"".into())
    );
    assert_eq!(ask(&address, "DELETE", &of_ann, &ann).0, 403);
    assert_eq!(used(dir, "ann"), (0, 0));
    let capability = format!("{of_ann}/capability");
    assert_eq!(post(&address, &capability, &ann, &Value::Null).0, 403);
    let (_, one) = post(&address, &capability, &bearer(dir), &Value::Null);
    assert_eq!(
        one["capability"], made[0]["capability"],
        "it is the owner's still"
    );

    let astro = account(dir, "astro", "booker");
    let book = |headers: &str| {
        post(
            &address,
            "/v1/reservations",
            headers,
            &booking(&["s0", "s1"], 1_000_000),
        )
    };
    assert_eq!(book(&astro).0, 200);
    assert_eq!(there_are(dir), 3);
    text(dir, &["account", "set", "astro", "--off"]);
    assert_eq!((there_are(dir), used(dir, "astro")), (1, (0, 0)));
    text(dir, &["account", "set", "astro", "--on"]);
    assert_eq!(book(&astro).0, 200);
    text(dir, &["account", "delete", "astro"]);
    assert_eq!(there_are(dir), 1, "that of the daemon's owner");
    let later = account(dir, "astro", "booker");
    assert_eq!(used(dir, "astro"), (0, 0));
    assert_eq!(book(&astro).0, 401, "its token is gone");
    assert_eq!(book(&later).0, 200);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn what_a_crash_left_charged_is_given_back_and_what_was_booked_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    let astro = account(dir, "astro", "booker");
    let (code, made) = post(
        &address,
        "/v1/reservations",
        &astro,
        &booking(&["s0"], 1_000_000),
    );
    assert_eq!(code, 200, "{made}");
    let group = made[0]["group"].as_str().expect("its identity");
    let id = u128::from_str_radix(group, 16).unwrap();
    drop(daemon);
    // As if the daemon had died after the charge and before a store was asked.
    let file = dir.join("tanada-data/accounts.redb");
    let redb = Redb::open(&file).unwrap();
    let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
    let now = Commitment {
        id: id ^ 1,
        rate: 7,
        from: 0,
        until: u64::from(u32::MAX),
        space: 0,
    };
    let meta = redb.handle().client();
    let charged = runtime.block_on(async move {
        // Others that cannot be read, before it and behind it, keep nothing.
        for key in ["account/abc", "usage/abc", "account/zoo", "usage/zoo"] {
            let junk = Op::Put {
                key: key.to_owned(),
                value: b"junk".to_vec(),
                lease: None,
            };
            meta.txn(Vec::new(), vec![junk]).await.unwrap();
        }
        let name = "astro".parse().unwrap();
        charge_alone(&*meta, (&name, None), &now, 1).await
    });
    charged.unwrap();
    drop(redb);
    let daemon = Daemon::start(dir, STORES);
    // It is done beside what is asked: each look takes some milliseconds.
    let is_back = |_| used(dir, "astro") == (1, 1_000_000);
    assert!((0..1000).any(is_back), "{:?}", used(dir, "astro"));
    let id = made[0]["id"].as_str().unwrap();
    let path = format!("/v1/reservations/{id}/capability");
    let (_, one) = post(&daemon.admin_tcp(), &path, &astro, &Value::Null);
    assert_eq!(
        one["capability"], made[0]["capability"],
        "it is its own still"
    );
    assert!(fs::metadata(&file).is_ok());
    assert_eq!(daemon.stop().0, Some(0));
}

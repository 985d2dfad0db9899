//! Reservations over the cluster from outside: which account sees, changes, ends and shows whose.

use std::path::Path;

use serde_json::{Value, json};

use crate::accounts::account;
use crate::common::{Daemon, http, text};
use crate::queued::soon;

const CLUSTER: &str = r#"
[[device]]
name = "d1"
path = "d1.img"
size = "64MiB"
[[store]]
name = "s1"
device = "d1"
listen = "unix:s1.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:disks.sock"
[admin]
listen = ["unix:admin.sock", "127.0.0.1:0"]
"#;
const ALL: &str = "/v2/reservations";

/// One request of an account over TCP.
fn send(address: &str, what: &str, headers: &str, body: Option<&Value>) -> (u16, Value) {
    let body = body.map_or_else(String::new, Value::to_string);
    let request = format!(
        "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let (code, answer) = http(address, &request);
    (code, serde_json::from_str(&answer).expect("JSON"))
}

fn job(name: &str) -> Value {
    json!({
        "name": name, "account": "ann", "target": { "stores": ["s1"], "scope": "secret/" }, "read": "1MB/s",
        "for": "1h", "agent": "agent",
    })
}

/// A daemon whose store is registered, and the headers of accounts by their names.
fn begin(dir: &Path) -> (Daemon, Vec<(&'static str, String)>) {
    let daemon = Daemon::start(dir, CLUSTER);
    let roles = [
        ("reader", "reader"),
        ("bob", "booker"),
        ("agent", "booker"),
        ("ann", "booker"),
        ("oper", "operator"),
        ("admin", "admin"),
    ];
    let own = roles.map(|(name, role)| (name, account(dir, name, role)));
    soon(dir, &daemon, "GET /v1/cluster", None, |_, all| {
        all["stores"].as_array().is_some_and(|it| it.len() == 1)
    });
    (daemon, own.into())
}

#[test]
fn a_reservation_is_its_accounts_an_operators_to_change_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (daemon, own) = begin(dir);
    let address = daemon.admin_tcp();
    let of = |name: &str| &own.iter().find(|(it, _)| *it == name).unwrap().1;
    let ask = |what: &str, name: &str, body: Option<&Value>| send(&address, what, of(name), body);

    // Who makes one for ann? Its capability is hers in any case.
    for (name, status) in [
        ("reader", 403),
        ("bob", 403),
        ("agent", 403),
        ("oper", 201),
        ("admin", 201),
        ("ann", 201),
    ] {
        let made = ask(
            &format!("POST {ALL}"),
            name,
            Some(&job(&format!("by-{name}"))),
        );
        assert_eq!(made.0, status, "{name}: {}", made.1);
        let is_shown = made.1["capability"].is_string();
        assert_eq!(is_shown, name == "ann", "{name}: {}", made.1);
    }
    let id = ask(&format!("GET {ALL}/by-ann"), "ann", None).1;
    let id = id["id"].as_str().unwrap().to_owned();
    let one = format!("{ALL}/{id}");
    let (change, empty) = (json!({ "read": "2MB/s" }), json!({}));

    for (name, _) in &own {
        let (is_own, is_above) = (*name == "ann", matches!(*name, "oper" | "admin"));
        // Names are an operator's and its own.
        for what in [format!("GET {one}"), format!("GET {ALL}")] {
            let (status, shown) = ask(&what, name, None);
            assert_eq!(status, 200, "{name}: {what}: {shown}");
            let text = shown.to_string();
            for word in ["by-ann", "secret/", "\"ann\"", "\"agent\""] {
                assert_eq!(
                    text.contains(word),
                    is_own || is_above,
                    "{name}: {word} in {text}"
                );
            }
            assert!(!text.contains("tanadaset1."), "{name}: {text}");
        }
        // A capability is its account's and its agent's; no role has it.
        let (status, shown) = ask(&format!("POST {one}/capability"), name, Some(&empty));
        let has = is_own || *name == "agent";
        assert_eq!(status == 200, has, "{name}: {status} {shown}");
        assert_eq!(shown["capability"].is_string(), has, "{name}: {shown}");
        let (status, changed) = ask(&format!("PATCH {one}"), name, Some(&change));
        assert_eq!(
            status == 200,
            is_own || is_above,
            "{name}: {status} {changed}"
        );
        assert_eq!(
            changed["capability"].is_string(),
            is_own,
            "{name}: {changed}"
        );
    }
    for (name, _) in own
        .iter()
        .filter(|it| !matches!(it.0, "ann" | "oper" | "admin"))
    {
        let (status, refused) = ask(&format!("DELETE {one}"), name, None);
        assert_eq!(status, 403, "{name}: {refused}");
    }
    // An account's name is its own, whatever another one calls its own.
    let (status, none) = ask(&format!("GET {ALL}/by-ann"), "bob", None);
    assert_eq!(status, 404, "{none}");
    let (status, ended) = ask(&format!("DELETE {ALL}/by-oper"), "ann", None);
    assert_eq!((status, &ended["state"]), (200, &"ended".into()), "{ended}");
    let by_admin = format!("DELETE {ALL}/by-admin?account=ann");
    assert_eq!(ask(&by_admin, "oper", None).0, 200);

    // Switched off, what it has is over with the answer; why, is not for others.
    text(dir, &["account", "set", "ann", "--off"]);
    let (_, over) = ask(&format!("GET {one}"), "oper", None);
    assert_eq!(
        (&over["state"], &over["cause"]),
        (&"ended".into(), &"account ann is switched off".into()),
        "{over}"
    );
    let (_, over) = ask(&format!("GET {one}"), "bob", None);
    assert_eq!(
        (&over["state"], &over["cause"]),
        (&"ended".into(), &Value::Null)
    );
    assert_eq!(ask(&format!("GET {one}"), "ann", None).0, 401);
}

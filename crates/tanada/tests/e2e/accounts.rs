//! Accounts from outside: users and tokens, whose bookings are whose, what is noted, and what is refused when.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::access::{as_another, ask};
use crate::common::{Daemon, bearer, json, run, stderr, tanada, text};
use crate::store::STORES;

/// Makes a token of an account; the header that shows it, and the token.
fn token(dir: &Path, account: &str) -> (String, String) {
    let made = text(dir, &["token", "create", account]);
    let made = made.trim().to_owned();
    (format!("Authorization: Bearer {made}\r\n"), made)
}

pub fn account(dir: &Path, name: &str, role: &str) -> String {
    text(dir, &["account", "create", name, "--role", role]);
    token(dir, name).0
}

/// One request over TCP with a JSON body.
pub fn post(address: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let (code, answer) = crate::common::http(address, &request);
    (code, serde_json::from_str(&answer).expect("JSON"))
}

pub fn get(address: &str, path: &str, headers: &str) -> (u16, Value) {
    let (code, answer) = ask(address, "GET", path, headers);
    (code, serde_json::from_str(&answer).expect("JSON"))
}

fn booking(holder: &str) -> Value {
    serde_json::json!({
        "stores": ["s0"], "direction": "read", "rate_bytes_per_second": 1_000_000, "for_seconds": 600,
        "scope": "results/", "holder": holder,
    })
}

#[test]
fn every_role_has_its_own_bookings_and_none_the_capability_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    let roles = ["reader", "booker", "operator", "admin"];
    let own = roles.map(|role| (role, account(dir, role, role)));
    account(dir, "other", "booker");
    let other = token(dir, "other").0;
    let owner = bearer(dir);

    // One of another account, one of the daemon's owner, who has no account.
    let (code, made) = post(&address, "/v1/reservations", &other, &booking("some user"));
    assert_eq!(code, 200, "{made}");
    assert_eq!(
        made[0]["holder"], "other",
        "a name that is no account is the caller"
    );
    let others_capability = made[0]["capability"].as_str().unwrap().to_owned();
    let (_, made) = post(&address, "/v1/reservations", &owner, &booking("ann"));
    let owners_capability = made[0]["capability"].as_str().unwrap().to_owned();

    for (at, (role, headers)) in own.iter().enumerate() {
        let (code, made) = post(&address, "/v1/reservations", headers, &booking(""));
        assert_eq!(code, if at == 0 { 403 } else { 200 }, "{role} {made}");
        if at > 0 {
            let id = made[0]["id"].as_str().unwrap();
            let path = format!("/v1/reservations/{id}/capability");
            let (_, one) = post(&address, &path, headers, &Value::Null);
            assert_eq!(
                (&one["capability"], &one["holder"]),
                (&made[0]["capability"], &(*role).into())
            );
        }
        // For another account: an operator, who is not given what is that account's.
        let (code, made) = post(&address, "/v1/reservations", headers, &booking("other"));
        assert_eq!(code, if at < 2 { 403 } else { 200 }, "{role} {made}");
        if at >= 2 {
            assert_eq!(
                (&made[0]["holder"], &made[0]["capability"]),
                (&"other".into(), &Value::Null)
            );
        }
        // Of another account, and of none: names are an operator's, capabilities no role's.
        for number in [1, 2] {
            let path = format!("/v1/reservations/s0/{number}");
            let (code, said) = post(
                &address,
                &format!("{path}/capability"),
                headers,
                &Value::Null,
            );
            assert_eq!(code, 403, "{role} {said}");
            let (code, one) = get(&address, &path, headers);
            assert_eq!(
                (code, &one["capability"]),
                (200, &Value::Null),
                "{role} {one}"
            );
            let name = if number == 1 { "other" } else { "ann" };
            let (holder, scope) = if at < 2 { ("", "") } else { (name, "results/") };
            assert_eq!(
                (&one["holder"], &one["scope"]),
                (&holder.into(), &scope.into()),
                "{role}"
            );
        }
        for path in [
            "/v1/reservations",
            "/v1/stores/s0/calendar",
            "/v1/status",
            "/v1/stores",
        ] {
            let (code, page) = ask(&address, "GET", path, headers);
            assert_eq!(code, 200, "{path} {page}");
            assert!(!page.contains(&others_capability) && !page.contains(&owners_capability));
            assert!(
                at >= 2 || !page.contains("\"holder\":\"ann\""),
                "{role} {path} {page}"
            );
        }
    }
    let (_, one) = post(
        &address,
        "/v1/reservations/s0/1/capability",
        &other,
        &Value::Null,
    );
    assert_eq!(
        one["capability"],
        others_capability.as_str(),
        "its owner has it"
    );
    // The daemon's owner has what belongs to no account, and not what belongs to one.
    let (_, one) = post(
        &address,
        "/v1/reservations/s0/2/capability",
        &owner,
        &Value::Null,
    );
    assert_eq!(one["capability"], owners_capability.as_str());
    let (_, one) = get(&address, "/v1/reservations/s0/2", &owner);
    assert_eq!(one["capability"], Value::Null, "looking shows none");
    let (_, one) = get(&address, "/v1/reservations/s0/1", &owner);
    assert_eq!(
        (&one["capability"], &one["holder"]),
        (&Value::Null, &"other".into())
    );

    for (role, code) in [("reader", 403), ("booker", 403), ("operator", 200)] {
        let headers = &own.iter().find(|it| it.0 == role).unwrap().1;
        let (is, said) = ask(&address, "DELETE", "/v1/reservations/s0/1", headers);
        assert_eq!(is, code, "{role} {said}");
        assert!(code == 200 || said.contains("takes the role"), "{said}");
    }
    let all = json(dir, &["reservation", "list", "--parts", "--json"]);
    let own_one = all
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["holder"] == "booker")
        .unwrap();
    let path = format!("/v1/reservations/{}", own_one["id"].as_str().unwrap());
    let booker = &own[1].1;
    assert_eq!(
        ask(&address, "DELETE", &path, booker).0,
        200,
        "its own it cancels"
    );
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_user_whom_an_account_names_books_at_the_socket_without_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let config = STORES.replace("[admin]", "[admin]\nsocket_mode = \"0666\"");
    let daemon = Daemon::start(dir, &config);
    let admin = ["--admin", "unix:admin.sock"];
    let add = [
        "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1m", "--scope", "b/",
    ];
    let add = [&add[..], &admin].concat();
    let Some(refused) = as_another(dir, &add, None) else {
        return;
    };
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(said.contains("whom none names"), "{said}");
    let status = as_another(dir, &["status", "--admin", "unix:admin.sock"], None).unwrap();
    assert!(status.status.success(), "{}", stderr(&status));

    text(
        dir,
        &[
            "account", "create", "astro", "--role", "booker", "--group", "65534",
        ],
    );
    let made = as_another(dir, &add, None).unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let capability = String::from_utf8(made.stdout).unwrap();
    assert!(capability.starts_with("tanada1."), "{capability}");
    // By the port alone `tanada` finds the socket, which root serves.
    let port = daemon.admin_tcp();
    let capability_of = [
        "reservation",
        "capability",
        "s0/1",
        "--json",
        "--admin",
        &port,
    ];
    let show = as_another(dir, &capability_of, None);
    let show: Value = serde_json::from_slice(&show.unwrap().stdout).unwrap();
    assert_eq!(
        (&show["holder"], &show["capability"]),
        (&"astro".into(), &capability.trim().into())
    );
    let scrub = ["store", "scrub", "s0", "--admin", "unix:admin.sock"];
    let said = stderr(&as_another(dir, &scrub, None).unwrap());
    assert!(
        said.contains("takes the role operator")
            && said.contains("account set astro --role operator"),
        "{said}"
    );
    text(dir, &["account", "set", "astro", "--role", "operator"]);
    assert!(as_another(dir, &scrub, None).unwrap().status.success());
    text(dir, &["account", "set", "astro", "--off"]);
    assert!(!as_another(dir, &add, None).unwrap().status.success());
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn tokens_work_for_commands_and_end_at_once_and_all_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    assert!(
        !dir.join("tanada-data/accounts.redb").exists(),
        "made at first use"
    );
    let quota = ["--rate", "500MB/s", "--count", "20", "--length", "12h"];
    let create = [
        "account", "create", "astro", "--role", "booker", "--user", "nobody",
    ];
    text(dir, &[&create[..], &quota].concat());
    text(dir, &["account", "create", "astro/lsst"]);
    text(
        dir,
        &[
            "account", "set", "astro", "--count", "none", "--room", "1TiB",
        ],
    );
    let shown = json(dir, &["account", "show", "astro", "--json"]);
    assert_eq!(shown["users"][0], "nobody");
    let quota = serde_json::json!({
        "rate_bytes_per_second": 500_000_000, "length_seconds": 43_200, "room_bytes": 1_u64 << 40,
    });
    assert_eq!(shown["quota"], quota);
    let listed = text(dir, &["account", "list"]);
    assert!(
        listed.contains("astro/lsst") && listed.contains("booker"),
        "{listed}"
    );

    let (_, made) = token(dir, "astro");
    let with = |arguments: &[&str]| {
        let mut command = tanada(dir);
        command.args(arguments).env("TANADA_TOKEN", &made);
        command.output().expect("it starts")
    };
    let port = daemon.admin_tcp();
    for admin in ["unix:admin.sock", &port] {
        let own = with(&["account", "show", "astro", "--admin", admin]);
        assert!(own.status.success(), "{}", stderr(&own));
        let all = stderr(&with(&["account", "list", "--admin", admin]));
        assert!(all.contains("takes the role admin"), "{all}");
    }
    let id = &made["tanada_".len() + 12.."tanada_".len() + 16];
    let listed = text(dir, &["token", "list"]);
    assert!(
        listed.contains(&format!("..{id}")) && listed.contains("good"),
        "{listed}"
    );
    text(dir, &["token", "delete", id]);
    let said = stderr(&with(&["reservation", "list", "--parts"]));
    assert!(said.contains("was revoked"), "{said}");
    assert_eq!(
        text(dir, &["account", "delete", "astro"]),
        "deleted astro, astro/lsst\n"
    );

    let noted = text(dir, &["audit", "list"]);
    for part in [
        "POST /v1/accounts",
        "DELETE /v1/accounts/astro",
        "DELETE /v1/tokens/",
        "account astro, booker, by token",
        "user 0",
        "401",
        "403",
    ] {
        assert!(noted.contains(part), "{part} is not in\n{noted}");
    }
    assert!(!noted.contains(&made[24..]));
    assert_eq!(daemon.stop().0, Some(0));

    // The chain, with the daemon stopped; then with a line that was changed.
    let good = text(dir, &["audit", "verify"]);
    assert!(good.contains("all as they were written"), "{good}");
    let file = dir.join("tanada-data/audit.jsonl");
    let log = fs::read_to_string(&file).unwrap();
    fs::write(&file, log.replacen("\"answer\":200", "\"answer\":403", 1)).unwrap();
    let bad = run(dir, &["audit", "verify"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stderr(&bad).contains("line 2 of"), "{}", stderr(&bad));
    fs::write(&file, &log[..log.len() - 20]).unwrap();
    // What a crash left is cut at the next start, and noted; accounts outlast the daemon.
    let daemon = Daemon::start(dir, STORES);
    assert_eq!(text(dir, &["account", "list"]).lines().count(), 1);
    let noted = text(dir, &["audit", "list"]);
    assert!(noted.contains("of a line that a crash left"), "{noted}");
    assert_eq!(daemon.stop().0, Some(0));
    text(dir, &["audit", "verify"]);
}

#[test]
fn accounts_that_cannot_be_read_lock_out_tokens_and_not_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let headers = account(dir, "astro", "admin");
    let address = daemon.admin_tcp();
    assert_eq!(ask(&address, "GET", "/v1/stores", &headers).0, 200);
    assert_eq!(daemon.stop().0, Some(0));
    fs::write(
        dir.join("tanada-data/accounts.redb"),
        "this is no meta store",
    )
    .unwrap();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    let (code, said) = ask(&address, "GET", "/v1/stores", &headers);
    assert!(
        code == 503 && said.contains("cannot be looked up"),
        "{code} {said}"
    );
    assert_eq!(ask(&address, "GET", "/v1/stores", &bearer(dir)).0, 200);
    assert_eq!(ask(&address, "GET", "/healthz", "").0, 200);
    text(dir, &["store", "scrub", "s0"]);
    let add = [
        "reserve", "add", "--store", "s0", "--read", "1MB/s", "--for", "1m", "--scope", "b/",
    ];
    text(dir, &add);
    let refused = run(dir, &["account", "list"]);
    assert!(
        stderr(&refused).contains("cannot be looked up"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(daemon.stop().0, Some(0));
}

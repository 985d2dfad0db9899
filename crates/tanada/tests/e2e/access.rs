//! Who commands the daemon: its owner at the Unix socket, or the bearer of the token.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::program::install;

use crate::common::{Daemon, SMALL, bearer, http, json, run, stderr, text};
use crate::store::STORES;

/// One request over TCP with these headers.
pub fn ask(address: &str, method: &str, path: &str, headers: &str) -> (u16, String) {
    let body = match method {
        "GET" => "\r\n".to_owned(),
        _ => "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
    };
    let head = format!("Host: {address}\r\nConnection: close\r\n{headers}");
    http(
        address,
        &format!("{method} {path} HTTP/1.1\r\n{head}{body}"),
    )
}

/// Runs a copy of the program as a user without any rights; `None` where only root may do that.
pub fn as_another(dir: &Path, arguments: &[&str], token: Option<&Path>) -> Option<Output> {
    const NOBODY: u32 = 65534;
    if fs::metadata(dir).unwrap().uid() != 0 {
        println!("skipped: only root can take another user's place");
        return None;
    }
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir, open).unwrap();
    let program = dir.join("tanada");
    if !program.exists() {
        install(env!("CARGO_BIN_EXE_tanada"), &program);
    }
    let mut command = Command::new(program);
    command.current_dir(dir).uid(NOBODY).gid(NOBODY);
    command.env_remove("RUST_LOG").env_remove("TANADA_ADMIN");
    if let Some(token) = token {
        std::os::unix::fs::chown(token, Some(NOBODY), Some(NOBODY)).unwrap();
        command.env("TANADA_ADMIN_TOKEN_FILE", token);
    }
    Some(command.args(arguments).output().expect("it starts"))
}

/// What `GET` answers over TCP on loopback without a token, beside [`EVENTS`], which has no end.
const OPEN: [&str; 23] = [
    "/",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/v1/access",
    "/v1/cluster",
    "/v1/cluster/volumes",
    "/v1/cluster/volumes/{name}",
    "/v1/devices",
    "/v1/exports",
    "/v1/health",
    "/v1/jobs",
    "/v1/jobs/{id}",
    "/v1/status",
    "/v1/stores",
    "/v1/stores/{name}",
    "/v1/stores/{name}/calendar",
    "/v1/volumes",
    "/v1/volumes/{name}",
    "/v1/volumes/{name}/advice",
    "/v1/volumes/{name}/heat",
    "/v1/volumes/{name}/moves",
    "/web/{file}",
];
const EVENTS: &str = "/v1/events";

#[test]
fn over_tcp_a_stranger_reads_status_and_metrics_and_commands_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let address = daemon.admin_tcp();
    for path in OPEN {
        let path = path
            .replace("{name}", "vol0")
            .replace("{file}", "main.js")
            .replace("{id}", "1");
        let (code, said) = ask(&address, "GET", &path, "");
        let expected = match path.as_str() {
            "/v1/stores/vol0" | "/v1/stores/vol0/calendar" => 404,
            "/v1/cluster" | "/v1/cluster/volumes/vol0" => 404,
            "/v1/jobs/1" => 404,
            // No shadow watches it.
            "/v1/volumes/vol0/advice" => 409,
            _ => 200,
        };
        assert_eq!(code, expected, "{path} {said}");
    }
    // Every route of the document, with every method it has.
    let (_, document) = ask(&address, "GET", "/openapi.json", "");
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            if method == "GET" && (path == EVENTS || OPEN.contains(&path.as_str())) {
                continue;
            }
            let (code, refusal) = ask(&address, &method, path, "");
            assert_eq!(code, 401, "{method} {path}: {refusal}");
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    let (code, samples) = ask(&address, "GET", &format!("{EVENTS}?samples=2"), "");
    assert!(
        code == 200 && samples.matches("data: ").count() == 2,
        "{samples}"
    );
    let (_, refusal) = ask(&address, "POST", "/v1/volumes/vol0/detach", "");
    let refusal: Value = serde_json::from_str(&refusal).unwrap();
    let todo = refusal["what_to_do"].as_str().unwrap();
    assert!(
        todo.contains("/admin.sock") && todo.contains("/tanada-data/admin.token"),
        "{todo}"
    );
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["health"], "healthy", "nothing was detached");

    // With the token all of it works; with another one nothing does.
    let right = bearer(dir);
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(64));
    let detach = |headers| ask(&address, "POST", "/v1/volumes/vol0/detach", headers).0;
    assert_eq!((detach(&wrong), detach(&right)), (401, 200));
    assert_eq!(ask(&address, "GET", "/v1/status", &wrong).0, 401);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_capability_is_never_in_an_answer_to_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, STORES);
    let address = daemon.admin_tcp();
    let arguments = [
        "--store", "s0", "--read", "1MB/s", "--for", "1m", "--scope", "secrets/", "--holder", "ann",
    ];
    let capability = text(dir, &[&["reserve", "add"][..], &arguments].concat());
    let capability = capability.trim();
    let path = "/v1/reservations/s0/1/capability";
    let (code, one) = ask(&address, "POST", path, &bearer(dir));
    assert_eq!(code, 200, "{one}");
    assert!(one.contains(capability), "the owner has it: {one}");
    let printed = text(dir, &["reservation", "capability", "s0/1"]);
    assert_eq!(printed.trim(), capability);
    let page = text(dir, &["reservation", "show", "s0/1"]);
    assert!(!page.contains(capability), "{page}");
    let names_nothing = || {
        for path in OPEN.into_iter().chain(["/v1/events?samples=1"]) {
            let path = path.replace("{name}", "s0").replace("{file}", "main.js");
            let (_, text) = ask(&address, "GET", &path, "");
            for name in [capability, "\"ann\"", "secrets/"] {
                assert!(!text.contains(name), "{path} has {name}: {text}");
            }
        }
    };
    let owner_sees_who = |path: &str| {
        let (_, text) = ask(&address, "GET", path, &bearer(dir));
        assert!(text.contains("\"ann\""), "{path}: {text}");
    };
    // Booked, and among those that were.
    owner_sees_who("/v1/stores/s0/calendar");
    names_nothing();
    text(dir, &["reservation", "delete", "s0/1"]);
    owner_sees_who("/v1/stores/s0");
    names_nothing();
    for path in ["/v1/reservations", "/v1/reservations/s0/1", "/v1/settings"] {
        let (code, text) = ask(&address, "GET", path, "");
        assert!(code == 401 && !text.contains(capability), "{path}: {text}");
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn the_owner_commands_by_the_port_alone_also_where_no_socket_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let config = SMALL.replace("\"unix:admin.sock\", ", "");
    let daemon = Daemon::start(dir, &config);
    let port = daemon.admin_tcp();
    text(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "write=only-writes",
            "--admin",
            &port,
        ],
    );
    let volume = json(dir, &["volume", "show", "vol0", "--json", "--admin", &port]);
    assert_eq!(volume["settings"]["write"], "only-writes");
    let mode = |file: &str| {
        fs::metadata(dir.join("tanada-data").join(file))
            .unwrap()
            .mode()
    };
    assert_eq!(mode("admin.sock") & 0o777, 0o600);
    assert_eq!(mode("admin.token") & 0o777, 0o600);
    let token = bearer(dir);
    assert_eq!(daemon.stop().0, Some(0));
    // The token outlasts the daemon; one that others can read is not used.
    let daemon = Daemon::start(dir, &config);
    assert_eq!(bearer(dir), token);
    assert_eq!(daemon.stop().0, Some(0));
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(dir.join("tanada-data/admin.token"), open).unwrap();
    let refused = run(dir, &["serve", "tanada.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("chmod 600"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn another_user_looks_learns_whom_to_be_and_needs_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let port = daemon.admin_tcp();
    let Some(status) = as_another(dir, &["status", "--admin", &port], None) else {
        return;
    };
    assert!(status.status.success(), "{}", stderr(&status));

    let set = ["volume", "set", "vol0", "write=only-writes", "--admin"];
    let refused = as_another(dir, &[&set[..], &[&port]].concat(), None).unwrap();
    assert_eq!(refused.status.code(), Some(7));
    let said = stderr(&refused);
    assert!(
        said.contains("for the daemon's owner, user 0") && said.contains("TANADA_ADMIN_TOKEN_FILE"),
        "{said}"
    );
    let refused = as_another(dir, &[&set[..], &["unix:admin.sock"]].concat(), None).unwrap();
    let said = stderr(&refused);
    assert!(
        said.contains("open to the daemon's owner alone, user 0"),
        "{said}"
    );
    // A socket that was opened to all by hand: the peer's user counts.
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(dir.join("admin.sock"), open).unwrap();
    let refused = as_another(dir, &[&set[..], &["unix:admin.sock"]].concat(), None).unwrap();
    let said = stderr(&refused);
    assert!(said.contains("obeys its owner, user 0, and root"), "{said}");
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["settings"]["write"], "back", "nothing was changed");

    let token = dir.join("token");
    fs::copy(dir.join("tanada-data/admin.token"), &token).unwrap();
    let done = as_another(dir, &[&set[..], &[&port]].concat(), Some(&token)).unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn silent_connections_make_room_and_are_closed_in_time() {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let address = daemon.admin_tcp();
    // More than one host may have open, none of which says what it wants: the first ones go.
    let mut silent: Vec<_> = (0..80)
        .map(|_| std::net::TcpStream::connect(&address).unwrap())
        .collect();
    // So the port answers at once, by itself and to the owner.
    assert_eq!(ask(&address, "GET", "/healthz", "").0, 200);
    let set = ["volume", "set", "vol0", "write=only-writes", "--admin"];
    text(dir, &[&set[..], &[&address]].concat());
    let closed = silent.remove(0).read(&mut [0]);
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // Those that stay wait until their time is over.
    let mut last = silent.pop().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost:").unwrap();
    let mut answer = String::new();
    let read = last.read_to_string(&mut answer);
    assert!(read.is_err() || !answer.contains("200"), "{answer}");
    drop(silent);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn what_another_site_has_a_browser_ask_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), SMALL);
    let address = daemon.admin_tcp();
    for (site, expected) in [("cross-site", 403), ("same-site", 403), ("none", 200)] {
        let header = format!("Sec-Fetch-Site: {site}\r\n");
        let (code, answer) = ask(&address, "GET", "/v1/status", &header);
        assert_eq!(code, expected, "{site}: {answer}");
    }
}

#[test]
fn requests_whose_bodies_never_come_do_not_keep_the_owner_out() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let head = "POST /v1/volumes/vol0/detach HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n\
                Content-Length: 2\r\n\r\n{";
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = UnixStream::connect(dir.join("admin.sock")).unwrap();
            // One that was closed to make room takes no more.
            let _ = stream.write_all(head.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        text(dir, &["volume", "list"]);
    }
    // The last ones stay until their time is over, and are told so.
    let mut last = slow.into_iter().last().unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("did not come within 15 s"), "{answer}");
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["health"], "healthy", "nothing was detached");
    let long = "x".repeat(70_000);
    let request =
        format!("POST /v1/accounts HTTP/1.1\r\nHost: here\r\nContent-Length: 70000\r\n\r\n{long}");
    let mut stream = UnixStream::connect(dir.join("admin.sock")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(daemon.stop().0, Some(0));
}

//! The admin API in TLS from outside: who is let in by what, and what is cut off or turned away.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use base::Nanos;
use env::net::Address;
use tls::{Expected, Material, Settings};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use crate::common::{Daemon, SMALL, http, run, stderr, tanada, text};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Longer than the daemon waits for anything.
const LONG: Duration = Duration::from_secs(60);

fn config() -> String {
    SMALL.replace(
        "[\"unix:admin.sock\", \"127.0.0.1:0\"]",
        "[\"unix:admin.sock\", \"127.0.0.1:0\", \"tls:127.0.0.1:0\"]",
    )
}

/// Where the daemon speaks TLS, from its welcome.
fn tls_port(daemon: &Daemon) -> String {
    let (_, rest) = daemon
        .welcome
        .split_once("https://")
        .expect("it says where");
    rest.split_once('/')
        .expect("an address and a path")
        .0
        .to_owned()
}

/// Runs the program at the daemon's TLS port with these variables.
fn at(dir: &Path, port: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = tanada(dir);
    command.env("TANADA_ADMIN", format!("tls:{port}"));
    command.envs(variables.iter().copied());
    command.args(arguments).output().expect("it starts")
}

fn material(dir: &Path) -> Material {
    let read = |name: &str| fs::read(dir.join(name)).expect("handed out");
    Material {
        authority: read("ca.pem"),
        own: Some((read("cert.pem"), read("key.pem"))),
    }
}

/// A connection with the certificate of a folder.
fn connect(dir: &Path, port: &str) -> Stream {
    let address: Address = format!("tls:{port}").parse().expect("an address");
    let expected = Expected::at(&address);
    let settings = Settings::new(&material(dir)).expect("usable");
    let config = settings.client(&expected).expect("usable");
    let session = ClientConnection::new(config, expected.name()).expect("usable");
    let stream = TcpStream::connect(port).expect("the daemon listens");
    stream.set_read_timeout(Some(LONG)).expect("a span");
    StreamOwned::new(session, stream)
}

/// Asks on a connection that stays open; the status.
fn ask(stream: &mut Stream, port: &str) -> std::io::Result<String> {
    write!(stream, "GET /v1/devices HTTP/1.1\r\nHost: {port}\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    while !answer.windows(4).any(|it| it == b"\r\n\r\n") {
        let count = stream.read(&mut some)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&some[..count]);
    }
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}

/// The authority, this node's certificate, and a daemon with them.
fn start(dir: &Path) -> (Daemon, String) {
    text(dir, &["cluster", "ca", "init", "ca"]);
    let create = ["node", "create", "n1", "--ca", "ca", "--host", "127.0.0.1"];
    text(dir, &create);
    let daemon = Daemon::start(dir, &config());
    let port = tls_port(&daemon);
    (daemon, port)
}

/// Makes an account, a token of it, and a folder with its certificate, which has its name.
fn account(dir: &Path, name: &str, role: &str) -> String {
    text(dir, &["account", "create", name, "--role", role]);
    text(
        dir,
        &["cluster", "ca", "issue", "--account", name, "--ca", "ca"],
    );
    text(dir, &["token", "create", name]).trim().to_owned()
}

#[test]
fn beyond_loopback_it_takes_tls_and_tls_takes_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let plain = config().replace("tls:127.0.0.1:0", "0.0.0.0:0");
    fs::write(dir.join("plain.toml"), plain).unwrap();
    let refused = run(dir, &["serve", "plain.toml"]);
    let said = stderr(&refused);
    assert!(
        !refused.status.success() && said.contains("write \"tls:0.0.0.0:0\""),
        "{said}"
    );
    fs::write(dir.join("tls.toml"), config()).unwrap();
    let refused = run(dir, &["serve", "tls.toml"]);
    let said = stderr(&refused);
    assert!(
        !refused.status.success() && said.contains("`tanada node create`"),
        "{said}"
    );
}

#[test]
fn in_tls_a_token_or_a_certificate_says_who_asks_and_the_server_is_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (daemon, port) = start(dir);
    let token = account(dir, "astro", "booker");
    let admin = account(dir, "boss", "admin");
    let show = ["account", "show", "astro"];
    let good = |variables: &[(&str, &str)], arguments: &[&str]| {
        let output = at(dir, &port, variables, arguments);
        assert!(output.status.success(), "{variables:?} {}", stderr(&output));
    };
    let bad = |variables: &[(&str, &str)], arguments: &[&str], why: &str| {
        let output = at(dir, &port, variables, arguments);
        let said = stderr(&output);
        assert!(
            !output.status.success() && said.contains(why),
            "{variables:?} {said}"
        );
    };
    // The authority is found in the data directory, or where it is said to be.
    good(&[("TANADA_TOKEN", &token)], &show);
    good(
        &[("TANADA_TOKEN", &token), ("TANADA_CA", "ca/ca.pem")],
        &show,
    );
    good(
        &[("TANADA_ADMIN_TOKEN_FILE", "tanada-data/admin.token")],
        &["account", "list"],
    );
    good(&[("TANADA_IDENTITY", "astro")], &show);
    bad(
        &[("TANADA_IDENTITY", "astro")],
        &["account", "list"],
        "takes the role admin",
    );
    // A token counts before the certificate.
    let both = [("TANADA_IDENTITY", "astro"), ("TANADA_TOKEN", &*admin)];
    good(&both, &["account", "list"]);
    // Without either: what everyone on this machine may look at.
    good(&[], &["status"]);
    bad(&[], &show, "certificate of an account");
    bad(
        &[("TANADA_IDENTITY", "tanada-data/tls")],
        &show,
        "certificate of an account",
    );

    // Another authority: its server is not trusted, its clients are not let in.
    text(dir, &["cluster", "ca", "init", "other"]);
    let forged = [
        "cluster",
        "ca",
        "issue",
        "--account",
        "boss",
        "--account-id",
        "0123456789abcdef",
        "--ca",
        "other",
        "--out",
        "forged",
    ];
    text(dir, &forged);
    let wrong = [("TANADA_TOKEN", &*token), ("TANADA_CA", "other/ca.pem")];
    bad(&wrong, &show, "is not trusted, and nothing was sent");
    let forged = [("TANADA_IDENTITY", "forged"), ("TANADA_CA", "ca/ca.pem")];
    bad(&forged, &["status"], "");
    // Another account of the same name.
    text(dir, &["account", "delete", "astro"]);
    text(dir, &["account", "create", "astro", "--role", "admin"]);
    bad(
        &[("TANADA_IDENTITY", "astro")],
        &["account", "list"],
        "not there any more",
    );
    let log = fs::read_to_string(dir.join("tanada-data/audit.jsonl")).unwrap();
    assert!(
        log.contains("by certificate ") && log.contains("tls 127.0.0.1"),
        "{log}"
    );
    assert!(!log.contains(&token[24..]), "no secret");
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_revoked_certificate_is_cut_off_while_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (daemon, port) = start(dir);
    account(dir, "astro", "booker");
    account(dir, "bio", "reader");
    let mut stolen = connect(&dir.join("astro"), &port);
    let mut honest = connect(&dir.join("bio"), &port);
    for stream in [&mut stolen, &mut honest] {
        assert_eq!(ask(stream, &port).expect("answered"), "200");
    }
    text(
        dir,
        &["cluster", "ca", "revoke", "account:astro", "--ca", "ca"],
    );
    let since = env::wall_clock();
    let end = stolen.read(&mut [0]);
    assert!(
        !matches!(end, Ok(1..)),
        "nothing is sent to it any more: {end:?}"
    );
    // A clock is no test's to judge.
    let took = Nanos(env::wall_clock().0 - since.0);
    eprintln!("it was cut {took} after the command");
    assert!(ask(&mut stolen, &port).is_err());
    assert_eq!(ask(&mut honest, &port).expect("answered"), "200");
    let again = ask(&mut connect(&dir.join("astro"), &port), &port);
    assert!(again.is_err(), "{again:?}");
    // A token still opens what the account may: what was stolen is the key.
    let token = text(dir, &["token", "create", "astro"]);
    let show = ["account", "show", "astro"];
    let shown = at(dir, &port, &[("TANADA_TOKEN", token.trim())], &show);
    assert!(shown.status.success(), "{}", stderr(&shown));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn what_speaks_no_tls_is_answered_so_and_what_is_slow_keeps_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (daemon, port) = start(dir);
    let mut slow = TcpStream::connect(&port).unwrap();
    slow.set_read_timeout(Some(LONG)).unwrap();
    slow.write_all(&[22, 3, 1]).unwrap();
    let silent: Vec<_> = (0..80)
        .map(|_| TcpStream::connect(&port).unwrap())
        .collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {port}\r\n\r\n");
    let (code, said) = http(&port, &request);
    assert!(code == 400 && said.contains("speaks TLS"), "{code} {said}");
    let refused = run(dir, &["volume", "list", "--admin", &port]);
    assert!(stderr(&refused).contains("tls:"), "{}", stderr(&refused));
    // What is neither is hung up on.
    let mut junk = TcpStream::connect(&port).unwrap();
    junk.set_read_timeout(Some(LONG)).unwrap();
    junk.write_all(&[0; 64]).unwrap();
    let mut rest = Vec::new();
    let read = junk.read_to_end(&mut rest);
    assert!(read.is_err() || rest.first() != Some(&b'H'), "{rest:?}");
    // A client that asks in TLS at the port in the clear is told so as well.
    let plain = daemon.admin_tcp();
    let asked = at(dir, &plain, &[], &["status"]);
    assert!(stderr(&asked).contains("is not TLS"), "{}", stderr(&asked));
    let shown = at(dir, &port, &[], &["status"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    let mut rest = Vec::new();
    let ended = slow.read_to_end(&mut rest);
    assert!(
        ended.is_ok() || ended.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset),
        "it is hung up on"
    );
    drop(silent);
    assert_eq!(daemon.stop().0, Some(0));
}

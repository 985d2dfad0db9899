//! Buckets from outside: keys, objects, a kill in between, and who is kept out.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Daemon, json, run, stderr, tanada, text, without};

/// Two stores, and a gateway over both.
pub const GATEWAY: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "256MiB"
[[device]]
name = "d1"
path = "d1.img"
size = "256MiB"
[[store]]
name = "s0"
device = "d0"
listen = "unix:s0.sock"
create = true
[[store]]
name = "s1"
device = "d1"
listen = "unix:s1.sock"
create = true
[[s3]]
name = "gw"
store = ["s0", "s1"]
listen = "127.0.0.1:0"
[admin]
listen = "unix:admin.sock"
"#;

/// curl, signing with an access key.
struct Client<'a> {
    dir: &'a Path,
    url: String,
    user: String,
}

impl Client<'_> {
    /// Sends a request; its status and the bytes of its body.
    fn ask(&self, arguments: &[&str], path: &str) -> (u16, Vec<u8>) {
        let body = self.dir.join("answer");
        // What an earlier answer left is not this one's.
        let _ = fs::remove_file(&body);
        let mut curl = Command::new("curl");
        curl.current_dir(self.dir).args([
            "-s",
            "--max-time",
            "60",
            "-o",
            "answer",
            "-w",
            "%{http_code}",
        ]);
        if !self.user.is_empty() {
            curl.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &self.user]);
            curl.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        }
        let output = curl
            .args(arguments)
            .arg(format!("{}{path}", self.url))
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let status = said
            .parse()
            .unwrap_or_else(|_| panic!("{said} {}", stderr(&output)));
        (status, fs::read(body).unwrap_or_default())
    }

    fn said(&self, arguments: &[&str], path: &str) -> (u16, String) {
        let (status, body) = self.ask(arguments, path);
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn put(&self, file: &str, bytes: &[u8], path: &str) {
        fs::write(self.dir.join(file), bytes).unwrap();
        let (status, said) = self.said(&["-T", file], path);
        assert_eq!(status, 200, "{said}");
    }
}

/// Can this machine's curl sign?
fn signs() -> bool {
    let help = Command::new("curl").args(["--help", "all"]).output();
    let signs = help.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("--aws-sigv4"));
    if !signs {
        without("curl with --aws-sigv4");
    }
    signs
}

/// Where the gateway listens.
pub fn url(dir: &Path) -> String {
    let gateways = json(dir, &["s3", "list", "--json"]);
    format!("http://{}", gateways[0]["listen"][0].as_str().unwrap())
}

/// An access key, `ID:SECRET`.
pub fn key(dir: &Path, arguments: &[&str]) -> String {
    let made = json(
        dir,
        &[&["s3", "key", "create", "--json"], arguments].concat(),
    );
    let id = made["about"]["id"].as_str().unwrap();
    format!("{id}:{}", made["secret"].as_str().unwrap())
}

#[test]
fn objects_are_put_and_got_by_any_client_and_outlive_a_kill() {
    if !signs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut daemon = Daemon::start(dir, GATEWAY);
    assert!(
        daemon.welcome.contains("S3 gateway gw, over s0, s1"),
        "{}",
        daemon.welcome
    );
    let client = Client {
        dir,
        url: url(dir),
        user: key(dir, &[]),
    };
    assert_eq!(client.said(&["-X", "PUT"], "/photos").0, 200);
    let (small, big) = (
        b"hello".to_vec(),
        (0..20_000_003_u32)
            .map(|n| (n >> 3) as u8)
            .collect::<Vec<u8>>(),
    );
    client.put("small", &small, "/photos/a/small");
    client.put("big", &big, "/photos/a/big");
    client.put("big", &big[..100_000], "/photos/b");
    // Bytes that are not asked for with `100 Continue`, since there are none, are the last over their connection.
    fs::write(dir.join("empty"), b"").unwrap();
    for (file, is_last) in [("empty", true), ("small", false)] {
        let head = ["-T", file, "-D", "head", "-H", "Expect: 100-continue"];
        assert_eq!(client.said(&head, "/photos/expected").0, 200);
        let head = fs::read_to_string(dir.join("head"))
            .unwrap()
            .to_ascii_lowercase();
        assert_eq!(head.contains("100 continue"), !is_last, "{head}");
        assert_eq!(head.contains("connection: close"), is_last, "{head}");
    }
    assert_eq!(client.said(&["-X", "DELETE"], "/photos/expected").0, 204);
    assert_eq!(client.ask(&[], "/photos/a/small"), (200, small));
    assert!(client.ask(&[], "/photos/a/big") == (200, big.clone()));
    let part = client.ask(&["-r", "16777210-16777230"], "/photos/a/big");
    assert_eq!(part, (206, big[16_777_210..=16_777_230].to_vec()));
    let (status, list) = client.said(&[], "/photos?delimiter=%2F&list-type=2");
    assert!(
        status == 200 && list.contains("<Prefix>a/</Prefix>") && list.contains("<Key>b</Key>"),
        "{list}"
    );
    daemon.signal("KILL");
    daemon.ended();

    let daemon = Daemon::start(dir, GATEWAY);
    let client = Client {
        url: url(dir),
        ..client
    };
    assert!(client.ask(&[], "/photos/a/big") == (200, big));
    // What is deleted gives its room back to the stores.
    let used = || {
        let stores = json(dir, &["store", "list", "--json"]);
        let all = stores.as_array().unwrap().iter();
        all.map(|it| it["node"]["space"]["used_bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    let before = used();
    for path in ["/photos/a/small", "/photos/a/big", "/photos/b"] {
        assert_eq!(client.said(&["-X", "DELETE"], path).0, 204, "{path}");
    }
    assert_eq!(client.said(&[], "/photos/b").0, 404);
    // Each look starts a program: some seconds in all.
    let freed = (0..1000).any(|_| used() + 20_000_000 < before);
    assert!(freed, "{before} before, {} after", used());
    assert_eq!(client.said(&["-X", "DELETE"], "/photos").0, 204);
    let (code, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

/// The object that the `n`th put of a thread makes: some lie in the index, others in stores.
fn numbered(thread: usize, n: usize) -> Vec<u8> {
    let len = [10, 4096, 16_385, 1_500_000][n % 4];
    let mut bytes = format!("{thread} {n} ").into_bytes();
    bytes.resize(len, (n % 251) as u8);
    bytes
}

/// Puts one object after the other until one is not answered: the last that was, and the one that may be there.
fn put_until_killed(client: &Client<'_>, thread: usize, first: usize) -> (usize, usize) {
    let path = format!("/photos/{thread}");
    for n in first.. {
        fs::write(client.dir.join("bytes"), numbered(thread, n)).unwrap();
        let (status, _) = client.ask(&["-T", "bytes"], &path);
        if status != 200 {
            return (n - 1, n);
        }
    }
    unreachable!("the daemon is killed before");
}

#[test]
fn kills_amid_puts_lose_and_tear_nothing() {
    if !signs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut daemon = Daemon::start(dir, GATEWAY);
    let user = key(dir, &[]);
    let folders: Vec<_> = (0..3).map(|n| dir.join(n.to_string())).collect();
    folders.iter().for_each(|it| fs::create_dir(it).unwrap());
    let mut first = vec![1; folders.len()];
    for round in 0..3 {
        let at = url(dir);
        let of = |n: usize| Client {
            dir: &folders[n],
            url: at.clone(),
            user: user.clone(),
        };
        if round == 0 {
            assert_eq!(of(0).said(&["-X", "PUT"], "/photos").0, 200);
        }
        let ends: Vec<(usize, usize)> = std::thread::scope(|scope| {
            let putting: Vec<_> = (first.iter().enumerate())
                .map(|(n, first)| {
                    let client = of(n);
                    scope.spawn(move || put_until_killed(&client, n, *first))
                })
                .collect();
            // Some puts of each, whose number differs from round to round.
            for _ in 0..15 + 10 * round {
                drop(text(dir, &["s3", "list"]));
            }
            daemon.signal("KILL");
            putting.into_iter().map(|it| it.join().unwrap()).collect()
        });
        daemon.ended();
        daemon = Daemon::start(dir, GATEWAY);
        let at = url(dir);
        for (n, (last, next)) in ends.into_iter().enumerate() {
            let found = Client {
                dir: &folders[n],
                url: at.clone(),
                user: user.clone(),
            }
            .ask(&[], &format!("/photos/{n}"));
            let is_one = found == (200, numbered(n, last)) || found == (200, numbered(n, next));
            assert!(
                is_one || last == 0 && found.0 == 404,
                "round {round}, thread {n}: {last}, {}",
                found.0
            );
            assert!(last >= first[n], "thread {n} put some");
            first[n] = next;
        }
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_gateway_over_other_stores_is_not_served_and_deletes_nothing() {
    if !signs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, GATEWAY);
    let user = key(dir, &[]);
    let client = || Client {
        dir,
        url: url(dir),
        user: user.clone(),
    };
    assert_eq!(client().said(&["-X", "PUT"], "/photos").0, 200);
    let bytes = vec![7; 1_000_000];
    client().put("x", &bytes, "/photos/x");
    assert_eq!(daemon.stop().0, Some(0));
    let swapped = GATEWAY.replace("[\"s0\", \"s1\"]", "[\"s1\", \"s0\"]");
    let daemon = Daemon::start(dir, &swapped);
    assert!(daemon.welcome.contains("NOT SERVED"), "{}", daemon.welcome);
    let gateways = json(dir, &["s3", "list", "--json"]);
    let why = gateways[0]["failed"].as_str().unwrap();
    assert!(why.contains("in the order they had"), "{why}");
    assert_eq!(daemon.stop().0, Some(0));
    let daemon = Daemon::start(dir, GATEWAY);
    assert!(client().ask(&[], "/photos/x") == (200, bytes));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn without_a_key_that_is_good_nothing_is_answered() {
    if !signs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, GATEWAY);
    text(dir, &["account", "create", "astro"]);
    let client = |user: &str| Client {
        dir,
        url: url(dir),
        user: user.to_owned(),
    };
    let (status, said) = client("").said(&[], "/");
    assert!(
        status == 403 && said.contains("AccessDenied"),
        "{status} {said}"
    );
    let (owner, astro) = (key(dir, &[]), key(dir, &["astro", "--note", "backups"]));
    assert_eq!(client(&owner).said(&["-X", "PUT"], "/photos").0, 200);
    client(&owner).put("x", b"x", "/photos/x");
    // Another account's bucket, with a good key.
    let (status, said) = client(&astro).said(&[], "/photos/x");
    assert!(
        status == 403 && said.contains("not granted to account astro"),
        "{status} {said}"
    );
    // What the owner grants, in a header that curl signs.
    let header = ["-X", "PUT", "-H", "x-amz-grant-read: id=astro"];
    let (status, said) = client(&owner).said(&header, "/photos/x?acl=");
    assert_eq!(status, 200, "{said}");
    assert_eq!(client(&astro).said(&[], "/photos/x"), (200, "x".to_owned()));
    // A good name with another secret.
    let wrong = format!("{}x", &owner[..owner.len() - 1]);
    let (status, said) = client(&wrong).said(&[], "/photos/x");
    assert!(
        status == 403 && said.contains("SignatureDoesNotMatch"),
        "{status} {said}"
    );
    // The account is switched off, then its key deleted.
    text(dir, &["account", "set", "astro", "--off"]);
    let is_out = || {
        client(&astro)
            .said(&[], "/")
            .1
            .contains("InvalidAccessKeyId")
    };
    let refused = (0..1000).any(|_| is_out());
    assert!(refused, "the key of an account that is off");
    let keys: Value = json(dir, &["s3", "key", "list", "--json"]);
    let of_astro = keys
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["account"] == "astro")
        .unwrap();
    assert_eq!(
        (&of_astro["good"], &of_astro["note"]),
        (&false.into(), &"backups".into())
    );
    let id = owner.split(':').next().unwrap();
    text(dir, &["s3", "key", "delete", id]);
    let (status, said) = client(&owner).said(&[], "/photos/x");
    assert!(
        status == 403 && said.contains("InvalidAccessKeyId"),
        "{status} {said}"
    );
    let gone = run(dir, &["s3", "key", "delete", id]);
    assert!(
        stderr(&gone).contains("there is no access key"),
        "{}",
        stderr(&gone)
    );
    // No secret is in a file but sealed.
    let secret = owner.split(':').nth(1).unwrap().as_bytes();
    for file in ["accounts.redb", "audit.jsonl"] {
        let bytes = fs::read(dir.join("tanada-data").join(file)).unwrap();
        assert!(
            !bytes.windows(secret.len()).any(|it| it == secret),
            "{file}"
        );
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_daemon_without_a_gateway_says_how_to_have_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _daemon = Daemon::start(dir, "[admin]\nlisten = \"unix:admin.sock\"\n");
    assert!(text(dir, &["s3", "list"]).contains("an [[s3]] in the configuration makes one"));
    let refused = run(dir, &["s3", "key", "create"]);
    assert_eq!(refused.status.code(), Some(5));
    let said = stderr(&refused);
    assert!(
        said.contains("no gateway") && said.contains("[[s3]]"),
        "{said}"
    );
}

/// What an answer says in a header.
fn header(client: &Client<'_>, arguments: &[&str], path: &str, name: &str) -> Option<String> {
    let (status, said) = client.said(&[&["-D", "headers"], arguments].concat(), path);
    assert!(status < 300, "{status} {said}");
    let headers = fs::read_to_string(client.dir.join("headers")).unwrap();
    headers.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        (key == name).then(|| value.trim().to_owned())
    })
}

#[test]
fn keys_and_buckets_have_reservations_and_caps_and_answers_say_so() {
    if !signs() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let speeds = "create = true\nread_speed = \"200MB/s\"\nwrite_speed = \"200MB/s\"";
    let config = GATEWAY.replace("create = true", speeds)
        + "[cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n";
    let daemon = Daemon::start(dir, &config);
    text(dir, &["account", "create", "astro", "--role", "booker"]);
    let stores = ["--store", "s0", "--store", "s1", "--scope", "s3/"];
    let reserve = |name: &str, more: &[&str]| {
        let what = ["reservation", "create", name, "--for", "1h"];
        run(dir, &[&what[..], &stores, more].concat())
    };
    let rates = [
        "--read",
        "40MB/s",
        "--write",
        "20MB/s",
        "--account",
        "astro",
    ];
    let made = reserve("gold", &rates);
    assert!(made.status.success(), "{}", stderr(&made));
    // A key under it, in one step; another one without.
    let client = |user: &str| Client {
        dir,
        url: url(dir),
        user: user.to_owned(),
    };
    let gold = client(&key(dir, &["astro", "--set", "reservation=gold"]));
    let plain = client(&key(dir, &["astro"]));
    assert_eq!(gold.said(&["-X", "PUT"], "/photos").0, 200);
    fs::write(dir.join("big"), vec![7; 3_000_000]).unwrap();
    let promised = "x-tanada-promised";
    let put = header(&gold, &["-T", "big"], "/photos/big", promised);
    assert_eq!(put.as_deref(), Some("20000000"));
    let got = header(&gold, &[], "/photos/big", promised);
    assert_eq!(got.as_deref(), Some("40000000"));
    let got = header(&gold, &[], "/photos/big", "x-tanada-delivered");
    let bytes: u64 = got.unwrap().parse().unwrap();
    assert!(bytes >= 3_000_000, "{bytes}");
    assert_eq!(header(&plain, &[], "/photos/big", promised), None);
    // The bucket names one, for keys that do not.
    let said = text(dir, &["s3", "bucket", "set", "photos", "reservation=gold"]);
    assert!(
        said.contains("bucket photos: under reservation r-"),
        "{said}"
    );
    let got = header(&plain, &[], "/photos/big", promised);
    assert_eq!(got.as_deref(), Some("40000000"));
    text(dir, &["s3", "bucket", "set", "photos", "reservation="]);
    assert_eq!(header(&plain, &[], "/photos/big", promised), None);
    // A temporary key, made by its account: with its token alone.
    let astro = text(dir, &["token", "create", "astro"]);
    let mut command = tanada(dir);
    let wanted = ["s3", "credentials", "--reservation", "gold", "--json"];
    command.args(wanted).env("TANADA_TOKEN", astro.trim());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = made["about"]["id"].as_str().unwrap();
    let brief = client(&format!("{id}:{}", made["secret"].as_str().unwrap()));
    let token = made["session_token"].as_str().unwrap();
    assert!(token.starts_with("tanadaset1."), "{token}");
    let token = format!("x-amz-security-token: {token}");
    let got = header(&brief, &["-H", &token], "/photos/big", promised);
    assert_eq!(got.as_deref(), Some("40000000"));
    let (status, said) = brief.said(&[], "/photos/big");
    assert!(
        status == 400 && said.contains("InvalidToken"),
        "{status} {said}"
    );
    let (status, said) = plain.said(&["-H", &token], "/photos/big");
    assert!(
        status == 400 && said.contains("InvalidToken"),
        "{status} {said}"
    );
    // What cannot be.
    let refused = |arguments: &[&str]| {
        let output = run(dir, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        stderr(&output)
    };
    let id = plain.user.split(':').next().unwrap().to_owned();
    let set = |setting: &str| refused(&["s3", "key", "set", &id, setting]);
    assert!(set("reservation=silver").contains("silver"));
    assert!(set("max_read=fast").contains("max_read"));
    assert!(set("colour=red").contains("a key is reservation"));
    let one_store = [
        "reservation",
        "create",
        "half",
        "--store",
        "s0",
        "--scope",
        "s3/",
    ];
    let rates = ["--read", "1MB/s", "--for", "1h", "--account", "astro"];
    text(dir, &[&one_store[..], &rates].concat());
    let said = set("reservation=half");
    assert!(said.contains("not of the stores of a gateway"), "{said}");
    let made = reserve("mine", &["--read", "1MB/s"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let mine: Value = json(dir, &["reservation", "show", "mine", "--json"]);
    let by_id = format!("reservation={}", mine["id"].as_str().unwrap());
    let said = set(&by_id);
    assert!(said.contains("another account's"), "{said}");
    // A cap is set; a reservation that is over promises nothing, and its key goes on.
    let said = text(dir, &["s3", "key", "set", &id, "max_read=1MB/s"]);
    assert!(said.contains("reads at most 1 MB/s"), "{said}");
    assert_eq!(plain.ask(&[], "/photos/big").0, 200);
    text(
        dir,
        &["reservation", "delete", "gold", "--account", "astro"],
    );
    let is_over = || header(&gold, &[], "/photos/big", promised).is_none();
    assert!((0..1000).any(|_| is_over()), "it was released");
    let (code, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
}

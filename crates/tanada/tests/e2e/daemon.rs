//! The daemon from outside: start, look, command, stop, start again.

use std::fs;
use std::path::Path;

use crate::common::{Daemon, SMALL, bearer, http, json, run, stderr, text, without};
use serde_json::{Value, json};

fn get(address: &str, path: &str, headers: &str) -> (u16, String) {
    http(
        address,
        &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"),
    )
}

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Writes and reads through the export with QEMU's own client; `None` without QEMU's tools.
fn qemu_io(dir: &Path, commands: &[&str]) -> Option<String> {
    let mut command = std::process::Command::new("qemu-io");
    command.current_dir(dir).args(["-f", "raw"]);
    for line in commands {
        command.args(["-c", line]);
    }
    let output = match command.arg("nbd+unix:///vol0?socket=vol0.sock").output() {
        Ok(output) => output,
        Err(_) => {
            without("qemu-io");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    Some(said)
}

#[test]
fn a_configuration_without_a_device_runs_and_serves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, "# [[device]]\n[admin]\nlisten = \"unix:admin.sock\"\n");
    assert!(
        daemon.welcome.contains("Nothing is exported: add an"),
        "{}",
        daemon.welcome
    );
    let status = json(dir, &["status", "--json"]);
    assert_eq!(status["volumes"], json!([]));
    assert_eq!(status["devices"], json!([]));
    let since = status["started_unix_seconds"].as_u64().unwrap();
    assert!(since > 1_700_000_000, "{status}");
    let (code, said) = daemon.stop();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_volume_may_stand_on_a_stripe() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let halves = ["one", "two"].map(|name| {
        format!("[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"32MiB\"\n")
    });
    let stripe = "[[stripe]]\nname = \"slow\"\ndevices = [\"one\", \"two\"]\nchunk = \"8KiB\"\n";
    let whole = "[[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"64MiB\"\n";
    assert!(SMALL.contains(whole));
    let config = SMALL.replace(whole, "") + &halves.concat() + stripe;
    let daemon = Daemon::start(dir, &config);
    assert!(
        daemon.welcome.contains("one, two in turn"),
        "{}",
        daemon.welcome
    );
    let status = json(dir, &["status", "--json"]);
    assert_eq!(status["volumes"][0]["size_bytes"], 64 << 20);
    let devices = status["devices"].as_array().unwrap();
    let find = |name: &str| {
        devices
            .iter()
            .find(|device| device["name"] == name)
            .unwrap()
    };
    assert_eq!(find("slow")["kind"], "stripe");
    assert_eq!(find("slow")["part_of"], "vol0");
    assert_eq!(find("one")["part_of"], "slow");
    if qemu_io(dir, &["write -P 7 4k 40k", "read -P 7 4k 40k"]).is_some() {
        // Destaged, chunk by chunk: bytes 4 to 44 KiB begin with the rest of the first chunk.
        drop(text(dir, &["volume", "detach", "vol0"]));
        let [one, two] = ["one.img", "two.img"].map(|name| fs::read(dir.join(name)).unwrap());
        let sevens = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 7).count();
        assert_eq!(
            (sevens(&one), sevens(&two)),
            ((4 + 8 + 8) << 10, (8 + 8 + 4) << 10)
        );
        assert_eq!((one[4095], one[4096], two[0]), (0, 7, 7));
    }
}

#[test]
fn it_says_what_it_made_and_every_look_at_it_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    for expected in [
        "device slow",
        "volume vol0",
        "nbdinfo nbd://127.0.0.1:",
        "plain.sock",
    ] {
        assert!(daemon.welcome.contains(expected), "{}", daemon.welcome);
    }

    let status = json(dir, &["status", "--json"]);
    assert_eq!(status["devices"].as_array().unwrap().len(), 3);
    assert_eq!(status["devices"][0]["part_of"], "vol0");
    assert_eq!(status["volumes"][0]["health"], "healthy");
    assert_eq!(status["volumes"][0]["fast"], "fast");
    assert_eq!(status["exports"].as_array().unwrap().len(), 2);

    let page = text(dir, &["status"]);
    assert!(page.contains("VOLUME") && page.contains("vol0"), "{page}");
    let list = text(dir, &["device", "list"]);
    assert!(list.contains("plain") && list.contains("memory"), "{list}");
    let frame = text(dir, &["top", "--once", "--interval", "100ms"]);
    assert!(
        frame.contains("DEVICE") && frame.contains("QUEUE"),
        "{frame}"
    );
    let frame = json(dir, &["top", "--json", "--interval", "100ms"]);
    assert_eq!(frame["volumes"][0]["name"], "vol0");
    assert!(
        frame["volumes"][0]["reads_per_second"].is_number(),
        "{frame}"
    );

    let (code, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("closed cleanly"), "{log}");
    assert!(!dir.join("admin.sock").exists() && !dir.join("vol0.sock").exists());
}

#[test]
fn what_was_written_is_there_after_a_stop_and_the_cache_comes_back_warm() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let Some(_) = qemu_io(dir, &["write -P 0x5a 1M 256k", "flush"]) else {
        return;
    };
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    // How much of it is still dirty is the cleaner's affair, and a matter of time.
    assert_eq!(volume["cache"]["cached_bytes"], 256 << 10);
    let writes = &volume["figures"]["operations"];
    assert!(writes.to_string().contains("\"write\""), "{writes}");
    assert_eq!(daemon.stop().0, Some(0));

    let daemon = Daemon::start(dir, SMALL);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["cache"]["recovered_pages"], 64);
    assert_eq!(volume["cache"]["cached_bytes"], 256 << 10);
    qemu_io(dir, &["read -P 0x5a 1M 256k", "read -P 0 2M 64k"]);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_killed_daemon_starts_again_with_all_that_was_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut daemon = Daemon::start(dir, SMALL);
    let Some(_) = qemu_io(dir, &["write -P 0x33 4M 128k", "flush"]) else {
        return;
    };
    daemon.signal("KILL");
    daemon.ended();
    // The sockets of the killed one are still there; a live one would be respected.
    assert!(dir.join("admin.sock").exists());
    let daemon = Daemon::start(dir, SMALL);
    qemu_io(dir, &["read -P 0x33 4M 128k"]);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_volume_is_detached_attached_and_changed_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let wrote = qemu_io(dir, &["write -P 0x77 8M 64k", "flush"]).is_some();

    let volume = json(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "dirty_high=40",
            "sequential_bypass=off",
            "--json",
        ],
    );
    assert_eq!(volume["settings"]["dirty_high"], 40);
    assert_eq!(volume["settings"]["sequential_bypass_bytes"], Value::Null);
    let said = text(
        dir,
        &["volume", "set", "vol0", "mode=cache", "write=through"],
    );
    assert!(said.contains("through"), "{said}");
    let volume = json(dir, &["volume", "set", "vol0", "fast_size=8MiB", "--json"]);
    assert_eq!(volume["settings"]["fast_size_bytes"], 8 << 20);
    assert!(volume["cache"]["cache_bytes"].as_u64().unwrap() <= 8 << 20);

    text(dir, &["volume", "detach", "vol0"]);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["health"], "pass-through");
    assert_eq!(volume["fast"], Value::Null);
    if wrote {
        // The slow device alone holds everything now.
        let image = fs::read(dir.join("slow.img")).unwrap();
        assert!(
            image[8 << 20..][..64 << 10]
                .iter()
                .all(|&byte| byte == 0x77)
        );
        qemu_io(dir, &["read -P 0x77 8M 64k"]);
    }
    let again = run(dir, &["volume", "detach", "vol0"]);
    assert_eq!(again.status.code(), Some(5));
    assert!(
        stderr(&again).contains("detached already"),
        "{}",
        stderr(&again)
    );

    let wrong = run(dir, &["volume", "attach", "vol0", "--fast", "plain"]);
    assert!(stderr(&wrong).contains("plain"), "{}", stderr(&wrong));
    text(dir, &["volume", "attach", "vol0"]);
    let volume = json(dir, &["volume", "show", "vol0", "--json"]);
    assert_eq!(volume["health"], "healthy");
    assert_eq!(volume["cache"]["cached_bytes"], 0);
    if wrote {
        qemu_io(dir, &["read -P 0x77 8M 64k"]);
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn the_admin_api_answers_over_http_and_refuses_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let address = daemon.admin_tcp();
    let host = format!("Host: {address}\r\n{}", bearer(dir));

    assert_eq!(get(&address, "/healthz", &host), (200, "ok\n".to_owned()));
    let (code, document) = get(&address, "/openapi.json", &host);
    assert_eq!(code, 200);
    let document = body(&document);
    for path in [
        "/v1/status",
        "/v1/devices",
        "/v1/volumes",
        "/v1/volumes/{name}",
        "/v1/volumes/{name}/detach",
        "/v1/volumes/{name}/attach",
        "/v1/exports",
        "/metrics",
        "/healthz",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    for path in [
        "/v1/status",
        "/v1/devices",
        "/v1/volumes",
        "/v1/volumes/vol0",
        "/v1/exports",
    ] {
        assert_eq!(get(&address, path, &host).0, 200, "{path}");
    }

    let (code, refusal) = get(&address, "/v1/volumes/vol9", &host);
    assert_eq!(code, 404);
    let expected =
        json!({"error": "there is no volume 'vol9'", "what_to_do": "the volumes are vol0"});
    assert_eq!(body(&refusal), expected);
    assert_eq!(get(&address, "/nothing", &host).0, 404);

    let patch = |text: &str, kind: &str| {
        http(
            &address,
            &format!(
                "PATCH /v1/volumes/vol0 HTTP/1.1\r\n{host}Connection: close\r\n{kind}\
                 Content-Length: {}\r\n\r\n{text}",
                text.len()
            ),
        )
    };
    let kind = "Content-Type: application/json\r\n";
    let (code, refusal) = patch(r#"{"write": "fast"}"#, kind);
    assert_eq!(code, 422, "{refusal}");
    assert!(refusal.contains("choose one of back, through"), "{refusal}");
    let (code, refusal) = patch(r#"{"colour": "red"}"#, kind);
    assert_eq!(code, 422, "{refusal}");
    assert!(refusal.contains("unknown field `colour`"), "{refusal}");
    // What a form of another site can send without asking is no JSON.
    assert_eq!(patch("{}", "Content-Type: text/plain\r\n").0, 415);
    let (code, volume) = patch(r#"{"policy": "sieve"}"#, kind);
    assert_eq!(code, 200, "{volume}");
    assert_eq!(body(&volume)["settings"]["policy"], "sieve");
    drop(daemon);
}

#[test]
fn a_page_of_another_site_and_a_rebound_name_get_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), SMALL);
    let address = daemon.admin_tcp();
    let (code, refusal) = get(&address, "/v1/status", "Host: evil.example\r\n");
    assert_eq!(code, 403, "{refusal}");
    assert!(refusal.contains("not this machine"), "{refusal}");
    let headers = format!("Host: {address}\r\nOrigin: https://evil.example\r\n");
    assert_eq!(get(&address, "/metrics", &headers).0, 403);
}

#[test]
fn a_closing_terminal_ends_nothing_nor_do_other_signals_and_a_stop_closes_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    // A shell and the kernel may both send a terminal's end.
    for name in ["USR1", "USR2", "ALRM", "HUP", "HUP"] {
        daemon.signal(name);
        text(dir, &["status"]);
    }
    let wrote = qemu_io(dir, &["write -P 0x4d 1M 64k"]).is_some();
    let (code, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("closed cleanly"), "{log}");
    let daemon = Daemon::start(dir, SMALL);
    if wrote {
        qemu_io(dir, &["read -P 0x4d 1M 64k"]);
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_client_is_listed_and_sent_away() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    assert_eq!(text(dir, &["client", "list"]), "no client is connected\n");
    let refused = run(dir, &["client", "delete", "--export", "vol0"]);
    assert!(stderr(&refused).contains("no client is connected that this would mean"));

    let mut client = UnixStream::connect(dir.join("vol0.sock")).unwrap();
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).unwrap();
    let list = text(dir, &["client", "list"]);
    let id = list
        .split_whitespace()
        .find(|word| word.contains("vol0.sock#"));
    let id = id.unwrap_or_else(|| panic!("{list}"));
    let said = text(dir, &["client", "delete", id]);
    assert!(said.contains(id), "{said}");
    // Its connection is at an end, and it is on no list.
    let read = client.read(&mut [0]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let again = run(dir, &["client", "delete", id]);
    assert_eq!(again.status.code(), Some(5));
    let unclear = run(dir, &["client", "delete", "vol0"]);
    assert_eq!(unclear.status.code(), Some(2));
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn the_metrics_are_what_prometheus_reads() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let wrote = qemu_io(dir, &["write 1M 64k", "read 1M 64k", "flush"]).is_some();
    let address = daemon.admin_tcp();
    let host = format!("Host: {address}\r\n");
    // A client that has ended is counted until its connection is seen to be at an end.
    let gone = "tanada_export_connections{export=\"vol0\",of=\"vol0\"} 0";
    let (code, text) = (0..10_000)
        .map(|_| get(&address, "/metrics", &host))
        .find(|(_, text)| text.contains(gone))
        .expect("the client's connection ends");
    assert_eq!(code, 200);
    assert!(!text.contains("# EOF"), "{text}");
    for expected in [
        "tanada_device_requests_total{device=\"fast\",op=\"write\",work=",
        "tanada_volume_dirty_bytes{volume=\"vol0\"}",
        "tanada_volume_ledger_size_bytes{volume=\"vol0\"}",
        "tanada_volume_health{volume=\"vol0\",kind=\"hybrid\",state=\"healthy\"} 1",
        "tanada_build_info{version=",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    if wrote {
        for expected in [
            "tanada_volume_bytes_total{volume=\"vol0\",kind=\"hybrid\",op=\"write\",class=\"normal\"} 65536",
            ",from=\"fast\"} 65536",
            "tanada_volume_latency_seconds_bucket{le=\"+Inf\",volume=\"vol0\",kind=\"hybrid\",op=\"read\"",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}

#[test]
fn a_second_daemon_on_the_same_socket_or_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let second = run(dir, &["serve", "tanada.toml"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("another `tanada serve` answers there"),
        "{}",
        stderr(&second)
    );

    let other = SMALL
        .replace("admin.sock", "other.sock")
        .replace("vol0.sock", "w.sock")
        .replace("plain.sock", "p.sock");
    fs::write(dir.join("other.toml"), other).unwrap();
    let second = run(dir, &["serve", "other.toml"]);
    assert_eq!(second.status.code(), Some(5));
    assert!(stderr(&second).contains("slow.img"), "{}", stderr(&second));
    assert!(
        !dir.join("other.sock").exists(),
        "what was begun is taken back"
    );
    // The first one did not notice.
    text(dir, &["status"]);
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (from, what) in [
        ("nbd = [\"unix:vol0.sock\", \"127.0.0.1:0\"]", "NBD clients"),
        (
            "listen = [\"unix:admin.sock\", \"127.0.0.1:0\"]",
            "the admin API",
        ),
    ] {
        let to = from.replace("127.0.0.1:0", &address);
        fs::write(dir.join("t.toml"), SMALL.replace(from, &to)).unwrap();
        let refused = run(dir, &["serve", "t.toml"]);
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        let expected = format!("cannot listen on {address} for {what}");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_pair_that_does_not_belong_together_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    if qemu_io(dir, &["write -P 1 0 64k", "flush"]).is_none() {
        return;
    }
    assert_eq!(daemon.stop().0, Some(0));
    // Another slow disk of another size behind the same cache.
    fs::remove_file(dir.join("slow.img")).unwrap();
    fs::write(dir.join("t.toml"), SMALL.replace("64MiB", "96MiB")).unwrap();
    let refused = run(dir, &["serve", "t.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr(&refused);
    assert!(
        said.contains("volume vol0") && said.contains("is the cache of"),
        "{said}"
    );
}

//! A volume with a tier: a hot region goes up, is seen on the map and in the log, and stays up over a restart.

use std::path::Path;

use serde_json::Value;

use crate::common::{Daemon, SMALL, ask, json, run, stderr, text};

/// A tier that decides quickly, of regions of 1 MiB.
fn tiered(mode: &str) -> String {
    SMALL.replace(
        "fast = \"fast\"\n",
        &format!(
            "fast = \"fast\"\nmode = \"{mode}\"\n[hybrid.tier]\nperiod = \"200ms\"\nregion = \"1MiB\"\n\
             iops_min = 1\nsub_luns_max = 4\nshare_min = 50\nstreak_min = 1\ntimeout = 1000\nbreak_even = false\n"
        ),
    )
}

fn shown(dir: &Path) -> Value {
    json(dir, &["volume", "show", "vol0", "--json"])
}

/// Asks for the sixth MiB again and again until `done`; the volume as it is then.
fn heat_until(dir: &Path, done: impl Fn(&Value) -> bool) -> Option<Value> {
    for _ in 0..300 {
        let rounds = ["write -P 6 5M 64k", "read -P 6 5M 64k", "read -P 6 5M 4k"];
        let asked: Vec<&str> = rounds.iter().cycle().take(30).copied().collect();
        if !ask(dir, &asked) {
            return None;
        }
        let volume = shown(dir);
        if done(&volume) {
            return Some(volume);
        }
    }
    panic!("nothing came of it: {}", shown(dir));
}

fn up(volume: &Value) -> u64 {
    volume["tier"]["regions_up"].as_u64().unwrap_or(0)
}

#[test]
fn a_hot_region_goes_up_and_is_seen_and_stays_up_over_a_restart() {
    for mode in ["tier", "both"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let daemon = Daemon::start(dir, &tiered(mode));
        let volume = shown(dir);
        assert_eq!(volume["settings"]["mode"], mode);
        assert_eq!(volume["settings"]["tier"]["period_seconds"], 0.2);
        assert_eq!(volume["tier"]["regions"], 64);
        let Some(volume) = heat_until(dir, |volume| up(volume) > 0) else {
            return;
        };
        assert!(volume["tier"]["moves_up"].as_u64() >= Some(1), "{volume}");

        // The region of the sixth MiB, and why.
        let moves = json(dir, &["volume", "moves", "vol0", "--region", "6", "--json"]);
        let first = &moves["moves"][0];
        assert_eq!(
            (&first["region"], &first["up"]),
            (&6.into(), &true.into()),
            "{moves}"
        );
        assert!(first["why"].as_str().unwrap().contains("hot"), "{moves}");
        let line = text(dir, &["volume", "moves", "vol0", "--limit", "1"]);
        assert!(line.contains("REGION") && line.contains("up"), "{line}");

        // It is on the map once the interval in which it went up has ended.
        let seen = |volume: &Value| {
            let heat = json(dir, &["volume", "heat", "vol0", "--json"]);
            let intervals = heat["intervals"].as_array().unwrap();
            let six = |list: &Value| list.as_array().unwrap().iter().any(|of| *of == 6);
            up(volume) > 0
                && intervals
                    .iter()
                    .any(|of| six(&of["up"]) && six(&of["candidates"]))
        };
        heat_until(dir, seen);
        let heat = json(dir, &["volume", "heat", "vol0", "--last", "1h", "--json"]);
        assert_eq!(
            (&heat["region_bytes"], &heat["regions"]),
            (&(1 << 20).into(), &64.into())
        );
        let counted = heat["intervals"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|of| of["counts"].as_array().unwrap());
        assert!(
            counted
                .clone()
                .any(|of| of["region"] == 6 && of["writes"].as_u64() > Some(0))
        );
        let map = text(
            dir,
            &[
                "volume",
                "heat",
                "vol0",
                "--width",
                "80",
                "--html",
                "heat.html",
            ],
        );
        assert!(map.contains('●') && map.contains(" up │"), "{map}");
        let page = std::fs::read_to_string(dir.join("heat.html")).unwrap();
        assert!(page.contains("Requests by region"), "the page has the map");

        let frame = text(dir, &["top", "--once", "--interval", "100ms"]);
        assert!(
            frame.contains("MOVED MB/S") && frame.contains("/64"),
            "{frame}"
        );
        assert!(text(dir, &["status"]).contains("of 64 regions of 1.0 MiB are up"));
        assert!(text(dir, &["volume", "show", "vol0"]).contains("regions up"));

        ask(dir, &["flush"]);
        assert_eq!(daemon.stop().0, Some(0));
        let daemon = Daemon::start(dir, &tiered(mode));
        let volume = shown(dir);
        assert!(
            up(&volume) >= 1,
            "mode {mode}: nothing is up after a restart: {volume}"
        );
        ask(dir, &["read -P 6 5M 64k"]);
        assert_eq!(daemon.stop().0, Some(0));
    }
}

#[test]
fn a_tier_is_switched_on_tuned_pinned_and_off_while_the_volume_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cache = "fast = \"fast\"\nmode = \"cache\"\n";
    let daemon = Daemon::start(dir, &SMALL.replace("fast = \"fast\"\n", cache));
    let refused = run(dir, &["volume", "heat", "vol0"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        stderr(&refused).contains("mode=both"),
        "{}",
        stderr(&refused)
    );
    assert!(stderr(&run(dir, &["volume", "moves", "vol0"])).contains("has no tier"));

    let said = text(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "mode=both",
            "period=200ms",
            "region=1MiB",
            "streak_min=1",
        ],
    );
    assert!(said.contains("both") && said.contains("200ms"), "{said}");
    assert!(text(dir, &["volume", "heat", "vol0"]).contains("vol0"));
    let volume = json(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "pinned=8MiB+2MiB",
            "barred=0+1MiB",
            "windows=00:00-12:00,12:00-00:00",
            "auto=on",
            "--json",
        ],
    );
    let tier = &volume["settings"]["tier"];
    assert_eq!(tier["pinned"][0], "8MiB+2MiB");
    assert_eq!(
        (&tier["windows"][0], &tier["auto"]),
        (&"00:00-12:00".into(), &true.into())
    );
    assert_eq!(tier["period_seconds"], 0.2);
    // What is pinned comes up by itself.
    let mut volume = shown(dir);
    for _ in 0..600 {
        if up(&volume) >= 2 {
            break;
        }
        ask(dir, &["read 8M 4k"]);
        volume = shown(dir);
    }
    assert!(up(&volume) >= 2, "{volume}");

    for (change, says) in [
        ("pinned=63MiB+2MiB", "reaches beyond its end at 64.0 MiB"),
        ("timeout=0", "timeout is 0"),
        ("extent=2MiB", "more than a region"),
        ("write=through", "write"),
    ] {
        let refused = run(dir, &["volume", "set", "vol0", change]);
        assert_eq!(refused.status.code(), Some(5), "{change}");
        assert!(
            stderr(&refused).contains(says),
            "{change}: {}",
            stderr(&refused)
        );
    }
    let metrics = {
        use std::io::{Read, Write};
        let address = daemon.admin_tcp();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for name in [
        "tanada_volume_tier_regions_up{volume=\"vol0\"}",
        "tanada_volume_tier_moves_total{volume=\"vol0\",way=\"up\"}",
        "tanada_volume_tier_moved_bytes_total{volume=\"vol0\",way=\"down\"}",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }

    let volume = json(dir, &["volume", "set", "vol0", "mode=cache", "--json"]);
    assert_eq!(volume["settings"]["mode"], "cache");
    assert_eq!(volume["tier"], Value::Null);
    assert_eq!(daemon.stop().0, Some(0));
}

//! The overview's figures where clients use virtual disks: with stores on disks, and on a hybrid.

use std::path::Path;

use serde_json::Value;
use testkit::browser::browser;

use super::clients::{Busy, VM1};
use super::{DESK, check, page, shows};
use crate::common::{Daemon, TWO_STORES, http, text};

const ADMIN: &str = "[admin]\nlisten = [\"unix:admin.sock\", \"127.0.0.1:0\"]\n";

/// A store on a hybrid, for virtual disks.
const ON_A_HYBRID: &str = r#"
[[device]]
name = "slow"
path = "slow.img"
size = "256MiB"
[[device]]
name = "fast"
path = "fast.img"
size = "64MiB"
[[hybrid]]
name = "h0"
slow = "slow"
fast = "fast"
[[store]]
name = "s0"
device = "h0"
listen = "unix:s0.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:disks.sock"
"#;

fn start(dir: &Path, config: &str) -> Daemon {
    let daemon = Daemon::start(dir, &[config, ADMIN].concat());
    let create = ["volume", "create", "vm1", "--size", "64MiB"];
    text(dir, &[&create[..], &["--copies", "1"]].concat());
    daemon
}

/// So many samples, as the stream has them.
fn samples(daemon: &Daemon, count: usize) -> Vec<Value> {
    let address = daemon.admin_tcp();
    let request = format!(
        "GET /v1/events?samples={count} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    let (code, stream) = http(&address, &request);
    assert_eq!(code, 200, "{stream}");
    let lines = stream.lines().filter_map(|it| it.strip_prefix("data: "));
    let all = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    all.collect()
}

#[test]
fn a_request_at_a_virtual_disk_is_counted_once_whatever_its_store_stands_on() {
    for (config, has_hybrid) in [(TWO_STORES, false), (ON_A_HYBRID, true)] {
        let dir = tempfile::tempdir().unwrap();
        let daemon = start(dir.path(), config);
        let client = Busy::start(dir.path(), VM1);
        // The first has no rates, the second may have been made before the client came.
        let samples = samples(&daemon, 5);
        assert_eq!(samples.len(), 5);
        let rounds = client.end() as f64;
        let sum = |of: &dyn Fn(&Value) -> Option<f64>| -> f64 {
            let seconds = |it: &Value| it["seconds"].as_f64().expect("a number");
            let all = samples.iter();
            all.filter_map(|it| Some(of(it)? * seconds(it))).sum()
        };
        for what in ["reads_per_second", "writes_per_second"] {
            let counted = sum(&|it| it["total"][what].as_f64());
            // At least most of three seconds, and a little more than was asked where seconds are not alike.
            let is_once = counted > rounds * 0.3 && counted < rounds * 1.1;
            assert!(is_once, "{counted} of {rounds} {what}: {samples:#?}");
        }
        let last = &samples[4]["total"];
        assert!(last["latency_ns_p99"].as_u64() > Some(0), "{last}");
        let hybrids = samples[4]["volumes"].as_array().expect("a list");
        assert_eq!(!hybrids.is_empty(), has_hybrid);
        if has_hybrid {
            assert_eq!(hybrids[0]["part_of"], "s0");
            // Below, more is written than what clients ask for.
            let below = sum(&|it| it["volumes"][0]["rates"]["write_bytes_per_second"].as_f64());
            assert!(below > 0.0, "{samples:#?}");
        }
        assert_eq!(daemon.stop().0, Some(0));
    }
}

#[test]
fn a_node_with_virtual_disks_alone_shows_what_their_clients_ask_and_how_long_it_takes() {
    let Some(mut browser) = browser() else { return };
    for (config, hits) in [
        (TWO_STORES, "fact('Hits') === '– no hybrid is here'"),
        (
            ON_A_HYBRID,
            "/ of bytes read from hybrids$/.test(fact('Hits'))",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let daemon = start(dir.path(), config);
        let client = Busy::start(dir.path(), VM1);
        let mut opened = page(&mut browser, &daemon, "", DESK);
        opened.value(shows::LOOK);
        for wanted in [
            "some(fact('Read')) && /[1-9].*\\/s$/.test(fact('Read'))",
            "some(fact('Write')) && /[1-9].*\\/s$/.test(fact('Write'))",
            "/^[\\d.]+ (µs|ms|s) p50 [\\d.]+ (µs|ms|s)$/.test(fact('Latency p99'))",
            "fact('Clients') === '1 NBD'",
            "isDrawn('Throughput', 2)",
            "isDrawn('Requests', 2)",
            "isDrawn('Latency', 1)",
            "isDrawn('Throughput of stores', 2)",
            "row('Volumes', 'vm1').Kind === 'virtual' && some(row('Volumes', 'vm1').p99)",
            hits,
        ] {
            assert!(
                opened.until(wanted),
                "{wanted}: {}",
                opened.text("document.querySelector('main').innerText")
            );
        }
        let kind = opened.value("row('Volumes', 'h0')?.Kind ?? null");
        let expected = (config == ON_A_HYBRID).then_some("hybrid of s0");
        assert_eq!(kind.as_str(), expected);
        check(&mut opened, &daemon, "overview");
        assert!(client.end() > 0);
        assert_eq!(daemon.stop().0, Some(0));
    }
}

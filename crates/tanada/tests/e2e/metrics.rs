//! The page for Prometheus, of a real daemon, as Prometheus' own tools read it; and the alerts that go with it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base::{Buf, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};

use crate::common::{Daemon, SMALL, TWO_STORES, bearer, stderr, text, without};

/// A hybrid with cache and tier, a plain device, two stores of a cluster, and virtual disks in them.
fn everything() -> String {
    let tiered = SMALL.replace(
        "fast = \"fast\"\n",
        "fast = \"fast\"\nmode = \"both\"\nmax_read = \"900MB/s\"\n",
    );
    tiered.replace("[admin]\n", &format!("{TWO_STORES}[admin]\n"))
}

/// `None` where promtool is not installed.
fn promtool(arguments: &[&str], dir: &Path, input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(dir);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = pipes.stderr(Stdio::piped()).spawn() else {
        without("promtool");
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    // Commands that read no input may be at an end already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Some(child.wait_with_output().expect("it is our child"))
}

/// A page: what stands behind its Content-Type, and its text.
fn page(daemon: &Daemon, headers: &str) -> (String, String) {
    let address = daemon.admin_tcp();
    let mut stream = TcpStream::connect(&address).expect("the daemon listens");
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    (kind.expect("a type").to_owned(), body.to_owned())
}

/// Writes, reads and flushes something at an export.
fn ask(socket: PathBuf, export: &str) {
    let export = export.to_owned();
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        let options = ClientOptions {
            export,
            ..ClientOptions::default()
        };
        let client = Client::connect(&Address::Unix(socket), &options).await;
        let client = client.expect("it is served");
        let data = View::copy_of(&[7; 65_536]);
        let written = client.write(Sector(2048), data, WriteFlags::default());
        written.await.expect("written");
        let read = client.read(Sector(2048), Buf::for_read(4096), Class::Foreground);
        assert_eq!(read.await.expect("read")[0], 7);
        client.flush().await.expect("flushed");
    });
}

/// The names of families, from the lines that say their types.
fn families(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|rest| rest.split(' ').next());
    names.map(str::to_owned).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn promtool_finds_nothing_in_the_page_of_a_daemon_with_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let daemon = Daemon::start(dir, &everything());
    text(dir, &["volume", "create", "vm1", "--size", "64MiB"]);
    text(
        dir,
        &[
            "volume",
            "create",
            "vm2",
            "--size",
            "64MiB",
            "--priority",
            "high",
        ],
    );
    for disk in ["vm1", "vm2"] {
        ask(dir.join("disks.sock"), disk);
    }
    ask(dir.join("vol0.sock"), "vol0");

    let (kind, page_text) = page(&daemon, &bearer(dir));
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    for expected in [
        r#"tanada_volume_bytes_total{volume="vol0",kind="hybrid",op="write",class="normal"} 65536"#,
        r#"tanada_volume_bytes_total{volume="vm1",kind="virtual",op="write",class="normal"} 65536"#,
        r#"tanada_volume_requests_total{volume="vm2",kind="virtual",op="read",class="high"} 1"#,
        r#"tanada_volume_requests_total{volume="vm2",kind="virtual",op="flush",class="high"} 1"#,
        r#"tanada_volume_latency_seconds_count{volume="vm1",kind="virtual",op="read",class="normal"} 1"#,
        r#"tanada_volume_health{volume="vol0",kind="hybrid",state="pass_through"} 0"#,
        r#"tanada_volume_health{volume="vm1",kind="virtual",state="healthy"} 1"#,
        r#"tanada_volume_health{volume="vm1",kind="virtual",state="read_only"} 0"#,
        r#"tanada_volume_copies_min{volume="vm1",kind="virtual"} 2"#,
        r#"tanada_volume_resync_left_bytes{volume="vm1",kind="virtual"} 0"#,
        r#"tanada_store_requests_total{store="s0",op="write"}"#,
        r#"tanada_export_requests_total{export="vol0",of="vol0",op="write"} 1"#,
        r#"tanada_device_requests_total{device="fast",op="write",work="#,
        r#"tanada_nbd_ended_total{address="unix:"#,
        r#"tanada_thread_up{thread=""#,
        "# TYPE tanada_build_info gauge",
        "process_resident_memory_bytes ",
    ] {
        assert!(
            page_text.contains(expected),
            "{expected} is not in\n{page_text}"
        );
    }
    let refused = ["pass-through", "read-only", "write zeroes", "no-demand"];
    for word in refused {
        assert!(!page_text.contains(&format!("\"{word}\"")), "{word}");
    }

    // Prometheus itself asks for OpenMetrics first: the same families.
    let (kind, open) = page(
        &daemon,
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
    );
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE tanada_build info"));
    let page_of = fs::read_to_string(repository().join("docs/metrics.md")).expect("the page");
    for family in families(&page_text) {
        let row = format!("| `{family}` |");
        assert!(page_of.contains(&row), "{family} is not in docs/metrics.md");
    }
    if let Some(said) = promtool(&["check", "metrics"], dir, &page_text) {
        let found = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{found}{}", stderr(&said));
        assert_eq!((&*found, stderr(&said)), ("", String::new()));
    }
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn each_alert_fires_by_its_series_and_is_silent_without() {
    let folder = repository().join("packaging/prometheus");
    for arguments in [
        &["check", "rules", "tanada.rules.yml"][..],
        &["test", "rules", "tanada.rules.test.yml"],
    ] {
        let Some(said) = promtool(arguments, &folder, "") else {
            return;
        };
        let out = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{out}{}", stderr(&said));
    }
    let rules = fs::read_to_string(folder.join("tanada.rules.yml")).expect("the rules");
    let tests = fs::read_to_string(folder.join("tanada.rules.test.yml")).expect("their tests");
    let alerts = rules
        .lines()
        .filter_map(|it| it.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    assert_eq!(alerts.len(), 12, "{alerts:?}");
    for alert in alerts {
        let of = tests.split("- eval_time: ").filter(|it| {
            let mut lines = it.lines().map(str::trim);
            lines.any(|line| line == format!("alertname: {alert}"))
        });
        let (silent, fires): (Vec<&str>, Vec<&str>) =
            of.partition(|it| it.contains("exp_alerts: []"));
        assert!(
            !silent.is_empty() && !fires.is_empty(),
            "{alert} is not tested both ways"
        );
    }
}

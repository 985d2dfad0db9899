//! The page of a daemon that has one of everything: which families, are they in the list, how large is it?

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::page::{ClusterSnapshot, GatewaySnapshot};
use super::*;
use crate::api::caps::{Caps, Passed};
use crate::api::clients::NbdListener;
use crate::api::cluster::{ClusterStore, Disk, DiskTerms, Resync};
use crate::api::figures::{Counters, Latency, Operation, Power};
use crate::api::health::{Health, HealthCheck, HealthStatus, Severity};
use crate::api::level::ClusterLevel;
use crate::api::status::{
    Device, DiskRequests, Export, ExportTerms, Gate, Machine, NbdRequests, Spindle, Status, Thread,
};
use crate::api::store::Store;
use crate::api::tier::Tier;
use crate::api::volume::{Cache, Settings, Volume};

fn figures(class: &str) -> Counters {
    let operation = |op: &str| Operation {
        op: op.to_owned(),
        class: class.to_owned(),
        requests: 123_456_789,
        bytes: 123_456_789_012,
        errors: 3,
        abandoned: 0,
        latency: Latency {
            count: 123_456_789,
            sum_ns: 1_234_567_890_123,
            buckets: vec![(90_000, 123_000_000), (700_000, 456_000), (90_000_000, 789)],
            ..Latency::default()
        },
    };
    Counters {
        operations: ["read", "write", "flush"].map(operation).into(),
        busy_ns: 1_234_567_890,
        depth_time_ns: 12_345_678_901,
        ..Counters::default()
    }
}

fn caps() -> Option<Caps> {
    let passed = Some(Passed {
        requests: 5,
        bytes: 4096,
        waited: 1,
        waited_seconds: 0.25,
        waiting: 0,
    });
    Some(Caps {
        max_read: Some(1_000_000),
        max_write: None,
        max_read_iops: None,
        max_write_iops: None,
        read: passed,
        write: None,
    })
}

fn hybrid(name: String) -> Volume {
    Volume {
        name,
        size_bytes: 1 << 40,
        slow: "hdd0".to_owned(),
        fast: Some("ssd0".to_owned()),
        attachment: None,
        health: "pass-through".to_owned(),
        why: String::new(),
        settings: Settings {
            mode: "both".to_owned(),
            policy: "lru".to_owned(),
            write: "back".to_owned(),
            admission: "always".to_owned(),
            block_bytes: 4096,
            sequential_bypass_bytes: None,
            dirty_low: 1,
            dirty_high: 2,
            energy: false,
            age_limit_seconds: None,
            standby_after_seconds: None,
            flash_writes_per_day_bytes: None,
            fast_size_bytes: None,
            tier: None,
        },
        cache: Cache {
            cached_bytes: 123_456_789_012,
            ..Cache::default()
        },
        tier: Some(Tier {
            flow_bytes_per_second: Some(1e6),
            ..Tier::default()
        }),
        trace: None,
        advise: false,
        caps: caps(),
        queue: None,
        figures: figures("foreground"),
    }
}

fn disk(name: String) -> Disk {
    Disk {
        terms: DiskTerms {
            kind: "virtual".to_owned(),
            name,
            id: "1".to_owned(),
            size_bytes: 1 << 40,
            copies: 2,
            min_copies: 1,
            priority: "normal".to_owned(),
            fairness: None,
            holder: None,
            on_meta_loss: "wait".to_owned(),
            caps: caps(),
        },
        health: "read-only".to_owned(),
        why: String::new(),
        open_on: None,
        clients: 1,
        from: None,
        snapshots: Vec::new(),
        out: Vec::new(),
        redundancy_floor: 2,
        generation: 1,
        epoch: 1,
        nbd: Vec::new(),
        figures: Some(figures("normal")),
        resync: Some(Resync {
            left_bytes: 1 << 30,
            copied_bytes: 1 << 31,
        }),
    }
}

/// A store with a session that has a reservation of `holder`'s, and one that has none.
fn store(holder: &str) -> Store {
    let session = |number: u64, reservation: Option<u64>| {
        json!({
            "session": number, "reservation": reservation, "holder": holder, "scope": "", "direction": null,
            "phase": "promised", "promised": 20_000_000, "delivered_bytes": 4096, "requests": 1, "outstanding_bytes": 0,
            "window_ns": 1_000_000_000, "memory_bytes": 0, "peers": [], "opened": 1, "closed": null,
            "windows": {"kept": 7, "no_demand": 1, "capacity": 0, "scheduler": 2},
        })
    };
    let stretch = json!({
        "from": 0, "until": 1, "sessions": 1, "reads": 0, "writes": 1, "promised_percent": 20.0, "headroom_percent": 10.0,
    });
    let store = json!({
        "name": "s0", "device": "d0", "listen": [], "unauthenticated": false, "unit_bytes": 1, "page_bytes": 1,
        "table_bytes": 1, "table_max_bytes": 2, "memory_bytes": 3,
        "node": {
            "store": "s0", "uuid": "1", "device": "d0", "now": 1,
            "scheduler": "tags", "depth": 1, "in_flight": 0, "shed": "best-effort", "read_bytes": 1, "written_bytes": 1,
            "metadata_bytes": 1, "best_effort_bytes": 1, "background_bytes": 1,
            "space": {"total_bytes": 100, "used_bytes": 60, "reserved_bytes": 30, "free_bytes": 10, "objects": 1},
            "capacity": {
                "read": 1, "write": 1, "source": "configured", "read_speed_percent": null, "write_speed_percent": null,
                "samples": [0, 0, 0], "calibrated": null, "calibrated_device": null, "calibration_due": false,
            },
            "calendar": {"held": 0, "committed": 1, "now": stretch, "floors_percent": 0.0, "overcommitted": []},
            "sessions": 2, "memory_bytes": 1,
            "scrub": {"rate": 0, "rounds": 0, "read_bytes": 0, "bad": 0, "round_ended": null},
            "delivered": [{"reservation": 7, "holder": "ann", "delivered_bytes": 1000,
                "windows": {"kept": 3, "no_demand": 0, "capacity": 0, "scheduler": 0}}],
            "ended": [], "log": [],
        },
        "sessions": [session(1, Some(7)), session(2, None), session(3, Some(7))],
        "scrub": crate::api::store::Scrub::default(),
        "calibrating": crate::api::store::Calibrating::default(),
        "bad_blocks": 0, "first_bad": [],
        "server": crate::api::store::Server::default(),
        "figures": figures("client"),
    });
    serde_json::from_value(store).expect("it is one")
}

/// Two volumes with old dirty data, and a store that is muted.
fn health() -> Health {
    let check = |code: &str, severity, muted| HealthCheck {
        code: code.to_owned(),
        severity,
        about: None,
        message: String::new(),
        what_to_do: String::new(),
        muted,
    };
    Health {
        status: HealthStatus::Warn,
        checks: vec![
            check("DIRTY_OLD", Severity::Warning, false),
            check("DIRTY_OLD", Severity::Warning, false),
            check("STORE_FULL", Severity::Error, true),
        ],
        mutes: Vec::new(),
    }
}

fn status() -> Status {
    let thread = Thread {
        names: vec!["vol0".to_owned()],
        poll: "adaptive".to_owned(),
        seconds: 1.0,
        spun_seconds: 0.5,
        spun_in_vain_seconds: 0.25,
    };
    Status {
        version: "0.1.0".to_owned(),
        pid: 1,
        config: "test".to_owned(),
        started_unix_seconds: 1,
        uptime_seconds: 1.5,
        dead: vec!["vol8, vol7".to_owned()],
        drivers: Vec::new(),
        threads: vec![thread],
        gates: vec![Gate {
            name: "gate 0 of unix:a".to_owned(),
            driver: "io_uring".to_owned(),
            dead: true,
            thread: None,
        }],
        devices: vec![Device {
            name: "hdd0".to_owned(),
            kind: "model".to_owned(),
            model: None,
            path: None,
            size_bytes: 1,
            physical_block_bytes: 1,
            rotational: true,
            read_only: false,
            part_of: None,
            figures: figures("background"),
            power: Some(Power {
                joules: 5.5,
                over_ns: 1,
                spin_ups: 2,
                standby: true,
            }),
            spindle: Some(Spindle {
                asleep: true,
                since_unix_seconds: 1_700_000_000,
            }),
        }],
        volumes: Vec::new(),
        stores: vec![store("ann")],
        exports: vec![Export {
            name: "vol0".to_owned(),
            device: "vol0".to_owned(),
            size_bytes: 1,
            nbd: Vec::new(),
            ublk: None,
            ublk_requests: Some(DiskRequests {
                reads: 1,
                ..DiskRequests::default()
            }),
            nbd_requests: Some(NbdRequests {
                reads: 2,
                ..NbdRequests::default()
            }),
            vhost_user: None,
            vhost_user_requests: Some(DiskRequests {
                reads: 4,
                ..DiskRequests::default()
            }),
            read_only: false,
            tls: false,
            terms: ExportTerms {
                caps: caps(),
                ..ExportTerms::default()
            },
            connections: 1,
            errors: 0,
            why: None,
        }],
        nbd: vec![NbdListener {
            address: "unix:a".to_owned(),
            clients: Vec::new(),
            accepted: 1,
            turned_away: 0,
            negotiations_failed: 0,
            stalled: 0,
            violations: 0,
        }],
        machine: Machine {
            health: health(),
            silent: vec!["vol9".to_owned()],
            ..Machine::default()
        },
    }
}

/// One of everything: a hybrid and a virtual disk of the same name among it.
fn page() -> Page {
    let mut status = status();
    status.volumes.push(hybrid("vol0".to_owned()));
    Page {
        status,
        cluster: ClusterSnapshot {
            disks: vec![disk("vol0".to_owned())],
            stores: vec![ClusterStore {
                name: "s1".to_owned(),
                number: 1,
                node: "n2".to_owned(),
                node_up: None,
                address: String::new(),
                domain: String::new(),
                rotating: false,
                state: "active".to_owned(),
                uuid: String::new(),
                states_heard: 5,
                heard_ago_ms: Some(20),
                volumes_left: None,
                extents_left_here: 0,
                job: None,
            }],
            in_trash: 0,
            meta_silent_seconds: Some(0.0),
            level: Some(ClusterLevel {
                level: 1,
                next: None,
                nodes: Vec::new(),
            }),
        },
        process: Some(ProcessSnapshot {
            open_files_max: Some(1024),
            ..ProcessSnapshot::default()
        }),
        gateways: vec![GatewaySnapshot {
            name: "gw".to_owned(),
            up: true,
            requests: vec![("GET", "2xx", 5)],
            ..GatewaySnapshot::default()
        }],
    }
}

/// Family and type, from the lines that say so.
fn types(text: &str) -> BTreeSet<(String, String)> {
    let lines = text.lines().filter_map(|it| it.strip_prefix("# TYPE "));
    let pairs = lines.filter_map(|it| it.split_once(' '));
    pairs
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

#[test]
fn the_list_has_each_family_that_is_exported_and_no_other() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let list = std::fs::read_to_string(file).expect("docs/metrics.md is there");
    let rows = list.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (kind, _) = rest.split_once(" | ")?;
        let is_family = name.starts_with("tanada_") || name.starts_with("process_");
        is_family.then(|| (name.to_owned(), kind.to_owned()))
    });
    let listed: BTreeSet<_> = rows.collect();
    let exported = types(&encode(page(), Format::Text).expect("it can be written"));
    let missing: Vec<_> = exported.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&exported).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not listed: {missing:?}; not exported: {gone:?}"
    );
}

#[test]
fn no_series_stands_twice_and_each_word_is_in_snake_case() {
    let text = encode(page(), Format::Text).expect("it can be written");
    let series = text.lines().filter(|it| !it.starts_with('#'));
    let names: Vec<&str> = series
        .filter_map(|it| it.rsplit_once(' '))
        .map(|it| it.0)
        .collect();
    assert!(!text.contains("STORE_FULL"), "it is muted");
    let different: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(different.len(), names.len());
    for expected in [
        r#"tanada_volume_health{volume="vol0",kind="hybrid",state="pass_through"} 1"#,
        r#"tanada_volume_health{volume="vol0",kind="virtual",state="read_only"} 1"#,
        r#"tanada_volume_errors_total{volume="vol0",kind="hybrid",op="read",class="normal"} 3"#,
        r#"tanada_device_errors_total{device="hdd0",op="read",work="background"} 3"#,
        r#"tanada_store_shed{store="s0",level="best_effort"} 1"#,
        r#"tanada_reservation_promised_bytes_per_second{store="s0",reservation="s0/7",holder="ann"} 40000000"#,
        r#"tanada_reservation_windows_total{store="s0",reservation="s0/7",holder="ann",end="no_demand"} 2"#,
        r#"tanada_reservation_delivered_bytes_total{store="s0",reservation="s0/7",holder="ann"} 9192"#,
        r#"tanada_export_requests_total{export="vol0",of="vol0",op="read"} 7"#,
        r#"tanada_cap_waited_total{of="volume",name="vol0",kind="virtual",direction="read"} 1"#,
        r#"tanada_health_status 1"#,
        r#"tanada_health_check{check="DIRTY_OLD",severity="warning"} 2"#,
        r#"tanada_thread_up{thread="vol0"} 1"#,
        r#"tanada_thread_up{thread="vol8,vol7"} 0"#,
        r#"tanada_thread_up{thread="vol9"} 0"#,
        r#"tanada_thread_up{thread="gate 0 of unix:a"} 0"#,
        r#"tanada_volume_latency_seconds_bucket{le="0.0001",volume="vol0",kind="virtual",op="read",class="normal"} 123000000"#,
        r#"tanada_volume_latency_seconds_bucket{le="+Inf",volume="vol0",kind="virtual",op="read",class="normal"} 123456789"#,
    ] {
        assert!(
            text.lines()
                .any(|it| it == expected || it == format!("{expected}.0")),
            "{expected} is not in\n{text}"
        );
    }
}

#[test]
fn a_holder_whose_name_is_hidden_is_no_label() {
    let mut page = page();
    page.status.stores = vec![store("")];
    let text = encode(page, Format::Text).expect("it can be written");
    assert!(
        text.contains(r#"{store="s0",reservation="s0/7"}"#),
        "{text}"
    );
    assert!(!text.contains("holder="), "{text}");
}

#[test]
fn a_page_of_a_thousand_volumes_has_less_than_12_mb() {
    let mut page = page();
    let name = |number: u32| format!("customer-{number:04}-database");
    page.status.volumes = (0..500).map(|it| hybrid(name(it))).collect();
    page.cluster.disks = (500..1000).map(|it| disk(name(it))).collect();
    let text = encode(page, Format::Text).expect("it can be written");
    println!("{} bytes", text.len());
    assert!(text.len() < 12_000_000, "{} bytes", text.len());
}

//! Each code is raised by what it means, and by nothing else.

use std::collections::BTreeSet;

use super::codes::CODES;
use super::rules::{Nodes, Observed, Process, checks};
use super::*;
use crate::api::cluster::{ClusterStore, Disk};
use crate::api::health::{HealthCheck, Severity};
use crate::api::level::ClusterLevel;
use crate::api::status::{Export, Gate, Status, WaitingDisk};
use crate::api::volume::Volume;

/// A daemon that is well.
fn well() -> Status {
    serde_json::from_str(
        r#"{"version": "1", "pid": 1, "config": "", "started_unix_seconds": 0, "uptime_seconds": 0, "drivers": ["io_uring"],
            "devices": [], "volumes": [], "exports": [], "nbd": []}"#,
    )
    .expect("it is a status")
}

fn volume() -> Volume {
    let status = hybrid::Status::default();
    let cache = serde_json::to_value(crate::api::volume::Cache::from(&status));
    let cache = cache.expect("it is JSON");
    let json = serde_json::json!({
        "name": "vol0", "size_bytes": 1, "slow": "hdd0", "fast": "ssd0", "health": "healthy", "why": "",
        "settings": {"mode": "cache", "policy": "lru", "write": "back", "admission": "always", "block_bytes": 4096,
            "sequential_bypass_bytes": null, "dirty_low": 1, "dirty_high": 2, "energy": false, "age_limit_seconds": null,
            "standby_after_seconds": null, "flash_writes_per_day_bytes": null, "fast_size_bytes": null},
        "cache": cache,
        "figures": {"over_ns": 0, "operations": [], "in_flight": 0, "busy_ns": 0, "depth_time_ns": 0},
    });
    serde_json::from_value(json).expect("it is a volume")
}

fn disk(health: &str) -> Disk {
    let json = serde_json::json!({
        "kind": "virtual", "name": "v0", "id": "1", "size_bytes": 1, "copies": 2, "min_copies": 1, "priority": "normal",
        "health": health, "why": "n2 is away", "open_on": null, "clients": 0, "from": null, "snapshots": [], "out": [],
        "weakest": 1, "generation": 1, "epoch": 1, "nbd": [], "fairness": null, "holder": null,
    });
    serde_json::from_value(json).expect("it is a disk")
}

fn node(up: Option<bool>) -> ClusterStore {
    let json = serde_json::json!({
        "name": "s0", "number": 1, "node": "n2", "node_up": up, "address": "", "domain": "n2", "rotating": true,
        "state": "active", "uuid": "", "states_heard": 0, "heard_ago_ms": null, "volumes_left": null,
        "extents_left_here": 0,
    });
    serde_json::from_value(json).expect("it is a store of the cluster")
}

fn export(why: Option<&str>) -> Export {
    let json = serde_json::json!({
        "name": "e0", "device": "vol0", "size_bytes": 1, "nbd": [], "read_only": false, "tls": false, "connections": 0,
        "errors": 0, "why": why, "priority": null, "fairness": null,
    });
    serde_json::from_value(json).expect("it is an export")
}

/// What is raised.
fn raised(status: &Status, process: &Process, cluster: Nodes<'_>) -> Vec<HealthCheck> {
    let mut recent = Recent::new(Instant::now());
    let observed = Observed {
        status,
        cluster,
        process,
    };
    checks(&observed, &mut recent)
}

/// The codes that a daemon that is well but for this one change raises.
fn of_status(change: impl FnOnce(&mut Status)) -> Vec<String> {
    let mut status = well();
    change(&mut status);
    codes(&raised(&status, &Process::default(), Nodes::default()))
}

fn of_volume(change: impl FnOnce(&mut Volume)) -> Vec<String> {
    let mut volume = volume();
    change(&mut volume);
    of_status(|status| status.volumes.push(volume))
}

fn of_process(change: impl FnOnce(&mut Process)) -> Vec<String> {
    let mut process = Process::default();
    change(&mut process);
    codes(&raised(&well(), &process, Nodes::default()))
}

fn of_disk(health: &str) -> Vec<String> {
    let cluster = Nodes {
        disks: &[disk(health)],
        ..Nodes::default()
    };
    codes(&raised(&well(), &Process::default(), cluster))
}

fn codes(checks: &[HealthCheck]) -> Vec<String> {
    checks.iter().map(|it| it.code.clone()).collect()
}

#[test]
fn what_is_well_raises_nothing() {
    assert!(of_status(|_| ()).is_empty());
    assert!(of_volume(|_| ()).is_empty());
    assert!(of_disk("healthy").is_empty());
    let exports = |status: &mut Status| status.exports.push(export(None));
    assert!(of_status(exports).is_empty());
    let cluster = Nodes {
        stores: &[node(Some(true)), node(None)],
        silent_seconds: 4.0,
        ..Nodes::default()
    };
    assert!(raised(&well(), &Process::default(), cluster).is_empty());
}

#[test]
fn threads_and_the_process_raise_theirs() {
    let thread = |name: &str| name.to_owned();
    assert_eq!(
        of_status(|it| it.dead.push(thread("vol0"))),
        ["THREAD_SILENT"]
    );
    assert_eq!(
        of_process(|it| it.silent.push(thread("vol0"))),
        ["THREAD_SILENT"]
    );
    let gate = Gate {
        name: "gate 0 of 127.0.0.1:1".to_owned(),
        driver: "io_uring".to_owned(),
        dead: true,
        thread: None,
    };
    let hung = Gate {
        dead: false,
        ..gate.clone()
    };
    assert_eq!(of_status(|it| it.gates.push(hung)), ["THREAD_SILENT"]);
    assert_eq!(of_status(|it| it.gates.push(gate)), ["THREAD_SILENT"]);
    assert_eq!(of_process(|it| it.log_lines_lost = 3), ["LOG_LOST"]);
    assert_eq!(
        of_process(|it| it.audit_trouble = Some("full".to_owned())),
        ["LOG_LOST"]
    );
    assert_eq!(of_process(|it| it.is_replaced = true), ["NOT_RESTARTED"]);
    let shadowed = (
        "vol0 write".to_owned(),
        "the configuration says back".to_owned(),
    );
    assert_eq!(
        of_process(|it| it.shadowed.push(shadowed)),
        ["FILE_SHADOWED"]
    );
    assert_eq!(
        of_process(|it| it.is_cluster_silent = true),
        ["META_SILENT"]
    );
    assert_eq!(
        of_status(|it| it.drivers.push("thread pool".to_owned())),
        ["IO_URING_REFUSED"]
    );
    let waiting = WaitingDisk {
        path: "/dev/ublkb0".to_owned(),
        process: None,
    };
    assert_eq!(
        of_status(|it| it.machine.ublk_waiting.push(waiting)),
        ["DISK_WAITS"]
    );
    let closed = |status: &mut Status| status.exports.push(export(Some("v0 is offline")));
    assert_eq!(of_status(closed), ["EXPORT_CLOSED"]);
}

#[test]
fn a_hybrid_raises_what_its_state_means() {
    for (health, code) in [
        ("failed", "VOLUME_OFFLINE"),
        ("closed", "VOLUME_OFFLINE"),
        ("cache-lost", "CACHE_LOST"),
        ("degraded", "VOLUME_DEGRADED"),
        ("pass-through", "CACHE_DETACHED"),
        ("evacuating", "CACHE_DETACHED"),
    ] {
        assert_eq!(
            of_volume(|it| it.health = health.to_owned()),
            [code],
            "{health}"
        );
    }
    let hours = |hours: u64| hours * 3_600_000_000_000;
    let dirty = |age: u64, energy: Option<f64>| {
        of_volume(|it| {
            it.cache.dirty_bytes = 4096;
            it.cache.dirty_age_ns = age;
            it.settings.energy = energy.is_some();
            it.settings.age_limit_seconds = energy;
        })
    };
    assert!(dirty(hours(2), None).is_empty());
    assert_eq!(dirty(hours(2) + 1, None), ["DIRTY_OLD"]);
    // Energy mode lets them wait.
    assert!(dirty(hours(5), Some(3.0 * 3600.0)).is_empty());
    assert_eq!(dirty(hours(6) + 1, Some(3.0 * 3600.0)), ["DIRTY_OLD"]);
    assert_eq!(
        of_volume(|it| it.cache.unreadable_dirty_bytes = 1),
        ["CHECKSUM"]
    );
    assert_eq!(of_volume(|it| it.cache.bad_checksums = 1), ["CHECKSUM"]);
}

#[test]
fn virtual_disks_and_nodes_raise_theirs() {
    for (health, code) in [
        ("offline", "VOLUME_OFFLINE"),
        ("read-only", "VOLUME_READ_ONLY"),
        ("full", "STORE_FULL"),
        ("degraded", "VOLUME_DEGRADED"),
        ("resyncing", "VOLUME_DEGRADED"),
    ] {
        assert_eq!(of_disk(health), [code], "{health}");
    }
    let cluster = Nodes {
        stores: &[node(Some(false)), node(Some(false))],
        silent_seconds: 6.0,
        ..Nodes::default()
    };
    let found = raised(&well(), &Process::default(), cluster);
    assert_eq!(
        codes(&found),
        ["META_SILENT", "NODE_DOWN"],
        "each node once"
    );
    assert_eq!(found[1].about.as_deref(), Some("n2"));
    // Causes come before what comes of them.
    let at = |name: &str| CODES.iter().position(|code| code.name == name);
    assert!(at("META_SILENT") < at("VOLUME_OFFLINE") && at("NODE_DOWN") < at("VOLUME_DEGRADED"));
    assert!(at("STORE_FULL") < at("VOLUME_READ_ONLY") && at("CACHE_LOST") < at("VOLUME_OFFLINE"));
}

#[test]
fn a_store_without_room_names_the_trash_if_there_is_something_in_it() {
    let said = |free: u64, in_trash: usize| {
        let found = store_rules::room("s1", (free, 1000), in_trash);
        found.map(|it| (it.code, it.what_to_do))
    };
    for (free, code) in [(5, "STORE_FULL"), (50, "NEAR_FULL")] {
        let (found, todo) = said(free, 0).expect("it is raised");
        assert!(found == code && !todo.contains("trash"), "{todo}");
        let (_, todo) = said(free, 1).expect("it is raised");
        assert!(
            todo.contains("or the volume that `tanada trash list` shows"),
            "{todo}"
        );
    }
    assert_eq!(said(500, 1), None);
}

#[test]
fn a_cluster_below_what_all_its_nodes_can_do_raises_level_behind() {
    let of = |next| {
        let level = ClusterLevel {
            level: 1,
            next,
            nodes: Vec::new(),
        };
        let cluster = Nodes {
            level: Some(&level),
            ..Nodes::default()
        };
        raised(&well(), &Process::default(), cluster)
    };
    assert!(of(None).is_empty());
    let found = of(Some(2));
    assert_eq!(codes(&found), ["LEVEL_BEHIND"]);
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(
        found[0].message,
        "it is at level 1, and all its nodes can do level 2"
    );
    assert!(found[0].what_to_do.contains("`tanada cluster upgrade`"));
}

#[test]
fn a_bad_checksum_counts_for_an_hour() {
    let start = Instant::now();
    let mut recent = Recent::new(start);
    let mut after = |minutes: u64, value: u64| {
        let now = start + std::time::Duration::from_secs(60 * minutes);
        recent
            .at(now)
            .rose("CHECKSUM", "vol0", value, base::Nanos::secs(3600))
    };
    assert!(!after(0, 0));
    assert!(after(1, 2));
    assert!(after(60, 2));
    assert!(!after(61, 2));
    assert!(!after(62, 0), "opened anew");
    assert!(after(63, 1));
}

#[test]
fn the_worst_comes_first_and_each_code_once_in_the_list_and_in_its_document() {
    let mut status = well();
    status.dead.push("vol0".to_owned());
    status.drivers.push("thread pool".to_owned());
    status.exports.push(export(Some("gone")));
    let found = raised(&status, &Process::default(), Nodes::default());
    let severities: Vec<Severity> = found.iter().map(|it| it.severity).collect();
    let (error, warning) = (Severity::Error, Severity::Warning);
    assert_eq!(severities, [error, error, warning]);

    let page = include_str!("../../../../../docs/health.md");
    let names: BTreeSet<&str> = CODES.iter().map(|it| it.name).collect();
    assert_eq!(names.len(), CODES.len());
    for code in CODES {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {} |", code.name)));
        let row = row.unwrap_or_else(|| panic!("docs/health.md lacks {}", code.name));
        assert!(row.contains(code.meaning), "{row}\n{}", code.meaning);
    }
    let is_code = |word: &str| word.bytes().all(|it| it.is_ascii_uppercase() || it == b'_');
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.split_once(" |"));
    let rows = rows.filter(|(first, _)| is_code(first));
    assert_eq!(
        rows.count(),
        CODES.len(),
        "docs/health.md lists what is none"
    );
}

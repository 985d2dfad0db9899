//! What raises each code? What was observed goes in, checks come out.
//!
//! ```text
//! Observed: status, cluster, process | what rose lately -> rules -> checks, the worst first
//! ```
//!
//! Always true: no check names an account or a holder, since every user of the machine may read them.

use base::Nanos;

use super::codes::{
    CERTIFICATE_ENDS, CODES, DISK_WAITS, EXPORT_CLOSED, FILE_SHADOWED, IO_URING_REFUSED,
    LEVEL_BEHIND, LOG_LOST, META_SILENT, NODE_DOWN, NOT_RESTARTED, THREAD_SILENT,
};
use super::recent::Recent;
use super::{store_rules, volume_rules};
use crate::api::cluster::{ClusterStore, Disk};
use crate::api::health::HealthCheck;
use crate::api::level::ClusterLevel;
use crate::api::status::{Export, Status};
use crate::daemon::common::waiting::WAITING_DISK_TODO;

/// The meta store may be silent for so long, as while its leader changes.
const META_SILENT_SECONDS: f64 = 5.0;
/// A lost line of the log counts for so long.
const LOG_SPAN: Nanos = Nanos::secs(3600);

/// What the process knows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Data threads whose heart has not beaten for a while.
    pub silent: Vec<String>,
    /// Its program was replaced by another one.
    pub is_replaced: bool,
    /// Why the audit log cannot be written.
    pub audit_trouble: Option<String>,
    /// `VOLUME KEY`, and what the configuration says of it in vain.
    pub shadowed: Vec<(String, String)>,
    /// Lines of the log that were lost.
    pub log_lines_lost: u64,
    /// The cluster was asked, and gave no answer.
    pub is_cluster_silent: bool,
}

/// The cluster, as this node sees it.
#[derive(Clone, Copy, Default)]
pub struct Nodes<'a> {
    pub disks: &'a [Disk],
    pub stores: &'a [ClusterStore],
    /// Deleted disks that are kept.
    pub in_trash: usize,
    /// For how long its meta store has not answered.
    pub silent_seconds: f64,
    /// Its level, as far as that is known.
    pub level: Option<&'a ClusterLevel>,
}

/// What the rules go by.
pub struct Observed<'a> {
    pub status: &'a Status,
    pub cluster: Nodes<'a>,
    pub process: &'a Process,
}

/// All that is wrong, the worst first. `recent` remembers what rose lately.
pub fn checks(observed: &Observed<'_>, recent: &mut Recent) -> Vec<HealthCheck> {
    let (status, process) = (observed.status, observed.process);
    let mut out = Vec::new();
    threads(status, process, &mut out);
    log(process, recent, &mut out);
    program(status, process, &mut out);
    machine(status, &mut out);
    for volume in &status.volumes {
        volume_rules::hybrid(volume, recent, &mut out);
    }
    for store in &status.stores {
        store_rules::of_store(store, observed.cluster.in_trash, &mut out);
    }
    out.extend(status.exports.iter().filter_map(export));
    out.extend(meta_store(observed.cluster, process));
    nodes(observed.cluster, &mut out);
    out.extend(observed.cluster.level.and_then(level));
    let disks = observed.cluster.disks.iter();
    out.extend(disks.filter_map(volume_rules::virtual_disk));
    out.sort_by_key(|check| CODES.iter().position(|code| code.name == check.code));
    out
}

/// Data threads and gates.
fn threads(status: &Status, process: &Process, out: &mut Vec<HealthCheck>) {
    let todo = "the log says why; what is on it is served again once the daemon is restarted";
    let gates = status.gates.iter().filter(|gate| gate.dead);
    let ended = status.dead.iter().chain(gates.map(|gate| &gate.name));
    let ended = ended.map(|name| (name, "its thread has ended"));
    let hung = status
        .gates
        .iter()
        .filter(|gate| !gate.dead && gate.thread.is_none());
    let silent = process.silent.iter().chain(hung.map(|gate| &gate.name));
    let silent = silent.map(|name| (name, "its thread stands still"));
    for (name, what) in ended.chain(silent) {
        out.push(THREAD_SILENT.raised(Some(name), what, todo));
    }
}

fn log(process: &Process, recent: &mut Recent, out: &mut Vec<HealthCheck>) {
    let lost = process.log_lines_lost;
    if recent.rose(LOG_LOST.name, "", lost, LOG_SPAN) {
        let what = format!("{lost} lines of the log were lost");
        let todo = "see that what reads standard error keeps up, or set RUST_LOG to less";
        out.push(LOG_LOST.raised(None, what, todo));
    }
    if let Some(why) = &process.audit_trouble {
        let what = format!("it cannot be written: {why}");
        let todo = "make room in the data directory";
        out.push(LOG_LOST.raised(Some("the audit log"), what, todo));
    }
}

/// The program and its configuration.
fn program(status: &Status, process: &Process, out: &mut Vec<HealthCheck>) {
    if process.is_replaced {
        let what = format!(
            "version {} runs, and its program was replaced",
            status.version
        );
        let todo = "restart the daemon when a pause of some seconds suits";
        out.push(NOT_RESTARTED.raised(None, what, todo));
    }
    for (key, what) in &process.shadowed {
        let todo = "write into the configuration what is in force, or take the setting back with `tanada config reset`";
        out.push(FILE_SHADOWED.raised(Some(key), what, todo));
    }
}

/// What the machine gives.
fn machine(status: &Status, out: &mut Vec<HealthCheck>) {
    if status.drivers.iter().any(|driver| driver != "io_uring") {
        let what = "a thread pool reads and writes files";
        let todo = "`tanada doctor` says why: an old kernel, a container's seccomp profile, or kernel.io_uring_disabled";
        out.push(IO_URING_REFUSED.raised(None, what, todo));
    }
    let certificate = status.machine.certificate.as_ref();
    if let Some(warning) = certificate.and_then(|it| it.warning.as_ref()) {
        let todo = "docs/certificates.md says how a node gets a new one";
        out.push(CERTIFICATE_ENDS.raised(None, warning, todo));
    }
    for disk in &status.machine.ublk_waiting {
        out.push(DISK_WAITS.raised(Some(&disk.path), disk.said(), WAITING_DISK_TODO));
    }
}

fn export(of: &Export) -> Option<HealthCheck> {
    let todo = "the reason names what it stands on: see to that first";
    let why = of.why.as_ref()?;
    Some(EXPORT_CLOSED.raised(Some(&of.name), why, todo))
}

fn meta_store(cluster: Nodes<'_>, process: &Process) -> Option<HealthCheck> {
    let silent = cluster.silent_seconds;
    let what = match silent > META_SILENT_SECONDS {
        true => format!("it has not answered for {silent:.0} s"),
        false if process.is_cluster_silent => "it gives no answer".to_owned(),
        false => return None,
    };
    let todo = "see that most members of the meta store run and can be reached; what is shown of the cluster is older";
    Some(META_SILENT.raised(Some("the meta store"), what, todo))
}

fn nodes(cluster: Nodes<'_>, out: &mut Vec<HealthCheck>) {
    let down = cluster.stores.iter().filter(|it| it.node_up == Some(false));
    let mut down: Vec<&str> = down.map(|it| it.node.as_str()).collect();
    down.sort_unstable();
    down.dedup();
    for node in down {
        let todo = "start its daemon, or see to its network; if it is gone for good, remove it (`tanada node --help`)";
        out.push(NODE_DOWN.raised(Some(node), "it does not renew its lease", todo));
    }
}

fn level(of: &ClusterLevel) -> Option<HealthCheck> {
    let (level, next) = (of.level, of.next?);
    let what = format!("it is at level {level}, and all its nodes can do level {next}");
    let todo = "`tanada cluster upgrade` raises it, for good; leave it while you may go back to the program before";
    Some(LEVEL_BEHIND.raised(Some("the cluster"), what, todo))
}

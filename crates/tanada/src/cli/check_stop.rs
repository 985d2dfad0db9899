//! `tanada node check-stop`: may a node be stopped without a volume that refuses writes?
//!
//! ```text
//! volumes, stores -> decide: what each volume has left at worst -> exit status 0, or 5 with the volumes that have too little
//! ```
//!
//! Always true: what is not known counts as lost, so 0 is never said too early.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use report::terminal::table::table;
use report::terminal::{Ending, Refused};
use serde::Serialize;
use utoipa::ToSchema;
use vdisk::record::Name;

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::cluster::{ClusterStore, Disk, Here};

#[derive(Debug, Args)]
pub struct CheckStop {
    /// The node that is to be stopped.
    node: Name,
    #[command(flatten)]
    ask: Ask,
}

/// What a volume would have while the node is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CopiesLeft)]
pub struct Left {
    volume: String,
    /// The least number of in-sync copies that any of its extents may have, now and then.
    copies_now: u8,
    copies_then: u8,
    min_copies: u8,
}

impl Left {
    fn suffices(&self) -> bool {
        self.copies_then >= self.min_copies
    }
}

/// Runs it.
pub fn run(asked: &CheckStop) -> anyhow::Result<ExitCode> {
    let client = Client::new(asked.ask.admin.clone())?;
    let here: Here = client.get("/v1/cluster")?;
    let disks: Vec<Disk> = client.get("/v1/cluster/volumes")?;
    let node = asked.node.to_string();
    if !here.stores.iter().any(|store| store.node == node) {
        let mut nodes: Vec<&str> = here.stores.iter().map(|it| it.node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let why = format!(
            "no store is on a node '{node}'; the nodes are {}",
            nodes.join(", ")
        );
        return Err(Refused(why).into());
    }
    let left = decide(&node, &disks, &here.stores);
    show::answer(asked.ask.json, &left, || page(&node, &left))?;
    Ok(match left.iter().all(Left::suffices) {
        true => Ending::Done.into(),
        false => Ending::Refused.into(),
    })
}

/// What each volume has left at worst.
fn decide(node: &str, disks: &[Disk], stores: &[ClusterStore]) -> Vec<Left> {
    let left = |disk: &Disk| {
        let is_out = |store: &ClusterStore| disk.out.iter().any(|out| out.store == store.number);
        // Two copies of an extent are never in one domain.
        let counts = stores.iter().filter(|it| it.node == node && !is_out(it));
        let lost: BTreeSet<&str> = counts.map(|it| it.domain.as_str()).collect();
        let lost = u8::try_from(lost.len()).unwrap_or(u8::MAX);
        Left {
            volume: disk.terms.name.clone(),
            copies_now: disk.redundancy_floor,
            copies_then: disk.redundancy_floor.saturating_sub(lost),
            min_copies: disk.terms.min_copies,
        }
    };
    disks.iter().map(left).collect()
}

fn page(node: &str, left: &[Left]) -> String {
    let short: Vec<&Left> = left.iter().filter(|it| !it.suffices()).collect();
    if short.is_empty() {
        return format!(
            "{node} can be stopped: every volume keeps the copies that its writes need\n"
        );
    }
    let rows: Vec<Vec<String>> = short
        .iter()
        .map(|it| {
            vec![
                it.volume.clone(),
                it.copies_now.to_string(),
                it.copies_then.to_string(),
                it.min_copies.to_string(),
            ]
        })
        .collect();
    let head = ["VOLUME", "IN SYNC NOW", "IN SYNC THEN", "NEEDS"];
    format!(
        "{}{node} should not be stopped: these volumes could refuse writes; wait until their copies are in sync (`tanada \
         volume list`), or lower their min-copies\n",
        table(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(floor: u8, min: u8, out: &[u16]) -> Disk {
        let out: Vec<_> = out
            .iter()
            .map(|store| serde_json::json!({"store": store, "since_generation": 1}))
            .collect();
        let json = serde_json::json!({
            "kind": "virtual", "name": "v0", "id": "1", "size_bytes": 1, "copies": 3, "min_copies": min,
            "priority": "normal", "health": "healthy", "why": "", "open_on": null, "clients": 0, "from": null,
            "snapshots": [], "out": out, "weakest": floor, "generation": 1, "epoch": 1, "nbd": [], "fairness": null,
            "holder": null,
        });
        serde_json::from_value(json).expect("it is a disk")
    }

    fn store(number: u16, node: &str, domain: &str) -> ClusterStore {
        let json = serde_json::json!({
            "name": format!("s{number}"), "number": number, "node": node, "node_up": true, "address": "", "domain": domain,
            "rotating": true, "state": "active", "uuid": "", "states_heard": 0, "heard_ago_ms": null,
            "volumes_left": null, "extents_left_here": 0,
        });
        serde_json::from_value(json).expect("it is a store")
    }

    #[test]
    fn a_node_may_stop_while_each_volume_keeps_the_copies_its_writes_need() {
        let stores = [
            store(1, "n1", "n1"),
            store(2, "n1", "n1"),
            store(3, "n2", "n2"),
            store(4, "n3", "rack1"),
            store(5, "n3", "rack2"),
        ];
        let then = |node: &str, floor: u8, min: u8, out: &[u16]| {
            let left = decide(node, &[disk(floor, min, out)], &stores);
            (left[0].copies_then, left[0].suffices())
        };
        // Two stores of one domain have one copy of an extent between them.
        assert_eq!(then("n1", 2, 1, &[]), (1, true));
        assert_eq!(then("n1", 2, 2, &[]), (1, false));
        assert_eq!(then("n1", 1, 1, &[]), (0, false));
        // Stores that are out have no copy that counts; one of two still may.
        assert_eq!(then("n1", 1, 1, &[1, 2]), (1, true));
        assert_eq!(then("n1", 1, 1, &[1]), (0, false));
        // Two domains of a node may have a copy each.
        assert_eq!(then("n3", 2, 1, &[]), (0, false));
        assert_eq!(then("n3", 3, 1, &[]), (1, true));
        let page = page("n1", &decide("n1", &[disk(1, 1, &[])], &stores));
        assert!(
            page.contains("v0") && page.contains("should not be stopped"),
            "{page}"
        );
    }
}

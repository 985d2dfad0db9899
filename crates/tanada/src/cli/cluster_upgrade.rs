//! `tanada cluster upgrade`: the last step of a rolling upgrade.
//!
//! ```text
//! programs of all nodes are new -> POST /v1/cluster/upgrade -> from, to, nodes | refused (5): who cannot
//! ```

use clap::Args;
use hyper::Method;
use report::terminal::table;

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::level::{ClusterLevel, NodeLevels, UpgradeAsk, Upgraded};

#[derive(Debug, Args)]
pub struct Upgrade {
    /// Change nothing, and say what the level would be.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    ask: Ask,
}

/// Runs it.
pub fn run(asked: &Upgrade) -> anyhow::Result<()> {
    let client = Client::new(asked.ask.admin.clone())?;
    let ask = UpgradeAsk {
        dry_run: asked.dry_run,
    };
    let done: Upgraded = client.send_json(Method::POST, "/v1/cluster/upgrade", &ask)?;
    show::answer(asked.ask.json, &done, || page(&done))
}

fn page(done: &Upgraded) -> String {
    let Upgraded { from, to, .. } = done;
    let said = match (from == to, done.dry_run) {
        (true, _) => format!("the cluster is at level {to}, the highest that its nodes can do"),
        (false, true) => format!(
            "the cluster would be raised from level {from} to {to}; older programs could take no part any more"
        ),
        (false, false) => format!("the cluster is at level {to} now, after level {from}"),
    };
    format!("{}{said}\n", nodes(&done.nodes))
}

fn nodes(nodes: &[NodeLevels]) -> String {
    let row = |of: &NodeLevels| {
        let is = if of.up { "up" } else { "down" };
        vec![of.node.clone(), is.to_owned(), levels(of)]
    };
    let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
    table::table(&["NODE", "IS", "LEVELS"], &rows)
}

fn levels(of: &NodeLevels) -> String {
    match (of.level_min, of.level_max) {
        (Some(min), Some(max)) if min == max => min.to_string(),
        (Some(min), Some(max)) => format!("{min} to {max}"),
        _ => "-".to_owned(),
    }
}

/// The level in a line.
pub(super) fn line(of: &ClusterLevel) -> String {
    let level = of.level;
    match of.next {
        Some(next) => format!(
            "the cluster is at level {level}, and all nodes can do level {next}: `tanada cluster upgrade`\n"
        ),
        None => {
            let lower = of.nodes.iter().filter(|node| node.level_max <= Some(level));
            let lower: Vec<&str> = lower.map(|node| node.node.as_str()).collect();
            match lower.len() == of.nodes.len() {
                true => format!("the cluster is at level {level}\n"),
                false => format!(
                    "the cluster is at level {level}, for {} can do no higher one, or does not say\n",
                    lower.join(", ")
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, max: Option<u32>) -> NodeLevels {
        NodeLevels {
            node: name.to_owned(),
            up: max.is_some(),
            level_min: max.map(|_| 1),
            level_max: max,
        }
    }

    #[test]
    fn a_raise_is_shown_with_its_nodes_and_whether_it_was_done() {
        let done = |from, to, dry_run| Upgraded {
            from,
            to,
            dry_run,
            nodes: vec![node("n1", Some(2)), node("n2", None)],
        };
        let text = page(&done(1, 2, false));
        assert_eq!(
            text,
            "NODE  IS    LEVELS\nn1    up    1 to 2\nn2    down       -\n\
             the cluster is at level 2 now, after level 1\n"
        );
        assert!(page(&done(1, 2, true)).contains("would be raised from level 1 to 2"));
        assert!(page(&done(2, 2, true)).contains("the highest that its nodes can do"));
    }

    #[test]
    fn the_line_says_what_keeps_the_level() {
        let at = |next, nodes: &[NodeLevels]| {
            line(&ClusterLevel {
                level: 1,
                next,
                nodes: nodes.to_vec(),
            })
        };
        let (n1, n2, n3) = (node("n1", Some(2)), node("n2", Some(1)), node("n3", None));
        assert!(
            at(Some(2), std::slice::from_ref(&n1))
                .ends_with("can do level 2: `tanada cluster upgrade`\n")
        );
        assert_eq!(
            at(None, std::slice::from_ref(&n2)),
            "the cluster is at level 1\n"
        );
        assert!(at(None, &[n1, n2, n3]).contains("for n2, n3 can do no higher one"));
    }
}

//! A node is killed while it reserves: what is left behind after 20 s?

use std::collections::BTreeSet;
use std::error::Error;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use env::Rng;

use super::Report;
use super::nodes::{Disks, Nodes};

const KILLS: u64 = 20;
/// A coordinator is through in less.
const MOST: u64 = 60_000;

pub fn crash(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::start(Disks::Files)?;
    nodes.text(
        2,
        &[
            "volume", "create", "vm1", "--size", "64MiB", "--copies", "2",
        ],
    )?;
    let mut rng = Rng::from_seed(21);
    let (mut left, mut lost, mut made) = (0, 0, 0);
    for nth in 0..KILLS {
        let name = format!("job{nth}");
        let asked = [
            "reservation",
            "create",
            &name,
            "--volume",
            "vm1",
            "--read",
            "1MB/s",
            "--for",
            "1h",
        ];
        let mut asking = nodes
            .node(1)
            .tanada(&asked)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // The command takes some milliseconds until it has asked.
        sleep(Duration::from_micros(5_000 + rng.below(MOST)));
        nodes.kill(1);
        let answered = asking.wait()?.success();
        sleep(Duration::from_secs(20));
        let standing = standing(&nodes)?;
        let there = standing.0.contains(&name);
        made += u64::from(there);
        lost += u64::from(answered && !there);
        left += parts(&nodes, &[2, 3])?.difference(&standing.1).count();
        if there {
            nodes.text(2, &["reservation", "delete", &name])?;
        }
        nodes.begin(1)?;
        sleep(Duration::from_secs(5));
        left += parts(&nodes, &[1])?
            .difference(&standing.1)
            .filter(|it| !it.is_empty())
            .count();
    }
    report.row(
        ("crash", "parts without a committed record, 20 kills", ""),
        &[left as f64],
        "0",
        left == 0,
    );
    report.row(
        ("crash", "answered and lost", ""),
        &[lost as f64],
        "0",
        lost == 0,
    );
    report.say(&format!("         {made} of {KILLS} were made"));
    Ok(())
}

/// Names of reservations that stand, and their parts as `STORE/NUMBER`.
fn standing(nodes: &Nodes) -> Result<(BTreeSet<String>, BTreeSet<String>), Box<dyn Error>> {
    let all = nodes.json(2, &["reservation", "list", "--json"])?;
    let mut found = (BTreeSet::new(), BTreeSet::new());
    for one in all.as_array().ok_or("a list")? {
        if !matches!(one["state"].as_str(), Some("committed" | "degraded")) {
            continue;
        }
        found.0.extend(one["name"].as_str().map(str::to_owned));
        for part in one["parts"].as_array().into_iter().flatten() {
            let (store, number) = (part["store"].as_str(), part["number"].as_u64());
            found.1.extend(
                store
                    .zip(number)
                    .map(|(store, number)| format!("{store}/{number}")),
            );
        }
    }
    Ok(found)
}

/// The parts that the stores of these nodes have.
fn parts(nodes: &Nodes, of: &[usize]) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut all = BTreeSet::new();
    for nth in of {
        let listed = nodes.json(*nth, &["reserve", "list", "--json"])?;
        let ids = listed.as_array().into_iter().flatten();
        all.extend(ids.filter_map(|it| it["id"].as_str()).map(str::to_owned));
    }
    Ok(all)
}

//! Capabilities of any scope: does one open anything of virtual disks or buckets?
//!
//! ```text
//! node key   -> names in v/ m/ d/ g/ s3/                     (each of them has some)
//! capability -> read, look, list, write, create, delete them -> all refused, and volumes read as before
//! ```

use std::error::Error;
use std::rc::Rc;

use base::{Nanos, View};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use env::net::Address;
use env::{RealConfig, Runtime};
use serde_json::{Value, json};
use store::net::client::{Client, ClientError, ClientOptions, Credentials};
use store::{Change, ObjectCalls};

use super::load::is_filled;
use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};
use super::windows::volumes;

const HIDDEN: [&str; 5] = ["v/", "m/", "d/", "g/", "s3/"];
const SCOPES: [&str; 15] = [
    "", "v", "v/", "m", "m/", "d/", "g/", "s", "s3", "s3/", "s3/b", ".", ".tanada/", "/", "a/",
];
/// What the owner of `a/` may read.
const OWN: &str = "a/own";

/// What was asked with all capabilities, and how that ended.
#[derive(Default)]
struct Tally {
    asked: usize,
    refused: usize,
    /// Lists that showed nothing.
    empty: usize,
    opened: Vec<String>,
    failed: Vec<String>,
}

impl Tally {
    fn note<T>(&mut self, what: String, outcome: Result<T, ClientError>) {
        self.asked += 1;
        match outcome {
            Ok(_) => self.opened.push(what),
            Err(ClientError::Refused { .. }) => self.refused += 1,
            Err(error) => self.failed.push(format!("{what}: {error}")),
        }
    }
}

async fn come(address: &Address, credentials: Credentials) -> Result<Client, ClientError> {
    let options = ClientOptions {
        timeout: Nanos::secs(60),
        ..ClientOptions::default()
    };
    Client::connect_with(address, credentials, &options).await
}

/// Names in each hidden folder, as the node key lists them; where there is none, one is made.
async fn names(address: &Address, key: [u8; 32]) -> Result<Vec<String>, ClientError> {
    let client = come(address, Credentials::NodeKey(key)).await?;
    client.create(OWN, &[], Change::default()).await?;
    let own = View::copy_of(&[5; 4096]);
    client.write(OWN, 0, own, Change::default()).await?;
    let mut all = Vec::new();
    for prefix in HIDDEN {
        let mut listed = client.list(prefix, None, 3).await?.objects;
        if listed.is_empty() {
            let made = format!("{prefix}00000007/made");
            client.create(&made, &[], Change::default()).await?;
            listed = client.list(prefix, None, 3).await?.objects;
        }
        all.extend(listed.into_iter().map(|it| it.name));
    }
    client.flush().await?;
    client.close().await;
    Ok(all)
}

/// Asks for each name in each way.
async fn try_all(
    address: Address,
    (scope, token, names): (String, String, Rc<Vec<String>>),
) -> Result<Tally, ClientError> {
    let mut tally = Tally::default();
    let client = come(&address, Credentials::Capability(token)).await?;
    let made_up = HIDDEN.iter().map(|it| format!("{it}made-up"));
    let change = Change::default();
    for name in names.iter().cloned().chain(made_up) {
        let what = |how: &str| format!("{how} {name} with scope '{scope}'");
        tally.note(what("read"), client.read(&name, 0, 512).await);
        tally.note(what("look at"), client.stat(&name).await);
        let data = View::copy_of(&[9; 512]);
        tally.note(what("write"), client.write(&name, 0, data, change).await);
        tally.note(what("create"), client.create(&name, &[], change).await);
        tally.note(what("delete"), client.delete(&name, change).await);
    }
    for prefix in HIDDEN.iter().chain(&["", "s", ".tanada/"]) {
        tally.asked += 1;
        match client.list(prefix, None, 100).await {
            Err(ClientError::Refused { .. }) => tally.refused += 1,
            Err(error) => tally.failed.push(format!("list {prefix}: {error}")),
            Ok(listing) => {
                let hidden = |name: &str| HIDDEN.iter().any(|it| name.starts_with(it));
                let shown = listing.objects.iter().find(|it| hidden(&it.name));
                tally.empty += usize::from(shown.is_none());
                tally
                    .opened
                    .extend(shown.map(|it| format!("list {prefix}: {}", it.name)));
            }
        }
    }
    Ok(tally)
}

/// The token for s1 in a capability set.
fn token(answer: &Value) -> Result<String, Box<dyn Error>> {
    let set = answer["capability"].as_str().ok_or("a capability")?;
    let set = set.strip_prefix("tanadaset1.").ok_or("a capability set")?;
    let set: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(set)?)?;
    Ok(set[0]["token"].as_str().ok_or("a token")?.to_owned())
}

pub fn scope(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (volume, _) = volumes(&nodes, 2, &[1, 2])?;
    let (address, key) = (nodes.store(1), nodes.key()?);
    let runtime = Runtime::real(RealConfig::default())?;
    let there = address.clone();
    let names = runtime.block_on(async move { names(&there, key).await })?;
    let names = Rc::new(names);
    let of = |prefix: &&str| names.iter().any(|it| it.starts_with(*prefix));
    let with_names = HIDDEN.iter().filter(|it| of(it)).count();
    report.row(
        "hidden folders with names",
        with_names as f64,
        "",
        Bar::Exactly(5.0),
    );
    let mut http = nodes.node(1).connect()?;
    let (mut made, mut not_made) = (0, 0);
    let mut all = Tally::default();
    for (nth, scope) in SCOPES.iter().enumerate() {
        for direction in ["read", "write"] {
            let mut asked = json!({
                "name": format!("scope{nth}{direction}"),
                "target": { "stores": ["s1"], "scope": scope },
                "for": "1h",
            });
            asked[direction] = "1MB/s".into();
            let (status, answer) = http.ask("POST", "/v2/reservations", &asked)?;
            match status {
                201 => made += 1,
                // The store's own folder is refused there, without an offer.
                422 | 409 if answer["offer"].is_null() => {
                    not_made += 1;
                    continue;
                }
                _ => return Err(format!("{asked}: status {status}: {answer}").into()),
            }
            let (there, with) = (
                address.clone(),
                (scope.to_string(), token(&answer)?, Rc::clone(&names)),
            );
            let tally = runtime.block_on(async move { try_all(there, with).await })?;
            all.asked += tally.asked;
            all.refused += tally.refused;
            all.empty += tally.empty;
            all.opened.extend(tally.opened);
            all.failed.extend(tally.failed);
        }
    }
    rows(report, (made, not_made), &all);
    let same = is_filled(&volume)?;
    report.row(
        "the volume reads as before",
        f64::from(same),
        "",
        Bar::Exactly(1.0),
    );
    own(report, &nodes)
}

fn rows(report: &mut Report, (made, not_made): (usize, usize), all: &Tally) {
    report.row("capabilities made", made as f64, "", Bar::More(0.0));
    report.figure("scopes that were refused themselves", not_made as f64, "");
    report.row("requests", all.asked as f64, "", Bar::More(0.0));
    report.figure("refused", all.refused as f64, "");
    report.figure("lists without a hidden name", all.empty as f64, "");
    for (metric, which) in [
        ("requests that opened something", &all.opened),
        ("requests that failed otherwise", &all.failed),
    ] {
        report.row(metric, which.len() as f64, "", Bar::Exactly(0.0));
        which.iter().take(3).for_each(|it| report.note(it));
    }
}

/// A capability opens what is its own: the refusals above are not for another reason.
fn own(report: &mut Report, nodes: &Nodes) -> Result<(), Box<dyn Error>> {
    let asked = json!({
        "name": "own",
        "target": { "stores": ["s1"], "scope": "a/" },
        "read": "1MB/s",
        "for": "1h",
    });
    let token = token(&nodes.node(1).connect()?.made("/v2/reservations", &asked)?)?;
    let address = nodes.store(1);
    let read = Runtime::real(RealConfig::default())?.block_on(async move {
        let client = come(&address, Credentials::Capability(token)).await?;
        client.read(OWN, 0, 4096).await
    })?;
    let bytes = read.iter().filter(|it| **it == 5).count();
    report.row(
        "bytes of its own that it reads",
        bytes as f64,
        "",
        Bar::Exactly(4096.0),
    );
    Ok(())
}

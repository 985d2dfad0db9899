//! `tanada node` and the stores of a cluster: looked at, registered, drained, removed.

use super::ask::Ask;
use super::check_stop::{self, CheckStop};
use super::client::Client;
use super::cluster::nothing;
use super::cluster_ca::{self, Create};
use super::cluster_pages::stores;
use super::show;
use crate::api::cluster::{ClusterStore, Done, Here, StoreAsk, StoreChange};
use clap::Subcommand;
use hyper::Method;
use std::process::ExitCode;
use vdisk::record::Name;

/// Commands about nodes and their stores.
#[derive(Subcommand)]
pub enum Node {
    /// List the cluster's stores and the nodes they are on.
    List(Ask),
    /// Make or renew this node's certificate, from the cluster's authority.
    Create(Create),
    /// Register a store of a node that does not do so by itself (`tanada store serve`). Nodes with a `[cluster]` need no such thing.
    Add {
        /// What the node is called.
        node: Name,
        /// What the store is called.
        #[arg(long, value_name = "NAME")]
        store: Name,
        /// Where it listens: tls:HOST:PORT, HOST:PORT or unix:/path
        #[arg(long, value_name = "ADDR")]
        address: String,
        /// What it fails together with [default: the node]
        #[arg(long, value_name = "NAME")]
        domain: Option<Name>,
        /// Its number [default: the next one]
        #[arg(long, value_name = "N")]
        number: Option<u16>,
        /// It has heads to move.
        #[arg(long)]
        rotating: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Move what is on a node's stores, or on one of them, to others; with --undo, let new data go there again.
    #[command(
        after_help = "It goes on by itself, also after restarts; `tanada node list` shows how far it is."
    )]
    Drain {
        /// The node, or a store.
        name: Name,
        /// Let new data go there again.
        #[arg(long)]
        undo: bool,
        /// Wait until nothing is left there.
        #[arg(long, conflicts_with = "undo")]
        wait: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Say whether a node can be stopped without a volume that refuses writes; exit status 0, or 5 if not.
    CheckStop(CheckStop),
    /// Forget a node's stores, or one of them: those that were drained, or with --lost those that are gone for good.
    Remove {
        /// The node, or a store.
        name: Name,
        /// It is gone for good, with all that it had.
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        ask: Ask,
    },
}

/// Runs one of the commands about nodes.
pub fn run_node(command: Node) -> anyhow::Result<ExitCode> {
    match command {
        Node::CheckStop(asked) => check_stop::run(&asked),
        other => change_nodes(other).map(|()| ExitCode::SUCCESS),
    }
}

fn change_nodes(command: Node) -> anyhow::Result<()> {
    match command {
        Node::CheckStop(_) => unreachable!("it is answered before"),
        Node::List(ask) => {
            let here: Here = Client::new(ask.admin)?.get("/v1/cluster")?;
            show::answer(ask.json, &here, || stores(&here))
        }
        Node::Create(create) => cluster_ca::create(&create),
        Node::Add {
            node,
            store,
            address,
            domain,
            number,
            rotating,
            ask,
        } => {
            let wanted = StoreAsk {
                name: store.to_string(),
                node: node.to_string(),
                address,
                domain: domain.map(String::from),
                number,
                rotating,
            };
            let client = Client::new(ask.admin)?;
            let added: ClusterStore =
                client.send_json(Method::POST, "/v1/cluster/stores", &wanted)?;
            show::answer(ask.json, &added, || {
                format!("{store} on {node} is store {} now\n", added.number)
            })
        }
        Node::Drain {
            name,
            undo,
            wait,
            ask,
        } => drain(&name, undo, wait, ask),
        Node::Remove { name, lost, ask } => {
            let client = Client::new(ask.admin)?;
            let removed = named(&client, &name)?;
            for store in &removed {
                let path = format!("/v1/cluster/stores/{store}?lost={lost}");
                let _: Done = client.send_json(Method::DELETE, &path, &nothing())?;
            }
            show::answer(ask.json, &removed, || {
                format!("forgotten: {}\n", removed.join(", "))
            })
        }
    }
}

pub(super) fn drain(name: &Name, undo: bool, wait: bool, ask: Ask) -> anyhow::Result<()> {
    let client = Client::new(ask.admin)?;
    let state = if undo { "active" } else { "draining" };
    let mut changed = Vec::new();
    for store in named(&client, name)? {
        let wanted = StoreChange {
            state: state.to_owned(),
        };
        let path = format!("/v1/cluster/stores/{store}");
        let store: ClusterStore = client.send_json(Method::PATCH, &path, &wanted)?;
        changed.push(store);
    }
    if wait {
        changed = wait_until_empty(&client, &changed)?;
    }
    if ask.json {
        return show::json(&changed);
    }
    let names: Vec<&str> = changed.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    show::text(&match (undo, wait) {
        (true, _) => format!("new data go to {names} again\n"),
        (_, true) => format!("nothing is left on {names}; `tanada node remove` forgets it\n"),
        _ => format!(
            "new data go elsewhere, and what is on {names} leaves; `tanada node list` shows how far it is\n"
        ),
    })
}

/// The stores as they are when no volume has anything on them; says how far it is whenever that changes.
pub(super) fn wait_until_empty(
    client: &Client,
    stores: &[ClusterStore],
) -> anyhow::Result<Vec<ClusterStore>> {
    let mut said = String::new();
    loop {
        let here: Here = client.get("/v1/cluster")?;
        let mut now = here.stores;
        now.retain(|it| stores.iter().any(|store| store.name == it.name));
        let lines = now.iter().filter_map(|it| {
            let left = it.volumes_left.as_ref().filter(|left| !left.is_empty())?;
            Some(format!(
                "{} has something of {}\n",
                it.name,
                left.join(", ")
            ))
        });
        let text: String = lines.collect();
        if text.is_empty() {
            return Ok(now);
        }
        if text != said {
            eprint!("{text}");
            said = text;
        }
        client.wait(std::time::Duration::from_secs(1));
    }
}

/// The stores of a node, or the store of that name.
pub(super) fn named(client: &Client, name: &Name) -> anyhow::Result<Vec<String>> {
    let here: Here = client.get("/v1/cluster")?;
    let stores = || here.stores.iter();
    let of_node = stores().filter(|store| store.node == name.as_str());
    let of_node: Vec<String> = of_node.map(|store| store.name.clone()).collect();
    // A store that is not there: the daemon says which there are.
    Ok(match of_node.is_empty() {
        true => vec![name.to_string()],
        false => of_node,
    })
}

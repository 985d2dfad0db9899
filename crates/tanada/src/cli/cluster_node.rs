//! `tanada node ...`: the nodes of a cluster and their stores: looked at, registered, drained, deleted.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use report::terminal::Refused;
use vdisk::record::Name;

use super::ask::Ask;
use super::check_stop::{self, CheckStop};
use super::client::Client;
use super::cluster::nothing;
use super::cluster_ca::{self, CertificateOptions};
use super::cluster_pages::stores;
use super::consent::{self, Loss};
use super::{follow, old_words, show};
use crate::api::cluster::{ClusterStore, Done, Here, StoreAsk, StoreChange};

/// Commands about nodes and their stores.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// List the cluster's stores and the nodes they are on.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Show a node and its stores.
    #[command(visible_alias = "info")]
    Show {
        /// The node.
        name: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// Make or renew this node's certificate; with --store, register a store of a node that does not do so by itself.
    #[command(
        after_help = "A node with a `[cluster]` registers its stores by itself; one that `tanada serve --store` serves is registered \
                      with --store and --address."
    )]
    Create(Box<CreateNode>),
    /// Move what is on a node's stores, or on one of them, to others; with --undo, let new data go there again.
    #[command(
        after_help = "It goes on by itself, also after restarts; `tanada node list` and `tanada job list` show how far it is. Ctrl-C leaves \
                      it running."
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
    #[command(visible_alias = "rm")]
    Delete(DeleteNode),
    #[command(flatten)]
    Old(old_words::Node),
}

/// A node, or a store of one, to be made known.
#[derive(Debug, Args)]
pub struct CreateNode {
    /// What the node is called, as the key node of its configuration's table cluster.
    pub node: Name,
    #[command(flatten)]
    pub certificate: CertificateOptions,
    #[command(flatten)]
    pub store: StoreOptions,
    #[command(flatten)]
    pub ask: Ask,
}

/// A store to be registered.
#[derive(Debug, Args)]
pub struct StoreOptions {
    /// Register this store of the node, and make no certificate.
    #[arg(
        long,
        value_name = "NAME",
        requires = "address",
        conflicts_with = "host"
    )]
    pub store: Option<Name>,
    /// Of a store: where it listens: tls:HOST:PORT, HOST:PORT or unix:/path
    #[arg(long, value_name = "ADDR", requires = "store")]
    pub address: Option<String>,
    /// Of a store: what it fails together with [default: the node]
    #[arg(long, value_name = "NAME", requires = "store")]
    pub domain: Option<Name>,
    /// Of a store: its number [default: the next one]
    #[arg(long, value_name = "N", requires = "store")]
    pub number: Option<u16>,
    /// Of a store: it has heads to move.
    #[arg(long, requires = "store")]
    pub rotating: bool,
}

/// What is to be forgotten.
#[derive(Debug, Args)]
pub struct DeleteNode {
    /// The node, or a store.
    pub name: Name,
    /// It is gone for good, with all that it had.
    #[arg(long)]
    pub lost: bool,
    #[command(flatten)]
    pub loss: Loss,
    #[command(flatten)]
    pub ask: Ask,
}

/// Runs one of the commands about nodes.
pub fn run_node(command: Node) -> anyhow::Result<ExitCode> {
    let done = match command {
        Node::CheckStop(asked) => return check_stop::run(&asked),
        Node::List(ask) => {
            let here: Here = Client::new(ask.admin)?.get("/v1/cluster")?;
            show::answer(ask.json, &here, || stores(&here))
        }
        Node::Show { name, ask } => show_one(&name, ask),
        Node::Create(wanted) => match (&wanted.store.store, &wanted.store.address) {
            (Some(store), Some(address)) => register(&wanted, store, address),
            _ => cluster_ca::create(&wanted.node, &wanted.certificate, wanted.ask.json),
        },
        Node::Drain {
            name,
            undo,
            wait,
            ask,
        } => drain(&name, undo, wait, ask),
        Node::Delete(wanted) => delete(&wanted),
        Node::Old(old) => unreachable!("{old:?} is read as its new spelling"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn show_one(name: &Name, ask: Ask) -> anyhow::Result<()> {
    let mut here: Here = Client::new(ask.admin)?.get("/v1/cluster")?;
    let nodes: BTreeSet<&str> = here.stores.iter().map(|store| &*store.node).collect();
    if !nodes.contains(name.as_str()) {
        let nodes = Vec::from_iter(nodes).join(", ");
        let why = format!("there is no node '{name}' with a store; there are {nodes}");
        return Err(Refused(why).into());
    }
    here.stores.retain(|store| store.node == name.as_str());
    show::answer(ask.json, &here, || stores(&here))
}

fn register(wanted: &CreateNode, store: &Name, address: &str) -> anyhow::Result<()> {
    let options = &wanted.store;
    let asked = StoreAsk {
        name: store.to_string(),
        node: wanted.node.to_string(),
        address: address.to_owned(),
        domain: options.domain.clone().map(String::from),
        number: options.number,
        rotating: options.rotating,
    };
    let client = Client::new(wanted.ask.admin.clone())?;
    let added: ClusterStore = client.send_json(Method::POST, "/v1/cluster/stores", &asked)?;
    show::answer(wanted.ask.json, &added, || {
        format!("{store} on {} is store {} now\n", wanted.node, added.number)
    })
}

fn delete(wanted: &DeleteNode) -> anyhow::Result<()> {
    let client = Client::new(wanted.ask.admin.clone())?;
    let (name, stores) = (&wanted.name, named(&client, &wanted.name)?);
    let (lost, loss) = match wanted.lost {
        true => (
            format!(
                "{} would be forgotten, with all copies that only they have",
                stores.join(", ")
            ),
            wanted.loss.clone(),
        ),
        // The daemon refuses what is not drained: nothing is lost.
        false => (
            format!(
                "{} would be forgotten, if nothing is on them",
                stores.join(", ")
            ),
            Loss {
                yes: true,
                ..wanted.loss
            },
        ),
    };
    if !consent::is_given(name.as_str(), &lost, &loss, wanted.ask.json)? {
        return Ok(());
    }
    for store in &stores {
        let path = format!("/v1/cluster/stores/{store}?lost={}", wanted.lost);
        let _: Done = client.send_json(Method::DELETE, &path, &nothing())?;
    }
    show::answer(wanted.ask.json, &stores, || {
        format!("forgotten: {}\n", stores.join(", "))
    })
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
        (_, true) => format!("nothing is left on {names}; `tanada node delete` forgets it\n"),
        _ => format!(
            "new data go elsewhere, and what is on {names} leaves; `tanada node list` shows how far it is\n"
        ),
    })
}

/// The stores as they are when no volume has anything on them.
fn wait_until_empty(client: &Client, stores: &[ClusterStore]) -> anyhow::Result<Vec<ClusterStore>> {
    for job in stores.iter().filter_map(|store| store.job) {
        follow::follow(client, job)?;
    }
    let here: Here = client.get("/v1/cluster")?;
    let mut now = here.stores;
    now.retain(|it| stores.iter().any(|store| store.name == it.name));
    Ok(now)
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

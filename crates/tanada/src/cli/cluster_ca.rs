//! `tanada cluster ...` and `tanada node create`: the certificates of nodes and accounts.
//!
//! ```text
//! init -> the authority's folder -> issue, node create -> a folder with certificate and key
//!                                -> revoke -> its list, and through a daemon to every node
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use config::DATA_DIR;
use hyper::Method;
use report::terminal::{Usage, table};
use serde::Serialize;
use tls::authority::{Issued, LEAF_DAYS, Subject};
use tls::{Certificate, Peer};
use utoipa::ToSchema;
use vdisk::record::Name;

use super::ask::Ask;
use super::authority_files::{AuthorityFolder, Entry};
use super::client::{Client, Target};
use super::cluster_upgrade::{self, Upgrade};
use super::show;
use crate::api::access::Account;
use crate::api::certificates::{Certificates, Revoke};
use crate::daemon::common::certificates::{Folder, now};

/// The authority's folder, unless another one is named.
const CA_DIR: &str = "tanada-ca";

/// Commands about a cluster as a whole.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Make and revoke the certificates by which nodes and accounts know each other.
    #[command(subcommand)]
    Ca(Ca),
    /// Raise the cluster's level to the highest that the programs of all its nodes can do; exit status 5 if some cannot.
    #[command(
        after_help = "The last step of a rolling upgrade: until then each node may go back to the program before, and from then on \
none may. `tanada node list` shows the level."
    )]
    Upgrade(Upgrade),
}

/// Where the authority's folder is.
#[derive(Debug, Args, Clone)]
pub struct At {
    /// The authority's folder, as `tanada cluster ca init` made it. Keep it off the nodes.
    #[arg(
        long,
        env = "TANADA_CA_DIR",
        value_name = "DIR",
        default_value = CA_DIR
    )]
    ca: PathBuf,
}

/// Commands about the cluster's authority.
#[derive(Debug, Subcommand)]
pub enum Ca {
    /// Make the cluster's authority.
    Init {
        /// Its folder: a reader of it can be any node.
        #[arg(default_value = CA_DIR)]
        dir: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make the certificate of a node elsewhere, or of an account; lasts 90 days.
    Issue(Issue),
    /// Revoke certificates: connections under them end within a second, on every node of the cluster.
    #[command(
        after_help = "Without a daemon in reach: --offline, and copy the file `revoked` of the folder into DATA_DIR/tls of each."
    )]
    Revoke {
        /// A serial number, or a node or account: all of its certificates. node:NAME, account:NAME where both are called so.
        what: String,
        /// Tell no daemon.
        #[arg(long)]
        offline: bool,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        ask: Ask,
    },
    /// List what was issued.
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// Follow the authority up by another one, in three steps, with `tanada node create` on every node after each.
    Renew {
        /// The second step: certificates are issued by the new one.
        #[arg(long)]
        switch: bool,
        /// The third step: the old one is trusted no more.
        #[arg(long, conflicts_with = "switch")]
        drop_old: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
}

/// A certificate to be made.
#[derive(Debug, Args)]
pub struct Issue {
    /// The node.
    #[arg(required_unless_present = "account")]
    node: Option<Name>,
    /// An account, not a node.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["node", "host"])]
    account: Option<String>,
    /// Which account of that name, as `tanada account show` says it [default: the daemon is asked]
    #[arg(long, value_name = "ID", requires = "account")]
    account_id: Option<String>,
    /// A name or address at which clients that are no nodes reach it; may be given again.
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// The folder to make [default: the name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
    /// The daemon that knows the account: HOST:PORT, tls:HOST:PORT or unix:/path [default: as of `tanada status`]
    #[arg(
        long,
        env = "TANADA_ADMIN",
        value_name = "ADDR",
        default_value_t = Target::default(),
        hide_default_value = true
    )]
    admin: Target,
}

/// The own certificate of a node, to be made or renewed.
#[derive(Debug, Args)]
pub struct CertificateOptions {
    /// A name or address at which clients that are no nodes reach it; may be given again [default: as before]
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Where the daemon keeps its files.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    #[command(flatten)]
    at: At,
}

impl CertificateOptions {
    /// Those of a command that says none.
    pub fn usual() -> CertificateOptions {
        CertificateOptions {
            host: Vec::new(),
            data_dir: PathBuf::from(DATA_DIR),
            at: At {
                ca: std::env::var_os("TANADA_CA_DIR").map_or_else(|| CA_DIR.into(), PathBuf::from),
            },
        }
    }
}

/// Runs one of them.
pub fn run(command: Cluster) -> anyhow::Result<()> {
    match command {
        Cluster::Ca(command) => run_ca(command),
        Cluster::Upgrade(asked) => cluster_upgrade::run(&asked),
    }
}

fn run_ca(command: Ca) -> anyhow::Result<()> {
    match command {
        Ca::Init { dir, json } => {
            AuthorityFolder::make(&dir)?;
            let answer = MadeAuthority::at(&dir, Trusted::One);
            show::answer(json, &answer, || {
                format!(
                    "the cluster's authority is in {0}: keep it safe, and off the nodes\n\
                     next, for each node: tanada node create NAME --ca {0} --host ADDRESS\n",
                    dir.display()
                )
            })
        }
        Ca::Issue(issue) => self::issue(&issue),
        Ca::Revoke {
            what,
            offline,
            at,
            ask,
        } => revoke(&what, offline, &at.ca, ask),
        Ca::List { json, at } => {
            let entries = AuthorityFolder::open(&at.ca)?.issued()?;
            show::answer(json, &entries, || listed(&entries))
        }
        Ca::Renew {
            switch,
            drop_old,
            json,
            at,
        } => renew(&at.ca, (switch, drop_old), json),
    }
}

fn issue(issue: &Issue) -> anyhow::Result<()> {
    let (peer, name) = match (&issue.node, &issue.account) {
        (Some(node), _) => (Peer::Node(node.to_string()), node.to_string()),
        (None, Some(account)) => (Peer::Account(account.clone()), account.replace('/', "-")),
        (None, None) => return Err(Usage("name a node, or --account NAME".to_owned()).into()),
    };
    let subject = Subject {
        account_id: account_id(issue)?,
        peer,
        hosts: issue.host.clone(),
    };
    let out = issue.out.clone().unwrap_or_else(|| PathBuf::from(name));
    let folder = Folder::at(&out);
    if let Some(own) = folder.own()?
        && own.peer != subject.peer
    {
        let said = format!(
            "{} has the certificate of {}; name another folder with --out",
            out.display(),
            own.peer
        );
        return Err(Usage(said).into());
    }
    let authority = AuthorityFolder::open(&issue.at.ca)?;
    let issued = authority.issue(&subject)?;
    authority.hand_out(&issued, &folder)?;
    let next = match subject.peer {
        Peer::Node(_) => {
            "copy its files into DATA_DIR/tls of that node, and keep key.pem secret on the way"
        }
        _ => "use it with TANADA_IDENTITY",
    };
    let answer = MadeCertificate::new(&issued, &out);
    show::answer(issue.json, &answer, || {
        format!("{}; {next}\n", made(&issued, &out))
    })
}

/// Which account of its name is meant, if one is: a later one of that name has another identity.
fn account_id(issue: &Issue) -> anyhow::Result<Option<u64>> {
    let Some(account) = &issue.account else {
        return Ok(None);
    };
    let path = super::account::path(account)?;
    let id = match &issue.account_id {
        Some(id) => id.clone(),
        None => {
            let asked = Client::new(issue.admin.clone())?.get::<Account>(&path);
            let asked = asked.with_context(|| {
                format!(
                    "cannot learn which account {account} is; name the daemon with --admin, or its identity, as `tanada account \
                     show {account}` says it, with --account-id"
                )
            });
            asked?.id
        }
    };
    let good = id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = good.then(|| u64::from_str_radix(&id, 16).ok()).flatten();
    let wrong = || Usage("an identity of an account has 16 hexadecimal digits".to_owned());
    Ok(Some(id.ok_or_else(wrong)?))
}

/// Makes or renews the certificate of this machine's node.
pub fn create(node: &Name, create: &CertificateOptions, as_json: bool) -> anyhow::Result<()> {
    let folder = Folder::of_daemon(&create.data_dir);
    let before = folder.own()?;
    let subject = wanted(node, &create.host, before.as_ref())
        .with_context(|| format!("cannot make the certificate of node {node}"))?;
    let authority = AuthorityFolder::open(&create.at.ca)?;
    let issued = authority.issue(&subject)?;
    authority.hand_out(&issued, &folder)?;
    let dir = create.data_dir.join("tls");
    let next = match before {
        Some(_) => "a daemon that runs takes it within a second".to_owned(),
        None => "listen = \"tls:IP:PORT\" in a [[store]] uses it from the daemon's next start on"
            .to_owned(),
    };
    let answer = MadeCertificate::new(&issued, &dir);
    show::answer(as_json, &answer, || {
        format!("{}; {next}\n", made(&issued, &dir))
    })
}

/// A certificate that was made, for programs.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeCertificate {
    serial: String,
    /// `node n1`, `account astro`.
    whose: String,
    /// Its folder.
    folder: String,
    days: u64,
}

impl MadeCertificate {
    fn new(issued: &Issued, dir: &Path) -> MadeCertificate {
        MadeCertificate {
            serial: issued.says.serial.to_string(),
            whose: issued.says.peer.to_string(),
            folder: dir.display().to_string(),
            days: LEAF_DAYS,
        }
    }
}

/// Whose certificate a node needs, beside the one that it has.
fn wanted(node: &Name, hosts: &[String], before: Option<&Certificate>) -> anyhow::Result<Subject> {
    let peer = Peer::Node(node.to_string());
    if let Some(before) = before
        && before.peer != peer
    {
        return Err(anyhow::anyhow!(
            "this data directory has the certificate of {}; name the right one with --data-dir, or move its folder tls away",
            before.peer
        ));
    }
    let kept = before.map(|it| it.hosts.clone()).unwrap_or_default();
    Ok(Subject {
        peer,
        account_id: None,
        hosts: if hosts.is_empty() {
            kept
        } else {
            hosts.to_vec()
        },
    })
}

fn made(issued: &Issued, dir: &Path) -> String {
    format!(
        "the certificate {} of {} is in {}, for {LEAF_DAYS} days",
        issued.says.serial,
        issued.says.peer,
        dir.display()
    )
}

/// What was revoked, for programs.
#[derive(Serialize, ToSchema)]
pub struct Revoked {
    revoked: Vec<Entry>,
    /// Does a daemon know it, and by it the cluster?
    sent: bool,
}

fn revoke(what: &str, offline: bool, ca: &Path, ask: Ask) -> anyhow::Result<()> {
    let revoked = AuthorityFolder::open(ca)?.revoke(what)?;
    if !offline {
        let asked: Vec<Revoke> = revoked
            .iter()
            .map(|entry| Revoke {
                serial: entry.serial.clone(),
                whose: entry.whose.clone(),
            })
            .collect();
        let client = Client::new(ask.admin)?;
        let path = "/v1/certificates/revoked";
        let sent = client.send_json::<Certificates>(Method::POST, path, &asked);
        sent.with_context(|| {
            format!(
                "{what} is revoked in {}, but no daemon knows it yet; ask again with --admin, or copy {} into DATA_DIR/tls of \
                 each node",
                ca.display(),
                ca.join("revoked").display()
            )
        })?;
    }
    let answer = Revoked {
        revoked,
        sent: !offline,
    };
    show::answer(ask.json, &answer, || {
        let lines = answer.revoked.iter();
        lines
            .map(|entry| format!("revoked: {} of {}\n", entry.serial, entry.whose))
            .collect()
    })
}

fn listed(entries: &[Entry]) -> String {
    let now = now();
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let left = entry.expires_unix_seconds.saturating_sub(now);
            let state = match (entry.revoked, left) {
                (true, _) => "revoked".to_owned(),
                (false, 0) => "expired".to_owned(),
                (false, left) => format!("{} days left", left / (24 * 3600)),
            };
            vec![entry.whose.clone(), entry.serial.clone(), state]
        })
        .collect();
    table::table(&["WHOSE", "SERIAL", "STATE"], &rows)
}

/// Which authorities nodes trust that have a certificate of now.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trusted {
    One,
    /// The old one issues.
    Both,
    /// The new one issues.
    BothNewIssues,
}

/// The cluster's authority, made or followed up.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeAuthority {
    folder: String,
    trusted: Trusted,
}

impl MadeAuthority {
    fn at(folder: &Path, trusted: Trusted) -> MadeAuthority {
        MadeAuthority {
            folder: folder.display().to_string(),
            trusted,
        }
    }
}

fn renew(folder: &Path, (switch, drop_old): (bool, bool), as_json: bool) -> anyhow::Result<()> {
    let authority = AuthorityFolder::open(folder)?;
    let on_each = "run `tanada node create` for every node";
    let (trusted, next) = match (switch, drop_old) {
        (true, _) => {
            authority.switch()?;
            let next = format!(
                "the new authority issues; {on_each}, then `tanada cluster ca renew --drop-old`"
            );
            (Trusted::BothNewIssues, next)
        }
        (_, true) => {
            authority.drop_old()?;
            let next = format!("the old authority is trusted no more; {on_each} a last time");
            (Trusted::One, next)
        }
        _ => {
            authority.renew()?;
            let next = format!(
                "both authorities are trusted; {on_each}, then `tanada cluster ca renew --switch`"
            );
            (Trusted::Both, next)
        }
    };
    show::answer(as_json, &MadeAuthority::at(folder, trusted), || {
        format!("{next}\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_certificate_keeps_its_hosts_and_is_that_of_the_same_node() {
        let node: Name = "n1".parse().unwrap();
        let before = Certificate {
            peer: Peer::Node("n1".into()),
            account_id: None,
            hosts: vec!["10.0.0.1".into()],
            serial: tls::Serial::parse("1").unwrap(),
            not_before: 0,
            not_after: 1,
        };
        let kept = wanted(&node, &[], Some(&before)).unwrap();
        assert_eq!(kept.hosts, ["10.0.0.1"]);
        let other = wanted(&node, &["h".into()], Some(&before)).unwrap();
        assert_eq!(other.hosts, ["h"]);
        let n2: Name = "n2".parse().unwrap();
        let why = wanted(&n2, &[], Some(&before)).unwrap_err().to_string();
        assert!(why.contains("of node n1"), "{why}");
    }
}

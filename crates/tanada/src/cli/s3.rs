//! `tanada s3 ...`: gateways for S3 clients, and the access keys that they sign with.
//!
//! Always true: a secret is printed once, at its making.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use hyper::Method;
use policy::share::{BytesPerSec, Second};
use report::terminal::Usage;
use report::terminal::table::table;

use super::ask::Ask;
use super::client::Client;
use super::show;
use super::volume_set::pairs;
use crate::api::s3::{
    MadeS3Key, NewS3Credentials, NewS3Key, S3Bucket, S3Change, S3Gateway, S3Key, S3Terms,
};
use crate::daemon::common::when;

#[derive(Debug, Subcommand)]
pub enum S3 {
    /// List the gateways of the daemon.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Make, list and delete access keys.
    #[command(subcommand)]
    Key(Key),
    /// List buckets; set how requests to them are served.
    #[command(subcommand)]
    Bucket(Bucket),
    /// Make a temporary access key under a reservation; prints it once.
    #[command(
        after_help = "Three lines go to standard output, as shells and S3 clients read them. The session token is the \
                      capability set of the reservation.\n\
                      Example: eval \"$(tanada s3 credentials --reservation gold --for 1h)\""
    )]
    Credentials(Credentials),
}

#[derive(Debug, Args)]
pub struct Credentials {
    /// The reservation of stores that requests come under: its name or id.
    #[arg(long, value_name = "RESERVATION")]
    reservation: String,
    /// How long the key is good, at most 12h.
    #[arg(long = "for", value_name = "SPAN", default_value = "1h")]
    span: String,
    /// Whose reservation [default: the own account's].
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
pub enum Bucket {
    /// List buckets of all gateways: all for an admin, else those of the own account.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Set under which reservation requests to a bucket come, and what they get at most.
    #[command(after_help = TERMS_HELP)]
    Set {
        /// The bucket.
        name: String,
        #[command(flatten)]
        set: Settings,
        /// The gateway that has it, where there are several.
        #[arg(long, value_name = "NAME")]
        gateway: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Settings {
    /// What is to hold.
    #[arg(required = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

const TERMS_HELP: &str = "reservation=NAME  of the stores of the gateway, of the same account; reservation= ends that\n\
                          max_read=20MB/s, max_write, max_read_iops=500, max_write_iops: of all its requests together; \
                          off ends a cap. Caps take an admin.";

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make an access key; prints its secret once, and no other time.
    #[command(
        after_help = "Two lines go to standard output, as shells and S3 clients read them.\n\
                      Example: eval \"$(tanada s3 key create)\"; aws --endpoint-url http://127.0.0.1:10882 s3 mb s3://photos"
    )]
    Create(Create),
    /// Set under which reservation requests with a key come, and what they get at most.
    #[command(after_help = TERMS_HELP)]
    Set {
        /// The access key ID.
        id: String,
        #[command(flatten)]
        set: Settings,
    },
    /// List access keys without their secrets: all for an admin, else those of the own account.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Delete an access key: it is let in no more.
    #[command(visible_alias = "rm")]
    Delete {
        /// The access key ID.
        id: String,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Whose it is [default: the daemon's owner].
    account: Option<String>,
    /// What it is for, for people.
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    /// How its requests are served, as of `tanada s3 key set`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

/// Runs one of them.
pub fn run(command: S3) -> anyhow::Result<()> {
    match command {
        S3::List(ask) => {
            let all: Vec<S3Gateway> = Client::new(ask.admin)?.get("/v1/s3")?;
            show::answer(ask.json, &all, || gateways(&all))
        }
        S3::Key(Key::Create(create)) => {
            let new = NewS3Key {
                account: create.account,
                note: create.note,
                terms: match create.settings.is_empty() {
                    true => None,
                    false => Some(change(&create.settings)?),
                },
            };
            create.ask.send(Method::POST, "/v1/s3/keys", &new, exports)
        }
        S3::Key(Key::Set { id, set }) => {
            let change = change(&set.settings)?;
            let said = |key: &S3Key| format!("access key {}: {}\n", key.id, words(&key.terms));
            let path = format!("/v1/s3/keys/{id}");
            set.ask.send(Method::PATCH, &path, &change, said)
        }
        S3::Credentials(wanted) => {
            let new = NewS3Credentials {
                reservation: wanted.reservation,
                account: wanted.account,
                span: wanted.span,
            };
            let path = "/v1/s3/credentials";
            wanted.ask.send(Method::POST, path, &new, exports)
        }
        S3::Bucket(Bucket::List(ask)) => {
            let all: Vec<S3Bucket> = Client::new(ask.admin)?.get("/v1/s3/buckets")?;
            show::answer(ask.json, &all, || buckets(&all))
        }
        S3::Bucket(Bucket::Set { name, set, gateway }) => {
            let change = change(&set.settings)?;
            let gateway = match gateway {
                Some(gateway) => gateway,
                None => only_gateway(&set.ask)?,
            };
            let said = |it: &S3Bucket| format!("bucket {}: {}\n", it.name, words(&it.terms));
            let path = format!("/v1/s3/buckets/{gateway}/{name}");
            set.ask.send(Method::PATCH, &path, &change, said)
        }
        S3::Key(Key::List(ask)) => {
            let all: Vec<S3Key> = Client::new(ask.admin)?.get("/v1/s3/keys")?;
            show::answer(ask.json, &all, || keys(&all))
        }
        S3::Key(Key::Delete { id, ask }) => {
            let said =
                |gone: &S3Key| format!("deleted access key {} of {}\n", gone.id, whose(gone));
            ask.send(Method::DELETE, &format!("/v1/s3/keys/{id}"), &(), said)
        }
    }
}

/// What a shell reads, and on standard error what is to be known.
fn exports(made: &MadeS3Key) -> String {
    let id = &made.about.id;
    let until = made.about.until_unix_seconds;
    let until = until.map_or_else(String::new, |it| {
        format!(", good until {}", when::shown(Second(it)))
    });
    eprintln!(
        "access key {id} of {}{until}; its secret is not shown again",
        whose(&made.about)
    );
    let mut text = format!(
        "export AWS_ACCESS_KEY_ID={id}\nexport AWS_SECRET_ACCESS_KEY={}\n",
        made.secret
    );
    if let Some(token) = &made.session_token {
        let _ = writeln!(text, "export AWS_SESSION_TOKEN={token}");
    }
    text
}

/// What is to hold, from `KEY=VALUE`.
fn change(settings: &[String]) -> Result<S3Change, Usage> {
    let mut change = S3Change::default();
    for (key, value) in pairs(settings)? {
        let place = match key {
            "reservation" => &mut change.reservation,
            "max_read" => &mut change.max_read,
            "max_write" => &mut change.max_write,
            "max_read_iops" => &mut change.max_read_iops,
            "max_write_iops" => &mut change.max_write_iops,
            _ => {
                return Err(Usage(format!(
                    "{key}={value}: a key is reservation, max_read, max_write, max_read_iops or max_write_iops"
                )));
            }
        };
        if value.is_empty() && key != "reservation" {
            return Err(Usage(format!("{key}=: write {key}=VALUE")));
        }
        *place = Some(value.to_owned());
    }
    Ok(change)
}

/// The gateway of the daemon, where it has one.
fn only_gateway(ask: &Ask) -> anyhow::Result<String> {
    let all: Vec<S3Gateway> = Client::new(ask.admin.clone())?.get("/v1/s3")?;
    match &all[..] {
        [one] => Ok(one.name.clone()),
        [] => Err(Usage("this daemon has no gateway".to_owned()).into()),
        _ => {
            let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            let names = names.join(", ");
            Err(Usage(format!(
                "say which gateway has it: --gateway, one of {names}"
            ))
            .into())
        }
    }
}

/// How requests are served, for people.
fn words(terms: &S3Terms) -> String {
    let mut all = Vec::new();
    if let Some(reservation) = &terms.reservation {
        all.push(format!("under reservation {reservation}"));
    }
    for (what, rate, requests) in [
        ("reads", terms.max_read, terms.max_read_iops),
        ("writes", terms.max_write, terms.max_write_iops),
    ] {
        let rate = rate.map(|it| BytesPerSec(it).to_string());
        let requests = requests.map(|it| format!("{it} requests/s"));
        let caps: Vec<String> = rate.into_iter().chain(requests).collect();
        if !caps.is_empty() {
            all.push(format!("{what} at most {}", caps.join(" and ")));
        }
    }
    match all.is_empty() {
        true => "served as any others".to_owned(),
        false => all.join(", "),
    }
}

fn buckets(all: &[S3Bucket]) -> String {
    if all.is_empty() {
        return "there are no buckets\n".to_owned();
    }
    let row = |it: &S3Bucket| {
        vec![
            it.name.clone(),
            it.gateway.clone(),
            it.account.clone().unwrap_or_else(|| "-".to_owned()),
            when::shown(Second(it.created_unix_seconds)),
            words(&it.terms),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&["BUCKET", "GATEWAY", "ACCOUNT", "MADE", "SERVED"], &rows)
}

fn whose(key: &S3Key) -> &str {
    key.account.as_deref().unwrap_or("the daemon's owner")
}

fn gateways(all: &[S3Gateway]) -> String {
    if all.is_empty() {
        return "there are no gateways: an [[s3]] in the configuration makes one\n".to_owned();
    }
    let row = |it: &S3Gateway| {
        vec![
            it.name.clone(),
            it.below(),
            match &it.failed {
                Some(why) => format!("not served: {why}"),
                None => it.listen.join(", "),
            },
            it.region.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&["GATEWAY", "OVER", "LISTENS", "REGION"], &rows)
}

fn keys(all: &[S3Key]) -> String {
    if all.is_empty() {
        return "there are no access keys: `tanada s3 key create` makes one\n".to_owned();
    }
    let row = |it: &S3Key| {
        vec![
            it.id.clone(),
            it.account.clone().unwrap_or_else(|| "-".to_owned()),
            if it.good { "good" } else { "off" }.to_owned(),
            when::shown(Second(it.created_unix_seconds)),
            words(&it.terms),
            match it.note.is_empty() {
                true => "-".to_owned(),
                false => it.note.clone(),
            },
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = ["ACCESS KEY", "ACCOUNT", "STATE", "MADE", "SERVED", "NOTE"];
    table(&head, &rows)
}

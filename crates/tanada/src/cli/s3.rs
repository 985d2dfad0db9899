//! `tanada s3 ...`: gateways for S3 clients, and the access keys that they sign with.
//!
//! Always true: a secret is printed once, at its making.

use clap::{Args, Subcommand};
use hyper::Method;
use policy::share::Second;
use report::terminal::table::table;

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::s3::{MadeS3Key, NewS3Key, S3Gateway, S3Key};
use crate::daemon::common::when;

#[derive(Debug, Subcommand)]
pub enum S3 {
    /// List the gateways of the daemon.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Make, list and delete access keys.
    #[command(subcommand)]
    Key(Key),
}

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make an access key; prints its secret once, and no other time.
    #[command(
        after_help = "Two lines go to standard output, as shells and S3 clients read them.\n\
                      Example: eval \"$(tanada s3 key create)\"; aws --endpoint-url http://127.0.0.1:10882 s3 mb s3://photos"
    )]
    Create(Create),
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
            };
            let said = |made: &MadeS3Key| {
                let id = &made.about.id;
                eprintln!(
                    "access key {id} of {}; its secret is not shown again",
                    whose(&made.about)
                );
                format!(
                    "export AWS_ACCESS_KEY_ID={id}\nexport AWS_SECRET_ACCESS_KEY={}\n",
                    made.secret
                )
            };
            create.ask.send(Method::POST, "/v1/s3/keys", &new, said)
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
            it.stores.join(", "),
            match &it.failed {
                Some(why) => format!("not served: {why}"),
                None => it.listen.join(", "),
            },
            it.region.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&["GATEWAY", "STORES", "LISTENS", "REGION"], &rows)
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
            match it.note.is_empty() {
                true => "-".to_owned(),
                false => it.note.clone(),
            },
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&["ACCESS KEY", "ACCOUNT", "STATE", "MADE", "NOTE"], &rows)
}

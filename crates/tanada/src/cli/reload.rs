//! `tanada reload`: has a running daemon read its configuration anew.

use clap::Args;
use hyper::Method;
use report::terminal;
use report::terminal::table::table;
use serde_json::{Map, Value};

use super::ask::Ask;
use super::client::Client;
use crate::api::reload::Reloaded;

#[derive(Debug, Args)]
pub struct Reload {
    /// Say what is different, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    ask: Ask,
}

/// Runs it.
pub fn run(arguments: Reload) -> anyhow::Result<()> {
    let path = match arguments.dry_run {
        true => "/v1/reload?dry_run=true",
        false => "/v1/reload",
    };
    let nothing: Map<String, Value> = Map::new();
    let client = Client::new(arguments.ask.admin)?;
    let done: Reloaded = client.send_json(Method::POST, path, &nothing)?;
    terminal::answer(arguments.ask.json, &done, || page(&done))
}

/// What is different, line by line.
fn page(done: &Reloaded) -> String {
    if done.changes.is_empty() {
        return "nothing is different\n".to_owned();
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = done
        .changes
        .iter()
        .map(|it| {
            vec![
                it.key.clone(),
                text(&it.before),
                text(&it.after),
                it.effect.word().to_owned(),
            ]
        })
        .collect();
    let mut page = table(&["KEY", "WAS", "IS", "TAKES"], &rows);
    page.push_str(match done.applied {
        true => "it is in force\n",
        false => "nothing was changed\n",
    });
    page
}

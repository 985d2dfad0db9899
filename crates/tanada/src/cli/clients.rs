//! `tanada client ...`: who is connected over NBD, and ending a connection.

use clap::{Args, Subcommand};
use hyper::Method;
use report::terminal::Usage;
use report::terminal::table::table;

use super::ask::Ask;
use super::client::Client as Admin;
use super::kernel_client::{self, Connect};
use super::{old_words, show};
use crate::api::clients::{Gone, NbdListener, Which};
use crate::api::status::Status;

#[derive(Debug, Subcommand)]
pub enum Client {
    /// List the NBD clients that are connected.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Make an export a block device of this kernel that outlives restarts of the daemon; runs until it is ended.
    Connect(Connect),
    /// End the connection of a client that does not answer or is not wanted; one that lives comes again.
    ///
    /// What a request has begun runs to its end, its answer is lost: the client has to ask again.
    #[command(visible_alias = "rm")]
    Delete(DeleteClient),
    #[command(flatten)]
    Old(old_words::Client),
}

/// Whose connection is to end.
#[derive(Debug, Args)]
pub struct DeleteClient {
    /// Its ID, as `tanada client list` shows it: ADDRESS#NUMBER
    #[arg(required_unless_present = "export", conflicts_with = "export")]
    pub client: Option<String>,
    /// All clients of this export.
    #[arg(long, value_name = "NAME")]
    pub export: Option<String>,
    #[command(flatten)]
    pub ask: Ask,
}

/// Runs one of them.
pub fn run(command: Client) -> anyhow::Result<()> {
    match command {
        Client::Connect(asked) => kernel_client::run(asked),
        Client::List(ask) => {
            let status: Status = Admin::new(ask.admin)?.get("/v1/status")?;
            show::answer(ask.json, &status.nbd, || list(&status.nbd))
        }
        Client::Delete(DeleteClient {
            client,
            export,
            ask,
        }) => {
            let (listener, id) = client.as_deref().map(read_id).transpose()?.unzip();
            let which = Which {
                listener,
                id,
                export,
            };
            let path = "/v1/clients/disconnect";
            ask.send(Method::POST, path, &which, |gone: &Vec<Gone>| ended(gone))
        }
        Client::Old(old) => unreachable!("{old:?} is read as its new spelling"),
    }
}

/// Listener and number of `127.0.0.1:10809#3`.
fn read_id(text: &str) -> Result<(String, u64), Usage> {
    let parts = text.rsplit_once('#');
    let read = parts.and_then(|(listener, id)| Some((listener.to_owned(), id.parse().ok()?)));
    read.ok_or_else(|| {
        Usage(format!(
            "'{text}' is no client; write an ID that `tanada client list` shows, such as 127.0.0.1:10809#3"
        ))
    })
}

fn list(listeners: &[NbdListener]) -> String {
    let mut rows = Vec::new();
    for listener in listeners {
        for client in &listener.clients {
            rows.push(vec![
                format!("{}#{}", listener.address, client.id),
                client.export.clone().unwrap_or_else(|| "-".to_owned()),
                if client.tls { "tls" } else { "-" }.to_owned(),
                format!("{:.0} s", client.connected_seconds),
                client.in_flight.to_string(),
                client.peer.clone(),
            ]);
        }
    }
    let head = ["ID", "EXPORT", "HOW", "SINCE", "IN FLIGHT", "PEER"];
    match rows.is_empty() {
        true => "no client is connected\n".to_owned(),
        false => table(&head, &rows),
    }
}

fn ended(gone: &[Gone]) -> String {
    let mut text = String::new();
    for Gone { listener, client } in gone {
        let of = client.export.as_deref().unwrap_or("no export yet");
        text.push_str(&format!(
            "disconnected {listener}#{} of {of}: {}\n",
            client.id, client.peer
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_an_address_and_a_number() {
        let read = |text| read_id(text).map_err(|usage| usage.to_string());
        assert_eq!(read("[::1]:1#3"), Ok(("[::1]:1".to_owned(), 3)));
        assert_eq!(read("unix:/a#b#12"), Ok(("unix:/a#b".to_owned(), 12)));
        for wrong in ["", "3", "a:1#", "a:1#x"] {
            assert!(read(wrong).unwrap_err().contains("tanada client list"));
        }
    }
}

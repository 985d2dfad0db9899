//! `tanada token ...`: what accounts show where no user is known.
//!
//! Always true: a token is printed once, at its making, alone on standard output.

use base::Nanos;
use clap::{Args, Subcommand};
use config::read_span;
use hyper::Method;
use policy::share::Second;
use report::terminal::table::table;
use report::terminal::{Refused, Usage};

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::access::{self as api, MadeToken, NewToken};
use crate::daemon::common::when;

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token of an account; prints it once, and no other time.
    #[command(
        after_help = "The token goes to standard output: TANADA_TOKEN=TOKEN for `tanada`, the header \
                      `Authorization: Bearer TOKEN` for others.\n\
                      Example: tanada token create astro --for 30d --note nightly"
    )]
    Create(Create),
    /// List tokens without their secrets: all for an admin, else those of the own account.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Revoke a token: it is refused from the next request on.
    #[command(visible_alias = "rm")]
    Delete {
        /// All 16 digits of its identity, or the last four.
        id: String,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Whose it is.
    account: String,
    /// How long it is good.
    #[arg(long = "for", default_value = "90d", value_name = "SPAN", value_parser = read_span)]
    span: Nanos,
    /// What it is for, for people.
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    #[command(flatten)]
    ask: Ask,
}

/// Runs one of them.
pub fn run(command: Token) -> anyhow::Result<()> {
    match command {
        Token::Create(create) => {
            let new = NewToken {
                account: create.account,
                for_seconds: Some(create.span.0.div_ceil(Nanos::secs(1).0)),
                note: create.note,
            };
            let said = |made: &MadeToken| {
                let until = when::shown(Second(made.about.expires_unix_seconds));
                let (id, account) = (shown(&made.about.id), &made.about.account);
                // The token alone on stdout, so that a script can take it.
                eprintln!("token {id} of {account}, good until {until}; it is not shown again");
                format!("{}\n", made.token)
            };
            create.ask.send(Method::POST, "/v1/tokens", &new, said)
        }
        Token::List(ask) => {
            let all: Vec<api::Token> = Client::new(ask.admin)?.get("/v1/tokens")?;
            show::answer(ask.json, &all, || list(&all))
        }
        Token::Delete { id, ask } => {
            let client = Client::new(ask.admin.clone())?;
            let id = match id.len() {
                16 => id,
                _ => whole(&id, &client.get::<Vec<api::Token>>("/v1/tokens")?)?,
            };
            if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(Usage(format!("'{id}' is no token's identity")).into());
            }
            let said = |gone: &api::Token| {
                format!("revoked token {} of {}\n", shown(&gone.id), gone.account)
            };
            ask.send(Method::DELETE, &format!("/v1/tokens/{id}"), &(), said)
        }
    }
}

/// The identity that ends so.
fn whole(end: &str, all: &[api::Token]) -> anyhow::Result<String> {
    let digits = end.trim_start_matches('.');
    let mut found = all.iter().filter(|it| it.id.ends_with(digits));
    match (digits.len() >= 4, found.next(), found.next()) {
        (true, Some(one), None) => Ok(one.id.clone()),
        (true, Some(_), Some(_)) => Err(Usage(format!(
            "several tokens end with {digits}; write all 16 digits, as `tanada token list --json` shows them"
        ))
        .into()),
        _ => Err(Refused(format!(
            "no token ends with '{end}'; `tanada token list` shows those there are"
        ))
        .into()),
    }
}

fn shown(id: &str) -> String {
    let start = id.len().saturating_sub(4);
    format!("..{}", id.get(start..).unwrap_or(id))
}

fn list(all: &[api::Token]) -> String {
    if all.is_empty() {
        return "there are no tokens\n".to_owned();
    }
    let row = |it: &api::Token| {
        vec![
            shown(&it.id),
            it.account.clone(),
            it.state.clone(),
            when::shown(Second(it.created_unix_seconds)),
            when::shown(Second(it.expires_unix_seconds)),
            match it.note.is_empty() {
                true => "-".to_owned(),
                false => it.note.clone(),
            },
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = ["TOKEN", "ACCOUNT", "STATE", "MADE", "UNTIL", "NOTE"];
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_identity_is_enough_where_one_token_has_it() {
        let token = |id: &str| api::Token {
            id: id.to_owned(),
            account: "a".to_owned(),
            state: "good".to_owned(),
            created_unix_seconds: 0,
            expires_unix_seconds: 0,
            revoked_unix_seconds: None,
            note: String::new(),
        };
        let all = [
            token("00000000000012ab"),
            token("00000000000034ab"),
            token("1111111111111234"),
        ];
        let found = |end| whole(end, &all).map_err(|error| error.to_string());
        assert_eq!(found("12ab"), Ok("00000000000012ab".to_owned()));
        assert_eq!(found("..1234"), Ok("1111111111111234".to_owned()));
        let none = whole("ffff", &all).unwrap_err();
        assert!(none.downcast_ref::<Refused>().is_some(), "no such name");
        assert!(found("ab").is_err() && found("").is_err() && found("ffff").is_err());
        let twice = [token("00000000000012ab"), token("00000000100012ab")];
        let several = whole("12ab", &twice).unwrap_err();
        assert!(several.to_string().contains("several"));
        assert_eq!(shown("00000000000012ab"), "..12ab");
    }
}

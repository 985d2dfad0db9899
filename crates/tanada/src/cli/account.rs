//! `tanada account ...`: who may do what, and how much.
//!
//! ```text
//! create, set -> role, users, groups, quota -> /v1/accounts      list, show, delete
//! ```
//!
//! Always true: `set` changes what it names and leaves the rest, limits of the quota too.

use std::fmt::Write as _;

use base::{Bytes, Nanos};
use clap::{Args, Subcommand};
use config::read_span;
use hyper::Method;
use policy::share::{BytesPerSec, Second};
use report::terminal::Usage;
use report::terminal::table::{size, table};

use super::ask::Ask;
use super::client::Client;
use super::show;
use crate::api::access::{self as api, AccountChange, AccountsGone, NewAccount, Quota};
use crate::daemon::common::when;

/// Ends a limit.
const NONE: &str = "none";

#[derive(Debug, Subcommand)]
pub enum Account {
    /// Make an account, or a project ACCOUNT/PROJECT of one.
    #[command(
        after_help = "Roles: reader sees figures and calendars without names; booker books, amends and cancels its own; \
                      operator does so for all, and commands volumes and stores; admin also deletes, and makes accounts.\n\
                      Examples: tanada account create astro --role booker --user ann --group astro\n\
                      tanada account create astro/lsst --role booker --rate 200MB/s --booked 500TB"
    )]
    Create(Create),
    /// List the accounts.
    #[command(visible_alias = "ls")]
    List(Ask),
    /// Show one account, its quota and what of it is used.
    #[command(visible_alias = "info")]
    Show(One),
    /// Change an account: role, users, quota; switch it off or on.
    Set(Set),
    /// Remove an account and its projects: nothing of them is let in from now on.
    #[command(visible_alias = "rm")]
    Delete(One),
}

#[derive(Debug, Args)]
pub struct One {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct Create {
    name: String,
    /// How far it may go: reader, booker, operator or admin.
    #[arg(long, default_value = "reader", value_name = "ROLE")]
    role: String,
    /// A user of the daemon's machine, by name or number, who is this account at the Unix socket; several: again.
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// A group whose members are.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    quota: Limits,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct Set {
    name: String,
    /// How far it may go: reader, booker, operator or admin.
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Its users from now on, instead of those before; '' for none.
    #[arg(long = "user", value_name = "USER")]
    users: Option<Vec<String>>,
    /// Its groups from now on, instead of those before; '' for none.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Option<Vec<String>>,
    /// Refuse it from the next request on.
    #[arg(long, conflicts_with = "on")]
    off: bool,
    /// Let it in again.
    #[arg(long)]
    on: bool,
    #[command(flatten)]
    quota: Limits,
    #[command(flatten)]
    ask: Ask,
}

/// A quota; each limit may be `none`.
#[derive(Debug, Args, Default)]
pub struct Limits {
    /// All its bookings together, at once, such as 500MB/s.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Promised to it in any 30 days, such as 100TB.
    #[arg(long, value_name = "SIZE")]
    booked: Option<String>,
    /// A booking begins at most so far ahead, such as 30d.
    #[arg(long, value_name = "SPAN")]
    ahead: Option<String>,
    /// A booking lasts at most so long, such as 12h.
    #[arg(long, value_name = "SPAN")]
    length: Option<String>,
    /// At most so many bookings that are not over.
    #[arg(long, value_name = "N")]
    count: Option<String>,
    /// Room at once, such as 1TiB.
    #[arg(long, value_name = "SIZE")]
    room: Option<String>,
    /// Its part of what is not promised, relative to other accounts: 1 to 1000.
    #[arg(long, value_name = "N")]
    weight: Option<String>,
    /// What it reads at most at each daemon, whatever its connections and volumes are, such as 100MB/s.
    #[arg(long, value_name = "RATE")]
    max_read: Option<String>,
    /// And writes.
    #[arg(long, value_name = "RATE")]
    max_write: Option<String>,
    /// Reads per second at most.
    #[arg(long, value_name = "N")]
    max_read_iops: Option<String>,
    /// Writes per second at most.
    #[arg(long, value_name = "N")]
    max_write_iops: Option<String>,
}

/// Reads a limit into its place; `none` ends it.
fn limit(
    text: Option<&String>,
    place: &mut Option<u64>,
    read: impl Fn(&str) -> Result<u64, String>,
) -> Result<(), Usage> {
    match text.map(String::as_str) {
        None => {}
        Some(NONE) => *place = None,
        Some(text) => *place = Some(read(text).map_err(Usage)?),
    }
    Ok(())
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes: Result<Bytes, _> = text.parse();
    bytes.map(|it| it.0).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<u64, String> {
    read_span(text).map(|span| span.0.div_ceil(Nanos::secs(1).0))
}

impl Limits {
    fn are_given(&self) -> bool {
        let all = [
            &self.rate,
            &self.booked,
            &self.ahead,
            &self.length,
            &self.count,
            &self.room,
            &self.weight,
            &self.max_read,
            &self.max_write,
            &self.max_read_iops,
            &self.max_write_iops,
        ];
        all.into_iter().any(Option::is_some)
    }

    /// The quota `before` with what is given here.
    fn over(&self, before: Quota) -> Result<Quota, Usage> {
        let mut quota = before;
        let rate = |text: &str| {
            let rate: Result<BytesPerSec, _> = text.parse();
            rate.map(|it| it.0).map_err(|error| error.to_string())
        };
        let number = |text: &str| {
            let number: Result<u64, _> = text.parse();
            number.map_err(|_| format!("'{text}' is no number"))
        };
        limit(self.rate.as_ref(), &mut quota.rate_bytes_per_second, rate)?;
        limit(self.booked.as_ref(), &mut quota.booked_bytes, bytes)?;
        limit(self.ahead.as_ref(), &mut quota.ahead_seconds, seconds)?;
        limit(self.length.as_ref(), &mut quota.length_seconds, seconds)?;
        limit(self.count.as_ref(), &mut quota.count, number)?;
        limit(self.room.as_ref(), &mut quota.room_bytes, bytes)?;
        let mut weight = quota.weight.map(u64::from);
        limit(self.weight.as_ref(), &mut weight, number)?;
        quota.weight = weight.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        for (text, place) in [
            (&self.max_read, &mut quota.max_read_bytes_per_second),
            (&self.max_write, &mut quota.max_write_bytes_per_second),
        ] {
            limit(text.as_ref(), place, rate)?;
        }
        for (text, place) in [
            (&self.max_read_iops, &mut quota.max_read_iops),
            (&self.max_write_iops, &mut quota.max_write_iops),
        ] {
            limit(text.as_ref(), place, number)?;
        }
        Ok(quota)
    }
}

/// Runs one of them.
pub fn run(command: Account) -> anyhow::Result<()> {
    match command {
        Account::Create(create) => {
            let new = NewAccount {
                quota: create.quota.over(Quota::default())?,
                name: create.name,
                role: Some(create.role),
                users: create.users,
                groups: create.groups,
            };
            let said =
                |it: &api::Account| format!("account {} has the role {} now\n", it.name, it.role);
            create.ask.send(Method::POST, "/v1/accounts", &new, said)
        }
        Account::List(ask) => {
            let all: Vec<api::Account> = Client::new(ask.admin)?.get("/v1/accounts")?;
            show::answer(ask.json, &all, || list(&all))
        }
        Account::Show(One { name, ask }) => {
            let one: api::Account = Client::new(ask.admin)?.get(&path(&name)?)?;
            show::answer(ask.json, &one, || page(&one))
        }
        Account::Set(set) => change(set),
        Account::Delete(One { name, ask }) => {
            let said = |gone: &AccountsGone| format!("deleted {}\n", gone.deleted.join(", "));
            ask.send(Method::DELETE, &path(&name)?, &(), said)
        }
    }
}

/// The API's path of an account; a project's `/` is one character of its name.
pub(super) fn path(name: &str) -> Result<String, Usage> {
    let name: access::name::AccountName = name
        .parse()
        .map_err(|error: access::name::BadAccountName| Usage(error.to_string()))?;
    Ok(format!(
        "/v1/accounts/{}",
        name.as_str().replace('/', "%2F")
    ))
}

fn change(set: Set) -> anyhow::Result<()> {
    let path = path(&set.name)?;
    // One empty name stands for none.
    let some = |names: Vec<String>| names.into_iter().filter(|it| !it.is_empty()).collect();
    let change = AccountChange {
        role: set.role,
        on: (set.on || set.off).then_some(set.on),
        users: set.users.map(some),
        groups: set.groups.map(some),
    };
    let limits = set.quota.are_given();
    if change == AccountChange::default() && !limits {
        let what = "name what is to change, such as --role operator, --rate 500MB/s or --off";
        return Err(Usage(what.to_owned()).into());
    }
    let client = Client::new(set.ask.admin)?;
    let mut now: api::Account = client.send_json(Method::PATCH, &path, &change)?;
    if limits {
        let quota = set.quota.over(now.quota)?;
        now = client.send_json(Method::PUT, &format!("{path}/quota"), &quota)?;
    }
    show::answer(set.ask.json, &now, || page(&now))
}

fn or_dash(text: String) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}

fn list(all: &[api::Account]) -> String {
    if all.is_empty() {
        return "there are no accounts; the daemon's owner and root do everything\n".to_owned();
    }
    let row = |it: &api::Account| {
        let rate = it.quota.rate_bytes_per_second;
        let most = rate.map_or("-".to_owned(), |rate| BytesPerSec(rate).to_string());
        vec![
            it.name.clone(),
            it.role.clone(),
            it.state.clone(),
            or_dash(it.users.join(",")),
            or_dash(it.groups.join(",")),
            it.used.count.to_string(),
            BytesPerSec(it.used.rate_bytes_per_second).to_string(),
            most,
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [
        "ACCOUNT", "ROLE", "STATE", "USERS", "GROUPS", "BOOKINGS", "NOW", "AT MOST",
    ];
    table(&head, &rows)
}

fn page(it: &api::Account) -> String {
    let mut text = format!("{}: {}, {}\n", it.name, it.role, it.state);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<22}{value}");
    };
    line("identity", it.id.clone());
    line("made", when::shown(Second(it.created_unix_seconds)));
    line("users", or_dash(it.users.join(", ")));
    line("groups", or_dash(it.groups.join(", ")));
    let most = |limit: Option<u64>, shown: &dyn Fn(u64) -> String| {
        limit.map_or("no limit".to_owned(), |it| format!("at most {}", shown(it)))
    };
    let rate = |it: u64| BytesPerSec(it).to_string();
    let span = |it: u64| {
        let span = std::time::Duration::from_secs(it);
        humantime::format_duration(span).to_string()
    };
    let (quota, used) = (&it.quota, &it.used);
    let of = |now: String, most: String| format!("{now} now, {most}");
    let now = rate(used.rate_bytes_per_second);
    line("rate", of(now, most(quota.rate_bytes_per_second, &rate)));
    line("booked in 30 days", most(quota.booked_bytes, &size));
    line("ahead", most(quota.ahead_seconds, &span));
    line("length", most(quota.length_seconds, &span));
    let count = used.count.to_string();
    line(
        "bookings",
        of(count, most(quota.count, &|it| it.to_string())),
    );
    let room = size(used.room_bytes);
    line("room", of(room, most(quota.room_bytes, &size)));
    line("weight", quota.weight.unwrap_or(1).to_string());
    let number = |it: u64| it.to_string();
    line("reads", most(quota.max_read_bytes_per_second, &rate));
    line("writes", most(quota.max_write_bytes_per_second, &rate));
    line("reads per second", most(quota.max_read_iops, &number));
    line("writes per second", most(quota.max_write_iops, &number));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_not_named_stays_and_none_ends_one() {
        let before = Quota {
            rate_bytes_per_second: Some(5),
            count: Some(3),
            ..Quota::default()
        };
        let text = |text: &str| Some(text.to_owned());
        let limits = Limits {
            rate: text("500MB/s"),
            ahead: text("1h 30m"),
            count: text("none"),
            room: text("1KiB"),
            weight: text("4"),
            max_write: text("20MB/s"),
            max_read_iops: text("500"),
            ..Limits::default()
        };
        let after = Quota {
            rate_bytes_per_second: Some(500_000_000),
            ahead_seconds: Some(5400),
            room_bytes: Some(1024),
            weight: Some(4),
            max_write_bytes_per_second: Some(20_000_000),
            max_read_iops: Some(500),
            ..Quota::default()
        };
        assert_eq!(limits.over(before).map_err(|it| it.0), Ok(after));
        assert!(limits.are_given() && !Limits::default().are_given());
        for odd in [
            Limits {
                count: text("many"),
                ..Limits::default()
            },
            Limits {
                rate: text("fast"),
                ..Limits::default()
            },
        ] {
            assert!(odd.over(before).is_err());
        }
    }

    #[test]
    fn a_projects_name_is_one_part_of_the_path() {
        let of = |name| path(name).map_err(|usage| usage.0);
        assert_eq!(of("astro/lsst"), Ok("/v1/accounts/astro%2Flsst".to_owned()));
        assert!(of("../x").unwrap_err().contains("is no account"));
    }
}

//! `tanada reservation ...`: throughput of a volume, of stores or of an export, booked as one whole.
//!
//! ```text
//! create -> POST /v2/reservations -> capability set | why not, and what would fit instead
//! list, show, set, delete: what there is, and what is to be different; run: a command with a reservation of its own
//! capability -> POST /v2/reservations/NAME/capability -> the capability set once more
//! ```
//!
//! With a holder, and at a daemon that is in no cluster, stores are reserved one by one: `reserve`.
//! Times are read in the zone of this machine and printed with their distance from UTC.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::anyhow;
use base::{Bytes, Nanos};
use clap::{ArgGroup, Args, Subcommand};
use config::read_span;
use policy::share::{BytesPerSec, Second};
use report::terminal::{Ending, Refused, Usage};

use super::ask::Ask;
use super::client::Client;
use super::reservation_capability::{self as capability, Missing};
use super::reservation_run::{self, Run};
use super::reservation_service::{Changed, Made, Service, Which};
use super::reservation_wanted::{Wanted, made_name, shown};
use super::reservation_words as words;
use super::reserve::{self, Parts, ShowCalendar, calendar, reservation_id, show_part};
use super::show;
use crate::api::reservation::{
    ReservationAsk, ReservationChange, ReservationOffer, WholeReservation,
};
use crate::daemon::common::when;

/// Commands about reservations.
#[derive(Debug, Subcommand)]
pub enum Reservation {
    /// Reserve throughput; prints the capability set of stores, by which it is used.
    Create(Box<Create>),
    /// List the reservations that run or are to come.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show one reservation and its parts.
    #[command(visible_alias = "info")]
    Show(One),
    /// Change the rates of a reservation, or when it ends.
    Set(Set),
    /// End a reservation.
    #[command(visible_alias = "rm")]
    Delete(Delete),
    /// Print the capability set of a reservation of stores once more.
    Capability(One),
    /// Show who has what when, and how full the stores are.
    Calendar(ShowCalendar),
    /// Run a command with a reservation that lasts as long as it does.
    Run(Box<Run>),
}

#[derive(Debug, Args)]
pub struct List {
    /// What each store promises, part by part, those of holders among them.
    #[arg(long)]
    pub parts: bool,
    #[command(flatten)]
    pub ask: Ask,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The capability set of stores goes to standard output: `tanada object get NAME - --capability TOKEN`, or in \
TANADA_CAPABILITY. Refused: the reason and what would fit go to standard error, exit status 5.

With --holder, and at a daemon that is in no cluster, each store keeps a part of its own, in one direction: \
the capabilities go to standard output, one line for each store.

Examples: tanada reservation create nightly --volume vm1 --read 200MB/s --from 20:00 --for 2h
          tanada reservation create --store s0 --read 85MB/s --for 2h --scope results/ --holder ann
          tanada reservation create --store s0 --store s1 --stripe --write 80MB/s --for 8h --scope job7/ --idle 10m
          tanada reservation create pool --store s0 --store s1 --read 100MB/s --for 30d --allotment
          tanada reservation create job8 --volume vm1 --read 40MB/s --for 1h --from-allotment pool")]
pub struct Create {
    /// Its name, of which an account has one [default: made of user, machine and time]
    pub name: Option<String>,
    #[command(flatten)]
    pub wanted: Wanted,
    /// When it begins: now, +30m, 20:00, "tomorrow 08:00", "2026-11-22 20:00", 2026-11-22T20:00:00Z.
    #[arg(long, default_value = "now", value_name = "TIME")]
    pub from: String,
    /// How long it lasts, such as 2h.
    #[arg(long = "for", value_name = "SPAN", value_parser = read_span)]
    pub span: Nanos,
    /// Room for what is written, at each store.
    #[arg(long, value_name = "SIZE")]
    pub space: Option<Bytes>,
    /// It ends by itself when nothing was asked under it for so long, such as 10m.
    #[arg(long, value_name = "SPAN", value_parser = read_span)]
    pub idle: Option<Nanos>,
    /// An allotment: no client uses it, its account books out of it (--from-allotment). Stores need no --scope.
    #[arg(long, conflicts_with_all = ["from_allotment", "export", "idle", "space"])]
    pub allotment: bool,
    /// An account that may have its capability beside its own, to hand it to its user.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Its capability is good to its end, also at a store that does not reach the meta store; else it lapses there.
    #[arg(long, requires = "store")]
    pub offline: bool,
    /// Of stores one by one, without a name: who it is for. Virtual disks with this holder use it, too.
    #[arg(
        long,
        value_name = "WHO",
        requires = "store",
        conflicts_with_all = ["name", "stripe", "idle", "allotment", "agent", "offline", "from_allotment", "account"]
    )]
    pub holder: Option<String>,
    /// Would it fit? Nothing is set aside.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub ask: Ask,
}

/// A reservation by its name, or the part of one store.
#[derive(Debug, Clone, PartialEq)]
pub enum Id {
    /// Its id (`r-...`) or name.
    Whole(String),
    /// `s0/7`.
    Part((String, u64)),
}

impl FromStr for Id {
    type Err = String;
    fn from_str(text: &str) -> Result<Id, String> {
        // A number alone lacks its store.
        if text.contains('/') || text.bytes().all(|byte| byte.is_ascii_digit()) {
            return reservation_id(text).map(Id::Part);
        }
        config::check_name(text).map(|()| Id::Whole(text.to_owned()))
    }
}

#[derive(Debug, Args)]
pub struct One {
    /// Its name or id; of a part of one store, STORE/NUMBER.
    #[arg(value_name = "NAME")]
    pub id: Id,
    /// Whose it is, if it is not yours.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    #[command(flatten)]
    pub ask: Ask,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["read", "write", "span"])))]
pub struct Set {
    /// Its name or id.
    name: String,
    /// Reads at this rate from now on.
    #[arg(long, value_name = "RATE")]
    read: Option<BytesPerSec>,
    /// Writes at this rate from now on.
    #[arg(long, value_name = "RATE")]
    write: Option<BytesPerSec>,
    /// It ends so long after now, or after its begin if that is to come, such as 2h.
    #[arg(long = "for", value_name = "SPAN", value_parser = read_span)]
    span: Option<Nanos>,
    /// Whose it is, if it is not yours.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    pub one: One,
    /// It is no mistake if there is none.
    #[arg(long)]
    pub if_exists: bool,
}

/// Runs one of them.
pub fn run(command: Reservation) -> anyhow::Result<ExitCode> {
    match command {
        Reservation::Create(arguments) => create(*arguments),
        Reservation::List(List { parts: true, ask }) => reserve::list(ask),
        Reservation::List(List { ask, .. }) => list(ask),
        Reservation::Show(one) => match &one.id {
            Id::Part(id) => show_part(id, one.ask),
            Id::Whole(_) => show(one),
        },
        Reservation::Set(arguments) => set(arguments),
        Reservation::Delete(arguments) => match &arguments.one.id {
            Id::Part(id) => reserve::delete_part(id, arguments.one.ask),
            Id::Whole(_) => delete(&arguments),
        },
        Reservation::Capability(one) => match &one.id {
            Id::Part(id) => reserve::print_capability(id, &one.ask),
            Id::Whole(_) => print_capability(&one),
        },
        Reservation::Calendar(arguments) => calendar(&arguments),
        Reservation::Run(arguments) => return reservation_run::run(*arguments),
    }?;
    Ok(Ending::Done.into())
}

fn service(ask: &Ask) -> anyhow::Result<Service> {
    Ok(Service::new(Client::new(ask.admin.clone())?))
}

fn list(ask: Ask) -> anyhow::Result<()> {
    let all = match service(&ask)?.list() {
        // Its stores keep all that is reserved there.
        Err(error) if error.is_absent() => return reserve::list(ask),
        all => all?,
    };
    show::answer(ask.json, &all, || match all.is_empty() {
        true => "nothing is reserved\n".to_owned(),
        false => words::list(&all),
    })
}

/// At the stores one by one: for a holder, or where the daemon is in no cluster.
fn create_parts(arguments: &Create) -> anyhow::Result<()> {
    let wanted = &arguments.wanted;
    let (direction, rate) = wanted.one_direction()?;
    let others = [
        arguments.name.is_some(),
        wanted.stripe,
        arguments.idle.is_some(),
        arguments.allotment,
        arguments.agent.is_some(),
        arguments.offline,
    ];
    if others.contains(&true) {
        let why = "a name, --stripe, --idle, --allotment, --agent and --offline take a cluster, and this daemon's \
                   configuration has no [cluster]; leave them out";
        return Err(Usage(why.to_owned()).into());
    }
    let (stores, scope) = wanted.stores_and_scope()?;
    // `USER` is only a suggestion.
    let user = || std::env::var("USER").unwrap_or_default();
    let parts = Parts {
        stores,
        direction,
        rate,
        from: arguments.from.clone(),
        span: arguments.span,
        window: wanted.window,
        probability: wanted.probability,
        space_bytes: arguments.space.map_or(0, |space| space.0),
        scope,
        holder: arguments.holder.clone().unwrap_or_else(user),
    };
    match arguments.dry_run {
        true => reserve::offer(&parts, &arguments.ask),
        false => reserve::create(&parts, &arguments.ask),
    }
}

/// What is asked of the daemon.
fn asked(arguments: &Create) -> anyhow::Result<ReservationAsk> {
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => made_name(),
    };
    config::check_name(&name).map_err(Usage)?;
    let of = arguments.wanted.said()?;
    let (span, is_allotment) = (arguments.span, arguments.allotment);
    let mut asked = arguments.wanted.ask(of, name, span, is_allotment)?;
    asked.from = from(&arguments.from)?;
    asked.space = arguments.space.map(|space| format!("{}B", space.0));
    asked.idle = arguments.idle.map(shown);
    asked.agent.clone_from(&arguments.agent);
    asked.target.offline = arguments.offline;
    Ok(asked)
}

fn create(arguments: Create) -> anyhow::Result<()> {
    if arguments.holder.is_some() {
        return create_parts(&arguments);
    }
    let service = service(&arguments.ask)?;
    let asked = asked(&arguments)?;
    let done = match arguments.dry_run {
        true => service.offer(&asked).map(Answer::Offer),
        false => service
            .create(&asked)
            .map(|made| Answer::Made(Box::new(made))),
    };
    match done {
        Ok(Answer::Offer(offer)) => print_offer(&offer, arguments.ask.json),
        Ok(Answer::Made(made)) => print_created(&service, &arguments, *made),
        // Its stores keep reservations all the same.
        Err(error)
            if error.is_absent()
                && !asked.target.stores.is_empty()
                && !service.has_cluster()? =>
        {
            create_parts(&arguments)
        }
        Err(error) => Err(error.into()),
    }
}

/// What a request to reserve came to.
enum Answer {
    Offer(ReservationOffer),
    Made(Box<Made>),
}

fn print_created(service: &Service, arguments: &Create, made: Made) -> anyhow::Result<()> {
    let (is_new, mut made) = match made {
        Made::New(made) => (true, made),
        Made::Existing(made) => (false, made),
        Made::Refused(refusal) => {
            if arguments.ask.json {
                show::json(&refusal)?;
            }
            return Err(words::refused(&refusal).into());
        }
    };
    let verb = if is_new {
        "reserved"
    } else {
        "was reserved already:"
    };
    if !arguments.ask.json {
        eprintln!("{verb} {}", words::sentence(&made));
    }
    if let Some(line) = words::links_not_booked(&made.lacks.links_not_booked) {
        eprintln!("{line}");
    }
    // Who books for another account has no capability of it.
    let is_ours = arguments.wanted.account.is_none() || made.lacks.capability_error.is_some();
    let missing = match is_ours {
        true => capability::complete(service, &mut made).err(),
        false => None,
    };
    print_made(arguments.ask.json, &made, missing, "reserved")
}

/// Prints a reservation of which the sentence is said already: the token alone on stdout, so that a script can take it.
fn print_made(
    as_json: bool,
    made: &WholeReservation,
    missing: Option<Missing>,
    verb: &str,
) -> anyhow::Result<()> {
    match &made.capability {
        _ if as_json => show::json(made)?,
        Some(capability) => show::text(&format!("{capability}\n"))?,
        None => {}
    }
    match missing {
        Some(Missing(why)) => Err(anyhow!(
            "{name} is {verb}, and stands, but its capability cannot be had: {why}; ask for it again with `tanada \
             reservation capability {name}`, or end it with `tanada reservation delete {name}`",
            name = made.name
        )),
        None => Ok(()),
    }
}

/// Prints the capability set once more.
fn print_capability(one: &One) -> anyhow::Result<()> {
    let found = service(&one.ask)?.capability(one.which()?)?;
    let found = found.ok_or_else(|| absent(one.name(), one.account.as_deref()))?;
    match &found.capability {
        _ if one.ask.json => show::json(&found),
        Some(capability) => show::text(&format!("{capability}\n")),
        None => Err(anyhow!(
            "reservation {} is of {}, whose clients need no capability: whatever they ask for comes under it",
            found.name,
            words::target(&found.target)
        )),
    }
}

fn print_offer(offer: &ReservationOffer, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        show::json(offer)?;
    } else if offer.fits {
        show::text("it fits\n")?;
    } else {
        let reasons = offer.refused.join("\n");
        show::text(&format!("{reasons}\n{}", words::instead(offer)))?;
    }
    match offer.fits {
        true => Ok(()),
        false => Err(Refused("it does not fit as asked".to_owned()).into()),
    }
}

/// Shows a whole reservation.
pub fn show(one: One) -> anyhow::Result<()> {
    let found = service(&one.ask)?.get(one.which()?)?;
    let found = found.ok_or_else(|| absent(one.name(), one.account.as_deref()))?;
    show::answer(one.ask.json, &found, || words::page(&found))
}

impl One {
    fn name(&self) -> &str {
        match &self.id {
            Id::Whole(id) => id,
            Id::Part((store, _)) => store,
        }
    }

    fn which(&self) -> Result<Which<'_>, Usage> {
        match &self.id {
            Id::Whole(id) => Ok(Which {
                id,
                account: self.account.as_deref(),
            }),
            Id::Part((store, number)) => Err(Usage(format!(
                "{store}/{number} is the part of one store, not a whole reservation"
            ))),
        }
    }
}

fn absent(name: &str, account: Option<&str>) -> anyhow::Error {
    let of = account.map_or(String::new(), |account| format!(" of {account}"));
    Refused(format!(
        "there is no reservation {name}{of}; `tanada reservation list` shows what there is, and --account says whose is \
         meant"
    ))
    .into()
}

fn set(arguments: Set) -> anyhow::Result<()> {
    let rate = |rate: Option<BytesPerSec>| rate.map(|rate| format!("{}B/s", rate.0));
    let change = ReservationChange {
        read: rate(arguments.read),
        write: rate(arguments.write),
        span: arguments.span.map(shown),
    };
    let which = Which {
        id: &arguments.name,
        account: arguments.account.as_deref(),
    };
    let service = service(&arguments.ask)?;
    match service.change(which, &change)? {
        Changed::Done(mut now) => {
            // Who changes another account's has no capability of it.
            let missing = match now.lacks.capability_error.is_some() {
                true => capability::complete(&service, &mut now).err(),
                false => None,
            };
            let sentence = format!("reserved {}\n", words::sentence(&now));
            match now.capability.is_some() || missing.is_some() {
                _ if arguments.ask.json => {}
                true => eprint!("{sentence}"),
                false => return show::text(&sentence),
            }
            print_made(arguments.ask.json, &now, missing, "changed")
        }
        Changed::Absent => Err(absent(which.id, which.account)),
        Changed::Refused(refusal) => {
            if arguments.ask.json {
                show::json(&refusal)?;
            }
            Err(words::refused(&refusal).into())
        }
    }
}

fn delete(arguments: &Delete) -> anyhow::Result<()> {
    let one = &arguments.one;
    match service(&one.ask)?.delete(one.which()?)? {
        Some(gone) => show::answer(one.ask.json, &gone, || format!("ended {}\n", gone.name)),
        None if arguments.if_exists => show::answer(one.ask.json, &None::<()>, || {
            format!("there is no reservation {}\n", one.name())
        }),
        None => Err(absent(one.name(), one.account.as_deref())),
    }
}

/// A begin for the daemon, whose zone may be another: `now` and spans by its clock, others in UTC.
fn from(text: &str) -> Result<Option<String>, Usage> {
    match text.trim() {
        "now" => Ok(None),
        text if text.starts_with('+') => Ok(Some(text.to_owned())),
        text => {
            let now = Second(when::now().0 / Nanos::secs(1).0);
            when::read(text, now)
                .map(|at| Some(when::utc(at)))
                .map_err(Usage)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_called_by_its_name_or_by_a_part() {
        assert_eq!("nightly".parse(), Ok(Id::Whole("nightly".to_owned())));
        assert_eq!("s0/7".parse(), Ok(Id::Part(("s0".to_owned(), 7))));
        for odd in ["", "7", "a b", "s0/x", "../7", "-x"] {
            assert!(odd.parse::<Id>().is_err(), "{odd}");
        }
    }

    #[test]
    fn a_begin_is_sent_in_utc_unless_the_daemon_s_clock_is_meant() {
        assert_eq!(from("now").unwrap(), None);
        assert_eq!(from("+30m").unwrap().as_deref(), Some("+30m"));
        let at = from("2026-11-22T20:00:00+09:00").unwrap();
        assert_eq!(at.as_deref(), Some("2026-11-22T11:00:00Z"));
        assert!(from("soon").unwrap_err().0.contains("write"));
    }
}

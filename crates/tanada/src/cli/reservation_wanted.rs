//! What a reservation is to be of, and how much: words of the command line -> what is asked of the daemon.
//!
//! ```text
//! --volume, --store, --export | TANADA_TARGET | the only volume or store -> Of -> ReservationAsk
//! ```

use std::str::FromStr;
use std::time::Duration;

use base::Nanos;
use clap::{ArgGroup, Args};
use config::read_span;
use policy::share::BytesPerSec;
use report::terminal::Usage;

use super::client::ClientError;
use super::reservation_service::{There, check_account};
use crate::api::reservation::{AllotmentAsk, ReservationAsk, ReservationTarget};
use crate::daemon::common::when;

/// The variable that says what `run` reserves where its words do not.
const TARGET: &str = "TANADA_TARGET";

/// What a reservation is of, and how much.
#[derive(Debug, Default, Args)]
#[command(
    group(ArgGroup::new("rate").required(true).multiple(true).args(["read", "write"])),
    group(ArgGroup::new("of").args(["volume", "store", "export"]))
)]
pub struct Wanted {
    /// A virtual disk, at all of its stores.
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// A store; several: on all of them or not at all.
    #[arg(long, value_name = "NAME")]
    pub store: Vec<String>,
    /// The rate is that of all stores together: requests go to all of them in turn.
    #[arg(long)]
    pub stripe: bool,
    /// Of stores: only for objects whose names begin so.
    #[arg(long, value_name = "PREFIX")]
    pub scope: Option<String>,
    /// An export of a hybrid that has a queue, of the node that is asked.
    #[arg(long, value_name = "NAME")]
    pub export: Option<String>,
    /// Reserve reads at this rate, such as 200MB/s.
    #[arg(long, value_name = "RATE")]
    pub read: Option<BytesPerSec>,
    /// Reserve writes at this rate.
    #[arg(long, value_name = "RATE")]
    pub write: Option<BytesPerSec>,
    /// Of a volume: how many of its stores may be lost with the promise kept [default: 1; of one copy 0]
    #[arg(long, value_name = "STORES")]
    pub tolerate: Option<u8>,
    /// Of a volume: any (holds for any pattern) or spread (for requests that all extents get evenly) [default: any]
    #[arg(long, value_name = "PLAN", value_parser = ["any", "spread"])]
    pub plan: Option<String>,
    /// The window in which the rate is to be reached [default: 1s]
    #[arg(long, value_name = "SPAN", value_parser = read_span)]
    pub window: Option<Nanos>,
    /// The share of windows in which it is to be reached, in percent [default: 99]
    #[arg(long, value_name = "PERCENT")]
    pub probability: Option<f64>,
    /// Book inside this allotment of the account: it needs no free rate at the stores, and ends with it.
    #[arg(long, value_name = "NAME", conflicts_with = "export")]
    pub from_allotment: Option<String>,
    /// Whose it is [default: yours]; another account than your own takes the role operator.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
}

/// What a reservation is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    Volume(String),
    Stores(Vec<String>),
    Export(String),
}

impl FromStr for Of {
    type Err = String;
    /// `volume:vm1`, `store:s1,s2`, `export:h`.
    fn from_str(text: &str) -> Result<Of, String> {
        let odd =
            || format!("'{text}' is no target; write such as volume:vm1, store:s1,s2 or export:h");
        let (kind, names) = text.trim().split_once(':').ok_or_else(odd)?;
        let names: Vec<String> = names.split(',').map(|it| it.trim().to_owned()).collect();
        names.iter().try_for_each(|it| config::check_name(it))?;
        match (kind, &names[..]) {
            ("volume", [name]) => Ok(Of::Volume(name.clone())),
            ("export", [name]) => Ok(Of::Export(name.clone())),
            ("store", _) => Ok(Of::Stores(names)),
            _ => Err(odd()),
        }
    }
}

/// What is meant where nothing is said: the only volume; of objects, or without a volume, the only store.
///
/// # Errors
/// What there is, and what to write.
fn only(there: &There, is_of_objects: bool) -> Result<Of, String> {
    match (&there.volumes[..], &there.stores[..]) {
        ([volume], _) if !is_of_objects => Ok(Of::Volume(volume.clone())),
        ([], [store]) => Ok(Of::Stores(vec![store.clone()])),
        (_, [store]) if is_of_objects => Ok(Of::Stores(vec![store.clone()])),
        (volumes, stores) => {
            let listed = |of: &[String]| match of {
                [] => "none".to_owned(),
                all => all.join(", "),
            };
            Err(format!(
                "cannot tell what to reserve: of volumes there are {}, of stores {}; say --volume NAME, --store NAME \
                 (with --scope PREFIX) or --export NAME, or set {TARGET} to volume:NAME, store:NAME,NAME or \
                 export:NAME",
                listed(volumes),
                listed(stores)
            ))
        }
    }
}

impl Wanted {
    /// What the words say it is of.
    ///
    /// # Errors
    /// They say nothing of it.
    pub fn said(&self) -> Result<Of, Usage> {
        self.of().ok_or_else(|| {
            Usage("say what it is of: --volume NAME, --store NAME or --export NAME".to_owned())
        })
    }

    /// What it is of: as said, as the environment has it, or the only thing that there is.
    ///
    /// # Errors
    /// The environment makes no sense; there is no one thing; the daemon does not answer.
    pub fn said_or_only(
        &self,
        there: impl FnOnce() -> Result<There, ClientError>,
    ) -> anyhow::Result<Of> {
        if let Some(of) = self.of() {
            return Ok(of);
        }
        match std::env::var(TARGET) {
            Ok(text) if !text.trim().is_empty() => {
                let of = text.parse();
                of.map_err(|why| Usage(format!("{TARGET}: {why}")).into())
            }
            _ => Ok(only(&there()?, self.scope.is_some()).map_err(Usage)?),
        }
    }

    /// The one direction and its rate, where there can be but one.
    ///
    /// # Errors
    /// There are two.
    pub fn one_direction(&self) -> Result<(&'static str, BytesPerSec), Usage> {
        match (self.read, self.write) {
            (Some(rate), None) => Ok(("read", rate)),
            (None, Some(rate)) => Ok(("write", rate)),
            _ => Err(Usage(
                "at stores one by one a reservation has one direction: reserve --read and --write one after the other".to_owned(),
            )),
        }
    }

    /// The stores, and what the names of their objects begin with.
    ///
    /// # Errors
    /// It is of no stores; other words do not suit them.
    pub fn stores_and_scope(&self) -> Result<(Vec<String>, Option<String>), Usage> {
        let of = self.said()?;
        self.check(&of, false)?;
        match of {
            Of::Stores(stores) => Ok((stores, self.scope.clone())),
            _ => Err(Usage("--holder is of stores; say --store".to_owned())),
        }
    }

    fn of(&self) -> Option<Of> {
        match (&self.volume, &self.store[..], &self.export) {
            (Some(volume), ..) => Some(Of::Volume(volume.clone())),
            (None, [_, ..], _) => Some(Of::Stores(self.store.clone())),
            (None, [], Some(export)) => Some(Of::Export(export.clone())),
            (None, [], None) => None,
        }
    }

    /// Does all that is said beside suit what it is of?
    fn check(&self, of: &Of, is_allotment: bool) -> Result<(), Usage> {
        let refuse = |why: &str| Err(Usage(why.to_owned()));
        let (is_of_volume, is_of_stores) =
            (matches!(of, Of::Volume(_)), matches!(of, Of::Stores(_)));
        if (self.stripe || self.scope.is_some()) && !is_of_stores {
            return refuse("--stripe and --scope are of stores; say --store, or leave them out");
        }
        if (self.tolerate.is_some() || self.plan.is_some()) && !is_of_volume {
            return refuse(
                "--tolerate and --plan are of a volume; say --volume, or leave them out",
            );
        }
        if self.from_allotment.is_some() && matches!(of, Of::Export(_)) {
            return refuse("an export is booked in no allotment; leave --from-allotment out");
        }
        match self.scope.as_deref() {
            Some("") => refuse(
                "--scope is not empty: say which names of objects it is for, such as --scope results/",
            ),
            None if is_of_stores && !is_allotment => refuse(
                "--store needs --scope: say which names of objects it is for, such as --scope results/",
            ),
            _ => Ok(()),
        }
    }

    /// What is asked of the daemon under `name`, for `span`.
    pub fn ask(
        &self,
        of: Of,
        name: String,
        span: Nanos,
        is_allotment: bool,
    ) -> anyhow::Result<ReservationAsk> {
        if span < Nanos::secs(1) {
            return Err(Usage("--for is at least a second".to_owned()).into());
        }
        if let Some(account) = &self.account {
            check_account(account).map_err(Usage)?;
        }
        self.check(&of, is_allotment)?;
        let rate = |rate: Option<BytesPerSec>| rate.map(|rate| format!("{}B/s", rate.0));
        Ok(ReservationAsk {
            name,
            target: self.target(of),
            allotment: match &self.from_allotment {
                Some(name) => Some(AllotmentAsk::Inside(name.clone())),
                None => is_allotment.then_some(AllotmentAsk::Is(true)),
            },
            read: rate(self.read),
            write: rate(self.write),
            span: shown(span),
            tolerate: self.tolerate,
            plan: self.plan.clone(),
            window: self.window.map(shown),
            probability_percent: self.probability,
            account: self.account.clone(),
            ..ReservationAsk::default()
        })
    }

    fn target(&self, of: Of) -> ReservationTarget {
        let mut target = ReservationTarget {
            stripe: self.stripe,
            scope: self.scope.clone(),
            ..ReservationTarget::default()
        };
        match of {
            Of::Volume(name) => target.volume = Some(name),
            Of::Stores(names) => target.stores = names,
            Of::Export(name) => target.export = Some(name),
        }
        target
    }
}

/// A span as it is written.
pub fn shown(span: Nanos) -> String {
    humantime::format_duration(Duration::from_nanos(span.0)).to_string()
}

/// A name of user, machine and time.
pub fn made_name() -> String {
    let user = std::env::var("USER").unwrap_or_default();
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    name_of(&user, &machine, when::now())
}

/// `ann-node7-1795345200123`: to the millisecond, as scripts make several.
fn name_of(user: &str, machine: &str, at: Nanos) -> String {
    /// Of user and machine each.
    const PART_MAX: usize = 20;
    let part = |text: &str, or: &str| {
        let good = text.chars().filter(char::is_ascii_alphanumeric);
        let part: String = good.take(PART_MAX).collect();
        if part.is_empty() { or.to_owned() } else { part }
    };
    let machine = machine.split('.').next().unwrap_or_default();
    let (user, machine) = (part(user, "user"), part(machine, "machine"));
    format!("{user}-{machine}-{}", at.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_from_the_environment_s_words() {
        let stores = |names: &[&str]| Of::Stores(names.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!("volume:vm1".parse(), Ok(Of::Volume("vm1".to_owned())));
        assert_eq!(" store:s1, s2 ".parse(), Ok(stores(&["s1", "s2"])));
        assert_eq!("export:h".parse(), Ok(Of::Export("h".to_owned())));
        for odd in [
            "vm1",
            "volume:",
            "volume:a,b",
            "disk:a",
            "store:a,,b",
            "store:../x",
        ] {
            let why = odd.parse::<Of>().unwrap_err();
            assert!(
                why.contains("no target") || why.contains("is not a name"),
                "{odd}: {why}"
            );
        }
    }

    #[test]
    fn where_nothing_is_said_the_only_one_is_meant() {
        let there = |volumes: &[&str], stores: &[&str]| There {
            volumes: volumes.iter().map(|it| (*it).to_owned()).collect(),
            stores: stores.iter().map(|it| (*it).to_owned()).collect(),
        };
        let volume = || Ok(Of::Volume("vm1".to_owned()));
        let store = || Ok(Of::Stores(vec!["s1".to_owned()]));
        assert_eq!(only(&there(&["vm1"], &["s1", "s2"]), false), volume());
        assert_eq!(only(&there(&["vm1"], &["s1"]), false), volume());
        assert_eq!(only(&there(&["vm1"], &["s1"]), true), store());
        assert_eq!(only(&there(&[], &["s1"]), false), store());
        for (there, is_of_objects) in [
            (there(&["vm1", "vm2"], &["s1"]), false),
            (there(&["vm1"], &["s1", "s2"]), true),
            (there(&[], &["s1", "s2"]), false),
            (there(&[], &[]), false),
        ] {
            let why = only(&there, is_of_objects).unwrap_err();
            for name in there.volumes.iter().chain(&there.stores) {
                assert!(why.contains(name.as_str()), "{why}");
            }
            assert!(
                why.contains("--volume NAME") && why.contains("TANADA_TARGET"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_name_is_made_of_user_machine_and_time() {
        let at = Nanos(1_795_345_200_123_456_789);
        assert_eq!(name_of("ann", "node7.site", at), "ann-node7-1795345200123");
        let odd = name_of("", "ü", at);
        assert_eq!(odd, "user-machine-1795345200123");
        let long = name_of(&"u".repeat(99), &"m".repeat(99), at);
        assert_eq!(config::check_name(&long), Ok(()));
    }
}

//! Which policies are there, and what are they called?

use std::fmt;
use std::str::FromStr;

use super::{
    C3, LeastOutstanding, LocalFirst, MdRaid1, Oracle, QueueCost, QueueOptions, QueuedAmount,
    Random, ReplicaPolicy, RoundRobin, Tanada, TanadaOptions, Weights,
};

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// [`RoundRobin`]: each copy in its turn.
    RoundRobin,
    /// [`Random`]: any.
    Random,
    /// [`LocalFirst`]: the one in the same node, else any.
    LocalFirst,
    /// [`QueuedAmount`]: the least queued, by multicast.
    Clbs,
    /// [`LeastOutstanding`]: the fewest own requests under way.
    LeastOutstanding,
    /// [`QueueCost`] as published.
    QueueCost,
    /// [`C3`].
    C3,
    /// [`MdRaid1`]: as Linux's RAID 1 reads.
    MdRaid1,
    /// [`Tanada`]; the default.
    #[default]
    Tanada,
    /// [`Oracle`]: knows every queue; in simulations only.
    Oracle,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 10] = [
        Kind::RoundRobin,
        Kind::Random,
        Kind::LocalFirst,
        Kind::Clbs,
        Kind::LeastOutstanding,
        Kind::QueueCost,
        Kind::C3,
        Kind::MdRaid1,
        Kind::Tanada,
        Kind::Oracle,
    ];

    /// The name in configuration, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::RoundRobin => "round-robin",
            Kind::Random => "random",
            Kind::LocalFirst => "local-first",
            Kind::Clbs => "clbs",
            Kind::LeastOutstanding => "least-outstanding",
            Kind::QueueCost => "queue-cost",
            Kind::C3 => "c3",
            Kind::MdRaid1 => "md-raid1",
            Kind::Tanada => "tanada",
            Kind::Oracle => "oracle",
        }
    }

    /// Every kind that real requests can be chosen by: all but what needs exact states.
    pub fn selectable() -> impl Iterator<Item = Kind> {
        let all = Kind::ALL.into_iter();
        all.filter(|kind| *kind != Kind::Oracle)
    }

    /// Does it go by reports that disks send unasked, and by nothing that comes with answers? A disk that sends none
    /// counts as idle.
    pub const fn needs_reports(self) -> bool {
        matches!(self, Kind::Clbs | Kind::QueueCost)
    }

    /// How the disks keep their queues for it: with measured weights or with constants.
    pub fn queue(self, weights: Weights) -> QueueOptions {
        QueueOptions {
            weights,
            measure: matches!(self, Kind::Tanada | Kind::Oracle),
            ..QueueOptions::default()
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no policy for replicas; choose one of round-robin, random, local-first, clbs, least-outstanding, \
     queue-cost, c3, md-raid1, tanada, oracle"
)]
pub struct UnknownKind(pub String);

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// What a policy of any kind is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What requests cost on disks that were not heard of yet.
    pub weights: Weights,
    /// Chance comes from this: another for each client.
    pub seed: u64,
    /// Clients there are, for [`Kind::C3`].
    pub clients: u32,
    /// For [`Kind::Tanada`].
    pub tanada: TanadaOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            weights: Weights::default(),
            seed: 1,
            clients: 1,
            tanada: TanadaOptions::default(),
        }
    }
}

/// The policy `kind` of a client that has heard nothing yet.
///
/// # Example
/// ```
/// use base::{Bytes, Instant};
/// use policy::place::*;
/// let mut policy = build("tanada".parse()?, &Options::default());
/// let request = Request {
///     origin: Origin { client: ClientId(1), class: Class::Normal },
///     op: Op::Read,
///     bytes: Bytes::kib(4),
///     sequential: false,
///     penalties: Penalties::default(),
/// };
/// let copy = |disk, local| Candidate { disk: DiskId(disk), local, rotating: true, at: None };
/// // Both are idle as far as it knows, and from the local one bytes come faster: for one request of 4 KiB that
/// // is no difference, for one of 16 MiB it is.
/// let long = Request { bytes: Bytes::mib(16), ..request };
/// assert_eq!(policy.read(Instant(0), &long, &[copy(3, false), copy(7, true)]), DiskId(7));
/// # Ok::<(), UnknownKind>(())
/// ```
pub fn build(kind: Kind, options: &Options) -> Box<dyn ReplicaPolicy> {
    let Options {
        weights,
        seed,
        clients,
        tanada,
    } = *options;
    match kind {
        Kind::RoundRobin => Box::new(RoundRobin::default()),
        Kind::Random => Box::new(Random::new(seed)),
        Kind::LocalFirst => Box::new(LocalFirst::new(seed)),
        Kind::Clbs => Box::new(QueuedAmount::default()),
        Kind::LeastOutstanding => Box::new(LeastOutstanding::default()),
        Kind::QueueCost => Box::new(QueueCost::new(weights)),
        Kind::C3 => Box::new(C3::new(clients)),
        Kind::MdRaid1 => Box::new(MdRaid1::default()),
        Kind::Tanada => Box::new(Tanada::new(weights, tanada, seed)),
        Kind::Oracle => Box::new(Oracle::new(weights)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_selectable_unless_it_needs_exact_states() {
        for kind in Kind::ALL {
            let exact = build(kind, &Options::default()).needs_exact_states();
            assert_eq!(Kind::selectable().any(|it| it == kind), !exact, "{kind}");
        }
    }

    #[test]
    fn every_policy_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(
            "nearest".parse::<Kind>().unwrap_err().to_string(),
            "'nearest' is no policy for replicas; choose one of round-robin, random, local-first, clbs, \
             least-outstanding, queue-cost, c3, md-raid1, tanada, oracle"
        );
    }
}

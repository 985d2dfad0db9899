//! Which parts of the stronger policy are on, and by which figures do they go?

use base::Nanos;

use super::{EjectOptions, Permille};

/// The parts of the stronger policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TanadaOptions {
    /// Take the states that come with answers?
    pub piggyback: bool,
    /// What a request has to wait for at a disk.
    pub waits: Waits,
    /// Add own requests the state does not know yet, and their end as h'?
    pub own: bool,
    /// Expect a disk that is late with an own request to need as long again?
    pub late: bool,
    /// Measure the hop to each disk and add it?
    pub net: bool,
    /// In this time 63 % of a state give way to the mean; `None`: states do not age.
    pub ageing: Option<Nanos>,
    /// In this time 63 % of what is known of the clients there is forgotten; `None`: nothing is.
    pub class_memory: Option<Nanos>,
    /// Does a seek count as behind the foremost class of a disk, and not only as behind the last request?
    pub presence: bool,
    /// h' counts so long; `None`: always.
    pub fresh: Option<Nanos>,
    /// A client that was alone at a block's disks so long ago at most disturbs no other. It uses them all as
    /// [`C3`](super::C3) does; `None`: it goes by their cost, too.
    pub alone: Option<Nanos>,
    /// Small reads leave the emptier disks to larger ones.
    pub yielding: Option<YieldOptions>,
    /// Scores within this of the least are alike, and chance decides; `None`: the first of the least.
    pub epsilon: Option<Permille>,
    /// New copies go to the best of a few; `None`: of all, without regard to room and headroom.
    pub choices: Option<PowerOfChoices>,
    /// Late reads are sent a second time.
    pub hedge: Option<HedgeOptions>,
    /// Disks that do not do what they should are avoided.
    pub eject: Option<EjectOptions>,
}

/// What a request has to wait for at a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// The published cost'.
    Cost,
    /// All there is, in device time: q = 1, less what is done. So it is where disks serve first come, first served.
    All,
    /// The same; on disks that seek what others have there counts once more for each own request (with `own`), since a store
    /// serves its clients in turns. Not so for what goes on where the last own request ends, nor for preferred clients.
    Turns,
}

/// Placement by power of d choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerOfChoices {
    /// d: so many disks are drawn; at least as many as copies.
    pub drawn: u32,
    /// What a full disk costs more than an empty one.
    pub full: Nanos,
    /// What a disk whose whole time is reserved costs more.
    pub reserved: Nanos,
}

/// Small reads leave the emptier disks to larger ones.
///
/// At the emptier of two disks a read of 1 MiB and one of 4 KiB gain the same milliseconds, and the small ones come more
/// often. So a small read takes the fullest disk at which it is answered about as soon as others of its kind, and the
/// emptiest only if it would be late elsewhere: its tail stays short.
///
/// Choice: the paper's clients all take the least. Preferred clients do not yield, nor does any to those of low class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YieldOptions {
    /// A read is small if what waits at the disks is so many times as long, on the average.
    pub smaller: u32,
    /// It is late so many deviations above what small reads cost where they cost least, on the average.
    pub deviations: Permille,
}

impl Default for YieldOptions {
    /// A quarter of the mean; 1.2 deviations.
    fn default() -> Self {
        YieldOptions {
            smaller: 4,
            deviations: Permille(1_200),
        }
    }
}

/// Which disks' late reads are sent a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HedgeDisks {
    /// Flash and faster.
    Flash,
    /// All.
    All,
}

/// Hedged reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HedgeOptions {
    /// Which.
    pub disks: HedgeDisks,
    /// Not before this.
    pub after_min: Nanos,
    /// And not before so many times the prediction.
    pub factor: Permille,
    /// At most this part of all reads.
    pub budget: Permille,
    /// So many may be saved up.
    pub burst: u32,
}

impl Default for HedgeOptions {
    /// Flash, after 4 ms and three times the prediction, at most one of twenty, at most 16 in a row.
    fn default() -> Self {
        HedgeOptions {
            disks: HedgeDisks::Flash,
            after_min: Nanos::millis(4),
            factor: Permille(3_000),
            budget: Permille(50),
            burst: 16,
        }
    }
}

impl Default for TanadaOptions {
    /// The parts that help where a store's queue is before the disk.
    fn default() -> Self {
        TanadaOptions {
            piggyback: true,
            waits: Waits::Turns,
            own: true,
            late: true,
            net: true,
            ageing: Some(Nanos::millis(200)),
            class_memory: Some(Nanos::secs(1)),
            presence: true,
            fresh: Some(Nanos::millis(20)),
            alone: Some(Nanos::secs(1)),
            yielding: None,
            epsilon: Some(Permille(50)),
            choices: Some(PowerOfChoices {
                drawn: 6,
                full: Nanos::millis(20),
                reserved: Nanos::millis(20),
            }),
            hedge: Some(HedgeOptions::default()),
            eject: Some(EjectOptions::default()),
        }
    }
}

impl TanadaOptions {
    /// For disks that serve first come, first served, without a store's queue before them.
    pub fn first_come() -> TanadaOptions {
        TanadaOptions {
            waits: Waits::All,
            yielding: Some(YieldOptions::default()),
            ..TanadaOptions::default()
        }
    }

    /// Everything off: the published method.
    pub const fn published() -> TanadaOptions {
        TanadaOptions {
            piggyback: false,
            waits: Waits::Cost,
            own: false,
            late: false,
            net: false,
            ageing: None,
            class_memory: None,
            presence: false,
            fresh: None,
            alone: None,
            yielding: None,
            epsilon: None,
            choices: None,
            hedge: None,
            eject: None,
        }
    }
}

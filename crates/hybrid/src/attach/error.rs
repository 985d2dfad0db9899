//! Why could a pair not be opened, and what is to be done about it?
//!
//! ```text
//! what was asked, what stood in the way -> one sentence with the cure
//! ```

use base::Bytes;
use device::DeviceError;
use ledger::LedgerError;

use crate::attach::label;
use crate::settings::SettingsError;

/// Why a hybrid disk could not be made, opened or changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A choice makes no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The map cannot be read.
    #[error("cannot read the map of {name} on {fast}: {source}")]
    Ledger {
        /// The volume.
        name: String,
        /// The fast device.
        fast: String,
        /// What the ledger says.
        source: LedgerError,
    },
    /// A part of the map that was durable cannot be read.
    #[error("{}", map_lost(name, fast, *cache, source))]
    MapLost {
        /// The volume.
        name: String,
        /// The fast device.
        fast: String,
        /// The identity of its cache.
        cache: u128,
        /// What the ledger says.
        source: Box<LedgerError>,
    },
    /// The fast device is too small.
    #[error(
        "cannot use {fast} ({size}) as a cache for {slow} ({slow_size}): at least {least} are needed"
    )]
    TooSmall {
        /// The fast device.
        fast: String,
        /// Its size, or the part of it that may be used.
        size: Bytes,
        /// The slow device.
        slow: String,
        /// Its size.
        slow_size: Bytes,
        /// The smallest size that would do.
        least: Bytes,
    },
    /// Not one block fits the cache.
    #[error(
        "block = {block} is too big for the cache on {fast}, which has room for {room} beside its spare slots; \
         choose a smaller block or a bigger cache"
    )]
    BlockTooBig {
        /// The fast device.
        fast: String,
        /// The block size asked for.
        block: Bytes,
        /// Room for data.
        room: Bytes,
    },
    /// The fast device holds something else.
    #[error(
        "cannot use {fast} as a cache: it holds data that are not a cache of ours; choose another device, or wipe \
         its first MiB if they are not needed"
    )]
    Foreign {
        /// The fast device.
        fast: String,
    },
    /// The fast device holds no cache.
    #[error("cannot open {fast} as a cache: {why}; create one on it instead")]
    NoCache {
        /// The fast device.
        fast: String,
        /// What was found.
        why: String,
    },
    /// The volume's cache, which may have the only copy of something, is not on the fast device.
    #[error(
        "{fast} {found}, but {name} has a cache that may hold what {slow} has not (cache {cache:032x}, attachment \
         {generation}): connect its device and start again; if it is lost, `tanada volume attach {name} --new-cache \
         --lose-dirty` gives up what only it had, or, while no daemon runs, `tanada volume give-up {name} --cache \
         {cache:032x}`, and an empty cache is made"
    )]
    NotHere {
        /// The volume.
        name: String,
        /// The fast device offered.
        fast: String,
        /// What it holds.
        found: String,
        /// The slow device.
        slow: String,
        /// The identity of the cache that is missed.
        cache: u128,
        /// The number of its last attachment.
        generation: u64,
    },
    /// The fast device was away while the volume went on without it.
    #[error("{}", older(name, fast, of, *cache, (*found, *known)))]
    Older {
        /// The volume.
        name: String,
        /// The fast device offered.
        fast: String,
        /// The volume that its label names, if that is another one and the record does not know the cache.
        of: Option<String>,
        /// The identity of the cache on it.
        cache: u128,
        /// The number of its attachment.
        found: u64,
        /// The last one that the record knows.
        known: u64,
    },
    /// Another cache than the record names.
    #[error(
        "{fast} is a cache of '{of}' ({cache:032x}), but the cache of {name} is {known:032x}: connect that one; {}",
        where_it_belongs(name, of, *cache, *known)
    )]
    Another {
        /// The volume.
        name: String,
        /// The fast device offered.
        fast: String,
        /// The volume that its label names.
        of: String,
        /// The identity of the cache on it.
        cache: u128,
        /// The one that the record names.
        known: u128,
    },
    /// The slow device begins with the label of a cache.
    #[error(
        "{slow} is to be the slow device of {name}, but it begins with the label of a cache (of '{of}'), and {fast} \
         has none: slow and fast look swapped; correct the configuration"
    )]
    Swapped {
        /// The volume.
        name: String,
        /// The slow device offered.
        slow: String,
        /// The fast device offered.
        fast: String,
        /// The volume that the label names.
        of: String,
    },
    /// The record of pairs cannot be read or written.
    #[error("cannot keep the record of the cache of {name}: {why}")]
    Record {
        /// The volume.
        name: String,
        /// What stands in the way.
        why: String,
    },
    /// The label or the map contradicts itself.
    #[error(
        "the cache on {fast} is damaged: {why}; repair or copy the device and start again; what only this cache \
         had can be given up with `tanada volume give-up`"
    )]
    Damaged {
        /// The fast device.
        fast: String,
        /// What does not agree.
        why: String,
    },
    /// The fast device became smaller than its cache.
    #[error(
        "{fast} has {size} bytes, but its cache reaches to byte {end}: let it have at least {end} bytes again (a file: \
         `truncate -s {end} FILE`) and start again; pages that were cut off are told from others by their checksums"
    )]
    Short {
        /// The fast device.
        fast: String,
        /// Its size in bytes.
        size: u64,
        /// The byte at which its cache ends.
        end: u64,
    },
    /// Neither copy of the fast device's label can be read.
    #[error(
        "cannot tell whose cache {fast} is: neither copy of its label can be read; copy the device to a sound one \
         (ddrescue does) and attach that"
    )]
    Unreadable {
        /// The fast device.
        fast: String,
    },
    /// Written by another version.
    #[error(
        "the cache on {fast} has format version {found}, this program knows {known}; use the program that \
         wrote it to detach it"
    )]
    Version {
        /// The fast device.
        fast: String,
        /// The version found.
        found: u32,
        /// The version known.
        known: u32,
    },
    /// The cache has another number of lanes.
    #[error(
        "the cache on {fast} has {found} lane(s), and {name} is to have {asked}: set lanes = {found}, or detach the cache \
         first"
    )]
    OtherLanes {
        /// The volume.
        name: String,
        /// The fast device.
        fast: String,
        /// How many its cache has.
        found: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// A hybrid of these devices cannot have so many lanes.
    #[error("{name} cannot have {asked} lanes: {why}")]
    Lanes {
        /// The volume.
        name: String,
        /// How many were asked for.
        asked: u32,
        /// What stands in the way, and what would do.
        why: String,
    },
    /// A lane of a cache that counts is blank.
    #[error(
        "cannot open {fast} as the cache of {name}: lane {lane} of {lanes} (the first is 0) is blank; making or attaching the \
         cache was cut off, and a start that may make caches goes on with it, or else something wiped that part: look for \
         the cause first, as what only this lane had is lost then"
    )]
    LaneBlank {
        /// The volume.
        name: String,
        /// The fast device.
        fast: String,
        /// Which one, from 0.
        lane: u32,
        /// How many there are.
        lanes: u32,
    },
    /// The cache belongs to a slow device of another size.
    #[error(
        "{fast} is the cache of a slow device of {}, but {slow} has {}: {}",
        apart(*expected, *size).0, apart(*expected, *size).1, other_size(*expected, *size)
    )]
    WrongSlow {
        /// The fast device.
        fast: String,
        /// The size it expects.
        expected: Bytes,
        /// The slow device offered.
        slow: String,
        /// Its size.
        size: Bytes,
    },
    /// The slow device's contents are not those the cache knew.
    #[error(
        "{fast} is not the cache of {slow}, or {slow} was changed without it: {differ} of {compared} \
         fingerprints differ (first at byte {at}); {cure}"
    )]
    Stale {
        /// The fast device.
        fast: String,
        /// The slow device.
        slow: String,
        /// Fingerprints that differ.
        differ: usize,
        /// Fingerprints compared.
        compared: usize,
        /// Where the first one lies on the slow device.
        at: u64,
        /// What to do about it.
        cure: String,
    },
    /// Another management operation is under way, or the disk is in no state for this one.
    #[error("cannot {what} {name}: {why}")]
    State {
        /// What was asked.
        what: &'static str,
        /// The volume.
        name: String,
        /// What stands in the way.
        why: String,
    },
}

/// What to do about a map of which some cannot be read.
fn map_lost(name: &str, fast: &str, cache: u128, source: &LedgerError) -> String {
    let what = match source {
        LedgerError::Damaged {
            sector,
            sequence,
            durable,
            why,
            ..
        } => format!(
            "batch {sequence} should be at byte {} ({why}), since batches up to {durable} were durable",
            sector.byte()
        ),
        other => other.to_string(),
    };
    format!(
        "a part of the map of {name} on {fast} is lost: {what}; copy {fast} to a sound device (ddrescue does) and start \
         again; if it is not on the copy either, `tanada volume rescue {name} --cache {cache:032x}` opens the volume with \
         what is left, and lists what may be lost or old"
    )
}

/// What to do about an old state of a cache. A live cache of another volume is not to be given up.
fn older(
    name: &str,
    fast: &str,
    of: &Option<String>,
    cache: u128,
    (found, known): (u64, u64),
) -> String {
    match of {
        Some(of) => format!(
            "{fast} is a cache of '{of}' ({cache:032x}), and {name} never had it: {}",
            whose_it_is(name, of, cache)
        ),
        None => format!(
            "{fast} has an old state of the cache of {name} (attachment {found} of {known}): the volume went on \
             without it, so what it holds may be out of date; connect the device of the last attachment, if there is \
             one, or give up what this one holds with `tanada volume give-up {name} --cache {cache:032x}`, and an \
             empty cache is made on it; if both devices were set back together, `tanada volume accept` with the same \
             words takes it"
        ),
    }
}

/// What to do about a cache that the record does not name.
fn where_it_belongs(name: &str, of: &str, cache: u128, known: u128) -> String {
    match of == label::kept_of(name) {
        true => format!(
            "if that is lost, `tanada volume give-up {name} --cache {known:032x}` forgets it"
        ),
        false => whose_it_is(name, of, cache),
    }
}

/// What to do about a cache of the volume `of` that was offered to the volume `name`.
fn whose_it_is(name: &str, of: &str, cache: u128) -> String {
    format!(
        "attach it to volume {of}, and the right device to {name}; if {of} is to go on without it, `tanada volume detach \
         {of}` lets it go, or, if what only it has may be lost, stop {of} and give it up with `tanada volume give-up {of} \
         --cache {cache:032x}`"
    )
}

/// What to do about a cache and a slow device that do not fit; `of`: another volume that the cache's label names, where the
/// record does not know the cache.
pub(crate) fn right_pair(
    name: &str,
    slow: &str,
    of: Option<&str>,
    cache: u128,
    dirty: Bytes,
) -> String {
    match of {
        Some(of) => format!(
            "this is a cache of volume {of}: {}",
            whose_it_is(name, of, cache)
        ),
        None => format!(
            "attach the right pair, or, if {slow} is to stay as it is, give up what only the cache had ({dirty}) with \
             `tanada volume give-up {name} --cache {cache:032x}`"
        ),
    }
}

/// Two sizes as texts that differ if the sizes do.
fn apart(one: Bytes, other: Bytes) -> (String, String) {
    let exact = |size: Bytes| format!("{size} ({} bytes)", size.0);
    match one.to_string() == other.to_string() {
        true => (exact(one), exact(other)),
        false => (one.to_string(), other.to_string()),
    }
}

/// What to do about a slow device of another size than its cache knew.
fn other_size(expected: Bytes, size: Bytes) -> String {
    match size > expected {
        true => format!(
            "if it has grown, give it its {} bytes back, start, detach the cache, and let it grow then",
            expected.0
        ),
        false => format!(
            "attach the right one, or give it its {} bytes back",
            expected.0
        ),
    }
}

//! Which of the driver's disks is an export's, and what is to be done with it?
//!
//! ```text
//! the disks there are + the export's number + does its device show all that was answered? -> Plan
//! ```
//!
//! Always true:
//! 1. A disk that another server made is left alone.
//! 2. A disk is recovered only over the device that it was made for, and only if that shows every answered write.

use super::proto::{DiskInfo, State, feature};

/// What to do at the start of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Make a disk.
    Make,
    /// Remove the one that is left, whose requests cannot go on, and make one.
    Replace(DiskInfo),
    /// Go on with the one that waits.
    Recover(DiskInfo),
    /// One is in use: its server, this process among them, lives.
    Busy(DiskInfo),
}

/// What a disk belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The daemon, by its data directory.
    pub daemon: &'a str,
    /// The export's name.
    pub export: &'a str,
    /// The device behind it, so that a disk never goes on over another one.
    pub device: &'a str,
    /// Its size in bytes.
    pub size: u64,
}

/// The number by which the driver keeps an export: FNV-1a, never 0.
pub fn server_number(of: Identity<'_>) -> u64 {
    let size = of.size.to_string();
    let parts = [of.daemon, of.export, of.device, &size];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

/// What to do for the export `server` with the `disks` there are. `found_all`: does its device show every answered write of
/// the last server? `alive`: does this process live?
pub fn plan(disks: &[DiskInfo], server: u64, found_all: bool, alive: impl Fn(i32) -> bool) -> Plan {
    let ours = disks.iter().find(|disk| disk.server == server);
    let Some(disk) = ours.copied() else {
        return Plan::Make;
    };
    let recovers = disk.flags & feature::USER_RECOVERY != 0 && found_all;
    match disk.state {
        State::Quiesced if recovers => Plan::Recover(disk),
        State::Quiesced | State::Dead => Plan::Replace(disk),
        // The driver has not noticed yet that its server is gone.
        State::Live if !alive(disk.process) && recovers => Plan::Recover(disk),
        State::Live if !alive(disk.process) => Plan::Replace(disk),
        State::Live => Plan::Busy(disk),
        State::Other(_) => Plan::Replace(disk),
    }
}

/// The disks that wait for a server, of whatever daemon: their requests go on when it is there, and not before.
/// `alive`: does this process live?
pub fn waiting(disks: &[DiskInfo], alive: impl Fn(i32) -> bool) -> Vec<DiskInfo> {
    let waits = |disk: &DiskInfo| match disk.state {
        State::Quiesced => true,
        State::Live => !alive(disk.process),
        State::Dead | State::Other(_) => false,
    };
    disks.iter().copied().filter(waits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u64 = 7;

    fn disk(server: u64, state: State, flags: u64) -> DiskInfo {
        DiskInfo {
            state,
            ..DiskInfo::new(3, flags, server, 42)
        }
    }

    #[test]
    fn only_a_disk_of_this_export_that_waits_is_recovered() {
        let keeps = feature::USER_RECOVERY;
        let waits = disk(OURS, State::Quiesced, keeps);
        let live = disk(OURS, State::Live, keeps);
        let cases = [
            (vec![], true, false, Plan::Make),
            (
                vec![disk(8, State::Quiesced, keeps)],
                true,
                false,
                Plan::Make,
            ),
            (
                vec![disk(8, State::Live, keeps), waits],
                true,
                false,
                Plan::Recover(waits),
            ),
            (vec![waits], false, false, Plan::Replace(waits)),
            (vec![live], true, true, Plan::Busy(live)),
            (vec![live], true, false, Plan::Recover(live)),
            (vec![live], false, false, Plan::Replace(live)),
        ];
        for (disks, found_all, alive, expected) in cases {
            assert_eq!(plan(&disks, OURS, found_all, |_| alive), expected);
        }
        let plain = disk(OURS, State::Quiesced, 0);
        assert_eq!(plan(&[plain], OURS, true, |_| false), Plan::Replace(plain));
    }

    #[test]
    fn exports_and_daemons_have_numbers_of_their_own() {
        let of = Identity {
            daemon: "/var/lib/tanada",
            export: "vol0",
            device: "/dev/sda",
            size: 1 << 30,
        };
        let numbers = [
            of,
            Identity {
                export: "vol1",
                ..of
            },
            Identity {
                daemon: "/srv",
                ..of
            },
            Identity {
                daemon: "/var/lib/tanad",
                export: "avol0",
                ..of
            },
            Identity {
                device: "/dev/sdb",
                ..of
            },
            Identity {
                size: 1 << 31,
                ..of
            },
        ]
        .map(server_number);
        for (at, number) in numbers.iter().enumerate() {
            assert!(!numbers[..at].contains(number));
        }
    }

    #[test]
    fn disks_without_a_server_that_lives_wait_whosever_they_are() {
        let states = [State::Live, State::Quiesced, State::Dead, State::Other(9)];
        let disks: Vec<DiskInfo> = (0..)
            .zip(states)
            .map(|(number, state)| disk(number, state, 0))
            .collect();
        let numbers = |alive: bool| {
            let waiting = waiting(&disks, |_| alive);
            waiting.iter().map(|disk| disk.server).collect::<Vec<_>>()
        };
        assert_eq!(numbers(true), [1]);
        assert_eq!(numbers(false), [0, 1]);
    }
}

//! Which of the driver's disks is an export's, and what is to be done with it?
//!
//! ```text
//! the disks there are + the export's number + does its device show all that was answered? -> Plan
//! ```
//!
//! Always true:
//! 1. A disk that another server made is left alone.
//! 2. A disk is recovered only over the device that it was made for, which may have grown, and only if that shows every
//!    answered write.

use base::Bytes;

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
}

/// The number by which the driver keeps an export: FNV-1a, never 0.
pub fn server_number(of: Identity<'_>) -> u64 {
    let parts = [of.daemon, of.export, of.device];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

/// An export that is to be shown.
#[derive(Debug, Clone, Copy)]
pub struct Export {
    /// Its number.
    pub server: u64,
    /// The bytes of its device.
    pub size: Bytes,
    /// Does that show every answered write of the last server?
    pub found_all: bool,
}

/// What to do for an export with the `disks` there are. `alive`: does this process live?
pub fn plan(disks: &[DiskInfo], export: Export, alive: impl Fn(i32) -> bool) -> Plan {
    let Export {
        server,
        size,
        found_all,
    } = export;
    let ours = disks.iter().find(|disk| disk.server == server);
    let Some(disk) = ours.copied() else {
        return Plan::Make;
    };
    let fits = disk.size.is_some_and(|shown| shown <= size);
    let recovers = disk.flags & feature::USER_RECOVERY != 0 && found_all && fits;
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

/// The disks of the servers `former`, none of which is to go on. `alive`: does this process live?
pub fn past(disks: &[DiskInfo], former: &[u64], alive: impl Fn(i32) -> bool) -> Vec<DiskInfo> {
    let ends = |disk: &&DiskInfo| {
        let serves = disk.state == State::Live && alive(disk.process);
        former.contains(&disk.server) && !serves
    };
    disks.iter().filter(ends).copied().collect()
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
            size: Some(SIZE),
            ..DiskInfo::new(3, flags, server, 42)
        }
    }

    const SIZE: Bytes = Bytes::mib(8);

    fn export(found_all: bool) -> Export {
        Export {
            server: OURS,
            size: SIZE,
            found_all,
        }
    }

    #[test]
    fn a_disk_of_a_former_server_ends_unless_that_one_lives() {
        let keeps = feature::USER_RECOVERY;
        let disks = [
            disk(OURS, State::Quiesced, keeps),
            disk(8, State::Quiesced, keeps),
            disk(9, State::Live, keeps),
        ];
        assert_eq!(past(&disks, &[], |_| false), []);
        assert_eq!(past(&disks, &[8, 9], |_| true), [disks[1]]);
        assert_eq!(past(&disks, &[8, 9], |_| false), disks[1..]);
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
            assert_eq!(plan(&disks, export(found_all), |_| alive), expected);
        }
        let plain = disk(OURS, State::Quiesced, 0);
        let replaced = plan(&[plain], export(true), |_| false);
        assert_eq!(replaced, Plan::Replace(plain));
    }

    /// What the system takes it to be has to be there; a device that has grown has that, and more.
    #[test]
    fn a_disk_is_not_recovered_over_a_device_that_is_smaller() {
        for (shown, recovers) in [
            (Some(SIZE), true),
            (Some(Bytes::mib(4)), true),
            (Some(Bytes(SIZE.0 + 512)), false),
            (None, false),
        ] {
            let waits = DiskInfo {
                size: shown,
                ..disk(OURS, State::Quiesced, feature::USER_RECOVERY)
            };
            let expected = match recovers {
                true => Plan::Recover(waits),
                false => Plan::Replace(waits),
            };
            assert_eq!(plan(&[waits], export(true), |_| false), expected);
        }
    }

    #[test]
    fn exports_and_daemons_have_numbers_of_their_own() {
        let of = Identity {
            daemon: "/var/lib/tanada",
            export: "vol0",
            device: "/dev/sda",
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

//! Which of the driver's disks is an export's, and what is to be done with it?
//!
//! ```text
//! the disks there are + the export's number + is its device crash-keeping? -> Plan
//! ```
//!
//! Always true:
//! 1. A disk that another server made is left alone.
//! 2. A disk is recovered only over a device that shows every answered write.

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

/// The number by which the driver keeps an export of the daemon whose state is in `data_dir`: FNV-1a, never 0.
pub fn server_number(data_dir: &str, export: &str) -> u64 {
    let bytes = data_dir.bytes().chain([0]).chain(export.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

/// What to do for the export `server`, whose device is `crash_keeping` or not, with the `disks` there are. `alive`: does
/// this process live?
pub fn plan(
    disks: &[DiskInfo],
    server: u64,
    crash_keeping: bool,
    alive: impl Fn(i32) -> bool,
) -> Plan {
    let ours = disks.iter().find(|disk| disk.server == server);
    let Some(disk) = ours.copied() else {
        return Plan::Make;
    };
    let recovers = disk.flags & feature::USER_RECOVERY != 0 && crash_keeping;
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
        for (disks, crash_keeping, alive, expected) in cases {
            assert_eq!(plan(&disks, OURS, crash_keeping, |_| alive), expected);
        }
        let plain = disk(OURS, State::Quiesced, 0);
        assert_eq!(plan(&[plain], OURS, true, |_| false), Plan::Replace(plain));
    }

    #[test]
    fn exports_and_daemons_have_numbers_of_their_own() {
        let numbers = [
            server_number("/var/lib/tanada", "vol0"),
            server_number("/var/lib/tanada", "vol1"),
            server_number("/var/lib/tanad", "avol0"),
            server_number("/srv", "vol0"),
        ];
        for (at, number) in numbers.iter().enumerate() {
            assert!(!numbers[..at].contains(number));
        }
    }
}

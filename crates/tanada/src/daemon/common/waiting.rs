//! Disks of the kernel (ublk) that wait for a daemon, whosever they are.

use std::path::Path;

use front::ublk::proto::DiskInfo;
use front::ublk::recover::waiting;
use front::ublk::{Control, control};

use crate::api::status::WaitingDisk;

/// What to do where one waits. Disks of other programs that use the driver are among them.
pub const WAITING_DISK_TODO: &str = "whatever reads or writes it waits too: if it is a disk of Tanada's, start the daemon again, \
                                     with the same export and data directory; to be rid of the disk, unmount it then and \
                                     stop the daemon";

/// Does this process live?
pub fn lives(process: i32) -> bool {
    process > 0 && Path::new(&format!("/proc/{process}")).exists()
}

/// Asks the driver, which may take its time. None where this process may not ask.
pub fn waiting_disks() -> Vec<WaitingDisk> {
    let disks = Control::open().and_then(|mut driver| driver.disks());
    let waiting = waiting(&disks.unwrap_or_default(), lives);
    waiting.iter().map(shown).collect()
}

fn shown(disk: &DiskInfo) -> WaitingDisk {
    WaitingDisk {
        path: control::path_of(disk.disk).display().to_string(),
        // The driver of some kernels forgets who it was.
        process: u32::try_from(disk.process).ok().filter(|&it| it > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_waits_is_said_with_its_last_process_where_that_is_known() {
        let said = |process| shown(&DiskInfo::new(3, 0, 7, process)).said();
        assert_eq!(said(41), "/dev/ublkb3 waits for a daemon, process 41 ended");
        assert_eq!(said(-1), "/dev/ublkb3 waits for a daemon");
    }

    #[test]
    fn a_process_lives_as_long_as_the_system_knows_it() {
        assert!(lives(std::process::id() as i32));
        assert!(!lives(-1) && !lives(0) && !lives(i32::MAX));
    }
}

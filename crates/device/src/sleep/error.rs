//! Why can a device not be sent to sleep, and what is to be done about it?

use std::io;

/// What stands in the way of sending a device to sleep.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Obstacle {
    /// It is no disk.
    #[error(
        "{path} is a regular file, and a disk sleeps as a whole; name a SATA or SAS disk, or a partition of one"
    )]
    File { path: String },
    /// The disk cannot be opened beside the partition.
    #[error(
        "the whole disk {disk} takes the commands for that, and it cannot be opened: {source}; let this process read \
         and write it"
    )]
    Closed { disk: String, source: io::Error },
    /// Another disk has its name by now.
    #[error(
        "{disk} is not the disk any more that {path} was when it was opened, which was taken out or renamed; attach the \
         device again, by a path in /dev/disk/by-id"
    )]
    Another { disk: String, path: String },
    /// No SCSI layer is before it.
    #[error(
        "{disk} takes no SCSI commands, as SATA and SAS disks of this machine do (SG_IO: {source}); what is virtual, \
         mapped, a RAID or NVMe has no spindle of its own to stop"
    )]
    NotScsi { disk: String, source: io::Error },
    /// The kernel does not let this process.
    #[error(
        "this process may not send {disk} the commands for that ({source}); give it the capability CAP_SYS_RAWIO"
    )]
    NotAllowed { disk: String, source: io::Error },
    /// Something else that speaks SCSI.
    #[error("{disk} is no disk but a SCSI device of type {kind:#x}; name a disk")]
    NoDisk { disk: String, kind: u8 },
    /// It has no such command.
    #[error(
        "{disk} refuses {command}: {why}; a bridge (USB, RAID) may hide the disk's: attach it to a SATA or SAS port"
    )]
    Refuses {
        disk: String,
        command: &'static str,
        why: String,
    },
    /// It gave no answer, or none that makes sense.
    #[error("{disk} gives no sensible answer to {command}: {why}; look in the kernel's log")]
    Senseless {
        disk: String,
        command: &'static str,
        why: String,
    },
    /// Once it is stopped the kernel would not start it.
    #[error(
        "once stopped, {disk} answers nothing until it is started, and the kernel starts it only where {switch} is 1, \
         which cannot be written: {source}; write 1 there as root, by a udev rule for good"
    )]
    NoRestart {
        disk: String,
        switch: String,
        source: io::Error,
    },
}

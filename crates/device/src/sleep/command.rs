//! The bytes of the commands that a disk's rest takes; pure.
//!
//! After SPC-5 (INQUIRY, REQUEST SENSE, TEST UNIT READY), SBC-4 (START STOP UNIT), SAT-4 (ATA PASS-THROUGH), ACS-3.

use base::Nanos;

/// A question is answered without the medium.
const ASKING: Nanos = Nanos::secs(20);
/// A spindle needs up to half a minute to come to speed; a shelf starts its disks one after the other.
const TURNING: Nanos = Nanos::secs(120);

/// No data go either way.
const NON_DATA: u8 = 3 << 1;
/// The drive's registers are wanted back, also of a command that did well.
const CHECK_CONDITION: u8 = 1 << 5;

/// A command, what it answers at most, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub bytes: Vec<u8>,
    pub reply: usize,
    pub limit: Nanos,
}

/// How an ATA command is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    /// ATA PASS-THROUGH (16).
    Sixteen,
    /// ATA PASS-THROUGH (12), which some bridges have alone.
    Twelve,
}

/// An ATA command without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ata {
    /// Answers the power mode, and does not change it.
    CheckPowerMode = 0xE5,
    /// Writes the drive's cache out and stops the spindle.
    StandbyImmediate = 0xE0,
}

fn command(bytes: &[u8], reply: usize, limit: Nanos) -> Command {
    Command {
        bytes: bytes.to_vec(),
        reply,
        limit,
    }
}

/// What are you?
pub(super) fn inquiry() -> Command {
    command(&[0x12, 0, 0, 0, 96, 0], 96, ASKING)
}

/// A page of vital product data, `reply` bytes of it.
pub(super) fn vital_page(page: u8, reply: u16) -> Command {
    let [high, low] = reply.to_be_bytes();
    command(&[0x12, 1, page, high, low, 0], reply.into(), ASKING)
}

/// Could you read now?
pub(super) fn test_unit_ready() -> Command {
    command(&[0; 6], 0, ASKING)
}

/// What is there to say of your state?
pub(super) fn request_sense() -> Command {
    command(&[0x03, 0, 0, 0, 252, 0], 252, ASKING)
}

/// Starts the spindle, and ends when it turns.
pub(super) fn start() -> Command {
    command(&[0x1B, 0, 0, 0, 1, 0], 0, TURNING)
}

/// Stops the spindle until it is started again.
pub(super) fn stop() -> Command {
    command(&[0x1B, 0, 0, 0, 0, 0], 0, TURNING)
}

/// Stops the spindle until the next request (power condition `STANDBY`).
pub(super) fn standby() -> Command {
    command(&[0x1B, 0, 0, 0, 3 << 4, 0], 0, TURNING)
}

/// `ata`, wrapped.
pub(super) fn ata(wrapping: Wrapping, ata: Ata) -> Command {
    let (flags, limit) = match ata {
        Ata::CheckPowerMode => (CHECK_CONDITION, ASKING),
        Ata::StandbyImmediate => (0, TURNING),
    };
    let mut bytes = match wrapping {
        Wrapping::Sixteen => vec![0; 16],
        Wrapping::Twelve => vec![0; 12],
    };
    let (code, at) = match wrapping {
        Wrapping::Sixteen => (0x85, 14),
        Wrapping::Twelve => (0xA1, 9),
    };
    (bytes[0], bytes[1], bytes[2]) = (code, NON_DATA, flags);
    bytes[at] = ata as u8;
    command(&bytes, 0, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_laid_out_as_the_standards_have_them() {
        let sixteen = ata(Wrapping::Sixteen, Ata::CheckPowerMode);
        assert_eq!(
            sixteen.bytes,
            [0x85, 6, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xE5, 0]
        );
        let twelve = ata(Wrapping::Twelve, Ata::StandbyImmediate);
        assert_eq!(twelve.bytes, [0xA1, 6, 0, 0, 0, 0, 0, 0, 0, 0xE0, 0, 0]);
        let page = vital_page(0x89, 572);
        assert_eq!(page.bytes, [0x12, 1, 0x89, 2, 0x3C, 0]);
        assert_eq!(page.reply, 572);
        // Each is as long as its first byte says.
        let all = [
            inquiry(),
            page,
            test_unit_ready(),
            request_sense(),
            start(),
            stop(),
            standby(),
            sixteen,
            twelve,
        ];
        for command in all {
            let len = match command.bytes[0] >> 5 {
                0 => 6,
                4 => 16,
                5 => 12,
                group => panic!("group {group}"),
            };
            assert_eq!(command.bytes.len(), len, "{command:?}");
        }
    }
}

//! A command for a SCSI disk as the kernel wants it (`SG_IO`), and room for the answer.
//!
//! Always true: the kernel's lengths are believed as far as there is room.

use base::Nanos;

/// Room for sense data: more than disks send.
const SENSE_MAX: usize = 64;
/// The longest command that disks take.
const COMMAND_MAX: usize = 16;
/// Nothing, or data of the disk, go along with the command.
const NO_DATA: i32 = -1;
const FROM_DISK: i32 = -3;

/// `sg_io_hdr` of `scsi/sg.h`, in parts.
#[repr(C)]
struct Header {
    asked: Asked,
    places: Places,
    terms: Terms,
    outcome: Outcome,
}

#[repr(C)]
struct Asked {
    interface: i32,
    direction: i32,
    command_len: u8,
    sense_max: u8,
    pieces: u16,
    data_len: u32,
}

/// Where in memory everything is.
#[repr(C)]
struct Places {
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
}

#[repr(C)]
struct Terms {
    limit_ms: u32,
    flags: u32,
    pack: i32,
    user: *mut u8,
}

/// The kernel's part.
#[repr(C)]
#[derive(Default)]
struct Outcome {
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host: u16,
    driver: u16,
    left: i32,
    took_ms: u32,
    info: u32,
}

/// What came back for a command; see `scsi::ScsiAnswer`.
pub(crate) struct Answered {
    pub status: u8,
    pub host: u16,
    pub driver: u16,
    pub sense: Vec<u8>,
    pub data: Vec<u8>,
}

/// A command, and room for its answer.
pub(crate) struct Exchange {
    header: Header,
    command: [u8; COMMAND_MAX],
    sense: [u8; SENSE_MAX],
    data: Vec<u8>,
}

impl Exchange {
    /// Of a command that is answered with `reply` bytes at most.
    ///
    /// # Panics
    /// If it is longer than 16 bytes.
    pub(crate) fn new(command: &[u8], reply: usize, limit: Nanos) -> Exchange {
        assert!(command.len() <= COMMAND_MAX, "{} bytes", command.len());
        let mut bytes = [0; COMMAND_MAX];
        bytes[..command.len()].copy_from_slice(command);
        let asked = Asked {
            interface: i32::from(b'S'),
            direction: if reply > 0 { FROM_DISK } else { NO_DATA },
            command_len: command.len() as u8,
            sense_max: SENSE_MAX as u8,
            pieces: 0,
            data_len: reply as u32,
        };
        let places = Places {
            data: std::ptr::null_mut(),
            command: std::ptr::null(),
            sense: std::ptr::null_mut(),
        };
        let terms = Terms {
            limit_ms: u32::try_from(limit.0 / 1_000_000).unwrap_or(u32::MAX),
            flags: 0,
            pack: 0,
            user: std::ptr::null_mut(),
        };
        Exchange {
            header: Header {
                asked,
                places,
                terms,
                outcome: Outcome::default(),
            },
            command: bytes,
            sense: [0; SENSE_MAX],
            data: vec![0; reply],
        }
    }

    /// What the kernel is handed. Good as long as this stays where it is.
    pub(super) fn header(&mut self) -> *mut libc::c_void {
        self.header.places = Places {
            data: self.data.as_mut_ptr(),
            command: self.command.as_ptr(),
            sense: self.sense.as_mut_ptr(),
        };
        (&raw mut self.header).cast()
    }

    /// What came back, cut to what there is of it.
    pub(crate) fn answer(mut self) -> Answered {
        let outcome = &self.header.outcome;
        let missing = usize::try_from(outcome.left).unwrap_or(0);
        self.data.truncate(self.data.len().saturating_sub(missing));
        let sense = usize::from(outcome.sense_len).min(SENSE_MAX);
        Answered {
            status: outcome.status,
            host: outcome.host,
            driver: outcome.driver,
            sense: self.sense[..sense].to_vec(),
            data: self.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_laid_out_as_the_kernel_has_it() {
        // Offsets of `sg_io_hdr` on 64-bit Linux.
        assert_eq!(size_of::<Header>(), 88);
        assert_eq!(std::mem::offset_of!(Header, places), 16);
        assert_eq!(std::mem::offset_of!(Header, outcome), 64);
        assert_eq!(std::mem::offset_of!(Header, terms), 40);
        assert_eq!(std::mem::offset_of!(Terms, user), 16);
        assert_eq!(std::mem::offset_of!(Outcome, info), 16);
    }

    #[test]
    fn an_answer_is_cut_to_what_came_whatever_the_kernel_says() {
        let mut exchange = Exchange::new(&[0x12, 0, 0, 0, 96, 0], 96, Nanos::secs(1));
        exchange.header.outcome.left = 60;
        exchange.header.outcome.sense_len = 200;
        let answer = exchange.answer();
        assert_eq!((answer.data.len(), answer.sense.len()), (36, SENSE_MAX));
        let mut exchange = Exchange::new(&[0; 6], 4, Nanos::secs(1));
        exchange.header.outcome.left = 500;
        assert_eq!(exchange.answer().data.len(), 0);
    }
}

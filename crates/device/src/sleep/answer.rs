//! What a disk's answers mean; pure, and hardened against disks that answer short, or nonsense.
//!
//! After SPC-5 4.4 (sense data), SAT-4 12.2 (ATA return), ACS-3 7.2 (power modes).

use env::scsi::ScsiAnswer;

/// Sense codes: the medium is not ready, and why.
const NOT_READY: u8 = 0x04;
const BECOMING_READY: u8 = 0x01;
const WANTS_START: u8 = 0x02;
/// A SAS disk that waits until its shelf has power to spare.
const WANTS_NOTIFY: u8 = 0x11;
/// A power condition is on.
const LOW_POWER: u8 = 0x5E;
/// ATA registers are in the sense data.
const ATA_REGISTERS: (u8, u8) = (0x00, 0x1D);
/// The descriptor that has them.
const ATA_RETURN: u8 = 0x09;

/// The pages of vital product data that are looked for.
pub(super) const PAGES: u8 = 0x00;
pub(super) const ATA_INFORMATION: u8 = 0x89;
pub(super) const POWER_CONDITIONS: u8 = 0x8A;
/// How long the page of ATA information is: 60 bytes, then what IDENTIFY DEVICE answers.
pub(super) const ATA_INFORMATION_LEN: u16 = 60 + 512;

/// How a disk's spindle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It turns, or begins to.
    Awake,
    /// It stands still, and turns at the next request.
    Standby,
    /// It stands still until it is started.
    Stopped,
}

/// Sense data, as far as they matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    pub key: u8,
    pub code: u8,
    pub qualifier: u8,
    /// Of an earlier command.
    is_deferred: bool,
    /// The COUNT register of an ATA command.
    pub ata_count: Option<u8>,
}

/// What an answer says of its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// It was done.
    Done(Option<Sense>),
    /// It is to be sent again: something else was to be said first, or there was no time for it.
    Again,
    /// The disk has no such command.
    Refused(Sense),
    /// The medium is not ready.
    NotReady(Sense),
    /// It failed, in words.
    Failed(String),
}

/// Decodes sense data of either format; `None` if they are none.
pub(super) fn sense(bytes: &[u8]) -> Option<Sense> {
    let response = bytes.first()? & 0x7F;
    let at = |index: usize| bytes.get(index).copied();
    match response {
        0x70 | 0x71 => {
            let (key, code, qualifier) = (at(2)? & 0x0F, at(12).unwrap_or(0), at(13).unwrap_or(0));
            let ata_count = at(6).filter(|_| (code, qualifier) == ATA_REGISTERS);
            Some(Sense {
                key,
                code,
                qualifier,
                is_deferred: response == 0x71,
                ata_count,
            })
        }
        0x72 | 0x73 => Some(Sense {
            key: at(1)? & 0x0F,
            code: at(2)?,
            qualifier: at(3)?,
            is_deferred: response == 0x73,
            ata_count: descriptors(bytes).find_map(ata_return),
        }),
        _ => None,
    }
}

/// The descriptors of sense data, as far as they are whole: kind and contents.
fn descriptors(sense: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let said = sense.get(7).map_or(0, |len| usize::from(*len));
    let mut rest = sense.get(8..).unwrap_or_default();
    rest = &rest[..rest.len().min(said)];
    std::iter::from_fn(move || {
        let [kind, len, ..] = *rest else { return None };
        let (whole, after) = rest[2..].split_at_checked(usize::from(len))?;
        rest = after;
        Some((kind, whole))
    })
}

/// The COUNT register in an ATA return descriptor.
fn ata_return((kind, contents): (u8, &[u8])) -> Option<u8> {
    (kind == ATA_RETURN && contents.len() >= 12).then(|| contents[3])
}

/// What an answer says.
pub(super) fn said(answer: &ScsiAnswer) -> Said {
    const KERNEL_HAS_SENSE: u16 = 8;
    if answer.host != 0 {
        return Said::Failed(format!(
            "the host adapter gave it up (status {})",
            answer.host
        ));
    }
    if answer.driver & 0x0F != 0 && answer.driver & 0x0F != KERNEL_HAS_SENSE {
        return Said::Failed(format!(
            "the kernel gave it up (status {:#x})",
            answer.driver
        ));
    }
    match answer.status {
        0x00 => Said::Done(None),
        0x02 => match sense(&answer.sense) {
            Some(sense) => meaning(sense),
            None => Said::Failed("the disk does not say what went wrong".to_owned()),
        },
        // Busy, and its queue is full.
        0x08 | 0x28 => Said::Again,
        0x18 => Said::Failed("another host has reserved the disk".to_owned()),
        status => Said::Failed(format!("the disk answers with status {status:#x}")),
    }
}

fn meaning(sense: Sense) -> Said {
    match sense.key {
        _ if sense.is_deferred => Said::Again,
        // Nothing to say, and recovered.
        0x0 | 0x1 => Said::Done(Some(sense)),
        0x2 => Said::NotReady(sense),
        0x5 => Said::Refused(sense),
        // Attention: the disk was reset, or the like.
        0x6 => Said::Again,
        _ => Said::Failed(sense.words()),
    }
}

impl Sense {
    /// For people who look it up.
    pub fn words(&self) -> String {
        let Sense {
            key,
            code,
            qualifier,
            ..
        } = self;
        format!("the disk's sense key is {key:#x}, code {code:02x}/{qualifier:02x}")
    }

    /// The state of a medium that is not ready, where that is one of rest.
    pub fn not_ready(&self) -> Option<Mode> {
        match (self.code, self.qualifier) {
            (NOT_READY, WANTS_START | WANTS_NOTIFY) => Some(Mode::Stopped),
            (NOT_READY, BECOMING_READY) => Some(Mode::Awake),
            _ => None,
        }
    }
}

/// What REQUEST SENSE says of the spindle; `None`: nothing.
pub(super) fn mode_in_sense(data: &[u8]) -> Option<Mode> {
    let sense = sense(data)?;
    match (sense.key, sense.code, sense.qualifier) {
        // Standby, and standby Y, by a timer or a command.
        (0x0, LOW_POWER, 0x02 | 0x04 | 0x09 | 0x0A) => Some(Mode::Standby),
        (0x2, ..) => sense.not_ready(),
        _ => None,
    }
}

/// What the COUNT register of CHECK POWER MODE says; `None`: no mode that has a name.
pub(super) fn ata_mode(count: u8) -> Option<Mode> {
    match count {
        // Standby, standby Y; spun down beside a cache of flash.
        0x00 | 0x01 | 0x40 => Some(Mode::Standby),
        // Idle A to C, active, spun up beside a cache of flash.
        0x41 | 0x80..=0x83 | 0xFF => Some(Mode::Awake),
        _ => None,
    }
}

/// What a disk says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// A disk, connected.
    pub is_disk: bool,
    /// Its kind by number, for people.
    pub kind: u8,
    /// The kernel's word for a drive behind its ATA layer.
    pub is_ata: bool,
}

/// Decodes INQUIRY; `None` if it is too short.
pub(super) fn identity(data: &[u8]) -> Option<Identity> {
    let (first, vendor) = (data.first()?, data.get(8..16)?);
    let kind = first & 0x1F;
    Some(Identity {
        // Disks, and those written in zones, at a place where one is connected.
        is_disk: matches!(kind, 0x00 | 0x14) && first >> 5 == 0,
        kind,
        is_ata: vendor == b"ATA     ",
    })
}

/// The pages of vital product data that there are.
pub(super) fn pages(data: &[u8]) -> &[u8] {
    match data {
        [_, PAGES, high, low, pages @ ..] => {
            let said = usize::from(u16::from_be_bytes([*high, *low]));
            &pages[..pages.len().min(said)]
        }
        _ => &[],
    }
}

/// Does IDENTIFY DEVICE, in the page of ATA information, say that the drive has power modes? `None`: it says nothing.
pub(super) fn has_power_modes(page: &[u8]) -> Option<bool> {
    let word = |number: usize| {
        let at = 60 + 2 * number;
        let bytes = page.get(at..at + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    if page.get(1) != Some(&ATA_INFORMATION) {
        return None;
    }
    // Word 82 counts where the top bits of 83 are 01.
    (word(83)? >> 14 == 1).then_some(word(82)? & 1 << 3 != 0)
}

/// Does the page of power conditions name standby?
pub(super) fn has_standby(page: &[u8]) -> bool {
    matches!(page, [_, POWER_CONDITIONS, _, _, standby, ..] if standby & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(sense: &[u8]) -> Said {
        said(&ScsiAnswer {
            status: 2,
            driver: 8,
            sense: sense.to_vec(),
            ..ScsiAnswer::default()
        })
    }

    /// Sense data with a descriptor of ATA registers whose COUNT is `count`.
    fn registers(count: u8) -> Vec<u8> {
        let mut sense = vec![0x72, 1, 0x00, 0x1D, 0, 0, 0, 14, 9, 12];
        sense.extend([0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, 0x50]);
        sense
    }

    #[test]
    fn the_power_mode_is_found_in_both_formats() {
        for (count, mode) in [
            (0x00, Some(Mode::Standby)),
            (0x80, Some(Mode::Awake)),
            (0xFF, Some(Mode::Awake)),
            (0x77, None),
        ] {
            let Said::Done(Some(sense)) = checked(&registers(count)) else {
                panic!("{count:#x}");
            };
            assert_eq!(sense.ata_count, Some(count));
            assert_eq!(ata_mode(count), mode);
            // Error, status, device and count, where other fixed sense data have a place on the disk.
            let fixed = [0x70, 0, 1, 0, 0x50, 0, count, 10, 0, 0, 0, 0, 0x00, 0x1D];
            assert_eq!(super::sense(&fixed).unwrap().ata_count, Some(count));
        }
        // The same byte is no register where none were asked for.
        let fixed = [0x70, 0, 3, 0, 0x50, 0, 0xFF, 10, 0, 0, 0, 0, 0x11, 0x00];
        assert_eq!(super::sense(&fixed).unwrap().ata_count, None);
    }

    #[test]
    fn other_descriptors_are_passed_over_and_cut_ones_say_nothing() {
        let whole = registers(0x80);
        let mut behind = vec![0x72, 1, 0x00, 0x1D, 0, 0, 0, 20, 0x80, 4, 1, 2, 3, 4];
        behind.extend(&whole[8..]);
        assert_eq!(sense(&behind).unwrap().ata_count, Some(0x80));
        for len in 4..whole.len() {
            assert_eq!(sense(&whole[..len]).unwrap().ata_count, None, "{len}");
        }
        // A length that lies.
        let mut lies = whole;
        lies[7] = 3;
        assert_eq!(sense(&lies).unwrap().ata_count, None);
        lies[7] = 255;
        lies[9] = 255;
        assert_eq!(sense(&lies).unwrap().ata_count, None);
    }

    #[test]
    fn whatever_a_disk_sends_is_an_answer_and_no_panic() {
        env::Runtime::simulated(7).block_on(async {
            let mut rng = env::rng("answers");
            for _ in 0..20_000 {
                let len = rng.below(600) as usize;
                let mut data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
                // Half of them begin as sense data do.
                if let Some(first) = data.first_mut().filter(|_| len.is_multiple_of(2)) {
                    *first = 0x70 + (*first & 3);
                }
                checked(&data);
                mode_in_sense(&data);
                identity(&data);
                pages(&data);
                has_power_modes(&data);
                has_standby(&data);
            }
        });
    }

    #[test]
    fn a_disk_at_rest_is_not_taken_for_one_in_trouble() {
        let fixed = |key, code, qualifier| {
            let mut sense = [0; 18];
            (sense[0], sense[2], sense[7]) = (0x70, key, 10);
            (sense[12], sense[13]) = (code, qualifier);
            sense
        };
        for (sense, mode) in [
            (fixed(0, 0x5E, 0x04), Some(Mode::Standby)),
            (fixed(0, 0x5E, 0x02), Some(Mode::Standby)),
            // Idle turns.
            (fixed(0, 0x5E, 0x03), None),
            (fixed(0, 0, 0), None),
            (fixed(2, 0x04, 0x02), Some(Mode::Stopped)),
            (fixed(2, 0x04, 0x11), Some(Mode::Stopped)),
            (fixed(2, 0x04, 0x01), Some(Mode::Awake)),
            // No medium, and a format under way, are no rest.
            (fixed(2, 0x3A, 0x00), None),
            (fixed(2, 0x04, 0x04), None),
        ] {
            assert_eq!(mode_in_sense(&sense), mode, "{sense:x?}");
        }
        assert!(matches!(
            checked(&fixed(5, 0x20, 0)),
            Said::Refused(Sense { code: 0x20, .. })
        ));
        assert_eq!(checked(&fixed(6, 0x29, 0)), Said::Again);
        let mut deferred = fixed(3, 0x11, 0);
        deferred[0] = 0x71;
        assert_eq!(checked(&deferred), Said::Again);
        assert!(matches!(checked(&fixed(3, 0x11, 0)), Said::Failed(_)));
        assert!(matches!(checked(&[]), Said::Failed(_)));
        let lost = ScsiAnswer {
            host: 3,
            ..ScsiAnswer::default()
        };
        assert!(matches!(said(&lost), Said::Failed(words) if words.contains("status 3")));
    }

    #[test]
    fn what_a_disk_says_of_itself_is_read_as_far_as_it_goes() {
        let mut ata = [0; 36];
        ata[8..16].copy_from_slice(b"ATA     ");
        let identity = identity(&ata).unwrap();
        assert!(identity.is_disk && identity.is_ata);
        assert_eq!(super::identity(&ata[..12]), None);
        let mut tape = ata;
        tape[0] = 1;
        assert!(!super::identity(&tape).unwrap().is_disk);
        // Nothing is connected there.
        tape[0] = 0x20;
        assert!(!super::identity(&tape).unwrap().is_disk);
        assert_eq!(pages(&[0, 0, 0, 3, 0x80, 0x89]), [0x80, 0x89]);
        assert_eq!(pages(&[0, 0, 0, 1, 0x80, 0x89]), [0x80]);
        assert_eq!(pages(&[0, 0x80, 0, 1, 0x89]), [0u8; 0]);
        let mut page = [0; 572];
        page[1] = 0x89;
        assert_eq!(has_power_modes(&page), None);
        page[60 + 167] = 0x40;
        assert_eq!(has_power_modes(&page), Some(false));
        page[60 + 164] = 8;
        assert_eq!(has_power_modes(&page), Some(true));
        assert_eq!(has_power_modes(&page[..200]), None);
        assert!(has_standby(&[0, 0x8A, 0, 14, 1, 0]));
        assert!(!has_standby(&[0, 0x8A, 0, 14, 2, 7]));
        assert!(!has_standby(&[0, 0x8A, 0, 14]));
    }
}

//! What all nodes agree on about a deleted volume that may still be restored.
//!
//! ```text
//! volume/<id>                     its record, live, under the name deleted.<id>
//! volume-name/deleted.<id>        the number
//! trash/<id>                      this record: what it was called, who deleted it when, until when it is kept
//! ```
//!
//! The volume is whole, and only has another name: a program that knows no trash sees a volume of that name, and keeps its copies as
//! those of any other.
//!
//! Always true:
//! 1. A volume is in the trash if it has this record and the name that goes with its number; else the record says nothing.
//! 2. A record with `deleting` is of a volume that is not restored any more: its snapshots go, then it.

use serde::{Deserialize, Serialize};

use crate::names::{VolumeId, hex};
use crate::record::{RecordError, VolumeRecord, VolumeState, read};
use crate::terms::Name;

const VERSION: u32 = 1;
/// Before a volume's number in the name that it has in the trash.
const DELETED: &str = "deleted.";

/// What the keys of these records begin with.
pub const TRASH: &str = "trash/";

/// The key of a volume's record in the trash.
pub fn trash_key(id: VolumeId) -> String {
    format!("{TRASH}{id}")
}

/// The name that a volume has in the trash.
///
/// # Example
/// ```
/// use replication::{VolumeId, trash};
/// let name = trash::name_in_trash(VolumeId(42));
/// assert_eq!(name.as_str(), "deleted.0000002a");
/// assert_eq!(trash::number_in_trash(&name), Some(VolumeId(42)));
/// ```
pub fn name_in_trash(id: VolumeId) -> Name {
    let name = format!("{DELETED}{id}");
    name.parse().expect("letters, a dot and digits")
}

/// The volume that has this name in the trash; `None`: no volume has it there.
pub fn number_in_trash(name: &Name) -> Option<VolumeId> {
    let digits = name.as_str().strip_prefix(DELETED)?;
    hex(digits, 8).map(|number| VolumeId(number as u32))
}

/// Is a volume in the trash, as far as its own record says?
pub fn is_in_trash(record: &VolumeRecord) -> bool {
    record.state == VolumeState::Live && number_in_trash(&record.name) == Some(record.id)
}

/// A deleted volume.
///
/// # Example
/// ```
/// use replication::VolumeId;
/// use replication::trash::TrashRecord;
/// let record = TrashRecord {
///     deleted_ms: 1_000,
///     ends_ms: 5_000,
///     by: Some("ann".to_owned()),
///     ..TrashRecord::new(VolumeId(42), "vm1".parse().unwrap())
/// };
/// let text = String::from_utf8(record.encode()).unwrap();
/// assert_eq!(
///     text,
///     r#"{"version":1,"volume":42,"name":"vm1","deleted_ms":1000,"ends_ms":5000,"by":"ann"}"#
/// );
/// assert_eq!(TrashRecord::decode(VolumeId(42), text.as_bytes()), Ok(record));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashRecord {
    /// 1: a record with another version is refused.
    pub version: u32,
    /// Which volume.
    pub volume: VolumeId,
    /// What it was called.
    pub name: Name,
    /// When it was deleted: milliseconds since 1970.
    pub deleted_ms: u64,
    /// Until when it is kept.
    pub ends_ms: u64,
    /// Who deleted it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// It is being removed for good.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleting: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(it: &bool) -> bool {
    !it
}

impl TrashRecord {
    /// That of a volume with this name.
    pub fn new(volume: VolumeId, name: Name) -> TrashRecord {
        TrashRecord {
            version: VERSION,
            volume,
            name,
            deleted_ms: 0,
            ends_ms: 0,
            by: None,
            deleting: false,
        }
    }

    /// Is it to be removed for good, `now_ms` milliseconds after 1970?
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.deleting || now_ms >= self.ends_ms
    }

    /// As it stands in the meta store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is plain data")
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(id: VolumeId, bytes: &[u8]) -> Result<TrashRecord, RecordError> {
        let what = format!("the record of volume {id} in the trash");
        let record: TrashRecord = read(&what, bytes)?;
        match record.volume == id {
            true => Ok(record),
            false => {
                let why = format!("it is that of volume {}", record.volume);
                Err(RecordError::malformed(&what, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ImageId;

    #[test]
    fn only_the_name_that_goes_with_its_number_puts_a_volume_into_the_trash() {
        let called =
            |name: &str| VolumeRecord::new(VolumeId(3), name.parse().unwrap(), 2, 1, ImageId(9));
        assert!(is_in_trash(&called("deleted.00000003")));
        for other in ["vm1", "deleted.00000004", "deleted.3", "deleted.0000000A"] {
            assert!(!is_in_trash(&called(other)), "{other}");
        }
        let mut going = called("deleted.00000003");
        going.state = VolumeState::Deleting;
        assert!(!is_in_trash(&going));
    }

    #[test]
    fn a_record_of_a_later_program_or_another_volume_is_refused() {
        let record = TrashRecord::new(VolumeId(3), "vm1".parse().unwrap());
        let text = String::from_utf8(record.encode()).unwrap();
        let read = |id: u32, text: &str| {
            let record = TrashRecord::decode(VolumeId(id), text.as_bytes());
            record.map_err(|error| error.to_string())
        };
        assert_eq!(read(3, &text), Ok(record));
        assert!(
            read(4, &text)
                .unwrap_err()
                .contains("that of volume 00000003")
        );
        let later = text.replace("\"version\":1", "\"version\":2");
        assert!(read(3, &later).unwrap_err().contains("version 2"));
        let more = text.replace("\"name\"", "\"more\":1,\"name\"");
        assert!(read(3, &more).is_err());
    }

    #[test]
    fn a_volume_is_kept_until_its_end_unless_it_is_being_deleted() {
        let mut record = TrashRecord::new(VolumeId(3), "vm1".parse().unwrap());
        record.ends_ms = 10;
        assert!(!record.is_over(9));
        assert!(record.is_over(10));
        record.deleting = true;
        assert!(record.is_over(0));
    }
}

//! May a guest go on with a ring, or may it miss what it was answered?
//!
//! ```text
//! where the ring stands + whose guest it is + does the device show all that was answered? -> Verdict
//! ```
//!
//! A guest that begins has empty rings. One that is in mid-course was served before: by this process, or by one that died
//! or was stopped, and then only a device that shows every answered write can serve it on.
//!
//! Always true: a guest of another process goes on only where nothing that it was answered is missing, and what it was not
//! answered is known.

/// How a ring stands that is to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Course {
    /// Requests that the guest has seen answered, as its used ring counts them.
    pub used: u16,
    /// Requests that it has announced.
    pub available: u16,
    /// Where the client wants the ring to begin.
    pub base: u32,
    /// Does the client keep a record of what is in flight that was used before?
    pub recorded: bool,
    /// This connection, or the last one to this process, served this guest.
    pub same_guest: bool,
    /// The device shows every write that an earlier process answered.
    pub found_all: bool,
    /// The record was made for another disk, or for this one when it was larger.
    pub other_disk: bool,
    /// Another guest was served since, by this process or an earlier one.
    pub another_came: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The ring is new: nothing is in flight.
    Begin,
    /// It goes on, with what the record says is in flight.
    GoOn,
    /// It cannot go on.
    Refuse(Why),
}

/// Why a guest cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// Answered writes may be missing.
    #[error(
        "its guest was served by an earlier daemon, and the device does not show all that was answered: reset the virtual \
         machine, so that the guest checks its file systems"
    )]
    Lost,
    /// Requests may be missing.
    #[error(
        "its guest was served by an earlier daemon, and the client kept no record of the requests in flight: reset the \
         virtual machine"
    )]
    NoRecord,
    /// It has the requests, and the file systems, of another disk.
    #[error(
        "this guest was on another disk, or on this one before it became smaller: connect it to the socket of its disk, or \
         reset the virtual machine"
    )]
    OtherDisk,
    /// The disk may have changed under it.
    #[error(
        "another guest had this disk since this one was served: reset the virtual machine, so that it reads what the other \
         one wrote"
    )]
    AnotherCame,
}

/// See the module's head.
pub fn judge(of: Course) -> Verdict {
    let begins = of.used == 0 && of.base == 0 && !of.recorded;
    if of.recorded && of.other_disk {
        return Verdict::Refuse(Why::OtherDisk);
    }
    if begins && !of.same_guest {
        return Verdict::Begin;
    }
    if of.same_guest {
        return Verdict::GoOn;
    }
    if of.another_came {
        return Verdict::Refuse(Why::AnotherCame);
    }
    if !of.found_all {
        return Verdict::Refuse(Why::Lost);
    }
    // Without a record it can go on where it waits for nothing.
    match of.recorded || of.available == of.used {
        true => Verdict::GoOn,
        false => Verdict::Refuse(Why::NoRecord),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_in_mid_course_goes_on_only_where_nothing_is_missing() {
        let new = Course::default();
        let middle = Course {
            used: 7,
            available: 9,
            base: 7,
            ..new
        };
        let cases = [
            (new, Verdict::Begin),
            (
                Course {
                    available: 3,
                    ..new
                },
                Verdict::Begin,
            ),
            (middle, Verdict::Refuse(Why::Lost)),
            (Course { base: 9, ..new }, Verdict::Refuse(Why::Lost)),
            (
                Course {
                    recorded: true,
                    ..new
                },
                Verdict::Refuse(Why::Lost),
            ),
            (
                Course {
                    recorded: true,
                    ..middle
                },
                Verdict::Refuse(Why::Lost),
            ),
            (
                Course {
                    same_guest: true,
                    ..middle
                },
                Verdict::GoOn,
            ),
            (
                Course {
                    found_all: true,
                    ..middle
                },
                Verdict::Refuse(Why::NoRecord),
            ),
            (
                Course {
                    found_all: true,
                    available: 7,
                    ..middle
                },
                Verdict::GoOn,
            ),
            (
                Course {
                    found_all: true,
                    recorded: true,
                    ..middle
                },
                Verdict::GoOn,
            ),
        ];
        let found = Course {
            found_all: true,
            recorded: true,
            ..middle
        };
        let others = [
            (
                Course {
                    another_came: true,
                    ..found
                },
                Verdict::Refuse(Why::AnotherCame),
            ),
            (
                Course {
                    another_came: true,
                    ..new
                },
                Verdict::Begin,
            ),
            (
                Course {
                    other_disk: true,
                    ..found
                },
                Verdict::Refuse(Why::OtherDisk),
            ),
            (
                Course {
                    other_disk: true,
                    same_guest: true,
                    recorded: true,
                    ..new
                },
                Verdict::Refuse(Why::OtherDisk),
            ),
        ];
        for (course, verdict) in cases.into_iter().chain(others) {
            assert_eq!(judge(course), verdict, "{course:?}");
        }
    }
}

//! Which requests can an export carry out?
//!
//! ```text
//! request, terms -> known? writable? its flags? -> whole sectors, not too long, within the export? -> Command | Refusal
//! ```

use base::SECTOR;

use super::errno::Errno;
use super::layout::Request;
use super::numbers::{can, cmd, flag};

/// What was agreed on for one connection: the ground its requests stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The export's size in bytes.
    pub size: u64,
    /// Transmission flags as announced.
    pub flags: u16,
    /// Replies are structured.
    pub structured: bool,
    /// `base:allocation` was selected.
    pub allocation: bool,
    /// Longest read or write in bytes.
    pub payload_max: u32,
}

/// A request that is allowed, in whole sectors and within the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the request's offset and length in bytes, and its flags by name.
pub enum Command {
    Read {
        at: u64,
        len: u32,
        whole: bool,
    },
    Write {
        at: u64,
        len: u32,
        fua: bool,
    },
    Disconnect,
    Flush,
    Trim {
        at: u64,
        len: u32,
        fua: bool,
    },
    WriteZeroes {
        at: u64,
        len: u32,
        fua: bool,
        no_hole: bool,
        fast: bool,
    },
    BlockStatus {
        at: u64,
        len: u32,
        one: bool,
    },
    Cache {
        at: u64,
        len: u32,
    },
}

impl Command {
    /// Does it change what is on the device?
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
        )
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The sentence a client with structured replies can show.
    pub why: String,
}

fn refuse<T>(errno: Errno, why: String) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

/// Is this request one the export can carry out under these terms?
///
/// # Errors
/// The protocol's error: `Perm` for a write to a read-only export, `NoSpace` for a write behind the
/// end, `Overflow` for an unfragmented read over the limit, `Invalid` for all else.
pub fn judge(request: &Request, terms: &Terms) -> Result<Command, Refusal> {
    if request.command == cmd::DISC {
        return Ok(Command::Disconnect);
    }
    let name = allowed(request, terms)?;
    let (at, len) = (request.offset, request.length);
    if request.command != cmd::FLUSH {
        fits(request, terms, name)?;
    } else if at != 0 || len != 0 {
        let why = format!("cannot flush a part ({len} bytes at byte {at}): only the whole export");
        return refuse(Errno::Invalid, why);
    }
    let has = |bit: u16| request.flags & bit != 0;
    let fua = has(flag::FUA);
    Ok(match request.command {
        cmd::FLUSH => Command::Flush,
        cmd::READ => Command::Read {
            at,
            len,
            whole: has(flag::DF),
        },
        cmd::WRITE => Command::Write { at, len, fua },
        cmd::TRIM => Command::Trim { at, len, fua },
        cmd::CACHE => Command::Cache { at, len },
        cmd::WRITE_ZEROES => Command::WriteZeroes {
            at,
            len,
            fua,
            no_hole: has(flag::NO_HOLE),
            fast: has(flag::FAST_ZERO),
        },
        _ if len == 0 => {
            let why = "cannot report the status of no bytes";
            return refuse(Errno::Invalid, why.to_owned());
        }
        _ => Command::BlockStatus {
            at,
            len,
            one: has(flag::REQ_ONE),
        },
    })
}

/// Was the command agreed on, with these flags? What it is called.
#[inline]
fn allowed(request: &Request, terms: &Terms) -> Result<&'static str, Refusal> {
    let can = |bit: u16| terms.flags & bit != 0;
    let (name, known, flags) = match request.command {
        cmd::READ => ("read", true, if can(can::DF) { flag::DF } else { 0 }),
        cmd::WRITE => ("write", true, 0),
        cmd::FLUSH => ("flush", can(can::FLUSH), 0),
        cmd::TRIM => ("trim", can(can::TRIM) || can(can::READ_ONLY), 0),
        cmd::CACHE => ("cache", can(can::CACHE), 0),
        cmd::WRITE_ZEROES => {
            let fast = if can(can::FAST_ZERO) {
                flag::FAST_ZERO
            } else {
                0
            };
            let known = can(can::WRITE_ZEROES) || can(can::READ_ONLY);
            ("write zeroes", known, flag::NO_HOLE | fast)
        }
        cmd::BLOCK_STATUS => ("report block status", terms.allocation, flag::REQ_ONE),
        other => return refuse(Errno::Invalid, format!("command {other} is unknown")),
    };
    if !known {
        let why = format!("cannot {name}: it was not agreed on in the negotiation");
        return refuse(Errno::Invalid, why);
    }
    let writes = matches!(request.command, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
    if writes && can(can::READ_ONLY) {
        let why = format!("cannot {name}: the export is read-only");
        return refuse(Errno::Perm, why);
    }
    let unexpected = request.flags & !(flags | flag::FUA);
    if unexpected != 0 {
        let why = format!("cannot {name}: command flags {unexpected:#06x} do not belong to it");
        return refuse(Errno::Invalid, why);
    }
    Ok(name)
}

/// Is the range in whole sectors, not too long, and within the export?
#[inline]
fn fits(request: &Request, terms: &Terms, name: &str) -> Result<(), Refusal> {
    let (command, at, len) = (request.command, request.offset, request.length);
    if !at.is_multiple_of(SECTOR) || !u64::from(len).is_multiple_of(SECTOR) {
        let why = format!("cannot {name} {len} bytes at byte {at}: not in whole 512-byte sectors");
        return refuse(Errno::Invalid, why);
    }
    if matches!(command, cmd::READ | cmd::WRITE) && len > terms.payload_max {
        let errno = match request.flags & flag::DF {
            0 => Errno::Invalid,
            _ => Errno::Overflow,
        };
        let most = terms.payload_max;
        let why = format!("cannot {name} {len} bytes at once: at most {most}");
        return refuse(errno, why);
    }
    let end = at.checked_add(u64::from(len));
    if end.is_none_or(|end| end > terms.size) {
        let errno = match command {
            cmd::WRITE | cmd::WRITE_ZEROES => Errno::NoSpace,
            _ => Errno::Invalid,
        };
        let size = terms.size;
        let why = format!("cannot {name} {len} bytes at byte {at}: the export holds {size} bytes");
        return refuse(errno, why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms {
            size: 1 << 20,
            flags: can::HAS_FLAGS
                | can::FLUSH
                | can::FUA
                | can::TRIM
                | can::WRITE_ZEROES
                | can::DF
                | can::CACHE
                | can::FAST_ZERO,
            structured: true,
            allocation: true,
            payload_max: 64 << 10,
        }
    }

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request {
            flags,
            command,
            cookie: 7,
            offset,
            length,
        }
    }

    fn errno(request: Request, terms: &Terms) -> Errno {
        judge(&request, terms).unwrap_err().errno
    }

    #[test]
    fn allowed_requests_pass_with_their_flags() {
        let terms = terms();
        let ok = |r: Request| judge(&r, &terms).unwrap();
        assert_eq!(
            ok(request(cmd::READ, flag::DF, 512, 1024)),
            Command::Read {
                at: 512,
                len: 1024,
                whole: true
            }
        );
        assert_eq!(
            ok(request(cmd::WRITE, flag::FUA, (1 << 20) - 512, 512)),
            Command::Write {
                at: (1 << 20) - 512,
                len: 512,
                fua: true
            }
        );
        assert_eq!(
            ok(request(
                cmd::WRITE_ZEROES,
                flag::NO_HOLE | flag::FAST_ZERO,
                0,
                1 << 20
            )),
            Command::WriteZeroes {
                at: 0,
                len: 1 << 20,
                fua: false,
                no_hole: true,
                fast: true
            }
        );
        assert_eq!(ok(request(cmd::FLUSH, flag::FUA, 0, 0)), Command::Flush);
        assert_eq!(ok(request(cmd::DISC, 0, 0, 0)), Command::Disconnect);
        assert_eq!(
            ok(request(cmd::BLOCK_STATUS, flag::REQ_ONE, 0, 512)),
            Command::BlockStatus {
                at: 0,
                len: 512,
                one: true
            }
        );
    }

    #[test]
    fn each_wrong_request_gets_the_protocols_error() {
        let mut terms = terms();
        let end = terms.size;
        assert_eq!(errno(request(99, 0, 0, 0), &terms), Errno::Invalid);
        assert_eq!(errno(request(cmd::READ, 0, 1, 512), &terms), Errno::Invalid);
        assert_eq!(errno(request(cmd::READ, 0, 0, 511), &terms), Errno::Invalid);
        assert_eq!(
            errno(request(cmd::READ, 0, end, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, 0, u64::MAX - 511, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, 0, 0, 128 << 10), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::READ, flag::DF, 0, 128 << 10), &terms),
            Errno::Overflow
        );
        assert_eq!(
            errno(request(cmd::READ, flag::NO_HOLE, 0, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::WRITE, 0, end, 512), &terms),
            Errno::NoSpace
        );
        assert_eq!(
            errno(request(cmd::WRITE_ZEROES, 0, 512, end as u32), &terms),
            Errno::NoSpace
        );
        assert_eq!(
            errno(request(cmd::TRIM, 0, end, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::FLUSH, 0, 0, 512), &terms),
            Errno::Invalid
        );
        assert_eq!(
            errno(request(cmd::BLOCK_STATUS, 0, 0, 0), &terms),
            Errno::Invalid
        );
        terms.allocation = false;
        assert_eq!(
            errno(request(cmd::BLOCK_STATUS, 0, 0, 512), &terms),
            Errno::Invalid
        );
        terms.flags = can::HAS_FLAGS | can::READ_ONLY;
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(errno(request(command, 0, 0, 512), &terms), Errno::Perm);
        }
        assert_eq!(errno(request(cmd::FLUSH, 0, 0, 0), &terms), Errno::Invalid);
        let why = judge(&request(cmd::READ, 0, end, 512), &terms)
            .unwrap_err()
            .to_string();
        assert_eq!(
            why,
            "cannot read 512 bytes at byte 1048576: the export holds 1048576 bytes"
        );
    }
}

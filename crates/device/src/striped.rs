//! One device of several: chunks dealt out in turn (RAID 0).
//!
//! ```text
//! device:    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | ...      one chunk each
//! member a:  | 0 | 3 | 6 | ...
//! member b:  | 1 | 4 | 7 | ...       a request -> at most one piece per member, all under way at once
//! member c:  | 2 | 5 | 8 | ...
//! ```
//!
//! A run of the device is one run of each member, so a long request is one request to each, however many
//! chunks it has. What one member loses, the whole has lost: there is no redundancy.
//!
//! Always true:
//! 1. Each byte of the device lies on one member; no two lie at one place.
//! 2. What lies within one chunk goes to one member as one request, so what is atomic there is atomic here.
//! 3. A request is complete when every member has done its part. A flush asks all of them.
//! 4. After a flush that failed on any member every flush fails.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use env::sync::join_all;

use crate::api::prepare_all;
use crate::memory::Waiting;
use crate::{Class, Device, DeviceError, Info, Op, Pending, Power, Spindle, WriteFlags, ready};

/// Chunks of this length unless the caller says otherwise.
pub const CHUNK: Bytes = Bytes::kib(64);
/// The shortest chunk: what the hybrid takes for atomic lies within one.
pub const CHUNK_MIN: Bytes = Bytes::kib(4);
/// The longest.
pub const CHUNK_MAX: Bytes = Bytes::mib(64);

/// Why devices cannot be made one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// Fewer than two.
    #[error(
        "cannot make the stripe {stripe} of {members} device(s): it takes at least 2; use a single device as it is"
    )]
    Few {
        /// The stripe's name.
        stripe: String,
        /// How many were given.
        members: usize,
    },
    /// No such chunk.
    #[error(
        "cannot make the stripe {stripe} with chunks of {asked}: it must be a power of two from {CHUNK_MIN} to \
         {CHUNK_MAX}"
    )]
    Chunk {
        /// The stripe's name.
        stripe: String,
        /// What was asked for.
        asked: Bytes,
    },
    /// A member holds less than one chunk.
    #[error(
        "cannot make the stripe {stripe}: {device} holds {size}, less than one chunk of {chunk}; choose a larger \
         device or a shorter chunk"
    )]
    Small {
        /// The stripe's name.
        stripe: String,
        /// The member.
        device: String,
        /// What it holds.
        size: Bytes,
        /// The chunk.
        chunk: Bytes,
    },
}

/// Is `chunk` a length that chunks can have?
pub fn is_chunk(chunk: Bytes) -> bool {
    chunk.0.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&chunk)
}

/// What `members` of the given sizes make together: as many whole chunks of each as the smallest has.
///
/// # Example
/// ```
/// use base::Bytes;
/// use device::striped::size_of;
/// let sizes = [Bytes::kib(100), Bytes::kib(80)];
/// assert_eq!(size_of(&sizes, Bytes::kib(64)), Bytes::kib(128));
/// ```
pub fn size_of(members: &[Bytes], chunk: Bytes) -> Bytes {
    let least = members.iter().min().copied().unwrap_or_default();
    Bytes(least.0 / chunk.0 * chunk.0 * members.len() as u64)
}

/// Several devices as one. See the module's head.
///
/// # Example
/// ```
/// use base::{Bytes, Sector, Span, View};
/// use device::{Device, DeviceExt, Memory, Striped};
///
/// env::Runtime::simulated(1).block_on(async {
///     let disks = ["a", "b"].map(|name| Memory::new(name, Bytes::mib(1)));
///     let whole = Striped::new("raid", vec![disks[0].clone(), disks[1].clone()], Bytes::kib(64))?;
///     assert_eq!(whole.info().size, Bytes::mib(2));
///     whole.write_at(Sector(0), View::copy_of(&[7; 128 << 10])).await.unwrap();
///     assert_eq!(disks[1].contents(Span::bytes(0, 64 << 10)), [7; 64 << 10]);
///     Ok::<(), device::StripeError>(())
/// })?;
/// # Ok::<(), device::StripeError>(())
/// ```
pub struct Striped {
    // Fixed.
    info: Info,
    members: Vec<Rc<dyn Device>>,
    chunk: u64,
    // Per request.
    under_way: Cell<usize>,
    /// The first flush that failed.
    failed: RefCell<Option<String>>,
}

/// What one member has of a request.
struct Share {
    member: usize,
    /// Where, on the member.
    span: Span,
}

/// A part of a request that lies in one chunk.
struct Piece {
    member: usize,
    /// In bytes from the beginning of the request.
    within: Range<usize>,
}

impl Striped {
    /// One device of `members`, in this order, named `name` in errors and metrics.
    ///
    /// # Errors
    /// [`StripeError`]: too few members, a member too small, a chunk that is none.
    pub fn new(
        name: impl Into<String>,
        members: Vec<Rc<dyn Device>>,
        chunk: Bytes,
    ) -> Result<Rc<Striped>, StripeError> {
        let stripe = name.into();
        if members.len() < 2 {
            let members = members.len();
            return Err(StripeError::Few { stripe, members });
        }
        if !is_chunk(chunk) {
            let asked = chunk;
            return Err(StripeError::Chunk { stripe, asked });
        }
        let infos: Vec<Info> = members.iter().map(|member| member.info()).collect();
        if let Some(small) = infos.iter().find(|info| info.size < chunk) {
            return Err(StripeError::Small {
                stripe,
                device: small.name.clone(),
                size: small.size,
                chunk,
            });
        }
        let sizes: Vec<Bytes> = infos.iter().map(|info| info.size).collect();
        let any = |what: fn(&Info) -> bool| infos.iter().any(what);
        let physical = infos.iter().map(|info| info.physical_block).max();
        // One member may get all of a request that is no longer than a chunk.
        let longest = infos.iter().map(|info| info.max_io).min();
        Ok(Rc::new(Striped {
            info: Info {
                name: stripe,
                size: size_of(&sizes, chunk),
                physical_block: physical.expect("there are two"),
                max_io: longest.expect("there are two"),
                volatile_cache: any(|info| info.volatile_cache),
                discards: any(|info| info.discards),
                rotational: any(|info| info.rotational),
                read_only: any(|info| info.read_only),
                crash_keeping: infos.iter().all(|info| info.crash_keeping),
            },
            members,
            chunk: chunk.0,
            under_way: Cell::new(0),
            failed: RefCell::new(None),
        }))
    }

    /// The length of a chunk.
    pub fn chunk(&self) -> Bytes {
        Bytes(self.chunk)
    }

    /// The run of `member` that lies within `span`; perhaps empty.
    fn share(&self, member: usize, span: Span) -> Span {
        let width = self.chunk * self.members.len() as u64;
        // How much of the member lies before byte `at` of the device.
        let before = |at: u64| {
            let row = at / width * self.chunk;
            let begun = (at % width).saturating_sub(member as u64 * self.chunk);
            row + begun.min(self.chunk)
        };
        let (from, to) = (before(span.start.byte()), before(span.end().byte()));
        Span::bytes(from, to - from)
    }

    /// What each member has of `span`, members with nothing left out.
    fn shares(&self, span: Span) -> Vec<Share> {
        let all = (0..self.members.len()).map(|member| Share {
            member,
            span: self.share(member, span),
        });
        all.filter(|share| share.span.len > Bytes(0)).collect()
    }

    /// The one member that has all of `span`, if it does not cross a chunk's end.
    fn alone(&self, span: Span) -> Option<Share> {
        let (from, len) = (span.start.byte(), span.len.0);
        if from % self.chunk + len > self.chunk {
            return None;
        }
        let member = (from / self.chunk % self.members.len() as u64) as usize;
        Some(Share {
            member,
            span: self.share(member, span),
        })
    }

    /// The pieces of a request, in its order.
    fn pieces(&self, span: Span) -> impl Iterator<Item = Piece> + use<> {
        let (chunk, members) = (self.chunk, self.members.len() as u64);
        let (start, end) = (span.start.byte(), span.end().byte());
        let mut at = start;
        std::iter::from_fn(move || {
            let from = at;
            at = ((from / chunk + 1) * chunk).min(end);
            (from < end).then(|| Piece {
                member: (from / chunk % members) as usize,
                within: (from - start) as usize..(at - start) as usize,
            })
        })
    }

    /// What a member could not do, said of the whole.
    fn error_of_whole(&self, op: Op, span: Span, cause: DeviceError) -> DeviceError {
        let device = self.info.name.clone();
        match cause {
            DeviceError::Corrupt { .. } => DeviceError::Corrupt {
                device,
                span,
                why: cause.to_string(),
            },
            DeviceError::NoSpace { .. } => DeviceError::NoSpace {
                device,
                op,
                why: cause.to_string(),
            },
            DeviceError::Gone { .. } => DeviceError::Gone {
                device,
                op,
                why: cause.to_string(),
            },
            DeviceError::FlushFailed { .. } => DeviceError::FlushFailed {
                device,
                why: cause.to_string(),
            },
            _ => DeviceError::Io {
                device,
                op,
                span,
                why: cause.to_string(),
            },
        }
    }

    /// Sends a request that answers nothing to every member that has a part of it.
    fn each<'a>(
        &'a self,
        op: Op,
        span: Span,
        send: impl Fn(&'a dyn Device, &Share) -> Pending<'a, ()>,
    ) -> Pending<'a, ()> {
        if let Err(refusal) = self.info.check(op, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        let waiting = Waiting::begin(&self.under_way);
        let shares = self.shares(span);
        let sent: Vec<Pending<'a, ()>> = shares
            .iter()
            .map(|share| send(&*self.members[share.member], share))
            .collect();
        Box::pin(async move {
            let answers = join_all(sent).await;
            drop(waiting);
            let failed = answers.into_iter().find_map(Result::err);
            failed.map_or(Ok(()), |cause| Err(self.error_of_whole(op, span, cause)))
        })
    }

    /// What `share` is to be given of `data`.
    fn gather(&self, share: &Share, span: Span, data: &View) -> View {
        if data.is_known_zero() {
            return Buf::zeroed(share.span.len.usize()).freeze();
        }
        let own = |piece: &Piece| piece.member == share.member;
        let mut pieces = self.pieces(span).filter(own).peekable();
        let first = pieces.next().expect("a share is not empty");
        if pieces.peek().is_none() {
            return data.slice(first.within.start, first.within.len());
        }
        let mut gathered = Buf::for_read(share.span.len.usize());
        let mut at = 0;
        for piece in std::iter::once(first).chain(pieces) {
            let len = piece.within.len();
            gathered[at..at + len].copy_from_slice(&data[piece.within]);
            at += len;
        }
        gathered.freeze()
    }

    /// Puts what the members read into the request's buffer.
    fn scatter(&self, span: Span, parts: &[(usize, Buf)], buf: &mut Buf) {
        if parts.iter().all(|(_, part)| part.is_known_zero()) {
            return buf.zero();
        }
        let mut used = vec![0; self.members.len()];
        for piece in self.pieces(span) {
            let of_member = parts.iter().find(|(member, _)| *member == piece.member);
            let (member, part) = of_member.expect("a piece belongs to a share");
            let from = used[*member];
            used[*member] += piece.within.len();
            buf[piece.within].copy_from_slice(&part[from..used[*member]]);
        }
    }
}

impl Device for Striped {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn read(&self, at: Sector, mut buf: Buf, class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        if let Err(refusal) = self.info.check(Op::Read, at, span.len.0) {
            return ready(Err(refusal));
        }
        let error_of_whole = move |cause| self.error_of_whole(Op::Read, span, cause);
        let waiting = Waiting::begin(&self.under_way);
        if let Some(share) = self.alone(span) {
            let sent = self.members[share.member].read(share.span.start, buf, class);
            return Box::pin(async move {
                let answer = sent.await;
                drop(waiting);
                answer.map_err(error_of_whole)
            });
        }
        let shares = self.shares(span);
        let sent: Vec<Pending<'_, Buf>> = shares
            .iter()
            .map(|share| {
                let part = Buf::for_read(share.span.len.usize());
                self.members[share.member].read(share.span.start, part, class)
            })
            .collect();
        Box::pin(async move {
            let answers = join_all(sent).await;
            drop(waiting);
            let mut parts = Vec::with_capacity(shares.len());
            for (share, answer) in shares.iter().zip(answers) {
                parts.push((share.member, answer.map_err(error_of_whole)?));
            }
            self.scatter(span, &parts, &mut buf);
            Ok(buf)
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.each(Op::Write, span, |member, share| {
            let data = match share.span.len == span.len {
                true => data.clone(),
                false => self.gather(share, span, &data),
            };
            member.write(share.span.start, data, flags)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        if let Some(why) = self.failed.borrow().clone() {
            let device = self.info.name.clone();
            return ready(Err(DeviceError::FlushFailed { device, why }));
        }
        let waiting = Waiting::begin(&self.under_way);
        let sent: Vec<Pending<'_, ()>> = self.members.iter().map(|member| member.flush()).collect();
        Box::pin(async move {
            let answers = join_all(sent).await;
            drop(waiting);
            let Some(cause) = answers.into_iter().find_map(Result::err) else {
                return Ok(());
            };
            let why = cause.to_string();
            self.failed.borrow_mut().get_or_insert(why);
            Err(self.error_of_whole(Op::Flush, Span::default(), cause))
        })
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.each(Op::Discard, span, |member, share| {
            member.discard(share.span)
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.each(Op::WriteZeroes, span, |member, share| {
            member.write_zeroes(share.span, flags)
        })
    }

    /// Where any member holds data, the whole row of chunks counts as data.
    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        if let Err(refusal) = self.info.check(Op::Read, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        let shares = self.shares(span);
        let sent: Vec<Pending<'_, Vec<(u64, bool)>>> = shares
            .iter()
            .map(|share| self.members[share.member].allocation(share.span))
            .collect();
        Box::pin(async move {
            let answers = join_all(sent).await;
            let mut rows: Vec<Range<u64>> = Vec::new();
            for (share, answer) in shares.iter().zip(answers) {
                let runs = answer.map_err(|cause| self.error_of_whole(Op::Read, span, cause))?;
                let mut at = share.span.start.byte();
                for (len, data) in runs {
                    if data && len > 0 {
                        rows.push(at / self.chunk..(at + len).div_ceil(self.chunk));
                    }
                    at += len;
                }
            }
            rows.sort_unstable_by_key(|row| row.start);
            let width = self.chunk * self.members.len() as u64;
            Ok(runs_of(&rows, width, span))
        })
    }

    /// What all members drew together; none where one does not know.
    fn power(&self) -> Option<Power> {
        let all: Option<Vec<Power>> = self.members.iter().map(|member| member.power()).collect();
        let all = all?;
        Some(Power {
            joules: all.iter().map(|power| power.joules).sum(),
            over: all.iter().map(|power| power.over).max()?,
            spin_ups: all.iter().map(|power| power.spin_ups).sum(),
            standby: all.iter().all(|power| power.standby),
        })
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        Box::pin(prepare_all(&self.members))
    }

    fn spindle(&self) -> Option<Spindle> {
        Spindle::of_all(&self.members)
    }

    fn standby(&self) -> bool {
        self.members.iter().fold(true, |all, it| all & it.standby())
    }

    fn in_flight(&self) -> usize {
        self.under_way.get()
    }
}

/// Rows of `width` bytes that hold data, sorted by their beginning, as runs over `span`.
fn runs_of(rows: &[Range<u64>], width: u64, span: Span) -> Vec<(u64, bool)> {
    let (start, end) = (span.start.byte(), span.end().byte());
    let mut runs: Vec<(u64, bool)> = Vec::new();
    let mut push = |len: u64, data: bool| match runs.last_mut() {
        _ if len == 0 => {}
        Some((so_far, kind)) if *kind == data => *so_far += len,
        _ => runs.push((len, data)),
    };
    let mut at = start;
    for row in rows {
        let from = (row.start * width).clamp(at, end);
        let to = (row.end * width).clamp(from, end);
        push(from - at, false);
        push(to - from, true);
        at = to;
    }
    push(end - at, false);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn every_byte_lies_on_one_member_and_in_one_place() {
        const M: u64 = 1 << 20;
        for count in 2..6_usize {
            let member = |n| -> Rc<dyn Device> { Memory::new(format!("m{n}"), Bytes(M)) };
            let whole = Striped::new("raid", (0..count).map(member).collect(), CHUNK_MIN).unwrap();
            let mut next = vec![0; count];
            for at in (0..whole.info.size.0).step_by(512) {
                let shares = whole.shares(Span::bytes(at, 512));
                let [share] = &shares[..] else {
                    panic!("a sector lies on {} members", shares.len());
                };
                assert_eq!(share.member as u64, at / CHUNK_MIN.0 % count as u64);
                assert_eq!(share.span, Span::bytes(next[share.member], 512));
                next[share.member] += 512;
            }
            assert_eq!(next, vec![M; count]);
        }
    }

    #[test]
    fn rows_with_data_become_runs_over_what_was_asked() {
        let rows = [1..2, 1..3, 5..6];
        let runs = |from, len| runs_of(&rows, 1024, Span::bytes(from, len));
        assert_eq!(
            runs(0, 8192),
            [
                (1024, false),
                (2048, true),
                (2048, false),
                (1024, true),
                (2048, false)
            ]
        );
        assert_eq!(runs(1536, 1024), [(1024, true)]);
        assert_eq!(runs(3072, 1024), [(1024, false)]);
        assert_eq!(runs(0, 0), []);
    }
}

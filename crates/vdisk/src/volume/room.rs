//! Is there room for all copies of what is to be written?
//!
//! ```text
//! new extent        -> as many domains with room as there should be copies, of those that can be reached or are only full
//! written in holes  -> each store of the extent has room, also one that is out because it was full
//! over what is there-> goes on: stores keep room back for that
//! ```
//!
//! Always true:
//! 1. A store that is full makes no extent have fewer copies: what lacks room on one of them is refused.
//! 2. A store that is gone, full or not, holds up nothing: extents go on without it as without any other.

use std::collections::BTreeSet;

use base::Bytes;
use policy::place::{DomainId, Target};
use store::SpaceFigures;

use super::io::Piece;
use super::members::{Member, Standing};
use super::overlay::BLOCK;
use super::users::UserId;
use super::{Core, Placed, VolumeError};
use crate::link::LinkError;
use crate::names::StoreNumber;

/// Of each store the thirty-second part is kept for maps, dirty bits and writes over what is there, but no less and no more than
/// this. A write takes new room before it frees the old.
const KEPT_MIN: Bytes = Bytes::mib(2);
const KEPT_MAX: Bytes = Bytes::mib(64);
/// A store with less room than this is full, for operators.
const LITTLE: u64 = 1 << 20;
/// A store that was full and has not answered for so many timeouts is gone: it holds up no writes.
const GONE_AFTER: u64 = 4;

impl Member {
    /// Takes what it says of its room.
    pub fn says(&self, space: &SpaceFigures) {
        self.free
            .set(Bytes(space.free.0.saturating_sub(space.spare.0)));
        self.total.set(space.total);
        self.sent.set(0);
    }

    /// Room for data when it was last asked, as far as it is known.
    fn last_room(&self) -> Bytes {
        let kept = (self.total.get().0 / 32).clamp(KEPT_MIN.0, KEPT_MAX.0);
        Bytes(self.free.get().0.saturating_sub(kept))
    }

    /// Room for data, if all that was sent since takes room.
    pub fn room(&self) -> Bytes {
        Bytes(self.last_room().0.saturating_sub(self.sent.get()))
    }

    /// So much was sent there.
    pub fn takes(&self, bytes: u64) {
        self.sent.set(self.sent.get().saturating_add(bytes));
    }

    fn room_in_words(&self) -> String {
        let Member { site, total, .. } = self;
        match self.standing.get() {
            Standing::Out => format!("store {} is out of sync since it was full", site.name),
            _ => format!(
                "store {} has room for {} of {}",
                site.name,
                self.last_room(),
                total.get()
            ),
        }
    }
}

impl Core {
    /// Is it out because it was full, and comes back when it has room? One that does not answer is gone, whatever it was before.
    fn is_only_full(&self, member: &Member) -> bool {
        let out = member.standing.get() == Standing::Out && member.was_full.get();
        let silent = env::now().since(member.answered.get());
        let answers = member.link().is_some() || silent.0 <= GONE_AFTER * self.settings.patience.0;
        out && answers && !self.is_drained(member.site.number)
    }

    /// Is its room known to be less than this? Of one that is out nothing is known but that it was full.
    fn lacks_room(&self, member: &Member, bytes: u64) -> bool {
        match member.standing.get() {
            Standing::Out => self.is_only_full(member),
            _ => member.total.get() > Bytes(0) && member.room().0 < bytes,
        }
    }

    /// Asks a store for its room, if something was sent there since it was asked.
    async fn ask_again(&self, member: &Member) -> Result<(), VolumeError> {
        let Some(link) = member.link().filter(|_| member.sent.get() > 0) else {
            return Ok(());
        };
        match self.within(link.space()).await {
            Ok(space) => member.says(&space),
            Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
            Err(error) if error.ends_link() => member.lose(&link, false),
            Err(_) => {}
        }
        Ok(())
    }

    /// Stores for a new extent. Not all that was sent took room: before it is refused all are asked.
    pub(super) async fn choose_with_room(
        &self,
        len: u64,
        user: UserId,
    ) -> Result<Vec<StoreNumber>, VolumeError> {
        match self.choose_for(len, user) {
            Err(VolumeError::NoRoom { .. }) => {}
            chosen => return chosen,
        }
        for member in self.members.values() {
            self.ask_again(member).await?;
        }
        self.choose_for(len, user)
    }

    /// How many copies a new extent gets: as many as there should be, or as there are domains that can be reached. Those whose
    /// stores are only full count.
    pub(super) fn copies_to_place(&self, targets: &[Target]) -> usize {
        let record = &self.record.borrow().0;
        let most = usize::from(record.copies).min(self.domains(targets).len());
        most.max(usize::from(record.min_isr).max(1))
    }

    fn domains(&self, targets: &[Target]) -> BTreeSet<DomainId> {
        let full = self.members.values().filter(|it| self.is_only_full(it));
        let full = full.map(|it| it.site.domain);
        let reached = targets.iter().map(|it| it.domain);
        reached.chain(full).collect()
    }

    /// Refuses a write into holes of an extent one of whose stores has no room for it: some copies would get it, and others not.
    pub(super) async fn check_room(
        &self,
        placed: &Placed,
        piece: Piece,
    ) -> Result<(), VolumeError> {
        let numbers = placed.stores.borrow().clone();
        let members = || numbers.iter().filter_map(|one| self.member(*one));
        let needs = piece.len.next_multiple_of(BLOCK) * 2;
        for member in members().filter(|it| self.lacks_room(it, needs)) {
            self.ask_again(member).await?;
        }
        let Some(full) = members().find(|it| self.lacks_room(it, needs)) else {
            return Ok(());
        };
        let in_sync = |it: &&Member| it.standing.get() == Standing::In;
        for member in members().filter(in_sync) {
            let Some(link) = member.link() else { continue };
            let extents = link.extents(&placed.object, piece.from, piece.len);
            match self.within(extents).await {
                Ok(all) => {
                    let there: u64 = all.iter().filter(|it| it.data).map(|it| it.len).sum();
                    if there >= piece.len {
                        return Ok(());
                    }
                }
                Err(LinkError::Fenced { why, .. }) => return Err(self.fence(why)),
                Err(error) if error.ends_link() => member.lose(&link, false),
                Err(_) => {}
            }
        }
        Err(VolumeError::NoRoom {
            volume: self.id,
            why: format!(
                "{}; add a store, or delete what is not needed",
                full.room_in_words()
            ),
        })
    }

    /// What finds no place, and why, if anything does.
    pub(super) fn full_in_words(&self) -> Option<String> {
        let targets = self.targets(&[]);
        let has_room = |it: &&Target| {
            let member = self.member_of(it.candidate.disk);
            member.is_some_and(|it| it.last_room().0 >= LITTLE)
        };
        let with_room = targets.iter().filter(has_room);
        let with_room: BTreeSet<DomainId> = with_room.map(|it| it.domain).collect();
        let wanted = self.copies_to_place(&targets);
        let full = self.full_stores();
        let first = full.first()?;
        let enough = self.domains(&targets).len() < wanted || with_room.len() >= wanted;
        let what = match enough {
            true => format!("extents on full stores take nothing in their holes: {first}"),
            false => format!(
                "new extents find no place for {wanted} copies: {}",
                full.join(", ")
            ),
        };
        Some(format!("{what}; add a store, or delete what is not needed"))
    }

    /// Stores without room that have something of the volume, in words.
    fn full_stores(&self) -> Vec<String> {
        let record = &self.record.borrow().0;
        let full = self.members.values().filter(|it| {
            let number = it.site.number;
            let listed = record
                .stores
                .as_ref()
                .is_none_or(|all| all.contains(&number));
            let lacks = match it.standing.get() {
                Standing::Out => self.is_only_full(it),
                _ => it.total.get() > Bytes(0) && it.last_room().0 < LITTLE,
            };
            listed && !self.is_drained(number) && lacks
        });
        full.map(Member::room_in_words).collect()
    }

    /// Stores that are out, in words, those with a reason that is known.
    pub(super) fn out_in_words(&self, numbers: &[StoreNumber]) -> Vec<String> {
        let said = |number: &StoreNumber| {
            let full = self.member(*number).is_some_and(|it| it.was_full.get());
            match full {
                true => format!("{} (it was full)", self.label(*number)),
                false => self.label(*number),
            }
        };
        numbers.iter().map(said).collect()
    }
}

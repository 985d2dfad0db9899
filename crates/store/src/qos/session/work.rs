//! What a session does: as for [`Store`](crate::Store), within what it may.

use base::{Buf, View};
use policy::share::Direction;

use super::{OperationError, Session};
use crate::object::damage::Damage;
use crate::object::names::LISTING_MAX;
use crate::object::types::{AllocatedRange, Change, Listing, Stat, Version};

impl Session {
    /// As [`crate::Store::read`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn read(&self, object: &str, offset: u64, len: u64) -> Result<Buf, OperationError> {
        self.may("read", object, Some(Direction::Read))?;
        let store = &self.manager.store;
        Ok(store
            .read(object, offset, len, self.class_of(Direction::Read))
            .await?)
    }

    /// As [`crate::Store::allocated_ranges`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<AllocatedRange>, OperationError> {
        self.may("look at", object, None)?;
        Ok(self.manager.store.allocated_ranges(object, offset, len)?)
    }

    /// As [`crate::Store::damage`], of what this session may look at.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn damage(
        &self,
        prefix: &str,
        object: &str,
        offset: u64,
        most: usize,
    ) -> Result<(Vec<Damage>, bool), OperationError> {
        let scope = self.granted.as_ref().map_or("", |it| &it.scope);
        let prefix = match scope.starts_with(prefix) {
            true => scope,
            false => prefix,
        };
        self.may("list the damage of", prefix, None)?;
        let (mut damage, more) = self.manager.store.damage(prefix, object, offset, most);
        damage.retain(|it| self.hidden(&it.object).is_none());
        Ok((damage, more))
    }

    /// As [`crate::Store::write`]; whose it is and from which room is the session's to say.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Result<Version, OperationError> {
        self.may("write", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.write(object, offset, data.clone(), change).await
        })
        .await
    }

    /// As [`crate::Store::truncate`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn truncate(
        &self,
        object: &str,
        size: u64,
        change: Change,
    ) -> Result<Version, OperationError> {
        self.may("truncate", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.truncate(object, size, change).await
        })
        .await
    }

    /// As [`crate::Store::punch`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Result<Version, OperationError> {
        self.may("punch a hole in", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.punch(object, offset, len, change).await
        })
        .await
    }

    /// As [`crate::Store::create`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Version, OperationError> {
        self.may("create", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.create(object, attributes, change).await
        })
        .await
    }

    /// As [`crate::Store::delete`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn delete(&self, object: &str, change: Change) -> Result<(), OperationError> {
        self.may("delete", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| store.delete(object, change).await)
            .await
    }

    /// As [`crate::Store::rename`]; both names must be its to write.
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Version, OperationError> {
        for name in [object, to] {
            self.may("rename", name, Some(Direction::Write))?;
        }
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.rename(object, to, replace, change).await
        })
        .await
    }

    /// As [`crate::Store::stat`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn stat(&self, object: &str) -> Result<Stat, OperationError> {
        self.may("look at", object, None)?;
        Ok(self.manager.store.stat(object)?)
    }

    /// As [`crate::Store::list`], without what is not its to see.
    ///
    /// # Errors
    /// [`OperationError`] if nothing with this prefix can be its to see.
    pub fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Listing, OperationError> {
        let scope = self.granted.as_ref().map_or("", |it| &it.scope);
        let prefix = match scope.starts_with(prefix) {
            true => scope,
            false => prefix,
        };
        self.may("list", prefix, None)?;
        let most = most.clamp(1, LISTING_MAX);
        let mut found = Listing::default();
        let mut after = after.map(str::to_owned);
        loop {
            let wanted = most - found.objects.len();
            let part = self.manager.store.list(prefix, after.as_deref(), wanted);
            let passed = part.objects.last().and_then(|it| self.hidden(&it.name));
            let visible = |it: &Stat| self.hidden(&it.name).is_none();
            found
                .objects
                .extend(part.objects.into_iter().filter(visible));
            match part.next {
                // All names with a hidden prefix are passed in one step, however many there are.
                Some(next) if found.objects.len() < most => {
                    after = Some(passed.map_or(next, |prefix| format!("{prefix}{}", char::MAX)));
                }
                next => {
                    found.next = next;
                    return Ok(found);
                }
            }
        }
    }

    /// As [`crate::Store::attributes`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn attributes(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, OperationError> {
        self.may("look at", object, None)?;
        Ok(self.manager.store.attributes(object)?)
    }

    /// As [`crate::Store::set_attributes`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Result<Version, OperationError> {
        self.may("set attributes of", object, Some(Direction::Write))?;
        let store = &self.manager.store;
        self.with_room(change, async |change| {
            store.set_attributes(object, changes, change).await
        })
        .await
    }

    /// As [`crate::Store::flush`].
    ///
    /// # Errors
    /// [`OperationError`].
    pub async fn flush(&self) -> Result<(), OperationError> {
        self.goes_on("flush", self.granted.as_ref().map_or("", |it| &it.scope))?;
        Ok(self.manager.store.flush().await?)
    }
}

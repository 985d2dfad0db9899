//! Objects as wholes: make, name, list, describe, delete.
//!
//! None of this moves data, so each is one step in memory: it is answered at once and durable with the next flush.
//! A deleted object's pages come back with the commits that follow; a large one is taken apart over several, and
//! its name is gone with the first.

use std::ops::Bound;
use std::rc::Rc;

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::record::{decode_attributes, encode_attributes};
use crate::object::types::{ATTRIBUTES_MAX, Change, Listing, NAME_MAX, Stat, Version};

/// The most objects one part of a listing holds.
pub(crate) const LISTING_MAX: usize = 10_000;
/// The longest name of an attribute in bytes.
const ATTRIBUTE_NAME_MAX: usize = 255;

/// Why nothing can have this name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("an object's name has at least one byte".to_owned()),
        len if len > NAME_MAX => Err(format!(
            "its name has {len} bytes; a name has at most {NAME_MAX}"
        )),
        _ => Ok(()),
    }
}

impl Store {
    /// Makes an empty object with these attributes (by name; see [`ATTRIBUTES_MAX`]).
    ///
    /// # Errors
    /// [`StoreError::Exists`]; [`StoreError::Request`] for a name or attributes no object can have;
    /// [`StoreError::TableFull`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Version, StoreError> {
        let inner = &self.inner;
        let refuse = |why| inner.refuse("create", object, why);
        check_name(object).map_err(refuse)?;
        let changes = attributes.iter().map(|(name, value)| (*name, Some(*value)));
        let attributes = merge(&[], changes).map_err(refuse)?;
        let charge = 4 * 1034 + 80 + object.len() as u64;
        inner.stage(charge).await?;
        let version = {
            let table = &mut *inner.table.change();
            if table.find(object).is_some() {
                return Err(StoreError::Exists {
                    store: inner.name.clone(),
                    object: object.to_owned(),
                });
            }
            inner.table_has_room(table, (attributes.len() + object.len()) as u64 + 120)?;
            let version = inner.next_generation();
            #[cfg(test)]
            inner.log(crate::tests::Step::create(object, &attributes, change));
            table.create(object, version, change.stamp.unwrap_or(0), attributes);
            version
        };
        inner.commit.note();
        inner.done(version, change).await
    }

    /// Deletes the object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Condition`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn delete(&self, object: &str, change: Change) -> Result<(), StoreError> {
        let inner = &self.inner;
        inner.stage(inner.superblock.stage_max() / 2).await?;
        {
            let table = &mut *inner.table.change();
            let (id, found) = table.find(object).ok_or_else(|| inner.not_found(object))?;
            inner.holds(object, Some(found), change.condition)?;
            inner.next_generation();
            table.doom(id);
            inner.space.change().forget(id);
            // A small one goes at once.
            let released = inner.take_apart(table, id);
            inner.release(&released);
            if !table.deleting.is_empty() {
                inner.reap.notify_all();
            }
            #[cfg(test)]
            inner.log(crate::tests::Step::delete(object));
        }
        inner.commit.note();
        if change.fua {
            inner.committed().await?;
        }
        Ok(())
    }

    /// Gives the object another name; with `replace`, whatever has that name is deleted in the same step.
    ///
    /// # Errors
    /// As for [`Store::delete`], and [`StoreError::Exists`] without `replace`; [`StoreError::Request`].
    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Version, StoreError> {
        let inner = &self.inner;
        check_name(to).map_err(|why| inner.refuse("rename", object, why))?;
        inner
            .stage(inner.superblock.stage_max() / 2 + to.len() as u64)
            .await?;
        let version = {
            let table = &mut *inner.table.change();
            let (id, found) = table.find(object).ok_or_else(|| inner.not_found(object))?;
            inner.holds(object, Some(found), change.condition)?;
            let size = found.size;
            inner.table_has_room(table, to.len() as u64)?;
            if object != to {
                if let Some((other, _)) = table.find(to) {
                    if !replace {
                        return Err(StoreError::Exists {
                            store: inner.name.clone(),
                            object: to.to_owned(),
                        });
                    }
                    table.doom(other);
                    inner.space.change().forget(other);
                    let released = inner.take_apart(table, other);
                    inner.release(&released);
                    inner.reap.notify_all();
                }
                table.rename(id, to);
            }
            let version = inner.next_generation();
            table.stamp(id, version, change.stamp, size);
            #[cfg(test)]
            inner.log(crate::tests::Step::rename(object, to, change));
            version
        };
        inner.commit.note();
        inner.done(version, change).await
    }

    /// What the object is like.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn stat(&self, object: &str) -> Result<Stat, StoreError> {
        let table = self.inner.table.borrow();
        let found = table.find(object).map(|(_, object)| object.stat());
        found.ok_or_else(|| self.inner.not_found(object))
    }

    /// The first `most` objects (at most 10,000) whose names begin with `prefix` and come after `after`, in the order
    /// of their names' bytes.
    ///
    /// # Example
    /// ```
    /// # env::Runtime::simulated(1).block_on(async {
    /// # use store::{Change, Settings, Store};
    /// # let device = device::Memory::new("disk", base::Bytes::mib(8));
    /// # let store = Store::format(device, Settings::default()).await.unwrap();
    /// for name in ["a/1", "a/2", "a/3", "b/1"] {
    ///     store.create(name, &[], Change::default()).await.unwrap();
    /// }
    /// let part = store.list("a/", None, 2);
    /// assert_eq!(part.next.as_deref(), Some("a/2"));
    /// let rest = store.list("a/", part.next.as_deref(), 2);
    /// assert_eq!((rest.objects[0].name.as_str(), rest.next), ("a/3", None));
    /// # });
    /// ```
    pub fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Listing {
        let table = self.inner.table.borrow();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let most = most.min(LISTING_MAX);
        let mut names = (table.names.range::<str, _>((from, Bound::Unbounded)))
            .take_while(|(name, _)| name.starts_with(prefix));
        let objects: Vec<Stat> = (names.by_ref().take(most))
            .filter_map(|(_, id)| table.get(*id).map(|object| object.stat()))
            .collect();
        let next = match names.next() {
            Some(_) => objects.last().map(|object| object.name.clone()),
            None => None,
        };
        Listing { objects, next }
    }

    /// The object's attributes, by rising name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub fn attributes(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let table = self.inner.table.borrow();
        let found = table.find(object).map(|(_, object)| object);
        let found = found.ok_or_else(|| self.inner.not_found(object))?;
        Ok(decode_attributes(&found.attributes).expect("checked when they came in"))
    }

    /// Sets attributes, or removes those with no value, all in one step; others stay.
    ///
    /// # Errors
    /// As for [`Store::create`], and [`StoreError::NotFound`], [`StoreError::Condition`].
    pub async fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Result<Version, StoreError> {
        let inner = &self.inner;
        inner.stage(4 * 1034 + 60).await?;
        let version = {
            let table = &mut *inner.table.change();
            let (id, found) = table.find(object).ok_or_else(|| inner.not_found(object))?;
            inner.holds(object, Some(found), change.condition)?;
            let size = found.size;
            let attributes = merge(&found.attributes, changes.iter().copied())
                .map_err(|why| inner.refuse("set attributes of", object, why))?;
            inner.table_has_room(table, attributes.len() as u64 + 40)?;
            let version = inner.next_generation();
            #[cfg(test)]
            inner.log(crate::tests::Step::attributes(object, &attributes, change));
            table.set_attributes(id, attributes);
            table.stamp(id, version, change.stamp, size);
            version
        };
        inner.commit.note();
        inner.done(version, change).await
    }
}

impl Inner {
    fn refuse(&self, what: &str, object: &str, why: String) -> StoreError {
        StoreError::Request {
            what: format!("{what} {object:?} in {}", self.name),
            why,
        }
    }

    async fn done(&self, version: u64, change: Change) -> Result<Version, StoreError> {
        if change.fua {
            self.committed().await?;
        }
        Ok(Version(version))
    }
}

/// Attributes with `changes` made to them, as bytes.
fn merge<'a>(
    before: &[u8],
    changes: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> Result<Vec<u8>, String> {
    let before = decode_attributes(before).expect("checked when they came in");
    let mut all: std::collections::BTreeMap<Rc<str>, Vec<u8>> = before
        .into_iter()
        .map(|(name, value)| (Rc::from(name), value))
        .collect();
    for (name, value) in changes {
        if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX {
            return Err(format!(
                "an attribute's name has 1 to {ATTRIBUTE_NAME_MAX} bytes, {name:?} has {}",
                name.len()
            ));
        }
        match value {
            Some(value) if value.len() > ATTRIBUTES_MAX => {
                return Err(format!(
                    "the attribute {name:?} has {} bytes; all of an object take at most {ATTRIBUTES_MAX}",
                    value.len()
                ));
            }
            Some(value) => all.insert(Rc::from(name), value.to_vec()),
            None => all.remove(name),
        };
    }
    let bytes = encode_attributes(all.iter().map(|(name, value)| (&**name, value.as_slice())));
    if bytes.len() > ATTRIBUTES_MAX {
        return Err(format!(
            "its attributes would take {} bytes; they take at most {ATTRIBUTES_MAX}",
            bytes.len()
        ));
    }
    Ok(bytes)
}

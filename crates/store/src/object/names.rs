//! Objects as wholes: make, name, list, describe, delete.
//!
//! None of this moves data, so each is one step in memory: it is answered at once and durable with the next flush.
//! A deleted object's pages come back with the commits that follow; a large one is taken apart over several, and
//! its name is gone with the first.

use std::ops::Bound;
use std::rc::Rc;

use crate::object::error::StoreError;
use crate::object::parts::Parts;
use crate::object::reap;
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

/// Makes, names, lists, describes and deletes objects; see [`crate::Store`].
pub(crate) struct Names<'a>(pub &'a Parts);

impl Names<'_> {
    pub async fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Result<Version, StoreError> {
        let parts = self.0;
        let refuse = |why| parts.disk.refuse("create", object, why);
        check_name(object).map_err(refuse)?;
        let changes = attributes.iter().map(|(name, value)| (*name, Some(*value)));
        let attributes = merge(&[], changes).map_err(refuse)?;
        let charge = 4 * 1034 + 80 + object.len() as u64;
        parts.stage(charge).await?;
        let version = {
            let table = &mut *parts.table.change();
            if table.find(object).is_some() {
                return Err(parts.disk.exists(object));
            }
            parts.table_has_room(table, (attributes.len() + object.len()) as u64 + 120)?;
            let version = parts.next_version();
            #[cfg(test)]
            parts.log(crate::tests::Step::create(object, &attributes, change));
            table.create(object, version, change.stamp.unwrap_or(0), attributes);
            version
        };
        parts.commit.note();
        parts.finish(version, change.fua).await
    }

    pub async fn delete(&self, object: &str, change: Change) -> Result<(), StoreError> {
        let parts = self.0;
        parts.stage(parts.disk.superblock.stage_max() / 2).await?;
        let version = {
            let table = &mut *parts.table.change();
            let (id, found) = table
                .find(object)
                .ok_or_else(|| parts.disk.not_found(object))?;
            parts.holds(object, Some(found), change.condition)?;
            let version = parts.next_version();
            // A small one goes at once.
            reap::delete(parts, table, id);
            if !table.deleting.is_empty() {
                parts.reap.notify_all();
            }
            #[cfg(test)]
            parts.log(crate::tests::Step::delete(object));
            version
        };
        parts.commit.note();
        parts.finish(version, change.fua).await.map(|_| ())
    }

    pub async fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Result<Version, StoreError> {
        let parts = self.0;
        check_name(to).map_err(|why| parts.disk.refuse("rename", object, why))?;
        let charge = parts.disk.superblock.stage_max() / 2 + to.len() as u64;
        parts.stage(charge).await?;
        let version = {
            let table = &mut *parts.table.change();
            let (id, found) = table
                .find(object)
                .ok_or_else(|| parts.disk.not_found(object))?;
            parts.holds(object, Some(found), change.condition)?;
            let size = found.size;
            parts.table_has_room(table, to.len() as u64)?;
            if object != to {
                if let Some((other, _)) = table.find(to) {
                    if !replace {
                        return Err(parts.disk.exists(to));
                    }
                    reap::delete(parts, table, other);
                    parts.reap.notify_all();
                }
                table.rename(id, to);
            }
            let version = parts.next_version();
            table.stamp(id, version, change.stamp, size);
            #[cfg(test)]
            parts.log(crate::tests::Step::rename(object, to, change));
            version
        };
        parts.commit.note();
        parts.finish(version, change.fua).await
    }

    pub fn stat(&self, object: &str) -> Result<Stat, StoreError> {
        let table = self.0.table.borrow();
        let found = table.find(object).map(|(_, object)| object.stat());
        found.ok_or_else(|| self.0.disk.not_found(object))
    }

    pub fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Listing {
        let table = self.0.table.borrow();
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

    pub fn attributes(&self, object: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let table = self.0.table.borrow();
        let found = table.find(object).map(|(_, object)| object);
        let found = found.ok_or_else(|| self.0.disk.not_found(object))?;
        Ok(decode_attributes(&found.attributes).expect("checked when they came in"))
    }

    pub async fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Result<Version, StoreError> {
        let parts = self.0;
        parts.stage(4 * 1034 + 60).await?;
        let version = {
            let table = &mut *parts.table.change();
            let (id, found) = table
                .find(object)
                .ok_or_else(|| parts.disk.not_found(object))?;
            parts.holds(object, Some(found), change.condition)?;
            let size = found.size;
            let attributes = merge(&found.attributes, changes.iter().copied())
                .map_err(|why| parts.disk.refuse("set attributes of", object, why))?;
            parts.table_has_room(table, attributes.len() as u64 + 40)?;
            let version = parts.next_version();
            #[cfg(test)]
            parts.log(crate::tests::Step::attributes(object, &attributes, change));
            table.set_attributes(id, attributes);
            table.stamp(id, version, change.stamp, size);
            version
        };
        parts.commit.note();
        parts.finish(version, change.fua).await
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

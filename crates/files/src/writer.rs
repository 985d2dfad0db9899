//! A file being written: no reader sees it until its head says so.
//!
//! ```text
//! begin:  the head's version -> which blobs there are -> an object of its own at each store
//! write:  pieces -> under way, eight a store
//! finish: all answered -> lengths -> flush at each store -> the head, if its version is as it was -> those blobs go
//! ```
//!
//! The blobs that were there at the beginning belong to the head of then, to writers that will fail because of ours, and
//! to writers that died: none of them can be a head's once ours is. Blobs that came later are left alone, and so are all
//! where there was no head: it may be on a store that is not at hand. A head on another store than the first, or one that
//! names a store that is not at hand, refuses the writer.
//!
//! Always true: what fails before the head is written changed nothing that a reader sees.

use std::collections::VecDeque;
use std::rc::Rc;

use base::View;
use store::ops::ObjectError;
use store::{Change, Condition, NAME_MAX, ObjectCalls, Version};

use crate::error::FileError;
use crate::head::{HEAD_LEN, Head, SIZE_MAX, WIDTH_MAX, is_hex};
use crate::layout::Layout;
use crate::reader::head_at;
use crate::{DEPTH, MARK, PIECE, Place, object_of};

/// Blobs of one file that are looked at, at once.
const PAGE: usize = 1000;
/// Bytes of a blob's number.
const BLOB: usize = 16;

/// What becomes of a file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// It is replaced.
    Replace,
    /// The writer is refused.
    New,
}

/// A file being written.
pub struct Writer {
    // Fixed at the beginning.
    name: String,
    blob: String,
    object: Rc<str>,
    places: Vec<Place>,
    layout: Layout,
    /// The head's version then; 0: there was none.
    before: Version,
    /// The other objects of blobs then, by store.
    others: Vec<Vec<String>>,
    // As it is written.
    size: u64,
    /// How far each store's object reaches.
    ends: Vec<u64>,
    under_way: VecDeque<env::Task<Result<(), ObjectError>>>,
    /// Why an earlier piece could not be written: it can become no file.
    failed: Option<FileError>,
}

impl Writer {
    /// Begins to write `name`, in chunks of `stripe` bytes in turns over all of `places`; the first has the head.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn begin(
        places: &[Place],
        name: &str,
        stripe: u64,
        make: Make,
    ) -> Result<Writer, FileError> {
        check(places, name, stripe)?;
        let before = version(&places[0], name).await?;
        let elsewhere = elsewhere(&places[1..], name).await?;
        if make == Make::New && (before != Version::default() || elsewhere.is_some()) {
            return Err(FileError::Exists {
                name: name.to_owned(),
            });
        }
        if let Some(identity) = elsewhere {
            return Err(FileError::Request {
                name: name.to_owned(),
                why: format!(
                    "its head is on store {identity}: name that store first, or delete the file there"
                ),
            });
        }
        let mut others = Vec::with_capacity(places.len());
        for place in places {
            others.push(blobs(place, name).await?);
        }
        match before == Version::default() {
            // They may be of a file whose head is on a store that is not at hand.
            true => others.iter_mut().for_each(Vec::clear),
            false => check_head(places, name, !others[0].is_empty()).await?,
        }
        let mut drawn = [0; BLOB];
        env::secret("files", &mut drawn);
        let blob: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        let writer = Writer {
            object: object_of(name, &blob).into(),
            name: name.to_owned(),
            blob,
            layout: Layout {
                stripe,
                width: places.len(),
            },
            before,
            others,
            size: 0,
            ends: vec![0; places.len()],
            places: places.to_vec(),
            under_way: VecDeque::new(),
            failed: None,
        };
        for place in places {
            let made = place.objects.create(&writer.object, &[], Change::default());
            if let Err(error) = made.await {
                writer.abandon().await;
                return Err(error.into());
            }
        }
        Ok(writer)
    }

    /// How long the file is by now.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts `data` at byte `offset`. An answer says that they are under way; whether all could be written says
    /// [`Writer::finish`], or a later call.
    ///
    /// # Errors
    /// [`FileError`]: this or an earlier piece could not be written.
    pub async fn write(&mut self, offset: u64, data: View) -> Result<(), FileError> {
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|it| *it <= SIZE_MAX);
        let end = end.ok_or_else(|| FileError::Request {
            name: self.name.clone(),
            why: format!("a file has at most {SIZE_MAX} bytes"),
        })?;
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let longest = self.places.iter().map(|it| it.objects.limits().write_max);
        let longest = longest.fold(PIECE, u64::min);
        for piece in self.layout.pieces(offset, len, longest) {
            while self.under_way.len() >= DEPTH * self.places.len() {
                self.one_done().await?;
            }
            let objects = Rc::clone(&self.places[piece.store].objects);
            let object = Rc::clone(&self.object);
            let part = data.slice(piece.from as usize, piece.len as usize);
            self.under_way.push_back(env::spawn(async move {
                let written = objects.write(&object, piece.at, part, Change::default());
                written.done().await
            }));
            let reached = &mut self.ends[piece.store];
            *reached = (*reached).max(piece.at + piece.len);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Makes the file durable and then visible. What was never written reads as zeroes.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::Changed`] if another writer was first. Nothing is seen of it then, unless the error is
    /// [`ObjectError::Indeterminate`]: then all or nothing.
    pub async fn finish(mut self) -> Result<Version, FileError> {
        if let Err(error) = self.make_durable().await {
            self.abandon().await;
            return Err(error);
        }
        match self.publish().await {
            Ok(version) => {
                self.delete_others().await;
                Ok(version)
            }
            // It may yet become the head.
            Err(FileError::Store(error)) if error.ends_connection() => Err(error.into()),
            Err(error) => {
                self.abandon().await;
                Err(error)
            }
        }
    }

    /// Gives it up; what cannot be deleted now, the next writer of this file deletes.
    pub async fn abandon(mut self) {
        while !self.under_way.is_empty() {
            // What comes of it is given up with it.
            let _ = self.one_done().await;
        }
        let deleted = self
            .places
            .iter()
            .map(|it| it.objects.delete(&self.object, Change::default()));
        env::sync::join_all(deleted).await;
    }

    async fn one_done(&mut self) -> Result<(), FileError> {
        let Some(task) = self.under_way.pop_front() else {
            return Ok(());
        };
        let done = task.await.map_err(FileError::from);
        if let Err(why) = &done {
            self.failed.get_or_insert_with(|| why.clone());
        }
        done
    }

    async fn make_durable(&mut self) -> Result<(), FileError> {
        while !self.under_way.is_empty() {
            self.one_done().await?;
        }
        // The caller may have caught it.
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        for (store, place) in self.places.iter().enumerate() {
            let len = self.layout.len_at(self.size, store);
            if self.ends[store] < len {
                let set = place.objects.truncate(&self.object, len, Change::default());
                set.await?;
            }
        }
        let flushed = self.places.iter().map(|it| it.objects.flush());
        let flushed = env::sync::join_all(flushed).await;
        Ok(flushed.into_iter().collect::<Result<(), ObjectError>>()?)
    }

    async fn publish(&self) -> Result<Version, FileError> {
        let head = Head {
            blob: self.blob.clone(),
            stripe: self.layout.stripe,
            width: self.layout.width,
            copies: 1,
            size: self.size,
            stores: self.places.iter().map(|it| it.identity.clone()).collect(),
        };
        let bytes = head.encode().ok_or_else(|| FileError::Request {
            name: self.name.clone(),
            why: "its size or its stores fit no head".to_owned(),
        })?;
        let first = &self.places[0];
        let change = Change::FUA
            .creating()
            .only_if(Condition::Version(self.before));
        let written = first
            .objects
            .write(&self.name, 0, View::copy_of(&bytes), change);
        match written.await {
            Ok(version) => Ok(version),
            Err(error @ (ObjectError::Refused(_) | ObjectError::Absent(_))) => {
                // Refused for its version, if that is another one.
                match version(first, &self.name).await? == self.before {
                    true => Err(error.into()),
                    false => Err(FileError::Changed {
                        name: self.name.clone(),
                    }),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What cannot be deleted now, the next writer of this file deletes.
    async fn delete_others(&self) {
        for (place, others) in self.places.iter().zip(&self.others) {
            let deleted = others
                .iter()
                .map(|it| place.objects.delete(it, Change::default()));
            env::sync::join_all(deleted).await;
        }
    }
}

/// Can there be such a file?
fn check(places: &[Place], name: &str, stripe: u64) -> Result<(), FileError> {
    let refuse = |why: String| {
        Err(FileError::Request {
            name: name.to_owned(),
            why,
        })
    };
    if name.contains(MARK) {
        return refuse(format!("names with {MARK:?} are for the data of files"));
    }
    if name.is_empty() || name.len() + MARK.len() + 2 * BLOB > NAME_MAX {
        let most = NAME_MAX - MARK.len() - 2 * BLOB;
        return refuse(format!("the name of a file has 1 to {most} bytes"));
    }
    if !(1..=WIDTH_MAX).contains(&places.len()) {
        let found = places.len();
        return refuse(format!(
            "a file lies on 1 to {WIDTH_MAX} stores, not {found}"
        ));
    }
    if !stripe.is_power_of_two() || !(4 << 10..=1 << 30).contains(&stripe) {
        return refuse(format!(
            "a stripe of {stripe} bytes is no power of two from 4 KiB to 1 GiB"
        ));
    }
    Ok(())
}

/// The store of these that has an object of this name, if one has.
async fn elsewhere(places: &[Place], name: &str) -> Result<Option<String>, FileError> {
    for place in places {
        if version(place, name).await? != Version::default() {
            return Ok(Some(place.identity.clone()));
        }
    }
    Ok(None)
}

/// The version of an object, 0 where there is none. An object that no head can be is refused.
async fn version(place: &Place, name: &str) -> Result<Version, FileError> {
    match place.objects.stat(name).await {
        Ok(stat) if stat.size == HEAD_LEN => Ok(stat.version),
        Ok(stat) => Err(FileError::Plain {
            name: name.to_owned(),
            why: format!("it has {} bytes, where a head has {HEAD_LEN}", stat.size),
        }),
        Err(ObjectError::Absent(_)) => Ok(Version::default()),
        Err(error) => Err(error.into()),
    }
}

/// Is the object of that name a head, of stores that are all at hand? Who may only write cannot read it: then its length
/// and its data must do.
async fn check_head(places: &[Place], name: &str, has_data: bool) -> Result<(), FileError> {
    match head_at(&places[0].objects, name).await {
        Ok(None) => Ok(()),
        Ok(Some(head)) => {
            let is_here = |it: &&String| places.iter().any(|place| place.identity == **it);
            match head.stores.iter().find(|it| !is_here(it)) {
                None => Ok(()),
                Some(identity) => Err(FileError::Elsewhere {
                    name: name.to_owned(),
                    identity: identity.clone(),
                }),
            }
        }
        Err(FileError::Store(ObjectError::Refused(_))) if has_data => Ok(()),
        Err(FileError::Store(ObjectError::Refused(why))) => Err(FileError::Plain {
            name: name.to_owned(),
            why: format!("it has no data beside it, and cannot be looked into ({why})"),
        }),
        Err(error) => Err(error),
    }
}

/// The objects of blobs of this file at one store.
async fn blobs(place: &Place, name: &str) -> Result<Vec<String>, FileError> {
    let prefix = object_of(name, "");
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let part = place.objects.list(&prefix, after.as_deref(), PAGE).await?;
        let names = part.objects.into_iter().map(|stat| stat.name);
        // Others may have names that begin so.
        let is_blob = |name: &String| {
            let number = &name[prefix.len()..];
            is_hex(number)
        };
        all.extend(names.filter(is_blob));
        after = part.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

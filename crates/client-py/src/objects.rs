//! Plain objects of one store, as `tanada object` has them.
//!
//! ```text
//! put: pieces, eight under way, to NAME.put-... -> flush -> renamed to NAME
//! get: stat -> pieces, eight under way -> stat: the same version -> bytes
//! ```
//!
//! Always true: a put is seen whole or not at all, and a get has the bytes of one version.

use std::collections::VecDeque;
use std::rc::Rc;

use base::{Buf, Bytes, Parcel};
use serde::Serialize;
use store::ops::ObjectError;
use store::{Change, ObjectCalls, Stat};

use crate::failure::{Failure, Kind};
use crate::ways::Store;

/// The longest read or write that is asked for.
const PIECE: u64 = Bytes::mib(1).0;
/// Pieces under way at once.
const DEPTH: usize = 8;
/// Objects asked for at once by a list.
const PAGE: usize = 1000;

/// An object, with the keys that the command line prints.
#[derive(Serialize)]
pub struct Shown {
    name: String,
    size_bytes: u64,
    generation: String,
    born: String,
    mark: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Vec<(String, String)>>,
}

impl From<Stat> for Shown {
    fn from(stat: Stat) -> Shown {
        Shown {
            name: stat.name,
            size_bytes: stat.size,
            generation: stat.version.to_string(),
            born: stat.born.to_string(),
            mark: stat.stamp,
            attributes: None,
        }
    }
}

/// What is to be put, cut for the way to the thread of connections.
pub fn cut(data: &[u8]) -> Vec<Parcel> {
    let pieces = data.chunks(PIECE as usize);
    pieces
        .map(|piece| Parcel::new(Buf::copy_of(piece)))
        .collect()
}

/// Puts an object; its generation.
pub async fn put(
    store: Store,
    name: &str,
    data: Vec<Parcel>,
    is_new: bool,
) -> Result<String, Failure> {
    let store = Rc::new(store);
    let mut drawn = [0; 6];
    env::secret("put", &mut drawn);
    let suffix: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    let part: Rc<str> = format!("{name}.put-{suffix}").into();
    let done = match send(&store, &part, data).await {
        Ok(()) => store.rename(&part, name, !is_new, Change::FUA).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(version) => Ok(version.to_string()),
        Err(error) => {
            // What is left of it is in the list of objects.
            let _ = store.delete(&part, Change::default()).await;
            Err(error.into())
        }
    }
}

async fn send(store: &Rc<Store>, part: &Rc<str>, data: Vec<Parcel>) -> Result<(), ObjectError> {
    store.create(part, &[], Change::default()).await?;
    let (mut at, mut under_way) = (0, VecDeque::new());
    for piece in data {
        let piece = piece.open().freeze();
        let (from, len) = (at, piece.len() as u64);
        let (store, part) = (Rc::clone(store), Rc::clone(part));
        under_way.push_back(env::spawn(async move {
            store
                .write(&part, from, piece, Change::default())
                .done()
                .await
        }));
        at += len;
        if under_way.len() == DEPTH
            && let Some(first) = under_way.pop_front()
        {
            first.await?;
        }
    }
    for rest in under_way {
        rest.await?;
    }
    store.flush().await
}

/// The bytes of an object.
pub async fn get(store: Store, name: &str) -> Result<Vec<u8>, Failure> {
    let store = Rc::new(store);
    let stat = store.stat(name).await?;
    let name: Rc<str> = name.into();
    let mut bytes = Vec::with_capacity(stat.size as usize);
    let (mut asked, mut under_way) = (0, VecDeque::new());
    while (bytes.len() as u64) < stat.size {
        while asked < stat.size && under_way.len() < DEPTH {
            let (from, len) = (asked, PIECE.min(stat.size - asked));
            let (store, name) = (Rc::clone(&store), Rc::clone(&name));
            under_way.push_back(env::spawn(
                async move { store.read(&name, from, len).await },
            ));
            asked += len;
        }
        match under_way.pop_front() {
            Some(first) => match first.await? {
                piece if piece.is_empty() => break,
                piece => bytes.extend_from_slice(&piece),
            },
            None => break,
        }
    }
    match store.stat(&name).await {
        Ok(after) if after.version == stat.version && bytes.len() as u64 == stat.size => Ok(bytes),
        Ok(_) | Err(ObjectError::Absent(_)) => {
            let why = format!("{name:?} was changed while it was read; get it again");
            Err(Failure::new(Kind::Conflict, why))
        }
        Err(error) => Err(error.into()),
    }
}

/// The objects whose names begin so.
pub async fn list(store: Store, prefix: &str) -> Result<Vec<Shown>, Failure> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let part = store.list(prefix, after.as_deref(), PAGE).await?;
        all.extend(part.objects.into_iter().map(Shown::from));
        after = part.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// What an object is like.
pub async fn head(store: Store, name: &str) -> Result<Shown, Failure> {
    let mut shown = Shown::from(store.stat(name).await?);
    let attributes = store.attributes(name).await?.into_iter();
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    shown.attributes = Some(
        attributes
            .map(|(name, value)| (name, text(value)))
            .collect(),
    );
    Ok(shown)
}

/// Deletes an object, durably.
pub async fn delete(store: Store, name: &str) -> Result<(), Failure> {
    store.delete(name, Change::FUA).await?;
    Ok(())
}

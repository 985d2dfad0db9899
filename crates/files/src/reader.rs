//! A file being read: any bytes of it, from all its stores at once.
//!
//! ```text
//! open: the head, at the first store that has the name -> a way to each of its stores
//! read: pieces of the range -> all under way, eight a store -> one after the other into the answer
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use base::Buf;
use store::ObjectCalls;
use store::ops::ObjectError;

use crate::error::FileError;
use crate::head::{HEAD_LEN, Head};
use crate::layout::Piece;
use crate::{DEPTH, Objects, PIECE, Place, object_of};

/// A file being read, as it was when it was opened.
pub struct Reader {
    name: String,
    head: Head,
    /// Where the head is.
    first: Rc<Objects>,
    /// Those of the head, in its order.
    stores: Vec<Rc<Objects>>,
    object: Rc<str>,
}

impl Reader {
    /// Opens the file `name` on some of `places`; its head is at the first one that has it.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn open(places: &[Place], name: &str) -> Result<Reader, FileError> {
        let (first, head) = find(places, name).await?;
        let mut stores = Vec::with_capacity(head.width);
        for identity in &head.stores {
            let place = places.iter().find(|it| it.identity == *identity);
            let place = place.ok_or_else(|| FileError::Elsewhere {
                name: name.to_owned(),
                identity: identity.clone(),
            })?;
            stores.push(Rc::clone(&place.objects));
        }
        Ok(Reader {
            object: object_of(name, &head.blob).into(),
            name: name.to_owned(),
            first,
            stores,
            head,
        })
    }

    /// What its head says.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Reads at most `len` bytes from byte `offset` on: fewer where the file ends.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::Replaced`] if another writer put other data there since it was opened.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        let len = len.min(self.head.size.saturating_sub(offset));
        let mut bytes = Vec::with_capacity(len as usize);
        let mut under_way = VecDeque::new();
        let mut pieces = self.head.layout().pieces(offset, len, self.piece());
        loop {
            while under_way.len() < DEPTH * self.stores.len()
                && let Some(piece) = pieces.next()
            {
                under_way.push_back((piece, self.ask(piece)));
            }
            let Some((piece, read)) = under_way.pop_front() else {
                return Ok(bytes);
            };
            match read.await {
                Ok(data) if data.len() as u64 == piece.len => bytes.extend_from_slice(&data),
                Ok(data) => return Err(self.short(piece, data.len()).await),
                Err(ObjectError::Absent(why)) => return Err(self.gone(why).await),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&self, piece: Piece) -> env::Task<Result<Buf, ObjectError>> {
        let (store, object) = (
            Rc::clone(&self.stores[piece.store]),
            Rc::clone(&self.object),
        );
        env::spawn(async move { store.read(&object, piece.at, piece.len).await })
    }

    /// The longest piece that every store takes.
    fn piece(&self) -> u64 {
        let longest = self.stores.iter().map(|it| it.limits().read_max);
        longest.fold(PIECE, u64::min)
    }

    async fn short(&self, piece: Piece, found: usize) -> FileError {
        let Piece { at, len, .. } = piece;
        let object = &self.object;
        self.gone(format!(
            "{found} of {len} bytes of {object} are there at byte {at}"
        ))
        .await
    }

    /// Why data of the head are not there: another writer's head, or damage.
    async fn gone(&self, why: String) -> FileError {
        let name = self.name.clone();
        match head_at(&self.first, &name).await {
            Ok(Some(head)) if head.blob == self.head.blob => FileError::Damaged { name, why },
            Ok(_) => FileError::Replaced { name },
            Err(error) => error,
        }
    }
}

/// The head of a file, and the store where it is.
async fn find(places: &[Place], name: &str) -> Result<(Rc<Objects>, Head), FileError> {
    for place in places {
        if let Some(head) = head_at(&place.objects, name).await? {
            return Ok((Rc::clone(&place.objects), head));
        }
    }
    Err(FileError::Absent {
        name: name.to_owned(),
        stores: places.len(),
    })
}

/// The head that a store has under this name, if it has any object of it.
pub(crate) async fn head_at(objects: &Rc<Objects>, name: &str) -> Result<Option<Head>, FileError> {
    // One byte more shows an object that is longer.
    let read = objects.read(name, 0, HEAD_LEN + 1).await;
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(ObjectError::Absent(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let head = Head::decode(&bytes).map_err(|why| FileError::Plain {
        name: name.to_owned(),
        why,
    })?;
    Ok(Some(head))
}

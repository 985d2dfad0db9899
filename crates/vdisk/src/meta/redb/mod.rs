//! The meta store of one node: a redb file in the data directory.
//!
//! ```text
//! data threads: get, txn, ... -> commands -> the file's thread: all that wait -> one commit -> answers
//! ```
//!
//! redb's calls wait for the disk, so the file has a thread of its own. That thread keeps all entries in memory too:
//! they are few and small, and reads wait for no disk. Commands that wait are carried out together and made durable by
//! one commit; nothing is answered before. Changes of the past are kept in memory alone: no watch outlives the process.
//!
//! Always true:
//! 1. What was answered is in the file, durable.
//! 2. After a commit that failed nothing more is answered from memory: it may have more than the file.
//! 3. A lease that was there when the process ended is over when the file is opened again. One that was there when the file was closed in good
//!    order has its whole time again.
//!
//! Which clients could still count on a lease that was there? Only the one that took it: a client of this file, and all of
//! them were in the one process that had the file locked. That lock ends with the process, or when the file is closed. So
//! where the file was not closed, the process is gone, and with it every client that would answer a request by a lease; what
//! it sent to stores before is refused by their seals, as anything a lease does not hold back. Where it was closed, its
//! clients may live on in the process and count on the answers they had.

mod client;
mod error;
mod file;
mod thread;

use std::path::Path;
use std::thread::JoinHandle;

use ::redb::Database;
use env::{RealConfig, Runtime};
use tokio::sync::watch;

pub use client::RedbHandle;
pub use error::RedbError;
use file::{Found, open};
use thread::serve;

/// A meta store in a file. Closed when dropped: later calls fail as closed.
///
/// # Example
/// ```
/// use vdisk::meta::{Op, Redb};
/// let dir = tempfile::tempdir()?;
/// let redb = Redb::open(&dir.path().join("meta.redb"))?;
/// let handle = redb.handle(); // goes to any thread
/// env::Runtime::real(env::RealConfig::default())?.block_on(async move {
///     let meta = handle.client();
///     let put = Op::Put { key: "store/1".into(), value: b"here".to_vec(), lease: None };
///     meta.txn(vec![], vec![put]).await?;
///     assert_eq!(meta.get("store/1").await?.unwrap().value, b"here");
///     Ok::<(), vdisk::meta::MetaError>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Redb {
    handle: RedbHandle,
    thread: Option<JoinHandle<()>>,
}

impl Redb {
    /// Opens the file, or makes one where there is none. Waits for the disk.
    ///
    /// # Errors
    /// [`RedbError`] says why.
    pub fn open(path: &Path) -> Result<Redb, RedbError> {
        let (database, found) = open(path)?;
        Redb::serve(database, found, path)
    }

    fn serve(database: Database, found: Found, path: &Path) -> Result<Redb, RedbError> {
        let (poster, mailbox) = env::mailbox();
        let (durable_sender, durable) = watch::channel(found.revision.0);
        let (ready, started) = std::sync::mpsc::channel();
        let thread_failed = |source| RedbError::Thread {
            path: path.to_owned(),
            source,
        };
        let thread = std::thread::Builder::new()
            .name("meta".to_owned())
            .spawn(move || {
                // A runtime for its clock and its mailbox; the commits hold up no other task on it.
                let runtime = match Runtime::real(RealConfig::default()) {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                runtime.block_on(serve(database, found, mailbox, durable_sender));
            })
            .map_err(thread_failed)?;
        let gone = || std::io::Error::other("the thread ended before it began");
        started
            .recv()
            .unwrap_or_else(|_| Err(gone()))
            .map_err(thread_failed)?;
        Ok(Redb {
            handle: RedbHandle::new(path, poster, durable),
            thread: Some(thread),
        })
    }

    /// A way to it for other threads.
    pub fn handle(&self) -> RedbHandle {
        self.handle.clone()
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use ::redb::StorageBackend;

    use base::Nanos;

    use super::file::find;
    use super::*;
    use crate::meta::{MetaError, Op};

    /// A file in memory, on a disk that can be full.
    #[derive(Debug, Clone, Default)]
    struct File {
        bytes: Arc<Mutex<Vec<u8>>>,
        full: Arc<AtomicBool>,
    }

    impl File {
        fn room(&self) -> io::Result<()> {
            match self.full.load(Ordering::SeqCst) {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            }
        }

        fn open(&self) -> Redb {
            let path = Path::new("meta.redb");
            let failed = |source: ::redb::Error| RedbError::Database {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let mut builder = Database::builder();
            // What is written goes to the file at once.
            let builder = builder.set_cache_size(0);
            let database = builder.create_with_backend(self.clone()).unwrap();
            let found = find(&database, path, &failed).unwrap();
            Redb::serve(database, found, path).unwrap()
        }
    }

    impl StorageBackend for File {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = self.bytes.lock().unwrap();
            let from = offset as usize;
            let found = bytes.get(from..from + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.bytes.lock().unwrap().resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.room()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            let from = offset as usize;
            self.bytes.lock().unwrap()[from..from + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn put(key: &str) -> Vec<Op> {
        vec![Op::Put {
            key: key.to_owned(),
            value: b"1".to_vec(),
            lease: None,
        }]
    }

    #[test]
    fn a_file_on_a_full_disk_says_so_and_nothing_is_answered_that_is_not_in_it() {
        let file = File::default();
        let redb = file.open();
        let (handle, disk) = (redb.handle(), file.clone());
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async move {
            let meta = handle.client();
            meta.txn(Vec::new(), put("a")).await.unwrap();
            disk.full.store(true, Ordering::SeqCst);
            let error = meta.txn(Vec::new(), put("b")).await.unwrap_err();
            assert!(matches!(error, MetaError::Unknown { .. }), "{error:?}");
            let said = error.to_string();
            assert!(said.contains("the file cannot be written"), "{said}");
            // What is in memory may be more than is in the file.
            for key in ["a", "b"] {
                let error = meta.get(key).await.unwrap_err();
                assert!(matches!(error, MetaError::Unavailable { .. }), "{error:?}");
            }
            let error = meta.lease(Nanos::secs(5)).await.unwrap_err();
            assert!(error.to_string().contains("cannot be written"), "{error}");
        });
        drop(redb);
        // Room was made, and it was started again.
        file.full.store(false, Ordering::SeqCst);
        let redb = file.open();
        let handle = redb.handle();
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async move {
            let meta = handle.client();
            assert_eq!(meta.get("a").await.unwrap().unwrap().value, b"1");
            assert_eq!(meta.get("b").await.unwrap(), None);
            meta.txn(Vec::new(), put("b")).await.unwrap();
        });
    }
}

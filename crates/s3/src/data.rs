//! The stores as threads of requests reach them: each call is carried out on the data thread.
//!
//! ```text
//! thread of requests: Data::write, read ... -> job -> mailbox -> data thread: a task each, on Blobs -> answer
//! ```
//!
//! Always true:
//! 1. A buffer crosses threads without another owner: what is written is copied once, what is read is not.
//!    That of a read goes back to the data thread, whose pool it is from.
//! 2. Once the data thread is gone every call fails.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use base::{Parcel, View};
use bytes::Bytes;
use env::{Mailbox, Poster};
use futures::future::{Either, select};
use policy::share::Direction;
use store::ops::ObjectError;
use tokio::sync::oneshot;

use crate::blobs::Blobs;
use crate::index::record::BlobRef;
use crate::index::{Disk, Ranges};
use crate::lanes::{Delivered, Qos};

/// Done on the data thread.
pub type Job = Box<dyn FnOnce(Rc<Blobs>) + Send>;
/// What is done there.
type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// A way to the stores. Cloning gives another one.
#[derive(Clone)]
pub struct Data {
    jobs: Poster<Job>,
    /// Another node may take the stores over.
    is_shared: bool,
}

/// The data thread's end of it.
pub struct Jobs(Mailbox<Job>);

/// The buffer of a read, until the last of its bytes is gone.
///
/// Without the way back the data thread would take new memory for each read, and pools of other threads would fill with it.
struct Lent {
    parcel: Option<Parcel>,
    back: Poster<Job>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.parcel.as_ref().map_or(&[], Parcel::as_ref)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let parcel = self.parcel.take();
        // Where the data thread has ended it is freed here.
        drop(self.back.post(Box::new(move |_| drop(parcel))));
    }
}

/// Why the stores did not do what they were asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// What the store says.
    #[error("{0}")]
    Store(#[from] ObjectError),
    /// The daemon ends, or another node serves now.
    #[error("the store is not open here any more: the daemon ends, or another node has it")]
    Closed,
}

/// Both ends; `is_shared`: another node may take the stores over.
pub fn data(is_shared: bool) -> (Data, Jobs) {
    let (jobs, mailbox) = env::mailbox();
    (Data { jobs, is_shared }, Jobs(mailbox))
}

impl Jobs {
    /// Carries out what is asked, until nothing can ask any more.
    pub async fn serve(mut self, blobs: Rc<Blobs>) {
        while let Ok(job) = self.0.receive().await {
            job(Rc::clone(&blobs));
        }
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Data")
    }
}

impl Data {
    fn post<T: Send + 'static>(
        &self,
        work: impl FnOnce(Rc<Blobs>) -> Work<T> + Send + 'static,
        answer: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), DataError> {
        let job: Job = Box::new(move |blobs| {
            let work = work(blobs);
            env::spawn(async move { answer(work.await) });
        });
        self.jobs.post(job).map_err(|_| DataError::Closed)
    }

    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(Rc<Blobs>) -> Work<Result<T, ObjectError>> + Send + 'static,
    ) -> Result<T, DataError> {
        let (send, answer) = oneshot::channel();
        // The one that asked may be gone.
        self.post(work, |done| drop(send.send(done)))?;
        Ok(answer.await.map_err(|_| DataError::Closed)??)
    }

    /// As [`Blobs::write`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn write(
        &self,
        qos: &Qos,
        (blob, offset): (&BlobRef, u64),
        data: Bytes,
    ) -> Result<(), DataError> {
        self.pass(qos, Direction::Write, data.len() as u64).await?;
        let (qos, blob) = (qos.clone(), blob.clone());
        let write = move |blobs: Rc<Blobs>| -> Work<_> {
            let at = async move {
                let data = View::copy_of(&data);
                blobs.write(&qos, (&blob, offset), data).await
            };
            Box::pin(at)
        };
        self.ask(write).await
    }

    /// As [`Blobs::flush`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn flush(&self) -> Result<(), DataError> {
        self.ask(|blobs| Box::pin(async move { blobs.flush().await }))
            .await
    }

    /// As [`Blobs::read`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn read(
        &self,
        qos: &Qos,
        (blob, offset): (&BlobRef, u64),
        len: u64,
    ) -> Result<Bytes, DataError> {
        self.pass(qos, Direction::Read, len).await?;
        let (qos, blob) = (qos.clone(), blob.clone());
        let read = move |blobs: Rc<Blobs>| -> Work<_> {
            let read = async move { blobs.read(&qos, (&blob, offset), len).await };
            Box::pin(async move { read.await.map(Parcel::new) })
        };
        let parcel = self.ask(read).await?;
        Ok(Bytes::from_owner(Lent {
            parcel: Some(parcel),
            back: self.jobs.clone(),
        }))
    }

    /// As [`Blobs::pass`]; given up with its future.
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn pass(&self, qos: &Qos, direction: Direction, bytes: u64) -> Result<(), DataError> {
        if qos.caps.is_empty() {
            return Ok(());
        }
        let qos = qos.clone();
        let (mut send, answer) = oneshot::channel();
        let job: Job = Box::new(move |blobs| {
            env::spawn(async move {
                // Whose request was given up takes nothing of the cap, and stands in no line.
                let passed = {
                    let pass = std::pin::pin!(blobs.pass(&qos, direction, bytes));
                    let gone = std::pin::pin!(send.closed());
                    match select(pass, gone).await {
                        Either::Left((passed, _)) => passed,
                        Either::Right(_) => return,
                    }
                };
                drop(send.send(passed));
            });
        });
        self.jobs.post(job).map_err(|_| DataError::Closed)?;
        Ok(answer.await.map_err(|_| DataError::Closed)??)
    }

    /// As [`Blobs::delivered`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn delivered(&self, qos: &Qos, direction: Direction) -> Result<Delivered, DataError> {
        let qos = qos.clone();
        self.ask(move |blobs| Box::pin(async move { blobs.delivered(&qos, direction) }))
            .await
    }

    /// As [`Blobs::delete`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn delete(&self, blob: &BlobRef) -> Result<(), DataError> {
        let blob = blob.clone();
        self.ask(move |blobs| Box::pin(async move { blobs.delete(&blob).await }))
            .await
    }

    /// As [`Blobs::blobs_after`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn blobs_after(
        &self,
        store: usize,
        after: Option<String>,
    ) -> Result<(Vec<BlobRef>, Option<String>), DataError> {
        self.ask(move |blobs| Box::pin(async move { blobs.blobs_after(store, after).await }))
            .await
    }

    /// As [`Blobs::still_ours`]; at once where no other node can take the stores over.
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn still_ours(&self) -> Result<(), DataError> {
        match self.is_shared {
            false => Ok(()),
            true => {
                self.ask(|blobs| Box::pin(async move { blobs.still_ours().await }))
                    .await
            }
        }
    }

    /// As [`Blobs::is_full`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn is_full(&self) -> Result<bool, DataError> {
        self.ask(|blobs| Box::pin(async move { blobs.is_full().await }))
            .await
    }

    /// As [`Blobs::width`].
    ///
    /// # Errors
    /// [`DataError`].
    pub async fn width(&self) -> Result<usize, DataError> {
        self.ask(|blobs| Box::pin(async move { Ok(blobs.width()) }))
            .await
    }

    /// Waits for an answer on a thread that may.
    fn wait<T: Send + 'static>(
        &self,
        work: impl FnOnce(Rc<Blobs>) -> Work<Result<T, ObjectError>> + Send + 'static,
    ) -> io::Result<T> {
        let (send, answer) = std::sync::mpsc::sync_channel(1);
        let posted = self.post(work, move |done| drop(send.send(done)));
        let failed = |error: DataError| io::Error::other(error.to_string());
        posted.map_err(failed)?;
        let done = answer.recv().map_err(|_| failed(DataError::Closed))?;
        done.map_err(|error| failed(error.into()))
    }
}

/// The index lies in the first store.
impl Disk for Data {
    fn length(&self) -> io::Result<u64> {
        self.wait(|blobs| Box::pin(async move { blobs.index_len().await }))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let len = out.len() as u64;
        let bytes =
            self.wait(move |blobs| Box::pin(async move { blobs.read_index(offset, len).await }))?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn write(&self, cut: u64, len: u64, ranges: Ranges) -> io::Result<()> {
        self.wait(move |blobs| Box::pin(async move { blobs.write_index(cut, len, ranges).await }))
    }

    fn has_blobs(&self) -> io::Result<bool> {
        self.wait(|blobs| {
            Box::pin(async move {
                for store in 0..blobs.width() {
                    if !blobs.blobs_after(store, None).await?.0.is_empty() {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use base::Bytes as Length;
    use device::Memory;

    use super::*;
    use crate::lanes::tests::manager;

    async fn serve(jobs: Jobs) {
        let device = Memory::new("a", Length::mib(64));
        let blobs = Blobs::new(vec![manager(device).await]).unwrap();
        jobs.serve(Rc::new(blobs)).await;
    }

    #[tokio::test]
    async fn the_buffer_of_a_read_is_the_next_read_s() {
        let (data, jobs) = data(false);
        let thread = std::thread::Builder::new();
        let thread = thread.spawn(move || {
            let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
            runtime.block_on(serve(jobs));
        });
        let qos = Qos::default();
        let blob = BlobRef {
            folder: "photos".into(),
            id: "00674869c10123456789abcdef".into(),
            size: 1 << 20,
        };
        let written = Bytes::from(vec![7; 1 << 20]);
        data.write(&qos, (&blob, 0), written.clone()).await.unwrap();
        let mut places = Vec::new();
        for _ in 0..3 {
            let read = data.read(&qos, (&blob, 0), 1 << 20).await.unwrap();
            let (first, rest) = (read.slice(..10), read.slice(10..));
            drop(read);
            assert!(first[..] == written[..10] && rest[..] == written[10..]);
            places.push(rest.as_ptr() as usize - first.len());
        }
        assert!(places[0].is_multiple_of(base::PAGE), "no copy begins so");
        assert_eq!(places, [places[0]; 3]);
        drop(data);
        thread.unwrap().join().unwrap();
    }
}

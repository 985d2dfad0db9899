//! How do two processes that share memory wake each other?
//!
//! ```text
//! notify: 8 bytes into an eventfd or a pipe     wait: until there are some, and takes them
//! ```

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

use super::descriptor::{Count, Descriptor, Kind, Object, Simulated, Writes, unfit};
use crate::executor::start;
use crate::real::Operation;

/// An eventfd, or an end of a pipe. Dropping a wait loses no notification.
///
/// # Example
/// ```
/// use env::shared::Descriptor;
/// env::Runtime::simulated(1).block_on(async {
///     let notifier = Descriptor::event()?.notifier()?;
///     notifier.notify()?;
///     notifier.wait().await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Notifier(Wakes);

enum Wakes {
    Real(Rc<OwnedFd>),
    Simulated(Rc<Count>, Option<Writes>),
}

fn is_eventfd(descriptor: &OwnedFd) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    Ok(link.as_os_str() == "anon_inode:[eventfd]")
}

impl Notifier {
    /// See [`Descriptor::notifier`].
    pub(super) fn of(descriptor: &Descriptor) -> io::Result<Notifier> {
        let kind = match &descriptor.0 {
            Kind::Real(descriptor) => {
                let status = rustix::fs::fstat(descriptor)?;
                let is_pipe = FileType::from_raw_mode(status.st_mode) == FileType::Fifo;
                if !is_pipe && !is_eventfd(descriptor)? {
                    return Err(unfit("it is neither an eventfd nor a pipe"));
                }
                Wakes::Real(Rc::clone(descriptor))
            }
            Kind::Simulated(Simulated {
                object: Object::Event(count),
                writes,
            }) => Wakes::Simulated(Rc::clone(count), writes.clone()),
            Kind::Simulated(_) => return Err(unfit("it is no eventfd")),
        };
        Ok(Notifier(kind))
    }

    /// Waits until the peer has notified since the last wait.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` if it is a pipe whose other end is gone.
    pub async fn wait(&self) -> io::Result<()> {
        match &self.0 {
            // Who waits has most often nothing to take yet, so the wait comes first.
            Wakes::Real(descriptor) => loop {
                let socket = Rc::clone(descriptor);
                let events = PollFlags::IN;
                start(Operation::Ready { socket, events })?.await.0?;
                match take(descriptor) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => return Ok(()),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
            },
            Wakes::Simulated(count, _) => {
                while count.count.get() == 0 {
                    count.changed.wait().await;
                }
                count.count.set(0);
                Ok(())
            }
        }
    }

    /// Wakes the peer. It is enough for one that has not taken earlier notifications.
    ///
    /// # Errors
    /// The system's, if the peer is gone.
    pub fn notify(&self) -> io::Result<()> {
        match &self.0 {
            // One that is full has notifications enough, and may be one that is waited for: the peer can choose that at any
            // time.
            Wakes::Real(descriptor) if !is_ready(descriptor, PollFlags::OUT)? => Ok(()),
            Wakes::Real(descriptor) => loop {
                match rustix::io::write(descriptor, &1u64.to_ne_bytes()) {
                    Err(Errno::INTR) => {}
                    // Full of notifications.
                    Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
            },
            Wakes::Simulated(count, writes) => {
                let one = 1u64.to_le_bytes();
                if writes.as_ref().is_none_or(|writes| writes(0, &one)) {
                    count.count.set(count.count.get() + 1);
                    count.changed.notify_all();
                }
                Ok(())
            }
        }
    }
}

/// Takes what is there, and never waits, whatever the peer chose for its descriptor, which is left as it is.
fn take(descriptor: &OwnedFd) -> Result<usize, Errno> {
    let mut bytes = [0; 512];
    let mut buffers = [io::IoSliceMut::new(&mut bytes)];
    // From the descriptor's own place: it has none.
    match rustix::io::preadv2(descriptor, &mut buffers, u64::MAX, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) if is_ready(descriptor, PollFlags::IN)? => {
            rustix::io::read(descriptor, &mut bytes)
        }
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
        answer => answer,
    }
}

/// Can it be read or written, as `events` says, without a wait? True as well if that would fail at once.
fn is_ready(descriptor: &OwnedFd, events: PollFlags) -> Result<bool, Errno> {
    let mut set = [PollFd::new(descriptor, events)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        match rustix::event::poll(&mut set, Some(&now)) {
            Err(Errno::INTR) => {}
            answer => return answer.map(|count| count > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;
    use crate::{Choice, RealConfig, Runtime};

    fn real(thread_pool: Choice) -> Runtime {
        Runtime::real(RealConfig {
            thread_pool,
            ..RealConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn a_notification_is_taken_once_by_eventfd_and_pipe() {
        for choice in [Choice::Auto, Choice::Always] {
            real(choice).block_on(async {
                let event = Descriptor::event().unwrap();
                let (reader, writer) = io::pipe().unwrap();
                let pipe = [OwnedFd::from(reader), writer.into()].map(Descriptor::from);
                for [reader, writer] in [[event.clone(), event], pipe] {
                    let (reader, writer) = (reader.notifier().unwrap(), writer.notifier().unwrap());
                    let waiting = env_wait(reader);
                    crate::sleep(Nanos::millis(5)).await;
                    writer.notify().unwrap();
                    let reader = waiting.await;
                    writer.notify().unwrap();
                    writer.notify().unwrap();
                    reader.wait().await.unwrap();
                    let none = crate::timeout(Nanos::millis(5), reader.wait()).await;
                    assert!(none.is_err(), "they were taken");
                }
            });
        }
    }

    fn env_wait(notifier: Notifier) -> crate::Task<Notifier> {
        crate::spawn(async move {
            notifier.wait().await.unwrap();
            notifier
        })
    }

    #[test]
    fn a_pipe_whose_other_end_is_gone_ends_the_wait() {
        real(Choice::Auto).block_on(async {
            let (reader, writer) = io::pipe().unwrap();
            let reader = Descriptor::from(OwnedFd::from(reader)).notifier().unwrap();
            let waiting = crate::spawn(async move { reader.wait().await });
            crate::sleep(Nanos::millis(5)).await;
            drop(writer);
            let ended = waiting.await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        });
    }

    /// A peer that fills its counter, and only then lets writes to it wait, stops nothing.
    #[test]
    fn a_full_notifier_is_not_waited_for() {
        let event = Descriptor::event().unwrap();
        let notifier = event.notifier().unwrap();
        let theirs = event.as_real().unwrap();
        rustix::io::write(theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(theirs, rustix::fs::OFlags::empty()).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        let theirs = theirs.try_clone().unwrap();
        let free = move || {
            let waited = is_done.recv_timeout(std::time::Duration::from_secs(5));
            if waited.is_err() {
                // Takes what fills it, so that the test ends.
                let _ = rustix::io::read(&theirs, &mut [0; 8]);
            }
            waited
        };
        let freeing = std::thread::Builder::new().spawn(free).unwrap();
        notifier.notify().unwrap();
        let _ = done.send(());
        assert_eq!(freeing.join().unwrap(), Ok(()), "it was not waited for");
    }

    #[test]
    fn what_is_neither_eventfd_nor_pipe_is_refused() {
        let memory = Descriptor::memory(4096).unwrap();
        let refused = memory.notifier().map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}

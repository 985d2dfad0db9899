//! Which disks of the kernel (ublk) wait for a daemon, whosever they are?
//!
//! ```text
//! status -> a thread of its own -> the driver: its disks -> those whose server is gone
//! ```
//!
//! Always true: a driver that does not answer keeps one thread, and no status, waiting; what it said last is shown.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::api::status::WaitingDisk;
use crate::daemon::common::waiting::waiting_disks;

/// Where the system lists the driver's disks.
const DISKS: &str = "/sys/class/ublk-char";
/// How long the driver may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Asks the driver.
#[derive(Debug)]
pub struct KernelDisks {
    /// One permit, held while the driver is asked.
    asking: Arc<Semaphore>,
    /// The last answer.
    last: Arc<Mutex<Vec<WaitingDisk>>>,
}

impl Default for KernelDisks {
    fn default() -> KernelDisks {
        KernelDisks {
            asking: Arc::new(Semaphore::new(1)),
            last: Arc::default(),
        }
    }
}

impl KernelDisks {
    /// Those that wait for a daemon, as the driver said last where it is busy; none where this process may not ask.
    pub async fn waiting(&self) -> Vec<WaitingDisk> {
        self.ask(Path::new(DISKS), TIMEOUT, waiting_disks).await
    }

    async fn ask(
        &self,
        disks: &Path,
        limit: Duration,
        ask: impl FnOnce() -> Vec<WaitingDisk> + Send + 'static,
    ) -> Vec<WaitingDisk> {
        let any = std::fs::read_dir(disks).is_ok_and(|mut disks| disks.next().is_some());
        if !any {
            return Vec::new();
        }
        if let Ok(permit) = Arc::clone(&self.asking).try_acquire_owned() {
            let last = Arc::clone(&self.last);
            let asking = tokio::task::spawn_blocking(move || {
                let disks = ask();
                // What is there was whole when it was put there.
                *last.lock().unwrap_or_else(PoisonError::into_inner) = disks;
                drop(permit);
            });
            // Too late, it is there for the next one who asks.
            let _ = tokio::time::timeout(limit, asking).await;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u32) -> WaitingDisk {
        WaitingDisk {
            path: format!("/dev/ublkb{number}"),
            process: Some(7),
        }
    }

    #[test]
    fn a_driver_that_does_not_answer_keeps_no_status_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (disks, long) = (KernelDisks::default(), Duration::from_secs(600));
            let folder = tempfile::tempdir().unwrap();
            let unasked = || panic!("there is nothing to ask for");
            assert!(disks.ask(folder.path(), long, unasked).await.is_empty());
            std::fs::write(folder.path().join("ublkc3"), "").unwrap();
            let at_once = disks.ask(folder.path(), long, || vec![disk(3)]).await;
            assert_eq!(at_once, [disk(3)]);
            let (answer, answers) = std::sync::mpsc::channel();
            let slow = move || {
                answers.recv().unwrap();
                vec![disk(4)]
            };
            let short = Duration::from_millis(1);
            let last = disks.ask(folder.path(), short, slow).await;
            assert_eq!(last, [disk(3)], "the last answer");
            let unasked = || panic!("it is asked still");
            let last = disks.ask(folder.path(), long, unasked).await;
            assert_eq!(last, [disk(3)], "the last answer");
            answer.send(()).unwrap();
            let over = Arc::clone(&disks.asking).acquire_owned().await;
            drop(over);
            assert_eq!(*disks.last.lock().unwrap(), [disk(4)], "it came late");
            assert!(disks.ask(folder.path(), long, Vec::new).await.is_empty());
        });
    }
}

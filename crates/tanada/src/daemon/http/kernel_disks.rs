//! Which disks of the kernel (ublk) wait for a daemon, whosever they are?
//!
//! ```text
//! status -> a thread of its own -> the driver: its disks -> those whose server is gone
//! ```
//!
//! Always true: a driver that does not answer keeps one thread, and no status, waiting.

use std::path::Path;
use std::sync::Arc;
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
pub struct KernelDisks(Arc<Semaphore>);

impl Default for KernelDisks {
    fn default() -> KernelDisks {
        KernelDisks(Arc::new(Semaphore::new(1)))
    }
}

impl KernelDisks {
    /// Those that wait for a daemon; none where this process may not ask, or the driver is busy.
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
        let permit = Arc::clone(&self.0).try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| any) else {
            return Vec::new();
        };
        let asking = tokio::task::spawn_blocking(move || {
            let disks = ask();
            drop(permit);
            disks
        });
        let answer = tokio::time::timeout(limit, asking).await;
        answer.ok().and_then(Result::ok).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> WaitingDisk {
        WaitingDisk {
            path: "/dev/ublkb3".to_owned(),
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
            let at_once = disks.ask(folder.path(), long, || vec![disk()]).await;
            assert_eq!(at_once, [disk()]);
            let (answer, answers) = std::sync::mpsc::channel();
            let slow = move || {
                answers.recv().unwrap();
                vec![disk()]
            };
            let short = Duration::from_millis(1);
            assert!(disks.ask(folder.path(), short, slow).await.is_empty());
            let unasked = || panic!("it is asked still");
            assert!(disks.ask(folder.path(), long, unasked).await.is_empty());
            answer.send(()).unwrap();
        });
    }
}

//! The meta store that has the accounts of this daemon: where it is, and how the admin API asks it.
//!
//! ```text
//! [cluster]: the cluster's meta store, on the data thread that has it   -> work(meta) -> answer
//! without:   DATA_DIR/accounts.redb, opened at first use, on a thread of its own
//! ```
//!
//! Whatever belongs into one transaction with accounts, quotas or usages goes the same way.
//!
//! Always true: a meta store that gives no answer is an error after [`TIMEOUT`], whatever it waits for.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use config::Config;
use env::{Mailbox, Poster};
use report::terminal::said;
use tokio::sync::{OnceCell, oneshot};
use vdisk::meta::{MetaStore, Redb};

use super::cluster::OpenCluster;
use super::command::{Command, ThreadHandle};

/// What the file is called, in the data directory.
pub const FILE: &str = "accounts.redb";
/// How long an answer is awaited: longer than a call of the meta store takes before it gives up.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Done with the meta store, on the thread it lives on.
type Job = Box<dyn FnOnce(Rc<dyn MetaStore>) + Send>;

/// Why the records were not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the accounts cannot be looked up: {0}")]
pub struct Silent(String);

/// The meta store that has the accounts.
pub struct Records {
    /// Of a daemon without a cluster.
    own: Option<Own>,
}

struct Own {
    path: PathBuf,
    thread: OnceCell<RecordsThread>,
}

/// The thread that has the file.
struct RecordsThread {
    /// Taken at the end: then the thread closes the file.
    poster: Option<Poster<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Records {
    /// Those of a daemon; nothing is opened before it is asked for.
    pub fn of(config: &Config) -> Records {
        match config.cluster {
            Some(_) => Records { own: None },
            None => Records::in_dir(&config.data_dir),
        }
    }

    /// Those in a file of this directory.
    pub fn in_dir(data_dir: &Path) -> Records {
        Records {
            own: Some(Own {
                path: data_dir.join(FILE),
                thread: OnceCell::new(),
            }),
        }
    }

    /// Was there never an account? Then nothing needs to be opened to know it.
    pub fn were_never_made(&self) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| !own.thread.initialized() && !own.path.exists())
    }

    /// Has `work` done with the meta store, on the thread it lives on.
    ///
    /// # Errors
    /// [`Silent`]: it cannot be opened, its thread has ended, or no answer came in time.
    pub async fn with<T: Send + 'static>(
        &self,
        threads: &[ThreadHandle],
        work: impl AsyncFnOnce(Rc<dyn MetaStore>) -> T + Send + 'static,
    ) -> Result<T, Silent> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |meta| {
            env::spawn(async move {
                // The client may be gone; what was asked is done all the same.
                let _ = reply.send(work(meta).await);
            });
        });
        let ended = |_| Silent("the thread that has them has ended".to_owned());
        let asked = async {
            self.post(threads, job).await?;
            answer.await.map_err(ended)
        };
        let late = |_| {
            let seconds = TIMEOUT.as_secs();
            Silent(format!("the meta store gave no answer within {seconds} s"))
        };
        tokio::time::timeout(TIMEOUT, asked).await.map_err(late)?
    }

    async fn post(&self, threads: &[ThreadHandle], job: Job) -> Result<(), Silent> {
        let ended = || Silent("the thread that has them has ended".to_owned());
        let Some(own) = &self.own else {
            let cluster = threads.iter().find(|it| it.has.cluster).ok_or_else(ended)?;
            let job = move |open: Rc<OpenCluster>| job(open.meta());
            let posted = cluster.post(Command::Cluster(Box::new(job)));
            return posted.map_err(|_| ended());
        };
        let thread = own.thread.get_or_try_init(|| start(own.path.clone())).await;
        let thread = thread.map_err(|error| Silent(said::words(&error)))?;
        let poster = thread.poster.as_ref().ok_or_else(ended)?;
        poster.post(job).map_err(|_| ended())
    }
}

/// Opens the file on a thread of its own.
async fn start(path: PathBuf) -> anyhow::Result<RecordsThread> {
    let (poster, mailbox) = env::mailbox();
    let (started, startup) = oneshot::channel();
    let run = move || match open(&path) {
        Ok((redb, runtime)) => {
            // Not awaited any more: then nothing asks it either.
            let _ = started.send(Ok(()));
            runtime.block_on(serve(redb, mailbox));
        }
        Err(error) => drop(started.send(Err(error))),
    };
    // It runs a runtime of `env`, as data threads do, and is waited for at the end.
    let thread = std::thread::Builder::new().name("accounts".to_owned());
    let thread = thread.spawn(run).context("cannot start a thread")?;
    startup
        .await
        .context("the thread ended before it began")??;
    Ok(RecordsThread {
        poster: Some(poster),
        thread: Some(thread),
    })
}

fn open(path: &Path) -> anyhow::Result<(Redb, env::Runtime)> {
    // Its owner's alone: what is made later keeps this mode.
    let mut made = std::fs::OpenOptions::new();
    made.create(true).append(true).mode(0o600).open(path)?;
    let redb = Redb::open(path)?;
    let runtime = env::Runtime::real(env::RealConfig::default())?;
    Ok((redb, runtime))
}

async fn serve(redb: Redb, mut mailbox: Mailbox<Job>) {
    let meta = redb.handle().client();
    while let Ok(job) = mailbox.receive().await {
        job(Rc::clone(&meta));
    }
}

impl Drop for RecordsThread {
    fn drop(&mut self) {
        drop(self.poster.take());
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use vdisk::meta::Op;

    use super::*;

    fn with_runtime(scene: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(scene);
    }

    #[test]
    fn the_file_is_made_at_first_use_and_read_again_by_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        with_runtime(async {
            let records = Records::in_dir(dir.path());
            assert!(records.were_never_made());
            let put = async |meta: Rc<dyn MetaStore>| {
                let (key, value) = ("account/a".to_owned(), b"here".to_vec());
                let op = Op::Put {
                    key,
                    value,
                    lease: None,
                };
                meta.txn(Vec::new(), vec![op]).await
            };
            assert!(records.with(&[], put).await.unwrap().is_ok());
            assert!(!records.were_never_made());
            drop(records);
            let records = Records::in_dir(dir.path());
            assert!(!records.were_never_made());
            let get = async |meta: Rc<dyn MetaStore>| meta.get("account/a").await;
            let found = records.with(&[], get).await.unwrap().unwrap();
            assert_eq!(found.unwrap().value, b"here");
        });
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error_each_time_and_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "this is no meta store").unwrap();
        with_runtime(async {
            let records = Records::in_dir(dir.path());
            for _ in 0..2 {
                let get = async |meta: Rc<dyn MetaStore>| meta.get("account/a").await;
                let silent = records.with(&[], get).await.unwrap_err();
                assert!(
                    silent.to_string().contains("cannot be looked up"),
                    "{silent}"
                );
            }
        });
    }

    #[test]
    fn without_the_thread_of_its_cluster_nothing_is_answered() {
        with_runtime(async {
            let records = Records { own: None };
            let get = async |meta: Rc<dyn MetaStore>| meta.get("account/a").await;
            assert!(records.with(&[], get).await.is_err());
        });
    }
}

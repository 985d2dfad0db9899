//! What the daemon and the service manager that started it (systemd) say to each other.
//!
//! ```text
//! start: sockets that listen already -> env::net::inherited        a new one -> kept by the service manager
//! daemon -> starting: STATUS, more time | READY | each data thread's heart beats: WATCHDOG | RELOADING | STOPPING
//! ```
//!
//! Always true: without a service manager nothing here does anything.

use std::convert::Infallible;
use std::os::fd::RawFd;
use std::time::Duration;

use env::net::inherited;
use sd_notify::NotifyState;

use super::thread::command::ThreadHandle;

/// A thread whose heart, which beats each second, did not for so long hangs: then the watchdog is not fed.
const HANGS: Duration = Duration::from_secs(10);
/// A long phase asks for so much time, again and again.
const MORE: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_secs(20);

/// The service manager, if one started this process.
#[derive(Debug, Clone, Copy)]
pub struct ServiceManager {
    is_there: bool,
    /// It restarts a daemon that is silent for so long.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Takes over the sockets that it hands over. Once in a process, before any socket is made.
    pub fn meet() -> ServiceManager {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some();
        let handed_over = sd_notify::listen_fds().into_iter().flatten();
        let sockets: Vec<RawFd> = handed_over.collect();
        if is_there || !sockets.is_empty() {
            inherited::begin(sockets, move |name, socket| {
                let name = NotifyState::FdName(name);
                match socket {
                    _ if !is_there => {}
                    Some(socket) => {
                        let states = [NotifyState::FdStore, name];
                        said(sd_notify::notify_with_fds(&states, &[socket]));
                    }
                    None => said(sd_notify::notify(&[NotifyState::FdStoreRemove, name])),
                }
            });
        }
        ServiceManager {
            is_there,
            watchdog: sd_notify::watchdog_enabled(),
        }
    }

    /// Everything is open and every door listens.
    pub fn ready(self, status: &str) {
        for name in inherited::close_rest() {
            self.say(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]);
        }
        self.say(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// It was read anew.
    pub fn reloaded(self) {
        self.say(&[NotifyState::Ready]);
    }

    /// The configuration is being read anew, until `reloaded`.
    pub fn reloading(self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.say(&[NotifyState::Reloading, now]);
        }
    }

    /// The daemon closes.
    pub fn stopping(self) {
        self.say(&[NotifyState::Stopping, NotifyState::Status("closing")]);
    }

    /// Does work that may take long: says so, and asks for time meanwhile.
    pub async fn during<T>(self, status: &str, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.ask_for_time(status) => match never {},
        }
    }

    async fn ask_for_time(self, status: &str) -> Infallible {
        loop {
            let more = u32::try_from(MORE.as_micros()).unwrap_or(u32::MAX);
            self.say(&[
                NotifyState::Status(status),
                NotifyState::ExtendTimeoutUsec(more),
            ]);
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Feeds the watchdog while each data thread runs its tasks.
    pub async fn feed(self, threads: &[ThreadHandle]) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            let hangs = |thread: &&ThreadHandle| thread.heartbeat.age() > HANGS;
            match threads.iter().find(hangs) {
                None => self.say(&[NotifyState::Watchdog]),
                Some(thread) => tracing::error!(
                    "the data thread of {} hangs: the service manager will restart the daemon",
                    thread.names.join(", ")
                ),
            }
            tokio::time::sleep(watchdog / 3).await;
        }
    }

    fn say(self, states: &[NotifyState<'_>]) {
        if self.is_there {
            said(sd_notify::notify(states));
        }
    }
}

fn said(done: std::io::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(%error, "the service manager cannot be told how the daemon is");
    }
}

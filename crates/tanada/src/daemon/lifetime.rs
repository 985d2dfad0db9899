//! What a running daemon hears, and how it ends.
//!
//! ```text
//! SIGHUP -> the configuration is read anew
//! SIGTERM, SIGINT -> each data thread drains and closes -> its troubles        once more -> exit 1 at once
//! ```

use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use report::terminal::said;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::common::log;
use super::http;
use super::http::control::Control;
use super::http::doors::Doors;
use super::service_manager::ServiceManager;
use super::thread::command::{Command, ThreadHandle};

/// Waits until the daemon is to close: which data thread died, if one did.
pub async fn ended(
    (control, doors): (&Arc<Control>, &Arc<Doors>),
    signals: &mut Signals,
    manager: ServiceManager,
) -> Option<String> {
    let threads = &control.threads;
    let mut all_dead = std::pin::pin!(all_dead(threads));
    loop {
        let heard = tokio::select! {
            heard = signals.next() => heard,
            dead = &mut all_dead => return Some(dead),
        };
        match heard {
            Asked::Stop => {
                tracing::info!(
                    "stopping: letting clients finish, then closing; once more to force"
                );
                let dead = threads.iter().find(|thread| thread.is_dead());
                return dead.map(|thread| thread.names.join(", "));
            }
            Asked::Reload => {
                // A thread that does not answer keeps no later signal waiting.
                tokio::spawn(reload(Arc::clone(control), Arc::clone(doors), manager));
            }
        }
    }
}

async fn reload(control: Arc<Control>, doors: Arc<Doors>, manager: ServiceManager) {
    manager.reloading();
    http::reload::on_signal(&control, &doors).await;
    manager.reloaded();
}

/// What a signal asks for.
pub enum Asked {
    Stop,
    Reload,
}

/// What the daemon hears: SIGTERM and SIGINT end it, SIGHUP has it read its configuration anew. A terminal that closes
/// sends that too, and the daemon goes on.
pub struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
    /// Asked, so that they do not end the process, and of no consequence.
    _ignored: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    pub fn new() -> io::Result<Signals> {
        let ignored = [
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::alarm(),
        ];
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            _ignored: ignored.into_iter().map(signal).collect::<io::Result<_>>()?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.term.recv() => Asked::Stop,
            _ = self.int.recv() => Asked::Stop,
            _ = self.hup.recv() => Asked::Reload,
        }
    }

    /// The daemon is to close; while it closes: it is not to wait any longer.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

pub async fn stop(threads: Vec<ThreadHandle>, signals: &mut Signals) {
    if let Err(error) = stop_all(&threads, signals).await {
        tracing::error!("{}", said::words(&error));
    }
}

/// Does what ends the daemon; a signal meanwhile ends the process on the spot.
pub async fn unless_forced<T>(ending: impl Future<Output = T>, signals: &mut Signals) -> T {
    tokio::select! {
        done = ending => done,
        () = signals.stop() => {
            tracing::warn!("forced: what was not flushed is lost, what was is safe");
            log::end();
            std::process::exit(1);
        }
    }
}

/// Closes every data thread; a signal meanwhile ends the process on the spot.
pub async fn stop_all(threads: &[ThreadHandle], signals: &mut Signals) -> anyhow::Result<()> {
    let mut waiting = Vec::new();
    for thread in threads {
        let (reply, answer) = oneshot::channel();
        // A thread that has ended has nothing left to close.
        if thread.post(Command::Stop(reply)).is_ok() {
            waiting.push((thread, answer));
        }
    }
    let mut troubles = String::new();
    for (thread, answer) in waiting {
        match unless_forced(answer, signals).await {
            Ok(list) => {
                for trouble in list {
                    troubles.push_str("\n  ");
                    troubles.push_str(&trouble);
                }
            }
            // Or it never started: then another error is said as well.
            Err(_) => {
                let names = thread.names.join(", ");
                troubles.push_str(&format!(
                    "\n  the data thread of {names} ended while it closed"
                ));
            }
        }
    }
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not everything closed cleanly:{troubles}")),
    }
}

/// Waits until every data thread has ended by itself, and says of each that it has: one that died takes no other along.
async fn all_dead(threads: &[ThreadHandle]) -> String {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        for (number, thread) in threads.iter().enumerate() {
            if thread.is_dead() && !reported.contains(&number) {
                reported.push(number);
                tracing::error!(
                    "the data thread of {} died: nothing on it is served until the daemon is started anew; {} of {} go on",
                    thread.names.join(", "),
                    threads.len() - reported.len(),
                    threads.len()
                );
            }
        }
        if !threads.is_empty() && reported.len() == threads.len() {
            let names = threads.iter().map(|thread| thread.names.join(", "));
            return names.collect::<Vec<_>>().join(" and of ");
        }
    }
}

/// An error if a data thread died.
pub fn died(thread: Option<String>) -> anyhow::Result<()> {
    match thread {
        None => Ok(()),
        Some(dead) => Err(anyhow!(
            "the data thread of {dead} died; its log line says why"
        )),
    }
}

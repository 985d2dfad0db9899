//! A modelled device in real time, served over NBD on a Unix socket by a thread of its own.
//!
//! ```text
//! NBD client -> front -> Switched: timed -> ModelDisk (waits as the device would) -> memory
//!                                  untimed -----------------------------------------> memory
//! ```
//!
//! Untimed is for what is not measured (making a file system, copying a database), and for the floor: what everything around the
//! model takes by itself.
//!
//! Choice: the thread looks for its timers without sleeping for as long as a processor takes to wake, so that what a fast device takes is
//! kept to the microsecond; what a slow one takes comes later by that much. What was kept is measured here, at the model, and reported
//! beside the rest.
//!
//! Always true:
//! 1. What was written untimed is read timed, and the other way round.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::model::{ModelDisk, Spec, Store};
use device::{Class, Device, Info, Memory, Pending, Power, WriteFlags};
use env::net::{Address, Listener};
use front::nbd::{Config, Export, Server};

/// The export's name.
pub const EXPORT: &str = "disk";
/// About what a processor takes to wake. Longer, and on a machine of few cores the thread takes the time of those it serves.
const AWAKE: Nanos = Nanos::micros(60);

/// What the model took, from request to answer, in this process.
#[derive(Debug, Default)]
struct ServiceTimes {
    reads: AtomicU64,
    reads_ns: AtomicU64,
    writes: AtomicU64,
    writes_ns: AtomicU64,
}

/// The means of what the model took between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Took {
    counts: [u64; 4],
}

impl Took {
    /// Mean microseconds of reads (`true`) or writes since `before`.
    pub fn mean_us_since(&self, before: &Took, reads: bool) -> Option<f64> {
        let at = if reads { 0 } else { 2 };
        let grown = |n: usize| self.counts[n] - before.counts[n];
        (grown(at) > 0).then(|| grown(at + 1) as f64 / grown(at) as f64 / 1e3)
    }
}

#[derive(Debug, Default)]
struct Shared {
    timed: AtomicBool,
    service_times: ServiceTimes,
}

/// The device behind the export.
struct Switched {
    model: Rc<ModelDisk>,
    memory: Rc<Memory>,
    shared: Arc<Shared>,
}

impl Switched {
    fn timed(&self) -> bool {
        self.shared.timed.load(Ordering::Relaxed)
    }

    fn now(&self) -> &dyn Device {
        match self.timed() {
            true => &*self.model,
            false => &*self.memory,
        }
    }
}

fn note(count: &AtomicU64, sum: &AtomicU64, took: Nanos) {
    count.fetch_add(1, Ordering::Relaxed);
    sum.fetch_add(took.0, Ordering::Relaxed);
}

impl Device for Switched {
    fn info(&self) -> Info {
        self.model.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        Box::pin(async move {
            let asked = env::now();
            let answer = self.now().read(at, buf, class).await;
            let service_times = &self.shared.service_times;
            note(
                &service_times.reads,
                &service_times.reads_ns,
                env::now().since(asked),
            );
            answer
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async move {
            let asked = env::now();
            let answer = self.now().write(at, data, flags).await;
            let service_times = &self.shared.service_times;
            note(
                &service_times.writes,
                &service_times.writes_ns,
                env::now().since(asked),
            );
            answer
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.now().flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.now().discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.now().write_zeroes(span, flags)
    }

    fn power(&self) -> Option<Power> {
        None
    }
}

/// A device that is served until this is dropped.
pub struct Served {
    shared: Arc<Shared>,
    stop: Option<env::Poster<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    /// Serves `spec`, `size` large, on the Unix socket `socket`.
    ///
    /// # Errors
    /// A sentence: the model has no such size, or the socket cannot be made.
    pub fn start(spec: &Spec, size: Bytes, socket: &Path, seed: u64) -> Result<Served, String> {
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = env::mailbox();
        let (outcome_sender, outcome) = mpsc::channel();
        let (spec, socket) = (spec.clone(), socket.to_owned());
        let for_thread = Arc::clone(&shared);
        let serving = move || {
            let config = env::RealConfig {
                seed: Some(seed),
                polling: env::Polling::UpTo(AWAKE),
                ..env::RealConfig::default()
            };
            let done = match env::Runtime::real(config) {
                Ok(runtime) => {
                    let outcome_sender = outcome_sender.clone();
                    runtime.block_on(async move {
                        let stopped = stopped;
                        serve(
                            &spec,
                            size,
                            &socket,
                            seed,
                            for_thread,
                            &outcome_sender,
                            stopped,
                        )
                        .await
                    })
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = done {
                // No receiver is left once it is served.
                let _ = outcome_sender.send(Err(why));
            }
        };
        // A device's executor has a thread of its own, as in `tanada serve`.
        let thread = std::thread::Builder::new()
            .name("served".to_owned())
            .spawn(serving)
            .map_err(|error| format!("no thread: {error}"))?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Served {
                shared,
                stop: Some(stop),
                thread: Some(thread),
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("its thread died".to_owned()),
        }
    }

    /// From now on as fast as the model (true) or as memory.
    pub fn set_timed(&self, timed: bool) {
        self.shared.timed.store(timed, Ordering::Relaxed);
    }

    /// What was asked of it so far, and how long it took.
    pub fn took(&self) -> Took {
        let service_times = &self.shared.service_times;
        let all = [
            &service_times.reads,
            &service_times.reads_ns,
            &service_times.writes,
            &service_times.writes_ns,
        ];
        Took {
            counts: all.map(|one| one.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What waits for a slow model is answered sooner.
        self.set_timed(false);
        if let Some(stop) = self.stop.take() {
            // A thread that has ended needs no message.
            let _ = stop.post(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    spec: &Spec,
    size: Bytes,
    socket: &Path,
    seed: u64,
    shared: Arc<Shared>,
    outcome_sender: &mpsc::Sender<Result<(), String>>,
    mut stopped: env::Mailbox<()>,
) -> Result<(), String> {
    let memory = Memory::new(spec.name.clone(), size);
    let below: Rc<dyn Device> = memory.clone();
    let model = ModelDisk::new(&spec.name, spec, Some(size), Store::from(below), seed)
        .map_err(|error| error.to_string())?;
    let server = Server::new(Config::default());
    let export = Export {
        name: EXPORT.to_owned(),
        description: spec.about.clone(),
        device: Rc::new(Switched {
            model,
            memory,
            shared,
        }),
        read_only: false,
    };
    server
        .add_export(export)
        .map_err(|error| error.to_string())?;
    let address = Address::Unix(socket.to_owned());
    let listener = Listener::bind(&address).map_err(|error| format!("{address}: {error}"))?;
    server.serve(listener);
    let _ = outcome_sender.send(Ok(()));
    let _ = stopped.receive().await;
    server.drain().await;
    Ok(())
}

//! A part of the experiment in real time: do a real clock, executor and file give what virtual time says?
//!
//! ```text
//! method@real:    clients -> sessions by capability -> Manager -> Store -> Queue -> Vertex -> a new file
//! method@virtual: the same, but virtual time, and memory in place of the file
//! method@queue:   clients -> Queue -> Vertex, virtual time: what the long run has
//! ```
//!
//! All three have the same device model, the same clients and the same promises. What the first two differ by is what
//! real time costs (timers that are late, a processor that others use, checksums, a file); what the last two differ
//! by is what the store writes besides its data.
//!
//! Source: PROBS 4 (a device; figure 6), 4.2.
//!
//! Choice: admission would refuse what this is to find the end of, so the node is given a device without limits. The
//! queue goes by the same costs in all three.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Bytes, Instant, Nanos, View};
use device::{Class, Device, FileOptions, Memory};
use policy::share::{
    BytesPerSec, Costs, Direction, Headroom, Second, SessionId, Share, Slot, Terms,
};
use report::{Devices, Row};
use store::qos::manager::{Manager, ManagerOptions, ReservationRequest};
use store::qos::queue::{Queue, QueueOptions};
use store::qos::session::{Access, Session};
use store::{Change, ObjectCalls, Settings, Store};

use super::bed::{self, Asked, Client, Failure, Ground, IO, Line, Method, Run, by_equation};
use super::needed::SECOND;
use super::plan::{Base, Plan};
use super::real_rows::{agreement, rows_of};
use super::scenes;
use super::vertex::{self, Times, Vertex};
use crate::experiment::jobs::{Job, side_by_side};
use crate::experiment::journal::Journal;
use crate::experiment::{ExperimentError, Options, Progress, Results};

/// Each client has an object of this length and begins anew at its end.
const REACH: Bytes = Bytes::mib(16);
/// Objects there are.
const OBJECTS: usize = 16;
/// Of the file, which is sparse: four times what the objects hold.
const SIZE: Bytes = Bytes::gib(1);
/// Violations allowed where the overhead is looked for, in percent.
pub(super) const TARGETS: [f64; 2] = [10.0, 1.0];
/// Steps in which it is looked for, in percent.
pub(super) const STEP: f64 = 0.5;

/// Where a run takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum World {
    /// The queue alone, in virtual time.
    Queue,
    /// The whole stack over memory, in virtual time.
    Virtual,
    /// The whole stack over a file, in real time.
    Real,
}

impl World {
    pub(super) fn method(self, method: &str) -> String {
        let world = match self {
            World::Queue => "queue",
            World::Virtual => "virtual",
            World::Real => "real",
        };
        format!("{method}@{world}")
    }

    /// Whose devices its rows are about.
    pub(super) fn devices(self) -> Devices {
        match self {
            World::Queue | World::Virtual => Devices::Modelled,
            World::Real => Devices::Emulated,
        }
    }

    /// `table`, or the one beside it for what is not modelled: no table has both.
    pub(super) fn table(self, table: &str) -> String {
        match self {
            World::Queue | World::Virtual => table.to_owned(),
            World::Real => format!("{table} in real time"),
        }
    }
}

/// What is run in all worlds.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) kind: What,
    pub(super) method: Method,
    pub(super) clients: Vec<Client>,
    pub(super) end: Instant,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    /// One access: what overheads are parts of.
    Alone(Direction),
    /// By equation (1), so much set aside.
    Accesses { direction: Direction, overhead: f64 },
    /// A scene, and what happens in it.
    Scene(&'static str, &'static str),
}

impl Scenario {
    pub(super) fn name(&self) -> String {
        let n = self.clients.len();
        match self.kind {
            What::Alone(direction) => format!("{direction} n=1"),
            What::Accesses {
                direction,
                overhead,
            } => format!("{direction} n={n} window={SECOND} overhead={overhead}%"),
            What::Scene(scene, _) => scene.to_owned(),
        }
    }

    pub fn alone(direction: Direction, end: Instant) -> Scenario {
        let terms = Terms::reserved(direction, BytesPerSec::mb(100));
        Scenario {
            kind: What::Alone(direction),
            method: Method::rounds(64),
            clients: vec![Client::new(terms, Instant(0))],
            end,
        }
    }

    pub fn accesses(
        base: &Base,
        method: Method,
        direction: Direction,
        n: u32,
        overhead: f64,
        end: Instant,
    ) -> Scenario {
        Scenario {
            kind: What::Accesses {
                direction,
                overhead,
            },
            method,
            clients: by_equation(base.of(direction), direction, n, overhead),
            end,
        }
    }

    /// All come at the beginning.
    #[cfg(test)]
    pub fn at_once(mut self) -> Scenario {
        for client in &mut self.clients {
            client.start = Instant(0);
        }
        self
    }
}

/// Everything that is run: a short choice of what the long run does.
fn scenarios(base: &Base) -> Vec<Scenario> {
    let methods = &Method::all()[..4];
    let end = Instant(0) + Nanos::secs(14);
    let mut all: Vec<Scenario> = Vec::new();
    for direction in Direction::ALL {
        all.push(Scenario::alone(direction, Instant(0) + Nanos::secs(8)));
        // Tags need about as much for one violation in a hundred in the long run.
        let overhead = match direction {
            Direction::Read => 5.0,
            Direction::Write => 20.0,
        };
        for n in [2, 6, 16] {
            let of =
                |method: &Method| Scenario::accesses(base, *method, direction, n, overhead, end);
            all.extend(methods.iter().map(of));
        }
    }
    for (scene, about, clients, _) in scenes::all(base) {
        if ["idle return", "greedy client"].contains(&scene) {
            all.extend(methods.iter().map(|method| Scenario {
                kind: What::Scene(scene, about),
                method: *method,
                clients: clients.clone(),
                end,
            }));
        }
    }
    all
}

// --- the stack --------------------------------------------------------------------------------------

fn object(at: usize) -> String {
    format!("client-{at:02}")
}

/// Sessions of a node, one for each client.
struct Stack {
    node: Rc<Manager>,
    capabilities: Vec<String>,
    sessions: RefCell<BTreeMap<usize, Rc<Session>>>,
    data: View,
}

impl Stack {
    /// Opens the store on `device` and reserves what the clients are promised.
    async fn open(
        device: Rc<dyn Device>,
        method: &Method,
        clients: &[Client],
    ) -> Result<Stack, Failure> {
        let costs = vertex::costs();
        let mut queue: QueueOptions = method.options;
        queue.share.costs = Costs::flat(BytesPerSec::mb(1_000_000));
        let options = ManagerOptions {
            queue,
            headroom: Headroom::flat(Share(0)),
            scrub: None,
            ..ManagerOptions::new(costs, [7; 32])
        };
        let node = Manager::open(device, options).await?;
        node.queue().set_costs(costs);
        let mut capabilities = Vec::new();
        for client in clients {
            let now = node.now();
            let Terms {
                direction, rate, ..
            } = client.terms;
            let ask = ReservationRequest::new(direction, rate, Slot::new(now, 3600));
            let id = node.hold(&ask, None, Second(now.0 + 60)).await?;
            capabilities.push(node.commit(id).await?);
        }
        Ok(Stack {
            node,
            capabilities,
            sessions: RefCell::default(),
            data: View::copy_of(&vec![7; IO.usize()]),
        })
    }
}

impl Ground for Stack {
    fn queue(&self) -> &Queue {
        self.node.queue()
    }

    fn enter(&self, at: usize, _client: &Client) -> Result<Line, Failure> {
        let access = Access::Capability(&self.capabilities[at]);
        let session = self.node.open_session(access)?;
        let Class::Session(line) = session.class() else {
            return Err("a session by a capability has no line of its own".into());
        };
        self.sessions.borrow_mut().insert(at, session);
        Ok(Some(SessionId(line)))
    }

    fn ask(
        self: Rc<Self>,
        at: usize,
        (place, io): (u64, Bytes),
        direction: Direction,
        _line: Line,
    ) -> Asked {
        let session = Rc::clone(&self.sessions.borrow()[&at]);
        let (name, offset) = (object(at), place % REACH.0);
        Box::pin(async move {
            match direction {
                Direction::Read => drop(session.read(&name, offset, io.0).await?),
                Direction::Write => {
                    let (data, change) = (self.data.slice(0, io.usize()), Change::default());
                    session.write(&name, offset, data, change).await?;
                }
            }
            Ok(())
        })
    }
}

/// A store with the objects of all clients.
async fn fill(device: Rc<dyn Device>, objects: usize) -> Result<(), Failure> {
    let settings = Settings {
        name: "reserve".to_owned(),
        ..Settings::default()
    };
    let store = Store::format(device, settings).await?;
    let data = View::copy_of(&vec![7; IO.usize()]);
    for at in 0..objects {
        for offset in (0..REACH.0).step_by(IO.usize()) {
            let change = Change::default().creating();
            let data = data.clone();
            store.write(&object(at), offset, data, change).await?;
        }
    }
    Ok(store.close().await?)
}

/// Runs it on the stack over `below`, which holds the objects of all clients.
async fn on_stack(below: Rc<dyn Device>, it: &Scenario) -> Result<Run, Failure> {
    let vertex = Vertex::new(Times::STORE, below.info().size, Some(below));
    let stack = Rc::new(Stack::open(vertex.clone(), &it.method, &it.clients).await?);
    let node = Rc::clone(&stack.node);
    let run = bed::drive(&vertex, stack, &it.clients, it.end).await?;
    node.close().await?;
    Ok(run)
}

/// A file of its own, gone with this.
pub(super) struct Ours(tempfile::TempPath);

impl Ours {
    /// Makes it: in a folder, or by a name that is free.
    pub fn make(place: &Path) -> Result<Ours, ExperimentError> {
        let refused = |why: String| ExperimentError::Place {
            place: place.to_owned(),
            why,
        };
        let system = |error: std::io::Error| refused(error.to_string());
        let ours = if place.is_dir() {
            let file = tempfile::Builder::new()
                .prefix("tanada-reserve-")
                .tempfile_in(place);
            file.map_err(system)?.into_temp_path()
        } else {
            let made = std::fs::File::create_new(place);
            made.map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => refused(
                    "there is something already; name a folder, or a file that is not there yet (it is removed at the end)"
                        .to_owned(),
                ),
                _ => system(error),
            })?;
            // From here on it is removed, whatever happens.
            let made = place.canonicalize().unwrap_or_else(|_| place.to_owned());
            tempfile::TempPath::try_from_path(made).map_err(system)?
        };
        let file = std::fs::File::options().write(true).open(&ours);
        let sized = file.and_then(|file| file.set_len(SIZE.0));
        sized.map_err(system)?;
        Ok(Ours(ours))
    }

    fn open(path: &Path) -> Result<Rc<dyn Device>, Failure> {
        Ok(device::File::open("file", path, FileOptions::default())?)
    }

    /// The objects of all clients, as fast as the file takes them.
    pub fn fill(&self) -> Result<(), Failure> {
        let path: PathBuf = self.0.to_path_buf();
        let runtime = env::Runtime::real(env::RealConfig::default())?;
        runtime.block_on(async move { fill(Ours::open(&path)?, OBJECTS).await })
    }

    fn run(&self, it: &Scenario, seed: u64) -> Result<Run, Failure> {
        let (path, it) = (self.0.to_path_buf(), it.clone());
        let config = env::RealConfig {
            seed: Some(seed),
            ..env::RealConfig::default()
        };
        let runtime = env::Runtime::real(config)?;
        runtime.block_on(async move { on_stack(Ours::open(&path)?, &it).await })
    }
}

/// Runs it in one world; the file is only for the real one.
pub(super) fn run_in(
    world: World,
    ours: Option<&Ours>,
    it: &Scenario,
    seed: u64,
) -> Result<Run, Failure> {
    match (world, ours) {
        (World::Queue, _) => Ok(bed::run(
            &it.method,
            Times::STORE,
            &it.clients,
            it.end,
            seed,
        )),
        (World::Virtual, _) => {
            let it = it.clone();
            env::Runtime::simulated(seed).block_on(async move {
                let memory = Memory::new("memory", SIZE);
                fill(memory.clone(), it.clients.len()).await?;
                on_stack(memory, &it).await
            })
        }
        (World::Real, Some(ours)) => ours.run(it, seed),
        (World::Real, None) => Err("there is no file".into()),
    }
}

// --- rows -------------------------------------------------------------------------------------------

/// All of it: virtual time side by side over the cores first, then real time alone.
pub(super) fn run(
    plan: &Plan,
    place: &Path,
    options: &Options<'_>,
    progress: &mut Progress<'_>,
) -> Result<Results, ExperimentError> {
    progress("a single access", 0.0);
    let ours = Ours::make(place)?;
    let base = super::single::access(plan);
    let scenarios = scenarios(&base);
    let failed = |it: &Scenario, source| ExperimentError::Failed {
        case: it.name(),
        method: it.method.name,
        source,
    };
    let base = &base;
    let mut jobs: Vec<Job<'_, Vec<Row>>> = Vec::new();
    for it in &scenarios {
        for world in [World::Queue, World::Virtual] {
            let name = format!("{} of {}", it.name(), world.method(it.method.name));
            jobs.push(Job::new(name, move || {
                let run =
                    run_in(world, None, it, plan.seed).map_err(|source| failed(it, source))?;
                Ok(rows_of(world, it, base, &run))
            }));
        }
    }
    let mut journal = Journal::open(super::LISTING.name, options)?;
    // What is virtual takes about a tenth of the time.
    let mut virtually = |what: &str, done: f64| progress(what, done / 10.0);
    let found = side_by_side(&jobs, &mut journal, &mut virtually)?;
    let mut found = found.into_iter();
    ours.fill()
        .map_err(|source| failed(&scenarios[0], source))?;
    let (mut rows, mut emulated) = (Vec::new(), Vec::new());
    for (at, it) in scenarios.iter().enumerate() {
        let done = at as f64 / scenarios.len() as f64;
        let what = format!("{} of {}", it.name(), World::Real.method(it.method.name));
        progress(&what, 0.1 + 0.9 * done);
        rows.extend(found.by_ref().take(2).flatten());
        if let Some(done) = journal.get::<Vec<Row>>(&what) {
            emulated.extend(done);
            continue;
        }
        let run = run_in(World::Real, Some(&ours), it, plan.seed);
        let run = run.map_err(|source| failed(it, source))?;
        let of_it = rows_of(World::Real, it, base, &run);
        journal.put(&what, &of_it)?;
        emulated.extend(of_it);
    }
    rows.append(&mut emulated);
    rows.extend(agreement(&rows));
    progress("done", 1.0);
    Ok(Results {
        rows,
        figures: Vec::new(),
    })
}

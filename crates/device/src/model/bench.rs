//! Measuring a device: sequential and random, at several depths, with the power drawn.
//!
//! ```text
//! case (pattern, block, depth) -> `depth` tasks that each keep one request under way -> Measured
//! ```
//!
//! The same code measures a model in virtual time (in an instant, the same figures every time) and a real
//! path in real time (for as long as the plan says). It writes only where it may.
//!
//! Always true:
//! 1. A target that may hold data is not written to unless the plan says so.
//! 2. No case takes longer than the plan's time or more requests than its number, but for those under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Instant, Nanos, Sector, View};
use serde::Serialize;

use super::disk::ModelDisk;
use super::error::SpecError;
use super::spec::Spec;
use super::store::Store;
use crate::{Class, Device, DeviceError, WriteFlags};

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Depths of the random cases.
    pub depths: Vec<usize>,
    /// Block of the random cases.
    pub random_block: Bytes,
    /// Block of the sequential cases.
    pub sequential_block: Bytes,
    /// Depth of the sequential cases.
    pub sequential_depth: usize,
    /// The longest a case runs.
    pub time: Nanos,
    /// The most requests of a case.
    pub requests: u64,
    /// The part of the device that is measured, from its start; all of it where absent.
    pub span: Option<Bytes>,
    /// Measure writes at all?
    pub writes: bool,
    /// Write although the target may hold data (which is lost)?
    pub overwrite: bool,
}

impl Default for Plan {
    /// 4 KiB at depths 1, 4 and 32, 1 MiB in sequence at depth 4; at most 5 s and 20,000 requests a case.
    fn default() -> Plan {
        Plan {
            depths: vec![1, 4, 32],
            random_block: Bytes::kib(4),
            sequential_block: Bytes::mib(1),
            sequential_depth: 4,
            time: Nanos::secs(5),
            requests: 20_000,
            span: None,
            writes: true,
            overwrite: false,
        }
    }
}

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The target may hold data.
    #[error(
        "cannot measure writes on {device}: it holds data ({found}); measure reads only, or allow overwriting if it may be lost"
    )]
    HoldsData {
        /// The device's name.
        device: String,
        /// What was seen of it.
        found: String,
    },
    /// The target has no room for the measurement.
    #[error("cannot measure {device}: it holds {size}, fewer than 32 blocks of {block}")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size, or the part to be measured.
        size: Bytes,
        /// The longest block.
        block: Bytes,
    },
    /// The device failed.
    #[error("cannot measure: {0}")]
    Device(#[from] DeviceError),
    /// The model is not to be had.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// Where the requests of a case go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One after the other from the start.
    SequentialRead,
    /// One after the other from the start.
    SequentialWrite,
    /// Anywhere.
    RandomRead,
    /// Anywhere.
    RandomWrite,
}

impl Pattern {
    /// Does it write?
    pub fn writes(self) -> bool {
        matches!(self, Pattern::SequentialWrite | Pattern::RandomWrite)
    }

    /// Does each request follow the last one?
    pub fn sequential(self) -> bool {
        matches!(self, Pattern::SequentialRead | Pattern::SequentialWrite)
    }
}

/// What one case came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Where the requests went.
    pub pattern: Pattern,
    /// Bytes per request.
    pub block_bytes: u64,
    /// Requests under way at the same time.
    pub depth: usize,
    /// Requests measured.
    pub requests: u64,
    /// How long they took together.
    pub seconds: f64,
    /// Bytes per second, in millions.
    pub mb_per_s: f64,
    /// Requests per second.
    pub iops: f64,
    /// Mean latency.
    pub latency_us_mean: f64,
    /// Half of the requests were at least as quick.
    pub latency_us_p50: f64,
    /// 99 in 100 requests were at least as quick.
    pub latency_us_p99: f64,
    /// Mean power, where the device reports it.
    pub watts: Option<f64>,
}

/// What a device came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// The device's name.
    pub device: String,
    /// Its size.
    pub size_bytes: u64,
    /// Modelled in virtual time, or measured for real?
    pub modelled: bool,
    /// The seed of the offsets.
    pub seed: u64,
    /// One per case.
    pub cases: Vec<Measured>,
}

impl BenchReport {
    /// The case of this pattern and depth, if it was measured.
    pub fn case(&self, pattern: Pattern, depth: usize) -> Option<&Measured> {
        let wanted = |case: &&Measured| case.pattern == pattern && case.depth == depth;
        self.cases.iter().find(wanted)
    }
}

/// Measures a model in virtual time: the same figures in every run of one seed. Each case begins with a
/// fresh device, which holds no data.
///
/// # Errors
/// [`BenchError::Spec`] if the model cannot have that size, [`BenchError::TooSmall`].
///
/// # Example
/// ```
/// use device::model::{Spec, bench};
/// let plan = bench::Plan { requests: 500, ..bench::Plan::default() };
/// let report = bench::measure(&Spec::find("hdd-7200-sata")?, None, &plan, 1)?;
/// let random = report.case(bench::Pattern::RandomRead, 1).expect("measured by default");
/// assert!((60.0..90.0).contains(&random.iops));
/// # Ok::<(), bench::BenchError>(())
/// ```
pub fn measure(
    spec: &Spec,
    size: Option<Bytes>,
    plan: &Plan,
    seed: u64,
) -> Result<BenchReport, BenchError> {
    let mut report = BenchReport {
        device: spec.name.clone(),
        size_bytes: size.unwrap_or(spec.size).0,
        modelled: true,
        seed,
        cases: Vec::new(),
    };
    for (pattern, depth) in cases(plan) {
        let spec = spec.clone();
        let plan = plan.clone();
        let measured = env::Runtime::simulated(seed).block_on(async move {
            let disk = ModelDisk::new(&spec.name, &spec, size, Store::None, seed)?;
            one(disk, &plan, pattern, depth).await
        });
        report.cases.push(measured?);
    }
    Ok(report)
}

/// Measures a device in the time of the runtime that runs this.
///
/// # Errors
/// [`BenchError::HoldsData`] if writes are asked for and the target may hold data; what the device answers.
pub async fn measure_device(
    device: Rc<dyn Device>,
    plan: &Plan,
) -> Result<BenchReport, BenchError> {
    let info = device.info();
    if plan.writes && !plan.overwrite {
        refuse_data(&device).await?;
    }
    let mut report = BenchReport {
        size_bytes: info.size.0,
        device: info.name,
        modelled: env::is_simulated(),
        seed: 0,
        cases: Vec::new(),
    };
    for (pattern, depth) in cases(plan) {
        let measured = one(Rc::clone(&device), plan, pattern, depth).await?;
        report.cases.push(measured);
    }
    Ok(report)
}

/// Reads before writes, so that reads find the target as it was.
fn cases(plan: &Plan) -> Vec<(Pattern, usize)> {
    let mut cases = vec![(Pattern::SequentialRead, plan.sequential_depth)];
    cases.extend(
        plan.depths
            .iter()
            .map(|&depth| (Pattern::RandomRead, depth)),
    );
    if plan.writes {
        cases.push((Pattern::SequentialWrite, plan.sequential_depth));
        let writes = plan
            .depths
            .iter()
            .map(|&depth| (Pattern::RandomWrite, depth));
        cases.extend(writes);
    }
    cases
}

/// More than this is not read through to see whether it is all zeroes.
const LOOKED_AT: u64 = 256 << 20;

/// Refuses a target that may hold data: one with an allocated byte that is not zero, or with more
/// allocated than is worth reading.
async fn refuse_data(device: &Rc<dyn Device>) -> Result<(), BenchError> {
    let info = device.info();
    let refuse = |found: String| {
        Err(BenchError::HoldsData {
            device: info.name.clone(),
            found,
        })
    };
    let whole = base::Span::new(Sector(0), info.size);
    let mut at = 0;
    let mut looked = 0;
    for (len, data) in device.allocation(whole).await? {
        if data {
            looked += len;
            if looked > LOOKED_AT {
                return refuse(format!("more than {} allocated", Bytes(LOOKED_AT)));
            }
            let mut from = at;
            while from < at + len {
                let piece = (at + len - from).min(info.max_io.0).min(1 << 20);
                let buf = Buf::for_read(piece as usize);
                let place = Sector::containing(from);
                let buf = device.read(place, buf, Class::Background).await?;
                if let Some(byte) = buf.iter().position(|&byte| byte != 0) {
                    return refuse(format!("byte {} is not zero", from + byte as u64));
                }
                from += piece;
            }
        }
        at += len;
    }
    Ok(())
}

struct Shared {
    device: Rc<dyn Device>,
    pattern: Pattern,
    block: Bytes,
    blocks: u64,
    data: View,
    next: Cell<u64>,
    left: Cell<u64>,
    stop: Instant,
    random: RefCell<env::Rng>,
    latencies: RefCell<Vec<u64>>,
    failure: RefCell<Option<DeviceError>>,
}

async fn one(
    device: Rc<dyn Device>,
    plan: &Plan,
    pattern: Pattern,
    depth: usize,
) -> Result<Measured, BenchError> {
    let info = device.info();
    let block = if pattern.sequential() {
        plan.sequential_block.min(info.max_io)
    } else {
        plan.random_block
    };
    let span = plan.span.unwrap_or(info.size).min(info.size);
    let blocks = span.0 / block.0;
    if blocks < 32 {
        return Err(BenchError::TooSmall {
            device: info.name,
            size: span,
            block,
        });
    }
    let mut random = env::rng("bench");
    let mut data = Buf::for_read(block.usize());
    random.fill(&mut data);
    let started = env::now();
    let before = device.power();
    let shared = Rc::new(Shared {
        device: Rc::clone(&device),
        pattern,
        block,
        blocks,
        data: data.freeze(),
        next: Cell::new(0),
        left: Cell::new(plan.requests.max(1)),
        stop: started + plan.time,
        random: RefCell::new(random),
        latencies: RefCell::default(),
        failure: RefCell::new(None),
    });
    let clients: Vec<_> = (0..depth.max(1))
        .map(|_| env::spawn(client(Rc::clone(&shared))))
        .collect();
    env::sync::join_all(clients).await;
    let spent = env::now().since(started);
    if let Some(failure) = shared.failure.borrow_mut().take() {
        return Err(failure.into());
    }
    let watts = match (before, device.power()) {
        (Some(before), Some(after)) if after.over > before.over => {
            let over = after.over.saturating_sub(before.over);
            Some((after.joules - before.joules) / over.secs_f64())
        }
        _ => None,
    };
    let latencies = std::mem::take(&mut *shared.latencies.borrow_mut());
    Ok(measured(&shared, depth, latencies, spent, watts))
}

/// The figures of a case whose requests took these `latencies`, in ns, and `spent` together.
fn measured(
    shared: &Shared,
    depth: usize,
    mut latencies: Vec<u64>,
    spent: Nanos,
    watts: Option<f64>,
) -> Measured {
    latencies.sort_unstable();
    let requests = latencies.len() as u64;
    let seconds = spent.secs_f64().max(1e-9);
    let of = |share: f64| {
        let index = (latencies.len() as f64 * share) as usize;
        latencies[index.min(latencies.len() - 1)] as f64 / 1e3
    };
    let block_bytes = shared.block.0;
    Measured {
        pattern: shared.pattern,
        block_bytes,
        depth,
        requests,
        seconds,
        mb_per_s: requests as f64 * block_bytes as f64 / seconds / 1e6,
        iops: requests as f64 / seconds,
        latency_us_mean: latencies.iter().sum::<u64>() as f64 / requests as f64 / 1e3,
        latency_us_p50: of(0.50),
        latency_us_p99: of(0.99),
        watts,
    }
}

/// Keeps one request under way until the case is over.
async fn client(shared: Rc<Shared>) {
    let mut buf = Some(Buf::for_read(shared.block.usize()));
    loop {
        let first = shared.latencies.borrow().is_empty();
        let over = shared.left.get() == 0 || (env::now() >= shared.stop && !first);
        if over || shared.failure.borrow().is_some() {
            return;
        }
        shared.left.set(shared.left.get() - 1);
        let index = if shared.pattern.sequential() {
            let next = shared.next.get();
            shared.next.set(next + 1);
            next % shared.blocks
        } else {
            shared.random.borrow_mut().below(shared.blocks)
        };
        let at = Sector::containing(index * shared.block.0);
        let start = env::now();
        let outcome = if shared.pattern.writes() {
            let flags = WriteFlags::default();
            shared.device.write(at, shared.data.clone(), flags).await
        } else {
            let given = buf
                .take()
                .unwrap_or_else(|| Buf::for_read(shared.block.usize()));
            let read = shared.device.read(at, given, Class::Foreground).await;
            read.map(|read| buf = Some(read))
        };
        if let Err(failure) = outcome {
            *shared.failure.borrow_mut() = Some(failure);
            return;
        }
        let latency = env::now().since(start).0;
        shared.latencies.borrow_mut().push(latency);
    }
}

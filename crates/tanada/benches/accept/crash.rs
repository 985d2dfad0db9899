//! A node is killed while it makes, changes or ends a reservation: what is left behind?
//!
//! ```text
//! unkilled: asked -> changes of the record in etcd -> answered      (medians: how long between them)
//! killed:   asked -> the n-th change is seen -> a part of the time until the next -> kill -9
//!           -> others: within 20 s records and parts agree -> restarted: within 5 s -> ended: nothing is left
//! ```
//!
//! Six moments of each of the three, in several clusters at a time. Nothing is left when the parts at stores that
//! answer are those that committed records list there.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::etcd::{Watch, records};
use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// Clusters at a time, so that waiting takes less.
const CLUSTERS: usize = 3;
/// Moments of each way to change a reservation.
const STEPS: usize = 6;
/// Kills at each of them; the contract's number with `--full`.
const TIMES: usize = 5;
const FULL_TIMES: usize = 20;
/// Runs by which the moments are known.
const UNKILLED: usize = 5;
/// How long the others have, and all when the node is back.
const OTHERS: Duration = Duration::from_secs(20);
const BACK: Duration = Duration::from_secs(5);
const GIVEN_UP: Duration = Duration::from_secs(40);

/// What the killed node was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Create,
    Set,
    Delete,
}

const WAYS: [Way; 3] = [Way::Create, Way::Set, Way::Delete];

/// How long it takes from each change of the record to the next, and from the last one to the answer.
type Gaps = Vec<Duration>;

/// What all kills showed.
#[derive(Default)]
struct Tally {
    kills: usize,
    made: usize,
    creates: usize,
    answered: usize,
    /// Kills before the answer, by what was asked and how the record stood then.
    fell: BTreeMap<String, usize>,
    left: Vec<String>,
    lost: Vec<String>,
    /// Until the others had settled it, in seconds.
    settled: f64,
    back: f64,
    all_back: f64,
}

/// One of them.
struct Kill {
    way: Way,
    step: usize,
    name: String,
    /// Are the others killed as well?
    all: bool,
}

impl Kill {
    fn new(nth: usize) -> Kill {
        Kill {
            way: WAYS[nth % WAYS.len()],
            step: nth / WAYS.len() % STEPS,
            name: format!("job{nth}"),
            all: nth / WAYS.len() / STEPS % 2 == 1,
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.all { " of all" } else { "" };
        write!(f, "{:?} {}/{STEPS}{all}", self.way, self.step + 1)
    }
}

/// Parts as `STORE/NUMBER at RATE`, and their state if they are not committed.
type Parts = BTreeSet<String>;

/// A cluster of which node 1 is killed.
struct Killed {
    nodes: Nodes,
    /// Whether it reserves a volume or stores.
    volume: bool,
    /// Names of stores by their numbers.
    names: BTreeMap<u64, String>,
}

impl Killed {
    fn start(volume: bool) -> Result<Killed, Box<dyn Error>> {
        let nodes = Nodes::start(Disks::Files)?;
        nodes.text(
            2,
            &[
                "volume", "create", "vm1", "--size", "64MiB", "--copies", "2",
            ],
        )?;
        let listed = nodes.json(2, &["node", "list", "--json"])?;
        let stores = listed["stores"].as_array().ok_or("stores")?.iter();
        let named =
            stores.filter_map(|it| Some((it["number"].as_u64()?, it["name"].as_str()?.to_owned())));
        Ok(Killed {
            names: named.collect(),
            nodes,
            volume,
        })
    }

    /// Method, path and body of what is asked.
    fn ask(&self, way: Way, name: &str) -> (&'static str, String, Value) {
        let path = format!("/v2/reservations/{name}");
        let target = match self.volume {
            true => json!({ "volume": "vm1" }),
            false => json!({ "stores": ["s1", "s2", "s3"], "scope": "a/" }),
        };
        match way {
            Way::Create => {
                let asked = json!({ "name": name, "target": target, "read": "1MB/s", "for": "1h" });
                ("POST", "/v2/reservations".to_owned(), asked)
            }
            Way::Set => ("PATCH", path, json!({ "read": "2MB/s" })),
            Way::Delete => ("DELETE", path, Value::Null),
        }
    }

    /// Carries it out at a node.
    fn done(&self, nth: usize, way: Way, name: &str) -> Result<(), Box<dyn Error>> {
        let (method, path, body) = self.ask(way, name);
        let (status, answer) = self.nodes.node(nth).connect()?.ask(method, &path, &body)?;
        match status {
            200..300 => Ok(()),
            _ => Err(format!("{way:?} {name}: status {status}: {answer}").into()),
        }
    }

    /// The changes of one that is not killed, and when it was answered.
    fn unkilled(&self, way: Way, name: &str) -> Result<Gaps, Box<dyn Error>> {
        let watch = Watch::begin(self.nodes.etcd())?;
        self.done(1, way, name)?;
        let answered = Instant::now();
        let changes = watch.changes.try_iter().map(|(at, _)| at);
        let mut at: Vec<Instant> = changes.filter(|it| *it <= answered).collect();
        at.push(answered);
        Ok(at.windows(2).map(|it| it[1] - it[0]).collect())
    }

    /// The medians.
    fn gaps(&self) -> Result<BTreeMap<Way, Gaps>, Box<dyn Error>> {
        let mut all: BTreeMap<Way, Vec<Gaps>> = BTreeMap::new();
        for nth in 0..UNKILLED {
            for way in WAYS {
                all.entry(way)
                    .or_default()
                    .push(self.unkilled(way, &format!("unkilled{nth}"))?);
            }
        }
        let medians = all.into_iter().map(|(way, runs)| {
            // Now and then one change less is seen before the answer.
            let changes = runs.iter().map(Vec::len).max().unwrap_or(0);
            let whole = runs.iter().filter(|it| it.len() == changes);
            let whole: Vec<&Gaps> = whole.collect();
            let median = |gap: usize| {
                let mut of: Vec<Duration> = whole.iter().map(|it| it[gap]).collect();
                of.sort();
                of[of.len() / 2]
            };
            (way, (0..changes).map(median).collect())
        });
        Ok(medians.collect())
    }

    /// Kills node 1 at a moment of a change; whether that was answered.
    fn kill(
        &mut self,
        way: Way,
        name: &str,
        (gaps, step): (&Gaps, usize),
    ) -> Result<bool, Box<dyn Error>> {
        if gaps.is_empty() {
            return Err(format!("{way:?} changes no record before it is answered").into());
        }
        let moment = (step * gaps.len()) as f64 / STEPS as f64;
        let (change, part) = (moment as usize, moment.fract());
        let watch = Watch::begin(self.nodes.etcd())?;
        let mut http = self.nodes.node(1).connect()?;
        let (method, path, body) = self.ask(way, name);
        let asking = spawn(move || http.ask(method, &path, &body).is_ok_and(|it| it.0 < 300));
        let mut at = Instant::now();
        for _ in 0..=change {
            at = watch.changes.recv_timeout(Duration::from_secs(10))?.0;
        }
        let until = at + gaps[change].mul_f64(part);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.nodes.kill(1);
        asking.join().map_err(|_| "the client panicked".into())
    }

    /// The record of that name as it stands.
    fn record(&self, name: &str) -> Result<Value, Box<dyn Error>> {
        let all = records(self.nodes.etcd())?;
        let of = all.into_iter().find(|it| it["name"] == name);
        Ok(of.unwrap_or_default())
    }

    /// The parts that committed records list at these nodes' stores; none while a record is not settled.
    fn listed(&self, at: &[usize]) -> Result<Option<Parts>, Box<dyn Error>> {
        let mut all = Parts::new();
        for record in records(self.nodes.etcd())? {
            let state = record["state"].as_str().unwrap_or_default();
            if state == "holding" || !record["changing"].is_null() {
                return Ok(None);
            }
            if !matches!(state, "committed" | "degraded") {
                continue;
            }
            for part in record["parts"].as_array().into_iter().flatten() {
                let store = part["store"].as_u64().and_then(|it| self.names.get(&it));
                let store = store.ok_or("a store without a name")?;
                if at.iter().any(|nth| *store == format!("s{nth}")) {
                    all.insert(format!("{store}/{} at {}", part["number"], part["rate"]));
                }
            }
        }
        Ok(Some(all))
    }

    /// The parts that the stores of these nodes have.
    fn there(&self, at: &[usize]) -> Result<Parts, Box<dyn Error>> {
        let mut all = Parts::new();
        for nth in at {
            let parts = self.nodes.node(*nth).connect()?.get("/v1/reservations")?;
            for part in parts.as_array().ok_or("a list")? {
                let id = part["id"].as_str().ok_or("an id")?;
                let state = part["state"].as_str().unwrap_or_default();
                let state = state.trim_start_matches("committed");
                all.insert(format!("{id} at {}{state}", part["rate_bytes_per_second"]));
            }
        }
        Ok(all)
    }

    /// Waits until records and parts agree, longer than they may take; how long that took, and, if it was too long, how
    /// they differed when the time was over.
    fn settles(
        &self,
        at: &[usize],
        within: Duration,
    ) -> Result<(f64, Option<String>), Box<dyn Error>> {
        let begun = Instant::now();
        let mut late = None;
        loop {
            let (listed, there) = (self.listed(at)?, self.there(at)?);
            let took = begun.elapsed();
            if listed.as_ref() == Some(&there) || took >= GIVEN_UP {
                let took = took.as_secs_f64();
                return Ok((took, late.map(|it: String| format!("{took:.1} s: {it}"))));
            }
            if took >= within && late.is_none() {
                late = Some(format!(
                    "records list {listed:?}, the stores have {there:?}"
                ));
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// One kill, and what came of it.
    fn round(&mut self, tally: &mut Tally, kill: &Kill, gaps: &Gaps) -> Result<(), Box<dyn Error>> {
        let (way, name) = (kill.way, &*kill.name);
        if way != Way::Create {
            self.done(2, Way::Create, name)?;
        }
        let answered = self.kill(way, name, (gaps, kill.step))?;
        tally.kills += 1;
        tally.creates += usize::from(way == Way::Create);
        tally.answered += usize::from(answered);
        *tally
            .fell
            .entry(self.fell(way, name, answered)?)
            .or_default() += 1;
        let record = match kill.all {
            true => self.all_come_back(tally, kill)?,
            false => self.others_settle(tally, kill)?,
        };
        let stands = matches!(record["state"].as_str(), Some("committed" | "degraded"));
        tally.made += usize::from(way == Way::Create && stands);
        let as_answered = match way {
            Way::Create => stands,
            Way::Set => stands && record["promise"]["read"] == 2_000_000,
            Way::Delete => !stands,
        };
        // Whatever was answered holds; what was there before a change that was not is there.
        if (answered && !as_answered) || (way == Way::Set && !stands) {
            tally.lost.push(format!("{kill}: {record}"));
        }
        if stands {
            self.done(2, Way::Delete, name)?;
        }
        let (_, late) = self.settles(&[1, 2, 3], BACK)?;
        tally.late(kill, "ended", late);
        let stay = self.there(&[1, 2, 3])?;
        let stay = (!stay.is_empty()).then(|| format!("{stay:?} stand"));
        tally.late(kill, "after all was ended", stay);
        Ok(())
    }

    /// The others settle it, then the node is back; the record as the others made it.
    fn others_settle(&mut self, tally: &mut Tally, kill: &Kill) -> Result<Value, Box<dyn Error>> {
        let (took, late) = self.settles(&[2, 3], OTHERS)?;
        tally.settled = tally.settled.max(took);
        tally.late(kill, "the others", late);
        let record = self.record(&kill.name)?;
        self.nodes.begin(1)?;
        let (took, late) = self.settles(&[1, 2, 3], BACK)?;
        tally.back = tally.back.max(took);
        tally.late(kill, "the node being back", late);
        Ok(record)
    }

    /// The others are killed as well, and all come back.
    fn all_come_back(&mut self, tally: &mut Tally, kill: &Kill) -> Result<Value, Box<dyn Error>> {
        for nth in [2, 3] {
            self.nodes.kill(nth);
        }
        for nth in [1, 2, 3] {
            self.nodes.begin(nth)?;
        }
        let (took, late) = self.settles(&[1, 2, 3], BACK)?;
        tally.all_back = tally.all_back.max(took);
        tally.late(kill, "all being back", late);
        self.record(&kill.name)
    }

    /// Where a kill fell, in words.
    fn fell(&self, way: Way, name: &str, answered: bool) -> Result<String, Box<dyn Error>> {
        let record = self.record(name)?;
        let state = record["state"].as_str().unwrap_or("no record");
        let changing = if record["changing"].is_null() {
            ""
        } else {
            ", changing"
        };
        let answered = if answered { ", answered" } else { "" };
        Ok(format!("{way:?}: {state}{changing}{answered}"))
    }
}

/// What one cluster saw of its part of all kills.
fn one(volume: bool, (next, times): (&AtomicUsize, usize)) -> Result<Tally, String> {
    let text = |error: Box<dyn Error>| error.to_string();
    let mut cluster = Killed::start(volume).map_err(text)?;
    let gaps = cluster.gaps().map_err(text)?;
    let mut tally = Tally::default();
    loop {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        if nth >= WAYS.len() * STEPS * times {
            return Ok(tally);
        }
        let kill = Kill::new(nth);
        let round = cluster.round(&mut tally, &kill, &gaps[&kill.way]);
        round.map_err(|error| format!("{kill}: {error}"))?;
    }
}

impl Tally {
    /// Something was left for longer than it may be.
    fn late(&mut self, kill: &Kill, when: &str, how: Option<String>) {
        self.left
            .extend(how.map(|how| format!("{kill}, {when}, {how}")));
    }

    fn add(&mut self, more: Tally) {
        self.kills += more.kills;
        self.made += more.made;
        self.creates += more.creates;
        self.answered += more.answered;
        for (how, count) in more.fell {
            *self.fell.entry(how).or_default() += count;
        }
        self.left.extend(more.left);
        self.lost.extend(more.lost);
        self.settled = self.settled.max(more.settled);
        self.back = self.back.max(more.back);
        self.all_back = self.all_back.max(more.all_back);
    }
}

pub fn crash(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let times = if report.full { FULL_TIMES } else { TIMES };
    let next = AtomicUsize::new(0);
    let mut all = Tally::default();
    scope(|scope| {
        let next = &next;
        let start = |nth| scope.spawn(move || one(nth % 2 == 0, (next, times)));
        for cluster in (0..CLUSTERS).map(start).collect::<Vec<_>>() {
            all.add(cluster.join().map_err(|_| "a cluster panicked")??);
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    let kills = (WAYS.len() * STEPS * times) as f64;
    report.row("kills", all.kills as f64, "", Bar::Exactly(kills));
    let before = (all.kills - all.answered) as f64;
    report.row("kills before the answer", before, "", Bar::More(0.0));
    let bar = Bar::Between(0.0, all.creates as f64);
    let metric = "reservations that stand though their maker was killed";
    report.row(metric, all.made as f64, "", bar);
    for (metric, which) in [
        (
            "kills that records and parts did not settle after in time",
            &all.left,
        ),
        ("answered and lost", &all.lost),
    ] {
        report.row(metric, which.len() as f64, "", Bar::Exactly(0.0));
        which.iter().take(5).for_each(|it| report.note(it));
    }
    for (metric, latest) in [
        ("until the others had settled it, at most", all.settled),
        ("until the node that came back had", all.back),
        ("until all had that came back together", all.all_back),
    ] {
        report.figure(metric, latest, "s");
    }
    let mut fell = String::new();
    for (how, count) in &all.fell {
        write!(fell, "{count} {how}; ")?;
    }
    report.note(fell.trim_end_matches("; "));
    Ok(())
}

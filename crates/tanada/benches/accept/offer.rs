//! What is offered in place of what does not fit: is it granted, and is there nothing better?
//!
//! ```text
//! drawn reservations -> the cluster  -> an offer: earliest, largest, longest -> taken up: granted
//!                    '-> the model    -> the same by sums per second          -> a step better: refused
//! ```
//!
//! The reference model knows what a store can promise from its status, adds up what was accepted second by second, and
//! has no code in common with calendars.

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use env::Rng;
use serde_json::{Value, json};

use super::http::Http;
use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// Drawn calendars: as many as can be in a while, or these.
const WHILE: Duration = Duration::from_secs(170);
const FULL: u64 = 1000;
/// Reservations drawn in each, and how many seconds after it the next one begins.
const DRAWN: u64 = 6;
const APART: u64 = 1200;
const STORES: usize = 3;

/// What each store has promised in each second from `begin` on, in bytes per second.
struct Model {
    /// In seconds since 1970.
    begin: u64,
    /// What a store can promise.
    limit: f64,
    promised: [Vec<u64>; STORES],
}

/// What is asked for.
#[derive(Clone)]
struct Asked {
    name: String,
    /// Numbers from 0.
    stores: Vec<usize>,
    stripe: bool,
    /// In bytes per second.
    rate: u64,
    /// Seconds after the model's begin.
    from: u64,
    seconds: u64,
}

impl Asked {
    fn drawn(rng: &mut Rng, name: String, from: u64, (rate, most): (u64, u64)) -> Asked {
        let count = 1 + rng.below(STORES as u64) as usize;
        let first = rng.below(STORES as u64) as usize;
        Asked {
            name,
            stores: (0..count).map(|nth| (first + nth) % STORES).collect(),
            stripe: rng.below(2) == 0,
            rate: (rate + rng.below(most - rate)) * 1_000_000 + rng.below(1_000_000),
            from,
            seconds: 30 + rng.below(570),
        }
    }

    /// What each store is to promise.
    fn part(&self) -> u64 {
        let count = self.stores.len() as u64;
        match self.stripe && count > 1 {
            true => (self.rate * 11).div_ceil(10 * count).min(self.rate),
            false => self.rate,
        }
    }

    fn json(&self, begin: u64) -> Result<Value, Box<dyn Error>> {
        let from = jiff::Timestamp::from_second(i64::try_from(begin + self.from)?)?;
        let stores: Vec<String> = self
            .stores
            .iter()
            .map(|it| format!("s{}", it + 1))
            .collect();
        Ok(json!({
            "name": self.name,
            "target": { "stores": stores, "scope": "a/", "stripe": self.stripe },
            "read": format!("{}B/s", self.rate),
            "from": from.to_string(),
            "for": format!("{}s", self.seconds),
        }))
    }
}

impl Model {
    fn of(http: &mut Http<UnixStream>, begin: u64) -> Result<Model, Box<dyn Error>> {
        let shown = http.get("/v1/stores/s1")?;
        let node = &shown["node"];
        let rate = node["capacity"]["read"].as_f64().ok_or("a capacity")?;
        let floors = node["calendar"]["floors_percent"]
            .as_f64()
            .ok_or("floors")?;
        // Nothing is measured yet, so a fifth is kept free.
        let left = (80.0 - floors) / 100.0;
        Ok(Model {
            begin,
            limit: rate * left,
            promised: Default::default(),
        })
    }

    fn fits(&self, asked: &Asked) -> bool {
        self.last_full(asked).is_none()
    }

    /// The last second of its slot in which it does not fit.
    fn last_full(&self, asked: &Asked) -> Option<u64> {
        let part = asked.part();
        let full = |second: u64| {
            asked.stores.iter().any(|store| {
                let there = self.promised[*store].get(second as usize).copied();
                (there.unwrap_or(0) + part) as f64 > self.limit
            })
        };
        (asked.from..asked.from + asked.seconds)
            .rev()
            .find(|it| full(*it))
    }

    fn accept(&mut self, asked: &Asked) {
        let part = asked.part();
        for store in &asked.stores {
            let seconds = &mut self.promised[*store];
            let until = (asked.from + asked.seconds) as usize;
            seconds.resize(seconds.len().max(until), 0);
            for second in &mut seconds[asked.from as usize..until] {
                *second += part;
            }
        }
    }

    fn earliest(&self, asked: &Asked) -> Option<u64> {
        if asked.part() as f64 > self.limit {
            return None;
        }
        let mut at = asked.clone();
        while let Some(full) = self.last_full(&at) {
            at.from = full + 1;
        }
        Some(at.from)
    }

    /// In permille.
    fn largest(&self, asked: &Asked) -> Option<u64> {
        (1..1000)
            .rev()
            .find(|it| self.fits(&at_permille(asked, *it)))
    }

    fn longest(&self, asked: &Asked) -> Option<u64> {
        let shorter = |seconds| Asked {
            seconds,
            ..asked.clone()
        };
        (1..asked.seconds).rev().find(|it| self.fits(&shorter(*it)))
    }
}

fn at_permille(asked: &Asked, permille: u64) -> Asked {
    Asked {
        rate: (asked.rate * permille / 1000).max(1),
        ..asked.clone()
    }
}

/// What was seen in all calendars.
#[derive(Default)]
struct Tally {
    calendars: u64,
    offers: usize,
    /// What is not as it is to be, in words.
    refused: Vec<String>,
    better: Vec<String>,
    unlike: Vec<String>,
}

/// The cluster and its model.
struct Pair<'a> {
    http: &'a mut Http<UnixStream>,
    model: Model,
    tally: Tally,
}

impl Pair<'_> {
    /// Asks both; is it granted? The model keeps it if it is.
    fn draw(&mut self, asked: &Asked) -> Result<(), Box<dyn Error>> {
        if self.ask(&asked.json(self.model.begin)?)?.is_none() {
            self.model.accept(asked);
        }
        Ok(())
    }

    /// None: granted. Else the offer.
    fn ask(&mut self, body: &Value) -> Result<Option<Value>, Box<dyn Error>> {
        match self.http.ask("POST", "/v2/reservations", body)? {
            (201, _) => Ok(None),
            (409, answer) => Ok(Some(answer)),
            (status, answer) => Err(format!("{body}: status {status}: {answer}").into()),
        }
    }

    /// Asks; what is granted is given up again. Was it?
    fn granted(&mut self, body: &Value) -> Result<bool, Box<dyn Error>> {
        let refused = self.ask(body)?;
        if refused.is_none() {
            let name = body["name"].as_str().ok_or("a name")?;
            self.http.delete(&format!("/v2/reservations/{name}"))?;
        }
        Ok(refused.is_none())
    }

    /// Compares what is offered, takes it up, and tries what is a step better.
    fn judge(&mut self, asked: &Asked) -> Result<(), Box<dyn Error>> {
        let begin = self.model.begin;
        let body = asked.json(begin)?;
        let fits = self.model.fits(asked);
        let Some(answer) = self.ask(&body)? else {
            self.http
                .delete(&format!("/v2/reservations/{}", asked.name))?;
            self.compare("granted", &body, Some(1), Some(u64::from(fits)));
            return Ok(());
        };
        self.compare("granted", &body, Some(0), Some(u64::from(fits)));
        let offer = &answer["offer"];
        let earliest = offer["earliest_unix_seconds"].as_u64();
        let earliest = earliest.map(|it| it.saturating_sub(begin));
        let (largest, longest) = (&offer["largest_permille"], &offer["longest_seconds"]);
        let (largest, longest) = (largest.as_u64(), longest.as_u64());
        self.compare("earliest", &body, earliest, self.model.earliest(asked));
        self.compare("largest", &body, largest, self.model.largest(asked));
        self.compare("longest", &body, longest, self.model.longest(asked));
        if let Some(from) = earliest {
            let at = |from| Asked {
                from,
                ..asked.clone()
            };
            let better = (from > asked.from).then(|| at(from - 1).json(begin));
            self.taken_up(at(from).json(begin)?, better.transpose()?)?;
        }
        if let Some(permille) = largest {
            let mut body = asked.json(begin)?;
            // In the words of the offer.
            body["read"] = offer["largest"].clone();
            let better = (permille < 999).then(|| at_permille(asked, permille + 1).json(begin));
            self.taken_up(body, better.transpose()?)?;
        }
        if let Some(seconds) = longest {
            let lasting = |seconds| Asked {
                seconds,
                ..asked.clone()
            };
            let better = (seconds + 1 < asked.seconds).then(|| lasting(seconds + 1).json(begin));
            self.taken_up(lasting(seconds).json(begin)?, better.transpose()?)?;
        }
        Ok(())
    }

    fn compare(&mut self, what: &str, body: &Value, ours: Option<u64>, model: Option<u64>) {
        if ours != model {
            let text = format!("{what} of {body}: {ours:?}, the model says {model:?}");
            self.tally.unlike.push(text);
        }
    }

    fn taken_up(&mut self, offered: Value, better: Option<Value>) -> Result<(), Box<dyn Error>> {
        self.tally.offers += 1;
        if !self.granted(&offered)? {
            self.tally.refused.push(offered.to_string());
        }
        if let Some(better) = better
            && self.granted(&better)?
        {
            self.tally.better.push(better.to_string());
        }
        Ok(())
    }
}

pub fn offer(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let mut rng = Rng::from_seed(7);
    let mut http = nodes.node(1).connect()?;
    // Fixed begins: what is asked twice is to be the same both times.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let model = Model::of(&mut http, now.as_secs() + 3600)?;
    let mut pair = Pair {
        http: &mut http,
        model,
        tally: Tally::default(),
    };
    let begun = Instant::now();
    while match report.full {
        true => pair.tally.calendars < FULL,
        false => begun.elapsed() < WHILE,
    } {
        let nth = pair.tally.calendars;
        for part in 0..DRAWN {
            let (name, from) = (format!("drawn{nth}-{part}"), nth * APART + rng.below(900));
            pair.draw(&Asked::drawn(&mut rng, name, from, (3, 25)))?;
        }
        let (name, from) = (format!("asked{nth}"), nth * APART + rng.below(600));
        pair.judge(&Asked::drawn(&mut rng, name, from, (15, 48)))?;
        pair.tally.calendars += 1;
    }
    let tally = pair.tally;
    report.figure("drawn calendars", tally.calendars as f64, "");
    report.row(
        "offers taken up at once",
        tally.offers as f64,
        "",
        Bar::More(0.0),
    );
    for (metric, all) in [
        ("of which refused", tally.refused),
        ("a step better than offered, and granted", tally.better),
        ("unlike the reference model", tally.unlike),
    ] {
        report.row(metric, all.len() as f64, "", Bar::Exactly(0.0));
        all.iter().take(3).for_each(|it| report.note(it));
    }
    Ok(())
}

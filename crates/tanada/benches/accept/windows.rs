//! A booked volume beside greedy clients: how many one-second windows does it keep, also when a node dies?

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::{Load, Pattern, Span, TICKS_PER_SECOND, Target, fill};
use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// What is reserved, in MB/s.
const RATE: u64 = 60;
/// Windows counted.
const SECONDS: usize = 120;
/// Windows counted without a reservation, before a node is lost, and of each row beside.
const FEWER: usize = 20;
/// Bytes of the booked volume.
const SIZE: u64 = 128 << 20;
/// Volumes of greedy clients, one client each.
const GREEDY: usize = 16;
const GREEDY_SIZE: u64 = 16 << 20;
/// Until what was changed is in force, and loads are under way.
const SETTLE: Duration = Duration::from_secs(3);

/// The booked volume and those of greedy clients, filled. They are open at these nodes in turn.
pub fn volumes(
    nodes: &Nodes,
    copies: u64,
    at: &[usize],
) -> Result<(Target, Vec<Target>), Box<dyn Error>> {
    let copies = copies.to_string();
    let make = |export: String, nth: usize, size: u64| -> Result<Target, Box<dyn Error>> {
        let bytes = size.to_string();
        let asked = [
            "volume", "create", &export, "--size", &bytes, "--copies", &copies,
        ];
        nodes.text(nth, &asked)?;
        let target = Target {
            socket: nodes.dir(nth).join("disks.sock"),
            export,
            from: 0,
            size,
        };
        fill(&target)?;
        Ok(target)
    };
    let booked = make("vm1".to_owned(), at[0], SIZE)?;
    let others =
        (0..GREEDY).map(|nth| make(format!("greedy{nth}"), at[nth % at.len()], GREEDY_SIZE));
    Ok((booked, others.collect::<Result<_, _>>()?))
}

/// Promises reads of vm1, as `night`.
pub fn reserve(nodes: &Nodes, rate: u64, more: &[&str]) -> Result<(), Box<dyn Error>> {
    let rate = format!("{rate}MB/s");
    let asked = [
        "reservation",
        "create",
        "night",
        "--volume",
        "vm1",
        "--read",
        &rate,
    ];
    nodes.text(1, &[&asked, more].concat())?;
    Ok(())
}

/// The share of windows with at least `rate`.
pub fn kept(got: &[f64], rate: f64) -> f64 {
    let kept = got.iter().filter(|it| **it >= rate).count();
    kept as f64 / got.len() as f64
}

fn mean(got: &[f64]) -> f64 {
    got.iter().sum::<f64>() / got.len() as f64
}

/// Mean and least of what came in a second.
pub fn pace(got: &[f64]) -> String {
    let least = got.iter().copied().fold(f64::MAX, f64::min);
    format!("{:.1} MB/s, least in a second {least:.1}", mean(got))
}

/// Which windows were not kept, for people.
fn broken(report: &mut Report, got: &[f64], rate: f64) {
    let all = got.iter().enumerate().filter(|(_, got)| **got < rate);
    let said = all.take(8).map(|(nth, got)| format!("{nth}: {got:.1}"));
    let said: Vec<String> = said.collect();
    if !said.is_empty() {
        report.note(&format!("broken, by number: {}", said.join(", ")));
    }
}

/// The booked client, and those beside it that nothing is promised to.
pub struct Beside<'a> {
    pub booked: &'a Load,
    pub greedy: &'a Load,
    /// What is promised, in MB/s.
    pub rate: f64,
}

impl Beside<'_> {
    /// Without a reservation the promise is not kept anyway: there is something to prove.
    pub fn without(&self, report: &mut Report, what: &str, span: Span) {
        let got = self.booked.seconds(span);
        let metric = format!("{what}: kept without a reservation");
        report.row(&metric, kept(&got, self.rate), "", Bar::Most(0.5));
        report.note(&pace(&got));
        self.asked(report, &format!("{what}, without"), span);
    }

    /// It is kept with one.
    pub fn with(&self, report: &mut Report, what: &str, span: Span) {
        let got = self.booked.seconds(span);
        let metric = format!("{what}: windows kept, of {}", got.len());
        report.row(&metric, kept(&got, self.rate), "", Bar::Least(0.99));
        report.note(&pace(&got));
        broken(report, &got, self.rate);
        self.asked(report, what, span);
    }

    /// What came with a reservation where it promises nothing of what is slow.
    pub fn beside(&self, report: &mut Report, what: &str, span: Span) {
        let got = self.booked.seconds(span);
        let metric = format!("{what}: windows kept, of {}", got.len());
        report.figure(&metric, kept(&got, self.rate), "");
        report.note(&pace(&got));
        self.asked(report, what, span);
    }

    /// No client ended, and in no second were the greedy ones silent that ought to be in the way.
    pub fn asked(&self, report: &mut Report, what: &str, span: Span) {
        let got = self.greedy.seconds(span);
        report.figure(&format!("{what}: greedy clients got"), mean(&got), "MB/s");
        let idle = got.iter().filter(|it| **it == 0.0).count();
        let metric = format!("{what}: seconds without greedy bytes");
        report.row(&metric, idle as f64, "", Bar::Exactly(0.0));
        let ended = [self.greedy.ended(), self.booked.ended()].concat();
        let metric = format!("{what}: requests that failed");
        report.row(&metric, ended.len() as f64, "", Bar::Exactly(0.0));
        for why in ended.iter().take(3) {
            report.note(why);
        }
    }
}

pub fn cluster(report: &mut Report) -> Result<(), Box<dyn Error>> {
    three_copies(report)?;
    two_copies(report)
}

/// The volume of the contract: three copies, one of which may be lost.
fn three_copies(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes, 3, &[1, 2])?;
    let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
    let booked = Load::start(&[booked], 8, Pattern::RANDOM)?;
    let loads = Beside {
        booked: &booked,
        greedy: &greedy,
        rate: RATE as f64,
    };
    sleep(SETTLE);
    loads.without(report, "3 copies", Span::of(FEWER));
    reserve(&nodes, RATE, &["--for", "1h"])?;
    sleep(SETTLE);
    loads.with(report, "3 copies", Span::of(SECONDS));
    Ok(())
}

/// Two copies with nothing to spare, whatever is asked for: `any` is to hold.
fn two_copies(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let (target, greedy) = volumes(&nodes, 2, &[1, 2])?;
    let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
    reserve(&nodes, RATE, &["--tolerate", "0", "--for", "1h"])?;
    let patterns = [
        ("2 copies, random", Pattern::RANDOM, 8),
        ("2 copies, 80 % of reads in 5 %", Pattern::HOT, 8),
        ("2 copies, in turn", Pattern::IN_TURN, 4),
    ];
    for (what, pattern, depth) in patterns {
        let booked = Load::start(std::slice::from_ref(&target), depth, pattern)?;
        sleep(SETTLE);
        let loads = Beside {
            booked: &booked,
            greedy: &greedy,
            rate: RATE as f64,
        };
        loads.with(report, what, Span::of(FEWER));
    }
    Ok(())
}

/// Does the reservation say that it has lost node 3?
fn knows_of_loss(nodes: &Nodes) -> Result<bool, Box<dyn Error>> {
    let shown = nodes.json(1, &["reservation", "show", "night", "--json"])?;
    let mut parts = shown["parts"].as_array().into_iter().flatten();
    let state = shown["state"].as_str().unwrap_or_default();
    let moved = state == "committed" && parts.all(|it| it["store"] != "s3");
    Ok(state == "degraded" || moved)
}

pub fn loss(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut nodes = Nodes::start(Disks::Modelled)?;
    let (booked, greedy) = volumes(&nodes, 3, &[1, 2])?;
    let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
    let booked = Load::start(&[booked], 8, Pattern::RANDOM)?;
    let loads = Beside {
        booked: &booked,
        greedy: &greedy,
        rate: RATE as f64,
    };
    sleep(SETTLE);
    loads.without(report, "before", Span::of(FEWER));
    reserve(&nodes, RATE, &["--for", "1h"])?;
    sleep(SETTLE);
    loads.with(report, "before", Span::of(FEWER));
    if knows_of_loss(&nodes)? {
        return Err("the reservation speaks of a loss before there is one".into());
    }
    let (killed, from) = (Instant::now(), Span::begin());
    nodes.kill(3);
    let lasts = Duration::from_secs(SECONDS as u64);
    let mut known = None;
    while known.is_none() && killed.elapsed() < lasts {
        sleep(Duration::from_millis(200));
        known = knows_of_loss(&nodes)?.then(|| killed.elapsed());
    }
    sleep((lasts + Duration::from_millis(300)).saturating_sub(killed.elapsed()));
    let until = from + SECONDS * TICKS_PER_SECOND;
    let span = Span { from, until };
    let known = known.unwrap_or(lasts).as_secs_f64();
    report.row("until the reservation says so", known, "s", Bar::Most(20.0));
    let got = booked.seconds(span);
    let count = got.iter().filter(|it| **it < RATE as f64).count();
    let metric = "windows broken after a node was killed, of 120";
    report.row(metric, count as f64, "", Bar::Most(2.0));
    report.note(&pace(&got));
    broken(report, &got, RATE as f64);
    loads.asked(report, "after", span);
    Ok(())
}

/// One client of an account beside sixteen of another: what part does the one get?
///
/// Stores share out what they have, so the part is judged at the store that gives the one most. Of all stores together it gets
/// less: its extents are not everywhere, and nodes choose among copies by queues that are all accounts' together, so it may
/// have nothing waiting where it would be served.
pub fn fair(report: &mut Report) -> Result<(), Box<dyn Error>> {
    for copies in [1, 2] {
        let what = |of: &str| format!("copies {copies}: {of}");
        let nodes = Nodes::start(Disks::Modelled)?;
        let (one, sixteen) = volumes(&nodes, copies, &[1, 2])?;
        let before = shared(&nodes, (&one, &sixteen))?;
        for account in ["astro", "bio"] {
            nodes.text(1, &["account", "create", account, "--role", "booker"])?;
        }
        nodes.text(1, &["volume", "set", &one.export, "holder=astro"])?;
        for target in &sixteen {
            nodes.text(1, &["volume", "set", &target.export, "holder=bio"])?;
        }
        sleep(Duration::from_secs(10));
        let after = shared(&nodes, (&one, &sixteen))?;
        let metric = what("part of 1 beside 16 at its store, two accounts");
        report.row(&metric, after.at_store, "", Bar::Least(0.45));
        report.row(
            &what("of all stores, one account"),
            before.of_all,
            "",
            Bar::Most(0.25),
        );
        report.figure(&what("of all stores, two accounts"), after.of_all, "");
    }
    Ok(())
}

/// What part the one got.
struct Part {
    of_all: f64,
    /// At the store that gave it most; of one account it cannot be told.
    at_store: f64,
}

/// With 16 requests of each client under way.
fn shared(nodes: &Nodes, (one, sixteen): (&Target, &[Target])) -> Result<Part, Box<dyn Error>> {
    let others = Load::start(sixteen, 16, Pattern::RANDOM)?;
    let load = Load::start(std::slice::from_ref(one), 16, Pattern::RANDOM)?;
    sleep(SETTLE);
    let before = given(nodes)?;
    let span = Span::of(FEWER);
    let after = given(nodes)?;
    let (got, beside) = (mean(&load.seconds(span)), mean(&others.seconds(span)));
    if let Some(why) = [load.ended(), others.ended()].concat().first() {
        return Err(format!("a client ended: {why}").into());
    }
    let stores = before.iter().zip(&after);
    let stores = stores.map(|(before, after)| [0, 1].map(|of| (after[of] - before[of]) as f64));
    let most = stores
        .max_by(|a, b| a[0].total_cmp(&b[0]))
        .ok_or("a store")?;
    Ok(Part {
        of_all: got / (got + beside),
        at_store: most[0] / (most[0] + most[1]).max(1.0),
    })
}

/// What each store gave the two accounts so far, in bytes.
fn given(nodes: &Nodes) -> Result<Vec<[u64; 2]>, Box<dyn Error>> {
    let mut all = Vec::new();
    for nth in 1..=3 {
        let stores = nodes.node(nth).connect()?.get("/v1/stores")?;
        let sessions = stores[0]["sessions"].as_array().ok_or("sessions")?;
        let of = |account: &str| {
            let own = sessions.iter().filter(|it| it["account"] == account);
            own.filter_map(|it| it["delivered_bytes"].as_u64()).sum()
        };
        all.push([of("astro"), of("bio")]);
    }
    Ok(all)
}

//! Case files against the rules. How they read: see `cases/figures.txt`.

use base::Nanos;

use crate::tier::{Count, Decision, Interval, Kind, Parameters, Region, TierPolicy, Way, build};

const FILES: [(&str, &str); 3] = [
    ("figures.txt", include_str!("../cases/figures.txt")),
    ("silent.txt", include_str!("../cases/silent.txt")),
    ("windows.txt", include_str!("../cases/windows.txt")),
];

/// Of the volumes in the cases.
const REGIONS: u32 = 300;
/// Of each region that is said to be hot.
const HOT: u64 = 4_000;

/// `65-68,70`.
fn list(text: &str) -> Result<Vec<u32>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut regions = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.parse::<u32>().ok();
            number.filter(|number| (1..=REGIONS).contains(number))
        };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => regions.extend(first..=last),
            _ => return Err(format!("'{part}' is no region of 1 to {REGIONS}")),
        }
    }
    Ok(regions)
}

/// The same back, as short as can be.
fn shown(regions: &[u32]) -> String {
    let runs = regions.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    match regions {
        [] => "none".to_owned(),
        _ => runs.collect::<Vec<String>>().join(","),
    }
}

/// The rule and the room of a case, from what stands behind `given`.
struct Given {
    kind: Kind,
    parameters: Parameters,
    room: u32,
}

fn given(text: &str) -> Result<Given, String> {
    let mut given = Given {
        kind: Kind::OnTheFly,
        parameters: Parameters::default(),
        room: 24,
    };
    let parameters = &mut given.parameters;
    for part in text.split_whitespace() {
        let (name, value) = part
            .split_once('=')
            .ok_or(format!("'{part}' has no value"))?;
        let wrong = |_| format!("'{part}' is not a number");
        let number = value.trim_end_matches('%').parse::<u32>().map_err(wrong);
        match name {
            "i" => parameters.iops_min = f64::from(number?),
            "n" => parameters.sub_luns_max = number?,
            "m" => parameters.share_min = f64::from(number?),
            "c" => parameters.streak_min = number?,
            "o" => parameters.timeout = number?,
            "room" => given.room = number?,
            "window" => parameters.window = Some(parameters.period * u64::from(number?)),
            "rule" => given.kind = value.parse().map_err(|error| format!("{error}"))?,
            _ => return Err(format!("'{name}' is no parameter")),
        }
    }
    Ok(given)
}

/// The counts of a minute, from what stands between `minute` and `->`; and how often.
fn minute(text: &str) -> Result<(Vec<Count>, u32), String> {
    let mut requests = vec![0; REGIONS as usize + 1];
    let mut times = 1;
    for part in text.split_whitespace() {
        match part.split_once('=') {
            Some(("hot", regions)) => {
                list(regions)?
                    .iter()
                    .for_each(|region| requests[*region as usize] += HOT);
            }
            Some((regions, count)) => {
                let count: u64 = count.parse().map_err(|_| format!("'{part}': how many?"))?;
                list(regions)?
                    .iter()
                    .for_each(|region| requests[*region as usize] += count);
            }
            None if part == "idle" => {}
            None => {
                let number = part
                    .strip_prefix('x')
                    .and_then(|number| number.parse().ok());
                times = number.ok_or(format!("'{part}' says nothing"))?;
            }
        }
    }
    let counts = (1..=REGIONS).filter(|region| requests[*region as usize] > 0);
    let counts = counts.map(|region| {
        let all = requests[region as usize];
        Count {
            region: Region(region),
            reads: all / 3,
            writes: all - all / 3,
        }
    });
    Ok((counts.collect(), times))
}

/// The decision in the words of a case file, with what the case looks at besides.
fn in_words(decision: &Decision, residents: &[Region], expected: &str) -> String {
    let numbers = |regions: &[Region]| regions.iter().map(|one| one.0).collect::<Vec<u32>>();
    let mut words = Vec::new();
    for same_way in decision.moves.chunk_by(|a, b| a.way == b.way) {
        let way = match same_way[0].way {
            Way::Up => "ssd",
            Way::Down => "hdd",
        };
        let regions: Vec<u32> = same_way.iter().map(|one| one.region.0).collect();
        words.push(format!("{way} {}", shown(&regions)));
    }
    if expected.contains("candidates") {
        words.push(format!(
            "candidates {}",
            shown(&numbers(&decision.candidates))
        ));
    }
    if expected.contains("fast") {
        words.push(format!("fast {}", shown(&numbers(residents))));
    }
    words.join(" ")
}

/// Runs a file; answers how many minutes it held.
fn run(file: &str, text: &str) -> Result<u32, String> {
    let mut case: Option<(Given, Box<dyn TierPolicy>)> = None;
    let mut title = Vec::new();
    let mut minutes = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let at = |why: String| {
            let title = title.join(" ");
            format!("{file}:{number}: {line}\n  in the case: {title}\n  {why}")
        };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        if word == "#" || word.is_empty() {
            if case.take().is_some() || word.is_empty() {
                title.clear();
            }
            title.push(rest);
            continue;
        }
        if word == "given" {
            let given = given(rest).map_err(at)?;
            let policy = build(given.kind, given.parameters, given.room);
            case = Some((given, policy));
            continue;
        }
        let Some((given, policy)) = &mut case else {
            return Err(at("a case begins with given".to_owned()));
        };
        match word {
            "room" => policy.set_room(rest.parse().map_err(|_| at("how much?".to_owned()))?),
            "adopt" => {
                let regions: Vec<Region> =
                    list(rest).map_err(at)?.into_iter().map(Region).collect();
                policy.adopt(&regions);
            }
            "withdrawn" => {
                list(rest)
                    .map_err(at)?
                    .into_iter()
                    .for_each(|region| policy.withdrawn(Region(region)));
            }
            "minute" => {
                let (what, expected) = rest
                    .split_once("->")
                    .ok_or_else(|| at("'->' is missing".to_owned()))?;
                let expected = expected.trim();
                let (counts, times) = minute(what).map_err(at)?;
                for time in 1..=times {
                    let interval = Interval {
                        number: u64::from(minutes),
                        length: given.parameters.period,
                        counts: &counts,
                    };
                    let decision = policy.step(&interval);
                    let got = in_words(&decision, &policy.residents(), expected);
                    if got != expected {
                        return Err(at(format!("the {time}. time it says: {got}")));
                    }
                    minutes += 1;
                }
            }
            _ => return Err(at(format!("'{word}' is not known"))),
        }
    }
    Ok(minutes)
}

#[test]
fn the_figures_and_the_choices_where_the_paper_is_silent_are_carried_out() {
    let mut failures = Vec::new();
    for (file, text) in FILES {
        match run(file, text) {
            Ok(minutes) => assert!(minutes > 10, "{file} holds {minutes} minutes"),
            Err(why) => failures.push(why),
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn a_case_that_is_not_so_is_named_by_file_line_and_title() {
    let said = |text: &str| run("a.txt", text).unwrap_err();
    assert_eq!(
        said("# Two are hot.\ngiven c=1\nminute hot=65-66 -> ssd 65"),
        "a.txt:3: minute hot=65-66 -> ssd 65\n  in the case: Two are hot.\n  the 1. time it says: ssd 65-66"
    );
    for (text, why) in [
        ("minute idle ->", "a case begins with given"),
        ("given q=1", "'q' is no parameter"),
        ("given c=x", "'c=x' is not a number"),
        ("given\nminute hot=9-7 ->", "'9-7' is no region of 1 to 300"),
        ("given\nminute 5 ->", "'5' says nothing"),
        ("given\nminute 5=1", "'->' is missing"),
        ("given\nsecond 5=1 ->", "'second' is not known"),
    ] {
        assert!(said(text).ends_with(why), "{}", said(text));
    }
}

#[test]
fn requests_of_a_minute_are_those_that_were_written_down() {
    let (counts, times) = minute("x3 hot=1 5-6=7 300=1").unwrap();
    let all: Vec<(u32, u64)> = counts.iter().map(|one| (one.region.0, one.all())).collect();
    assert_eq!(
        (all, times),
        (vec![(1, 4_000), (5, 7), (6, 7), (300, 1)], 3)
    );
    assert_eq!(Parameters::default().period, Nanos::secs(60));
}

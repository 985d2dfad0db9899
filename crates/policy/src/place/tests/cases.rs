//! Case files against the published method. How they read: see `cases/published.txt`.

use base::{Bytes, Instant, Nanos};

use crate::place::{
    At, Candidate, Class, ClientId, DiskId, DiskQueue, DomainId, Op, Origin, Penalties, PerByte,
    Permille, QueueCost, QueueOptions, ReplicaPolicy, Request, Sent, State, Tail, Target, Ticket,
    Weights,
};

const FILES: [(&str, &str); 2] = [
    ("published.txt", include_str!("../cases/published.txt")),
    ("silent.txt", include_str!("../cases/silent.txt")),
];

type Answer<T> = Result<T, String>;

fn number(text: &str) -> Answer<u64> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

/// `0.5` as thousandths.
fn permille(text: &str) -> Answer<Permille> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no weight"))?;
    Ok(Permille((value * 1_000.0).round() as u32))
}

/// `d3`.
fn disk(text: &str) -> Answer<DiskId> {
    let number = text
        .strip_prefix('d')
        .and_then(|number| number.parse().ok());
    number.map(DiskId).ok_or(format!("'{text}' is no disk"))
}

/// `500`, `7:500` or `?`.
fn place(text: &str) -> Answer<Option<At>> {
    if text == "?" {
        return Ok(None);
    }
    let (object, byte) = text.split_once(':').unwrap_or(("0", text));
    let (object, byte) = (number(object)?, number(byte)?);
    Ok(Some(At { object, byte }))
}

/// `A`, `A!`, `A-` or `nobody`.
fn who(text: &str) -> Answer<Option<Origin>> {
    let mut letters = text.chars();
    let class = match letters.next_back() {
        _ if text == "nobody" => return Ok(None),
        Some('!') => Class::High,
        Some('-') => Class::Low,
        Some(last) if last.is_ascii_uppercase() => Class::Normal,
        _ => return Err(format!("'{text}' is no client")),
    };
    let letter = text.chars().next().expect("not empty");
    let client = ClientId(u64::from(u32::from(letter)));
    Ok(Some(Origin { client, class }))
}

fn split<'a>(text: &'a str, mark: &str) -> Answer<(&'a str, &'a str)> {
    text.split_once(mark)
        .ok_or(format!("'{text}' has no '{mark}'"))
}

struct Case {
    weights: Weights,
    penalties: Penalties,
    queue: DiskQueue,
    policy: QueueCost,
    now: Instant,
    tickets: u64,
}

impl Case {
    fn given(text: &str) -> Answer<Case> {
        let mut options = QueueOptions::default();
        let mut penalties = Penalties::NONE;
        for part in text.split_whitespace() {
            let (name, value) = split(part, "=")?;
            let weights = &mut options.weights;
            match name {
                "a" => {
                    weights.local = PerByte(number(value)? * 1_000);
                    weights.remote = weights.local;
                }
                "afar" => weights.remote = PerByte(number(value)? * 1_000),
                "b" => weights.seek = Nanos(number(value)?),
                "other" => penalties.other = permille(value)?,
                "higher" => penalties.from_higher = permille(value)?,
                "lower" => penalties.from_lower = permille(value)?,
                "idle" => options.idle_after = Nanos(number(value)?),
                "start" => {
                    options.start = place(value)?.ok_or("a start is known".to_owned())?;
                }
                _ => return Err(format!("'{name}' is no parameter")),
            }
        }
        Ok(Case {
            weights: options.weights,
            penalties,
            queue: DiskQueue::new(options),
            policy: QueueCost::new(options.weights),
            now: Instant(0),
            tickets: 0,
        })
    }

    fn request(&self, who_asks: &str, length: &str) -> Answer<Request> {
        Ok(Request {
            origin: who(who_asks)?.ok_or("a client asks".to_owned())?,
            op: Op::Read,
            bytes: Bytes(number(length)?),
            sequential: false,
            penalties: self.penalties,
        })
    }

    fn enqueue(&mut self, words: &[&str]) -> Answer<String> {
        let [ticket, what, rest @ ..] = words else {
            return Err("enqueue N WHO@WHERE+LENGTH".to_owned());
        };
        let (who_asks, at) = split(what, "@")?;
        let (at, length) = split(at, "+")?;
        let mut request = self.request(who_asks, length)?;
        let mut local = true;
        for word in rest {
            match word.split_once('=') {
                Some(("other", q)) => request.penalties.other = permille(q)?,
                None if *word == "remote" => local = false,
                None if *word == "seq" => request.sequential = true,
                _ => return Err(format!("'{word}' says nothing")),
            }
        }
        let (ticket, at) = (Ticket(number(ticket)?), place(at)?);
        let term = self.queue.enqueue(self.now, ticket, &request, at, local);
        Ok(term.map_err(|full| full.to_string())?.0.to_string())
    }

    /// The report in the words of a case, of what the case looks at.
    fn report(&mut self, expected: &str) -> String {
        let state = self.queue.report(self.now);
        let end = match state.tail.end {
            None => "?".to_owned(),
            Some(At { object: 0, byte }) => byte.to_string(),
            Some(At { object, byte }) => format!("{object}:{byte}"),
        };
        let last = state.tail.last.map_or("nobody".to_owned(), |last| {
            let mark = match last.class {
                Class::Low => "-",
                Class::Normal => "",
                Class::High => "!",
            };
            format!("{}{mark}", char::from(last.client.0 as u8))
        });
        let all = [
            ("cost", state.cost.0.to_string()),
            ("tail", end),
            ("last", last),
        ];
        let looked_at = all.iter().filter(|(name, _)| expected.contains(name));
        let words: Vec<String> = looked_at
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }

    fn hear(&mut self, words: &[&str]) -> Answer<()> {
        let [name, rest @ ..] = words else {
            return Err("hear whom?".to_owned());
        };
        let mut state = State {
            at: self.now,
            ..State::idle(self.weights)
        };
        for word in rest {
            let (name, value) = split(word, "=")?;
            match name {
                "cost" => state.cost = Nanos(number(value)?),
                "tail" => {
                    state.tail = Tail {
                        end: place(value)?,
                        ..state.tail
                    }
                }
                "last" => state.tail.last = who(value)?,
                "at" => state.at = Instant(number(value)?),
                "a" => {
                    state.weights.local = PerByte(number(value)? * 1_000);
                    state.weights.remote = state.weights.local;
                }
                "b" => state.weights.seek = Nanos(number(value)?),
                _ => return Err(format!("'{name}' is not heard")),
            }
        }
        self.policy.heard(self.now, disk(name)?, &state);
        Ok(())
    }

    fn candidates(words: &[&str]) -> Answer<Vec<Candidate>> {
        let mut copies: Vec<Candidate> = Vec::new();
        for word in words {
            if *word == "remote" {
                copies.last_mut().ok_or("remote what?".to_owned())?.local = false;
                continue;
            }
            let (name, at) = split(word, "@")?;
            copies.push(Candidate {
                disk: disk(name)?,
                local: true,
                rotating: true,
                at: place(at)?,
            });
        }
        Ok(copies)
    }

    fn read(&mut self, words: &[&str]) -> Answer<String> {
        let [what, rest @ ..] = words else {
            return Err("read WHO+LENGTH dN@WHERE".to_owned());
        };
        let (who_asks, length) = split(what, "+")?;
        let request = self.request(who_asks, length)?;
        let copies = Case::candidates(rest)?;
        let chosen = self.policy.read(self.now, &request, &copies);
        let costs = copies
            .iter()
            .map(|it| self.policy.cost(&request, it).0.to_string());
        let costs: Vec<String> = costs.collect();
        Ok(format!("d{} {}", chosen.0, costs.join(",")))
    }

    fn sent(&mut self, words: &[&str]) -> Answer<()> {
        let (who_asks, length) = split(words.first().ok_or("sent what?".to_owned())?, "+")?;
        let request = self.request(who_asks, length)?;
        for candidate in Case::candidates(&words[1..])? {
            self.tickets += 1;
            let sent = Sent {
                ticket: Ticket(self.tickets),
                candidate,
                request,
                hedge: false,
            };
            self.policy.sent(self.now, &sent);
        }
        Ok(())
    }

    fn place(&mut self, words: &[&str]) -> Answer<String> {
        let [what, copies, rest @ ..] = words else {
            return Err("place WHO+LENGTH K dN/DOMAIN".to_owned());
        };
        let (who_asks, length) = split(what, "+")?;
        let request = self.request(who_asks, length)?;
        let mut disks = Vec::new();
        for word in rest {
            let parts: Vec<&str> = word.split('/').collect();
            let [name, domain, free @ ..] = parts.as_slice() else {
                return Err(format!("'{word}' has no domain"));
            };
            let free = free.first().map_or(Ok(1 << 40), |free| number(free))?;
            disks.push(Target {
                candidate: Candidate {
                    disk: disk(name)?,
                    local: true,
                    rotating: true,
                    at: None,
                },
                domain: DomainId(number(domain)? as u32),
                free: Bytes(free),
                capacity: Bytes::gib(1_000),
                reserved: Permille(0),
            });
        }
        let copies = number(copies)? as usize;
        Ok(
            match self.policy.place(self.now, &request, copies, &disks) {
                Err(error) => error.to_string(),
                Ok(disks) => {
                    let names: Vec<String> = disks.iter().map(|it| format!("d{}", it.0)).collect();
                    names.join(" ")
                }
            },
        )
    }

    /// One line; what it says, if it says something.
    fn line(&mut self, word: &str, rest: &str, expected: &str) -> Answer<String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let first = || number(words.first().copied().unwrap_or_default());
        let there = |is: bool| {
            if is {
                Ok(())
            } else {
                Err("it is not there".to_owned())
            }
        };
        match word {
            "enqueue" => return self.enqueue(&words),
            "report" => return Ok(self.report(expected)),
            "read" => return self.read(&words),
            "place" => return self.place(&words),
            "complete" => there(self.queue.complete(self.now, Ticket(first()?), Nanos(1)))?,
            "cancel" => there(self.queue.cancel(self.now, Ticket(first()?)))?,
            "wait" => self.now = self.now + Nanos(first()?),
            "hear" => self.hear(&words)?,
            "sent" => self.sent(&words)?,
            _ => return Err(format!("'{word}' is not known")),
        }
        Ok(String::new())
    }
}

/// Runs a file; answers how many things it says.
fn run(file: &str, text: &str) -> Answer<usize> {
    let mut case: Option<Case> = None;
    let (mut title, mut said) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let at =
            |why: String| format!("{file}:{number}: {line}\n  in the case: {title:?}\n  {why}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => title.clear(),
            "#" => title.push(rest.trim()),
            "given" => case = Some(Case::given(rest).map_err(at)?),
            _ => {
                let case = case
                    .as_mut()
                    .ok_or_else(|| at("a case begins with given".to_owned()))?;
                let (rest, expected) = rest.split_once("->").unwrap_or((rest, ""));
                let (rest, expected) = (rest.trim(), expected.trim());
                let got = case.line(word, rest, expected).map_err(at)?;
                if got != expected {
                    return Err(at(format!("it says: {got}")));
                }
                said += usize::from(!got.is_empty());
            }
        }
    }
    Ok(said)
}

#[test]
fn the_formulas_and_the_choices_where_the_paper_is_silent_are_carried_out() {
    let mut failures = Vec::new();
    for ((file, text), least) in FILES.into_iter().zip([45, 50]) {
        match run(file, text) {
            Ok(said) => assert!(said >= least, "{file} says only {said} things"),
            Err(why) => failures.push(why),
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn a_case_that_is_not_so_is_named_by_file_line_and_title() {
    let said = |text: &str| run("a.txt", text).unwrap_err();
    assert_eq!(
        said("# One seek.\ngiven a=1 b=5\nenqueue 1 A@9+1 -> 7"),
        "a.txt:3: enqueue 1 A@9+1 -> 7\n  in the case: [\"One seek.\"]\n  it says: 6"
    );
    for (text, why) in [
        ("report -> cost=0", "a case begins with given"),
        ("given c=1", "'c' is no parameter"),
        ("given a=x", "'x' is no number"),
        ("given\nenqueue 1 a@9+1", "'a' is no client"),
        ("given\ncomplete 4", "it is not there"),
        ("given\nhear x1 cost=3", "'x1' is no disk"),
        ("given\nguess 5", "'guess' is not known"),
    ] {
        assert!(said(text).ends_with(why), "{}", said(text));
    }
}

//! A reservation service in memory: what `/v2/reservations` answers, over a Unix socket, with faults on request.
//!
//! It stands for a cluster's daemon, so that what its clients do can be seen: every booking and every end in their order.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

/// What all reservations that run may come to, in bytes per second.
const CAPACITY: u64 = 10_000_000_000;

/// What happened, and to which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Booked(String),
    /// Its end was moved.
    Renewed(String),
    Ended(String),
}

struct State {
    all: Vec<Value>,
    events: Vec<Event>,
    /// So many connections more are closed without an answer.
    silent: usize,
    /// So many changes more are answered with 409.
    refuses_changes: usize,
    /// So many capabilities more cannot be had.
    loses_capabilities: usize,
    /// Nodes whose links are not booked.
    links_not_booked: Vec<String>,
    /// The names of volumes and of stores.
    there: [Vec<String>; 2],
    count: u64,
}

impl Default for State {
    fn default() -> State {
        let names = |of: &[&str]| of.iter().map(|it| (*it).to_owned()).collect();
        State {
            all: Vec::new(),
            events: Vec::new(),
            silent: 0,
            refuses_changes: 0,
            loses_capabilities: 0,
            links_not_booked: Vec::new(),
            there: [names(&["vm1"]), names(&["s0", "s1"])],
            count: 0,
        }
    }
}

/// A running service; it ends with the test's process.
#[derive(Clone)]
pub struct Service {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Service {
    /// Listens at `admin.sock` in `dir`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a service beside the test's thread"
    )]
    pub fn start(dir: &Path) -> Service {
        let listener = UnixListener::bind(dir.join("admin.sock")).expect("the folder is ours");
        let service = Service {
            state: Arc::default(),
        };
        let serving = service.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let service = serving.clone();
                std::thread::spawn(move || service.serve(stream));
            }
        });
        service
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().expect("no test panics with it")
    }

    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Waits until so much happened.
    pub fn await_events(&self, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let (state, changed) = &*self.state;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, Duration::from_secs(120), |state| {
            !enough(&state.events)
        });
        let (state, _) = waited.unwrap();
        assert!(enough(&state.events), "{:?}", state.events);
        state.events.clone()
    }

    /// What runs or is to come.
    pub fn running(&self) -> Vec<Value> {
        let is_live = |one: &&Value| one["state"] == "committed";
        self.lock().all.iter().filter(is_live).cloned().collect()
    }

    /// Closes the next `count` connections without an answer.
    pub fn be_silent(&self, count: usize) {
        self.lock().silent = count;
    }

    pub fn refuse_changes(&self) {
        self.refuse_some_changes(usize::MAX);
    }

    /// Refuses the next `count` changes.
    pub fn refuse_some_changes(&self, count: usize) {
        self.lock().refuses_changes = count;
    }

    /// Does not have the next `count` capabilities.
    pub fn lose_capabilities(&self, count: usize) {
        self.lock().loses_capabilities = count;
    }

    pub fn have_links_not_booked(&self, nodes: &[&str]) {
        self.lock().links_not_booked = nodes.iter().map(|it| (*it).to_owned()).collect();
    }

    /// There are these volumes and stores.
    pub fn have(&self, volumes: &[&str], stores: &[&str]) {
        self.lock().there =
            [volumes, stores].map(|all| all.iter().map(|it| (*it).to_owned()).collect());
    }

    /// The slots of all are over.
    pub fn let_all_end(&self) {
        for one in &mut self.lock().all {
            if one["state"] == "committed" {
                one["state"] = "ended".into();
                one["cause"] = "its time is out".into();
            }
        }
    }

    fn serve(&self, stream: UnixStream) {
        // A client that goes away is none of the test's concern.
        let _ = self.answer(stream);
    }

    fn answer(&self, stream: UnixStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (code, answer) = {
            let mut state = self.lock();
            if state.silent > 0 {
                state.silent -= 1;
                return Ok(());
            }
            state.carry_out(&method, &path, &body)
        };
        self.state.1.notify_all();
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let stream = reader.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(answer.as_bytes())
    }
}

fn now() -> u64 {
    let now = jiff::Timestamp::now().as_second();
    u64::try_from(now).expect("after 1970")
}

fn rate(of: &Value) -> u64 {
    let text = of.as_str().unwrap_or("0B/s");
    let rate: policy::share::BytesPerSec = text.parse().expect("a rate");
    rate.0
}

fn seconds(of: &Value) -> u64 {
    let text = of.as_str().expect("`for` is there");
    humantime::parse_duration(text).expect("a span").as_secs()
}

fn refusal(code: u16, error: &str) -> (u16, Value) {
    (
        code,
        json!({ "error": error, "what_to_do": "ask for what is there" }),
    )
}

impl State {
    fn carry_out(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let rest = path
            .strip_prefix("/v2/reservations")
            .map(|it| it.trim_matches('/'));
        let account = query.strip_prefix("account=");
        let named = |all: &[String]| all.iter().map(|name| json!({ "name": name })).collect();
        match (method, rest) {
            ("GET", None) if path == "/v1/cluster/volumes" => (200, named(&self.there[0])),
            ("GET", None) if path == "/v1/cluster" => {
                let stores: Value = named(&self.there[1]);
                (200, json!({ "stores": stores }))
            }
            ("POST", Some("")) => self.create(body, query == "dry_run=true"),
            ("GET", Some("")) => (200, self.all.iter().map(|one| shown(one, false)).collect()),
            (_, Some(rest)) => {
                let (id, is_capability) = match rest.strip_suffix("/capability") {
                    Some(id) => (id, true),
                    None => (rest, false),
                };
                let Some(at) = self.find(id, account) else {
                    return refusal(404, &format!("there is no reservation {id}"));
                };
                match method {
                    "GET" => (200, shown(&self.all[at], false)),
                    "POST" if is_capability && self.loses_capabilities > 0 => {
                        self.loses_capabilities -= 1;
                        refusal(503, "store s1 does not answer")
                    }
                    "POST" if is_capability => (200, shown(&self.all[at], true)),
                    "PATCH" if self.all[at]["state"] != "committed" => {
                        refusal(409, &format!("reservation {id} is ended"))
                    }
                    "PATCH" => self.change(at, body),
                    "DELETE" if self.all[at]["state"] != "committed" => {
                        (200, shown(&self.all[at], false))
                    }
                    "DELETE" => {
                        self.all[at]["state"] = "ended".into();
                        self.all[at]["cause"] = "released".into();
                        let name = self.all[at]["name"].as_str().unwrap_or_default();
                        self.events.push(Event::Ended(name.to_owned()));
                        (200, shown(&self.all[at], false))
                    }
                    _ => refusal(405, "no such method"),
                }
            }
            _ => refusal(404, &format!("there is nothing at {path}")),
        }
    }

    /// Those that ended are shown for a day by their ids, and their names are free.
    fn find(&self, id: &str, account: Option<&str>) -> Option<usize> {
        self.all.iter().position(|one| {
            let is_named = one["name"] == id && one["account"] == account.unwrap_or_default();
            one["id"] == id || is_named && one["state"] == "committed"
        })
    }

    /// As it is answered to its owner, where it was made or changed: with its capability, or the reason why not.
    fn answered(&mut self, at: usize) -> Value {
        let mut one = shown(&self.all[at], true);
        if self.loses_capabilities > 0 && !one["capability"].is_null() {
            self.loses_capabilities -= 1;
            one.as_object_mut().unwrap().remove("capability");
            one["capability_error"] = "store s1 does not answer".into();
        }
        one
    }

    fn promised(&self) -> u64 {
        let live = self.all.iter().filter(|one| one["state"] == "committed");
        let sum = |one: &Value| {
            one["read_bytes_per_second"].as_u64().unwrap()
                + one["write_bytes_per_second"].as_u64().unwrap()
        };
        live.map(sum).sum()
    }

    fn create(&mut self, asked: &Value, is_dry: bool) -> (u16, Value) {
        let name = asked["name"].as_str().unwrap_or_default().to_owned();
        let account = asked["account"].as_str().unwrap_or_default().to_owned();
        if let Some(at) = self.find(&name, Some(&account)) {
            return (200, self.answered(at));
        }
        let (read, write) = (rate(&asked["read"]), rate(&asked["write"]));
        let left = CAPACITY - self.promised();
        let fits = read + write <= left;
        let offer = json!({
            "fits": fits,
            "earliest_unix_seconds": now() + 60,
            "largest_permille": (left * 1000 / (read + write)).min(1000),
            "largest": format!("{left}B/s"),
            "longest_seconds": 3000,
            "refused": if fits { json!([]) } else { json!(["s0 is full"]) },
        });
        if is_dry {
            return (200, offer);
        }
        if !fits {
            let error = format!("cannot reserve {} bytes per second", read + write);
            return (
                409,
                json!({ "error": error, "what_to_do": "ask for less", "offer": offer }),
            );
        }
        self.count += 1;
        let from = match asked["from"].as_str() {
            Some(text) if text.ends_with('Z') => {
                text.parse::<jiff::Timestamp>().unwrap().as_second() as u64
            }
            _ => now(),
        };
        let capability = match asked["target"]["stores"].as_array() {
            Some(stores) if !stores.is_empty() => {
                Value::String(format!("tanadaset1.TESTTOKEN{:020}", self.count * 7919))
            }
            _ => Value::Null,
        };
        self.all.push(json!({
            "id": format!("r-{:032x}", self.count),
            "name": name, "account": account, "target": asked["target"], "state": "committed",
            "read_bytes_per_second": read, "write_bytes_per_second": write,
            "promised_now": { "read_bytes_per_second": read, "write_bytes_per_second": write },
            "from_unix_seconds": from, "until_unix_seconds": from + seconds(&asked["for"]),
            "tolerate": asked["tolerate"].as_u64().unwrap_or(0),
            "plan": asked["plan"].as_str().unwrap_or("any"),
            "parts": [{ "store": "s0", "number": self.count, "direction": "read", "rate_bytes_per_second": read }],
            "capability": capability,
        }));
        self.events.push(Event::Booked(name));
        let mut made = self.answered(self.all.len() - 1);
        if !self.links_not_booked.is_empty() {
            made["links_not_booked"] = self.links_not_booked.clone().into();
        }
        (201, made)
    }

    fn change(&mut self, at: usize, change: &Value) -> (u16, Value) {
        if self.refuses_changes > 0 {
            self.refuses_changes -= 1;
            return refusal(409, "the store is full");
        }
        let one = &mut self.all[at];
        for (key, now) in [
            ("read", "read_bytes_per_second"),
            ("write", "write_bytes_per_second"),
        ] {
            if change.get(key).is_some_and(Value::is_string) {
                one[now] = rate(&change[key]).into();
            }
        }
        if change.get("for").is_some_and(Value::is_string) {
            one["until_unix_seconds"] = (now() + seconds(&change["for"])).into();
        }
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        self.events.push(Event::Renewed(name));
        (200, self.answered(at))
    }
}

/// As it is answered: with its capability only to the owner who asks for it.
fn shown(one: &Value, with_capability: bool) -> Value {
    let mut one = one.clone();
    if !with_capability || one["capability"].is_null() {
        one.as_object_mut().unwrap().remove("capability");
    }
    one
}

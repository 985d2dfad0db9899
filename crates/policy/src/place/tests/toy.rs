//! A toy cluster in virtual time: four nodes with a FIFO disk each, closed-loop clients, multicasts every T.
//!
//! ```text
//! client --hop--> DiskQueue, FIFO: seek 4-12 ms unless it follows on, 100 MB/s --hop, with state--> client
//!                     '---- every T ----> all clients
//! ```
//!
//! No production model, and no figures to publish: it shows whether trends of the published and the stronger method go the
//! way they should.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::place::chance::Chance;

/// From a client to a disk of another node, and back.
const HOP: Nanos = Nanos::micros(100);
const WARM: Instant = Instant(1_000_000_000);
const END: Instant = Instant(11_000_000_000);
const EXTENT: u64 = 4 << 20;
/// All reads are of blocks with two copies.
const PAIRS: [[u32; 2]; 6] = [[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]];

#[derive(Debug, Clone, Copy)]
enum Pattern {
    Random,
    Sequential,
}

/// What a client does: `depth` requests of `bytes` always under way.
#[derive(Debug, Clone, Copy)]
struct Load {
    pattern: Pattern,
    bytes: u64,
    depth: usize,
    class: Class,
}

#[derive(Debug, Clone, Copy)]
struct Scene<'a> {
    kind: Kind,
    tanada: TanadaOptions,
    /// T.
    every: Nanos,
    loads: &'a [Load],
}

#[derive(Debug, Clone, Copy)]
struct Job {
    ticket: Ticket,
    client: usize,
    candidate: Candidate,
    request: Request,
    sent: Instant,
    arrived: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrive(Job),
    Done(Job, Nanos),
    Answer(Job, Reply),
    Multicast,
}

struct Client {
    load: Load,
    policy: Box<dyn ReplicaPolicy>,
    /// Of sequential ones, in their own image.
    next: u64,
    bytes: u64,
    waits: Vec<Nanos>,
}

struct Disk {
    queue: DiskQueue,
    waiting: VecDeque<Job>,
    busy: bool,
    head: Option<At>,
    on_their_way: Vec<Job>,
}

struct Toy<'a> {
    scene: Scene<'a>,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    numbers: u64,
    chance: Chance,
    clients: Vec<Client>,
    disks: Vec<Disk>,
}

/// What came out: MB/s of each client, and the 99th percentile of its response times.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    mb_s: Vec<f64>,
    p99: Vec<Nanos>,
}

impl<'a> Toy<'a> {
    fn new(scene: Scene<'a>, seed: u64) -> Toy<'a> {
        let client = |(i, load): (usize, &Load)| Client {
            load: *load,
            policy: build(
                scene.kind,
                &Options {
                    seed: seed * 100 + i as u64,
                    clients: scene.loads.len() as u32,
                    tanada: scene.tanada,
                    ..Options::default()
                },
            ),
            next: i as u64 * 10_000 * EXTENT,
            bytes: 0,
            waits: Vec::new(),
        };
        let disk = |_| Disk {
            queue: DiskQueue::new(scene.kind.queue(Weights::default())),
            waiting: VecDeque::new(),
            busy: false,
            head: None,
            on_their_way: Vec::new(),
        };
        Toy {
            scene,
            now: Instant(0),
            events: BTreeMap::new(),
            numbers: 0,
            chance: Chance::new(seed),
            clients: scene.loads.iter().enumerate().map(client).collect(),
            disks: (0..4).map(disk).collect(),
        }
    }

    fn after(&mut self, time: Nanos, event: Event) {
        self.numbers += 1;
        self.events.insert((self.now + time, self.numbers), event);
    }

    fn run(mut self) -> Outcome {
        for client in 0..self.clients.len() {
            (0..self.clients[client].load.depth).for_each(|_| self.send(client));
        }
        self.after(self.scene.every, Event::Multicast);
        while let Some(((now, _), event)) = self.events.pop_first() {
            self.now = now;
            match event {
                _ if now >= END => break,
                Event::Arrive(job) => self.arrive(job),
                Event::Done(job, service) => self.done(job, service),
                Event::Answer(job, reply) => self.answer(job, &reply),
                Event::Multicast => self.multicast(),
            }
        }
        let seconds = END.since(WARM).secs_f64();
        let p99 = |client: &mut Client| {
            client.waits.sort_unstable();
            client.waits[client.waits.len() * 99 / 100]
        };
        Outcome {
            mb_s: self
                .clients
                .iter()
                .map(|it| it.bytes as f64 / 1e6 / seconds)
                .collect(),
            p99: self.clients.iter_mut().map(p99).collect(),
        }
    }

    /// Where the client's next request begins.
    fn place(&mut self, client: usize) -> At {
        let it = &mut self.clients[client];
        let byte = match it.load.pattern {
            Pattern::Sequential => it.next,
            Pattern::Random => {
                let blocks = 2_000 * (EXTENT / it.load.bytes);
                self.chance.below(blocks as usize) as u64 * it.load.bytes
            }
        };
        it.next += it.load.bytes;
        At {
            object: byte / EXTENT,
            byte: byte % EXTENT,
        }
    }

    fn send(&mut self, client: usize) {
        let at = self.place(client);
        let load = self.clients[client].load;
        let request = Request {
            sequential: matches!(load.pattern, Pattern::Sequential),
            penalties: Penalties::fair(),
            ..read_of(client as u64, load.class, load.bytes)
        };
        let pair = PAIRS[(at.object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 6];
        let copies = pair.map(|disk| Candidate {
            local: disk as usize == client % 4,
            at: Some(at),
            ..copy(disk, 0)
        });
        if self.clients[client].policy.needs_exact_states() {
            self.tell_exactly(client);
        }
        let policy = &mut self.clients[client].policy;
        let disk = policy.read(self.now, &request, &copies);
        let candidate = *copies
            .iter()
            .find(|it| it.disk == disk)
            .expect("one of them");
        self.numbers += 1;
        let ticket = Ticket(self.numbers);
        policy.sent(
            self.now,
            &Sent {
                ticket,
                candidate,
                request,
                hedge: false,
            },
        );
        let (sent, arrived) = (self.now, self.now + HOP);
        let job = Job {
            ticket,
            client,
            candidate,
            request,
            sent,
            arrived,
        };
        self.disks[disk.0 as usize].on_their_way.push(job);
        self.after(HOP, Event::Arrive(job));
    }

    /// Every queue as it is, with what is on its way.
    fn tell_exactly(&mut self, client: usize) {
        for (number, disk) in (0..).zip(&self.disks) {
            let mut queue = disk.queue.clone();
            for job in &disk.on_their_way {
                let Candidate { at, local, .. } = job.candidate;
                queue
                    .enqueue(self.now, job.ticket, &job.request, at, local)
                    .expect("room");
            }
            let state = queue.report(self.now);
            self.clients[client]
                .policy
                .heard(self.now, DiskId(number), &state);
        }
    }

    fn arrive(&mut self, job: Job) {
        let disk = &mut self.disks[job.candidate.disk.0 as usize];
        disk.on_their_way.retain(|it| it.ticket != job.ticket);
        let Candidate { at, local, .. } = job.candidate;
        disk.queue
            .enqueue(self.now, job.ticket, &job.request, at, local)
            .expect("room");
        disk.waiting.push_back(job);
        self.serve(job.candidate.disk);
    }

    fn serve(&mut self, disk: DiskId) {
        let disk = &mut self.disks[disk.0 as usize];
        if disk.busy {
            return;
        }
        let Some(job) = disk.waiting.pop_front() else {
            return;
        };
        let transfer = PerByte(10_000).times(job.request.bytes);
        let seek = match disk.head == job.candidate.at {
            true => Nanos(0),
            false => Nanos::micros(4_000 + self.chance.below(8_000) as u64),
        };
        disk.busy = true;
        disk.head = job.candidate.at.map(|at| at.after(job.request.bytes));
        self.after(seek + transfer, Event::Done(job, seek + transfer));
    }

    fn done(&mut self, job: Job, service: Nanos) {
        let disk = &mut self.disks[job.candidate.disk.0 as usize];
        disk.busy = false;
        assert!(disk.queue.complete(self.now, job.ticket, service));
        let reply = Reply {
            residence: self.now.since(job.arrived),
            service,
            state: Some(disk.queue.report(self.now)),
        };
        self.after(HOP, Event::Answer(job, reply));
        self.serve(job.candidate.disk);
    }

    fn answer(&mut self, job: Job, reply: &Reply) {
        let client = &mut self.clients[job.client];
        client
            .policy
            .answered(self.now, job.candidate.disk, job.ticket, reply);
        if self.now >= WARM {
            client.bytes += job.request.bytes.0;
            client.waits.push(self.now.since(job.sent));
        }
        self.send(job.client);
    }

    fn multicast(&mut self) {
        for (number, disk) in (0..).zip(&mut self.disks) {
            let state = disk.queue.report(self.now);
            if !self.scene.kind.eq(&Kind::Oracle) {
                for client in &mut self.clients {
                    client.policy.heard(self.now, DiskId(number), &state);
                }
            }
        }
        self.after(self.scene.every, Event::Multicast);
    }
}

/// Means over seeds 1 to 3: MB/s of the first client, of the others together, p99 of the last in ms.
fn measured(kind: Kind, every: u64, loads: &[Load]) -> [f64; 3] {
    let scene = Scene {
        kind,
        tanada: TanadaOptions::default(),
        every: Nanos::millis(every),
        loads,
    };
    let mut sums = [0.0; 3];
    for seed in 1..=3 {
        let outcome = Toy::new(scene, seed).run();
        sums[0] += outcome.mb_s[0];
        sums[1] += outcome.mb_s[1..].iter().sum::<f64>();
        sums[2] += outcome.p99.last().expect("clients").0 as f64 / 1e6;
    }
    sums.map(|sum| sum / 3.0)
}

/// One preferred sequential reader and seven others.
fn preferred(others: usize) -> Vec<Load> {
    let load = Load {
        pattern: Pattern::Sequential,
        bytes: 256 << 10,
        depth: 2,
        class: Class::Normal,
    };
    let mut loads = vec![load; others + 1];
    loads[0].class = Class::High;
    loads
}

/// Two random readers of 1 MB, two of 4 KiB.
fn mix() -> [Load; 4] {
    let load = |bytes| Load {
        pattern: Pattern::Random,
        bytes,
        depth: 4,
        class: Class::Normal,
    };
    [load(1 << 20), load(1 << 20), load(4 << 10), load(4 << 10)]
}

#[test]
fn fresh_states_serve_a_preferred_client_better_than_round_robin_does() {
    let loads = preferred(7);
    let [turns, ..] = measured(Kind::RoundRobin, 5, &loads);
    let [amount, ..] = measured(Kind::Clbs, 5, &loads);
    let [published, ..] = measured(Kind::QueueCost, 5, &loads);
    assert!(
        published > turns * 1.2 && published > amount,
        "{published} {amount} {turns}"
    );
}

#[test]
fn fresh_states_help_large_reads_and_old_ones_harm_only_the_published_way() {
    let large = |kind, every| {
        let [first, others, _] = measured(kind, every, &mix());
        // The small ones add less than one MB/s each.
        first + others
    };
    let turns = large(Kind::RoundRobin, 5);
    assert!(large(Kind::QueueCost, 5) > turns);
    let old = large(Kind::QueueCost, 500);
    assert!(
        old < turns * 0.95,
        "all run to the disk that was idle: {old} {turns}"
    );
    let ours = large(Kind::Tanada, 500);
    assert!(ours > turns, "{ours} {turns}");
}

#[test]
fn the_stronger_policy_keeps_a_preferred_client_fast_with_states_of_100_ms() {
    let loads = preferred(7);
    let [published, ..] = measured(Kind::QueueCost, 100, &loads);
    let [ours, others, _] = measured(Kind::Tanada, 100, &loads);
    let [oracle, ..] = measured(Kind::Oracle, 100, &loads);
    let [turns, all_others, _] = measured(Kind::RoundRobin, 100, &loads);
    assert!(
        ours > published * 1.5 && ours > oracle / 2.0,
        "{ours} {published} {oracle}"
    );
    assert!(
        ours + others > 0.9 * (turns + all_others),
        "and no client pays for it in sum"
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let loads = mix();
    let scene = Scene {
        kind: Kind::Tanada,
        tanada: TanadaOptions::default(),
        every: Nanos::millis(20),
        loads: &loads,
    };
    let run = |seed| Toy::new(scene, seed).run();
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

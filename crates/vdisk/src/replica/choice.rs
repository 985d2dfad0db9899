//! Which copy is asked: carries out what a replica policy decides, for one node.
//!
//! ```text
//! read(request, copies) -> policy: one of them -> sent -> the copy's answer -> answered
//!                             |  late: a second copy is asked as well, the first answer counts
//!                             |  failed: the policy chooses among the others, until one answers or none is left
//! ```
//!
//! The caller says which stores may be asked: a copy that is listed may be read. The policy hears of every request that goes
//! out, and of what becomes of it, also when its caller gives up half-way.
//!
//! Source: COST 3.2 (a read goes to the copy whose queue costs least, a new allocation to the cheapest disks);
//! hedged reads are ours.
//!
//! Always true:
//! 1. Each request that the policy was given is answered or failed exactly once.
//! 2. A copy that failed is not asked again for the same read.
//! 3. At most two copies are asked at once.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use policy::place::{
    Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, State, Target, Ticket,
};

/// What a copy answered, and what came with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported<T> {
    /// The answer.
    pub what: T,
    /// How long it took, and how long the disk's queue is.
    pub reply: Reply,
}

/// A read that a copy answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got<T, E> {
    /// The answer.
    pub what: T,
    /// Whose.
    pub from: DiskId,
    /// Those that were asked before and failed.
    pub failed: Vec<(DiskId, E)>,
}

/// What became of reads so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads that were asked for.
    pub reads: u64,
    /// Second copies that were asked because the first was late.
    pub hedges: u64,
    /// Of these, those that answered first.
    pub hedges_won: u64,
    /// Copies that failed, another being asked in their place.
    pub failovers: u64,
}

/// The choice of one node. Lives on one thread.
///
/// # Example
/// ```
/// use base::{Bytes, Nanos};
/// use policy::place::*;
/// use vdisk::replica::choice::{Choice, Reported};
///
/// env::Runtime::simulated(1).block_on(async {
///     let choice = Choice::new(build(Kind::Tanada, &Options::default()));
///     let copy = |disk| Candidate { disk: DiskId(disk), local: false, rotating: true, at: None };
///     let request = Request {
///         origin: Origin { client: ClientId(1), class: Class::Normal },
///         op: Op::Read,
///         bytes: Bytes::kib(4),
///         sequential: false,
///         penalties: Penalties::default(),
///     };
///     let got = choice
///         .read(&request, &[copy(1), copy(2)], |disk| async move {
///             match disk {
///                 DiskId(1) => Err("disk 1 is broken"),
///                 _ => Ok(Reported { what: "data", reply: Reply { residence: Nanos(0), service: Nanos(0), state: None } }),
///             }
///         })
///         .await
///         .unwrap();
///     assert_eq!((got.what, got.from), ("data", DiskId(2)));
/// });
/// ```
pub struct Choice {
    policy: RefCell<Box<dyn ReplicaPolicy>>,
    tickets: Cell<u64>,
    counters: Cell<Counters>,
}

impl Choice {
    /// With this policy.
    pub fn new(policy: Box<dyn ReplicaPolicy>) -> Choice {
        Choice {
            policy: RefCell::new(policy),
            tickets: Cell::new(0),
            counters: Cell::default(),
        }
    }

    /// Asks one of `copies` after the other, late ones two at a time, until one answers.
    ///
    /// # Errors
    /// What each of them said, in the order they were given up, if none answered.
    ///
    /// # Panics
    /// If `copies` is empty.
    pub async fn read<T, E, F: Future<Output = Result<Reported<T>, E>>>(
        &self,
        request: &Request,
        copies: &[Candidate],
        ask: impl Fn(DiskId) -> F,
    ) -> Result<Got<T, E>, Vec<(DiskId, E)>> {
        self.read_first(request, copies, |_| false, ask).await
    }

    /// As [`Choice::read`]; as long as some of `copies` are `preferred`, the policy chooses among those. A second copy that is
    /// asked because the first is late may be any.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub async fn read_first<T, E, F: Future<Output = Result<Reported<T>, E>>>(
        &self,
        request: &Request,
        copies: &[Candidate],
        preferred: impl Fn(DiskId) -> bool,
        ask: impl Fn(DiskId) -> F,
    ) -> Result<Got<T, E>, Vec<(DiskId, E)>> {
        assert!(!copies.is_empty(), "there is a copy to read");
        self.count(|counters| counters.reads += 1);
        let mut left = copies.to_vec();
        let mut failed = Vec::new();
        loop {
            let first = left.iter().filter(|copy| preferred(copy.disk));
            let first: Vec<Candidate> = first.copied().collect();
            let disk = {
                let among = if first.is_empty() { &left } else { &first };
                let mut policy = self.policy.borrow_mut();
                policy.read(env::now(), request, among)
            };
            let asking = Asking::new(self, request, &left, &ask, disk);
            if let Some((from, what)) = asking.ended(&mut failed).await {
                return Ok(Got { what, from, failed });
            }
            left.retain(|copy| failed.iter().all(|(disk, _)| *disk != copy.disk));
            if left.is_empty() {
                return Err(failed);
            }
            self.count(|counters| counters.failovers += 1);
        }
    }

    /// Lets the policy know of a request to one copy that is not its to choose, such as one of a write's.
    ///
    /// # Errors
    /// What the copy said.
    pub async fn one<T, E, F: Future<Output = Result<Reported<T>, E>>>(
        &self,
        request: &Request,
        copy: Candidate,
        answer: F,
    ) -> Result<T, E> {
        Asked::new(self, request, copy, false, answer).await
    }

    /// The disks for `copies` copies of a new allocation; distinct failure domains, cheapest first.
    ///
    /// # Errors
    /// [`PlaceError`] if fewer domains have room.
    pub fn place(
        &self,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut policy = self.policy.borrow_mut();
        policy.place(env::now(), request, copies, disks)
    }

    /// A disk reported its queue unasked.
    pub fn heard(&self, disk: DiskId, state: &State) {
        let mut policy = self.policy.borrow_mut();
        policy.heard(env::now(), disk, &state.bounded());
    }

    /// Must every disk report its present state before each decision?
    pub fn needs_exact_states(&self) -> bool {
        self.policy.borrow().needs_exact_states()
    }

    /// Disks that are avoided now because they are slower than they should be.
    pub fn ejected(&self) -> Vec<DiskId> {
        self.policy.borrow().ejected(env::now())
    }

    /// What became of reads so far.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

// --- one read -----------------------------------------------------------------------------------------

/// One or two copies that are asked for the same read.
struct Asking<'a, F, A> {
    choice: &'a Choice,
    request: &'a Request,
    copies: &'a [Candidate],
    ask: &'a A,
    first: Option<Asked<'a, F>>,
    second: Option<Asked<'a, F>>,
    /// When to think of a second one.
    alarm: Option<Pin<Box<env::Sleep>>>,
}

impl<'a, T, E, F, A> Asking<'a, F, A>
where
    F: Future<Output = Result<Reported<T>, E>>,
    A: Fn(DiskId) -> F,
{
    fn new(
        choice: &'a Choice,
        request: &'a Request,
        copies: &'a [Candidate],
        ask: &'a A,
        disk: DiskId,
    ) -> Self {
        let first = Asked::new(choice, request, find(copies, disk), false, ask(disk));
        let alarm = choice.policy.borrow().hedge_at(disk, first.ticket);
        Asking {
            choice,
            request,
            copies,
            ask,
            first: Some(first),
            second: None,
            alarm: alarm.map(|at| Box::pin(env::sleep_until(at))),
        }
    }

    /// The first answer, and whose; none if all that were asked failed, what they said is added to `failed`.
    async fn ended(mut self, failed: &mut Vec<(DiskId, E)>) -> Option<(DiskId, T)> {
        std::future::poll_fn(|context| self.poll(failed, context)).await
    }

    fn poll(
        &mut self,
        failed: &mut Vec<(DiskId, E)>,
        context: &mut Context<'_>,
    ) -> Poll<Option<(DiskId, T)>> {
        if let Some(answer) = poll_asked(&mut self.first, failed, context) {
            return Poll::Ready(Some(answer));
        }
        let rings = |alarm: &mut Pin<Box<env::Sleep>>| alarm.as_mut().poll(context).is_ready();
        if self.alarm.as_mut().is_some_and(rings) {
            self.alarm = None;
            self.hedge();
        }
        if let Some(answer) = poll_asked(&mut self.second, failed, context) {
            self.choice.count(|counters| counters.hedges_won += 1);
            return Poll::Ready(Some(answer));
        }
        match (&self.first, &self.second) {
            (None, None) => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }

    /// Asks a second copy, if the policy wants one and the first has not failed.
    fn hedge(&mut self) {
        let Some(first) = &self.first else { return };
        let second = {
            let mut policy = self.choice.policy.borrow_mut();
            policy.hedge(env::now(), first.copy.disk, first.ticket, self.copies)
        };
        let Some(second) = second else { return };
        self.choice.count(|counters| counters.hedges += 1);
        let copy = find(self.copies, second);
        let asked = Asked::new(self.choice, self.request, copy, true, (self.ask)(second));
        self.second = Some(asked);
    }
}

/// The answer if there is one now; a copy that failed is taken out and noted.
fn poll_asked<T, E, F: Future<Output = Result<Reported<T>, E>>>(
    asked: &mut Option<Asked<'_, F>>,
    failed: &mut Vec<(DiskId, E)>,
    context: &mut Context<'_>,
) -> Option<(DiskId, T)> {
    let one = asked.as_mut()?;
    let disk = one.copy.disk;
    let Poll::Ready(answer) = Pin::new(one).poll(context) else {
        return None;
    };
    *asked = None;
    match answer {
        Ok(what) => Some((disk, what)),
        Err(error) => {
            failed.push((disk, error));
            None
        }
    }
}

fn find(copies: &[Candidate], disk: DiskId) -> Candidate {
    let found = copies.iter().find(|copy| copy.disk == disk);
    *found.unwrap_or_else(|| panic!("the policy chose disk {}, which has no copy", disk.0))
}

/// A request that one copy was sent; the policy hears what becomes of it. Given up, it counts as cancelled.
struct Asked<'a, F> {
    choice: &'a Choice,
    copy: Candidate,
    ticket: Ticket,
    answer: Option<Pin<Box<F>>>,
}

impl<'a, F> Asked<'a, F> {
    fn new(
        choice: &'a Choice,
        request: &Request,
        copy: Candidate,
        hedge: bool,
        answer: F,
    ) -> Asked<'a, F> {
        let ticket = Ticket(choice.tickets.get());
        choice.tickets.set(ticket.0 + 1);
        let sent = Sent {
            ticket,
            candidate: copy,
            request: *request,
            hedge,
        };
        choice.policy.borrow_mut().sent(env::now(), &sent);
        Asked {
            choice,
            copy,
            ticket,
            answer: Some(Box::pin(answer)),
        }
    }
}

impl<T, E, F: Future<Output = Result<Reported<T>, E>>> Future for Asked<'_, F> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        let answer = self
            .answer
            .as_mut()
            .expect("it is polled until it is ready");
        let Poll::Ready(answer) = answer.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.answer = None;
        let mut policy = self.choice.policy.borrow_mut();
        let (now, disk, ticket) = (env::now(), self.copy.disk, self.ticket);
        Poll::Ready(match answer {
            Ok(reported) => {
                let reply = Reply {
                    state: reported.reply.state.map(State::bounded),
                    ..reported.reply
                };
                policy.answered(now, disk, ticket, &reply);
                Ok(reported.what)
            }
            Err(error) => {
                policy.failed(now, disk, ticket, true);
                Err(error)
            }
        })
    }
}

impl<F> Drop for Asked<'_, F> {
    fn drop(&mut self) {
        if self.answer.take().is_some() {
            let mut policy = self.choice.policy.borrow_mut();
            policy.failed(env::now(), self.copy.disk, self.ticket, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use base::{Bytes, Instant, Nanos};
    use policy::place::{Class, ClientId, Op, Origin, Penalties};

    use super::*;

    /// Writes down all its input; prefers low numbers, thinks of a second copy after a millisecond.
    #[derive(Default)]
    struct Scribe {
        sent: Vec<(u32, bool)>,
        open: BTreeSet<u64>,
        ends: Vec<(u32, &'static str)>,
    }

    struct Watched(Rc<RefCell<Scribe>>);

    impl ReplicaPolicy for Watched {
        fn read(&mut self, _: Instant, _: &Request, copies: &[Candidate]) -> DiskId {
            copies.iter().map(|copy| copy.disk).min().expect("a copy")
        }

        fn place(
            &mut self,
            _: Instant,
            _: &Request,
            copies: usize,
            disks: &[Target],
        ) -> Result<Vec<DiskId>, PlaceError> {
            Ok(disks
                .iter()
                .take(copies)
                .map(|it| it.candidate.disk)
                .collect())
        }

        fn sent(&mut self, _: Instant, sent: &Sent) {
            let mut scribe = self.0.borrow_mut();
            scribe.sent.push((sent.candidate.disk.0, sent.hedge));
            assert!(
                scribe.open.insert(sent.ticket.0),
                "no ticket is given twice"
            );
        }

        fn answered(&mut self, _: Instant, disk: DiskId, ticket: Ticket, _: &Reply) {
            self.end(disk, ticket, "answered");
        }

        fn failed(&mut self, _: Instant, disk: DiskId, ticket: Ticket, fault: bool) {
            self.end(disk, ticket, if fault { "failed" } else { "cancelled" });
        }

        fn hedge_at(&self, _: DiskId, _: Ticket) -> Option<Instant> {
            Some(env::now() + Nanos::millis(1))
        }

        fn hedge(
            &mut self,
            _: Instant,
            disk: DiskId,
            _: Ticket,
            copies: &[Candidate],
        ) -> Option<DiskId> {
            copies.iter().map(|it| it.disk).find(|it| *it != disk)
        }
    }

    impl Watched {
        fn end(&self, disk: DiskId, ticket: Ticket, how: &'static str) {
            let mut scribe = self.0.borrow_mut();
            assert!(scribe.open.remove(&ticket.0), "it ends once, and was sent");
            scribe.ends.push((disk.0, how));
        }
    }

    fn scribe() -> (Rc<RefCell<Scribe>>, Choice) {
        let scribe = Rc::new(RefCell::new(Scribe::default()));
        let choice = Choice::new(Box::new(Watched(Rc::clone(&scribe))));
        (scribe, choice)
    }

    fn request() -> Request {
        Request {
            origin: Origin {
                client: ClientId(1),
                class: Class::Normal,
            },
            op: Op::Read,
            bytes: Bytes::kib(4),
            sequential: false,
            penalties: Penalties::default(),
        }
    }

    fn copies(count: u32) -> Vec<Candidate> {
        let copy = |disk| Candidate {
            disk: DiskId(disk),
            local: false,
            rotating: true,
            at: None,
        };
        (0..count).map(copy).collect()
    }

    /// A copy that answers after so many microseconds, or fails then.
    async fn after(disk: DiskId, micros: u64, well: bool) -> Result<Reported<u32>, u32> {
        env::sleep(Nanos::micros(micros)).await;
        let reply = Reply {
            residence: Nanos::micros(micros),
            service: Nanos::micros(micros),
            state: None,
        };
        let reported = Reported {
            what: disk.0,
            reply,
        };
        well.then_some(reported).ok_or(disk.0)
    }

    /// What became of a read.
    type Read = Result<Got<u32, u32>, Vec<(DiskId, u32)>>;

    fn run(count: u32, copy: impl Fn(u32) -> (u64, bool) + 'static) -> (Read, Scribe, Counters) {
        env::Runtime::simulated(1).block_on(async move {
            let (scribe, choice) = scribe();
            let ask = |disk: DiskId| {
                let (micros, well) = copy(disk.0);
                after(disk, micros, well)
            };
            let read = choice.read(&request(), &copies(count), ask).await;
            let counters = choice.counters();
            assert!(
                scribe.borrow().open.is_empty(),
                "all that was sent has ended"
            );
            (read, scribe.take(), counters)
        })
    }

    #[test]
    fn a_copy_that_fails_is_followed_by_the_next_and_never_asked_again() {
        let (read, scribe, counters) = run(3, |disk| (10, disk == 2));
        let got = read.expect("the third copy answers");
        assert_eq!((got.what, got.from), (2, DiskId(2)));
        assert_eq!(got.failed, [(DiskId(0), 0), (DiskId(1), 1)]);
        assert_eq!(scribe.ends, [(0, "failed"), (1, "failed"), (2, "answered")]);
        assert_eq!(counters.failovers, 2);
    }

    #[test]
    fn when_all_copies_fail_each_says_why() {
        let (read, scribe, _) = run(2, |_| (10, false));
        assert_eq!(read, Err(vec![(DiskId(0), 0), (DiskId(1), 1)]));
        assert_eq!(scribe.sent.len(), 2);
    }

    #[test]
    fn a_late_copy_is_overtaken_by_a_second_one_and_cancelled() {
        let (read, scribe, counters) = run(3, |disk| (if disk == 0 { 50_000 } else { 10 }, true));
        assert_eq!(read.expect("the second answers").from, DiskId(1));
        assert_eq!(scribe.sent, [(0, false), (1, true)]);
        assert_eq!(scribe.ends, [(1, "answered"), (0, "cancelled")]);
        assert_eq!((counters.hedges, counters.hedges_won), (1, 1));
    }

    #[test]
    fn only_a_late_first_copy_is_hedged_and_it_may_still_win() {
        let (_, scribe, _) = run(2, |_| (900, true));
        assert_eq!(scribe.sent, [(0, false)]);
        let (read, scribe, counters) = run(2, |disk| (if disk == 0 { 2_000 } else { 9_000 }, true));
        assert_eq!(read.expect("the first answers").from, DiskId(0));
        assert_eq!(scribe.ends, [(0, "answered"), (1, "cancelled")]);
        assert_eq!((counters.hedges, counters.hedges_won), (1, 0));
    }

    #[test]
    fn of_a_hedged_read_both_may_fail_and_the_third_is_asked() {
        let (read, scribe, _) = run(3, |disk| match disk {
            0 => (5_000, false),
            1 => (10, false),
            _ => (10, true),
        });
        let got = read.expect("the third copy answers");
        assert_eq!(got.failed, [(DiskId(1), 1), (DiskId(0), 0)]);
        assert_eq!(scribe.sent, [(0, false), (1, true), (2, false)]);
    }

    #[test]
    fn a_read_that_is_given_up_half_way_is_cancelled_at_the_policy() {
        env::Runtime::simulated(1).block_on(async {
            let (scribe, choice) = scribe();
            let (request, copies) = (request(), copies(2));
            let read = choice.read(&request, &copies, |disk| after(disk, 50_000, true));
            assert!(env::timeout(Nanos::millis(5), read).await.is_err());
            let scribe = scribe.borrow();
            assert!(scribe.open.is_empty());
            assert_eq!(scribe.ends, [(0, "cancelled"), (1, "cancelled")]);
        });
    }

    #[test]
    fn the_policy_hears_of_each_part_of_a_write_and_of_one_that_is_given_up() {
        env::Runtime::simulated(1).block_on(async {
            let (scribe, choice) = scribe();
            let (request, copies) = (request(), copies(3));
            let parts = copies.iter().map(|copy| {
                let micros = 100 + u64::from(copy.disk.0);
                choice.one(&request, *copy, after(copy.disk, micros, copy.disk.0 != 1))
            });
            let answers = env::sync::join_all(parts.collect::<Vec<_>>()).await;
            assert_eq!(answers, [Ok(0), Err(1), Ok(2)]);
            let late = choice.one(&request, copies[0], after(DiskId(0), 50_000, true));
            assert!(env::timeout(Nanos::millis(5), late).await.is_err());
            let scribe = scribe.borrow();
            assert!(scribe.open.is_empty());
            let ends = &scribe.ends;
            assert_eq!(ends[..3], [(0, "answered"), (1, "failed"), (2, "answered")]);
            assert_eq!(ends[3..], [(0, "cancelled")]);
        });
    }
}

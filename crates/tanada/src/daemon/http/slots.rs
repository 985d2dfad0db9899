//! How many connections has one listener of the admin API open, from where, and which makes room for the next?
//!
//! ```text
//! one more -> too many of its party, of all users, or in all? -> the silent one that was heard longest ago is closed
//!                                                             \-> all of them are being answered: the new one is turned away
//! ```
//!
//! Silent is a connection without a request under way, and a request whose body has not come whole is none. The addresses of
//! one host count as one ([`env::net::host_of`]). In TLS a handshake has a share of its own ([`Slots::take_to_greet`]).
//!
//! Always true:
//! 1. A connection whose request is being answered is not closed to make room. If its request begins after it was chosen and
//!    before it is closed, it stays.
//! 2. No more than the limit are open when one is taken in, those that are about to close left out. Those that stay may be
//!    beyond the limit; then the next one needs as many more silent ones to make room.
//! 3. Those that showed a certificate are the last to be closed.
//! 4. Of a Unix socket's places [`RESERVED`] are never taken by other users than root and the daemon's owner.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// Connections at once of one listener.
pub const CONNECTIONS_MAX: usize = 128;
/// Of these, from one host, and of root or the daemon's owner.
const CONNECTIONS_PER_HOST_MAX: usize = 64;
/// Of these, whose handshake in TLS is under way.
const GREETING_MAX: usize = 64;
/// Of these, from one host.
const GREETING_PER_HOST_MAX: usize = 32;
/// Of the connections, of one other user at a Unix socket.
const CONNECTIONS_PER_USER_MAX: usize = 32;
/// Of these, for root and the daemon's owner alone, at a Unix socket.
pub const RESERVED: usize = 32;

/// With whom a connection shares its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// Those of one host.
    Host(IpAddr),
    /// Those of one user of this machine; `None`: users of whom the system does not say who they are.
    User(Option<u32>),
    /// Those of root, or of the daemon's owner.
    Owner(u32),
}

impl Party {
    fn most(self) -> usize {
        match self {
            Party::Host(_) | Party::Owner(_) => CONNECTIONS_PER_HOST_MAX,
            Party::User(_) => CONNECTIONS_PER_USER_MAX,
        }
    }
}

/// The connections of one listener.
#[derive(Clone, Default)]
pub struct Slots(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    /// Counts connections and requests, so that later is more.
    count: u64,
    by_number: BTreeMap<u64, Member>,
}

struct Member {
    party: Party,
    /// Requests under way.
    under_way: usize,
    /// When its last request ended; 0: it never sent one.
    heard: u64,
    /// Its handshake in TLS is under way.
    greeting: bool,
    /// It showed a certificate.
    shown: bool,
    /// Chosen to make room, and no request has begun since.
    leaving: bool,
    needed: Arc<Notify>,
}

impl Open {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Sees that fewer than `most` of those that count are open; is that so?
    fn make_room(&mut self, most: usize, counts: impl Fn(&Member) -> bool) -> bool {
        let all = || {
            let open = self.by_number.iter().filter(|(_, member)| !member.leaving);
            open.filter(|(_, member)| counts(member))
        };
        let too_many = (all().count() + 1).saturating_sub(most);
        let silent = all().filter(|(_, member)| member.under_way == 0);
        let mut chosen: Vec<(bool, u64, u64)> = silent
            .map(|(number, member)| (member.shown, member.heard, *number))
            .collect();
        if chosen.len() < too_many {
            return false;
        }
        chosen.sort_unstable();
        for (_, _, number) in &chosen[..too_many] {
            if let Some(member) = self.by_number.get_mut(number) {
                member.leaving = true;
                member.needed.notify_one();
            }
        }
        true
    }
}

/// One open connection.
pub struct Slot {
    of: Slots,
    number: u64,
    needed: Arc<Notify>,
}

/// A request under way.
pub struct UnderWay(Arc<Slot>);

impl Slots {
    /// A slot, if there is one for this party or a silent connection leaves one.
    pub fn take(&self, party: Party) -> Option<Slot> {
        self.take_as(party, false)
    }

    /// The same for one whose handshake comes first, until [`Slot::greeted`]. Of too many handshakes the one that began first
    /// ends.
    pub fn take_to_greet(&self, party: Party) -> Option<Slot> {
        self.take_as(party, true)
    }

    fn take_as(&self, party: Party, greeting: bool) -> Option<Slot> {
        let mut open = self.0.lock().ok()?;
        let party = match party {
            Party::Host(address) => Party::Host(env::net::host_of(address)),
            user => user,
        };
        if greeting {
            let of_host = |it: &Member| it.greeting && it.party == party;
            if !(open.make_room(GREETING_PER_HOST_MAX, of_host)
                && open.make_room(GREETING_MAX, |it| it.greeting))
            {
                return None;
            }
        }
        if !open.make_room(party.most(), |it| it.party == party) {
            return None;
        }
        let is_other = |it: &Member| matches!(it.party, Party::User(_));
        let is_user = matches!(party, Party::User(_));
        if is_user && !open.make_room(CONNECTIONS_MAX - RESERVED, is_other) {
            return None;
        }
        if !open.make_room(CONNECTIONS_MAX, |_| true) {
            return None;
        }
        let number = open.next();
        let needed = Arc::new(Notify::new());
        let member = Member {
            party,
            under_way: 0,
            heard: 0,
            greeting,
            shown: false,
            leaving: false,
            needed: Arc::clone(&needed),
        };
        open.by_number.insert(number, member);
        Some(Slot {
            of: self.clone(),
            number,
            needed,
        })
    }
}

impl Slot {
    /// A request has come whole; it is under way until the answer is dropped.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.with(|_, member| {
            member.under_way += 1;
            member.leaving = false;
        });
        UnderWay(Arc::clone(self))
    }

    /// Its handshake is done; did it show a certificate?
    pub fn greeted(&self, shown: bool) {
        self.with(|_, member| {
            member.greeting = false;
            member.shown = shown;
        });
    }

    /// Waits until another connection has taken its place. A request that has come whole must have begun before this is asked.
    pub async fn needed(&self) {
        let mut leaving = false;
        while !leaving {
            self.needed.notified().await;
            self.with(|_, member| leaving = member.leaving);
        }
    }

    fn with(&self, change: impl FnOnce(u64, &mut Member)) {
        let Ok(mut open) = self.of.0.lock() else {
            return;
        };
        let now = open.next();
        if let Some(member) = open.by_number.get_mut(&self.number) {
            change(now, member);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.with(|now, member| {
            member.under_way -= 1;
            member.heard = now;
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Ok(mut open) = self.of.0.lock() {
            open.by_number.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Party {
        Party::Host(text.parse().unwrap())
    }

    /// The numbers of those that are open and not about to close.
    fn open(slots: &Slots) -> Vec<u64> {
        let open = slots.0.lock().unwrap();
        let staying = open.by_number.iter().filter(|(_, it)| !it.leaving);
        staying.map(|(number, _)| *number).collect()
    }

    fn is_needed(slot: &Slot) -> bool {
        let mut needed = std::pin::pin!(slot.needed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        needed.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn silent_connections_of_many_hosts_never_fill_a_port() {
        let slots = Slots::default();
        let silent: Vec<Slot> = (0..CONNECTIONS_MAX)
            .map(|n| slots.take(address(&format!("10.0.{n}.1"))).unwrap())
            .collect();
        let owner = slots
            .take(address("192.168.0.1"))
            .expect("a silent one left");
        assert!(is_needed(&silent[0]) && !is_needed(&silent[1]));
        assert_eq!(open(&slots).len(), CONNECTIONS_MAX);
        // What was closed takes nothing along when it is gone.
        drop(silent);
        assert_eq!(open(&slots), [owner.number]);
        drop(owner);
        assert!(open(&slots).is_empty());
    }

    #[test]
    fn few_handshakes_are_under_way_at_once_and_a_certificate_keeps_a_place() {
        let slots = Slots::default();
        let host = |n: usize| address(&format!("10.0.{n}.1"));
        // A client that is greeted at once never waits for the silent ones of its host, nor of others.
        let silent: Vec<Slot> = (0..CONNECTIONS_MAX)
            .map(|n| slots.take_to_greet(host(n % 2)).unwrap())
            .collect();
        assert_eq!(open(&slots).len(), 2 * GREETING_PER_HOST_MAX);
        let more: Vec<Slot> = (0..CONNECTIONS_MAX)
            .map(|n| slots.take_to_greet(host(n)).unwrap())
            .collect();
        assert_eq!(open(&slots).len(), GREETING_MAX);
        drop((silent, more));
        let known = slots.take_to_greet(host(1)).unwrap();
        known.greeted(true);
        let greeted: Vec<Slot> = (1..CONNECTIONS_MAX)
            .map(|n| {
                let slot = slots.take_to_greet(host(n)).unwrap();
                slot.greeted(false);
                slot
            })
            .collect();
        assert_eq!(open(&slots).len(), CONNECTIONS_MAX);
        let _one_more = slots.take_to_greet(host(200)).unwrap();
        assert!(is_needed(&greeted[0]) && !is_needed(&known));
    }

    #[test]
    fn the_addresses_of_one_host_have_one_share() {
        let slots = Slots::default();
        for way in ["127.0.{n}.1", "2001:db8::{n}"] {
            let held: Vec<Slot> = (0..CONNECTIONS_MAX)
                .map(|n| {
                    slots
                        .take(address(&way.replace("{n}", &n.to_string())))
                        .unwrap()
                })
                .collect();
            assert_eq!(open(&slots).len(), CONNECTIONS_PER_HOST_MAX, "{way}");
            assert_eq!(
                held.iter().filter(|slot| is_needed(slot)).count(),
                CONNECTIONS_MAX - CONNECTIONS_PER_HOST_MAX
            );
        }
    }

    #[test]
    fn users_have_a_share_each_and_leave_the_owner_and_root_theirs() {
        let slots = Slots::default();
        // Every user has as many requests under way as it can.
        let mut requests = Vec::new();
        for user in 0..CONNECTIONS_MAX as u32 {
            for _ in 0..CONNECTIONS_MAX {
                let slot = slots.take(Party::User((user > 0).then_some(user)));
                let Some(slot) = slot else { break };
                requests.push(Arc::new(slot).begin());
            }
            let all = CONNECTIONS_MAX - RESERVED;
            let share = CONNECTIONS_PER_USER_MAX * (user as usize + 1);
            assert_eq!(requests.len(), share.min(all));
        }
        assert_eq!(open(&slots).len(), CONNECTIONS_MAX - RESERVED);
        // The owner has a request under way at each place that is left, and root waits for one.
        let owner = || {
            slots
                .take(Party::Owner(1000))
                .map(|it| Arc::new(it).begin())
        };
        let mut owners: Vec<UnderWay> = std::iter::from_fn(owner).collect();
        assert_eq!(owners.len(), RESERVED);
        drop(owners.pop());
        assert!(slots.take(Party::User(Some(5))).is_none());
        assert!(slots.take(Party::Owner(0)).is_some());
    }

    #[test]
    fn what_silent_users_hold_others_take() {
        let slots = Slots::default();
        let users = (0..CONNECTIONS_MAX as u32).map(|user| Party::User(Some(user)));
        let silent: Vec<Slot> = users.map(|user| slots.take(user).unwrap()).collect();
        assert_eq!(open(&slots).len(), CONNECTIONS_MAX - RESERVED);
        assert!(is_needed(&silent[0]) && !is_needed(&silent[RESERVED]));
        // The owner's own share is no more than a host's, where others are silent, too.
        let owners: Vec<Slot> = (0..CONNECTIONS_MAX)
            .map(|_| slots.take(Party::Owner(0)).unwrap())
            .collect();
        assert_eq!(open(&slots).len(), CONNECTIONS_MAX);
        assert!(is_needed(&owners[0]) && !is_needed(&owners[CONNECTIONS_MAX - 1]));
        assert!(slots.take(Party::Owner(1000)).is_some());
    }

    #[test]
    fn a_request_under_way_keeps_its_connection_the_one_idle_longest_goes() {
        let slots = Slots::default();
        let one = address("10.0.0.1");
        let mut held: Vec<Arc<Slot>> = (0..CONNECTIONS_PER_HOST_MAX)
            .map(|_| Arc::new(slots.take(one).unwrap()))
            .collect();
        let mut requests: Vec<UnderWay> = held.iter().map(Slot::begin).collect();
        assert!(slots.take(one).is_none(), "all are being answered");
        assert!(
            slots.take(address("10.0.0.2")).is_some(),
            "others have room"
        );
        // The third was answered first, then the first.
        drop(requests.remove(2));
        drop(requests.remove(0));
        held.push(Arc::new(slots.take(one).unwrap()));
        assert!(is_needed(&held[2]) && !is_needed(&held[0]));
        // A new one that never sent a request goes before one that did.
        held.push(Arc::new(slots.take(one).unwrap()));
        assert!(is_needed(&held[CONNECTIONS_PER_HOST_MAX]) && !is_needed(&held[0]));
        drop(requests);
    }

    #[test]
    fn a_request_that_begins_after_its_connection_was_chosen_keeps_it() {
        let slots = Slots::default();
        let one = address("10.0.0.1");
        let mut held: Vec<Arc<Slot>> = (0..=CONNECTIONS_PER_HOST_MAX)
            .map(|_| Arc::new(slots.take(one).unwrap()))
            .collect();
        // The first was chosen for the last, and has not looked yet.
        let request = held[0].begin();
        assert!(!is_needed(&held[0]));
        assert_eq!(open(&slots).len(), CONNECTIONS_PER_HOST_MAX + 1);
        // One more needs the room of two.
        held.push(Arc::new(slots.take(one).unwrap()));
        assert!(!is_needed(&held[0]) && is_needed(&held[1]) && is_needed(&held[2]));
        assert_eq!(open(&slots).len(), CONNECTIONS_PER_HOST_MAX);
        drop(request);
        // Where too few are silent none is chosen.
        let _requests: Vec<UnderWay> = held.iter().map(Slot::begin).collect();
        assert!(slots.take(one).is_none());
        assert!(!held.iter().any(|slot| is_needed(slot)));
    }
}

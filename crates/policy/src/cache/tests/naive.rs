//! The policies once more, each as a page of plain code over vectors: slow, obvious, and the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::{Ghost, Kind};

/// What becomes of a frame looked at.
enum Fate {
    Victim,
    Refused,
    /// To the newest end of this list.
    Retained(usize),
}

/// All lists hold frames oldest first; the last list is the queue of refused frames.
pub(super) struct Naive {
    kind: Kind,
    capacity: usize,
    lists: Vec<Vec<u32>>,
    /// The list a frame belongs to, aside or not.
    home: BTreeMap<u32, usize>,
    uses: BTreeMap<u32, u8>,
    hand: Option<u32>,
    ghost: Ghost,
    /// ARC: B1 and B2, keys oldest first; and its target.
    ghosts: [Vec<u64>; 2],
    target: usize,
}

type May<'a> = &'a mut dyn FnMut(u32) -> bool;

impl Naive {
    pub(super) fn new(kind: Kind, capacity: usize) -> Naive {
        let lists = match kind {
            Kind::Lru | Kind::Fifo | Kind::Clock | Kind::Sieve => 1,
            Kind::S3Fifo | Kind::Arc => 2,
            Kind::WTinyLfu => panic!("its twin would need the same sketch; see its own tests"),
        };
        Naive {
            kind,
            capacity,
            lists: vec![Vec::new(); lists + 1],
            home: BTreeMap::new(),
            uses: BTreeMap::new(),
            hand: None,
            ghost: Ghost::share(capacity as u32, 0.9),
            ghosts: [Vec::new(), Vec::new()],
            target: 0,
        }
    }

    fn aside(&mut self) -> &mut Vec<u32> {
        self.lists.last_mut().expect("at least the aside list")
    }

    fn drop_out(&mut self, frame: u32) {
        for list in &mut self.lists {
            list.retain(|&f| f != frame);
        }
    }

    fn frames_of(&self, home: usize) -> usize {
        self.home.values().filter(|&&h| h == home).count()
    }

    pub(super) fn missed(&mut self, key: u64) {
        if self.kind != Kind::Arc {
            return;
        }
        let (once, again) = (self.ghosts[0].len(), self.ghosts[1].len());
        if self.ghosts[0].contains(&key) {
            self.target = (self.target + (again / once).max(1)).min(self.capacity);
        } else if self.ghosts[1].contains(&key) {
            self.target = self.target.saturating_sub((once / again).max(1));
        }
    }

    pub(super) fn hit(&mut self, frame: u32) {
        match self.kind {
            Kind::Lru | Kind::Arc => {
                self.drop_out(frame);
                let list = usize::from(self.kind == Kind::Arc);
                self.lists[list].push(frame);
                self.home.insert(frame, list);
            }
            _ => {
                self.uses.insert(frame, 1);
            }
        }
    }

    pub(super) fn insert(&mut self, frame: u32, key: u64) {
        let mut list = 0;
        if self.kind == Kind::S3Fifo && self.ghost.take(key) {
            list = 1;
        }
        for ghosts in &mut self.ghosts {
            if let Some(at) = ghosts.iter().position(|&k| k == key) {
                ghosts.remove(at);
                list = 1;
            }
        }
        self.lists[list].push(frame);
        self.home.insert(frame, list);
        self.uses.insert(frame, 0);
    }

    fn fate(&mut self, frame: u32, may: May<'_>) -> Fate {
        let used = matches!(self.kind, Kind::Clock | Kind::Sieve | Kind::S3Fifo)
            && self.uses.get(&frame) == Some(&1);
        if used {
            self.uses.insert(frame, 0);
            let list = usize::from(self.kind == Kind::S3Fifo);
            self.home.insert(frame, list);
            return Fate::Retained(list);
        }
        if may(frame) {
            Fate::Victim
        } else {
            Fate::Refused
        }
    }

    /// Looks at refused frames, at most `most`, none twice in one hunt.
    fn again(&mut self, most: usize, tried: &mut BTreeSet<u32>, may: May<'_>) -> Option<u32> {
        let mut queue = self.aside().clone();
        queue.retain(|frame| !tried.contains(frame));
        for frame in queue.into_iter().take(most) {
            let at = self
                .aside()
                .iter()
                .position(|&f| f == frame)
                .expect("still there");
            self.aside().remove(at);
            match self.fate(frame, may) {
                Fate::Victim => return Some(frame),
                Fate::Refused => {
                    tried.insert(frame);
                    self.aside().push(frame);
                }
                Fate::Retained(list) => self.lists[list].push(frame),
            }
        }
        None
    }

    fn sweep(&mut self, list: usize, tried: &mut BTreeSet<u32>, may: May<'_>) -> Option<u32> {
        while !self.lists[list].is_empty() {
            let hand = self
                .hand
                .and_then(|h| self.lists[list].iter().position(|&f| f == h));
            let at = hand.unwrap_or(0);
            let frame = self.lists[list][at];
            if self.kind == Kind::Sieve {
                self.hand = self.lists[list].get(at + 1).copied();
            }
            match self.fate(frame, may) {
                Fate::Victim => {
                    self.lists[list].remove(at);
                    return Some(frame);
                }
                Fate::Refused => {
                    self.lists[list].remove(at);
                    tried.insert(frame);
                    self.aside().push(frame);
                }
                Fate::Retained(_) if self.kind == Kind::Sieve => {}
                Fate::Retained(to) => {
                    self.lists[list].remove(at);
                    self.lists[to].push(frame);
                }
            }
        }
        None
    }

    pub(super) fn evict(
        &mut self,
        incoming: Option<u64>,
        key_of: &dyn Fn(u32) -> u64,
        may: May<'_>,
    ) -> Option<u32> {
        let mut remember = true;
        let order: &[usize] = match self.kind {
            Kind::S3Fifo => {
                let small = (self.capacity / 10).max(1);
                if self.frames_of(1) > self.capacity - small {
                    &[1, 0]
                } else {
                    &[0, 1]
                }
            }
            Kind::Arc => {
                let (once, again) = (self.frames_of(0), self.frames_of(1));
                let in_again = incoming.is_some_and(|key| self.ghosts[1].contains(&key));
                let known = in_again || incoming.is_some_and(|key| self.ghosts[0].contains(&key));
                let mut once_first =
                    once > 0 && (once > self.target || in_again && once == self.target);
                let ghosts = self.ghosts[0].len() + self.ghosts[1].len();
                if !known && once + self.ghosts[0].len() >= self.capacity {
                    if self.ghosts[0].is_empty() {
                        (once_first, remember) = (true, false);
                    } else {
                        self.ghosts[0].remove(0);
                    }
                } else if !known
                    && once + again + ghosts >= 2 * self.capacity
                    && !self.ghosts[1].is_empty()
                {
                    self.ghosts[1].remove(0);
                }
                if once_first { &[0, 1] } else { &[1, 0] }
            }
            _ => &[0],
        };
        let tried = &mut BTreeSet::new();
        let mut victim = self.again(4, tried, may);
        for &list in order {
            victim = victim.or_else(|| self.sweep(list, tried, may));
        }
        victim = victim.or_else(|| self.again(usize::MAX, tried, may));
        let last = self.lists.len() - 2;
        let victim = victim.or_else(|| self.sweep(last, tried, may))?;
        let home = self.forget(victim);
        let key = key_of(victim);
        if self.kind == Kind::S3Fifo && home == 0 {
            self.ghost.push(key);
        }
        if self.kind == Kind::Arc && (remember || home == 1) {
            for ghosts in &mut self.ghosts {
                ghosts.retain(|&k| k != key);
            }
            if self.ghosts[0].len() + self.ghosts[1].len() == self.capacity + 1 {
                let longer = usize::from(self.ghosts[0].len() <= self.ghosts[1].len());
                self.ghosts[longer].remove(0);
            }
            self.ghosts[home].push(key);
        }
        Some(victim)
    }

    fn forget(&mut self, frame: u32) -> usize {
        self.uses.remove(&frame);
        self.home.remove(&frame).expect("held")
    }

    pub(super) fn remove(&mut self, frame: u32) {
        if self.hand == Some(frame) {
            let main = &self.lists[0];
            self.hand = main.iter().skip_while(|&&f| f != frame).nth(1).copied();
        }
        self.drop_out(frame);
        self.forget(frame);
    }

    pub(super) fn moved(&mut self, from: u32, to: u32) {
        for frame in self.lists.iter_mut().flatten().chain(&mut self.hand) {
            if *frame == from {
                *frame = to;
            }
        }
        let uses = self.uses.remove(&from).expect("held");
        self.uses.insert(to, uses);
        let home = self.forget_home(from);
        self.home.insert(to, home);
    }

    fn forget_home(&mut self, frame: u32) -> usize {
        self.home.remove(&frame).expect("held")
    }

    pub(super) fn remembers(&self, key: u64) -> bool {
        match self.kind {
            Kind::S3Fifo => self.ghost.contains(key),
            Kind::Arc => self.ghosts.iter().any(|ghosts| ghosts.contains(&key)),
            _ => false,
        }
    }

    pub(super) fn frames(&self) -> Vec<u32> {
        self.home.keys().copied().collect()
    }

    pub(super) fn coldest_first(&self) -> Vec<u32> {
        let (aside, lists) = self.lists.split_last().expect("aside");
        let mut order = aside.clone();
        for list in lists {
            let hand = self
                .hand
                .and_then(|h| list.iter().position(|&f| f == h))
                .unwrap_or(0);
            order.extend(&list[hand..]);
            order.extend(&list[..hand]);
        }
        if matches!(self.kind, Kind::Clock | Kind::Sieve) {
            order.sort_by_key(|frame| self.uses[frame]);
        }
        order
    }
}

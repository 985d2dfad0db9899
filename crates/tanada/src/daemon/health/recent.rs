//! What rose lately? Counters only grow; a check on one ends a while after it last did.

use base::{Map, Nanos};
use tokio::time::Instant;

/// Counters by code and by what they are about: their last value, and when it rose.
pub struct Recent {
    counters: Map<(&'static str, String), (u64, Option<Instant>)>,
    now: Instant,
}

impl Recent {
    pub fn new(now: Instant) -> Recent {
        Recent {
            counters: Map::default(),
            now,
        }
    }

    /// It is so late.
    pub fn at(&mut self, now: Instant) -> &mut Recent {
        self.now = now;
        self
    }

    /// Did the counter rise within the last `span`? It counts from zero since the daemon began.
    pub fn rose(&mut self, code: &'static str, about: &str, value: u64, span: Nanos) -> bool {
        let (last, rose) = self.counters.entry((code, about.to_owned())).or_default();
        if value > *last {
            *rose = Some(self.now);
        }
        // A volume that was opened anew counts from zero again.
        *last = value;
        let span = std::time::Duration::from_nanos(span.0);
        rose.is_some_and(|rose| self.now.duration_since(rose) < span)
    }
}

//! The writer's lease as its holder counts it, and what requests do when it has run out.
//!
//! ```text
//! clocks when it was asked for -> kept by the meta store, and the record is still ours -> counted on for its time less the margin
//!    the clocks jump against each other -> dropped, and asked for again at once
//! ```
//!
//! Always true:
//! 1. It is counted by a clock that goes on while the machine is suspended.
//! 2. Where even that clock stood still (a virtual machine that its host stopped) the wall clock jumps against it when it is set
//!    right: from then on nothing is answered before the meta store was asked again.

use std::cell::Cell;

use base::Nanos;
use env::Clocks;
use env::sync::Event;

/// A lease that was kept.
#[derive(Debug, Clone, Copy)]
struct Term {
    asked: Clocks,
    /// How long it is counted on from then on.
    span: Nanos,
}

/// The writer's lease.
pub(super) struct Lease {
    term: Cell<Option<Term>>,
    /// When it was kept last, by the clock that counts suspended time too.
    kept: Cell<Nanos>,
    /// The clocks may come apart by less than this while it lasts.
    jump_least: Nanos,
    dropped: Event,
}

impl Lease {
    /// None yet. Half of the margin is for clocks that differ in speed, and half for jumps that are not seen.
    pub fn new(margin: Nanos) -> Lease {
        Lease {
            term: Cell::new(None),
            kept: Cell::new(env::clocks().boot),
            jump_least: Nanos(margin.0 / 2),
            dropped: Event::default(),
        }
    }

    /// It was kept: `asked` is what the clocks showed before the meta store was asked.
    pub fn keep(&self, asked: Clocks, span: Nanos) {
        self.term.set(Some(Term { asked, span }));
        self.kept.set(asked.boot);
    }

    /// May something be answered now?
    pub fn holds(&self) -> bool {
        let Some(term) = self.term.get() else {
            return false;
        };
        let now = env::clocks();
        let jump = now.jumped_since(&term.asked);
        if jump >= self.jump_least {
            tracing::warn!(%jump, "the wall clock jumped: the lease of a volume is dropped, and asked for again");
            self.term.set(None);
            self.dropped.notify_all();
            return false;
        }
        now.boot < term.asked.boot + term.span
    }

    /// Since it was kept.
    pub fn age(&self) -> Nanos {
        env::clocks().boot.saturating_sub(self.kept.get())
    }

    /// Waits until a jump of the clocks ends it.
    pub async fn dropped(&self) {
        self.dropped.wait().await;
    }
}

//! Revoked certificates, told to every thread of the daemon at once.
//!
//! ```text
//! meta store, file, admin API -> spread(numbers) -> a mailbox of each thread that heard of none of them yet
//! ```
//!
//! Always true: a listener hears of each number once, of those that came before it listened, too.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{Mailbox, Poster};
use tls::Serial;

/// Numbers of revoked certificates.
pub type Revoked = BTreeSet<Serial>;

/// See the module's head. A clone is the same.
#[derive(Clone, Default)]
pub struct Revocation(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    all: Revoked,
    hear: Vec<Poster<Revoked>>,
}

impl PartialEq for Revocation {
    fn eq(&self, other: &Revocation) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Revocation({})", self.shared().all.len())
    }
}

impl Revocation {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        // It is whole between any two of its operations, whichever thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all that listen, as far as they were not told before.
    pub fn spread(&self, more: &Revoked) {
        let mut shared = self.shared();
        let fresh: Revoked = more.difference(&shared.all).cloned().collect();
        if fresh.is_empty() {
            return;
        }
        // A thread that has ended listens no more.
        shared.hear.retain(|one| one.post(fresh.clone()).is_ok());
        shared.all.extend(fresh);
    }

    /// From now on what is revoked comes here.
    pub fn listen(&self) -> Mailbox<Revoked> {
        let (poster, mailbox) = env::mailbox();
        let mut shared = self.shared();
        // The mailbox is here, so it takes it.
        let _ = poster.post(shared.all.clone());
        shared.hear.push(poster);
        mailbox
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_hears_of_each_number_once_and_of_earlier_ones() {
        let number = |text| Serial::parse(text).expect("one");
        let revocation = Revocation::default();
        revocation.spread(&Revoked::from([number("a")]));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let mut mailbox = revocation.listen();
                let run = move || {
                    let runtime = env::Runtime::real(env::RealConfig::default());
                    runtime.expect("a runtime").block_on(async move {
                        let mut heard = Vec::new();
                        while heard.len() < 3 {
                            let more = mailbox.receive().await.expect("it is spread");
                            heard.extend(more.into_iter().map(|it| it.to_string()));
                        }
                        heard
                    })
                };
                let thread = std::thread::Builder::new().spawn(run);
                thread.expect("a thread")
            })
            .collect();
        drop(revocation.listen());
        revocation.spread(&Revoked::from([number("a"), number("b")]));
        revocation.spread(&Revoked::from([number("b")]));
        revocation.clone().spread(&Revoked::from([number("c")]));
        for thread in threads {
            assert_eq!(thread.join().expect("it ends"), ["a", "b", "c"]);
        }
        // The one that was gone is forgotten.
        assert!(revocation.shared().hear.len() <= 3);
    }
}

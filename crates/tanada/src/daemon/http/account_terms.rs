//! What accounts weigh and get at most, from the meta store to the data threads.
//!
//! ```text
//! every second: quotas in the meta store -> weights, caps -> changed? to each data thread
//! ```
//!
//! Always true: where the meta store is silent, what was known last goes on.

use std::sync::Arc;
use std::time::Duration;

use access::quota::{self, Quota};
use policy::share::cap::Caps;

use super::control::Control;
use crate::daemon::thread::caps::AccountTerms;
use crate::daemon::thread::command::Command;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);

/// What of quotas data threads go by.
fn terms(quotas: Vec<(String, Quota)>) -> AccountTerms {
    let mut terms = AccountTerms::default();
    for (name, quota) in quotas {
        if let Some(weight) = quota.weight {
            terms.weights.insert(name.clone(), weight);
        }
        let caps = Caps::from(quota.caps);
        if quota.check().is_ok() && !caps.is_none() {
            terms.caps.insert(name, caps);
        }
    }
    terms
}

/// Keeps data threads at what is set; until it is given up.
pub async fn keep(control: Arc<Control>) {
    let mut known = AccountTerms::default();
    loop {
        tokio::time::sleep(EVERY).await;
        if control.records.were_never_made() {
            continue;
        }
        let found = control.records.with(&control.threads, async |meta| {
            quota::all(&*meta).await.map(terms)
        });
        let Ok(Ok(found)) = found.await else {
            continue;
        };
        if found == known {
            continue;
        }
        for thread in &control.threads {
            // One that has ended serves no client any more.
            let _ = thread.post(Command::Accounts(found.clone()));
        }
        known = found;
    }
}

#[cfg(test)]
mod tests {
    use base::Bytes;
    use vdisk::record::CapRecord;

    use super::*;

    #[test]
    fn weights_and_caps_of_quotas_are_what_threads_go_by() {
        let quota = |weight, read| Quota {
            weight,
            caps: CapRecord {
                read,
                ..CapRecord::default()
            },
            rate: Some(Bytes::mib(1).0),
            ..Quota::default()
        };
        let found = terms(vec![
            ("astro".to_owned(), quota(Some(4), Some(20_000_000))),
            ("bio".to_owned(), quota(None, None)),
            // What could let nothing pass is no cap.
            ("chem".to_owned(), quota(None, Some(1))),
        ]);
        assert_eq!(
            found.weights.into_iter().collect::<Vec<_>>(),
            [("astro".to_owned(), 4)]
        );
        assert_eq!(found.caps.keys().collect::<Vec<_>>(), ["astro"]);
    }
}

//! What accounts weigh and get at most, from the meta store to the data threads.
//!
//! ```text
//! every second: quotas in the meta store -> weights, caps -> changed? to each data thread
//! ```
//!
//! Always true: where the meta store is silent, or a record cannot be read, what was known last goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use access::quota::{self, Quota};
use policy::share::cap::Caps;
use vdisk::record::RecordError;

use super::control::Control;
use crate::daemon::thread::caps::AccountTerms;
use crate::daemon::thread::command::Command;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);

/// Quotas by the names of accounts, as they are found.
type Found = Vec<(String, Result<Quota, RecordError>)>;

/// What of quotas data threads go by, `known` before.
fn terms(found: &Found, known: &AccountTerms) -> AccountTerms {
    let mut terms = AccountTerms::default();
    for (name, quota) in found {
        let name = name.clone();
        let Ok(quota) = quota else {
            let weight = known.weights.get(&name).map(|it| (name.clone(), *it));
            terms.weights.extend(weight);
            terms
                .caps
                .extend(known.caps.get(&name).map(|it| (name, *it)));
            continue;
        };
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

/// Warns of accounts whose quotas cannot be read, once each time.
fn warn(found: &Found, unreadable: &mut BTreeSet<String>) {
    let mut now = BTreeSet::new();
    for (name, quota) in found {
        let Err(error) = quota else { continue };
        if !unreadable.contains(name) {
            tracing::warn!(account = name, %error, "a quota cannot be read: cap and weight stay as they were");
        }
        now.insert(name.clone());
    }
    *unreadable = now;
}

/// Keeps data threads at what is set; until it is given up.
pub async fn keep(control: Arc<Control>) {
    let mut known = AccountTerms::default();
    let mut unreadable = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        if control.records.were_never_made() {
            continue;
        }
        let found = control
            .records
            .with(&control.threads, async |meta| quota::all(&*meta).await);
        let Ok(Ok(found)) = found.await else {
            continue;
        };
        warn(&found, &mut unreadable);
        let found = terms(&found, &known);
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
        let quota = |weight, read| {
            Ok(Quota {
                weight,
                caps: CapRecord {
                    read,
                    ..CapRecord::default()
                },
                rate: Some(Bytes::mib(1).0),
                ..Quota::default()
            })
        };
        let known = AccountTerms::default();
        let first = vec![
            ("astro".to_owned(), quota(Some(4), Some(20_000_000))),
            ("bio".to_owned(), quota(None, None)),
            // What could let nothing pass is no cap.
            ("chem".to_owned(), quota(None, Some(1))),
        ];
        let found = terms(&first, &known);
        assert_eq!(
            found.weights.clone().into_iter().collect::<Vec<_>>(),
            [("astro".to_owned(), 4)]
        );
        assert_eq!(found.caps.keys().collect::<Vec<_>>(), ["astro"]);
        // What a newer program wrote takes nothing off; what is gone does.
        let unread = || Quota::decode("quota/x", b"{\"version\":9}");
        let newer = vec![("astro".to_owned(), unread()), ("bio".to_owned(), unread())];
        assert!(newer.iter().all(|(_, quota)| quota.is_err()));
        assert_eq!(terms(&newer, &found), found);
        assert_eq!(terms(&Vec::new(), &found), AccountTerms::default());
    }
}

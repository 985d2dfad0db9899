//! What do accounts weigh where what nothing is promised of is shared?

use std::collections::BTreeMap;

use super::Manager;

/// Accounts weigh so much at the store of `manager` from now on, and 1 where nothing is said. What is served without a
/// promise is shared among accounts by it; an account gains nothing by more sessions.
pub fn set_account_weights(manager: &Manager, weights: BTreeMap<String, u32>) {
    for account in manager.sessions.accounts.set_weights(weights) {
        manager.core.queue.set_account(account);
    }
}

//! Changes the key that capabilities are signed with.

use policy::share::Second;

use super::request::{ReserveError, failed};
use crate::object::error::StoreError;
use crate::qos::book;
use crate::qos::capability::Signer;
use crate::qos::state::Core;

/// What changes keys.
pub(super) struct KeyChanger<'a>(pub &'a Core);

impl KeyChanger<'_> {
    /// Signs with another key from now on. With `void`, what was signed with any before is void at once; else it is
    /// accepted until the last reservation committed by now ends.
    pub async fn sign_with(&self, secret: [u8; 32], void: bool) -> Result<(), ReserveError> {
        let signer = Signer::new(&secret);
        let accepted = self.accept(signer.public(), void).await;
        accepted.map_err(failed("change the key of"))?;
        self.0.keys.set_signer(signer, void);
        if void {
            self.0.revoked.notify_all();
        }
        Ok(())
    }

    /// The ring accepts `public` for good, and all others only as long as what they may have signed lasts; with `void`,
    /// no others any more.
    pub async fn accept(&self, public: [u8; 32], void: bool) -> Result<(), StoreError> {
        let Core {
            bookings,
            keys,
            store,
            ..
        } = self.0;
        let _changing = bookings.changing.acquire(1).await;
        let now: Second = self.0.now();
        let ring = keys.ring_with(public, void, now, bookings.last_end(now));
        if ring != *keys.ring() {
            book::put_keys(store, &ring).await?;
            keys.set_ring(ring);
        }
        Ok(())
    }
}

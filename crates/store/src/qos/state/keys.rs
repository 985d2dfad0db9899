//! With which key are capabilities signed, and which are accepted?

use std::cell::{Cell, Ref, RefCell};

use policy::share::{Second, Slot};

use crate::qos::capability::{CapabilityError, Grant, Keyring, Signed, Signer};

/// The keys of a store.
pub(crate) struct Keys {
    signer: RefCell<Signer>,
    ring: RefCell<Keyring>,
    /// How often keys became void so far.
    voided: Cell<u64>,
    /// The store's number, as capabilities name it.
    store: u128,
    /// Seconds by which clocks may differ.
    skew: Cell<u64>,
}

impl Keys {
    pub fn new(store: u128, secret: &[u8; 32], skew: u64, ring: Keyring) -> Keys {
        Keys {
            signer: RefCell::new(Signer::new(secret)),
            ring: RefCell::new(ring),
            voided: Cell::new(0),
            store,
            skew: Cell::new(skew),
        }
    }

    /// Seconds by which clocks may differ.
    pub fn skew(&self) -> u64 {
        self.skew.get()
    }

    /// Clocks may differ by so many seconds from now on.
    pub fn set_skew(&self, seconds: u64) {
        self.skew.set(seconds);
    }

    /// A capability, signed with the key of today.
    pub fn sign(&self, grant: &Grant) -> String {
        self.signer.borrow().sign(grant)
    }

    /// What a capability says that is genuine.
    ///
    /// # Errors
    /// [`CapabilityError`] if it is not.
    pub fn read(&self, token: &str) -> Result<Signed, CapabilityError> {
        self.ring.borrow().read(token)
    }

    /// Is a genuine capability good here and now, if its reservation has `slot`?
    ///
    /// # Errors
    /// [`CapabilityError`] if it is not.
    pub fn check(&self, signed: &Signed, slot: Slot, now: Second) -> Result<(), CapabilityError> {
        signed.check(slot, self.store, now, self.skew())
    }

    /// Is a capability signed with a key that is accepted here? Its time is its session's concern.
    ///
    /// # Errors
    /// [`CapabilityError`] if it is not good any more.
    pub fn is_signed(&self, token: &str, now: Second) -> Result<(), CapabilityError> {
        self.read(token)?.is_accepted(self.store, now, self.skew())
    }

    /// How often keys became void so far.
    pub fn voided(&self) -> u64 {
        self.voided.get()
    }

    /// The key that capabilities are signed with.
    pub fn public(&self) -> [u8; 32] {
        self.signer.borrow().public()
    }

    /// What is accepted.
    pub fn ring(&self) -> Ref<'_, Keyring> {
        self.ring.borrow()
    }

    /// The ring when `public` is accepted for good, and all others until `last`; with `void`, no others any more.
    pub fn ring_with(&self, public: [u8; 32], void: bool, now: Second, last: Second) -> Keyring {
        let mut ring = self.ring.borrow().clone();
        if void {
            ring.void_others(&public);
        }
        let others: Vec<[u8; 32]> = {
            let keys = ring.keys().iter().filter(|key| key.public != public);
            keys.map(|key| key.public).collect()
        };
        for other in others {
            ring.retire(&other, last);
        }
        // A clock that was set back must not refuse the key of today.
        ring.accept(public, Second(0), None);
        ring.forget(now, self.skew());
        ring
    }

    /// The ring that was written down.
    pub fn set_ring(&self, ring: Keyring) {
        *self.ring.borrow_mut() = ring;
    }

    /// Signs with another key from now on; with `void`, capabilities signed with any before are good no more.
    pub fn set_signer(&self, signer: Signer, void: bool) {
        *self.signer.borrow_mut() = signer;
        if void {
            self.voided.set(self.voided.get() + 1);
        }
    }
}

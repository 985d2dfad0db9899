//! What a manager must remember: reservations, numbers given, keys, what the device was measured to do, what has been.
//!
//! ```text
//! .tanada/bookings/<number>   one reservation each        .tanada/keys         public keys accepted
//! .tanada/numbers             numbers below are given     .tanada/calibration  costs and headroom, measured
//! .tanada/history             reservations that ended     .tanada/trust        the speed the device was seen to have
//! ```
//!
//! They are objects of the store itself, JSON with a version, each written in one step and durable before the request
//! is answered. A text that became shorter is filled up with spaces, so that no second step is needed. Field by field
//! in `docs/formats.md`.
//!
//! `record` the values; `raw` their form as JSON.
//!
//! Always true:
//! 1. What is of an unknown version, or no JSON of ours, is refused when the manager opens, and never written over.
//! 2. A number is given once, whatever a crash took back.

mod raw;
pub(crate) mod record;

use std::collections::BTreeMap;

use base::View;
use device::Class;
use policy::share::calendar::{BookingId, State};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Store;
use crate::object::error::{OpenError, StoreError};
use crate::object::types::Change;
use crate::qos::capability::Keyring;
use raw::{Head, RawBooking, RawCalibration, RawHistory, RawKeys, RawNumbers, RawTrust, VERSION};
use record::{Calibration, EndedReport, Record, Trust};

/// What the names of system objects begin with.
pub const SYSTEM: &str = ".tanada/";
const BOOKINGS: &str = ".tanada/bookings/";
const NUMBERS: &str = ".tanada/numbers";
const KEYS: &str = ".tanada/keys";
const CALIBRATION: &str = ".tanada/calibration";
const HISTORY: &str = ".tanada/history";
const TRUST: &str = ".tanada/trust";
/// So many numbers are set aside at once: at most as many are skipped by a restart.
const NUMBERS_AT_ONCE: u64 = 16;
/// Reservations that ended and are remembered: far less than the longest write.
pub(crate) const ENDED_MAX: usize = 200;

/// All that is remembered, as it was found.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub records: BTreeMap<BookingId, Record>,
    /// Those that a committed one has replaced, still written down.
    pub replaced: Vec<BookingId>,
    /// Numbers from here on were never given.
    pub numbers: u64,
    pub keys: Keyring,
    pub calibration: Option<Calibration>,
    pub trust: Option<Trust>,
    pub ended: Vec<EndedReport>,
}

/// Reads one system object; `None`: there is none.
async fn read<T: DeserializeOwned>(store: &Store, object: &str) -> Result<Option<T>, OpenError> {
    let broken = |why: String| OpenError::System {
        store: store.name().to_owned(),
        object: object.to_owned(),
        why,
    };
    let Ok(stat) = store.stat(object) else {
        return Ok(None);
    };
    let bytes = store
        .read(object, 0, stat.size, Class::Metadata)
        .await
        .map_err(|error| match error {
            // It may be whole all the same.
            StoreError::Device { what, source, .. } => OpenError::Device {
                device: store.name().to_owned(),
                what,
                source: *source,
            },
            error => broken(error.to_string()),
        })?;
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    if head.version != VERSION {
        return Err(OpenError::SystemVersion {
            store: store.name().to_owned(),
            object: object.to_owned(),
            found: head.version,
            known: VERSION,
        });
    }
    let whole = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    Ok(Some(whole))
}

/// Writes one system object in one step; durable at completion.
async fn write<T: Serialize>(store: &Store, object: &str, value: &T) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec(value).expect("numbers and texts");
    let before = store.stat(object).map_or(0, |stat| stat.size as usize);
    bytes.resize(bytes.len().max(before), b' ');
    let change = Change::FUA.creating().class(Class::Metadata);
    let view = View::copy_of(&bytes);
    store.write(object, 0, view, change).await.map(drop)
}

fn booking_name(id: BookingId) -> String {
    format!("{BOOKINGS}{:020}", id.0)
}

impl Book {
    /// All that a store's system objects say.
    pub async fn load(store: &Store) -> Result<Book, OpenError> {
        let mut book = Book {
            numbers: 1,
            ..Book::default()
        };
        let mut after = None;
        loop {
            let part = store.list(BOOKINGS, after.as_deref(), 1000);
            for stat in &part.objects {
                let broken = |why| OpenError::System {
                    store: store.name().to_owned(),
                    object: stat.name.clone(),
                    why,
                };
                let raw: RawBooking = read(store, &stat.name).await?.expect("just listed");
                let record = raw.record().map_err(broken)?;
                if booking_name(record.id) != stat.name {
                    return Err(broken(format!("it speaks of number {}", record.id.0)));
                }
                book.records.insert(record.id, record);
            }
            match part.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        book.leave_out_replaced();
        let broken = |object: &str| {
            let (store, object) = (store.name().to_owned(), object.to_owned());
            move |why| OpenError::System { store, object, why }
        };
        if let Some(raw) = read::<RawNumbers>(store, NUMBERS).await? {
            book.numbers = raw.next;
        }
        if let Some((last, _)) = book.records.last_key_value() {
            book.numbers = book.numbers.max(last.0 + 1);
        }
        if let Some(raw) = read::<RawKeys>(store, KEYS).await? {
            book.keys = raw.ring().map_err(broken(KEYS))?;
        }
        if let Some(raw) = read::<RawCalibration>(store, CALIBRATION).await? {
            book.calibration = Some(raw.calibration().map_err(broken(CALIBRATION))?);
        }
        if let Some(raw) = read::<RawTrust>(store, TRUST).await? {
            book.trust = Some(raw.trust().map_err(broken(TRUST))?);
        }
        if let Some(raw) = read::<RawHistory>(store, HISTORY).await? {
            book.ended = raw.ended;
        }
        Ok(book)
    }

    /// Of two of which the one has replaced the other, a crash may have left both.
    fn leave_out_replaced(&mut self) {
        let committed = self.records.values();
        let committed = committed.filter(|it| it.state == State::Committed);
        let replaced: Vec<BookingId> = committed.filter_map(|it| it.replaces).collect();
        let known = |id: &BookingId| self.records.remove(id).is_some();
        self.replaced = replaced.into_iter().filter(known).collect();
    }
}

/// Writes a reservation, new or changed.
pub(crate) async fn put_record(store: &Store, record: &Record) -> Result<(), StoreError> {
    write(store, &booking_name(record.id), &RawBooking::of(record)).await
}

/// Forgets a reservation; durable at completion.
pub(crate) async fn remove_record(store: &Store, id: BookingId) -> Result<(), StoreError> {
    let change = Change::FUA.class(Class::Metadata);
    match store.delete(&booking_name(id), change).await {
        Err(StoreError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// Sets numbers aside from `next` on; answers where they end.
pub(crate) async fn put_numbers(store: &Store, next: u64) -> Result<u64, StoreError> {
    let end = next + NUMBERS_AT_ONCE;
    write(store, NUMBERS, &RawNumbers::of(end)).await?;
    Ok(end)
}

/// Writes the key ring.
pub(crate) async fn put_keys(store: &Store, ring: &Keyring) -> Result<(), StoreError> {
    write(store, KEYS, &RawKeys::of(ring)).await
}

/// Writes what the device was measured to do.
pub(crate) async fn put_calibration(store: &Store, it: &Calibration) -> Result<(), StoreError> {
    write(store, CALIBRATION, &RawCalibration::of(it)).await
}

/// Writes how fast the device was seen to be.
pub(crate) async fn put_trust(store: &Store, it: &Trust) -> Result<(), StoreError> {
    write(store, TRUST, &RawTrust::of(it)).await
}

/// Writes what has been, the latest last.
pub(crate) async fn put_history(store: &Store, ended: &[EndedReport]) -> Result<(), StoreError> {
    write(store, HISTORY, &RawHistory::of(ended)).await
}

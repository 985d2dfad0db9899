//! How a request is served: for whom its bytes are read and written, and what its answer says of that.
//!
//! ```text
//! access key: account, reservation, caps } -> Service: Qos at the stores, turns
//! bucket:              reservation, caps }    -> answer: x-tanada-reservation, -promised, -delivered, -windows
//! ```
//!
//! The reservation of the key goes before that of the bucket, where it promises something now. Caps of both hold.
//!
//! Always true: what nothing is promised to is begun within [`WAIT`], or refused with `SlowDown`.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use policy::share::Direction;
use policy::share::cap::Caps;
use s3s::{S3Result, s3_error};

use super::core::Gateway;
use super::entrance::Caller;
use crate::index::record::Bucket;
use crate::lanes::{Delivered, Qos};

/// How long a request waits for its turn, or for the next of its bytes to be written or read.
const WAIT: Duration = Duration::from_secs(30);

/// How requests with an access key, or to a bucket, are served; by default as any others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceTerms {
    /// Under which reservation.
    pub reservation: Option<Reserved>,
    /// What they get at most, all together.
    pub caps: Caps,
}

/// A reservation of the stores, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Its number.
    pub id: u128,
    /// Bytes per second.
    pub read: u64,
    /// Bytes per second.
    pub write: u64,
    /// In seconds since 1970: the first second of its slot, and the first one behind it.
    pub slot: (u64, u64),
}

impl Reserved {
    /// What it promises in this second, in bytes per second.
    fn promises(&self, direction: Direction, now: u64) -> u64 {
        match (direction, (self.slot.0..self.slot.1).contains(&now)) {
            (_, false) => 0,
            (Direction::Read, true) => self.read,
            (Direction::Write, true) => self.write,
        }
    }
}

/// How one request is served.
pub(super) struct Service {
    pub qos: Qos,
    direction: Direction,
    /// What shares turns with it.
    pub lane: String,
    reserved: Option<Reserved>,
    /// What it is promised, in bytes per second.
    pub promised: u64,
}

impl Service {
    /// Of a caller's request to a bucket.
    pub fn of(
        gateway: &Gateway,
        (bucket, caller): (&Bucket, &Caller),
        direction: Direction,
    ) -> Service {
        let second = gateway.now() / 1000;
        let of_bucket = gateway.bucket_terms(bucket.id);
        let reservations = [&caller.terms.reservation, &of_bucket.reservation];
        let mut reservations: Vec<&Reserved> = reservations.into_iter().flatten().collect();
        // One that promises nothing now goes behind one that does.
        reservations.sort_by_key(|it| it.promises(direction, second) == 0);
        let reserved = reservations.first().map(|it| (*it).clone());
        let caps = [
            (format!("key {}", caller.key), caller.terms.caps),
            (format!("bucket {}", bucket.id), of_bucket.caps),
        ];
        let promised = reserved
            .as_ref()
            .map_or(0, |it| it.promises(direction, second));
        let lane = match (&reserved, promised) {
            (Some(reserved), 1..) => shown(reserved),
            _ => caller.account.clone(),
        };
        Service {
            qos: Qos {
                account: caller.payer.clone(),
                reservation: reserved.as_ref().map(|it| it.id),
                caps: caps.into_iter().filter(|it| !it.1.is_none()).collect(),
            },
            direction,
            lane,
            reserved,
            promised,
        }
    }

    /// Says in the headers of an answer what was promised, and what came of it so far.
    pub async fn show(&self, gateway: &Gateway, headers: &mut HeaderMap) {
        let Some(reserved) = &self.reserved else {
            return;
        };
        let delivered = gateway.data.delivered(&self.qos, self.direction).await;
        // Its stores are gone: the request will say so itself.
        let delivered = delivered.unwrap_or_default();
        for (name, value) in said(&shown(reserved), self.promised, delivered) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
}

/// As people and commands call it.
fn shown(reserved: &Reserved) -> String {
    format!("r-{:032x}", reserved.id)
}

fn said(id: &str, promised: u64, delivered: Delivered) -> [(&'static str, String); 4] {
    let Delivered {
        bytes,
        kept,
        missed,
    } = delivered;
    [
        ("x-tanada-reservation", id.to_owned()),
        ("x-tanada-promised", promised.to_string()),
        ("x-tanada-delivered", bytes.to_string()),
        ("x-tanada-windows", format!("kept={kept}, missed={missed}")),
    ]
}

/// Waits for something that a request needs, for a time.
pub(super) async fn soon<T>(wanted: impl Future<Output = T>) -> S3Result<T> {
    let done = tokio::time::timeout(WAIT, wanted).await;
    done.map_err(|_| {
        let seconds = WAIT.as_secs();
        s3_error!(
            SlowDown,
            "others, or a cap, had the stores for {seconds} s: come again later, or reserve a rate"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_promises_in_its_slot_alone_and_each_direction_its_own() {
        let reserved = Reserved {
            id: 0x7f3a,
            read: 40,
            write: 0,
            slot: (100, 200),
        };
        let promises = |direction, now| reserved.promises(direction, now);
        assert_eq!(promises(Direction::Read, 99), 0);
        assert_eq!(promises(Direction::Read, 100), 40);
        assert_eq!(promises(Direction::Read, 199), 40);
        assert_eq!(promises(Direction::Read, 200), 0);
        assert_eq!(promises(Direction::Write, 150), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_served_in_half_a_minute_is_answered_with_slow_down() {
        assert_eq!(soon(async { 1 }).await.unwrap(), 1);
        let error = soon(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.code().as_str(), "SlowDown");
        assert_eq!(
            error.status_code(),
            Some(hyper::StatusCode::SERVICE_UNAVAILABLE)
        );
    }
}

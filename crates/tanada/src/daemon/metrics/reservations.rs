//! Reservations at stores that are in use now: what is promised, what was delivered, and were windows kept?
//!
//! A reservation is in use while a client shows its capability, or a volume's requests go by it. It is called as commands
//! have it, `STORE/NUMBER`. Its holder is left out for a caller who may not see names.
//!
//! Always true:
//! 1. A reservation has one series in each family, whatever sessions it has.
//! 2. What it got never becomes less: closed sessions count until the reservation is over.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, counters, gauges, labels, with};
use crate::api::store::Store;

/// What sessions of one reservation were promised and got.
#[derive(Default)]
struct Delivered {
    holder: String,
    promised: u64,
    bytes: u64,
    /// Windows as in [`ENDS`].
    windows: [u64; 4],
}

impl Delivered {
    fn got(&mut self, bytes: u64, windows: [u64; 4]) {
        self.bytes += bytes;
        for (sum, count) in self.windows.iter_mut().zip(windows) {
            *sum += count;
        }
    }
}

/// How windows end.
const ENDS: [&str; 4] = ["kept", "no_demand", "capacity", "scheduler"];

const PROMISED: Row<Delivered, f64> = (
    "promised_bytes_per_second",
    "What it is promised now",
    |it| it.promised as f64,
);

const DELIVERED: Row<Delivered, u64> = ("delivered_bytes", "What it got", |it| it.bytes);

/// Those of all stores; nothing without a store.
pub(super) fn reservations(
    encoder: &mut DescriptorEncoder<'_>,
    stores: &[Store],
) -> Result<(), Error> {
    if stores.is_empty() {
        return Ok(());
    }
    let in_use: Vec<(&str, String, Delivered)> = stores.iter().flat_map(of_store).collect();
    let all = in_use.iter().map(|(store, called, it)| {
        let mut labels = labels([("store", *store), ("reservation", called)]);
        if !it.holder.is_empty() {
            labels = with(&labels, "holder", &it.holder);
        }
        (labels, it)
    });
    let all: Vec<(Labels<'_>, &Delivered)> = all.collect();
    gauges(encoder, "reservation", &[PROMISED], &all)?;
    counters(encoder, "reservation", &[DELIVERED], &all)?;
    let help = "Windows that ended: kept, without demand, or violated because of the device's capacity or of the scheduler";
    let mut windows = Family::of_counters(encoder, "reservation_windows", help)?;
    for (labels, it) in &all {
        for (end, count) in ENDS.into_iter().zip(it.windows) {
            windows.counter(&with(labels, "end", end), count)?;
        }
    }
    Ok(())
}

/// By number: the store, what it is called, what it got.
fn of_store(store: &Store) -> Vec<(&str, String, Delivered)> {
    let mut all: BTreeMap<u64, Delivered> = BTreeMap::new();
    for closed in &store.node.delivered {
        let sum = all.entry(closed.reservation).or_default();
        sum.holder.clone_from(&closed.holder);
        let of = &closed.windows;
        let ended = [of.kept, of.no_demand, of.capacity, of.scheduler];
        sum.got(closed.delivered_bytes, ended);
    }
    let open = store.sessions.iter().filter(|it| it.closed.is_none());
    for (number, session) in open.filter_map(|it| Some((it.reservation?, it))) {
        let sum = all.entry(number).or_default();
        sum.holder.clone_from(&session.holder);
        sum.promised += session.promised;
        let of = &session.delivery.windows;
        let ended = [of.kept, of.no_demand, of.capacity, of.scheduler];
        sum.got(session.delivery.delivered_bytes, ended);
    }
    let name = store.basics.name.as_str();
    let called = |(number, it)| (name, format!("{name}/{number}"), it);
    all.into_iter().map(called).collect()
}

//! Data threads: which of them answer, and how they waited for work.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Labels, Row, labels, seconds, with};
use crate::api::status::{Status, Thread};

const SECONDS: [Row<Thread, f64>; 2] = [
    (
        "spun_seconds",
        "Time a data thread looked for work without sleeping",
        |thread| thread.spun_seconds,
    ),
    (
        "spun_in_vain_seconds",
        "Of it, time in which nothing came",
        |thread| thread.spun_in_vain_seconds,
    ),
];

/// All of them, gates too.
pub(super) fn threads(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), Error> {
    let names = |thread: &Thread| thread.names.join(",");
    let own = status.threads.iter().map(|it| (names(it), Some(it)));
    let gates = status.gates.iter();
    let gates = gates.map(|gate| (gate.name.clone(), gate.thread.as_ref()));
    let silent = status.machine.silent.iter().chain(&status.dead);
    let silent = silent.map(|names| (names.replace(", ", ","), None));
    let all: Vec<(String, Option<&Thread>)> = own.chain(gates).chain(silent).collect();
    let help = "1 if the thread answered in time, 0 if it is silent or has ended";
    let mut up = Family::of_gauges(encoder, "thread_up", help)?;
    for (name, thread) in &all {
        let up_now = f64::from(u8::from(thread.is_some()));
        up.gauge(&labels([("thread", name)]), up_now)?;
    }
    let answered = all.iter().filter_map(|(name, thread)| {
        let thread = (*thread)?;
        let labels = with(&labels([("thread", name)]), "poll", &thread.poll);
        Some((labels, thread))
    });
    let answered: Vec<(Labels<'_>, &Thread)> = answered.collect();
    seconds(encoder, "thread", &SECONDS, &answered)
}

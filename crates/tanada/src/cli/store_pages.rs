//! A store as people read it.

use super::show::troubles;
use crate::api::store as api;
use crate::daemon::common::when;
use policy::share::{BytesPerSec, Second};
use report::terminal::table::{count, share, size, table};
use std::fmt::Write as _;
use store::qos::calibrate::{Measured, Surface};
use store::qos::manager::{ManagerReport, QueueReport};

/// One store in full.
pub(super) fn page(store: &api::Store) -> String {
    let node = &store.node;
    let mut text = format!("{} ({})\n", store.basics.name, node.uuid);
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<14}{value}");
    };
    line("device", store.basics.device.clone());
    line("clients", clients(store));
    let space = &node.space;
    line(
        "room",
        format!(
            "{} used, {} reserved, {} free of {}, in units of {}",
            size(space.used_bytes),
            size(space.reserved_bytes),
            size(space.free_bytes),
            size(space.total_bytes),
            size(store.basics.unit_bytes)
        ),
    );
    line(
        "objects",
        format!(
            "{}; their table takes {} of its room and {} of memory",
            count(space.objects as f64),
            share(
                store.basics.table_bytes as f64,
                store.basics.table_max_bytes as f64
            ),
            size(store.basics.memory_bytes)
        ),
    );
    for (what, value) in throughput(node) {
        line(what, value);
    }
    line("scrub", scrub_line(&store.scrub));
    let rows = session_rows(store);
    if !rows.is_empty() {
        let _ = write!(text, "\n{}", table(&SESSION_HEAD, &rows));
    }
    if !node.log.is_empty() {
        text.push_str("\nlately\n");
        for logged in node.log.iter().rev().take(10) {
            let at = when::shown(Second(logged.at));
            let _ = writeln!(text, "  {at}  {}", logged.what);
        }
    }
    for trouble in troubles(store) {
        let _ = writeln!(text, "\n{trouble}");
    }
    text
}

fn clients(store: &api::Store) -> String {
    let how = match store.basics.unauthenticated {
        true => "every client that reaches it may use it",
        false => "with a capability or the node key",
    };
    format!(
        "{} ({how}; {} connected)",
        store.basics.listen.join(" "),
        store.server.connections
    )
}

/// How a store's device is shared: what each line says.
fn throughput(node: &ManagerReport) -> [(&'static str, String); 4] {
    let (queue, capacity) = (&node.queue, &node.capacity);
    let now = &node.calendar.now;
    [
        ("scheduler", scheduler_line(queue)),
        (
            "trusted with",
            format!(
                "{} of reads or {} of writes ({})",
                BytesPerSec(capacity.read),
                BytesPerSec(capacity.write),
                capacity.source
            ),
        ),
        (
            "promised",
            format!(
                "{:.1} % of the device now, {:.1} % to stay free, {:.1} % for background; {} reservations",
                now.promised_percent,
                now.headroom_percent,
                node.calendar.floors_percent,
                node.calendar.committed
            ),
        ),
        (
            "moved",
            format!(
                "{} read, {} written, {} of metadata, {} of them background",
                size(queue.read_bytes),
                size(queue.written_bytes),
                size(queue.metadata_bytes),
                size(queue.background_bytes)
            ),
        ),
    ]
}

/// How the queue is run, and what it is doing.
fn scheduler_line(queue: &QueueReport) -> String {
    let mut line = queue.scheduler.clone();
    if let Some(round) = &queue.round {
        let (ios, unit) = (round.ios, size(round.unit_bytes));
        let _ = write!(line, ", rounds of {ios} x {unit}, {} ended", round.ended);
    }
    if let Some(quantum) = queue.quantum_bytes {
        let _ = write!(line, ", pieces of {}", size(quantum));
    }
    let depth = match queue.depth_auto {
        true => format!("up to {} (auto)", queue.depth),
        false => format!("up to {}", queue.depth),
    };
    let (there, shed) = (queue.in_flight, &queue.shed);
    let _ = write!(
        line,
        "; {depth} at the device, {there} there now; given up: {shed}"
    );
    line
}

/// The queue before the slow device of a hybrid, and what is promised of that now.
pub(super) fn queue_lines(queue: &ManagerReport) -> Vec<(&'static str, String)> {
    let (now, capacity) = (&queue.calendar.now, &queue.capacity);
    let rate = |bytes: u64| BytesPerSec(bytes).to_string();
    let mut lines = vec![
        ("scheduler", scheduler_line(&queue.queue)),
        (
            "trusted with",
            format!(
                "{} of reads or {} of writes ({})",
                rate(capacity.read),
                rate(capacity.write),
                capacity.source
            ),
        ),
        (
            "promised",
            format!(
                "{} of reads and {} of writes now, {:.1} % of the device; {} reservations",
                rate(now.reads),
                rate(now.writes),
                now.promised_percent,
                queue.calendar.committed
            ),
        ),
    ];
    let notice = queue.best_effort_only.clone();
    lines.extend(notice.map(|why| ("promises nothing", why)));
    lines
}

pub(super) fn scrub_line(scrub: &api::Scrub) -> String {
    let by_itself = match scrub.bytes_per_second {
        Some(rate) => format!("once a day at up to {}", BytesPerSec(rate)),
        None => "when asked".to_owned(),
    };
    if scrub.running {
        return format!(
            "running: {} read, {} bad; {by_itself}",
            size(scrub.read_bytes),
            scrub.bad
        );
    }
    match scrub.ended_unix_seconds {
        Some(at) => format!(
            "ended {}: {} read, {} bad; {by_itself}",
            when::shown(Second(at)),
            size(scrub.read_bytes),
            scrub.bad
        ),
        None => by_itself,
    }
}

pub const SESSION_HEAD: [&str; 9] = [
    "SESSION",
    "HOLDER",
    "OF",
    "STATE",
    "PROMISED",
    "DELIVERED",
    "KEPT",
    "CAPACITY",
    "SCHEDULER",
];

/// Sessions as cells: of violated windows, those of either cause.
pub fn session_rows(store: &api::Store) -> Vec<Vec<String>> {
    let sessions = store.sessions.iter();
    sessions
        .map(|session| {
            let who = match session.reservation {
                Some(number) => format!("{}/{number}", store.basics.name),
                None => format!("#{}", session.session),
            };
            let or_dash = |text: &str| match text {
                "" => "-".to_owned(),
                text => text.to_owned(),
            };
            let windows = &session.delivery.windows;
            vec![
                who,
                or_dash(&session.holder),
                or_dash(session.direction.as_deref().unwrap_or_default()),
                match session.closed {
                    Some(_) => "closed".to_owned(),
                    None => session.phase.name().to_owned(),
                },
                match session.promised {
                    0 => "-".to_owned(),
                    rate => BytesPerSec(rate).to_string(),
                },
                size(session.delivery.delivered_bytes),
                windows.kept.to_string(),
                windows.capacity.to_string(),
                windows.scheduler.to_string(),
            ]
        })
        .collect()
}

/// What was measured, for people.
pub(super) fn surface_page(name: &str, surface: &Surface) -> String {
    let direction = |measured: &Measured| {
        format!(
            "{} in long requests, {} more for each request",
            BytesPerSec(measured.rate),
            base::Nanos(measured.fixed_ns)
        )
    };
    let mut text = format!(
        "{name}: {} of {}, measured {} with the scheduler {}\n  reads   {}\n  writes  {}\n",
        surface.device.name,
        size(surface.device.bytes),
        when::shown(Second(surface.measured)),
        surface.scheduler,
        direction(&surface.read),
        direction(&surface.write)
    );
    let rows: Vec<Vec<String>> = surface
        .points
        .iter()
        .map(|point| {
            vec![
                point.mix().name().to_owned(),
                point.sessions.to_string(),
                format!("{} %", f64::from(point.probability_ppm) / 10_000.0),
                format!("{:.1} %", point.overhead_ppb as f64 / 1e7),
                format!("{} of {}", point.violated, point.windows),
            ]
        })
        .collect();
    text.push_str("\nwhat must stay free for promises to hold\n");
    text.push_str(&table(
        &["OF", "SESSIONS", "KEPT", "FREE", "VIOLATED IN THE TRIAL"],
        &rows,
    ));
    if surface.cut {
        text.push_str("time ran out before all of it was measured\n");
    }
    text
}

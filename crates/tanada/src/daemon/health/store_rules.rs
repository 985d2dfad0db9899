//! What is wrong with a store?

use report::terminal::table::size;
use store::qos::manager::ManagerReport;

use super::codes::{
    CALIBRATION_DUE, CHECKSUM, NEAR_FULL, OVERCOMMITTED, PROMISE_BROKEN, STORE_FULL,
};
use crate::api::health::HealthCheck;
use crate::api::store::Store;

/// Of a store's room, free: less is nearly full, full.
const NEARLY_FULL_PERCENT: u64 = 10;
const FULL_PERCENT: u64 = 1;
/// A broken promise counts for so long.
const PROMISE_SECONDS: u64 = 600;

/// Of a store of this daemon; so many deleted volumes are kept in the cluster.
pub fn of_store(of: &Store, in_trash: usize, out: &mut Vec<HealthCheck>) {
    let (name, node) = (of.basics.name.as_str(), &of.node);
    let space = (node.space.free_bytes, node.space.total_bytes);
    out.extend(room(name, space, in_trash));
    if of.bad_blocks > 0 {
        let first = of.first_bad.first().map_or("", String::as_str);
        let what = format!("{} pages are damaged, first {first}", of.bad_blocks);
        let todo = "virtual disks mend theirs from another copy (`tanada volume repair`); write other objects again";
        out.push(CHECKSUM.raised(Some(name), what, todo));
    }
    out.extend(promise(name, node));
    if let Some(first) = node.calendar.overcommitted.first() {
        let what = format!(
            "{:.1} % is promised, {:.1} % is for background work (`floor`), and {:.1} % is to stay free",
            first.promised_percent, node.calendar.floors_percent, first.headroom_percent
        );
        let todo = "cancel reservations, lower the store's `floor`, or calibrate it";
        out.push(OVERCOMMITTED.raised(Some(name), what, todo));
    }
    if node.capacity.calibration_due {
        let what = "its device no longer does what it was measured to do";
        let todo = format!("`tanada store calibrate {name}` measures it anew");
        out.push(CALIBRATION_DUE.raised(Some(name), what, todo));
    }
}

/// Of a store with so many bytes free, of so many.
pub(super) fn room(name: &str, (free, total): (u64, u64), in_trash: usize) -> Option<HealthCheck> {
    let is_below = |percent: u64| u128::from(free) * 100 < u128::from(total) * u128::from(percent);
    let what = format!("{} of {} are free", size(free), size(total));
    if is_below(FULL_PERCENT) {
        let trash = trash(in_trash);
        let todo = format!("delete objects or snapshots{trash}, or drain the store to others");
        Some(STORE_FULL.raised(Some(name), what, todo))
    } else if is_below(NEARLY_FULL_PERCENT) {
        let trash = trash(in_trash);
        let todo =
            format!("add a store, or delete objects or snapshots{trash}, before writes fail");
        Some(NEAR_FULL.raised(Some(name), what, todo))
    } else {
        None
    }
}

/// What deleted volumes have to do with it.
fn trash(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", or the volume that `tanada trash list` shows".to_owned(),
        count => format!(", or some of the {count} volumes that `tanada trash list` shows"),
    }
}

fn promise(name: &str, node: &ManagerReport) -> Option<HealthCheck> {
    let mut lines = node.log.iter().rev();
    let broken = lines.find(|line| line.kind == "violated")?;
    if node.now.saturating_sub(broken.at) >= PROMISE_SECONDS {
        return None;
    }
    let whose = broken.reservation.map(|number| format!("{name}/{number}"));
    let whose = whose.unwrap_or_else(|| "a reservation".to_owned());
    let cause = broken.cause.as_ref();
    let cause = cause.map_or(String::new(), |cause| format!(", by its {cause}"));
    let what = format!("{whose} got less than it was promised{cause}");
    let todo = format!(
        "`tanada store show {name}` has the log; calibrate the store if its device became slower"
    );
    Some(PROMISE_BROKEN.raised(Some(name), what, todo))
}

//! What a repair of a virtual disk says, in words.

use vdisk::image::audit::Loss;
use vdisk::volume::{LEFT_MAX, Unrepaired};

/// A copy that is not there.
pub fn loss(loss: &Loss, store: &str) -> String {
    format!("{} on store {store}: {} copies left", loss.name, loss.left)
}

/// Damage that could not be repaired.
pub fn damage(left: &Unrepaired, store: &str) -> String {
    let Unrepaired { damage, why, .. } = left;
    let (len, at) = (base::Bytes(damage.len), damage.offset);
    format!(
        "{len} at byte {at} of {} on store {store}: {why}",
        damage.object
    )
}

/// Damage that is left, a line each, and how much more there is.
pub fn damaged(left: &[String], more: u64) -> String {
    let mut text: String = left
        .iter()
        .map(|it| format!("damaged still: {it}\n"))
        .collect();
    if more > 0 {
        text += &format!(
            "damaged still: {more} stretches more, which are counted and not named ({LEFT_MAX} of what no copy has, and as many \
             of the rest, are)\n"
        );
    }
    text
}

/// What is missing, a line each.
pub fn missing(copies: u64, losses: &[String], unknown: &[String]) -> String {
    let mut text = match copies {
        0 => String::new(),
        _ => format!("{copies} copies of extents are missing\n"),
    };
    for loss in losses {
        text += &format!("missing: {loss}\n");
    }
    for store in unknown {
        text += &format!("store {store} does not answer: nothing is known of what it has\n");
    }
    text
}

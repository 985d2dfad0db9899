//! `[network]`: how fast is the link of this node?
//!
//! Always true: without it nothing of the link is booked.

use policy::share::BytesPerSec;

use super::cluster::ClusterConfig;
use super::keys::Keys;

/// Below this nothing of use crosses it.
const LEAST: BytesPerSec = BytesPerSec::mb(1);

/// Reads it, for the stores of `cluster`.
pub(super) fn read_network(root: &mut Keys<'_, '_>, cluster: Option<&mut ClusterConfig>) {
    let Some(mut keys) = root.table("network") else {
        return;
    };
    let speed = keys.parse("speed", speed);
    let speed = keys.need(speed, "how fast the link is each way, such as \"10Gbit/s\"");
    match cluster {
        Some(cluster) => cluster.network = speed.map(|at| at.value),
        None => keys.complain(
            "",
            "only stores of a [cluster] share a link; add one, or leave [network] out",
        ),
    }
    keys.finish();
}

/// Bits, as links are sold, or bytes.
fn speed(text: &str) -> Result<BytesPerSec, String> {
    let wrong =
        || format!("'{text}' is no speed; write one such as 10Gbit/s, 100Mbit/s or 1.25GB/s");
    let units = [
        ("Tbit/s", 1e12),
        ("Gbit/s", 1e9),
        ("Mbit/s", 1e6),
        ("kbit/s", 1e3),
    ];
    let bits = units.iter().find_map(|(unit, times)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number > 0.0 && number < 1e6).then(|| (number * times / 8.0) as u64)
    });
    let speed = match bits {
        Some(bytes) => BytesPerSec(bytes),
        None => text.parse().map_err(|_| wrong())?,
    };
    match speed < LEAST {
        true => Err(format!(
            "{speed} is no link's speed; write at least {LEAST}"
        )),
        false => Ok(speed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_links_speed_is_read_in_bits_and_in_bytes() {
        for (text, bytes) in [
            ("10Gbit/s", 1_250_000_000),
            ("2.5 Gbit/s", 312_500_000),
            ("100Mbit/s", 12_500_000),
            ("125MB/s", 125_000_000),
        ] {
            assert_eq!(speed(text), Ok(BytesPerSec(bytes)), "{text}");
        }
        for text in [
            "10",
            "fast",
            "10Gbit",
            "-1Gbit/s",
            "0Gbit/s",
            "nanGbit/s",
            "1kbit/s",
        ] {
            assert!(speed(text).is_err(), "{text}");
        }
    }
}

//! What a device costs by its model, until it is calibrated.

use base::Nanos;
use device::model::{Kind, Spec};
use policy::share::{BytesPerSec, Cost, Costs};

/// The costs that a model's sheet gives.
///
/// # Example
/// ```
/// use device::model::Spec;
/// let costs = store::qos::costs::of_model(&Spec::find("hdd-7200-sata")?);
/// assert!(costs.read.jump > base::Nanos::millis(10));
/// # Ok::<(), device::model::SpecError>(())
/// ```
pub fn of_model(spec: &Spec) -> Costs {
    let rate = |mb: f64| BytesPerSec((mb * 1e6) as u64);
    let time = |us: f64| Nanos((us * 1e3) as u64);
    match &spec.kind {
        Kind::Hdd(disk) => {
            let half_turn_us = 30e6 / disk.mechanics.rpm;
            let cost = |seek_ms: f64| Cost {
                fixed: time(disk.commands.overhead_ms * 1e3),
                jump: time(seek_ms * 1e3 + half_turn_us),
                rate: rate(disk.mechanics.inner_mb_s),
            };
            Costs {
                read: cost(disk.mechanics.read_seek_ms[1]),
                write: cost(disk.mechanics.write_seek_ms[1]),
            }
        }
        Kind::Ssd(ssd) => {
            let cost = |extra_us: f64, mb| Cost {
                fixed: time(ssd.host.command_us + extra_us),
                jump: Nanos(0),
                rate: rate(mb),
            };
            // Each page is programmed into some die; what all dies take together may be less than the interface.
            let dies =
                (ssd.flash.channels * ssd.flash.chips * ssd.flash.dies * ssd.flash.planes) as f64;
            let flash_mb = dies * ssd.flash.page_size.0 as f64 / ssd.flash.program_us.max(1.0);
            Costs {
                read: cost(ssd.host.read_extra_us, ssd.host.read_mb_s),
                write: cost(ssd.host.write_extra_us, ssd.host.write_mb_s.min(flash_mb)),
            }
        }
        Kind::Constant(constant) => {
            let cost = |us: &[(f64, f64)], mb| Cost {
                fixed: time(us.first().map_or(0.0, |(_, us)| *us)),
                jump: Nanos(0),
                rate: rate(mb),
            };
            Costs {
                read: cost(&constant.read_us, constant.read_mb_s),
                write: cost(&constant.write_us, constant.write_mb_s),
            }
        }
    }
}

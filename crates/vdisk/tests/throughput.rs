//! What a volume of one copy gets out of its store, beside clients of the store itself: in virtual time, on modelled disks.
//!
//! What it costs the processor does not show here; `cargo xtask bench volume` measures that.

mod beside;

use base::Bytes;
use device::model::{ModelDisk, Spec, Store};
use env::Runtime;

use beside::{Amount, CASES, Rates};

const AMOUNT: Amount = Amount {
    mib: 128,
    small: 4000,
};

fn run(model: &'static str, through: bool) -> Rates {
    Runtime::simulated(1).block_on(async move {
        let spec = Spec::find(model).expect("it is in the catalogue");
        let disk = ModelDisk::new("disk", &spec, Some(Bytes::gib(1)), Store::Memory, 1);
        let node = beside::node(disk.expect("a gigabyte")).await;
        beside::of(node, through, AMOUNT).await
    })
}

#[test]
fn a_volume_of_one_copy_is_at_least_nine_tenths_as_fast_as_its_store() {
    let mut short = Vec::new();
    for model in ["ssd-nvme-tlc", "ssd-sata-mlc", "hdd-7200-sata"] {
        let (store, volume) = (run(model, false), run(model, true));
        for (n, (case, unit)) in CASES.into_iter().enumerate() {
            let ratio = volume[n] / store[n];
            let said = format!(
                "{model}, {case}: store {:.0} {unit}, volume {:.0}, ratio {ratio:.3}",
                store[n], volume[n]
            );
            println!("{said}");
            if ratio < 0.9 {
                short.push(said);
            }
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}

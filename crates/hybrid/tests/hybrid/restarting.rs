//! What a process that died left: is it found, and does the opening know whether it found all?

use std::rc::Rc;

use base::{Bytes, Sector, View};
use device::{Crash, Device, DeviceExt};
use env::Mapping;
use hybrid::{Hybrid, OpenError, RESTART_LOG, RestartPlace, Settings, Ties};

fn place() -> RestartPlace {
    RestartPlace {
        memory: Rc::new(Mapping::simulated(RESTART_LOG)),
        boot: 1,
    }
}

struct Pair {
    slow: Rc<Crash>,
    fast: Rc<Crash>,
}

impl Pair {
    fn new() -> Pair {
        let device = |name: &str, size| Crash::new(name, size, env::rng(name));
        Pair {
            slow: device("hdd0", Bytes::mib(16)),
            fast: device("ssd0", Bytes::mib(4)),
        }
    }

    /// The process dies; what the devices answered stays.
    fn die(&mut self) {
        for device in [&mut self.slow, &mut self.fast] {
            device.cut_now();
            let supply = device::crash::PowerSupply::new();
            *device = device.restart_process_on(&supply, env::rng("restart"));
        }
    }

    async fn open(&self, restart: Option<RestartPlace>) -> Result<Hybrid, OpenError> {
        let (slow, fast) = (Rc::clone(&self.slow) as _, Rc::clone(&self.fast) as _);
        let ties = Ties {
            restart,
            ..Ties::default()
        };
        Hybrid::open_or_create(Settings::default(), slow, fast, ties).await
    }
}

async fn first(disk: &Hybrid) -> u8 {
    disk.read_at(Sector(8), Bytes(4096))
        .await
        .expect("it is read")[0]
}

#[test]
fn an_answered_write_is_found_if_the_log_is() {
    env::Runtime::simulated(1).block_on(async {
        let (mut pair, log) = (Pair::new(), place());
        let disk = pair.open(Some(log.clone())).await.unwrap();
        assert!(disk.info().crash_keeping && disk.found_all());
        disk.write_at(Sector(8), View::copy_of(&[7; 4096]))
            .await
            .unwrap();
        pair.die();
        let disk = pair.open(Some(log.clone())).await.unwrap();
        assert!(disk.found_all());
        assert_eq!(first(&disk).await, 7);
        // What was found is durable by now: the log is not needed twice.
        pair.die();
        let disk = pair.open(Some(place())).await.unwrap();
        assert_eq!(first(&disk).await, 7);
        assert!(
            !disk.found_all(),
            "a log that is not there may have had more"
        );
    });
}

#[test]
fn after_a_clean_close_nothing_is_missed() {
    env::Runtime::simulated(1).block_on(async {
        let (mut pair, log) = (Pair::new(), place());
        let disk = pair.open(Some(log)).await.unwrap();
        disk.write_at(Sector(8), View::copy_of(&[7; 4096]))
            .await
            .unwrap();
        disk.close().await.unwrap();
        pair.die();
        let disk = pair.open(None).await.unwrap();
        assert!(disk.found_all() && !disk.info().crash_keeping);
        assert_eq!(first(&disk).await, 7);
    });
}

/// The fast device alone lost its power: what it had flushed counts, not what the log says of the rest.
#[test]
fn a_log_whose_data_are_gone_does_not_count() {
    env::Runtime::simulated(1).block_on(async {
        let (mut pair, log) = (Pair::new(), place());
        let disk = pair.open(Some(log.clone())).await.unwrap();
        disk.write_at(Sector(8), View::copy_of(&[7; 4096]))
            .await
            .unwrap();
        disk.flush().await.unwrap();
        pair.fast.set_survival(device::crash::Survival::Nothing);
        disk.write_at(Sector(8), View::copy_of(&[9; 4096]))
            .await
            .unwrap();
        pair.fast.cut_now();
        let fast = pair.fast.restart(env::rng("power"));
        pair.fast = Rc::clone(&fast);
        pair.die();
        let disk = pair.open(Some(log)).await.unwrap();
        assert!(!disk.found_all());
        assert_eq!(first(&disk).await, 7, "the flushed version");
    });
}

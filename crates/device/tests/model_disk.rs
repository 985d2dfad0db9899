//! A modelled disk as a device: data, durability, power, time; and measuring one.

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::fault::{Done, Injury, Rule};
use device::model::bench::{self, BenchError, Pattern, Plan};
use device::model::{ModelDisk, Spec, SpecError, State, Store};
use device::{Device, DeviceError, DeviceExt, Fault, File, FileOptions, Memory, Op, WriteFlags};

const MODELS: [&str; 11] = [
    "hdd-10k-sas",
    "hdd-7200-sata",
    "hdd-5400-mobile",
    "ssd-sata-mlc",
    "ssd-sata-slc",
    "ssd-nvme-tlc",
    "scm",
    "dram",
    "nand",
    "scm1",
    "scm2",
];

fn disk(model: &str, size: Bytes, store: Store) -> Rc<ModelDisk> {
    let spec = Spec::find(model).expect("in the catalogue");
    ModelDisk::new("d0", &spec, Some(size), store, 1).expect("a size the model can have")
}

#[test]
fn every_model_keeps_data_like_a_plain_array() {
    for model in MODELS {
        for own_store in [false, true] {
            env::Runtime::simulated(5).block_on(async move {
                let size = Bytes::mib(16);
                let store = match own_store {
                    true => Store::Device(Memory::new("below", size)),
                    false => Store::Memory,
                };
                let disk = disk(model, size, store);
                let mut plain = vec![0; size.usize()];
                let mut random = env::rng("test");
                for turn in 0..400 {
                    let at = random.below(4000) as usize * 4096;
                    let len = (1 + random.below(8)) as usize * 4096;
                    let span = Span::bytes(at as u64, len as u64);
                    match random.below(10) {
                        0..4 => {
                            let data = View::copy_of(&vec![turn as u8; len]);
                            let flags = WriteFlags {
                                fua: random.chance(0.2),
                                ..WriteFlags::default()
                            };
                            disk.write(span.start, data, flags).await.unwrap();
                            plain[at..at + len].fill(turn as u8);
                        }
                        4 => {
                            let flags = WriteFlags::default();
                            disk.write_zeroes(span, flags).await.unwrap();
                            plain[at..at + len].fill(0);
                        }
                        5 => disk.flush().await.unwrap(),
                        _ => {
                            let read = disk.read_at(span.start, span.len).await.unwrap();
                            assert_eq!(read[..], plain[at..at + len], "{model} turn {turn}");
                        }
                    }
                }
                assert_eq!(disk.in_flight(), 0);
                let power = disk.power().expect("a model tells its power");
                assert_eq!(power.over, env::now().since(base::Instant(0)));
            });
        }
    }
}

#[test]
fn many_requests_at_once_all_come_back() {
    for model in MODELS {
        env::Runtime::simulated(6).block_on(async move {
            let disk = disk(model, Bytes::mib(64), Store::Memory);
            let tasks: Vec<_> = (0..200u64)
                .map(|task| {
                    let disk = Rc::clone(&disk);
                    env::spawn(async move {
                        let at = Sector(task * 8);
                        for round in 0..10 {
                            let data = View::copy_of(&[(task + round) as u8; 4096]);
                            disk.write_at(at, data).await.unwrap();
                            let read = disk.read_at(at, Bytes(4096)).await.unwrap();
                            assert_eq!(read[..], [(task + round) as u8; 4096]);
                        }
                    })
                })
                .collect();
            env::sync::join_all(tasks).await;
            assert_eq!(disk.in_flight(), 0);
        });
    }
}

#[test]
fn a_write_shows_when_complete_and_goes_on_when_its_future_is_dropped() {
    env::Runtime::simulated(1).block_on(async {
        let disk = disk("hdd-10k-sas", Bytes::gib(1), Store::Memory);
        let write = disk.write_at(Sector(4096), View::copy_of(&[9; 4096]));
        drop(write);
        assert_eq!(disk.in_flight(), 1, "dropping takes nothing back");
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(disk.in_flight(), 0);
        let read = disk.read_at(Sector(4096), Bytes(4096)).await.unwrap();
        assert_eq!(read[..], [9; 4096]);
    });
}

#[test]
fn a_failure_below_reaches_the_caller_after_the_models_time() {
    env::Runtime::simulated(1).block_on(async {
        let below = Memory::new("below", Bytes::mib(64));
        let faulty = Fault::new(below, env::rng("fault"));
        let rule = Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Write])
            .once();
        faulty.book().add(rule);
        let store: Rc<dyn Device> = faulty;
        let disk = disk("hdd-10k-sas", Bytes::mib(64), store.into());
        let start = env::now();
        let failed = disk.write_at(Sector(0), View::copy_of(&[1; 512])).await;
        assert!(matches!(failed, Err(DeviceError::Io { .. })), "{failed:?}");
        assert!(env::now().since(start) > Nanos::micros(200));
        disk.write_at(Sector(0), View::copy_of(&[1; 512]))
            .await
            .unwrap();
        // A store that takes its time holds the request up as long.
        let slow = Rule::new(Injury::Delay(Nanos::secs(3)))
            .on(&[Op::Read])
            .once();
        let start = env::now();
        let below = Fault::new(Memory::new("below", Bytes::mib(64)), env::rng("fault"));
        below.book().add(slow);
        let store: Rc<dyn Device> = below;
        let disk = self::disk("scm", Bytes::mib(64), store.into());
        disk.read_at(Sector(0), Bytes(512)).await.unwrap();
        assert!(env::now().since(start) >= Nanos::secs(3));
    });
    let refused = env::Runtime::simulated(1).block_on(async {
        let disk = disk("scm", Bytes::mib(1), Store::None);
        disk.read_at(Sector(2048), Bytes(512)).await.err()
    });
    assert!(matches!(refused, Some(DeviceError::OutOfRange { .. })));
}

#[test]
fn without_a_store_reads_give_zeroes_and_take_as_long() {
    let replay = |store: fn() -> Store| {
        env::Runtime::simulated(1).block_on(async move {
            let disk = disk("hdd-7200-sata", Bytes::gib(200), store());
            for turn in 0..50 {
                let at = Sector(turn * 7_654_321);
                disk.write_at(at, View::copy_of(&[1; 4096])).await.unwrap();
                disk.read_at(at, Bytes(4096)).await.unwrap();
            }
            let read = disk.read_at(Sector(0), Bytes(4096)).await.unwrap();
            (env::now(), read[0])
        })
    };
    let (kept, first) = replay(|| Store::Memory);
    let (lost, zero) = replay(|| Store::None);
    assert_eq!(kept, lost);
    assert_eq!((first, zero), (1, 0));
}

#[test]
fn the_same_seed_takes_the_same_steps_at_the_same_nanoseconds() {
    let run = |seed| {
        let runtime = env::Runtime::simulated(seed);
        let end = runtime.block_on(async {
            let disk = disk("hdd-5400-mobile", Bytes::gib(1), Store::Memory);
            let tasks: Vec<_> = (0..16)
                .map(|_| {
                    let disk = Rc::clone(&disk);
                    env::spawn(async move {
                        let mut random = env::rng("test");
                        for _ in 0..50 {
                            let at = Sector(random.below(1 << 18) * 8);
                            let data = View::copy_of(&[1; 4096]);
                            disk.write_at(at, data).await.unwrap();
                            disk.flush().await.unwrap();
                        }
                    })
                })
                .collect();
            env::sync::join_all(tasks).await;
            env::now()
        });
        (end, runtime.trace_hash())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn asked_to_it_sleeps_and_tells_what_waking_cost() {
    env::Runtime::simulated(1).block_on(async {
        let disk = disk("hdd-7200-sata", Bytes::gib(8), Store::Memory);
        disk.write_at(Sector(0), View::copy_of(&[1; 4096]))
            .await
            .unwrap();
        assert!(disk.standby());
        env::sleep(Nanos::secs(60)).await;
        assert!(disk.power().unwrap().standby);
        let before = disk.power().unwrap();
        let start = env::now();
        disk.read_at(Sector(0), Bytes(4096)).await.unwrap();
        let after = disk.power().unwrap();
        assert!(env::now().since(start) >= Nanos::secs(8));
        assert_eq!((before.spin_ups, after.spin_ups), (0, 1));
        assert!(after.joules - before.joules >= 8.0 * 24.0);
        assert!(!after.standby);
        let up = disk
            .spent()
            .into_iter()
            .find(|spent| spent.state == State::SpinUp);
        assert_eq!(up.expect("it spun up").time, Nanos::secs(8));
    });
}

#[test]
fn a_disk_may_outlive_its_runtime_and_its_clock_goes_on() {
    let first = env::Runtime::simulated(1);
    let disk = first.block_on(async {
        let disk = disk("hdd-7200-sata", Bytes::gib(1), Store::Memory);
        disk.write_at(Sector(8), View::copy_of(&[3; 4096]))
            .await
            .unwrap();
        env::sleep(Nanos::secs(5)).await;
        // Left under way when the runtime ends.
        drop(disk.read_at(Sector(1 << 20), Bytes(4096)));
        disk.power();
        disk
    });
    drop(first);
    env::Runtime::simulated(2).block_on(async move {
        let read = disk.read_at(Sector(8), Bytes(4096)).await.unwrap();
        assert_eq!(read[..], [3; 4096]);
        assert!(disk.power().unwrap().over >= Nanos::secs(5));
    });
}

#[test]
fn a_store_that_is_too_small_and_sizes_no_model_has_are_refused() {
    let spec = Spec::find("ssd-nvme-tlc").unwrap();
    let small = Store::Device(Memory::new("below", Bytes::mib(1)));
    let refusal = ModelDisk::new("d0", &spec, Some(Bytes::gib(1)), small, 1).err();
    assert_eq!(
        refusal.expect("too small").to_string(),
        "the model ssd-nvme-tlc cannot hold 1.0 GiB: its store below holds only 1.0 MiB"
    );
    for size in [Bytes(0), Bytes(4095), Bytes(1 << 60)] {
        let refusal = ModelDisk::new("d0", &spec, Some(size), Store::None, 1).err();
        assert!(matches!(refusal, Some(SpecError::Size { .. })), "{size}");
    }
}

#[test]
fn measuring_a_model_gives_the_figures_of_its_sheet() {
    let plan = Plan {
        requests: 3000,
        ..Plan::default()
    };
    let spec = Spec::find("ssd-sata-mlc").unwrap();
    let report = bench::measure(&spec, Some(Bytes::gib(8)), &plan, 1).unwrap();
    assert_eq!(
        report,
        bench::measure(&spec, Some(Bytes::gib(8)), &plan, 1).unwrap()
    );
    assert!(report.modelled);
    assert_eq!(report.cases.len(), 8);
    for (pattern, depth, iops) in [
        (Pattern::RandomRead, 1, 1e6 / 80.0),
        (Pattern::RandomRead, 32, 50e3),
        (Pattern::RandomWrite, 1, 1e6 / 85.0),
        (Pattern::RandomWrite, 32, 80e3),
    ] {
        let case = report.case(pattern, depth).expect("measured");
        assert!((case.iops / iops - 1.0).abs() < 0.1, "{case:?}");
        assert!(
            (case.watts.expect("a model") - 0.85).abs() < 0.01,
            "{case:?}"
        );
        let product = case.iops * case.latency_us_mean / 1e6;
        assert!(
            (product / depth as f64 - 1.0).abs() < 0.02,
            "Little's law: {case:?}"
        );
        assert!(case.latency_us_p50 <= case.latency_us_p99);
    }
}

#[test]
fn measuring_writes_never_where_data_may_be() {
    env::Runtime::simulated(1).block_on(async {
        let plan = Plan {
            requests: 50,
            sequential_block: Bytes::kib(64),
            ..Plan::default()
        };
        let target: Rc<dyn Device> = Memory::new("disk", Bytes::mib(8));
        target
            .write_at(Sector(9000), View::copy_of(&[5; 512]))
            .await
            .unwrap();
        let refusal = bench::measure_device(Rc::clone(&target), &plan).await.err();
        let refusal = refusal.expect("it holds data");
        assert!(matches!(refusal, BenchError::HoldsData { .. }));
        assert!(
            refusal.to_string().contains("byte 4608000 is not zero"),
            "{refusal}"
        );
        let reads = Plan {
            writes: false,
            ..plan.clone()
        };
        let report = bench::measure_device(Rc::clone(&target), &reads)
            .await
            .unwrap();
        assert_eq!(report.cases.len(), 4);
        let kept = target.read_at(Sector(9000), Bytes(512)).await.unwrap();
        assert_eq!(kept[..], [5; 512]);
        let allowed = Plan {
            overwrite: true,
            ..plan.clone()
        };
        let report = bench::measure_device(target, &allowed).await.unwrap();
        assert_eq!(report.cases.len(), 8);
        let empty = Memory::new("empty", Bytes::mib(8));
        assert!(bench::measure_device(empty, &plan).await.is_ok());
        let tiny = Memory::new("tiny", Bytes::kib(64));
        let refusal = bench::measure_device(tiny, &plan).await.err();
        assert!(matches!(refusal, Some(BenchError::TooSmall { .. })));
    });
}

#[test]
fn a_case_ends_with_its_time() {
    env::Runtime::simulated(1).block_on(async {
        let disk = disk("hdd-7200-sata", Bytes::gib(8), Store::None);
        let plan = Plan {
            time: Nanos::secs(1),
            requests: u64::MAX,
            depths: vec![1],
            ..Plan::default()
        };
        let report = bench::measure_device(disk, &plan).await.unwrap();
        for case in report.cases {
            assert!((0.9..1.5).contains(&case.seconds), "{case:?}");
        }
    });
}

#[test]
fn zero_bytes_are_read_and_written_at_once() {
    env::Runtime::simulated(1).block_on(async {
        let disk = disk("hdd-7200-sata", Bytes::gib(1), Store::Memory);
        assert_eq!(disk.read_at(Sector(0), Bytes(0)).await.unwrap().len(), 0);
        disk.write_at(Sector(0), Buf::zeroed(0).freeze())
            .await
            .unwrap();
        assert_eq!(env::now(), base::Instant(0));
    });
}

#[test]
fn in_real_time_a_model_over_a_sparse_file_keeps_data_and_takes_its_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk.img");
    let size = Bytes::mib(64);
    let runtime = env::Runtime::real(env::RealConfig::default()).expect("a real runtime");
    let sparse = path.clone();
    runtime.block_on(async move {
        for model in ["hdd-10k-sas", "ssd-sata-mlc"] {
            let options = FileOptions {
                create: Some(size),
                ..FileOptions::default()
            };
            let file: Rc<dyn Device> = File::open("image", &sparse, options).expect("created");
            let disk = disk(model, size, file.into());
            let start = env::now();
            let tasks: Vec<_> = (0..16u64)
                .map(|task| {
                    let disk = Rc::clone(&disk);
                    env::spawn(async move {
                        let at = Sector(task * 8192);
                        let data = View::copy_of(&[task as u8 + 1; 4096]);
                        disk.write_at(at, data).await.unwrap();
                        disk.flush().await.unwrap();
                        disk.read_at(at, Bytes(4096)).await.unwrap()
                    })
                })
                .collect();
            for (task, read) in env::sync::join_all(tasks).await.into_iter().enumerate() {
                assert_eq!(read[..], [task as u8 + 1; 4096]);
            }
            // Never sooner than the model says; how much later is the machine's affair.
            let least = disk.power().expect("a model").over;
            assert!(env::now().since(start) > Nanos::micros(80));
            assert!(least > Nanos::micros(80));
        }
    });
    let bytes = std::fs::read(path).expect("the image is there");
    assert_eq!(bytes[8192 * 512 * 15..][..4096], [16; 4096]);
}

//! Files and block devices: against the reference model in every alignment, and what is refused at open.

mod reference;

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, DeviceExt, File, FileOptions, Op, OpenError, WriteFlags};
use env::fs::Direct;
use env::{Choice, RealConfig, Rng, Runtime};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes::mib(1);

fn real(thread_pool: Choice) -> Runtime {
    let config = RealConfig {
        seed: Some(1),
        thread_pool,
        ..RealConfig::default()
    };
    Runtime::real(config).expect("a real runtime")
}

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    real(Choice::Auto).block_on(work)
}

fn sized(size: Bytes) -> FileOptions {
    FileOptions {
        create: Some(size),
        ..FileOptions::default()
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn refusal(path: &Path, options: FileOptions) -> OpenError {
    let path = path.to_owned();
    run(async move {
        match File::open("disk", &path, options) {
            Ok(_) => panic!("{} was opened", path.display()),
            Err(error) => error,
        }
    })
}

/// Buffers of `lens` bytes, the first of them not where memory is aligned to more than a sector.
fn pieces(lens: &[usize]) -> Vec<Buf> {
    let mut rest = Buf::for_read(512 + lens.iter().sum::<usize>());
    rest = rest.split_off(512);
    let mut pieces = Vec::new();
    for len in lens {
        let next = rest.split_off(*len);
        pieces.push(std::mem::replace(&mut rest, next));
    }
    pieces
}

#[test]
fn pieces_are_filled_in_order_by_whatever_alignment_and_driver() {
    let folder = folder();
    let mut rng = Rng::from_seed(3);
    let mut bytes = vec![0; SIZE.usize()];
    rng.fill(&mut bytes);
    let path = folder.path().join("disk");
    std::fs::write(&path, &bytes).expect("a file");
    let bytes = Rc::new(bytes);
    let ways = [Direct::Auto, Direct::No].map(|direct| [512, 4096].map(|block| (direct, block)));
    for (direct, block) in ways.into_iter().flatten() {
        for driver in [Choice::Auto, Choice::Always] {
            let (path, bytes) = (path.clone(), Rc::clone(&bytes));
            let options = FileOptions {
                direct,
                block_min: Some(Bytes(block)),
                ..FileOptions::default()
            };
            real(driver).block_on(async move {
                let file = File::open("disk", &path, options).unwrap();
                for (sector, lens) in [
                    (0, vec![4096]),
                    (8, vec![4096, 8192, 4096]),
                    (3, vec![512, 1024, 4096, 512]),
                    (16, vec![512; 1500]),
                ] {
                    let read = file.read_vectored(Sector(sector), pieces(&lens), Class::Foreground);
                    let read = read.await.unwrap();
                    let read: Vec<u8> = read.iter().flat_map(|piece| piece.to_vec()).collect();
                    let from = sector as usize * 512;
                    assert_eq!(
                        read,
                        bytes[from..from + read.len()],
                        "{direct:?} {block} {sector}"
                    );
                    assert_eq!(read.len(), lens.iter().sum::<usize>());
                }
                let beyond =
                    file.read_vectored(Sector(2040), pieces(&[4096, 4096]), Class::Foreground);
                let refused = beyond.await.err();
                assert!(
                    matches!(refused, Some(DeviceError::OutOfRange { .. })),
                    "{refused:?}"
                );
                assert_eq!(file.in_flight(), 0);
            });
        }
    }
}

proptest! {
    #![proptest_config(reference::cases(48))]

    #[test]
    fn a_file_reads_what_a_vec_reads(
        actions in actions(SIZE, Bytes::kib(256), 40),
        direct in prop_oneof![Just(Direct::Auto), Just(Direct::No)],
        block_min in prop_oneof![Just(512), Just(4096), Just(1 << 14)],
        threads in any::<bool>(),
        // Not whole blocks of 4096: the last one is cut.
        spare in 0..8_u64,
    ) {
        let folder = folder();
        let path = folder.path().join("disk.img");
        let runtime = real(if threads { Choice::Always } else { Choice::Auto });
        runtime.block_on(async move {
            let options = FileOptions {
                direct,
                block_min: Some(Bytes(block_min)),
                ..sized(SIZE + Bytes(spare * 512))
            };
            let file = File::open("disk", &path, options).unwrap();
            agree(&*file, actions).await;
            assert_eq!(file.in_flight(), 0);
        });
    }
}

/// Writes single sectors of shared blocks at the same time, and finds all of them.
async fn neighbours_do_not_hurt_each_other(file: Rc<dyn Device>) {
    let mut rng = Rng::from_seed(3);
    for round in 1..=8_u8 {
        let mut starts: Vec<u64> = (0..64).collect();
        for last in (1..starts.len()).rev() {
            starts.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let writes = starts.iter().map(|&sector| {
            let data = filled(round.wrapping_mul(64) ^ sector as u8, Bytes(512));
            file.write(Sector(sector), data, WriteFlags::default())
        });
        for answer in env::sync::join_all(writes).await {
            assert_eq!(answer, Ok(()));
        }
        let read = file.read_at(Sector(0), Bytes(64 * 512)).await.unwrap();
        for (sector, bytes) in read.chunks(512).enumerate() {
            let fill = round.wrapping_mul(64) ^ sector as u8;
            assert!(bytes.iter().all(|&byte| byte == fill), "sector {sector}");
        }
    }
}

#[test]
fn writes_to_sectors_of_one_block_do_not_hurt_each_other() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    run(async move {
        let options = FileOptions {
            block_min: Some(Bytes(4096)),
            ..sized(SIZE)
        };
        let file = File::open("disk", &path, options).unwrap();
        neighbours_do_not_hurt_each_other(file).await;
    });
}

#[test]
fn a_rewrite_of_a_block_ends_before_the_next_though_its_future_is_dropped() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    run(async move {
        let options = FileOptions {
            block_min: Some(Bytes(4096)),
            ..sized(SIZE)
        };
        let file = File::open("disk", &path, options).unwrap();
        for round in 1..=100 {
            let abandoned = file.write_at(Sector(0), filled(round, Bytes(512)));
            // One look at it, and away.
            assert!(env::timeout(Nanos(0), abandoned).await.is_err());
            let next = file.write_at(Sector(7), filled(round, Bytes(512)));
            next.await.unwrap();
            let read = file.read_at(Sector(0), Bytes(4096)).await.unwrap();
            assert_eq!((read[0], read[7 * 512]), (round, round));
        }
    });
}

#[test]
fn buffers_anywhere_in_memory_are_written_and_filled() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    run(async move {
        let file = File::open("disk", &path, sized(SIZE)).unwrap();
        let mut bytes = Buf::zeroed(100 + 4096);
        for (place, byte) in bytes[100..].iter_mut().enumerate() {
            *byte = (place % 251) as u8;
        }
        let view = bytes.freeze();
        let odd: View = view.slice(100, 4096);
        file.write_at(Sector(3), odd.clone()).await.unwrap();
        let mut buf = Buf::zeroed(60 + 4096);
        let tail = buf.split_off(60);
        let tail = file.read(Sector(3), tail, Class::Foreground).await.unwrap();
        assert!(tail[..] == odd[..]);
        buf.join(tail); // the very buffer that was given
    });
}

#[test]
fn data_flushed_or_written_with_fua_are_in_the_file() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    let there = path.clone();
    run(async move {
        let file = File::open("disk", &there, sized(SIZE)).unwrap();
        file.write_at(Sector(0), filled(1, Bytes(512)))
            .await
            .unwrap();
        file.flush().await.unwrap();
        let fua = file.write(Sector(1), filled(2, Bytes(512)), WriteFlags::FUA);
        fua.await.unwrap();
        file.write_zeroes(Span::bytes(0, 512), WriteFlags::FUA)
            .await
            .unwrap();
    });
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, SIZE.0);
    assert_eq!([bytes[0], bytes[512], bytes[1024]], [0, 2, 0]);
}

#[test]
fn holes_of_a_sparse_file_are_distinct_from_its_data() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    run(async move {
        let file = File::open("disk", &path, sized(Bytes::mib(64))).unwrap();
        let whole = Span::bytes(0, 64 << 20);
        assert_eq!(file.allocation(whole).await, Ok(vec![(64 << 20, false)]));
        file.write_at(Sector(40960), filled(1, Bytes::mib(1)))
            .await
            .unwrap();
        file.flush().await.unwrap();
        let mib = 1 << 20;
        let pieces = file.allocation(whole).await.unwrap();
        assert_eq!(pieces, [(20 * mib, false), (mib, true), (43 * mib, false)]);
        let inside = file.allocation(Span::bytes(20 * mib + 512, 1024)).await;
        assert_eq!(inside, Ok(vec![(1024, true)]));
        file.discard(whole).await.unwrap();
        assert_eq!(file.allocation(whole).await, Ok(vec![(64 * mib, false)]));
    });
}

#[test]
fn a_file_of_odd_length_is_used_up_to_its_last_whole_sector() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![5; 3 * 512 + 100]).unwrap();
    run(async move {
        let file = File::open("disk", &path, FileOptions::default()).unwrap();
        assert_eq!(file.info().size, Bytes(3 * 512));
        let read = file.read_at(Sector(2), Bytes(512)).await.unwrap();
        assert_eq!(read[..], [5; 512]);
        let behind = file.read_at(Sector(3), Bytes(512)).await;
        assert!(matches!(
            behind,
            Err(DeviceError::OutOfRange { size: 1536, .. })
        ));
    });
}

#[test]
fn a_read_only_file_refuses_writes() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [5; 1024]).unwrap();
    run(async move {
        let options = FileOptions {
            read_only: true,
            ..FileOptions::default()
        };
        let file = File::open("disk", &path, options).unwrap();
        assert!(file.info().read_only);
        let refused = file
            .write_at(Sector(0), filled(1, Bytes(512)))
            .await
            .unwrap_err();
        assert_eq!(refused.to_string(), "cannot write on disk: it is read-only");
        let refused = file.discard(Span::bytes(0, 512)).await;
        assert!(matches!(
            refused,
            Err(DeviceError::ReadOnly {
                op: Op::Discard,
                ..
            })
        ));
        assert_eq!(file.read_at(Sector(1), Bytes(512)).await.unwrap()[0], 5);
    });
}

#[test]
fn what_cannot_be_a_disk_is_refused_with_its_path_and_what_to_do() {
    let folder = folder();
    let nothing = folder.path().join("nothing.img");
    assert_eq!(
        refusal(&nothing, FileOptions::default()).to_string(),
        format!(
            "cannot open {}: there is no such file; check the path, or give a size to create it",
            nothing.display()
        )
    );
    assert!(!nothing.exists());
    let kinds = [
        (folder.path(), "a directory"),
        (Path::new("/dev/null"), "a character device"),
    ];
    for (path, kind) in kinds {
        let text = refusal(path, FileOptions::default()).to_string();
        let expected = format!("it is {kind}; name a regular file or a block device");
        assert!(text.contains(&expected), "{text}");
    }
    let empty = folder.path().join("empty.img");
    std::fs::write(&empty, [1; 511]).unwrap();
    let error = refusal(&empty, FileOptions::default());
    assert!(
        matches!(error, OpenError::Empty { size: 511, .. }),
        "{error}"
    );
    let error = refusal(
        &empty,
        FileOptions {
            block_min: Some(Bytes(3000)),
            ..FileOptions::default()
        },
    );
    assert!(
        matches!(error, OpenError::BlockSize { asked: 3000, .. }),
        "{error}"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_refused_unless_read_only() {
    // A program under way cannot be written to, by root neither.
    let folder = folder();
    let path = folder.path().join("program");
    std::fs::copy("/bin/sleep", &path).expect("a program to copy");
    let running = Command::new(&path).arg("60").spawn();
    let running = Running(running.expect("it runs"));
    let error = refusal(&path, FileOptions::default());
    let read_only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let there = path.clone();
    let opened = run(async move { File::open("disk", there, read_only).is_ok() });
    drop(running);
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.ends_with("or open it read-only"), "{text}");
    assert!(opened);
}

#[test]
fn a_file_has_one_writer_or_many_readers_and_the_refusal_names_the_holder() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    run(async move {
        let read_only = FileOptions {
            read_only: true,
            ..FileOptions::default()
        };
        let forced = FileOptions {
            force: true,
            ..FileOptions::default()
        };
        let writer = File::open("disk", &path, sized(SIZE)).unwrap();
        let second = File::open("disk", &path, sized(SIZE)).err().unwrap();
        assert_eq!(
            second.to_string(),
            format!(
                "cannot use {}: this process ({}) has it open; stop that one first, or force it if \
                 you know that it does not write",
                path.display(),
                std::process::id()
            )
        );
        let reader = File::open("disk", &path, read_only.clone()).err().unwrap();
        assert!(
            reader.to_string().contains("has it open for writing"),
            "{reader}"
        );
        assert!(File::open("disk", &path, forced).is_ok());
        drop(writer);
        let one = File::open("disk", &path, read_only.clone()).unwrap();
        let two = File::open("disk", &path, read_only).unwrap();
        let writer = File::open("disk", &path, FileOptions::default());
        assert!(matches!(writer, Err(OpenError::Locked { .. })));
        drop((one, two));
        assert!(File::open("disk", &path, FileOptions::default()).is_ok());
    });
}

#[test]
fn a_lock_of_another_process_is_named() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).unwrap();
    // Without a fork the lock is the command's own.
    let held = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "echo held; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(holder) = held else {
        println!("skipped: no flock(1) to hold a lock with");
        return;
    };
    let mut holder = Running(holder);
    let mut word = [0; 4];
    let said = holder.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(said, &mut word).unwrap();
    let error = refusal(&path, FileOptions::default());
    let named = format!("process {} (", holder.0.id());
    assert!(error.to_string().contains(&named), "{error}");
    let OpenError::Locked { pid, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(pid, Some(holder.0.id()));
}

#[test]
fn the_lock_of_a_process_that_has_ended_is_waited_for() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).unwrap();
    // The shell takes the lock and ends; a child keeps its file open for a moment, as the kernel
    // does for requests of a process that was killed.
    let shell = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "sleep 0.3 & exit 0"])
        .status();
    if !shell.is_ok_and(|shell| shell.success()) {
        println!("skipped: no flock(1) to hold a lock with");
        return;
    }
    run(async move {
        let opened = File::open("disk", &path, FileOptions::default());
        assert!(opened.is_ok(), "{}", opened.err().unwrap());
    });
}

#[test]
fn in_virtual_time_there_are_no_files_and_the_refusal_says_so() {
    let folder = folder();
    let path = folder.path().join("disk.img");
    Runtime::simulated(1).block_on(async move {
        let error = File::open("disk", &path, sized(SIZE)).err().unwrap();
        assert!(error.to_string().contains("simulated"), "{error}");
    });
}

/// A process that ends when this drops.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// --- with loop devices --------------------------------------------------------------------------------

/// A loop device over a file of its own; detached when it drops.
struct Loop {
    device: PathBuf,
    folder: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

impl Loop {
    /// None, with the reason printed, where this user or machine has none.
    fn new(size: Bytes, sector: u64) -> Option<Loop> {
        let folder = folder();
        Loop::within(folder, size, sector)
    }

    /// With its image in `folder`.
    fn within(folder: tempfile::TempDir, size: Bytes, sector: u64) -> Option<Loop> {
        let image = folder.path().join("loop.img");
        let file = std::fs::File::create(&image).ok()?;
        file.set_len(size.0).ok()?;
        let output = Command::new("losetup")
            .args(["--find", "--show", "--partscan", "--sector-size"])
            .arg(sector.to_string())
            .arg(&image)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Loop {
                device: PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()),
                folder,
                mounts: Vec::new(),
            }),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                println!("skipped: no loop device: {}", why.trim());
                None
            }
            Err(error) => {
                println!("skipped: no losetup: {error}");
                None
            }
        }
    }

    fn mount(&mut self, device: &Path) -> Option<PathBuf> {
        let at = self
            .folder
            .path()
            .join(format!("mount {}", self.mounts.len()));
        std::fs::create_dir(&at).ok()?;
        let device = device.to_str()?;
        let mounted =
            succeeds("mkfs.ext4", &["-q", device]) && succeeds("mount", &[device, at.to_str()?]);
        if !mounted {
            println!("skipped: no ext4 can be made and mounted");
            return None;
        }
        self.mounts.push(at.clone());
        Some(at)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for mount in &self.mounts {
            succeeds("umount", &[mount.to_str().unwrap_or_default()]);
        }
        succeeds(
            "losetup",
            &["--detach", self.device.to_str().unwrap_or_default()],
        );
    }
}

#[test]
fn a_block_device_of_either_sector_size_reads_what_a_vec_reads() {
    for sector in [512, 4096] {
        let Some(disk) = Loop::new(SIZE, sector) else {
            return;
        };
        let strategy = actions(SIZE, Bytes::kib(256), 40);
        let mut runner = proptest::test_runner::TestRunner::new(reference::cases(12));
        let device = disk.device.clone();
        let tested = runner.run(&strategy, |actions| {
            let device = device.clone();
            run(async move {
                let file = File::open("disk", &device, FileOptions::default()).unwrap();
                assert!(file.is_direct());
                let info = file.info();
                assert_eq!((info.size, info.physical_block), (SIZE, Bytes(sector)));
                let whole = Span::bytes(0, SIZE.0);
                file.write_zeroes(whole, WriteFlags::default())
                    .await
                    .unwrap();
                agree(&*file, actions).await;
            });
            Ok(())
        });
        tested.unwrap();
        let device = disk.device.clone();
        run(async move {
            let file = File::open("disk", &device, FileOptions::default()).unwrap();
            neighbours_do_not_hurt_each_other(file).await;
        });
    }
}

#[test]
fn a_mounted_device_is_refused_by_name_and_place_unless_forced() {
    let Some(mut disk) = Loop::new(Bytes::mib(16), 512) else {
        return;
    };
    let device = disk.device.clone();
    let Some(at) = disk.mount(&device) else {
        return;
    };
    let error = refusal(&device, FileOptions::default());
    assert_eq!(
        error.to_string(),
        format!(
            "cannot use {0}: {0} is mounted on {1}; unmount it, or force it if you know that \
             nothing writes there",
            device.display(),
            at.display()
        )
    );
    run(async move {
        let forced = FileOptions {
            force: true,
            read_only: true,
            ..FileOptions::default()
        };
        let file = File::open("disk", &device, forced).unwrap();
        let superblock = file.read_at(Sector(2), Bytes(512)).await.unwrap();
        assert_eq!(superblock[0x38..0x3a], [0x53, 0xef]); // ext4's magic number
    });
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused() {
    let Some(mut disk) = Loop::new(Bytes::mib(32), 512) else {
        return;
    };
    let device = disk.device.clone();
    let part = PathBuf::from(format!("{}p1", device.display()));
    // Without a partition table, so that the kernel need not know the kind: 30 MiB from sector 2048.
    let added = succeeds("addpart", &[device.to_str().unwrap(), "1", "2048", "61440"]);
    if !added || !part.exists() {
        println!("skipped: no partitions on a loop device");
        return;
    }
    let Some(at) = disk.mount(&part) else {
        return;
    };
    let error = refusal(&device, FileOptions::default());
    let OpenError::Mounted {
        part: named,
        at: place,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(Path::new(named), part);
    assert_eq!(Path::new(place), at);
}

#[test]
fn a_device_held_exclusively_is_refused_and_one_of_ours_names_us() {
    let Some(disk) = Loop::new(SIZE, 512) else {
        return;
    };
    let holder = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&disk.device)
        .unwrap();
    let error = refusal(&disk.device, FileOptions::default());
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(holder);
    let device = disk.device.clone();
    run(async move {
        let _ours = File::open("disk", &device, FileOptions::default()).unwrap();
        let second = File::open("disk", &device, FileOptions::default());
        let Err(OpenError::Locked { pid, .. }) = second else {
            panic!("opened twice");
        };
        assert_eq!(pid, Some(std::process::id()));
    });
    // And it cannot be mounted meanwhile: the claim is exclusive both ways.
    let device = disk.device.clone();
    run(async move {
        let _ours = File::open("disk", &device, FileOptions::default()).unwrap();
        let other = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_EXCL)
            .open(&device);
        assert_eq!(other.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    });
}

/// A file system in memory; unmounted when it drops.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Small> {
        std::fs::create_dir(&at).ok()?;
        let place = at.to_str()?;
        let mounted = succeeds("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs", place]);
        mounted.then_some(Small(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        succeeds("umount", &[self.0.to_str().unwrap_or_default()]);
    }
}

#[test]
fn a_full_file_system_is_named_and_a_failed_flush_stays_failed() {
    let folder = folder();
    let Some(small) = Small::mount(folder.path().join("small")) else {
        println!("skipped: no file system can be mounted");
        return;
    };
    let path = small.0.join("disk.img");
    let there = path.clone();
    let full = run(async move {
        let file = File::open("disk", &there, sized(SIZE)).unwrap();
        assert!(!file.is_direct());
        file.write_at(Sector(0), filled(1, Bytes::kib(512))).await
    });
    let _ = std::fs::remove_file(&path);
    // A loop device over the same file system takes the write, and cannot keep it.
    let answers = Loop::within(tempfile::tempdir_in(&small.0).unwrap(), SIZE, 512).map(|disk| {
        let device = disk.device.clone();
        run(async move {
            let buffered = FileOptions {
                direct: Direct::No,
                ..FileOptions::default()
            };
            let file = File::open("disk", &device, buffered).unwrap();
            let wrote = file.write_at(Sector(0), filled(1, Bytes::kib(768))).await;
            (wrote, file.flush().await, file.flush().await)
        })
    });
    drop(small);
    let error = full.unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("disk.img"), "{error}");
    let Some((wrote, first, second)) = answers else {
        return;
    };
    assert_eq!(wrote, Ok(()));
    assert!(
        matches!(first, Err(DeviceError::Io { op: Op::Flush, .. })),
        "{first:?}"
    );
    assert!(
        matches!(second, Err(DeviceError::FlushFailed { .. })),
        "{second:?}"
    );
}

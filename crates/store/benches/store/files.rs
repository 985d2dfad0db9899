//! The same work on plain files, with the system's calls.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Instant;

use base::Buf;

use crate::{MIB, SMALL};

/// `work(n)` for all n, `clients` threads at once: per second.
pub fn threads(count: u64, clients: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let work = &work;
            scope.spawn(move || (client..count).step_by(clients as usize).for_each(work));
        }
    });
    count as f64 / start.elapsed().as_secs_f64()
}

/// Files of 4 KiB per second by `clients` at once: made, each on the disk before the next (with its entry in the folder, if
/// `folder_too`), read from the page cache, and read past it.
pub fn small(dir: &Path, count: u64, clients: u64, folder_too: bool) -> (f64, f64, f64) {
    let dir = dir.join("files");
    fs::create_dir(&dir).expect("the folder takes folders");
    let handle = File::open(&dir).expect("just made");
    let path = |at: u64| dir.join(format!("small {at}"));
    let made = threads(count, clients, |at| {
        let mut file = File::create(path(at)).expect("a file");
        file.write_all(&[7; SMALL]).expect("a write");
        file.sync_all().expect("fsync");
        if folder_too {
            handle.sync_all().expect("fsync of the folder");
        }
    });
    let cached = threads(count, clients, |at| {
        let mut data = [0; SMALL];
        let mut file = File::open(path(at)).expect("just made");
        file.read_exact(&mut data).expect("it is that long");
    });
    let direct = threads(count, clients, |at| {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path(at)).expect("a disk's file");
        let mut data = Buf::for_read(SMALL);
        file.read_exact_at(&mut data, 0).expect("it is that long");
    });
    fs::remove_dir_all(&dir).expect("ours");
    (made, cached, direct)
}

/// (written and on the disk, and read) in MiB/s of the file at `path` through the page cache.
pub fn large(path: &Path, pieces: u64, depth: u64) -> (f64, f64) {
    let options = File::options().read(true).write(true).open(path);
    let file = options.expect("it was made for this");
    let data = vec![3; MIB as usize];
    let start = Instant::now();
    threads(pieces, depth, |at| {
        file.write_all_at(&data, at * MIB).expect("there is room");
    });
    file.sync_all().expect("fsync");
    let written = pieces as f64 / start.elapsed().as_secs_f64();
    let read = threads(pieces, depth, |at| {
        let mut data = vec![0; MIB as usize];
        file.read_exact_at(&mut data, at * MIB)
            .expect("it is that long");
    });
    (written, read)
}

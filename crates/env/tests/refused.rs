//! A system that refuses io_uring. Alone in its process, since it takes descriptors away from all of it.

use base::{Buf, Bytes, View};
use env::fs::{File, Options};
use env::{RealConfig, Runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn where_io_uring_is_refused_threads_take_over() {
    use std::os::fd::AsRawFd;
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    // One descriptor for the wake-up, none for the ring.
    let few = Rlimit {
        current: Some(next as u64 + 1),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let config = RealConfig {
        seed: Some(7),
        ..RealConfig::default()
    };
    let runtime = Runtime::real(config.clone());
    setrlimit(Resource::Nofile, before).unwrap();
    let runtime = runtime.unwrap();
    assert_eq!(runtime.driver_name(), "thread pool");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    runtime.block_on(async move {
        let options = Options {
            create: Some(Bytes::mib(1)),
            ..Options::default()
        };
        let file = File::open(&path, &options).unwrap();
        file.write_at(View::copy_of(&[7; 4096]), 4096, true)
            .await
            .unwrap();
        let read = file.read_at(Buf::for_read(4096), 4096).await.unwrap();
        assert_eq!(read[..], [7; 4096]);
    });
}

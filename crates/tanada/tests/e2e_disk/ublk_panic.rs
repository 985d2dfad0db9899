//! A server of a block device whose data thread panics, in a process that lives on: the kernel learns of it.
//!
//! ```text
//! guest: this program -> a disk on a device that panics at a write -> the thread ends, the process does not
//!     -> without recovery the write fails | with it the disk waits, and another thread of the process goes on with it
//! ```
//!
//! The guest is run by the lab's `vm` (see `guest`).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, Info, Memory, Pending, WriteFlags};
use env::{RealConfig, Runtime};
use front::ublk::proto::{DiskInfo, NEEDED, State, feature};
use front::ublk::{Control, Kernel, Server, control};

use crate::guest::lab;

const SIZE: Bytes = Bytes::mib(8);
/// How long the kernel may take to learn of it, and what has to go on.
const SOON: Duration = Duration::from_secs(60);

/// A device on which no write is carried out, or all of them.
struct Panics {
    memory: Rc<Memory>,
    panics: bool,
}

impl Device for Panics {
    fn info(&self) -> Info {
        self.memory.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.memory.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        assert!(!self.panics, "planted");
        self.memory.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.memory.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.memory.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.memory.write_zeroes(span, flags)
    }
}

/// Serves `disk` until the driver ends it.
async fn serve(disk: DiskInfo, panics: bool) {
    let kernel = loop {
        match Kernel::open(&disk) {
            Ok(kernel) => break kernel,
            // Its file is a moment late, or the one before has it still.
            Err(_) => env::sleep(Nanos::millis(50)).await,
        }
    };
    let memory = Memory::new("disk", SIZE);
    let device = Rc::new(Panics { memory, panics });
    let server = Server::new(Rc::new(kernel), device, false);
    server.serve(disk.depth).await;
}

/// A data thread with this disk, which ends with it or in a panic.
fn data_thread(disk: DiskInfo, panics: bool) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
        runtime.block_on(serve(disk, panics));
    });
    thread.expect("a thread")
}

/// Writes to `disk` and waits until that is stored, on a thread of its own: how it ends.
fn write(disk: &DiskInfo) -> Receiver<bool> {
    let (ended, end) = channel();
    let path = control::path_of(disk.disk);
    let writing = move || {
        let file = OpenOptions::new().write(true).open(path);
        let file = file.expect("the disk is there");
        let written = file.write_all_at(&[7; 4096], 0);
        let stored = written.and_then(|()| file.sync_all());
        // The other side may have given up.
        let _ = ended.send(stored.is_ok());
    };
    let thread = std::thread::Builder::new().spawn(writing);
    thread.expect("a thread");
    end
}

/// Asks the driver until it says yes.
fn until(what: &str, mut asked: impl FnMut() -> bool) {
    for _ in 0..SOON.as_millis() / 50 {
        if asked() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("in {SOON:?} it did not come to this: {what}");
}

fn panic_under(recovers: bool) {
    let mut driver = Control::open().expect("a driver");
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let flags = if recovers { NEEDED | recovery } else { NEEDED };
    let disk = driver.add(flags, 7).expect("a disk is made");
    let number = disk.disk;
    let info = Memory::new("disk", SIZE).info();
    let set = driver.set_parameters(number, &info, false);
    set.expect("it is like this");
    let thread = data_thread(disk, true);
    driver.start(number).expect("it starts");
    let end = write(&disk);
    let ended = match recovers {
        false => end.recv_timeout(SOON),
        true => {
            until("the disk waits", || {
                let info = driver.info(number).expect("it is there");
                info.state == State::Quiesced
            });
            assert!(end.try_recv().is_err(), "its write waits");
            until("the dead thread is gone", || {
                driver.start_recovery(number).is_ok()
            });
            let next = data_thread(disk, false);
            driver.end_recovery(number).expect("it goes on");
            let ended = end.recv_timeout(SOON);
            driver.stop(number).expect("it stops");
            next.join().expect("the driver ended it");
            ended
        }
    };
    assert_eq!(
        ended,
        Ok(recovers),
        "a write ends, while this process lives"
    );
    assert!(thread.join().is_err(), "its thread panicked");
    // Without recovery the driver has stopped it by itself.
    let _ = driver.stop(number);
    driver.delete(number).expect("it goes");
    println!("recovers: {recovers}: as it should be");
}

/// Set in the guest.
const IN_GUEST: &str = "TANADA_PANICS";
/// The test that is both: it starts the guest, and is what the guest runs.
const TEST: &str = "ublk_panic::a_panic_of_a_data_thread_leaves_no_request_waiting_for_it";

#[test]
fn a_panic_of_a_data_thread_leaves_no_request_waiting_for_it() {
    if std::env::var_os(IN_GUEST).is_some() {
        return [false, true].into_iter().for_each(panic_under);
    }
    let Some(vm) = lab(&[]) else { return };
    let program = std::env::current_exe().expect("it runs");
    let command = format!(
        "modprobe ublk_drv && {IN_GUEST}=1 '{}' --exact {TEST} --nocapture",
        program.display()
    );
    let ended = Command::new(vm)
        .args(["-t", "300", "-m", "512", &command])
        .output()
        .expect("the lab starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    let more = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}\n{said}\n{more}", ended.status);
    let both = said.matches("as it should be").count();
    assert_eq!(both, 2, "{said}");
}

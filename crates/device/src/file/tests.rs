//! What a disk has when it falls asleep.

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use base::{Nanos, Sector, View};
use env::scsi::ScsiAnswer;
use env::{RealConfig, Runtime};

use super::File;
use crate::sleep::tests::{Fake, Kind};
use crate::sleep::{Command, Drive, Sleeper, Transport};
use crate::{Device, DeviceExt, FileOptions};

/// A drive that notes whether all of its file was flushed when it was sent to sleep.
struct Watched {
    drive: Rc<Fake>,
    file: OnceCell<Weak<File>>,
    flushed: Cell<Option<bool>>,
}

impl Transport for Rc<Watched> {
    fn send<'a>(
        &'a self,
        command: &'a Command,
    ) -> Pin<Box<dyn Future<Output = io::Result<ScsiAnswer>> + 'a>> {
        const STANDBY_IMMEDIATE: u8 = 0xE0;
        if command.bytes.get(14) == Some(&STANDBY_IMMEDIATE) {
            let file = self.file.get().and_then(Weak::upgrade);
            self.flushed.set(file.map(|file| file.rest.is_flushed()));
        }
        self.drive.send(command)
    }
}

/// Does `work` with a file of a megabyte whose disk may sleep, and that disk.
fn with_sleepy(work: impl AsyncFnOnce(Rc<File>, Rc<Watched>) + 'static) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let runtime = Runtime::real(RealConfig::default()).unwrap();
    runtime.block_on(async move {
        let file = File::open("disk", &path, FileOptions::default()).unwrap();
        let watched = Rc::new(Watched {
            drive: Fake::turning(Kind::Ata { twelve: false }, Nanos::millis(1)),
            file: OnceCell::from(Rc::downgrade(&file)),
            flushed: Cell::default(),
        });
        let transport = Box::new(Rc::clone(&watched));
        let drive = Drive::probe(transport, "/dev/sdx".to_owned()).await;
        let drive = drive.expect("it can sleep");
        let sleeper = Sleeper::new(drive).await.expect("it answers");
        file.rest.may_sleep(sleeper);
        work(file, watched).await;
    });
}

/// Sends the disk to sleep, and waits until it has fallen or stays awake.
async fn settled(file: &File, watched: &Watched) -> bool {
    assert!(file.standby(), "it falls");
    for _ in 0..60_000 {
        env::sleep(Nanos::millis(1)).await;
        if watched.flushed.get().is_some() || !file.spindle().unwrap().asleep {
            break;
        }
    }
    file.spindle().unwrap().asleep
}

#[test]
fn what_was_written_is_flushed_before_the_disk_sleeps() {
    with_sleepy(async |file, watched| {
        let data = View::copy_of(&[7; 4096]);
        file.write_at(Sector(8), data).await.unwrap();
        assert!(!file.rest.is_flushed());
        assert!(settled(&file, &watched).await);
        assert_eq!(watched.flushed.get(), Some(true));
    });
}

#[test]
fn a_disk_that_lost_a_write_is_not_sent_to_sleep() {
    with_sleepy(async |file, watched| {
        let data = View::copy_of(&[7; 4096]);
        file.write_at(Sector(8), data).await.unwrap();
        file.remember_failed_flush(&io::Error::from_raw_os_error(5));
        assert!(!settled(&file, &watched).await);
        assert_eq!(watched.flushed.get(), None, "no command was sent");
    });
}

#[test]
fn a_disk_whose_flush_failed_does_not_sleep_either_where_nothing_was_written_since() {
    with_sleepy(async |file, watched| {
        file.flush().await.unwrap();
        assert!(file.rest.is_flushed());
        file.remember_failed_flush(&io::Error::from_raw_os_error(5));
        assert!(!settled(&file, &watched).await);
        assert_eq!(watched.flushed.get(), None, "no command was sent");
        assert!(file.flush().await.is_err(), "a failed flush stays failed");
    });
}

//! A ublk disk in virtual time: requests, errors, the end of a disk, and the death of its server.

mod driver;
mod restarts;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span, View};
use device::{Device, DeviceExt, Memory};
use driver::{Ask, Driver, SIZE};
use front::Counters;
use front::ublk::{Growth, Port, Server, keep_size};

const DEPTH: u16 = 4;

fn simulated<T: 'static>(test: impl AsyncFnOnce(Rc<Driver>, Rc<Memory>) -> T + 'static) -> T {
    env::Runtime::simulated(1).block_on(async move {
        let memory = Memory::new("disk", SIZE);
        let driver = Driver::new(DEPTH);
        test(driver, memory).await
    })
}

fn write(at: u64, byte: u8, len: usize) -> Ask {
    Ask::Write {
        at,
        data: vec![byte; len],
        fua: false,
    }
}

#[test]
fn what_was_written_is_read() {
    simulated(async |driver, memory| {
        let server = Server::new(driver.port(), memory.clone(), false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        driver.submit(write(4096, 7, 3 << 20)).await.unwrap();
        driver.submit(Ask::Flush).await.unwrap();
        let read = Ask::Read {
            at: 4096,
            len: 3 << 20,
        };
        assert_eq!(driver.submit(read).await.unwrap(), vec![7; 3 << 20]);
        assert_eq!(memory.read_at(Sector(8), Bytes(512)).await.unwrap()[0], 7);
        let zero = Ask::WriteZeroes {
            at: 4096,
            len: 4096,
        };
        driver.submit(zero).await.unwrap();
        let discard = Ask::Discard {
            at: 1 << 20,
            len: 1 << 20,
        };
        driver.submit(discard).await.unwrap();
        let read = Ask::Read { at: 0, len: 8192 };
        assert_eq!(driver.submit(read).await.unwrap(), vec![0; 8192]);
        driver.stop();
        serving.await;
        let counters = Counters {
            under_way: 0,
            answered: 10,
            failed: 0,
            reads: 4,
            bytes_read: (3 << 20) + 8192,
            writes: 3,
            bytes_written: 3 << 20,
            flushes: 1,
            discards: 1,
            zeroes: 1,
            forced: 0,
        };
        assert_eq!(server.counters(), counters);
    });
}

#[test]
fn forced_writes_are_counted_and_failed_ones_are_not() {
    simulated(async |driver, memory| {
        let forced = |at| Ask::Write {
            at,
            data: vec![1; 4096],
            fua: true,
        };
        let server = Server::new(driver.port(), memory, false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        driver.submit(forced(0)).await.unwrap();
        driver.submit(write(4096, 1, 4096)).await.unwrap();
        assert_eq!(
            driver.submit(forced(SIZE.0)).await,
            Err(-22),
            "beyond the end"
        );
        driver.stop();
        serving.await;
        let counters = server.counters();
        assert_eq!((counters.writes, counters.forced), (2, 1));
        assert_eq!((counters.bytes_written, counters.failed), (8192, 1));
    });
}

#[test]
fn a_request_that_cannot_be_carried_out_fails_alone() {
    simulated(async |driver, memory| {
        let server = Server::new(driver.port(), memory, true);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        assert_eq!(driver.submit(write(0, 1, 512)).await, Err(-30), "read-only");
        let beyond = Ask::Read {
            at: SIZE.0 - 512,
            len: 1024,
        };
        assert_eq!(driver.submit(beyond).await, Err(-22));
        let read = Ask::Read { at: 0, len: 512 };
        assert_eq!(driver.submit(read).await, Ok(vec![0; 512]));
        driver.stop();
        serving.await;
        assert_eq!(server.counters().failed, 2);
    });
}

/// The strictness of the driver: it would see a server that fetches twice, or commits what it does not own.
#[test]
fn the_driver_sees_a_server_that_breaks_the_order() {
    simulated(async |driver, _| {
        let port = driver.port();
        let first = env::spawn({
            let port = Rc::clone(&port);
            async move { port.fetch(0).await }
        });
        env::yield_now().await;
        assert_eq!(port.fetch(0).await.unwrap_err().raw_os_error(), Some(16));
        assert_eq!(
            port.commit(0, 0).await.unwrap_err().raw_os_error(),
            Some(22)
        );
        drop(first);
    });
}

#[test]
fn requests_of_a_dead_server_are_carried_out_by_the_next_one() {
    simulated(async |driver, memory| {
        let slow = Slow(memory.clone());
        let server = Server::new(driver.port(), Rc::new(slow), false);
        let dying = env::cancel_scope(env::spawn(server.serve(DEPTH)));
        let answers: Rc<RefCell<Vec<u64>>> = Rc::default();
        for number in 0..10 {
            let (driver, answers) = (Rc::clone(&driver), Rc::clone(&answers));
            env::spawn(async move {
                driver
                    .submit(write(number * 4096, number as u8 + 1, 4096))
                    .await
                    .unwrap();
                answers.borrow_mut().push(number);
            });
        }
        env::sleep(Nanos::millis(15)).await;
        drop(dying);
        driver.server_died();
        let before = answers.borrow().len();
        assert!(before < 10, "some were under way");
        let server = Server::new(driver.port(), memory.clone(), false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        env::sleep(Nanos::millis(15)).await;
        assert_eq!(answers.borrow().len(), 10);
        for number in 0..10 {
            let at = Sector::containing(number * 4096);
            assert_eq!(
                memory.read_at(at, Bytes(512)).await.unwrap()[0],
                number as u8 + 1
            );
        }
        driver.stop();
        serving.await;
    });
}

/// A device that takes ten milliseconds for each write.
struct Slow(Rc<Memory>);

impl Device for Slow {
    fn info(&self) -> device::Info {
        self.0.info()
    }

    fn read(
        &self,
        at: Sector,
        buf: base::Buf,
        class: device::Class,
    ) -> device::Pending<'_, base::Buf> {
        self.0.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: device::WriteFlags) -> device::Pending<'_, ()> {
        Box::pin(async move {
            env::sleep(Nanos::millis(10)).await;
            self.0.write(at, data, flags).await
        })
    }

    fn flush(&self) -> device::Pending<'_, ()> {
        self.0.flush()
    }

    fn discard(&self, span: Span) -> device::Pending<'_, ()> {
        self.0.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: device::WriteFlags) -> device::Pending<'_, ()> {
        self.0.write_zeroes(span, flags)
    }
}

/// A device of which only the beginning is there yet.
struct Grows {
    memory: Rc<Memory>,
    size: Cell<Bytes>,
}

impl Device for Grows {
    fn info(&self) -> device::Info {
        device::Info {
            size: self.size.get(),
            ..self.memory.info()
        }
    }

    fn read(
        &self,
        at: Sector,
        buf: base::Buf,
        class: device::Class,
    ) -> device::Pending<'_, base::Buf> {
        self.memory.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: device::WriteFlags) -> device::Pending<'_, ()> {
        self.memory.write(at, data, flags)
    }

    fn flush(&self) -> device::Pending<'_, ()> {
        self.memory.flush()
    }

    fn discard(&self, span: Span) -> device::Pending<'_, ()> {
        self.memory.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: device::WriteFlags) -> device::Pending<'_, ()> {
        self.memory.write_zeroes(span, flags)
    }
}

#[test]
fn a_disk_grows_while_it_is_in_use() {
    simulated(async |driver, memory| {
        let half = Bytes(SIZE.0 / 2);
        let device = Rc::new(Grows {
            memory,
            size: Cell::new(half),
        });
        driver.update_size(half);
        let server = Server::new(driver.port(), Rc::clone(&device) as Rc<dyn Device>, false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        let announced: Rc<RefCell<Vec<Bytes>>> = Rc::default();
        let growing = keep_size(Rc::downgrade(&server), half, {
            let (driver, announced) = (Rc::clone(&driver), Rc::clone(&announced));
            async move |size| {
                announced.borrow_mut().push(size);
                // The driver is busy the first time.
                if announced.borrow().len() == 1 {
                    return Err(std::io::Error::from_raw_os_error(16));
                }
                driver.update_size(size);
                // The system asks for the new end at once.
                driver.submit(write(size.0 - 512, 8, 512)).await.unwrap();
                Ok(())
            }
        });
        let growing = env::spawn(growing);
        let beyond = write(half.0, 9, 4096);
        assert_eq!(driver.submit(beyond.clone()).await, Err(-5));
        env::sleep(Nanos::secs(5)).await;
        assert!(
            announced.borrow().is_empty(),
            "there is nothing to announce"
        );
        device.size.set(SIZE);
        env::sleep(Nanos::millis(2_100)).await;
        driver.submit(beyond).await.unwrap();
        device.size.set(half);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(*announced.borrow(), [SIZE; 2], "again, and then no more");
        driver.stop();
        serving.await;
        drop(server);
        growing.await;
    });
}

/// Another tool stops the disk while its daemon runs on.
#[test]
fn no_growth_is_announced_of_a_disk_that_was_stopped() {
    simulated(async |driver, memory| {
        let half = Bytes(SIZE.0 / 2);
        let device = Rc::new(Grows {
            memory,
            size: Cell::new(half),
        });
        let server = Server::new(driver.port(), Rc::clone(&device) as Rc<dyn Device>, false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        let announced = Rc::new(Cell::new(0));
        let growing = env::spawn(keep_size(Rc::downgrade(&server), half, {
            let announced = Rc::clone(&announced);
            // The driver is always busy: the size is announced each second.
            async move |_| {
                announced.set(announced.get() + 1);
                Err(std::io::Error::from_raw_os_error(16))
            }
        }));
        device.size.set(SIZE);
        env::sleep(Nanos::millis(3_500)).await;
        assert_eq!(announced.get(), 3, "it grows while it is served");
        assert!(server.serves());
        driver.stop();
        serving.await;
        assert!(!server.serves());
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(announced.get(), 3, "the disk is gone");
        assert!(growing.is_done(), "though the server is there");
        drop(server);
    });
}

#[test]
fn the_end_of_a_growth_waits_for_the_announcement_under_way_and_allows_no_other() {
    simulated(async |driver, memory| {
        let half = Bytes(SIZE.0 / 2);
        let device = Rc::new(Grows {
            memory,
            size: Cell::new(half),
        });
        let server = Server::new(driver.port(), Rc::clone(&device) as Rc<dyn Device>, false);
        let serving = env::spawn(Rc::clone(&server).serve(DEPTH));
        let (begun, over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let growth = Growth::begin(Rc::downgrade(&server), half, {
            let (begun, over) = (Rc::clone(&begun), Rc::clone(&over));
            async move |_| {
                begun.set(begun.get() + 1);
                env::sleep(Nanos::secs(4)).await;
                over.set(over.get() + 1);
                Err(std::io::Error::from_raw_os_error(16))
            }
        });
        device.size.set(SIZE);
        env::sleep(Nanos::millis(1_500)).await;
        assert_eq!((begun.get(), over.get()), (1, 0), "one is under way");
        growth.end().await;
        assert_eq!((begun.get(), over.get()), (1, 1), "it was waited for");
        env::sleep(Nanos::secs(20)).await;
        assert_eq!(begun.get(), 1, "none begins after the end");
        driver.stop();
        serving.await;
    });
}

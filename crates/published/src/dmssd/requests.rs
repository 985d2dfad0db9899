//! The published cache as a device: requests are checked and handed over, each as a task of its own.

use std::rc::Rc;

use base::{Buf, Bytes, Sector, Span, View};
use device::{Class, Device, Info, Op, Pending, WriteFlags, ready};

use super::{Dmssd, Job};

impl Device for Dmssd {
    fn info(&self) -> Info {
        let (slow, fast) = (self.inner.slow.info(), self.inner.fast.info());
        Info {
            name: format!("{} & {}", slow.name, fast.name),
            max_io: Bytes::mib(32),
            volatile_cache: true,
            discards: false,
            read_only: slow.read_only || fast.read_only,
            crash_keeping: false,
            ..slow
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        if let Err(refusal) = self.info().check(Op::Read, at, buf.len() as u64) {
            return ready(Err(refusal));
        }
        if buf.is_empty() {
            return ready(Ok(buf));
        }
        // A task of its own: a caller that goes away leaves no block busy for ever.
        let task = env::spawn(Rc::clone(&self.inner).whole(at, Job::Read(buf, class)));
        Box::pin(async move {
            let buf = task.await?;
            Ok(buf.expect("a read gives its buffer back"))
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(refusal) = self.info().check(Op::Write, at, data.len() as u64) {
            return ready(Err(refusal));
        }
        if data.is_empty() {
            return ready(Ok(()));
        }
        let task = env::spawn(Rc::clone(&self.inner).whole(at, Job::Write(data, flags)));
        Box::pin(async move { task.await.map(|_| ()) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.inner.flush())
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        ready(self.info().check(Op::Discard, span.start, span.len.0))
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        if let Err(refusal) = self.info().check(Op::WriteZeroes, span.start, span.len.0) {
            return ready(Err(refusal));
        }
        Box::pin(async move {
            let (mut at, end) = (span.start.byte(), span.end().byte());
            while at < end {
                let len = self.inner.block.min(end - at);
                let zeroes = Buf::zeroed(len as usize).freeze();
                self.write(Sector::containing(at), zeroes, flags).await?;
                at += len;
            }
            Ok(())
        })
    }
}

//! The disk of all lanes as a [`Device`]: requests are cut at units ([`Joined`](::device::shared::Joined)).

use ::device::{Class, Device, Info, Pending, Power, Spindle, WriteFlags};
use base::{Buf, Sector, Span, View};

use super::Lanes;
#[cfg(test)]
use crate::mutation::Mutation;

impl Device for Lanes {
    fn info(&self) -> Info {
        self.inner.disk.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.inner.disk.read(at, buf, class)
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.inner.disk.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        #[cfg(test)]
        if self.inner.lanes[0]
            .engine
            .volume
            .planted(Mutation::OneLaneFlushed)
        {
            return self.inner.lanes[0].flush();
        }
        self.inner.disk.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.inner.disk.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.inner.disk.write_zeroes(span, flags)
    }

    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.disk.allocation(span)
    }

    fn power(&self) -> Option<Power> {
        let fast = self.inner.fast.borrow();
        let fast = fast.as_ref().and_then(|fast| fast.power());
        match (self.inner.slow.power(), fast) {
            (Some(slow), Some(fast)) => Some(Power {
                joules: slow.joules + fast.joules,
                ..slow
            }),
            (slow, fast) => slow.or(fast),
        }
    }

    fn prepare_sleep(&self) -> Pending<'_, ()> {
        self.inner.slow.prepare_sleep()
    }

    fn spindle(&self) -> Option<Spindle> {
        self.inner.slow.spindle()
    }

    fn standby(&self) -> bool {
        self.inner.slow.standby()
    }

    fn in_flight(&self) -> usize {
        self.inner.disk.in_flight()
    }
}

//! The requests by name: what each takes and gives, for all that carries requests out.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use base::{Buf, View};
use device::Class;

use super::{ObjectOps, Pending, Request, Response};
use crate::object::damage::Damage;
use crate::object::types::{AllocatedRange, Change, Listing, SpaceFigures, Stat, Version};

/// A call under way: nothing happens until it is awaited.
#[must_use = "a call that is not awaited does nothing"]
pub struct Call<'a, T, E> {
    pending: Pending<'a, Response, E>,
    take: fn(Response) -> T,
}

impl<'a, T, E> Call<'a, T, E> {
    /// The same call, of which only matters that it is done.
    pub fn done(self) -> Call<'a, (), E> {
        Call {
            pending: self.pending,
            take: drop,
        }
    }
}

impl<T, E> Future for Call<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        let answer = self.pending.as_mut().poll(context);
        answer.map(|answer| answer.map(self.take))
    }
}

/// A function that takes the one kind of response there can be.
macro_rules! take {
    ($response:pat => $value:expr) => {
        |response| match response {
            $response => $value,
            other => unreachable!("a response of another kind: {other:?}"),
        }
    };
}

/// The operations of [`crate::Store`] by name, of all that is [`ObjectOps`].
///
/// # Errors
/// Of each: that of the receiver, [`ObjectOps::Error`]; what a store refuses stands at [`crate::Store`].
pub trait ObjectCalls: ObjectOps {
    /// As [`crate::Store::create`].
    fn create(
        &self,
        object: &str,
        attributes: &[(&str, &[u8])],
        change: Change,
    ) -> Call<'_, Version, Self::Error> {
        let pairs = attributes.iter();
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        version(
            self,
            Request::Create {
                object: object.to_owned(),
                attributes: owned.collect(),
                change,
            },
        )
    }

    /// As [`crate::Store::write`]. The data are used where they are, without a copy.
    fn write(
        &self,
        object: &str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Call<'_, Version, Self::Error> {
        version(
            self,
            Request::Write {
                object: object.to_owned(),
                offset,
                data,
                change,
            },
        )
    }

    /// As [`crate::Store::read`].
    fn read(&self, object: &str, offset: u64, len: u64) -> Call<'_, Buf, Self::Error> {
        let request = Request::Read {
            object: object.to_owned(),
            offset,
            len,
            class: Class::Foreground,
        };
        Call {
            pending: self.call(request),
            take: take!(Response::Data(data) => data.into_buf()),
        }
    }

    /// As [`crate::Store::truncate`].
    fn truncate(&self, object: &str, size: u64, change: Change) -> Call<'_, Version, Self::Error> {
        version(
            self,
            Request::Truncate {
                object: object.to_owned(),
                size,
                change,
            },
        )
    }

    /// As [`crate::Store::punch`].
    fn punch(
        &self,
        object: &str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Call<'_, Version, Self::Error> {
        version(
            self,
            Request::Punch {
                object: object.to_owned(),
                offset,
                len,
                change,
            },
        )
    }

    /// As [`crate::Store::delete`].
    fn delete(&self, object: &str, change: Change) -> Call<'_, (), Self::Error> {
        let object = object.to_owned();
        Call {
            pending: self.call(Request::Delete { object, change }),
            take: drop,
        }
    }

    /// As [`crate::Store::rename`].
    fn rename(
        &self,
        object: &str,
        to: &str,
        replace: bool,
        change: Change,
    ) -> Call<'_, Version, Self::Error> {
        version(
            self,
            Request::Rename {
                object: object.to_owned(),
                to: to.to_owned(),
                replace,
                change,
            },
        )
    }

    /// As [`crate::Store::list`]; a part may hold fewer than `most` although there are more; `next` says so.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Call<'_, Listing, Self::Error> {
        let request = Request::List {
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            most,
        };
        Call {
            pending: self.call(request),
            take: take!(Response::Listing(listing) => listing),
        }
    }

    /// As [`crate::Store::attributes`].
    fn attributes(&self, object: &str) -> Call<'_, Vec<(String, Vec<u8>)>, Self::Error> {
        let object = object.to_owned();
        Call {
            pending: self.call(Request::Attributes { object }),
            take: take!(Response::Attributes(attributes) => attributes),
        }
    }

    /// As [`crate::Store::set_attributes`].
    fn set_attributes(
        &self,
        object: &str,
        changes: &[(&str, Option<&[u8]>)],
        change: Change,
    ) -> Call<'_, Version, Self::Error> {
        let pairs = changes.iter();
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)));
        version(
            self,
            Request::SetAttributes {
                object: object.to_owned(),
                changes: owned.collect(),
                change,
            },
        )
    }

    /// Sets nothing but the stamp that `change` gives.
    fn stamp(&self, object: &str, change: Change) -> Call<'_, Version, Self::Error> {
        self.set_attributes(object, &[], change)
    }

    /// As [`crate::Store::stat`].
    fn stat(&self, object: &str) -> Call<'_, Stat, Self::Error> {
        let object = object.to_owned();
        Call {
            pending: self.call(Request::Stat { object }),
            take: take!(Response::Stat(stat) => stat),
        }
    }

    /// As [`crate::Store::allocated_ranges`], all of them.
    fn allocated_ranges(
        &self,
        object: &str,
        offset: u64,
        len: u64,
    ) -> Call<'_, Vec<AllocatedRange>, Self::Error> {
        let request = Request::AllocatedRanges {
            object: object.to_owned(),
            offset,
            len,
        };
        Call {
            pending: self.call(request),
            take: take!(Response::AllocatedRanges { allocated_ranges, .. } => allocated_ranges),
        }
    }

    /// Stretches of objects whose names begin so that the store knows to be damaged: found by scrubs and reads, and not
    /// written since.
    fn damage(&self, prefix: &str) -> Call<'_, Vec<Damage>, Self::Error> {
        let request = Request::Damage {
            prefix: prefix.to_owned(),
            object: String::new(),
            offset: 0,
            most: usize::MAX,
        };
        Call {
            pending: self.call(request),
            take: take!(Response::Damage { damage, .. } => damage),
        }
    }

    /// As [`crate::Store::flush`].
    fn flush(&self) -> Call<'_, (), Self::Error> {
        Call {
            pending: self.call(Request::Flush),
            take: drop,
        }
    }

    /// As [`crate::Store::space`].
    fn space(&self) -> Call<'_, SpaceFigures, Self::Error> {
        Call {
            pending: self.call(Request::Space),
            take: take!(Response::Space(space) => space),
        }
    }
}

impl<O: ObjectOps + ?Sized> ObjectCalls for O {}

/// A request that gives a version.
fn version<O: ObjectOps + ?Sized>(ops: &O, request: Request) -> Call<'_, Version, O::Error> {
    Call {
        pending: ops.call(request),
        take: take!(Response::Version(version) => version),
    }
}

//! A store carries requests out as they are: which of its operations is it?

use policy::place::State;

use super::{Limits, ObjectOps, Pending, Request, Response};
use crate::object::error::StoreError;
use crate::object::read::READ_MAX;
use crate::object::store::Store;

impl ObjectOps for Store {
    type Error = StoreError;

    fn call(&self, request: Request) -> Pending<'_, Response, StoreError> {
        Box::pin(async move { carry_out(self, &request).await })
    }

    fn limits(&self) -> Limits {
        Limits {
            write_max: self.write_max(),
            read_max: READ_MAX,
        }
    }

    fn load(&self) -> Option<State> {
        None
    }
}

/// Does what `request` asks of `store`; the data of a write are shared, not copied.
pub(crate) async fn carry_out(store: &Store, request: &Request) -> Result<Response, StoreError> {
    match request.change() {
        Some(_) => change(store, request).await,
        None => look(store, request).await,
    }
}

async fn change(store: &Store, request: &Request) -> Result<Response, StoreError> {
    let version = match request {
        Request::Create {
            object,
            attributes,
            change,
        } => {
            let pairs = attributes.iter().map(|(name, value)| (&**name, &**value));
            let pairs: Vec<(&str, &[u8])> = pairs.collect();
            store.create(object, &pairs, *change).await
        }
        Request::Write {
            object,
            offset,
            data,
            change,
        } => store.write(object, *offset, data.clone(), *change).await,
        Request::Truncate {
            object,
            size,
            change,
        } => store.truncate(object, *size, *change).await,
        Request::Punch {
            object,
            offset,
            len,
            change,
        } => store.punch(object, *offset, *len, *change).await,
        Request::Rename {
            object,
            to,
            replace,
            change,
        } => store.rename(object, to, *replace, *change).await,
        Request::SetAttributes {
            object,
            changes,
            change,
        } => {
            let pairs = changes
                .iter()
                .map(|(name, value)| (&**name, value.as_deref()));
            let pairs: Vec<(&str, Option<&[u8]>)> = pairs.collect();
            store.set_attributes(object, &pairs, *change).await
        }
        Request::Delete { object, change } => {
            return store.delete(object, *change).await.map(|()| Response::Done);
        }
        other => unreachable!("{other:?} changes no object"),
    };
    version.map(Response::Version)
}

async fn look(store: &Store, request: &Request) -> Result<Response, StoreError> {
    Ok(match request {
        Request::Read {
            object,
            offset,
            len,
            class,
        } => Response::Data(store.read(object, *offset, *len, *class).await?.freeze()),
        Request::List {
            prefix,
            after,
            most,
        } => Response::Listing(store.list(prefix, after.as_deref(), *most)),
        Request::Attributes { object } => Response::Attributes(store.attributes(object)?),
        Request::Stat { object } => Response::Stat(store.stat(object)?),
        Request::AllocatedRanges {
            object,
            offset,
            len,
        } => Response::AllocatedRanges {
            allocated_ranges: store.allocated_ranges(object, *offset, *len)?,
            more: false,
        },
        Request::Flush => {
            store.flush().await?;
            Response::Done
        }
        Request::Space => Response::Space(store.space()),
        Request::Damage {
            prefix,
            object,
            offset,
            most,
        } => {
            let (damage, more) = store.damage(prefix, object, *offset, *most);
            Response::Damage { damage, more }
        }
        other => unreachable!("{other:?} is a change"),
    })
}

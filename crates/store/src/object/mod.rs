//! Objects on a device: their layout, space, table and records, and what is done with them.

pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod damage;
pub(crate) mod damaged;
pub(crate) mod data;
pub(crate) mod error;
pub(crate) mod finding;
pub(crate) mod layout;
pub(crate) mod load;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod reserve;
pub(crate) mod scrub;
pub(crate) mod segment;
pub(crate) mod space;
pub(crate) mod table;
pub(crate) mod trim;
pub(crate) mod types;

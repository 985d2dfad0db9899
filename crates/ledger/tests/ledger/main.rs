//! The ledger from outside: its promises, its reference model, power cuts, damage, and its bytes.

mod common;
mod crash;
mod damage;
mod forge;
mod format;
mod group_commit;
mod model;
mod promises;

//! Images: their tree and records, what deletes free, what audits find.

mod answering;
pub mod audit;
pub mod change;
pub mod collect;
mod error;
pub mod record;
pub mod records;
#[cfg(test)]
pub(crate) mod tests;
pub mod trash;
pub mod tree;

//! Images: their tree and records, what deletes free, what audits find.

pub mod audit;
pub mod collect;
pub mod records;
#[cfg(test)]
pub(crate) mod tests;
pub mod tree;

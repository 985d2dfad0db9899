//! Who may do what: accounts, their tokens, roles and quotas, and the record of what was done.
//!
//! ```text
//! token | user of this machine -> registry -> account, role -> Caller -> Role::may(action, whose)
//! a booking -> quotas -> compares and operations of the transaction that commits it
//! what was asked and answered -> audit: a file of lines, each with the hash of the one before
//! ```
//!
//! - [`name`] what accounts are called; [`role`] what each role may do; [`caller`] whose request it is.
//! - [`account`], [`token`], [`quota`], [`usage`] records and what they decide: pure.
//! - [`registry`] the records in a meta store (`removal`: deleted with all that belongs to them); [`charge`] quotas within a transaction.
//! - [`s3_keys`] what S3 clients sign with; [`s3_buckets`] how requests to a bucket are served.
//! - [`audit`] the file.
//!
//! Always true:
//! 1. A token is kept as a hash. No record, error or line of the audit log holds the token itself.
//! 2. A record of another version, or with a field that is not known, is refused and never written over.

pub mod account;
pub mod audit;
pub mod caller;
mod changes;
pub mod charge;
mod error;
pub mod name;
pub mod quota;
pub mod registry;
mod removal;
pub mod role;
pub mod s3_buckets;
pub mod s3_keys;
mod swap;
pub mod token;
pub mod usage;

#[cfg(test)]
mod tests;

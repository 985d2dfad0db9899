//! What tests and fuzzers see of the laboratory; its commands are in `main.rs` and `commands`.
//!
//! ```text
//! points of a plan -> sweep: many simulations, resumable, in parts -> one table
//! trace crate      -> parquet: the decoder of a format whose library is large
//! ```

pub mod parquet;
mod parquet_source;
mod parquet_writer;
pub mod sweep;

//! What travels over the admin API: the same types on both sides, and in the OpenAPI document.
//!
//! Names carry their unit. Counters run from the start of the daemon and only grow.
//!
//! Types of requests and answers alone: what fills them stands with the daemon, what shows them with the commands.

pub mod access;
pub mod caps;
pub mod certificates;
pub mod clients;
pub mod cluster;
pub mod events;
pub mod figures;
pub mod health;
pub mod job;
pub mod learn;
pub mod level;
pub mod rates;
pub mod refusal;
pub mod reload;
pub mod reservation;
pub mod s3;
pub mod settings;
pub mod status;
pub mod store;
pub mod tables;
pub mod tier;
pub mod trash;
pub mod volume;
pub mod volumes;

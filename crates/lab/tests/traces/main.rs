//! Traces through the public reader: real ones, hostile ones, and those other programs know.

mod binary;
mod check;
mod forge;
mod hostile;
mod round_trip;

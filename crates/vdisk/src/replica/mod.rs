//! Which replica is asked: the choice, the broadcast of load, connections.

pub mod broadcast;
pub mod choice;
pub mod connect;

//! Images against a reference model, with failures at every step.

mod failing;
mod model;
mod scenes;
mod world;

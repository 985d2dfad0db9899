//! Images against naive twins, with failures at every step.

mod failing;
mod scenes;
mod twin;
mod world;

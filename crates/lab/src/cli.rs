//! The command line of `tanada-lab`, as `tanada` hands it on: help and usage say `tanada`, which is what people type.

use clap::{Parser, Subcommand};

use crate::commands;

/// Traces, simulations, experiments and predictions.
#[derive(Parser)]
#[command(
    name = "tanada",
    bin_name = "tanada",
    version,
    propagate_version = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Repeat the papers' measurements in virtual time.
    #[command(subcommand)]
    Experiment(commands::experiment::Experiment),
    /// Simulate: what would policies and whole stacks have done with a trace?
    #[command(subcommand)]
    Sim(commands::sim::Sim),
    /// Predict what an application would do on a device that cannot be bought yet.
    #[command(subcommand)]
    Predict(commands::predict::Predict),
    /// Measure devices: what predictions are made from.
    #[command(subcommand)]
    Bench(commands::bench::Bench),
    /// Work on block traces: real ones, and generated ones.
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// Advise which cache would do a trace or a running volume good, and what it would cost.
    Advise(commands::advise::Advise),
    /// Write the pages of the manual of these commands.
    #[command(hide = true)]
    Man(report::manual::Manual),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

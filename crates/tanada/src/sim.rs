//! `tanada sim ...`: what a trace would have met, without a single device.

use clap::Subcommand;

use crate::sim_run;

#[derive(Subcommand)]
pub enum Sim {
    /// Replay a trace on whole stacks of modelled devices and compare them.
    Run(sim_run::Arguments),
}

/// Runs `tanada sim ...`.
pub fn run(command: Sim) -> anyhow::Result<()> {
    match command {
        Sim::Run(arguments) => sim_run::run(&arguments),
    }
}

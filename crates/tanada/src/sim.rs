//! `tanada sim ...`: what a trace would have met, without a single device.

use clap::Subcommand;

use crate::{sim_cache, sim_run};

#[derive(Subcommand)]
pub enum Sim {
    /// Show what each cache policy would have missed, at each size.
    Cache(sim_cache::SimCache),
    /// Replay a trace on whole stacks of modelled devices and compare them.
    Run(sim_run::Arguments),
}

/// Runs `tanada sim ...`.
pub fn run(command: Sim) -> anyhow::Result<()> {
    match command {
        Sim::Cache(arguments) => sim_cache::run(&arguments),
        Sim::Run(arguments) => sim_run::run(&arguments),
    }
}

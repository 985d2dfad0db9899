//! `tanada sim ...`: what a trace would have met, without a single device.

use clap::Subcommand;

use crate::{sim_cache, sim_run, sim_sweep, sim_tier};

#[derive(Subcommand)]
pub enum Sim {
    /// Show what each cache policy would have missed, at each size.
    Cache(sim_cache::SimCache),
    /// Replay a trace on whole stacks of modelled devices and compare them.
    Run(sim_run::Arguments),
    /// Show which regions a tiering rule would have had on the fast device, interval by interval.
    Tier(sim_tier::SimTier),
    /// Simulate every point of a plan; resumable, in parts if wanted.
    Sweep(sim_sweep::Sweep),
    /// Join the parts of a sweep.
    Merge(sim_sweep::Merge),
}

/// Runs `tanada sim ...`.
pub fn run(command: Sim) -> anyhow::Result<()> {
    match command {
        Sim::Cache(arguments) => sim_cache::run(&arguments),
        Sim::Run(arguments) => sim_run::run(&arguments),
        Sim::Tier(arguments) => sim_tier::run(&arguments),
        Sim::Sweep(arguments) => sim_sweep::sweep(&arguments),
        Sim::Merge(arguments) => sim_sweep::join(&arguments),
    }
}

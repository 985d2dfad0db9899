//! `tanada sim ...`: simulates caches, tiers and whole stacks on a trace; no device is needed.

use clap::Subcommand;

mod cache;
mod run;
mod sweep;
mod tier;

#[derive(Subcommand)]
pub enum Sim {
    /// Show what each cache policy would have missed, at each size.
    Cache(cache::SimCache),
    /// Replay a trace on whole stacks of modelled devices and compare them.
    Run(run::Arguments),
    /// Show which regions a tiering rule would have had on the fast device, interval by interval.
    Tier(tier::SimTier),
    /// Simulate every point of a plan; resumable, in parts if wanted.
    Sweep(sweep::Sweep),
    /// Join the parts of a sweep.
    Merge(sweep::Merge),
}

/// Runs `tanada sim ...`.
pub fn run(command: Sim) -> anyhow::Result<()> {
    match command {
        Sim::Cache(arguments) => cache::run(&arguments),
        Sim::Run(arguments) => run::run(&arguments),
        Sim::Tier(arguments) => tier::run(&arguments),
        Sim::Sweep(arguments) => sweep::sweep(&arguments),
        Sim::Merge(arguments) => sweep::join(&arguments),
    }
}

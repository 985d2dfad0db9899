//! The benchmarks by name. They print figures and never fail for being slow.

use anyhow::{Result, bail};

use crate::bench_nbd;
use crate::shell::{cargo, run};

/// (name, package, what it measures); each is `benches/NAME.rs` of its package.
const BENCHES: &[(&str, &str, &str)] = &[
    (
        "executor",
        "env",
        "timer and wake events per second in virtual time",
    ),
    (
        "model",
        "device",
        "simulated requests per CPU-second of each device model",
    ),
    (
        "policy",
        "policy",
        "requests per second of each cache policy",
    ),
    ("ledger", "ledger", "replaying the ledger's entries at open"),
    (
        "hit",
        "hybrid",
        "CPU per hit, memory per block, writes per write",
    ),
    (
        "store",
        "store",
        "large and small objects beside the bare device, plain files and redb",
    ),
    (
        "meta",
        "vdisk",
        "transactions per second of the meta stores, one client and many",
    ),
    (
        "volume",
        "vdisk",
        "a volume of one copy beside the store it is in, of three beside the slowest of them",
    ),
    (
        "reserve",
        "tanada",
        "what reserved clients get beside greedy ones, over TCP",
    ),
    (
        "sim-cache",
        "sim",
        "requests per second of simulated caches and miss-ratio curves",
    ),
    (
        "sim-run",
        "sim",
        "requests per CPU-second through whole simulated stacks",
    ),
    (
        "trace",
        "trace",
        "records per second of the trace readers, beside the csv crate",
    ),
];

/// Runs the benchmark `name` with `args`, or all of them.
///
/// # Errors
/// If there is no such benchmark, or one cannot run.
pub fn bench(name: Option<&str>, args: &[String]) -> Result<()> {
    match name {
        Some("-h" | "--help" | "help") => {
            println!(
                "cargo xtask bench [NAME [ARGS]]: run one benchmark, or all\n{}",
                list()
            );
            Ok(())
        }
        Some("nbd") => bench_nbd::run(args),
        Some(name) => {
            let Some((name, package, _)) = BENCHES.iter().find(|(known, ..)| *known == name) else {
                bail!("there is no benchmark `{name}`; there are:\n{}", list());
            };
            one(name, package, args)
        }
        None => {
            // One that cannot run does not keep the others from it.
            let mut failed = Vec::new();
            for &(name, package, what) in BENCHES {
                println!("\n== {name}: {what}");
                if let Err(error) = one(name, package, args) {
                    eprintln!("bench {name}: {error:#}");
                    failed.push(name);
                }
            }
            println!("\n== nbd: against nbdkit and qemu-storage-daemon");
            if let Err(error) = bench_nbd::run(&[]) {
                eprintln!("bench nbd: {error:#}");
                failed.push("nbd");
            }
            if !failed.is_empty() {
                bail!("benchmarks that could not run: {}", failed.join(", "));
            }
            Ok(())
        }
    }
}

/// The benchmarks and what they measure, one per line.
#[must_use]
pub fn list() -> String {
    let mut lines: Vec<String> = BENCHES
        .iter()
        .map(|(name, _, what)| format!("  {name:<9} {what}"))
        .collect();
    lines.push(
        "  nbd       the server against nbdkit and qemu-storage-daemon (nbd --help: its options)"
            .to_owned(),
    );
    lines.join("\n")
}

fn one(name: &str, package: &str, args: &[String]) -> Result<()> {
    run(cargo()
        .args(["bench", "--quiet", "-p", package, "--bench", name, "--"])
        .args(args))
}

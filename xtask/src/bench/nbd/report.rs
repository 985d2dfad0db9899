//! The results as text, for people.

use std::fmt::Write as _;
use std::path::Path;

use super::cases::{Case, Group, Method};
use super::results::{Metric, Results, Spread, verdicts};

/// How it was measured.
pub(super) struct Setup<'a> {
    pub(super) rounds: usize,
    pub(super) seconds: u64,
    pub(super) file_mib: u64,
    pub(super) memory_mib: u64,
    pub(super) dir: &'a Path,
    /// How qemu-storage-daemon did its I/O.
    pub(super) aio: &'a str,
}

/// All results, then the aims.
pub(super) fn report(setup: &Setup<'_>, all: &[Results]) -> String {
    let mut out = String::new();
    let kernel = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let _ = writeln!(
        out,
        "Real figures: {cores} cores, Linux {}, NBD over a Unix socket, fio as the client, {} rounds of {} s.",
        kernel.release().to_string_lossy(),
        setup.rounds,
        setup.seconds
    );
    let _ = writeln!(
        out,
        "Median (least .. greatest); ratios are Tanada's over theirs within one round."
    );
    for results in all {
        let _ = writeln!(out, "\n{}", heading(setup, results.group));
        for (i, case) in results.group.cases().iter().enumerate() {
            put_case(&mut out, results, i, case);
        }
    }
    out.push_str("\nAims\n");
    for verdict in all.iter().flat_map(verdicts) {
        let _ = writeln!(
            out,
            "  {:<5} {:<6} {:<18} {:<36} {} (aim {} {})",
            verdict.word(),
            verdict.group.name(),
            verdict.case,
            verdict.aim.what(),
            ratio(verdict.reached),
            if verdict.aim.at_most {
                "at most"
            } else {
                "at least"
            },
            verdict.aim.bound
        );
    }
    out
}

/// What the figures of a group are of.
fn heading(setup: &Setup<'_>, group: Group) -> String {
    match group {
        Group::File => format!(
            "File of {} MiB in {}, O_DIRECT: qemu-storage-daemon with cache.direct=on,aio={}; \
             the bare loop is fio's io_uring engine with direct=1 (its CPU is fio's); \
             nbdkit serves a copy through the page cache, so it is no equal.",
            setup.file_mib,
            setup.dir.display(),
            setup.aio,
        ),
        Group::Memory => format!("Memory device of {} MiB, filled.", setup.memory_mib),
        Group::Hit => format!(
            "Hybrid whose cache, a file in {}, was filled in random order by 1 MiB reads and has all of it; the same file served \
             alone.",
            setup.dir.display()
        ),
    }
}

/// One line for each method.
fn put_case(out: &mut String, results: &Results, i: usize, case: &Case) {
    let _ = writeln!(out, "\n{} {}", results.group.name(), case.name);
    let _ = writeln!(
        out,
        "  {:<20} {:>28} {:>8} {:>18} {:>22} {:>22}",
        "", "IOPS", "MB/s", "CPU us/IO", "IOPS ours/theirs", "CPU ours/theirs"
    );
    for method in results.group.methods() {
        let iops = results.spread(*method, i, Metric::Iops);
        let rate = results.spread(*method, i, Metric::MbPerS);
        let cpu = results.spread(*method, i, Metric::CpuUsPerIo);
        let _ = write!(
            out,
            "  {:<20} {:>28} {:>8.0} {:>18}",
            method.name(),
            format!("{:.0} ({:.0} .. {:.0})", iops.median, iops.low, iops.high),
            rate.median,
            format!("{:.1} ({:.1} .. {:.1})", cpu.median, cpu.low, cpu.high),
        );
        if *method != Method::Tanada {
            let iops = results.ratio(*method, i, Metric::Iops);
            let cpu = results.ratio(*method, i, Metric::CpuUsPerIo);
            let _ = write!(out, " {:>22} {:>22}", ratio(iops), ratio(cpu));
        }
        out.push('\n');
    }
}

fn ratio(spread: Spread) -> String {
    format!(
        "{:.2} ({:.2} .. {:.2})",
        spread.median, spread.low, spread.high
    )
}

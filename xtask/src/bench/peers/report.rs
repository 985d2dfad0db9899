//! The results as text, for people.

use std::fmt::Write as _;

use super::cases::{Peer, Phase};
use super::results::{Metric, Results, Spread};

/// All results, then what was absent, then the aims.
pub(super) fn report(setup: &str, results: &Results) -> String {
    let mut out = format!(
        "Emulated: {setup}\n\
         Median (least .. greatest) of {} guests; ratios to bcache within one guest; CPU in us a request, of the whole \
         guest less the {:.1} s of a fio that does nothing, then of fio and of the daemon.\n",
        results.rounds.len(),
        results.floor
    );
    let (peers, phases) = results.measured();
    for phase in phases {
        let _ = write!(out, "\n{}: {}\n", phase.name(), phase.about());
        put_head(&mut out);
        for peer in &peers {
            put_line(&mut out, results, *peer, phase);
        }
    }
    let absent = results.rounds.iter().flat_map(|round| &round.absent);
    for (peer, why) in absent {
        let _ = writeln!(out, "\n{} is absent: {}", peer.name(), why.trim());
    }
    out.push_str("\nAims of Tanada over ublk\n");
    for verdict in results.verdicts() {
        let _ = writeln!(
            out,
            "  {:<5} {:<13} {:<24} {} (aim {} {})",
            verdict.word(),
            verdict.phase.name(),
            verdict.what,
            text(verdict.reached, 2),
            if verdict.at_most {
                "at most"
            } else {
                "at least"
            },
            verdict.bound
        );
    }
    out
}

fn put_head(out: &mut String) {
    let _ = writeln!(
        out,
        "  {:<15} {:>22} {:>19} {:>8} {:>8} {:>20} {:>6} {:>7} {:>8} {:>7} {:>8} {:>7} {:>6}",
        "",
        "1/s or MiB/s",
        "to bcache",
        "mean ms",
        "p99 ms",
        "CPU us: all fio ours",
        "hits",
        "reads",
        "KiB",
        "writes",
        "KiB",
        "dirty",
        "quiet"
    );
}

fn put_line(out: &mut String, results: &Results, peer: Peer, phase: Phase) {
    let of = |metric| results.spread(peer, phase, metric);
    if of(Metric::SlowReads).is_none() {
        return;
    }
    let rate = of(Metric::Iops).or_else(|| of(Metric::CopyRate));
    let over = match peer {
        Peer::Bcache => None,
        _ => results
            .ratio(peer, Peer::Bcache, phase, Metric::Iops)
            .or_else(|| results.ratio(peer, Peer::Bcache, phase, Metric::CopyRate)),
    };
    let one = |metric, decimals: usize| {
        of(metric).map_or_else(|| "-".to_owned(), |it| format!("{:.decimals$}", it.median))
    };
    let cpu = [Metric::GuestCpu, Metric::ClientCpu, Metric::ServerCpu].map(|it| one(it, 0));
    let _ = writeln!(
        out,
        "  {:<15} {:>22} {:>19} {:>8} {:>8} {:>20} {:>6} {:>7} {:>8} {:>7} {:>8} {:>7} {:>6}",
        peer.name(),
        rate.map_or_else(String::new, |it| text(it, 0)),
        over.map_or_else(String::new, |it| text(it, 2)),
        one(Metric::Mean, 3),
        one(Metric::P99, 3),
        cpu.join(" "),
        one(Metric::Hits, 1),
        one(Metric::SlowReads, 0),
        one(Metric::SlowKibRead, 0),
        one(Metric::SlowWrites, 0),
        one(Metric::SlowKibWritten, 0),
        one(Metric::Dirty, 0),
        one(Metric::LongestQuiet, 0),
    );
}

fn text(spread: Spread, decimals: usize) -> String {
    let number = |value: f64| format!("{value:.decimals$}");
    match spread.low < spread.high {
        true => format!(
            "{} ({} .. {})",
            number(spread.median),
            number(spread.low),
            number(spread.high)
        ),
        false => number(spread.median),
    }
}

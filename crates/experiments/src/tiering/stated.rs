//! What the paper states in its text, and why ours may differ.

use report::{Row, Value, Verdict};

use super::compare::{TABLE4, TABLE5, case_of, lines, method_of, number};

/// A figure of tables 4 and 5.
pub(super) struct Published {
    pub(super) table: &'static str,
    pub(super) case: &'static str,
    pub(super) method: &'static str,
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: f64,
}

pub(super) fn published() -> Vec<Published> {
    let mut all = Vec::new();
    for line in lines(TABLE4) {
        let metric = match &*line[0] {
            name if name.contains("buffer hits") => "buffer_share_percent",
            name if name.contains("dirty write hits") => "dirty_write_hits_percent",
            _ => "fast_share_percent",
        };
        all.push(Published {
            table: "table 4",
            case: case_of(&line[1]),
            method: method_of(&line[0]),
            metric,
            unit: "percent",
            value: number(&line[2]),
        });
    }
    for line in lines(TABLE5) {
        let metric = match &*line[2] {
            "all" => "mean_ms",
            "up to 100 ms" => "mean_up_to_100_ms",
            other => unreachable!("table 5 has no column {other}"),
        };
        all.push(Published {
            table: "table 5",
            case: case_of(&line[1]),
            method: method_of(&line[0]),
            metric,
            unit: "ms",
            value: number(&line[3]),
        });
    }
    all
}

/// `row`, judged beside the paper's figure, and why ours is what it is.
pub(super) fn why(known: &Published, row: Row, short: bool) -> Row {
    let Some(ours) = row.ours.as_ref().and_then(Value::number) else {
        return row.noted("not counted: the method has no such figure");
    };
    if short {
        return row.judged(Verdict::NotJudged);
    }
    let near = match known.unit {
        "percent" => (ours - known.value).abs() <= 2.0,
        _ => (ours / known.value - 1.0).abs() <= 0.1,
    };
    if near {
        let within = match known.unit {
            "percent" => "2 points",
            _ => "10 %",
        };
        return row.against(true).noted(format!("within {within}"));
    }
    let more = if ours > known.value { "more" } else { "less" };
    let reason = match (known.method, known.metric, known.case) {
        (_, "buffer_share_percent", _) => {
            "how many writes meet a region on the move depends on how long moves take: ours move over modelled disks"
        }
        ("otf-published", "fast_share_percent", _) => {
            "the generator was made for this share with moves that take no time; it is not the recorded trace"
        }
        ("lru-cache-run1" | "lru-cache-run2", "fast_share_percent", _) => {
            "a request of several blocks counts only if all of them are there; the paper counts blocks"
        }
        (_, "dirty_write_hits_percent", _) => {
            "ours: writes over data all of which only the SSD has, of all requests; how long data stay so is the cleaner's doing, \
             and the paper does not say what its figure is a share of"
        }
        ("lru-cache-run1" | "lru-cache-run2", _, _) => {
            "our cache takes every write at once and destages dirty blocks in address order, in the background; \
             the paper's evicts and writes back block by block"
        }
        ("otf-published" | "otf-published-first-20min", _, _) => {
            "how much moving costs hangs on the disks: modelled ones without a controller's cache, and a generated \
             workload whose hot spots move at other moments"
        }
        ("otf-no-copy-back", _, _) => {
            "moves up alone load the disks less than the paper's did; the workload is generated"
        }
        ("static", _, _) => {
            "the disks serve nearly everything: they are modelled, and the workload is generated"
        }
        _ => "modelled devices, generated workload",
    };
    row.against(false)
        .noted(format!("{more} than printed: {reason}"))
}

//! With many clients, who is the bottleneck?
//!
//! ```text
//! n_j and the device's rates -> time it is busy for one operation;  cpu / cores -> likewise
//! latency >= clients x the busiest's time;   the larger of that and the model's latency
//! ```
//!
//! Source: the asymptotic bounds of closed queueing networks (the operational laws of Denning and Buzen).
//!
//! Always true:
//! 1. The answer is never below the model's latency with one client.
//! 2. More clients never give a lower latency.

use serde::Serialize;

use super::data::Reduced;
use super::model::{Fit, Form};

/// The load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Clients, each waiting for its answer before it asks again.
    pub clients: f64,
    /// Processors the application runs on; without them the CPU bounds nothing.
    pub cores: Option<f64>,
}

/// One bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// What bounds: `device`, `cpu` or `latency`.
    pub by: String,
    /// How long an operation takes at least, in us.
    pub latency: f64,
}

/// The bounds, the binding one first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Queued {
    /// The load.
    pub load: Load,
    /// The latency: the largest bound, in us.
    pub latency: f64,
    /// Which bound that is.
    pub bottleneck: String,
    /// Every bound, the largest first.
    pub bounds: Vec<Bound>,
    /// What could not be bounded, and why.
    pub notes: Vec<String>,
}

/// The bytes of one access as a regressor's name says: `read-16K-latency` is 16384.
///
/// # Example
/// ```
/// use predict::queue::block_bytes;
/// assert_eq!(block_bytes("read-16K-latency"), Some(16384.0));
/// assert_eq!(block_bytes("flush-latency"), None);
/// ```
pub fn block_bytes(regressor: &str) -> Option<f64> {
    let size = regressor.split('-').nth(1)?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let times = match &size[digits.len()..] {
        "" | "B" => 1.0,
        "K" | "KiB" | "k" => 1024.0,
        "M" | "MiB" | "m" => 1024.0 * 1024.0,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * times)
}

/// How many accesses like `regressor` a device does in a second, from its figures.
fn rate(figure: &dyn Fn(&str) -> Option<f64>, regressor: &str) -> Option<f64> {
    let stem = regressor.strip_suffix("-latency")?;
    let iops = figure(&format!("{stem}-iops"));
    iops.or_else(|| {
        let bytes = figure(&format!("{stem}-throughput"))? * 1e6;
        Some(bytes / block_bytes(regressor)?)
    })
}

/// What `load` makes of an operation that takes `latency` (us) with one client.
///
/// `figure` gives the device's figures by name; its rates are read from `...-iops` or `...-throughput` beside the terms.
pub fn bound(
    form: &Form,
    fit: &Fit,
    latency: f64,
    load: Load,
    figure: &dyn Fn(&str) -> Option<f64>,
) -> Queued {
    let mut bounds = vec![Bound {
        by: "latency".to_owned(),
        latency,
    }];
    let mut notes = Vec::new();
    let mut busy = Some(0.0);
    for (term, n) in form.terms.iter().zip(&fit.counts) {
        if *n == 0.0 {
            continue;
        }
        match rate(figure, &term.regressor) {
            Some(rate) => busy = busy.map(|sum| sum + n / rate * 1e6),
            None => {
                busy = None;
                notes.push(format!(
                    "the device's bound is unknown: it has no {}-iops or -throughput",
                    term.regressor.trim_end_matches("-latency")
                ));
            }
        }
    }
    if let Some(busy) = busy.filter(|busy| *busy > 0.0) {
        bounds.push(Bound {
            by: "device".to_owned(),
            latency: load.clients * busy,
        });
    }
    match load.cores {
        Some(cores) => bounds.push(Bound {
            by: "cpu".to_owned(),
            latency: load.clients * fit.cpu / cores,
        }),
        None => {
            notes.push("the CPU's bound is unknown: --cores says how many there are".to_owned())
        }
    }
    bounds.sort_by(|a, b| b.latency.total_cmp(&a.latency));
    Queued {
        load,
        latency: bounds[0].latency,
        bottleneck: bounds[0].by.clone(),
        bounds,
        notes,
    }
}

/// The figures of `device` in `data`, by name.
pub fn figures<'a>(data: &'a Reduced, device: &'a str) -> impl Fn(&str) -> Option<f64> + 'a {
    move |name| data.figure(device, name)
}

#[cfg(test)]
mod tests {
    use super::super::data::{DataSet, Reduce};
    use super::super::model::{self, Group};
    use super::*;

    /// Operations of 100 us CPU and two reads of 10 or 50 us; the device does 40,000 reads a second.
    fn fixture() -> (Form, Fit) {
        let csv = "device,regressor,workload,metric,value,unit\n\
                   a,read-16K-latency,,,10,us\nb,read-16K-latency,,,50,us\n\
                   a,,w,read_latency,120,us\nb,,w,read_latency,200,us\n";
        let data = DataSet::read_csv(csv.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default());
        let form = Form::of(&["read-16K-latency"]);
        let fit = model::fit(
            &data,
            &form,
            &Group::all(&data, &form.pooled)[0],
            &["a", "b"],
        );
        (form, fit.unwrap())
    }

    fn at(clients: f64, cores: Option<f64>) -> Queued {
        let (form, fit) = fixture();
        let rates = |name: &str| (name == "read-16K-iops").then_some(40_000.0);
        bound(&form, &fit, 120.0, Load { clients, cores }, &rates)
    }

    #[test]
    fn few_clients_wait_for_the_latency_and_many_for_the_bottleneck() {
        let one = at(1.0, Some(4.0));
        assert_eq!((one.latency, one.bottleneck.as_str()), (120.0, "latency"));
        // Each operation holds the device for 2 / 40,000 s = 50 us, and a core for 100 us.
        let many = at(64.0, Some(4.0));
        assert_eq!(many.bottleneck, "device");
        assert!((many.latency - 64.0 * 50.0).abs() < 1e-3);
        let few_cores = at(64.0, Some(1.0));
        assert_eq!(few_cores.bottleneck, "cpu");
        assert!((few_cores.latency - 64.0 * 100.0).abs() < 1e-3);
    }

    #[test]
    fn what_bounds_nothing_is_said() {
        let (form, fit) = fixture();
        let load = Load {
            clients: 64.0,
            cores: None,
        };
        let queued = bound(&form, &fit, 120.0, load, &|_| None);
        assert_eq!(queued.bottleneck, "latency");
        assert_eq!(
            queued.notes,
            [
                "the device's bound is unknown: it has no read-16K-iops or -throughput",
                "the CPU's bound is unknown: --cores says how many there are"
            ]
        );
    }

    #[test]
    fn throughput_and_block_size_give_a_rate() {
        let figure = |name: &str| (name == "write-64K-throughput").then_some(655.36);
        assert_eq!(rate(&figure, "write-64K-latency"), Some(10_000.0));
    }
}

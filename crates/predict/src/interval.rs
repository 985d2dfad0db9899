//! Between which values will the result lie?
//!
//! ```text
//! residuals of the devices -> spread between devices + spread within one -> Student t -> prediction +- so much
//! fewer than five devices, or no degrees of freedom -> the worst left-out error
//! ```
//!
//! Choice: SCM prints no intervals; these are the usual ones of weighted least squares. Pooled cells of one device share
//! its error, so devices are counted, not values; the spread within a device enters with its own degrees of freedom
//! (Satterthwaite).
//!
//! Always true:
//! 1. An interval holds the prediction and nothing below zero.
//! 2. Fewer devices, or a place farther from them, never make it narrower by themselves.

use nalgebra::{DMatrix, DVector};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::model::{Fit, Form, Point, Rule};

/// Below so many devices no distribution is assumed.
pub const DEVICES_MIN: usize = 5;

/// What an interval rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Student's distribution.
    Student {
        /// Its degrees of freedom.
        freedom: f64,
        /// The share of results that lie inside.
        level: f64,
    },
    /// The worst error when each device was left out in turn.
    WorstLeftOut {
        /// That error, relative to what was measured.
        error: f64,
    },
}

/// Where the result will lie, in us.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Not below.
    pub low: f64,
    /// Not above; none if nothing bounds it.
    pub high: Option<f64>,
    /// Why.
    pub basis: Basis,
}

impl Interval {
    /// The interval in which `predicted` would have been as wrong as `error`: a measured y with
    /// `|predicted - y| / y <= error`.
    ///
    /// # Example
    /// ```
    /// use predict::interval::Interval;
    /// let interval = Interval::worst_left_out(90.0, 0.5);
    /// assert_eq!((interval.low, interval.high), (60.0, Some(180.0)));
    /// assert_eq!(Interval::worst_left_out(90.0, 1.0).high, None);
    /// ```
    pub fn worst_left_out(predicted: f64, error: f64) -> Interval {
        Interval {
            low: predicted / (1.0 + error),
            high: (error < 1.0).then(|| predicted / (1.0 - error)),
            basis: Basis::WorstLeftOut { error },
        }
    }

    /// The interval in which one more result, on a device with `latencies`, lies with probability `level`; none
    /// below [`DEVICES_MIN`] devices or without degrees of freedom.
    pub fn student(
        form: &Form,
        fit: &Fit,
        points: &[Point],
        latencies: &[f64],
        level: f64,
    ) -> Option<Interval> {
        let devices = fit.devices.len();
        let parameters = fit.unknowns;
        if devices < DEVICES_MIN || devices <= parameters {
            return None;
        }
        let seen = Spreads::of(form, fit, points);
        let ahead = fit.at(latencies);
        let x = columns(form, fit, latencies) / ahead;
        let inverse = seen.information?.try_inverse()?;
        let leverage = (x.transpose() * inverse * &x)[0];
        // `between` holds the devices' own spread and 1/size of the spread within one: harmonic mean.
        let freedom = (devices - parameters) as f64;
        let inside = (seen.values - devices) as f64;
        let of_devices = seen.between / freedom * (1.0 + leverage);
        let of_cells = match inside > 0.0 {
            true => seen.within / inside * (1.0 - seen.inverse / devices as f64),
            false => 0.0,
        };
        let variance = of_devices + of_cells;
        let freedom = match variance > 0.0 && inside > 0.0 {
            true => {
                variance * variance
                    / (of_devices * of_devices / freedom + of_cells * of_cells / inside)
            }
            false => freedom,
        };
        let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
        let half = ahead * student.inverse_cdf(f64::midpoint(1.0, level)) * variance.sqrt();
        Some(Interval {
            low: (ahead - half).max(0.0),
            high: Some(ahead + half),
            basis: Basis::Student { freedom, level },
        })
    }
}

/// The columns that are fitted and not held at zero: `cpu`, then terms.
fn columns(form: &Form, fit: &Fit, latencies: &[f64]) -> DVector<f64> {
    let cpu = (fit.cpu > 0.0).then_some(1.0);
    let fitted = (0..form.terms.len()).filter(|n| {
        fit.rule != Rule::Constant && form.terms[*n].counted.is_none() && fit.counts[*n] > 0.0
    });
    let terms = fitted.map(|n| latencies[n]);
    DVector::from_vec(cpu.into_iter().chain(terms).collect())
}

/// How far values lie from a fit, relative to it.
#[derive(Default)]
struct Spreads {
    information: Option<DMatrix<f64>>,
    /// Squares of how far each device's middle lies from the fit.
    between: f64,
    /// Squares of how far values lie from their device's middle.
    within: f64,
    values: usize,
    /// The sum of one over each device's number of values.
    inverse: f64,
}

impl Spreads {
    fn of(form: &Form, fit: &Fit, points: &[Point]) -> Spreads {
        let mut seen = Spreads::default();
        for device in &fit.devices {
            let of: Vec<&Point> = points.iter().filter(|p| p.device == *device).collect();
            let ahead = fit.at(&of[0].latencies);
            let x = columns(form, fit, &of[0].latencies) / ahead;
            let square = &x * x.transpose();
            seen.information = Some(match seen.information {
                Some(sum) => sum + square,
                None => square,
            });
            // The one value that pulls a relative fit as much as these together.
            let sum: f64 = of.iter().map(|p| 1.0 / p.y).sum();
            let squares: f64 = of.iter().map(|p| 1.0 / (p.y * p.y)).sum();
            let middle = sum / squares;
            seen.between += ((middle - ahead) / ahead).powi(2);
            seen.within += of.iter().map(|p| (p.y / middle - 1.0).powi(2)).sum::<f64>();
            seen.values += of.len();
            seen.inverse += 1.0 / of.len() as f64;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use env::Rng;

    use super::super::data::{DataSet, Parameters, Reduce, Row, What};
    use super::super::model::{self, Group};
    use super::super::noise::normal;
    use super::super::units::{Quantity, Unit};
    use super::*;

    /// A device drawn at random and the true time of an operation on it.
    fn device(rng: &mut Rng) -> ([f64; 2], f64) {
        // 3 to 300 us for a read, 10 to 300 us for a write.
        let read = 3.0 * 100f64.powf(rng.unit());
        let write = 10.0 * 30f64.powf(rng.unit());
        ([read, write], 900.0 + 3.0 * read + 5.0 * write)
    }

    /// How many of `sets` intervals of `level` hold a result on a device that was not among the `devices` fitted.
    fn coverage(sets: u64, devices: usize, sizes: usize, level: f64) -> f64 {
        let mut inside = 0;
        for seed in 0..sets {
            let mut rng = Rng::from_seed(seed);
            let mut data = DataSet::default();
            let mut add = |device: &str, what: What, value: f64| {
                let quantity = Quantity {
                    value,
                    unit: Unit::Us,
                };
                let row = Row {
                    device: device.to_owned(),
                    what,
                    quantity,
                    run: 1,
                    source: String::new(),
                };
                data.add(row).unwrap();
            };
            // Devices differ from the form by 4 %, sizes from their device by 3 %.
            let noisy = |rng: &mut Rng, y: f64, by: f64| y * (1.0 + by * normal(rng));
            for n in 0..devices {
                let (latencies, y) = device(&mut rng);
                let name = format!("d{n}");
                for (regressor, l) in model::TERMS.iter().zip(latencies) {
                    let regressor = (*regressor).to_owned();
                    add(&name, What::Device { regressor }, l);
                }
                let y = noisy(&mut rng, y, 0.04);
                for size in 0..sizes {
                    let mut parameters = Parameters::default();
                    parameters.set("data_gb", &size.to_string());
                    let what = What::Result {
                        workload: "w".to_owned(),
                        parameters,
                        metric: "latency".to_owned(),
                    };
                    add(&name, what, noisy(&mut rng, y, 0.03));
                }
            }
            let data = data.reduce(Reduce::default());
            let among: Vec<&str> = data.devices.iter().map(String::as_str).collect();
            let (form, group) = (Form::default(), &Group::all(&data, model::POOLED)[0]);
            let fit = model::fit(&data, &form, group, &among).unwrap();
            let points = model::points(&data, &form, group, &among);
            let (latencies, y) = device(&mut rng);
            let y = noisy(&mut rng, y, 0.04);
            let y = noisy(&mut rng, y, 0.03);
            let interval = Interval::student(&form, &fit, &points, &latencies, level).unwrap();
            let high = interval.high.unwrap();
            assert!(interval.low <= fit.at(&latencies) && fit.at(&latencies) <= high);
            inside += u64::from(interval.low <= y && y <= high);
        }
        inside as f64 / sets as f64
    }

    #[test]
    fn stated_intervals_hold_what_they_say_within_two_points() {
        for (devices, sizes, level) in [(8, 1, 0.95), (8, 1, 0.80), (6, 4, 0.95), (12, 4, 0.80)] {
            let covered = coverage(2_000, devices, sizes, level);
            assert!(
                (covered - level).abs() < 0.02,
                "{devices} devices, {sizes} sizes: {covered} instead of {level}"
            );
        }
    }

    #[test]
    fn below_five_devices_no_distribution_is_assumed() {
        let point = |device: &str, latency: f64, y: f64| Point {
            device: device.to_owned(),
            latencies: vec![latency],
            y,
        };
        let points: Vec<Point> = [1.0, 2.0, 3.0, 4.0]
            .iter()
            .map(|l| point(&format!("d{l}"), *l, 10.0 + l))
            .collect();
        let csv: String = points
            .iter()
            .map(|p| {
                format!(
                    "{},x-latency,,,{},us\n{},,w,latency,{},us\n",
                    p.device, p.latencies[0], p.device, p.y
                )
            })
            .collect();
        let csv = format!("device,regressor,workload,metric,value,unit\n{csv}");
        let data = DataSet::read_csv(csv.as_bytes(), "t.csv")
            .unwrap()
            .reduce(Reduce::default());
        let among: Vec<&str> = data.devices.iter().map(String::as_str).collect();
        let form = Form::of(&["x-latency"]);
        let group = &Group::all(&data, model::POOLED)[0];
        let fit = model::fit(&data, &form, group, &among).unwrap();
        assert_eq!(Interval::student(&form, &fit, &points, &[2.0], 0.95), None);
    }
}

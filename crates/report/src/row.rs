//! One figure of one experiment: published and ours side by side.
//!
//! ```text
//! experiment -> rows -> JSON | table on a terminal | page
//! ```
//!
//! Always true: a calibrated row never agrees with what the paper says ([`Row::against`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// One figure of one experiment.
///
/// A row is found by `experiment`, `table`, `case`, `method` and `metric`; no two rows share all five.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment's name, as `tanada experiment list` shows it.
    pub experiment: String,
    /// The group of rows it belongs to.
    pub table: String,
    /// What was done.
    pub case: String,
    /// Which system did it.
    pub method: String,
    /// What was measured.
    pub metric: String,
    /// The unit of `published`, `ours`, `low` and `high`.
    pub unit: String,
    /// What the paper says; none where it says nothing.
    pub published: Option<Value>,
    /// What we measured: the mean over the seeds.
    pub ours: Option<Value>,
    /// The smallest value over the seeds.
    pub low: Option<Value>,
    /// The largest value over the seeds.
    pub high: Option<Value>,
    /// What the figure was measured on.
    pub devices: Devices,
    /// Whether it could have come out otherwise.
    pub evidence: Evidence,
    /// What ours must reach for a claim to hold; none where nothing is claimed.
    pub bar: Option<f64>,
    /// How ours stands beside the paper or the bar; none where nothing is judged.
    pub verdict: Option<Verdict>,
    /// What a reader must know to judge the figure.
    pub note: String,
}

/// What a figure was measured on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Devices {
    /// Models of devices, in virtual time.
    #[default]
    Modelled,
    /// Real programs in real time, on devices that a model slows down.
    Emulated,
    /// Real devices, or none that count, in real time.
    Real,
}

/// Where the inputs of a figure come from: could it have come out otherwise?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// It came out of a run whose inputs were fixed before.
    #[default]
    Measured,
    /// An input was chosen so that this figure, or one like it, comes out.
    Calibrated,
    /// Measured on inputs that played no part in any choice.
    HeldOut,
}

/// How a figure stands beside what the paper says, or beside the bar of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is near what the paper says.
    Agrees,
    /// It is near what the paper says because an input was chosen so.
    Calibrated,
    /// It goes the way the paper says, but not as far, or further; or the paper does not say how far.
    DirectionOnly,
    /// It is not what the paper says.
    Differs,
    /// It reaches the bar.
    Holds,
    /// It does not.
    Fails,
    /// It does not on data that played no part in any choice.
    FailsOutside,
    /// The run is too short for it.
    NotJudged,
}

impl Row {
    /// A measured row about modelled devices with no figure in it yet.
    #[must_use]
    pub fn modelled(
        experiment: &str,
        table: &str,
        case: &str,
        method: &str,
        metric: &str,
        unit: &str,
    ) -> Row {
        Row {
            experiment: experiment.to_owned(),
            table: table.to_owned(),
            case: case.to_owned(),
            method: method.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            published: None,
            ours: None,
            low: None,
            high: None,
            devices: Devices::Modelled,
            evidence: Evidence::Measured,
            bar: None,
            verdict: None,
            note: String::new(),
        }
    }

    /// The same, measured on `devices`.
    #[must_use]
    pub fn on(self, devices: Devices) -> Row {
        Row { devices, ..self }
    }

    /// The same, its inputs chosen so.
    #[must_use]
    pub fn evidence(self, evidence: Evidence) -> Row {
        Row { evidence, ..self }
    }

    /// The same, judged beside what the paper says: a figure that an input was chosen for cannot agree.
    ///
    /// # Example
    /// ```
    /// use report::{Evidence, Row, Verdict};
    /// let row = Row::modelled("cache", "stated", "reread", "published", "time saved", "percent");
    /// assert_eq!(row.clone().against(true).verdict, Some(Verdict::Agrees));
    /// assert_eq!(row.clone().against(false).verdict, Some(Verdict::Differs));
    /// let row = row.evidence(Evidence::Calibrated);
    /// assert_eq!(row.against(true).verdict, Some(Verdict::Calibrated));
    /// ```
    #[must_use]
    pub fn against(self, is_near: bool) -> Row {
        let verdict = match (is_near, self.evidence) {
            (true, Evidence::Calibrated) => Verdict::Calibrated,
            (true, _) => Verdict::Agrees,
            (false, _) => Verdict::Differs,
        };
        self.judged(verdict)
    }

    /// The same, a claim that ours reaches `bar`.
    #[must_use]
    pub fn claimed(self, bar: f64, is_met: bool) -> Row {
        let verdict = match (is_met, self.evidence) {
            (true, _) => Verdict::Holds,
            (false, Evidence::HeldOut) => Verdict::FailsOutside,
            (false, _) => Verdict::Fails,
        };
        Row {
            bar: bar.is_finite().then_some(bar),
            ..self.judged(verdict)
        }
    }

    /// The same with a verdict.
    #[must_use]
    pub fn judged(self, verdict: Verdict) -> Row {
        Row {
            verdict: Some(verdict),
            ..self
        }
    }

    /// The same, not judged if the run was too short for it.
    #[must_use]
    pub fn unjudged_if(self, short: bool) -> Row {
        match short {
            true => self.judged(Verdict::NotJudged),
            false => self,
        }
    }

    /// The same with the paper's number, if it has one.
    #[must_use]
    pub fn printed(self, published: Option<f64>) -> Row {
        Row {
            published: published.map(Value::Number),
            ..self
        }
    }

    /// The same with what the paper says, a number or words.
    #[must_use]
    pub fn beside(self, published: Value) -> Row {
        Row {
            published: Some(published),
            ..self
        }
    }

    /// The same with our figure.
    #[must_use]
    pub fn measured(self, ours: Option<f64>) -> Row {
        Row {
            ours: ours.map(Value::Number),
            ..self
        }
    }

    /// The same with the least and the largest figure.
    #[must_use]
    pub fn between(self, low: Option<f64>, high: Option<f64>) -> Row {
        Row {
            low: low.map(Value::Number),
            high: high.map(Value::Number),
            ..self
        }
    }

    /// From the least of `values` to the largest.
    #[must_use]
    pub fn over(self, values: &[f64]) -> Row {
        let values = || values.iter().copied();
        self.between(values().reduce(f64::min), values().reduce(f64::max))
    }

    /// The same with a remark.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Row {
        Row {
            note: note.into(),
            ..self
        }
    }
}

/// A figure: a number, or words where the paper has only words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number in the row's unit.
    Number(f64),
    /// A word.
    Text(String),
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Devices::Modelled => "modelled",
            Devices::Emulated => "emulated",
            Devices::Real => "real",
        })
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Evidence::Measured => "measured",
            Evidence::Calibrated => "calibrated",
            Evidence::HeldOut => "held-out",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Agrees => "agrees",
            Verdict::Calibrated => "calibrated",
            Verdict::DirectionOnly => "direction only",
            Verdict::Differs => "differs",
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::FailsOutside => "fails outside the tuned cells",
            Verdict::NotJudged => "not judged in a short run",
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => f.write_str(&readable(*number)),
        }
    }
}

/// A number with four significant digits and thousands apart: what people compare.
fn readable(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let whole_digits = number.abs().log10().floor() as i32 + 1;
    let decimals = (4 - whole_digits).clamp(0, 6) as usize;
    let text = format!("{number:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_four_digits() {
        let shown = |number| Value::Number(number).to_string();
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(17.0345), "17.03");
        assert_eq!(shown(0.081_234), "0.08123");
        assert_eq!(shown(1_234_567.8), "1,234,568");
        assert_eq!(shown(-86_400.0), "-86,400");
        assert_eq!(shown(1.5), "1.5");
    }

    #[test]
    fn a_row_is_the_same_after_json() {
        let row = Row {
            experiment: "cache".to_owned(),
            table: "directions".to_owned(),
            case: "read".to_owned(),
            method: "dmssd-2.5".to_owned(),
            metric: "seconds".to_owned(),
            unit: "s".to_owned(),
            published: Some(Value::Text("higher".to_owned())),
            ours: Some(Value::Number(1.25)),
            low: None,
            high: None,
            devices: Devices::Modelled,
            evidence: Evidence::HeldOut,
            bar: None,
            verdict: Some(Verdict::FailsOutside),
            note: String::new(),
        };
        let json = serde_json::to_string(&row).unwrap();
        assert!(
            json.contains(r#""published":"higher","ours":1.25,"low":null"#),
            "{json}"
        );
        assert!(
            json.contains(r#""evidence":"held-out","bar":null,"verdict":"fails-outside""#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }
}

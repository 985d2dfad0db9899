//! The value in one cell of a sweep's table of results.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A parameter or a measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub enum Figure {
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
    /// A word.
    Text(String),
    /// Yes or no.
    Truth(bool),
}

/// How a figure is kept: numbers as their shortest text, which reads back bit for bit; JSON numbers do not, and know
/// no infinity.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stored {
    I(i64),
    F(String),
    S(String),
    B(bool),
}

impl From<Figure> for Stored {
    fn from(figure: Figure) -> Stored {
        match figure {
            Figure::Whole(number) => Stored::I(number),
            Figure::Real(number) => Stored::F(number.to_string()),
            Figure::Text(text) => Stored::S(text),
            Figure::Truth(truth) => Stored::B(truth),
        }
    }
}

impl From<Stored> for Figure {
    fn from(kept: Stored) -> Figure {
        match kept {
            Stored::I(number) => Figure::Whole(number),
            Stored::F(number) => Figure::Real(number.parse().unwrap_or(f64::NAN)),
            Stored::S(text) => Figure::Text(text),
            Stored::B(truth) => Figure::Truth(truth),
        }
    }
}

impl Figure {
    /// `None` for lists, tables and dates.
    pub(super) fn of_toml(value: &toml::Value) -> Option<Figure> {
        match value {
            toml::Value::Integer(number) => Some(Figure::Whole(*number)),
            toml::Value::Float(number) => Some(Figure::Real(*number)),
            toml::Value::String(text) => Some(Figure::Text(text.clone())),
            toml::Value::Boolean(truth) => Some(Figure::Truth(*truth)),
            _ => None,
        }
    }

    pub(super) fn to_toml(&self) -> toml::Value {
        match self {
            Figure::Whole(number) => toml::Value::Integer(*number),
            Figure::Real(number) => toml::Value::Float(*number),
            Figure::Text(text) => toml::Value::String(text.clone()),
            Figure::Truth(truth) => toml::Value::Boolean(*truth),
        }
    }

    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Figure::Whole(number) => Some(*number as f64),
            Figure::Real(number) => Some(*number),
            Figure::Text(_) | Figure::Truth(_) => None,
        }
    }

    /// For programs; what is no number in JSON is null.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Figure::Whole(number) => (*number).into(),
            Figure::Real(number) => (*number).into(),
            Figure::Text(text) => text.as_str().into(),
            Figure::Truth(truth) => (*truth).into(),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Whole(number) => write!(f, "{number}"),
            Figure::Real(number) => write!(f, "{number}"),
            Figure::Text(text) => f.write_str(text),
            Figure::Truth(truth) => write!(f, "{truth}"),
        }
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.to_owned())
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Figure {
        Figure::Text(text)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Figure {
        Figure::Real(number)
    }
}

impl From<bool> for Figure {
    fn from(truth: bool) -> Figure {
        Figure::Truth(truth)
    }
}

impl From<u64> for Figure {
    /// Counts beyond 2^63 are nothing that is counted here; they are kept as the nearest other number.
    fn from(number: u64) -> Figure {
        i64::try_from(number).map_or(Figure::Real(number as f64), Figure::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_read_back_bit_for_bit() {
        let figures = [
            Figure::Whole(i64::MIN),
            Figure::Real(0.1 + 0.2),
            Figure::Real(1e-310),
            Figure::Real(f64::INFINITY),
            Figure::Real(-0.0),
            Figure::Real(3.0),
            Figure::from("a \"word\"\n"),
            Figure::Truth(true),
            Figure::from(u64::MAX),
        ];
        for figure in figures {
            let text = serde_json::to_string(&figure).unwrap();
            let back: Figure = serde_json::from_str(&text).unwrap();
            assert_eq!(back, figure, "{text}");
            if let (Figure::Real(a), Figure::Real(b)) = (&back, &figure) {
                assert_eq!(a.to_bits(), b.to_bits());
            }
        }
        let nan: Figure = serde_json::from_str("{\"f\":\"NaN\"}").unwrap();
        assert!(nan.number().unwrap().is_nan());
    }
}

//! The form of the default model: which latencies one operation waits for.
//!
//! ```text
//! names of latencies | counts from a trace -> Form: y = cpu + sum n_j L_j -> fitted (model)
//! ```
//!
//! Choice: the form is ours and was fixed before its errors were known, `docs/decisions/0007`.

use serde::Serialize;

use crate::data::Reduced;
use crate::nnls;

/// The terms unless others are asked for: one read of a database page, one batched write.
pub const TERMS: [&str; 2] = ["read-16K-latency", "write-64K-latency"];
/// The parameter over which cells are fitted together.
pub const POOLED: &str = "data_gb";
/// The most terms one form can have.
pub const TERMS_MAX: usize = nnls::COLUMNS_MAX - 1;

/// One term `n L`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// The device's latency it multiplies.
    pub regressor: String,
    /// How often one operation waits for it, if that was counted.
    pub counted: Option<f64>,
}

/// The form of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Form {
    /// Its terms beside the CPU's.
    pub terms: Vec<Term>,
    /// The parameter over which cells are fitted together.
    pub pooled: String,
}

impl Default for Form {
    fn default() -> Form {
        Form::of(&TERMS)
    }
}

impl Form {
    /// One operation waits `n` times for `regressor`, as was counted: a term of its own, where it is none yet.
    ///
    /// # Example
    /// ```
    /// use predict::model::Form;
    /// let mut form = Form::default();
    /// assert!(form.count("read-16K-latency", 0.63) && form.count("flush-latency", 1.0));
    /// assert_eq!(form.terms.len(), 3);
    /// assert!(!form.count("flush-latency", -1.0));
    /// ```
    #[must_use = "a number below 0 counts nothing"]
    pub fn count(&mut self, regressor: &str, n: f64) -> bool {
        if !(n.is_finite() && n >= 0.0) {
            return false;
        }
        match self
            .terms
            .iter_mut()
            .find(|term| term.regressor == regressor)
        {
            Some(term) => term.counted = Some(n),
            None => self.terms.push(Term {
                regressor: regressor.to_owned(),
                counted: Some(n),
            }),
        }
        true
    }

    /// The form with these terms, none counted.
    pub fn of(terms: &[&str]) -> Form {
        Form {
            terms: terms
                .iter()
                .map(|name| Term {
                    regressor: (*name).to_owned(),
                    counted: None,
                })
                .collect(),
            pooled: POOLED.to_owned(),
        }
    }

    /// How many figures have to be fitted: `cpu` and every `n_j` that was not counted.
    pub fn unknowns(&self) -> usize {
        1 + self.terms.iter().filter(|t| t.counted.is_none()).count()
    }

    /// `y = cpu + n1 * read-16K-latency + 0.63 * write-64K-latency`.
    pub fn sentence(&self) -> String {
        let mut text = String::from("y = cpu");
        for (n, term) in self.terms.iter().enumerate() {
            match term.counted {
                Some(count) => text.push_str(&format!(" + {count} * {}", term.regressor)),
                None => text.push_str(&format!(" + n{} * {}", n + 1, term.regressor)),
            }
        }
        text
    }

    /// The latencies of `device` in the terms' order, if it has them all.
    pub fn latencies(&self, data: &Reduced, device: &str) -> Option<Vec<f64>> {
        let figures = self.terms.iter();
        figures
            .map(|term| data.figure(device, &term.regressor))
            .collect()
    }
}

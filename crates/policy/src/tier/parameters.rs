//! What does an administrator choose for a tiering rule, and what is refused?

use base::Nanos;

/// The parameters of the published decision; the paper's symbols in brackets.
///
/// Source: AST table 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// One interval of statistics and decisions (t).
    pub period: Nanos,
    /// Below so many requests a second on the whole volume an interval is ignored (i).
    pub iops_min: f64,
    /// At most so many regions are considered in one interval (n).
    pub sub_luns_max: u32,
    /// The candidates take more than so many percent of all requests (m).
    pub share_min: f64,
    /// So many intervals in a row a group is a candidate before it goes up (c).
    pub streak_min: u32,
    /// After so many intervals in a row outside the candidates a region goes down (o).
    pub timeout: u32,
    /// What the rules beside the published one look back on; none: each its own
    /// ([`StaticTiering::WINDOW`](super::StaticTiering::WINDOW), [`Hystor::WINDOW`](super::Hystor::WINDOW)).
    pub window: Option<Nanos>,
}

impl Default for Parameters {
    /// Those of the paper's measurements.
    fn default() -> Self {
        Parameters {
            period: Nanos::secs(60),
            iops_min: 50.0,
            sub_luns_max: 20,
            share_min: 60.0,
            streak_min: 3,
            timeout: 10,
            window: None,
        }
    }
}

/// Why parameters are refused. Every sentence begins with the parameter's name.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// No time, no statistics.
    #[error("period is 0, and statistics need time; say how long one interval lasts, such as 60s")]
    Period,
    /// Not a rate.
    #[error("iops_min is {0}, which is no number of requests a second; say 0 or more, such as 50")]
    IopsMin(f64),
    /// Nothing could ever be hot.
    #[error("sub_luns_max is 0, so no region could ever go up; say at least 1, such as 20")]
    SubLunsMax,
    /// Not a share.
    #[error("share_min is {0}, which is no share in percent; say 0 to 100, such as 60")]
    ShareMin(f64),
    /// Not a number of intervals.
    #[error(
        "streak_min is 0, and a group is a candidate at least once before it goes up; say at least 1, such as 3"
    )]
    StreakMin,
    /// Not a number of intervals.
    #[error(
        "timeout is 0, so what goes up would go down at once; say at least 1 interval, such as 10"
    )]
    Timeout,
    /// Shorter than one interval.
    #[error("window is {window}, shorter than one period of {period}; say at least one period")]
    Window {
        /// As asked.
        window: Nanos,
        /// What it has to hold.
        period: Nanos,
    },
}

impl Parameters {
    /// Can a rule go by these?
    ///
    /// # Errors
    /// The first parameter that makes no sense, by name.
    ///
    /// # Example
    /// ```
    /// use policy::tier::Parameters;
    /// let asked = Parameters { share_min: 160.0, ..Parameters::default() };
    /// assert_eq!(
    ///     asked.check().unwrap_err().to_string(),
    ///     "share_min is 160, which is no share in percent; say 0 to 100, such as 60"
    /// );
    /// ```
    pub fn check(&self) -> Result<(), ParameterError> {
        let is_rate = self.iops_min.is_finite() && self.iops_min >= 0.0;
        let short = self.window.filter(|window| *window < self.period);
        match () {
            () if self.period == Nanos(0) => Err(ParameterError::Period),
            () if !is_rate => Err(ParameterError::IopsMin(self.iops_min)),
            () if self.sub_luns_max == 0 => Err(ParameterError::SubLunsMax),
            () if !(0.0..=100.0).contains(&self.share_min) => {
                Err(ParameterError::ShareMin(self.share_min))
            }
            () if self.streak_min == 0 => Err(ParameterError::StreakMin),
            () if self.timeout == 0 => Err(ParameterError::Timeout),
            () => match short {
                Some(window) => Err(ParameterError::Window {
                    window,
                    period: self.period,
                }),
                None => Ok(()),
            },
        }
    }

    /// # Panics
    /// With the refusal, if these are refused.
    pub(super) fn assert(&self) {
        if let Err(refused) = self.check() {
            panic!("{refused}");
        }
    }

    /// How many intervals the window holds, or `otherwise` does; a part of one counts as one.
    pub(super) fn window_intervals(&self, otherwise: Nanos) -> u64 {
        let window = self.window.unwrap_or(otherwise);
        window.0.div_ceil(self.period.0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_parameter() {
        let good = Parameters::default();
        assert_eq!(good.check(), Ok(()));
        let edge = Parameters {
            iops_min: 0.0,
            share_min: 100.0,
            window: Some(Nanos::secs(60)),
            ..good
        };
        assert_eq!(edge.check(), Ok(()));
        #[rustfmt::skip]
        let refused = [
            ("period", Parameters { period: Nanos(0), ..good }),
            ("iops_min", Parameters { iops_min: -1.0, ..good }),
            ("iops_min", Parameters { iops_min: f64::NAN, ..good }),
            ("iops_min", Parameters { iops_min: f64::INFINITY, ..good }),
            ("sub_luns_max", Parameters { sub_luns_max: 0, ..good }),
            ("share_min", Parameters { share_min: 100.1, ..good }),
            ("share_min", Parameters { share_min: -0.1, ..good }),
            ("share_min", Parameters { share_min: f64::NAN, ..good }),
            ("streak_min", Parameters { streak_min: 0, ..good }),
            ("timeout", Parameters { timeout: 0, ..good }),
            ("window", Parameters { window: Some(Nanos::secs(59)), ..good }),
        ];
        for (name, parameters) in refused {
            let said = parameters.check().unwrap_err().to_string();
            assert!(said.starts_with(&format!("{name} is ")), "{said}");
        }
    }
}

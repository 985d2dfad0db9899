//! How a trace is to be read.

use base::Nanos;

use super::{Format, TraceError};

/// What a malformed record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bad {
    /// It ends the reading with an error that names it.
    #[default]
    Fatal,
    /// It is left out, counted, and the first few are kept: [`super::Trace::malformed`].
    Count,
}

/// How a trace is to be read; the default reads all of it, whatever its format, and stands no bad record.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format; none: by name and content.
    pub format: Option<Format>,
    /// The length of a unit of time, for the formats that do not say it (`ascii`, `lis`, `cache-csv`,
    /// `oracle-general`); none: what docs/traces.md says of the format.
    pub tick: Option<Nanos>,
    /// What a malformed record does.
    pub bad: Bad,
    /// Only requests at this time since the first request of the trace, or later.
    pub from: Option<Nanos>,
    /// Only requests before this time since the first request of the trace.
    pub to: Option<Nanos>,
    /// Only these devices.
    pub devices: Option<Vec<u32>>,
    /// How much disorder is put right; none: nothing for the normal form, whose order is part of it, and
    /// [`super::REORDER`] for the others.
    pub reorder: Option<Nanos>,
    /// Where `cache-csv` has what, as `time=1,obj=2,size=3,op=4` (columns count from 1) or by the names
    /// in its header (`time=t,obj=lbn`); none: by the header.
    pub columns: Option<String>,
}

impl ReadOptions {
    pub(super) fn check(&self) -> Result<(), TraceError> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            return Err(TraceError::Options(format!(
                "no time lies from {from} to {to}; the start has to come before the end"
            )));
        }
        if self.tick == Some(Nanos(0)) {
            return Err(TraceError::Options(
                "a unit of time of 0 ns tells no time; give at least 1ns".to_owned(),
            ));
        }
        if self.devices.as_ref().is_some_and(Vec::is_empty) {
            return Err(TraceError::Options(
                "an empty list of devices leaves no request; name one at least".to_owned(),
            ));
        }
        Ok(())
    }

    /// What was asked to be left in, for a message.
    pub(super) fn asked(&self) -> String {
        let mut asked = Vec::new();
        if let Some(from) = self.from {
            asked.push(format!("from {from}"));
        }
        if let Some(to) = self.to {
            asked.push(format!("before {to}"));
        }
        if let Some(devices) = &self.devices {
            asked.push(format!("devices {devices:?}"));
        }
        asked.join(", ")
    }
}

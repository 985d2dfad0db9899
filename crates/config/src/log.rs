//! `[log]`: what the daemon's log says.

use super::keys::Keys;

/// How much the log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// Also what may fail next.
    Warn,
    /// Also who came, went and changed something.
    #[default]
    Info,
    /// Also what helps to find a defect.
    Debug,
    /// All there is.
    Trace,
}

impl LogLevel {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

fn read_level(text: &str) -> Result<LogLevel, String> {
    use LogLevel::*;
    let mut all = [Error, Warn, Info, Debug, Trace].into_iter();
    let found = all.find(|level| level.name() == text);
    found.ok_or_else(|| "is no level; write error, warn, info, debug or trace".to_owned())
}

/// Reads the level; without one the usual one.
pub(super) fn read_log(root: &mut Keys<'_, '_>) -> LogLevel {
    let Some(mut keys) = root.table("log") else {
        return LogLevel::default();
    };
    let level = keys.parse_or("level", LogLevel::default(), read_level);
    keys.finish();
    level
}

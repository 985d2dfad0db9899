//! The codes of the verdict, with what each means; `docs/health.md` says more.

use crate::api::health::{HealthCheck, Severity};

/// What a code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    pub name: &'static str,
    pub severity: Severity,
    /// In one sentence.
    pub meaning: &'static str,
}

impl Code {
    /// A check that raises it.
    pub fn raised(
        self,
        about: Option<&str>,
        message: impl Into<String>,
        what_to_do: impl Into<String>,
    ) -> HealthCheck {
        HealthCheck {
            code: self.name.to_owned(),
            severity: self.severity,
            about: about.map(str::to_owned),
            message: message.into(),
            what_to_do: what_to_do.into(),
            muted: false,
        }
    }
}

/// Names each code, and all of them in one list: errors first, and causes before what comes of them.
macro_rules! codes {
    ($($name:ident $severity:ident $meaning:literal)*) => {
        $(pub const $name: Code = Code {
            name: stringify!($name),
            severity: Severity::$severity,
            meaning: $meaning,
        };)*

        /// Every code: errors first, and causes before what comes of them.
        pub const CODES: &[Code] = &[$($name),*];
    };
}

codes! {
    THREAD_SILENT Error "A data thread or a gate has ended or stands still; what is on it is not served."
    META_SILENT Error "The meta store does not answer: open volumes go on, and nothing else of the cluster does."
    CACHE_LOST Error "The cache of a hybrid may hold what its disk has not, and is not there: the hybrid answers nothing."
    STORE_FULL Error "A store, or the stores of a virtual disk, have no room: writes fail."
    CHECKSUM Error "Data were read that are not what was written."
    VOLUME_OFFLINE Error "A volume answers no requests."
    VOLUME_READ_ONLY Error "A volume answers reads and refuses writes."
    EXPORT_CLOSED Error "Clients get no answer from an export of the configuration."
    NODE_DOWN Warning "A node of the cluster does not renew its lease."
    VOLUME_DEGRADED Warning "A volume has fewer copies than it should, or its fast device fails."
    CACHE_DETACHED Warning "A hybrid runs without its fast device, as fast as its disk."
    DIRTY_OLD Warning "Data lie on the fast device alone for longer than they should."
    NEAR_FULL Warning "Less than a tenth of a store is free."
    LEVEL_BEHIND Warning "All nodes of the cluster can do a higher level than the one it is at."
    PROMISE_BROKEN Warning "A reservation got less than it was promised within the last ten minutes."
    OVERCOMMITTED Warning "More is promised than the device is trusted to do."
    CALIBRATION_DUE Warning "A store's device no longer does what it was measured to do."
    FILE_SHADOWED Warning "A line of the configuration is not in force: what was set before it was written stands before it."
    LOG_LOST Warning "Lines of the log were lost within the last hour, or the audit log cannot be written."
    NOT_RESTARTED Warning "The program was replaced, and the daemon still runs the old one."
    IO_URING_REFUSED Warning "The kernel refused io_uring: a thread pool reads and writes files, more slowly."
    CERTIFICATE_ENDS Warning "The node's certificate is over soon."
    DISK_WAITS Warning "A block device of a daemon that ended waits for one."
}

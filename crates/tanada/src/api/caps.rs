//! What clients get at most, and how they waited for it.

use std::fmt::Write as _;

use policy::share::BytesPerSec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Caps of a volume or an export, and what passed under them since they were set or the daemon began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Caps {
    /// Bytes per second; none: no cap.
    pub max_read: Option<u64>,
    pub max_write: Option<u64>,
    /// Requests per second; none: no cap.
    pub max_read_iops: Option<u64>,
    pub max_write_iops: Option<u64>,
    /// Where it is open on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Passed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Passed>,
}

/// What passed one way while there was a cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Passed {
    pub requests: u64,
    pub bytes: u64,
    /// Those that had to wait, and how long all together.
    pub waited: u64,
    pub waited_seconds: f64,
    /// Those that wait now.
    pub waiting: u64,
}

impl Caps {
    /// For people: `reads 20 MB/s and 500 IOPS, writes 5 MB/s`.
    pub fn words(&self) -> String {
        let mut all = Vec::new();
        for (what, rate, requests) in [
            ("reads", self.max_read, self.max_read_iops),
            ("writes", self.max_write, self.max_write_iops),
        ] {
            let rate = rate.map(|rate| BytesPerSec(rate).to_string());
            let requests = requests.map(|requests| format!("{requests} IOPS"));
            let caps: Vec<String> = rate.into_iter().chain(requests).collect();
            if !caps.is_empty() {
                all.push(format!("{what} {}", caps.join(" and ")));
            }
        }
        match all.is_empty() {
            true => "none".to_owned(),
            false => all.join(", "),
        }
    }

    /// The same, and how many waited for it.
    pub fn words_with_waits(&self) -> String {
        let mut words = self.words();
        for (what, passed) in [("reads", &self.read), ("writes", &self.write)] {
            if let Some(passed) = passed.filter(|passed| passed.waited > 0) {
                let (waited, all) = (passed.waited, passed.requests);
                let seconds = passed.waited_seconds / waited as f64;
                let _ = write!(
                    words,
                    "; {waited} of {all} {what} waited, {:.1} ms each",
                    seconds * 1e3
                );
            }
        }
        words
    }
}

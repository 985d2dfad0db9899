//! The configuration, and what is different where it is read anew: `http::reload` does that.

pub mod diff;

use std::path::PathBuf;

use tokio::sync::Mutex;

/// The configuration as it is in force, and where it is read anew.
pub struct Loaded {
    /// None: it is built in, or made of a command line.
    pub file: Option<PathBuf>,
    /// What stands before the file's `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// What is in force, beside settings.
    pub text: Mutex<String>,
}

impl Loaded {
    /// One that no file has.
    pub fn built_in() -> Loaded {
        Loaded {
            file: None,
            data_dir: None,
            text: Mutex::default(),
        }
    }
}

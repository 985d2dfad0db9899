//! Where are the public traces, and what lies beside them?

use std::path::{Path, PathBuf};

/// A file or folder of the public traces; `None`, said aloud, where it is absent and not required.
///
/// # Panics
/// If it is absent and `TANADA_REQUIRE_SHARED` is 1.
pub fn shared(name: &str) -> Option<PathBuf> {
    beside(&format!("traces/{name}"))
}

/// The same of what lies beside them, such as `papers`.
///
/// # Panics
/// As [`shared`].
pub fn beside(name: &str) -> Option<PathBuf> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("TANADA_SHARED").map_or_else(usual, PathBuf::from);
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("TANADA_REQUIRE_SHARED").is_some_and(|value| value == "1");
    assert!(!required, "there is no {}", path.display());
    println!("skipped: there is no {}", path.display());
    None
}

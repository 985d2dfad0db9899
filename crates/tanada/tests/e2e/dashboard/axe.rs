//! axe-core, which looks for what keeps readers out: fetched once, and injected into the page by the debugger.
//!
//! ```text
//! npm pack axe-core@VERSION -> target/tmp -> its checksum -> text of one script
//! ```
//!
//! Always true: a script with another checksum is not run.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::program::without;

const VERSION: &str = "4.10.3";
/// SHA-256 of its `axe.min.js`.
const SUM: &str = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb";

/// The script; `None`, said aloud, where npm is not there or reaches no registry: a failure where tools are required.
pub fn script() -> Option<String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("axe-core-{VERSION}"));
    let file = dir.join("package/axe.min.js");
    if !file.exists() && !fetch(&dir) {
        without(&format!("axe-core {VERSION} by npm"));
        return None;
    }
    let sum = Command::new("sha256sum").arg(&file).output();
    let sum = sum.expect("coreutils are there").stdout;
    let sum = String::from_utf8_lossy(&sum);
    assert!(sum.starts_with(SUM), "{}: {sum}", file.display());
    Some(fs::read_to_string(file).expect("it is text"))
}

fn fetch(dir: &Path) -> bool {
    fs::create_dir_all(dir).expect("the directory is ours");
    let done = |command: &mut Command| {
        let status = command.current_dir(dir).status();
        status.is_ok_and(|status| status.success())
    };
    let package = format!("axe-core@{VERSION}");
    let archive = format!("axe-core-{VERSION}.tgz");
    done(Command::new("npm").args(["pack", &package, "--silent"]))
        && done(Command::new("tar").args(["-xzf", &archive, "package/axe.min.js"]))
}

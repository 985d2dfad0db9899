//! Python's packages that the tests of the package `tanada` use, in `target/python`.
//!
//! ```text
//! python3 -m venv target/python -> pip: maturin builds the wheel, pyarrow reads its columns, awscli and boto3 ask the gateway
//! ```

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::shell::run;
use crate::tidy::tree::project_root;
use crate::trial::Trial;

/// What [`crate::tools::TOOLS`] calls it.
pub const TOOL: &str = "Python with awscli, boto3, maturin and pyarrow";

/// They work where they can be started.
pub const TRIAL: Trial = concat!(
    "p='",
    env!("CARGO_MANIFEST_DIR"),
    "/../target/python/bin/python'; \"$p\" -c 'import boto3, pyarrow'; \
     \"$p\" -m awscli --version; \"$p\" -m maturin --version"
);

/// Of which releases.
const PACKAGES: [&str; 4] = [
    "awscli>=1.37,<2",
    "boto3>=1.36",
    "maturin>=1.9,<2",
    "pyarrow>=14",
];

/// Makes the folder and fills it, as far as that can be done here; what stands in the way is said.
pub fn fill() {
    let folder: PathBuf = project_root().join("target/python");
    let quiet = |command: &mut Command| {
        // Our own output is for results.
        run(command
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::io::stderr())))
    };
    eprintln!("setup: Python's packages into {}", folder.display());
    let made = quiet(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    let filled = made.and_then(|()| {
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]);
        quiet(pip.args(PACKAGES))
    });
    if let Err(error) = filled {
        eprintln!("setup: {error:#}");
    }
}

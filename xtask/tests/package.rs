//! What packages are made from is as it should be: scripts, formats, units.

use xtask::package;
use xtask::shell::answer;

#[test]
fn scripts_formats_and_units_of_the_package_are_good() {
    if answer("systemd-analyze", &["--version"]).is_none() {
        eprintln!("skipped: there is no systemd-analyze (Debian: systemd)");
        return;
    }
    package::sources().unwrap_or_else(|error| panic!("{error:#}"));
}

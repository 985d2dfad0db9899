//! boto3: the distribution's, and the newest that `cargo xtask setup` puts into `target/python`.

use std::process::Command;

use super::{PYTHON, Served, path, said, without};

const DAY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/s3_clients/boto3_day.py"
);

/// Does the day's work with this Python's boto3.
fn work(python: &str) {
    let mut has = Command::new(python);
    has.env("PATH", path()).args(["-c", "import boto3"]);
    if !has.output().is_ok_and(|it| it.status.success()) {
        return without(&format!("boto3 of {python}"));
    }
    let served = Served::start();
    let mut day = served.client(python);
    day.args(["-B", DAY, &served.url, "photos"]);
    println!("{}", said(&mut day));
    served.stop();
}

#[test]
fn boto3_of_the_distribution_does_a_days_work() {
    work("python3");
}

#[test]
fn the_newest_boto3_does_a_days_work() {
    work(&format!("{PYTHON}/python"));
}

//! Which libraries are the packaged programs built from, in which version, under which licence?
//!
//! ```text
//! cargo metadata -> what the two programs reach by dependencies of the build itself -> a line each
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::cargo;

/// The packages of the two programs.
const PROGRAMS: [&str; 2] = ["tanada", "lab"];

/// The list, a line each.
///
/// # Errors
/// If cargo does not answer as it should.
pub fn list() -> Result<String> {
    let out = cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .context("cannot start cargo")?;
    ensure!(
        out.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: Value = serde_json::from_slice(&out.stdout)?;
    listed(&metadata).context("cargo metadata lacks what it should have")
}

/// The list of what comes from elsewhere.
fn listed(metadata: &Value) -> Option<String> {
    let packages = metadata["packages"].as_array()?;
    let reached = reached(metadata)?;
    let mut lines = BTreeSet::new();
    for package in packages {
        let is_ours = package["source"].is_null();
        if is_ours || !reached.contains(package["id"].as_str()?) {
            continue;
        }
        let of = |key: &str| package[key].as_str().unwrap_or("-").to_owned();
        lines.insert(format!(
            "{} {}: {}, {}",
            of("name"),
            of("version"),
            of("license"),
            of("repository")
        ));
    }
    let mut text =
        "Libraries in tanada and tanada-lab: name, version, licence, source.\n\n".to_owned();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    Some(text)
}

/// The packages that the programs hold, by identity: no tools of the build, no tests.
fn reached(metadata: &Value) -> Option<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let packages = metadata["packages"].as_array()?;
    let mut todo: Vec<&str> = packages
        .iter()
        .filter(|it| it["source"].is_null() && PROGRAMS.iter().any(|name| it["name"] == *name))
        .filter_map(|it| it["id"].as_str())
        .collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if !reached.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|it| it["id"] == *id)?;
        for dependency in node["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            if kinds.iter().any(|it| it["kind"].is_null()) {
                todo.extend(dependency["pkg"].as_str());
            }
        }
    }
    Some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn libraries_of_the_programs_are_listed_and_those_of_tests_are_not() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "repository": null, "source": source});
        let from = json!("registry");
        let depends = |on: &str, kind: Value| json!({"pkg": on, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("tanada", Value::Null), package("lab", Value::Null), package("base", Value::Null),
                package("io", from.clone()), package("cc", from.clone()), package("probe", from.clone()),
                package("other", from),
            ],
            "resolve": {"nodes": [
                {"id": "tanada", "deps": [depends("base", Value::Null), depends("probe", json!("dev"))]},
                {"id": "lab", "deps": []},
                {"id": "base", "deps": [depends("io", Value::Null), depends("cc", json!("build"))]},
                {"id": "io", "deps": []}, {"id": "cc", "deps": []}, {"id": "probe", "deps": []}, {"id": "other", "deps": []},
            ]},
        });
        let text = listed(&metadata).expect("it has all of it");
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines, ["io 1.0.0: MIT, -"]);
    }
}

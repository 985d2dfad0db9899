//! Does each crate see only those below it?
//!
//! Each manifest's dependencies, of every kind and target, beside the order of the crates.

use super::finding::Finding;
use super::tree::Tree;

/// The crates from the top terrace to the bottom one: each sees only those behind it.
pub const TERRACES: [&str; 26] = [
    "client-py",
    "tanada",
    "lab",
    "experiments",
    "published",
    "predict",
    "config",
    "sim",
    "report",
    "trace",
    "front",
    "reservations",
    "access",
    "s3",
    "files",
    "vdisk",
    "store",
    "hybrid",
    "ledger",
    "device",
    "tls",
    "env",
    "replication",
    "policy",
    "base",
    "testkit",
];

/// These see nothing but `base`, whatever stands between.
const SEE_ONLY_BASE: [&str; 2] = ["policy", "env"];

/// The daemon goes without these: they bring a database's client, Parquet and linear algebra.
const NOT_IN_THE_DAEMON: [&str; 4] = ["lab", "experiments", "published", "predict"];

/// For tests alone: never among the dependencies of a product.
const FOR_TESTS: &str = "testkit";

/// A crate sees only those behind it in `TERRACES`, and takes the workspace's lints.
#[must_use]
pub fn order(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let dir = file
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(dir) = dir else { continue };
        let broken = of_manifest(dir, &tree.text(file).unwrap_or_default());
        findings.extend(broken.into_iter().map(|(line, what)| Finding {
            file: file.clone(),
            line,
            rule: "order",
            what,
        }));
    }
    findings
}

/// What is wrong with the manifest of the crate `dir`, with lines.
fn of_manifest(dir: &str, text: &str) -> Vec<(usize, String)> {
    let manifest: toml::Table = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return vec![(0, format!("is not TOML: {}", error.message()))],
    };
    let Some(place) = TERRACES.iter().position(|name| *name == dir) else {
        let what = format!(
            "crate `{dir}` has no place in the order ({}); give it one in xtask/src/tidy/order.rs \
             and ARCHITECTURE.md",
            TERRACES.join(", ")
        );
        return vec![(0, what)];
    };
    let mut broken = Vec::new();
    let inherits = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .and_then(toml::Value::as_bool);
    if inherits != Some(true) {
        broken.push((0, "lacks `[lints] workspace = true`".to_owned()));
    }
    let product = manifest.get("dependencies").and_then(toml::Value::as_table);
    if product.is_some_and(|names| names.contains_key(FOR_TESTS)) {
        let what = format!("`{FOR_TESTS}` is for tests: put it into [dev-dependencies]");
        broken.push((0, what));
    }
    for dependency in dependencies(&manifest) {
        let name = dependency.as_str();
        let Some(seen) = TERRACES.iter().position(|crate_name| *crate_name == name) else {
            continue;
        };
        let line = 1 + text
            .lines()
            .position(|line| line.trim_start().starts_with(dependency.as_str()))
            .unwrap_or_default();
        if seen <= place {
            let order = TERRACES.join(", ");
            let what =
                format!("`{dir}` may not see `{name}`, which lies above it; the order is {order}");
            broken.push((line, what));
        } else if dir == "tanada" && NOT_IN_THE_DAEMON.contains(&name) {
            let what = format!("the daemon may not see `{name}`; its commands belong to `lab`");
            broken.push((line, what));
        } else if SEE_ONLY_BASE.contains(&dir) && name != "base" {
            broken.push((line, format!("`{dir}` may see only `base`, not `{name}`")));
        }
    }
    broken
}

/// The names of all dependencies, of every kind and target.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut names = Vec::new();
    let mut gather = |table: &toml::Table| {
        for kind in kinds {
            let Some(entries) = table.get(kind).and_then(toml::Value::as_table) else {
                continue;
            };
            for (name, entry) in entries {
                // A renamed dependency is known by its package.
                let package = entry.get("package").and_then(toml::Value::as_str);
                names.push(package.unwrap_or(name).to_owned());
            }
        }
    };
    gather(manifest);
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        for target in targets.values().filter_map(toml::Value::as_table) {
            gather(target);
        }
    }
    names
}

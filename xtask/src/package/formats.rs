//! Does `packaging/formats`, which decides whether a downgrade is allowed, say what the program writes?
//!
//! ```text
//! each format: its version in the source, its line in the table -> equal? the first version of the package not later than now?
//! ```
//!
//! Always true: a format's version does not rise without a line that says since when it is read.

use std::fs;
use std::path::Path;

/// Each format, and where its version stands: a file and a constant.
const SOURCES: [(&str, &str, &str); 18] = [
    ("ledger", "crates/ledger/src/layout.rs", "VERSION"),
    (
        "hybrid-label",
        "crates/hybrid/src/attach/lane.rs",
        "LANES_VERSION",
    ),
    (
        "restart-log",
        "crates/hybrid/src/durable/restart.rs",
        "VERSION",
    ),
    (
        "pairs",
        "crates/tanada/src/daemon/common/pairs.rs",
        "VERSION",
    ),
    (
        "settings",
        "crates/tanada/src/daemon/common/saved_settings.rs",
        "VERSION",
    ),
    ("store", "crates/store/src/object/layout.rs", "VERSION"),
    (
        "store-calendar",
        "crates/store/src/qos/book/raw.rs",
        "VERSION",
    ),
    ("map", "crates/vdisk/src/map/node.rs", "VERSION"),
    ("image", "crates/vdisk/src/image/record.rs", "VERSION"),
    ("volume", "crates/replication/src/record.rs", "VERSION"),
    ("trash", "crates/replication/src/trash.rs", "VERSION"),
    ("stores", "crates/vdisk/src/cluster/stores.rs", "VERSION"),
    ("s3-index", "crates/s3/src/index/tables.rs", "LAYOUT"),
    (
        "meta-store",
        "crates/vdisk/src/meta/redb/error.rs",
        "VERSION",
    ),
    (
        "reservation",
        "crates/reservations/src/record.rs",
        "VERSION",
    ),
    (
        "allotment",
        "crates/reservations/src/allotment.rs",
        "VERSION",
    ),
    ("account-usage", "crates/access/src/usage.rs", "VERSION"),
    (LEVEL, "crates/vdisk/src/cluster/level.rs", "HIGHEST"),
];

/// The format that has a line for each version, since any may be in force.
const LEVEL: &str = "cluster-level";

/// The table.
const TABLE: &str = "packaging/formats";

/// What is wrong with the table of the tree at `root`.
#[must_use]
pub fn mistakes(root: &Path) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let table = read(TABLE);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let mut found = Vec::new();
    for (name, file, constant) in SOURCES {
        let Some(version) = constant_of(&read(file), constant) else {
            found.push(format!(
                "{file} has no number {constant}, which {TABLE} takes as the version of {name}"
            ));
            continue;
        };
        let written = lines.iter().filter(|line| line.first() == Some(&name));
        let written: Vec<&str> = written
            .map(|line| if line.len() == 3 { line[1] } else { "" })
            .collect();
        let highest = version.parse().unwrap_or(1);
        let levels: Vec<String> = (1..=highest).map(|level: u32| level.to_string()).collect();
        let is_good = match name == LEVEL {
            true => written == levels,
            false => written == [version.as_str()],
        };
        match is_good {
            true => {}
            false => found.push(format!(
                "{TABLE}: {name} is {version} in {file}; write \"{name} {version} V\", V being the first version of the package \
                 that reads it"
            )),
        }
    }
    for line in &lines {
        if !SOURCES.iter().any(|(name, ..)| line.first() == Some(name)) {
            found.push(format!("{TABLE}: there is no format {}", line.join(" ")));
        }
    }
    found
}

/// `const NAME: u32 = 2;`
fn constant_of(source: &str, name: &str) -> Option<String> {
    source.lines().find_map(|line| {
        let (before, value) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let (declared, _) = before.split_once(": u")?;
        let is_it = declared.ends_with(&format!("const {name}"));
        (is_it && value.parse::<u32>().is_ok()).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::project_root;

    /// Versions that are of no format of the daemon's state: of what others write, of the wire, which agrees on one at each connection,
    /// of files of the laboratory, and of formats that another constant stands for.
    const OTHERS: [&str; 9] = [
        "crates/experiments/src/app/outcome.rs",
        "crates/front/src/vhost/inflight.rs",
        "crates/front/src/vhost/message.rs",
        "crates/hybrid/src/attach/label.rs",
        "crates/store/src/net/wire/mod.rs",
        "crates/store/src/net/wire/state.rs",
        "crates/trace/src/blktrace.rs",
        "crates/vdisk/src/cluster/forward.rs",
        "crates/vdisk/src/cluster/level.rs",
    ];

    #[test]
    fn each_version_in_the_source_is_of_a_format_or_of_none() {
        let root = project_root();
        let mut files = vec![root.join("crates")];
        let mut seen = 0;
        while let Some(file) = files.pop() {
            if file.is_dir() {
                let is_ours = |it: &std::path::PathBuf| !it.ends_with("tests");
                let below = fs::read_dir(&file)
                    .expect("a folder")
                    .map(|it| it.unwrap().path());
                files.extend(below.filter(is_ours));
                continue;
            }
            let source = fs::read_to_string(&file).unwrap_or_default();
            if constant_of(&source, "VERSION").is_none() {
                continue;
            }
            let name = file.strip_prefix(&root).unwrap().display().to_string();
            let listed = SOURCES.iter().any(|(_, file, _)| *file == name);
            assert!(
                listed || OTHERS.contains(&&*name),
                "{name} is no format in {TABLE}"
            );
            seen += 1;
        }
        assert!(seen > 20, "{seen} versions");
    }

    #[test]
    fn a_version_is_found_whatever_stands_before_it() {
        let source = "const OTHER_VERSION: u32 = 9;\npub(crate) const VERSION: u32 = 2;\n";
        assert_eq!(constant_of(source, "VERSION").as_deref(), Some("2"));
        assert_eq!(
            constant_of("const VERSION: u64 = 1;", "VERSION").as_deref(),
            Some("1")
        );
        for none in ["const VERSION: u32 = OTHER;", "// const VERSION", ""] {
            assert_eq!(constant_of(none, "VERSION"), None, "{none}");
        }
    }

    #[test]
    fn a_format_whose_version_rose_is_to_be_written_down() {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, file, constant) in SOURCES {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let version = if name == "store" { 2 } else { 1 };
            fs::write(path, format!("const {constant}: u32 = {version};\n")).expect("written");
        }
        let mut table: String = SOURCES
            .iter()
            .map(|(name, ..)| format!("{name} 1 0.1.0\n"))
            .collect();
        table.push_str("gone 1 0.1.0\n");
        fs::create_dir(dir.path().join("packaging")).expect("made");
        fs::write(dir.path().join(TABLE), table).expect("written");
        let found = mistakes(dir.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("store is 2 in crates/store"), "{found:?}");
        assert!(found[1].contains("there is no format gone"), "{found:?}");
    }
}

//! Is what is written by tools current, and is nothing too large?

use super::finding::Finding;
use super::papers;
use super::tree::Tree;

/// No file is longer: what is bigger is data, and data is generated or lives elsewhere.
const FILE_MAX_BYTES: u64 = 512 * 1024;

/// docs/papers.md is what the marks say.
#[must_use]
pub fn papers_current(tree: &Tree) -> Vec<Finding> {
    if papers::is_current(tree) {
        return Vec::new();
    }
    vec![Finding {
        file: papers::TABLE.to_owned(),
        line: 0,
        rule: "papers",
        what: "is not what the `Source:` marks say; run `cargo xtask papers`".to_owned(),
    }]
}

/// Cargo.lock is there and names no source but the public registry.
#[must_use]
pub fn lock(tree: &Tree) -> Vec<Finding> {
    let file = "Cargo.lock";
    let finding = |line, what: String| Finding {
        file: file.to_owned(),
        line,
        rule: "lock",
        what,
    };
    let Some(text) = tree.text(file).filter(|_| tree.has(file)) else {
        return vec![finding(
            0,
            "is missing; `cargo metadata` writes it".to_owned(),
        )];
    };
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    text.lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("source = ") && *line != public)
        .map(|(i, line)| finding(i + 1, format!("`{line}` is not the public registry")))
        .collect()
}

/// No file is longer than 512 KiB.
#[must_use]
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter_map(|file| {
            let size = tree.root.join(file).metadata().ok()?.len();
            (size > FILE_MAX_BYTES).then(|| Finding {
                file: file.clone(),
                line: 0,
                rule: "sizes",
                what: format!(
                    "holds {size} bytes, more than the {FILE_MAX_BYTES} a file may; generate it or \
                     keep it outside"
                ),
            })
        })
        .collect()
}

//! What do the rules of size, names and imports look at in a Rust file?
//!
//! ```text
//! text -> tokens, syntax tree -> functions, types, impls, imports, declared names, comments, strings
//! ```
//!
//! What only tests see is marked as such: files below `tests/`, `benches/`, `fuzz/`, modules that are declared
//! under `#[cfg(test)]` with all that is below them, and items under `#[cfg(test)]` or `#[test]`.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::TokenStream;

use super::facts::Source;
use super::look::look;
use super::rust_text;
use super::tree::Tree;

/// All Rust files of the project, taken apart.
#[derive(Debug)]
pub struct Sources {
    /// By name.
    pub files: Vec<Source>,
}

impl Sources {
    /// Takes all Rust files of `tree` apart, on as many threads as there are cores.
    #[must_use]
    pub fn of(tree: &Tree) -> Sources {
        let names: Vec<&str> = tree.with_extension("rs").collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut files: Vec<Source> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|first| {
                    let names = &names;
                    scope.spawn(move || {
                        let mine = names.iter().skip(first).step_by(threads);
                        mine.map(|name| take_apart(name, &tree.text(name).unwrap_or_default()))
                            .collect::<Vec<Source>>()
                    })
                })
                .collect();
            running
                .into_iter()
                .flat_map(|thread| {
                    thread
                        .join()
                        .expect("a file is taken apart without a panic")
                })
                .collect()
        });
        files.sort_by(|a, b| a.file.cmp(&b.file));
        let mut sources = Sources { files };
        sources.mark_test_modules();
        sources
    }

    /// The files that are no tests.
    pub fn product(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|source| !source.test)
    }

    /// The files that are no tests of each crate, by its directory.
    #[must_use]
    pub fn by_crate(&self) -> BTreeMap<&str, Vec<&Source>> {
        let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
        for source in self.product() {
            if let Some((dir, _)) = source.file.split_once("/src/") {
                crates.entry(dir).or_default().push(source);
            }
        }
        crates
    }

    /// A module that is declared for tests is a test, and so is what is below it.
    fn mark_test_modules(&mut self) {
        let mut below = Vec::new();
        for source in &self.files {
            let beside = source.file.rsplit_once('/').map_or("", |(dir, _)| dir);
            for (name, _) in source.modules.iter().filter(|(_, test)| *test) {
                // A path that is written out begins beside the file.
                let dir = match name.strip_suffix(".rs") {
                    Some(_) => beside.to_owned(),
                    None => module_dir(&source.file),
                };
                let name = name.trim_end_matches(".rs");
                below.push(format!("{dir}/{name}.rs"));
                below.push(format!("{dir}/{name}/"));
            }
        }
        for source in &mut self.files {
            source.test |= below.iter().any(|test| {
                source.file == *test || (test.ends_with('/') && source.file.starts_with(test))
            });
        }
    }
}

/// The directory in which the modules of a file lie.
#[must_use]
pub fn module_dir(file: &str) -> String {
    let (dir, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => dir.to_owned(),
        _ => format!("{dir}/{}", name.trim_end_matches(".rs")),
    }
}

/// Takes one file apart.
fn take_apart(file: &str, text: &str) -> Source {
    let mut source = Source {
        file: file.to_owned(),
        test: is_test_path(file),
        ..Source::default()
    };
    let parsed = TokenStream::from_str(text)
        .map_err(|error| error.to_string())
        .and_then(|tokens| {
            (source.lines, source.strings) = rust_text::take_apart(text, &tokens);
            syn::parse2::<syn::File>(tokens).map_err(|error| error.to_string())
        });
    match parsed {
        Ok(parsed) => {
            let test_lines;
            (source, test_lines) = look(source, &parsed);
            source.product_lines = text.lines().count() - test_lines;
        }
        Err(error) => source.error = Some(error),
    }
    proc_macro2::extra::invalidate_current_thread_spans();
    source
}

fn is_test_path(file: &str) -> bool {
    let mut parts = file.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "examples" | "fuzz" | "tests.rs"))
}

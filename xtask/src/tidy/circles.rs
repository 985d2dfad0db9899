//! Which files and folders of a crate import each other in a circle?
//!
//! ```text
//! `use` and paths -> the file that has the name -> edges between files -> strongly connected components
//! ```
//!
//! A folder is a directory of modules, `x.rs` beside `x/` being one of its files. Two measures, of product code:
//!
//! - `folders`: an import from one folder into another that lies on a circle of folders. Each such edge is an entry.
//! - `circles`: how many files of a crate lie on one circle of imports, if more than five, by the folder that most of
//!   them lie in.
//!
//! What a module declares and hands on (`pub use`) is followed to the file that has it; handing on is no import.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Import, Source};
use super::finding::Measure;
use super::source::Sources;

/// So many files may import each other in a circle: a module and its parts.
const CIRCLE_MAX_FILES: usize = 5;

/// The modules of one crate.
pub(super) struct Modules<'a> {
    /// Module path (`volume::io`) to file.
    files: BTreeMap<Vec<String>, &'a Source>,
}

/// What imports what, and from where.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// What leads to what.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The circles of all crates.
#[must_use]
pub fn circles(sources: &Sources) -> Vec<Measure> {
    let mut measures = Vec::new();
    for (name, files) in sources.by_crate() {
        let modules = Modules::of(name, &files);
        let edges = modules.edges();
        measures.extend(between_folders(&edges));
        measures.extend(of_files(&edges));
    }
    measures
}

/// The folder that a file belongs to: `x.rs` beside `x/` belongs into it.
fn folder<'a>(file: &'a str, folders: &BTreeSet<String>) -> &'a str {
    let own = file.trim_end_matches(".rs");
    if folders.contains(own) {
        return own;
    }
    file.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn folders_of(edges: &Edges<'_>) -> BTreeSet<String> {
    let dirs = edges.keys().filter_map(|file| file.rsplit_once('/'));
    dirs.map(|(dir, _)| dir.to_owned()).collect()
}

fn between_folders(edges: &Edges<'_>) -> Vec<Measure> {
    let folders = folders_of(edges);
    // Folder to folder, with a place that shows it.
    let mut between: BTreeMap<&str, BTreeMap<&str, (usize, &str, usize)>> = BTreeMap::new();
    for (from, tos) in edges {
        for (to, line) in tos {
            let (a, b) = (folder(from, &folders), folder(to, &folders));
            between.entry(b).or_default();
            if a != b {
                let edge = between
                    .entry(a)
                    .or_default()
                    .entry(b)
                    .or_insert((0, from, *line));
                edge.0 += 1;
            }
        }
    }
    let graph: Graph<'_> = between
        .iter()
        .map(|(from, tos)| (*from, tos.keys().copied().collect()))
        .collect();
    let component = components(&graph);
    let mut measures = Vec::new();
    for (from, tos) in &between {
        for (to, (_, file, line)) in tos {
            if component[from] != component[to] {
                continue;
            }
            measures.push(Measure {
                rule: "folders",
                key: format!("{from} -> {to}"),
                now: 1,
                limit: 0,
                file: (*file).to_owned(),
                line: *line,
                what: format!("folder {from} imports from {to}, and {to} from {from}, perhaps by way of others: a circle; move what both need below both"),
            });
        }
    }
    measures
}

/// Circles of more files than may be in one, by the folder that most of them lie in.
fn of_files(edges: &Edges<'_>) -> Vec<Measure> {
    let folders = folders_of(edges);
    let graph: Graph<'_> = edges
        .iter()
        .map(|(from, tos)| (*from, tos.keys().copied().collect()))
        .collect();
    let mut circles: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (file, number) in components(&graph) {
        circles.entry(number).or_default().push(file);
    }
    circles.retain(|_, files| files.len() > CIRCLE_MAX_FILES);
    let mut by_folder: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for files in circles.into_values() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for file in &files {
            *counts.entry(folder(file, &folders)).or_default() += 1;
        }
        let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
        let (most, _) = most.expect("a circle has files");
        by_folder.entry(most).or_default().extend(files);
    }
    let measure = |(dir, files): (&str, Vec<&str>)| Measure {
        rule: "circles",
        key: dir.to_owned(),
        now: files.len(),
        limit: CIRCLE_MAX_FILES,
        file: dir.to_owned(),
        line: 0,
        what: format!(
            "{} files import each other in circles ({})",
            files.len(),
            files.join(", ")
        ),
    };
    by_folder.into_iter().map(measure).collect()
}

/// The number of each node's strongly connected component.
///
/// Source: Tarjan, Depth-first search and linear graph algorithms, 1972, in Kosaraju's form of two passes.
fn components<'a>(graph: &Graph<'a>) -> BTreeMap<&'a str, usize> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for node in graph.keys() {
        finish(graph, node, &mut seen, &mut order);
    }
    let mut back: Graph<'_> = BTreeMap::new();
    for (from, tos) in graph {
        for to in tos {
            back.entry(to).or_default().insert(from);
        }
    }
    let mut component = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (number, node) in order.iter().rev().enumerate() {
        let mut members = Vec::new();
        finish(&back, node, &mut seen, &mut members);
        component.extend(members.into_iter().map(|member| (member, number)));
    }
    component
}

/// Adds what is reached from `node` and not `seen` to `order`, each behind what it leads to.
fn finish<'a>(
    graph: &Graph<'a>,
    node: &'a str,
    seen: &mut BTreeSet<&'a str>,
    order: &mut Vec<&'a str>,
) {
    if !seen.insert(node) {
        return;
    }
    for to in graph.get(node).into_iter().flatten() {
        finish(graph, to, seen, order);
    }
    order.push(node);
}

impl<'a> Modules<'a> {
    pub(super) fn of(crate_dir: &str, files: &[&'a Source]) -> Modules<'a> {
        let src = format!("{crate_dir}/src/");
        let path = |file: &str| {
            let inside = file.strip_prefix(&src)?.strip_suffix(".rs")?;
            let mut path: Vec<String> = inside.split('/').map(str::to_owned).collect();
            let own = path.last().is_some_and(|last| last == "mod");
            let root = inside == "lib" || inside == "main";
            if own || root {
                path.pop();
            }
            Some(path)
        };
        Modules {
            files: files
                .iter()
                .filter_map(|source| Some((path(&source.file)?, *source)))
                .collect(),
        }
    }

    fn edges(&self) -> Edges<'a> {
        let mut edges: Edges<'a> = BTreeMap::new();
        for (module, source) in &self.files {
            let tos = edges.entry(&source.file).or_default();
            for import in &source.imports {
                let Some(path) = self.absolute(module, source, import) else {
                    continue;
                };
                // A module that hands on what is its own imports nothing.
                if import.public && path.len() > module.len() && path.starts_with(module) {
                    continue;
                }
                if let Some(to) = self.file_of(&path, 0).filter(|to| to.file != source.file) {
                    tos.entry(&to.file).or_insert(import.line);
                }
            }
        }
        edges
    }

    /// The file that has what is called `path` in `source`.
    pub(super) fn named(&self, source: &Source, path: &[String]) -> Option<&'a Source> {
        let (module, _) = self.files.iter().find(|(_, it)| it.file == source.file)?;
        let import = Import {
            path: path.to_vec(),
            name: None,
            public: false,
            depth: 0,
            line: 0,
        };
        let whole = self.absolute(module, source, &import).unwrap_or_else(|| {
            let mut whole = module.clone();
            whole.extend(path.iter().cloned());
            whole
        });
        self.file_of(&whole, 0)
    }

    /// The path from the crate's root on; `None` if it leads out of the crate or nowhere.
    fn absolute(&self, module: &[String], source: &Source, import: &Import) -> Option<Vec<String>> {
        let mut rest = &import.path[..];
        let mut at = match rest.first()?.as_str() {
            "crate" => {
                rest = &rest[1..];
                Vec::new()
            }
            "self" => {
                rest = &rest[1..];
                module.to_vec()
            }
            "super" => module.to_vec(),
            child if source.modules.iter().any(|(name, _)| name == child) => module.to_vec(),
            _ => return None,
        };
        let mut depth = import.depth;
        while rest.first().is_some_and(|part| part == "super") {
            rest = &rest[1..];
            if depth > 0 {
                depth -= 1;
            } else {
                at.pop()?;
            }
        }
        at.extend(rest.iter().cloned());
        Some(at)
    }

    /// The file that has what `path` names, through what modules hand on.
    fn file_of(&self, path: &[String], steps: usize) -> Option<&'a Source> {
        let (module, source) = (0..=path.len())
            .rev()
            .find_map(|length| self.files.get_key_value(&path[..length]))?;
        let source: &'a Source = source;
        let Some(name) = path.get(module.len()) else {
            return Some(source);
        };
        if source.items.contains(name) || name == "*" || steps > 8 {
            return Some(source);
        }
        let uses = source.imports.iter().filter(|import| import.depth == 0);
        for import in uses {
            let last = import.path.last().map(String::as_str);
            let Some(mut whole) = self.absolute(module, source, import) else {
                continue;
            };
            if import.name.as_ref() == Some(name) {
                whole.extend(path[module.len() + 1..].iter().cloned());
                return self.file_of(&whole, steps + 1);
            }
            if last == Some("*") {
                whole.pop();
                whole.extend(path[module.len()..].iter().cloned());
                let found = self.file_of(&whole, steps + 1);
                if found.is_some_and(|found| found.items.contains(name)) {
                    return found;
                }
            }
        }
        Some(source)
    }
}

//! Is a type small, and does it stand in one file?
//!
//! What counts, in product code:
//!
//! - `fields`: the fields of a struct, a union, or one variant of an enum.
//! - `methods`: the functions of all its inherent `impl`s in the crate.
//! - `spread`: the files in which these stand.
//!
//! An `impl` of a trait counts for neither, for a trait is a boundary of its own, but one: a trait that is not `pub`
//! and has one `impl` in the crate is an inherent `impl` under another name, and counts as one.
//!
//! An `impl` belongs to the type of that name in the same file, else to what the file's imports lead to, else to
//! the one nearest above it.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::Modules;
use super::facts::{Impl, Source};
use super::finding::Measure;
use super::source::Sources;

/// Fields a type may have.
const FIELDS_MAX: usize = 15;

/// Methods a type may have.
const METHODS_MAX: usize = 30;

/// Files a type's methods may stand in.
const SPREAD_MAX_FILES: usize = 1;

/// The fields of each type.
#[must_use]
pub fn fields(sources: &Sources) -> Vec<Measure> {
    let mut most: BTreeMap<String, Measure> = BTreeMap::new();
    for source in sources.product() {
        for it in &source.types {
            let key = format!("{}::{}", source.file, it.name);
            let measure = Measure {
                rule: "fields",
                key: key.clone(),
                now: it.fields,
                limit: FIELDS_MAX,
                file: source.file.clone(),
                line: it.line,
                what: format!(
                    "`{}` has {} fields; group what changes together",
                    it.name, it.fields
                ),
            };
            let known = most.entry(key).or_insert_with(|| measure.clone());
            if measure.now > known.now {
                *known = measure;
            }
        }
    }
    most.into_values().collect()
}

/// What belongs to one type.
struct Own<'a> {
    source: &'a Source,
    name: &'a str,
    line: usize,
    methods: usize,
    files: BTreeSet<&'a str>,
}

/// The methods of each type, and the files they stand in.
#[must_use]
pub fn methods(sources: &Sources) -> Vec<Measure> {
    let mut measures = Vec::new();
    for (dir, files) in sources.by_crate() {
        for own in of_crate(dir, &files) {
            let key = format!("{}::{}", own.source.file, own.name);
            let measure = |rule, now, limit, what| Measure {
                rule,
                key: key.clone(),
                now,
                limit,
                file: own.source.file.clone(),
                line: own.line,
                what,
            };
            let what = format!("`{}` has {} methods; split it", own.name, own.methods);
            measures.push(measure("methods", own.methods, METHODS_MAX, what));
            let places: Vec<&str> = own.files.iter().copied().collect();
            let what = format!(
                "the methods of `{}` stand in {} files ({}); bring them together, or give each part a type",
                own.name,
                places.len(),
                places.join(", ")
            );
            measures.push(measure("spread", places.len(), SPREAD_MAX_FILES, what));
        }
    }
    measures
}

/// The types of one crate with their methods.
fn of_crate<'a>(dir: &str, files: &[&'a Source]) -> Vec<Own<'a>> {
    let modules = Modules::of(dir, files);
    let mut types: BTreeMap<(&str, &str), Own<'a>> = BTreeMap::new();
    for source in files {
        for it in source.types.iter().filter(|it| !it.name.contains("::")) {
            types.insert(
                (&source.file, &it.name),
                Own {
                    source,
                    name: &it.name,
                    line: it.line,
                    methods: 0,
                    files: BTreeSet::new(),
                },
            );
        }
    }
    let inherent = Inherent::of(files);
    for source in files {
        for block in source.impls.iter().filter(|block| inherent.is(block)) {
            let Some(name) = block.of.last() else {
                continue;
            };
            let candidates: Vec<&str> = types
                .keys()
                .filter(|(_, known)| known == name)
                .map(|(file, _)| *file)
                .collect();
            let Some(file) = declared_in(&modules, source, block, &candidates) else {
                continue;
            };
            let own = types
                .get_mut(&(file, name.as_str()))
                .expect("it is a candidate");
            own.methods += block.methods;
            own.files.insert(&source.file);
        }
    }
    types.into_values().filter(|own| own.methods > 0).collect()
}

/// Which blocks count as inherent?
struct Inherent {
    /// How many blocks each trait that is not `pub` has.
    private: BTreeMap<String, usize>,
}

impl Inherent {
    fn of(files: &[&Source]) -> Inherent {
        let mut private: BTreeMap<String, usize> = files
            .iter()
            .flat_map(|source| &source.private_traits)
            .map(|name| (name.clone(), 0))
            .collect();
        for block in files.iter().flat_map(|source| &source.impls) {
            if let Some(count) = block.trait_name.as_ref().and_then(|it| private.get_mut(it)) {
                *count += 1;
            }
        }
        Inherent { private }
    }

    fn is(&self, block: &Impl) -> bool {
        match &block.trait_name {
            None => true,
            Some(name) => self.private.get(name) == Some(&1),
        }
    }
}

/// Which of the files with a type of that name the block means.
fn declared_in<'a>(
    modules: &Modules<'_>,
    source: &Source,
    block: &Impl,
    candidates: &[&'a str],
) -> Option<&'a str> {
    let among = |file: &str| candidates.iter().copied().find(|it| *it == file);
    if let Some(own) = among(&source.file).filter(|_| block.of.len() == 1) {
        return Some(own);
    }
    if let Some(found) = modules
        .named(source, &block.of)
        .and_then(|file| among(&file.file))
    {
        return Some(found);
    }
    let common = |file: &str| {
        let pairs = file.split('/').zip(source.file.split('/'));
        pairs.take_while(|(a, b)| a == b).count()
    };
    candidates.iter().copied().max_by_key(|file| common(file))
}

//! The plain facts about a Rust file that the rules of size, names and imports look at.

use std::collections::BTreeSet;

use super::rust_text::{Line, Text};

/// One Rust file.
#[derive(Debug, Default)]
pub struct Source {
    /// Its name, relative to the workspace.
    pub file: String,
    /// Do only tests see it?
    pub test: bool,
    /// Why it could not be read; all else is then empty.
    pub error: Option<String>,
    /// Lines outside of items under `#[cfg(test)]`.
    pub product_lines: usize,
    /// Functions with a body.
    pub functions: Vec<Function>,
    /// Structs, unions and the variants of enums.
    pub types: Vec<Type>,
    /// Implementations.
    pub impls: Vec<Impl>,
    /// The names of its traits that are not `pub`.
    pub private_traits: Vec<String>,
    /// The names of its items and modules.
    pub items: BTreeSet<String>,
    /// Modules in files of their own, by name or by the path that is written out, and whether they are for tests.
    pub modules: Vec<(String, bool)>,
    /// `use` and paths with their first part, outside of tests.
    pub imports: Vec<Import>,
    /// The names that are given here, with their lines.
    pub names: Vec<(String, usize)>,
    /// Code and comments by line.
    pub lines: Vec<Line>,
    /// Strings.
    pub strings: Vec<Text>,
}

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// `f`, `Type::f`, `Trait for Type::f`, with the modules of the file around it.
    pub name: String,
    /// Where its `fn` stands, from 1.
    pub line: usize,
    /// Lines from its `fn` to its last brace.
    pub lines: usize,
}

/// A struct, a union, or a variant of an enum (`Enum::Variant`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// Its name.
    pub name: String,
    /// Where it stands, from 1.
    pub line: usize,
    /// How many fields it has.
    pub fields: usize,
}

/// One `impl` block outside of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impl {
    /// The type's path as it is written.
    pub of: Vec<String>,
    /// The last part of the trait's path.
    pub trait_name: Option<String>,
    /// Where it stands, from 1.
    pub line: usize,
    /// How many functions it has.
    pub methods: usize,
}

/// A path that leads to another module, perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its parts; the last may be `*`.
    pub path: Vec<String>,
    /// What it is called here, if it comes from a `use`.
    pub name: Option<String>,
    /// Does it hand the name on (`pub use`)?
    pub public: bool,
    /// Inline modules around it.
    pub depth: usize,
    /// Where it stands, from 1.
    pub line: usize,
}

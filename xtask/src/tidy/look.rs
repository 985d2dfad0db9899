//! What is in the syntax tree of a Rust file that `source` wants to know?
//!
//! One walk with syn's visitor. Items under `#[cfg(test)]` and `#[test]` add nothing but the names they give.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::facts::{Function, Impl, Import, Source, Type};

/// Adds what `file` has to `source`, and answers how many of its lines are for tests.
#[must_use]
pub fn look(source: Source, file: &syn::File) -> (Source, usize) {
    let mut look = Look {
        source,
        ..Look::default()
    };
    look.visit_file(file);
    (look.source, look.test_lines)
}

/// Gathers while it walks the syntax tree.
#[derive(Default)]
struct Look {
    source: Source,
    /// How many items around this one are for tests.
    in_test: usize,
    test_lines: usize,
    /// The inline modules, types and functions around this one.
    around: Vec<String>,
    /// Inline modules around this one.
    modules: usize,
}

impl Look {
    fn name(&mut self, ident: &Ident) {
        let name = ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
        self.source.names.push((name, ident.span().start().line));
    }

    /// Walks an item, as a test if its attributes say so.
    fn within(
        &mut self,
        attrs: &[syn::Attribute],
        whole: &dyn Spanned,
        walk: impl FnOnce(&mut Look),
    ) {
        let test = attrs.iter().any(is_for_tests);
        if test && self.in_test == 0 {
            let span = whole.span();
            self.test_lines += span.end().line + 1 - span.start().line;
        }
        self.in_test += usize::from(test);
        walk(self);
        self.in_test -= usize::from(test);
    }

    fn inside(&mut self, name: String, walk: impl FnOnce(&mut Look)) {
        self.around.push(name);
        walk(self);
        self.around.pop();
    }

    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) {
        if self.in_test > 0 {
            return;
        }
        let line = sig.fn_token.span.start().line;
        let mut name = self.around.join("::");
        if !name.is_empty() {
            name.push_str("::");
        }
        name.push_str(&sig.ident.to_string());
        self.source.functions.push(Function {
            name,
            line,
            lines: block.brace_token.span.close().end().line + 1 - line,
        });
    }

    fn fields(&mut self, name: String, ident: &Ident, fields: &syn::Fields) {
        if self.in_test == 0 {
            self.source.types.push(Type {
                name,
                line: ident.span().start().line,
                fields: fields.len(),
            });
        }
    }

    fn import(&mut self, path: Vec<String>, name: Option<String>, public: bool, line: usize) {
        if self.in_test == 0 {
            self.source.imports.push(Import {
                path,
                name,
                public,
                depth: self.modules,
                line,
            });
        }
    }

    fn use_tree(&mut self, before: &[String], tree: &syn::UseTree, public: bool) {
        let with = |ident: &Ident| {
            let mut path = before.to_vec();
            path.push(ident.to_string());
            path
        };
        match tree {
            syn::UseTree::Path(inner) => self.use_tree(&with(&inner.ident), &inner.tree, public),
            syn::UseTree::Name(it) if it.ident == "self" => {
                let name = before.last().cloned();
                self.import(before.to_vec(), name, public, it.ident.span().start().line);
            }
            syn::UseTree::Name(it) => {
                let name = Some(it.ident.to_string());
                self.import(with(&it.ident), name, public, it.ident.span().start().line);
            }
            syn::UseTree::Rename(it) => {
                self.name(&it.rename);
                let name = Some(it.rename.to_string());
                self.import(with(&it.ident), name, public, it.ident.span().start().line);
            }
            syn::UseTree::Glob(it) => {
                let mut path = before.to_vec();
                path.push("*".to_owned());
                self.import(path, None, public, it.star_token.spans[0].start().line);
            }
            syn::UseTree::Group(group) => {
                for item in &group.items {
                    self.use_tree(before, item, public);
                }
            }
        }
    }

    /// Paths and declared names inside of a macro, as far as its tokens show them.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let ident = |i: usize| match tokens.get(i) {
            Some(TokenTree::Ident(ident)) => Some(ident),
            _ => None,
        };
        let colons = |i: usize| {
            (0..2).all(
                |n| matches!(tokens.get(i + n), Some(TokenTree::Punct(p)) if p.as_char() == ':'),
            )
        };
        let mut i = 0;
        while i < tokens.len() {
            if let TokenTree::Group(group) = &tokens[i] {
                self.tokens(group.stream());
            }
            if let Some(first) = ident(i) {
                let word = first.to_string();
                if GIVES_A_NAME.contains(&word.as_str())
                    && let Some(name) = ident(i + 1).cloned()
                {
                    self.name(&name);
                }
                let mut path = vec![word];
                while colons(i + 1) {
                    let Some(next) = ident(i + 3) else { break };
                    path.push(next.to_string());
                    i += 3;
                }
                if path.len() > 1 {
                    self.import(path, None, false, first.span().start().line);
                }
            }
            i += 1;
        }
    }
}

const GIVES_A_NAME: [&str; 8] = [
    "fn", "let", "mut", "struct", "enum", "const", "static", "mod",
];

/// `#[cfg(test)]`, `#[cfg(all(test, ..))]`, `#[test]`.
fn is_for_tests(attr: &syn::Attribute) -> bool {
    if attr.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attr.meta else {
        return false;
    };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let words = list.tokens.to_string();
    let mut all = words.split([' ', '(', ',', ')']);
    words == "test"
        || words.starts_with("all") && all.any(|word| word == "test") && !words.contains("not")
}

fn attrs_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Union(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn parts(path: &syn::Path) -> Vec<String> {
    path.segments
        .iter()
        .map(|part| part.ident.to_string())
        .collect()
}

impl<'ast> Visit<'ast> for Look {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.within(attrs_of(item), item, |look| visit::visit_item(look, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.name(&item.ident);
        let name = item.ident.to_string();
        if item.content.is_none() {
            let mut path = None;
            for attr in item
                .attrs
                .iter()
                .filter(|attr| attr.path().is_ident("path"))
            {
                if let syn::Meta::NameValue(meta) = &attr.meta {
                    path = string_of(&meta.value);
                }
            }
            let test = self.in_test > 0;
            self.source
                .modules
                .push((path.unwrap_or(name.clone()), test));
        }
        if self.around.is_empty() {
            self.source.items.insert(name.clone());
        }
        self.modules += 1;
        self.inside(name, |look| visit::visit_item_mod(look, item));
        self.modules -= 1;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        if self.around.is_empty() {
            self.source.items.insert(item.sig.ident.to_string());
        }
        self.inside(item.sig.ident.to_string(), |look| {
            visit::visit_item_fn(look, item)
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.attrs, item, |look| {
            look.function(&item.sig, &item.block);
            look.inside(item.sig.ident.to_string(), |look| {
                visit::visit_impl_item_fn(look, item)
            });
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        self.inside(item.sig.ident.to_string(), |look| {
            visit::visit_trait_item_fn(look, item)
        });
    }

    fn visit_signature(&mut self, sig: &'ast syn::Signature) {
        self.name(&sig.ident);
        visit::visit_signature(self, sig);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        self.fields(item.ident.to_string(), &item.ident, &item.fields);
        self.inside(item.ident.to_string(), |look| {
            visit::visit_item_struct(look, item)
        });
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        for variant in &item.variants {
            let name = format!("{}::{}", item.ident, variant.ident);
            self.fields(name, &variant.ident, &variant.fields);
        }
        // An impl finds its type here.
        self.fields(item.ident.to_string(), &item.ident, &syn::Fields::Unit);
        self.inside(item.ident.to_string(), |look| {
            visit::visit_item_enum(look, item)
        });
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        if !matches!(item.vis, syn::Visibility::Public(_)) && self.in_test == 0 {
            self.source.private_traits.push(item.ident.to_string());
        }
        self.inside(item.ident.to_string(), |look| {
            visit::visit_item_trait(look, item)
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(path) => parts(&path.path),
            _ => Vec::new(),
        };
        let trait_name = item.trait_.as_ref().map(|(path, _)| {
            let last = path.segments.last().expect("a path has a part");
            last.ident.to_string()
        });
        let last = of.last().cloned().unwrap_or_default();
        let name = match &trait_name {
            Some(trait_name) => format!("{trait_name} for {last}"),
            None => last,
        };
        if self.in_test == 0 {
            let functions = item.items.iter().filter(|item| match item {
                syn::ImplItem::Fn(it) => !it.attrs.iter().any(is_for_tests),
                _ => false,
            });
            self.source.impls.push(Impl {
                of,
                trait_name,
                line: item.impl_token.span.start().line,
                methods: functions.count(),
            });
        }
        self.inside(name, |look| visit::visit_item_impl(look, item));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&[], &item.tree, public);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        visit::visit_item_type(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.name(&item.ident);
        self.source.items.insert(item.ident.to_string());
        visit::visit_item_static(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Some(ident) = &item.ident {
            self.name(ident);
            self.source.items.insert(ident.to_string());
        }
        visit::visit_item_macro(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.name(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.name(ident);
        }
        visit::visit_field(self, field);
    }

    /// A short `Type { field }` gives no name of its own.
    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        if field.colon_token.is_some() {
            visit::visit_field_pat(self, field);
        }
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        // With a capital it is a constant or a variant that is looked for.
        if !pat.ident.to_string().starts_with(char::is_uppercase) {
            self.name(&pat.ident);
        }
        visit::visit_pat_ident(self, pat);
    }

    fn visit_type_param(&mut self, param: &'ast syn::TypeParam) {
        self.name(&param.ident);
        visit::visit_type_param(self, param);
    }

    fn visit_const_param(&mut self, param: &'ast syn::ConstParam) {
        self.name(&param.ident);
        visit::visit_const_param(self, param);
    }

    fn visit_lifetime_param(&mut self, param: &'ast syn::LifetimeParam) {
        self.name(&param.lifetime.ident);
    }

    fn visit_label(&mut self, label: &'ast syn::Label) {
        self.name(&label.name.ident);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.import(parts(path), None, false, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }

    /// Attributes name no modules of ours.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn string_of(expr: &syn::Expr) -> Option<String> {
    match expr {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(it),
            ..
        }) => Some(it.value()),
        _ => None,
    }
}

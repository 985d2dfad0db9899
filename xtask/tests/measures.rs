//! Each measure refuses what is above it, and accepts it within a baseline that only shrinks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::tidy::baseline::Baseline;
use xtask::tidy::commits::{Commit, commits, since};
use xtask::tidy::finding::{Finding, Measure};
use xtask::tidy::measures;
use xtask::tidy::source::Sources;
use xtask::tidy::tree::Tree;

/// What a tree of these files measures.
fn measured(files: &[(&str, &str)]) -> Vec<Measure> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    let tree = Tree::at(dir.path()).expect("the fixture can be read");
    let sources = Sources::of(&tree);
    for source in &sources.files {
        assert_eq!(source.error, None, "{}", source.file);
    }
    measures(&tree, &sources)
}

/// What is above its measure, as "rule key number".
fn over(files: &[(&str, &str)]) -> Vec<String> {
    measured(files)
        .iter()
        .filter(|it| it.now > it.limit)
        .map(|it| format!("{} {} {}", it.rule, it.key, it.now))
        .collect()
}

/// The rules and places of what a baseline does not accept.
fn refused(baseline: &Baseline, measures: &[Measure]) -> Vec<String> {
    let findings = baseline.compare(measures);
    findings
        .iter()
        .map(|it| format!("{} {}", it.rule, it.file))
        .collect()
}

/// `old` is refused without a baseline and accepted with its own; `worse` is refused beside that one.
fn only_shrinks(rule: &str, old: &[(&str, &str)], worse: &[(&str, &str)]) {
    let (old, worse) = (measured(old), measured(worse));
    let of_rule = |findings: &[Finding]| findings.iter().any(|it| it.rule == rule);
    assert!(of_rule(&Baseline::default().compare(&old)), "{old:?}");
    let baseline = Baseline::accepting(&old);
    assert_eq!(baseline.compare(&old), []);
    assert!(of_rule(&baseline.compare(&worse)), "{worse:?}");
    assert_eq!(
        baseline.shrunk(&worse),
        baseline,
        "what became more is not taken in"
    );
}

fn lines(count: usize) -> String {
    "// A line.\n".repeat(count)
}

fn function(lines: usize) -> String {
    format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
}

fn structure(fields: usize) -> String {
    let mut text = "struct S {\n".to_owned();
    for i in 0..fields {
        let _ = writeln!(text, "    f{i}: u8,");
    }
    text + "}\n"
}

fn methods(of: &str, count: usize) -> String {
    let mut text = format!("impl {of} {{\n");
    for i in 0..count {
        let _ = writeln!(text, "    fn m{i}() {{}}");
    }
    text + "}\n"
}

const FILE: &str = "crates/a/src/x.rs";

#[test]
fn a_file_over_500_product_lines_is_refused() {
    assert!(over(&[(FILE, &lines(500))]).is_empty());
    assert_eq!(
        over(&[(FILE, &lines(501))]),
        ["files crates/a/src/x.rs 501"]
    );
    only_shrinks("files", &[(FILE, &lines(501))], &[(FILE, &lines(502))]);
}

#[test]
fn lines_of_tests_do_not_count() {
    let inside = format!(
        "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
        lines(500),
        lines(50)
    );
    assert!(over(&[(FILE, &inside)]).is_empty());
    let fixture = format!("{}#[cfg(not(test))]\nmod real {{\n}}\n", lines(500));
    assert_eq!(over(&[(FILE, &fixture)]).len(), 1);
    let long = lines(501);
    for test in [
        "crates/a/tests/x.rs",
        "crates/a/src/x/tests/y.rs",
        "fuzz/x.rs",
    ] {
        assert!(over(&[(test, &long)]).is_empty(), "{test}");
    }
    let declared = "#[cfg(test)]\nmod twin;\n#[cfg(test)]\n#[path = \"apart.rs\"]\nmod away;\n";
    let parts = [
        (FILE, declared),
        ("crates/a/src/x/twin.rs", &long),
        ("crates/a/src/x/twin/part.rs", &long),
        ("crates/a/src/apart.rs", &long),
    ];
    assert!(over(&parts).is_empty());
}

#[test]
fn a_function_over_60_lines_is_refused() {
    assert!(over(&[(FILE, &function(60))]).is_empty());
    assert_eq!(
        over(&[(FILE, &function(61))]),
        ["functions crates/a/src/x.rs::f 61"]
    );
    let method = format!("impl T for S {{\n{}}}\n", function(61));
    assert_eq!(
        over(&[(FILE, &method)]),
        ["functions crates/a/src/x.rs::T for S::f 61"]
    );
    let test = format!("#[test]\n{}", function(61));
    assert!(over(&[(FILE, &test)]).is_empty());
    only_shrinks(
        "functions",
        &[(FILE, &function(61))],
        &[(FILE, &function(62))],
    );
}

#[test]
fn a_16th_field_is_refused() {
    assert!(over(&[(FILE, &structure(15))]).is_empty());
    assert_eq!(
        over(&[(FILE, &structure(16))]),
        ["fields crates/a/src/x.rs::S 16"]
    );
    let variant = structure(16).replace("struct S {", "enum E { V {") + "}\n";
    assert_eq!(
        over(&[(FILE, &variant)]),
        ["fields crates/a/src/x.rs::E::V 16"]
    );
    only_shrinks(
        "fields",
        &[(FILE, &structure(16))],
        &[(FILE, &structure(17))],
    );
}

#[test]
fn a_31st_method_is_refused() {
    let with = |count: usize, more: &str| format!("struct S;\n{}{more}", methods("S", count));
    assert!(over(&[(FILE, &with(30, ""))]).is_empty());
    let refused = ["methods crates/a/src/x.rs::S 31"];
    assert_eq!(over(&[(FILE, &with(31, ""))]), refused);
    assert_eq!(over(&[(FILE, &with(30, &methods("S", 1)))]), refused);
    // A trait is a boundary of its own, unless it is there for this type alone.
    let of_trait = methods("T for S", 1);
    assert!(over(&[(FILE, &with(30, &format!("pub trait T {{}}\n{of_trait}")))]).is_empty());
    assert_eq!(
        over(&[(FILE, &with(30, &format!("trait T {{}}\n{of_trait}")))]),
        refused
    );
    let shared = format!("trait T {{}}\nstruct R;\nimpl T for R {{}}\n{of_trait}");
    assert!(over(&[(FILE, &with(30, &shared))]).is_empty());
    only_shrinks(
        "methods",
        &[(FILE, &with(31, ""))],
        &[(FILE, &with(32, ""))],
    );
}

#[test]
fn methods_of_a_type_in_two_files_are_refused() {
    let root = "mod a;\nmod b;\nmod c;\n";
    let one = format!("pub struct S;\n{}", methods("S", 1));
    let two = format!("use super::a::S;\n{}", methods("S", 1));
    let at = |file: &'static str| format!("crates/a/src/{file}.rs");
    let (lib, a, b, c) = (at("lib"), at("a"), at("b"), at("c"));
    assert!(over(&[(&lib, root), (&a, &one)]).is_empty());
    let spread = [(&*lib, root), (&*a, &one), (&*b, &two)];
    assert_eq!(over(&spread), ["spread crates/a/src/a.rs::S 2"]);
    // A type of the same name elsewhere is another one.
    assert!(over(&[(&lib, root), (&a, &one), (&b, &one)]).is_empty());
    let more = [(&*lib, root), (&*a, &one), (&*b, &two), (&*c, &two)];
    only_shrinks("spread", &spread, &more);
}

#[test]
fn an_import_circle_across_folders_is_refused() {
    let lib = ("crates/a/src/lib.rs", "mod up;\nmod down;\n");
    let up = (
        "crates/a/src/up/mod.rs",
        "use crate::down::D;\npub struct U;\n",
    );
    let down = "pub struct D;\n";
    let flat = [lib, up, ("crates/a/src/down/mod.rs", down)];
    assert!(over(&flat).is_empty());
    let back = [
        "use crate::up::U;\npub struct D;\n",
        "pub struct D(super::up::U);\n",
        "pub struct D;\nfn f() { assert!(crate::up::U == 1) }\n",
    ];
    for text in back {
        let circle = [lib, up, ("crates/a/src/down/mod.rs", text)];
        assert_eq!(
            over(&circle),
            [
                "folders crates/a/src/down -> crates/a/src/up 1",
                "folders crates/a/src/up -> crates/a/src/down 1"
            ],
            "{text}"
        );
        let test = format!("pub struct D;\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert!(over(&[lib, up, ("crates/a/src/down/mod.rs", &test)]).is_empty());
    }
    let circle = [lib, up, ("crates/a/src/down/mod.rs", back[0])];
    let third = ("crates/a/src/side/mod.rs", "use crate::up::U;\n");
    let wider = (
        "crates/a/src/down/mod.rs",
        "use crate::up::U;\nuse crate::side::X;\npub struct D;\n",
    );
    only_shrinks("folders", &circle, &[lib, up, third, wider]);
}

#[test]
fn handing_a_name_on_is_no_import_and_is_followed() {
    // `up` has what it needs of `down` by way of the crate's root, which hands on what both have.
    let files = [
        (
            "crates/a/src/lib.rs",
            "mod up;\nmod down;\npub use up::U;\npub use down::*;\n",
        ),
        ("crates/a/src/up/mod.rs", "use crate::D;\npub struct U;\n"),
        ("crates/a/src/down/mod.rs", "pub struct D;\n"),
    ];
    assert!(over(&files).is_empty());
    let mut circle = files;
    circle[2].1 = "use crate::U;\npub struct D;\n";
    assert_eq!(over(&circle).len(), 2);
}

#[test]
fn a_circle_of_more_than_five_files_is_refused() {
    let ring = |count: usize| {
        let mut files = vec![("crates/a/src/lib.rs".to_owned(), String::new())];
        for i in 0..count {
            files[0].1.push_str(&format!("mod m{i};\n"));
            let next = (i + 1) % count;
            let text = format!("use super::m{next}::S{next};\npub struct S{i};\n");
            files.push((format!("crates/a/src/m{i}.rs"), text));
        }
        files
    };
    let as_parts = |files: &[(String, String)]| -> Vec<Measure> {
        let parts: Vec<(&str, &str)> = files.iter().map(|(a, b)| (&**a, &**b)).collect();
        measured(&parts)
    };
    let (five, six, seven) = (as_parts(&ring(5)), as_parts(&ring(6)), as_parts(&ring(7)));
    assert_eq!(Baseline::default().compare(&five), []);
    assert_eq!(
        refused(&Baseline::default(), &six),
        ["circles crates/a/src"]
    );
    let baseline = Baseline::accepting(&six);
    assert_eq!(baseline.compare(&six), []);
    assert_eq!(refused(&baseline, &seven), ["circles crates/a/src"]);
}

#[test]
fn a_refused_word_in_a_name_is_found() {
    let of = |word: &str| vec![format!("words crates/a/src/x.rs: {word} 1")];
    for (text, word) in [
        ("fn mend() {}", "mend"),
        ("fn mends_it() {}", "mend"),
        ("fn put_out() {}", "put_out"),
        ("struct PutOut;", "put_out"),
        ("const IS_SHUT: u8 = 1;", "is_shut"),
        ("struct S { patience: u8 }", "patience"),
        ("enum E { Doomed }", "doomed"),
        ("fn f(owed: u8) {}", "owed"),
        ("fn f() { let young = 1; }", "young"),
        ("fn f() { m!(let told = 1); }", "told"),
        ("trait Heed {}", "heed"),
        ("struct Ghost;", "ghost"),
        ("struct Twin;", "Twin"),
        ("enum E { Seen }", "Seen"),
        ("fn tell() {}", "tell"),
        ("use a::B as Kept;", "Kept"),
        ("macro_rules! story { () => {} }", "story"),
    ] {
        assert_eq!(over(&[(FILE, text)]), of(word), "{text}");
    }
    assert_eq!(
        over(&[("crates/a/src/mend.rs", "")]),
        ["words crates/a/src/mend.rs: mend 1"]
    );
    for text in [
        "fn amend(recommend: u8, rideable: u8, storey: u8) {}",
        "fn f() { x.mend(); let Some(S { told, .. }) = y else { return }; }",
        "struct Twins; fn telling(seen: u8) {} mod known {}",
        "fn out_put(put: u8, out: u8) {}",
        "#[serde(rename = \"weakest\")] struct S;",
    ] {
        assert!(over(&[(FILE, text)]).is_empty(), "{text}");
    }
    assert!(over(&[("crates/policy/src/cache/arc.rs", "struct Ghost;")]).is_empty());
}

#[test]
fn a_refused_word_in_prose_is_found() {
    // Put together here so that this file itself keeps the rule.
    let join = |parts: [&str; 2]| parts.concat();
    for (sentence, word) in [
        (join(["Some", "body waits."]), "somebody"),
        (join(["It is no", "body's turn."]), "nobody"),
        (join(["Who", "ever waits is served."]), "whoever"),
        (join(["It is h", "is turn."]), "his"),
        (join(["And h", "e waits."]), "he"),
        (join(["by h", "imself"]), "him"),
        (join(["The record is in ", "doubt."]), "in_doubt"),
        (join(["It goes by ", "itself."]), "goes_by_itself"),
        (join(["Dirty pages are brought h", "ome."]), "home"),
        (join(["a h", "ome for hot data"]), "home"),
    ] {
        let found = [format!("words {FILE}: {word} 1")];
        for text in [
            format!("// {sentence}\n"),
            format!("/// {sentence}\nfn f() {{}}\n"),
            format!("/* a\n   {sentence} */\n"),
            format!("#[error(\"{sentence} at {{0}}\")]\nstruct S;\n"),
            format!("fn f() {{ bail!(\"{sentence} at {{x}}\") }}\n"),
            format!("// {}\n", sentence.replace(' ', "\n// ")),
        ] {
            assert_eq!(over(&[(FILE, &text)]), found, "{text}");
            let with_code =
                format!("// `{sentence}`\n\n/// ```text\n/// {sentence}\n/// ```\nfn f() {{}}\n");
            assert!(over(&[(FILE, &with_code)]).is_empty(), "{sentence}");
        }
        let page = format!("# A\n\n{sentence}\n\n> {sentence}\n\n```text\n{sentence}\n```\n");
        assert_eq!(
            over(&[("docs/a.md", &page)]),
            [format!("words docs/a.md: {word} 1")]
        );
        let twice = format!("// {sentence}\n\n// {sentence}\n");
        only_shrinks(
            "words",
            &[(FILE, &format!("// {sentence}\n"))],
            &[(FILE, &twice)],
        );
    }
    let fine = format!(
        "//! The user's home directory, $HOME, and ~/home/x; the history; this theme; doubtless.\n\
                const A: &str = \"{}\";\n",
        join(["h", "is"])
    );
    assert!(over(&[(FILE, &fine)]).is_empty());
}

#[test]
fn a_commit_subject_has_its_form() {
    let said = |subject: &str| {
        let hash = "1234567".to_owned();
        let subject = subject.to_owned();
        commits(&[Commit { hash, subject }])
    };
    let long = format!("vdisk: {}", "x".repeat(66));
    for (subject, what) in [
        (long.as_str(), "73 characters"),
        ("retry a write", "not of the form"),
        ("Vdisk: retry a write", "not of the form"),
        ("vdisk: ", "not of the form"),
        ("tanada trace stat: count", "not of the form"),
        ("vdisk: retry a write.", "full stop"),
    ] {
        let findings = said(subject);
        assert_eq!(findings.len(), 1, "{subject}: {findings:?}");
        assert!(findings[0].what.contains(what), "{}", findings[0]);
    }
    for subject in [
        &long[..72],
        "vdisk: retry a write",
        "hybrid, store: share the commit",
    ] {
        assert_eq!(said(subject), [], "{subject}");
    }
}

#[test]
fn commits_are_checked_behind_the_recorded_one_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let skipped = since(dir.path(), "abc").expect_err("there is no git");
    assert!(skipped.contains("no git"), "{skipped}");
    let git = |args: &[&str]| {
        let own = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "commit.gpgsign=false",
        ];
        let out = Command::new("git")
            .arg("-C")
            .arg(dir.path())
            .args(own)
            .args(args)
            .output()
            .expect("git runs");
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&[
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        "The first.",
    ]);
    let first = git(&["rev-parse", "HEAD"]);
    git(&[
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        "a: the second",
    ]);
    let subjects: Vec<String> = since(dir.path(), &first)
        .expect("it leads here")
        .into_iter()
        .map(|commit| commit.subject)
        .collect();
    assert_eq!(subjects, ["a: the second"]);
    let absent = "0123456789012345678901234567890123456789";
    let skipped = since(dir.path(), absent).expect_err("there is no such commit");
    assert!(skipped.contains(absent), "{skipped}");
    assert!(Path::new(dir.path()).exists());
}

#[test]
fn what_became_less_is_to_be_written_down() {
    let old = measured(&[(FILE, &lines(600)), ("crates/a/src/y.rs", &lines(700))]);
    let baseline = Baseline::accepting(&old);
    let less = measured(&[(FILE, &lines(550)), ("crates/a/src/y.rs", &lines(400))]);
    let findings = baseline.compare(&less);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().all(|it| it.what.contains("tidy --shrink")));
    let shrunk = baseline.shrunk(&less);
    assert_eq!(shrunk.compare(&less), []);
    assert_eq!(shrunk, Baseline::accepting(&less));
}

#[test]
fn an_entry_goes_along_with_what_moves() {
    let word = "fn told() {}\n";
    let twice = word.repeat(2);
    let old = measured(&[(FILE, &function(90)), ("crates/a/src/w.rs", &twice)]);
    let baseline = Baseline::accepting(&old);
    let moved = measured(&[
        ("crates/b/src/y.rs", &function(90)),
        ("crates/a/src/w.rs", word),
        ("crates/a/src/v.rs", word),
    ]);
    assert!(!baseline.compare(&moved).is_empty());
    let shrunk = baseline.shrunk(&moved);
    assert_eq!(shrunk.compare(&moved), []);
    // Longer than what went is more.
    let longer = measured(&[("crates/b/src/y.rs", &function(91))]);
    let refused = refused(&baseline.shrunk(&longer), &longer);
    assert_eq!(refused, ["functions crates/b/src/y.rs"]);
}

#[test]
fn an_entry_added_by_hand_is_above_the_ceiling() {
    let old = measured(&[(FILE, &lines(600))]);
    let both = measured(&[(FILE, &lines(600)), ("crates/a/src/y.rs", &lines(501))]);
    let text = Baseline::accepting(&old).text();
    let by_hand = text.replace(
        "\n[files]",
        "\n[files] # by hand\n\"crates/a/src/y.rs\" = 501 #",
    );
    let baseline = Baseline::parse(&by_hand).expect("it has the form");
    assert_eq!(refused(&baseline, &both), ["baseline xtask/baseline.toml"]);
    assert_eq!(
        refused(&baseline.shrunk(&both), &both),
        ["baseline xtask/baseline.toml"]
    );
}

#[test]
fn a_baseline_reads_what_it_wrote() {
    let text = "[commits]\nafter = \"abc\"\n[ceilings]\nfiles = { entries = 1, sum = 601 }\n\
                [files]\n\"crates/a/src/x.rs\" = { now = 601, reason = \"a flat table\" }\n";
    let baseline = Baseline::parse(text).expect("it has the form");
    let written = baseline.text();
    assert!(
        written.contains("{ now = 601, reason = \"a flat table\" }"),
        "{written}"
    );
    assert_eq!(
        Baseline::parse(&written).expect("it has the form").text(),
        written
    );
    let same = baseline.shrunk(&measured(&[(FILE, &lines(601))]));
    assert_eq!(same.text(), written);
    for wrong in [
        "x",
        "[files]\na = \"b\"\n",
        "[attic]\na = 1\n",
        "[ceilings]\nfiles = 1\n",
    ] {
        assert!(Baseline::parse(wrong).is_err(), "{wrong}");
    }
}

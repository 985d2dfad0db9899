//! The tree keeps its rules, and each rule catches the breach it is for.

use std::fs;
use std::path::Path;

use xtask::tidy::benchmarks;
use xtask::tidy::check;
use xtask::tidy::experiments;
use xtask::tidy::finding::Finding;
use xtask::tidy::papers;
use xtask::tidy::tree::Tree;

/// A small tree without a fault.
fn clean_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    plant(dir.path(), "Cargo.lock", "version = 4\n");
    plant(dir.path(), "crates/env/Cargo.toml", &manifest(&["base"]));
    plant(
        dir.path(),
        "crates/env/src/lib.rs",
        "//! Head.\n\n/// Source: AST 1\npub fn f() {}\n",
    );
    plant(
        dir.path(),
        "docs/guide.md",
        "# Guide\n\n## The second part\n",
    );
    let tree = Tree::at(dir.path()).expect("the fixture can be read");
    papers::write(&tree).expect("the table can be written");
    dir
}

fn manifest(dependencies: &[&str]) -> String {
    let mut text =
        "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n".to_owned();
    for name in dependencies {
        text.push_str(&format!("{name}.workspace = true\n"));
    }
    text
}

fn plant(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

/// What tidy says about the clean tree with one file planted in it.
fn findings_with(file: &str, text: &str) -> Vec<Finding> {
    let dir = clean_tree();
    plant(dir.path(), file, text);
    check(&Tree::at(dir.path()).expect("the fixture can be read"))
}

#[test]
fn an_alert_that_names_no_metric_of_the_page_is_found() {
    let page = "# Metrics\n\n| family | type |\n|---|---|\n| `tanada_a_total` | counter |\n| `tanada_b_seconds` | histogram |\n";
    let rules = "expr: tanada_a_total + tanada_b_seconds_bucket\nexpr: tanada_b_seconds\nexpr: rate(tanada_c_total[5m])\n";
    let dir = clean_tree();
    plant(dir.path(), "docs/metrics.md", page);
    plant(dir.path(), "packaging/prometheus/a.rules.yml", rules);
    let found = check(&Tree::at(dir.path()).expect("the fixture can be read"));
    let found: Vec<_> = found.iter().map(|it| (it.rule, it.line)).collect();
    assert_eq!(found, [("metrics", 2), ("metrics", 3)]);
}

/// The only finding, which must be of `rule`.
fn caught(rule: &str, file: &str, text: &str) -> Finding {
    let mut findings = findings_with(file, text);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.remove(0);
    assert_eq!(
        (finding.rule, finding.file.as_str()),
        (rule, file),
        "{finding}"
    );
    finding
}

#[test]
fn the_tree_keeps_its_rules() {
    let tree = Tree::of_project().expect("the project can be read");
    let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_clean_tree_has_nothing_to_say() {
    let dir = clean_tree();
    let tree = Tree::at(dir.path()).expect("the fixture can be read");
    assert_eq!(check(&tree), []);
}

#[test]
fn an_edge_up_the_terraces_is_refused() {
    let finding = caught(
        "order",
        "crates/device/Cargo.toml",
        &manifest(&["base", "ledger"]),
    );
    assert_eq!(finding.line, 9);
    assert!(
        finding.what.contains("`device` may not see `ledger`"),
        "{finding}"
    );
    let own =
        "[package]\nname = \"x\"\n[lints]\nworkspace = true\n[dev-dependencies]\nhybrid = \"0\"\n";
    caught("order", "crates/ledger/Cargo.toml", own);
    let renamed = "[lints]\nworkspace = true\n[target.'cfg(unix)'.dependencies]\nx = { package = \"front\" }\n";
    caught("order", "crates/hybrid/Cargo.toml", renamed);
    let product = manifest(&["testkit"]);
    let for_tests = caught("order", "crates/store/Cargo.toml", &product);
    assert!(for_tests.what.contains("is for tests"), "{for_tests}");
    let heavy = caught("order", "crates/tanada/Cargo.toml", &manifest(&["predict"]));
    assert!(
        heavy.what.contains("the daemon may not see `predict`"),
        "{heavy}"
    );
}

#[test]
fn policy_and_env_see_only_base() {
    let finding = caught(
        "order",
        "crates/env/Cargo.toml",
        &manifest(&["base", "policy"]),
    );
    assert!(finding.what.contains("only `base`"), "{finding}");
    caught("order", "crates/policy/Cargo.toml", &manifest(&["env"]));
}

#[test]
fn a_crate_without_a_place_or_the_lints_is_refused() {
    let finding = caught("order", "crates/attic/Cargo.toml", &manifest(&["base"]));
    assert!(finding.what.contains("no place"), "{finding}");
    let finding = caught("order", "crates/store/Cargo.toml", "[dependencies]\n");
    assert!(finding.what.contains("lints"), "{finding}");
}

#[test]
fn a_file_without_a_head_is_found() {
    caught("heads", "crates/env/src/time.rs", "use std::fmt;\n");
    caught("heads", "crates/env/src/bare.rs", "// A plain comment.\n");
    let headed = "#![allow(unsafe_code)]\n//! Head.\n";
    assert_eq!(findings_with("crates/env/src/time.rs", headed), []);
}

#[test]
fn what_is_half_done_is_found() {
    for left in [
        "fn f() { todo!() }",
        "fn f() { unimplemented!(\"x\") }",
        "fn f() { dbg!(1); }",
        "#[ignore = \"slow\"]",
        "#[allow(unused, dead_code)]",
        "#[expect(dead_code)]",
    ] {
        let finding = caught(
            "unfinished",
            "crates/env/src/x.rs",
            &format!("//! Head.\n{left}\nfn g() {{}}\n"),
        );
        assert_eq!(finding.line, 2);
    }
    let spoken = "//! Never `todo!()`.\nconst A: &str = \"dbg!(x)\";\n";
    assert_eq!(findings_with("crates/env/src/x.rs", spoken), []);
}

#[test]
fn words_about_anything_but_the_project_are_found() {
    // Put together here so that this file itself keeps the rule.
    for words in [
        format!("See issue #{} for more.", 12),
        format!("a sub{}agent wrote this", '-'),
        format!("an AI {}", "assistant"),
        format!("asked a language {}", "model"),
        format!("in /{}/main", "work"),
        format!("in `/{}/x`", "root"),
        format!("in /{}/me", "home"),
        format!("see .{}/x", "library"),
    ] {
        let finding = caught("outside", "docs/note.md", &format!("# Note\n\n{words}\n"));
        assert_eq!(finding.line, 3, "{words}");
    }
    let fine =
        "# Note\n\nA session is closed; the issue is speed; `/run/tanada` and target/work/x.\n";
    assert_eq!(findings_with("docs/note.md", fine), []);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    caught("links", "docs/a.md", "[x](missing.md)\n");
    caught("links", "docs/a.md", "[x](../../outside.md)\n");
    caught(
        "links",
        "docs/a.md",
        "[`code` label](guide.md#the-third-part)\n",
    );
    let good = "[x](guide.md#the-second-part) [y](../crates/env) [z](https://example.org/x)\n\
                ```text\n[x](missing.md)\n```\n`[x](missing.md)`\n";
    assert_eq!(findings_with("docs/a.md", good), []);
}

#[test]
fn unsafe_code_must_opt_in_and_give_its_reason() {
    let bare = "//! Head.\nfn f() {\n    // SAFETY: fine.\n    unsafe { g() }\n}\n";
    let finding = caught("unsafe", "crates/env/src/x.rs", bare);
    assert!(finding.what.contains("allow(unsafe_code)"), "{finding}");
    let reasonless = "//! Head.\n#![allow(unsafe_code)]\nunsafe impl Send for X {}\n";
    let finding = caught("unsafe", "crates/env/src/x.rs", reasonless);
    assert!(finding.what.contains("SAFETY"), "{finding}");
    let dir = clean_tree();
    plant(
        dir.path(),
        "crates/env/src/real.rs",
        "#![allow(unsafe_code)]\n//! Head.\n",
    );
    let inner = "//! Head.\nfn f() {\n    // SAFETY: fine.\n    unsafe { g() }\n}\n";
    plant(dir.path(), "crates/env/src/real/ring.rs", inner);
    let findings = check(&Tree::at(dir.path()).expect("the fixture can be read"));
    assert_eq!(findings, [], "the module above opts in for its parts");
    let good = "//! Head: `unsafe { }` is spoken of.\n#![allow(unsafe_code)]\n\
                // SAFETY: X owns what it points to.\nunsafe impl Send for X {}\n";
    assert_eq!(findings_with("crates/env/src/x.rs", good), []);
}

#[test]
fn a_mark_missing_from_the_table_is_found() {
    let findings = findings_with("crates/env/src/x.rs", "//! Head.\n//!\n//! Source: AST 2\n");
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        (findings[0].rule, findings[0].file.as_str()),
        ("papers", papers::TABLE)
    );
}

#[test]
fn a_page_of_a_paper_that_no_mark_gives_is_found() {
    let findings = findings_with("docs/papers/scm.md", "# SCM\n");
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].rule, "papers");
    let dir = clean_tree();
    plant(dir.path(), "docs/papers/scm.md", "# SCM\n");
    let tree = Tree::at(dir.path()).expect("the fixture can be read");
    papers::write(&tree).expect("the pages can be written");
    let tree = Tree::at(dir.path()).expect("the fixture can be read");
    assert_eq!(check(&tree), [], "the page that no mark gives is removed");
}

#[test]
fn a_page_of_benchmarks_that_is_not_what_the_records_say_is_found() {
    let record = concat!(
        "{\"bench\": \"x\", \"rows\": [{\"case\": \"a\", \"method\": \"m\", \"metric\": \"rate\", \"ours\": 1, ",
        "\"devices\": \"real\"}]}\n"
    );
    let dir = clean_tree();
    plant(dir.path(), "benches/results/x.json", record);
    let read = || Tree::at(dir.path()).expect("the fixture can be read");
    let findings = check(&read());
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].rule, "benchmarks");
    benchmarks::write(&read()).expect("the page can be written");
    assert_eq!(check(&read()), []);
    plant(dir.path(), "benches/results/y.json", "{}\n");
    let findings = check(&read());
    assert!(
        findings[0].what.contains("y.json: has no `bench`"),
        "{findings:?}"
    );
}

#[test]
fn a_table_of_claims_that_is_not_what_the_records_say_is_found() {
    let claim = |case: &str, ours: f64, verdict: &str| {
        serde_json::json!({"table": "claims", "case": case, "method": "ours", "metric": "mean_ms", "unit": "ms", "bar": 2.5,
            "ours": ours, "evidence": "held-out", "devices": "modelled", "verdict": verdict, "note": "why"})
    };
    let rows = [
        claim("one", 1.0, "holds"),
        claim("two", 3.0, "fails-outside"),
        serde_json::json!({"table": "stated", "case": "x", "verdict": "agrees", "evidence": "measured", "devices": "modelled"}),
        serde_json::json!({"table": "stated", "case": "y", "verdict": null}),
    ];
    let record = serde_json::json!({"experiment": "x", "date": "2026-01-02", "commit": "abc", "command": "run x", "rows": rows});
    let dir = clean_tree();
    plant(
        dir.path(),
        "experiments/results/x.json",
        &record.to_string(),
    );
    let read = || Tree::at(dir.path()).expect("the fixture can be read");
    let found = || {
        check(&read())
            .into_iter()
            .filter(|it| it.rule == "experiments")
    };
    assert!(found().next().expect("no index").what.contains("no marks"));
    let marks =
        "<!-- claims: written by `cargo xtask experiment --page` -->\n<!-- end of claims -->\n";
    plant(
        dir.path(),
        "docs/experiments.md",
        &format!("# Experiments\n\n{marks}"),
    );
    assert!(
        found()
            .next()
            .expect("no claims")
            .what
            .contains("experiment --page")
    );
    experiments::write(&read()).expect("the pages can be written");
    assert_eq!(found().count(), 0);
    let page = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    let index = page("docs/experiments.md");
    assert!(index.contains("one; two: mean ms, `ours` | held-out, modelled | 2.5 ms | 1 to 3 ms | 1 holds, 1 fails outside"), "{index}");
    assert!(
        index.contains("what the paper says: stated | measured, modelled |  |  | agrees |"),
        "{index}"
    );
    let table = page("docs/experiments/tables/x.md");
    assert!(
        table.contains("| two | `ours` | mean_ms (ms) | 2.5 | 3 |"),
        "{table}"
    );
    assert!(!table.contains("| y |"), "{table}");
}

#[test]
fn a_page_that_is_too_long_is_found() {
    let page = "# Note\n".to_owned() + &"a line\n".repeat(250);
    let finding = caught("pages", "docs/note.md", &page);
    assert!(finding.what.contains("251 lines"), "{finding}");
    assert_eq!(findings_with("NOTE.md", &page), []);
    let table = format!("# Note\n\n| {} |\n", "word ".repeat(50));
    assert_eq!(findings_with("docs/note.md", &table), []);
    let prose = format!("# Note\n\n{}\n", "word ".repeat(50));
    let finding = caught("pages", "docs/note.md", &prose);
    assert_eq!(finding.line, 3);
    caught("pages", "README.md", &prose);
}

#[test]
fn a_lock_file_that_is_gone_or_names_another_registry_is_found() {
    let dir = clean_tree();
    fs::remove_file(dir.path().join("Cargo.lock")).expect("the fixture has one");
    let findings = check(&Tree::at(dir.path()).expect("the fixture can be read"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].rule, "lock");
    caught(
        "lock",
        "Cargo.lock",
        "version = 4\nsource = \"git+https://example.org/x\"\n",
    );
}

#[test]
fn a_file_too_long_is_found() {
    caught("sizes", "docs/data.csv", &"1\n".repeat(300_000));
}

//! What goes into the package beside the programs and the files of `packaging/debian`.
//!
//! ```text
//! the program itself -> pages of man (1), completions, schemas     docs/ -> pages of man (5, 7)
//! cargo metadata -> the list of libraries                          packaging/ -> alerts, dashboard
//! README.md, docs/ -> documents
//! ```
//!
//! It is laid out below one folder as it is installed below `/usr`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{files, libraries, page};
use crate::shell::{answer, run};
use crate::tidy::tree::project_root;

/// Pages of man from pages of `docs/`: file, page, section, what it is about.
const PAGES: [(&str, &str, u8, &str); 2] = [
    (
        "config.md",
        "tanada.toml",
        5,
        "configuration of the Tanada daemon",
    ),
    (
        "health.md",
        "tanada-health",
        7,
        "is a Tanada daemon well, and what is to be done if it is not",
    ),
];
/// Where the completions of each shell are.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/tanada"),
    ("zsh", "share/zsh/vendor-completions/_tanada"),
    ("fish", "share/fish/vendor_completions.d/tanada.fish"),
];
/// Folders of `packaging/` that are shipped as they are.
const SHIPPED: [&str; 2] = ["prometheus", "grafana"];

/// Makes all of it below `usr`. `program`: `tanada`, as it is packaged.
///
/// # Errors
/// If the program does not answer, or a file cannot be written.
pub fn make(usr: &Path, program: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(usr);
    put(&usr.join("share/doc/tanada/libraries"), &libraries::list()?)?;
    let manual = usr.join("share/man");
    if offers(program, "man") {
        said(
            program,
            &["man", "--dir", &manual.join("man1").to_string_lossy()],
        )?;
    }
    if offers(program, "completion") {
        for (shell, path) in COMPLETIONS {
            put(&usr.join(path), &said(program, &["completion", shell])?)?;
        }
    }
    if offers(program, "schema") {
        schemas(&usr.join("share/tanada/schemas"), program)?;
    }
    documents(&usr.join("share/doc/tanada"))?;
    let changelog = read(&project_root().join("packaging/debian/changelog"))?;
    let day = page::day(&changelog).context("packaging/debian/changelog has no date")?;
    for (file, name, section, about) in PAGES {
        let text = read(&project_root().join("docs").join(file))?;
        let page = page::of_markdown(&text, (name, section), about, &day);
        put(
            &manual.join(format!("man{section}/{name}.{section}")),
            &page,
        )?;
    }
    compress(&manual)?;
    for folder in SHIPPED {
        let from = project_root().join("packaging").join(folder);
        if !from.is_dir() {
            eprintln!("package: there is no packaging/{folder}: left out");
            continue;
        }
        for file in files(&from)? {
            let text = read(&file)?;
            let name = file.file_name().context("a file has a name")?;
            put(&usr.join("share/tanada").join(folder).join(name), &text)?;
        }
    }
    Ok(())
}

/// README.md and what it leads to, laid out as in the project, so that their links lead on.
fn documents(folder: &Path) -> Result<()> {
    for name in ["README.md", "ARCHITECTURE.md"] {
        put(&folder.join(name), &read(&project_root().join(name))?)?;
    }
    // Under the name that Debian has for it.
    let changelog = folder.join("changelog");
    put(&changelog, &read(&project_root().join("CHANGELOG.md"))?)?;
    run(Command::new("gzip").args(["-9", "-n"]).arg(&changelog))?;
    let mut wanted = vec![project_root().join("docs")];
    while let Some(from) = wanted.pop() {
        for entry in
            fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))?
        {
            let path = entry?.path();
            match path.extension().is_some_and(|it| it == "md") {
                true => put(
                    &folder.join(path.strip_prefix(project_root())?),
                    &read(&path)?,
                )?,
                false if path.is_dir() => wanted.push(path),
                false => {}
            }
        }
    }
    Ok(())
}

/// Compresses pages of man, as Debian has them. cargo-deb does so only with files that no build made.
fn compress(manual: &Path) -> Result<()> {
    for section in files(manual)? {
        run(Command::new("gzip")
            .args(["-9", "-n"])
            .args(files(&section)?))?;
    }
    Ok(())
}

/// What commands print with `--json`, a file each.
fn schemas(folder: &Path, program: &Path) -> Result<()> {
    for words in said(program, &["schema"])?.lines() {
        let words: Vec<&str> = words.split_whitespace().collect();
        let asked: Vec<&str> = ["schema"].iter().chain(&words).copied().collect();
        let name = format!("{}.json", words.join("-"));
        put(&folder.join(name), &said(program, &asked)?)?;
    }
    Ok(())
}

/// Has the program this command? A program of another version may not.
fn offers(program: &Path, command: &str) -> bool {
    let offers = answer(&program.to_string_lossy(), &[command, "--help"]).is_some();
    if !offers {
        eprintln!("package: `tanada {command}` is not there: what it makes is left out");
    }
    offers
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn put(path: &Path, text: &str) -> Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What the program prints.
fn said(program: &Path, words: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(
        out.status.success(),
        "`tanada {}` failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).context("the program prints text")
}

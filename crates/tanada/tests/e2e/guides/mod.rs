//! Does every command of the README and of the guides in docs do what the page says, in order, as written?
//!
//! ```text
//! page -> console and toml blocks -> steps, by the page's table -> a shell in an empty folder, on a network of its own
//! ```
//!
//! A reader goes from top to bottom: a configuration that a page shows is saved where the page says, and a daemon that is
//! started ends the one before (Ctrl-C). A page is read whole: what it shows and no table names runs as it stands.
//!
//! Always true:
//! 1. A command succeeds, unless the page shows below it how it is refused; then it is refused so.
//! 2. A row of a table that nothing on its page needs is a failure.

mod pages;
mod shell;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pages::{Page, Way};
use shell::Shell;

/// The top of the project.
fn project() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    top.canonicalize().expect("the project is there")
}

/// A block of a page: its language and its lines.
#[derive(Debug, PartialEq)]
struct Block {
    language: String,
    lines: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().to_owned(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    blocks
}

/// A command as a page shows it, and what the page says comes of it.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

fn commands(block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown {
                command: command.to_owned(),
                output: Vec::new(),
            }),
            (None, Some(last)) => last.output.push(line.clone()),
            (None, None) => {}
        }
    }
    all
}

impl Shown {
    /// The refusal that the page shows, if it shows one.
    fn refusal(&self) -> Option<&str> {
        let first = self.output.first()?;
        let refused = first.starts_with("tanada: ") || first.contains(": can't open");
        refused.then_some(first.as_str())
    }

    /// Does it go on beside those that follow, and is no daemon of ours?
    fn is_background(&self) -> bool {
        self.command.ends_with('&') && !self.is_daemon()
    }

    /// Does it go on until it is stopped?
    fn is_daemon(&self) -> bool {
        let words = ["tanada serve", "cargo run --release -- serve"];
        let other = ["--check", "--print-config"];
        words.iter().any(|it| self.command.contains(it))
            && !other.iter().any(|it| self.command.contains(it))
    }
}

/// The command that is run for `shown`; none if the page's table leaves it out.
fn command_for(page: &Page, shown: &Shown, used: &mut BTreeSet<&'static str>) -> Option<String> {
    let mut command = shown.command.clone();
    for row in page.rows {
        if !command.contains(row.words) {
            continue;
        }
        used.insert(row.words);
        println!("{}: \"{}\": {}", page.file, row.words, row.why);
        match row.way {
            Way::Skip => return None,
            Way::Instead(other) => command = command.replace(row.words, other),
        }
    }
    Some(command)
}

/// Saves a configuration as the page's table says.
fn save(page: &Page, number: usize, block: &Block, folder: &Path) {
    let Some(saved) = page.files.iter().find(|saved| saved.block == number) else {
        return;
    };
    let mut text = block.lines.join("\n") + "\n";
    for (path, other) in page.paths {
        text = text.replace(path, other);
    }
    let path = folder.join(saved.name);
    if let Some(from) = saved.in_place_of {
        let before = fs::read_to_string(&path).expect("it was saved before");
        let (kept, _) = before.split_once(from).expect("the page shows this line");
        text = format!("{kept}{text}");
    }
    fs::write(path, text).expect("the folder is ours");
}

/// Runs a page from top to bottom.
fn read_through(page: &Page) {
    let text = fs::read_to_string(project().join(page.file)).expect("the page is there");
    let dir = tempfile::tempdir().expect("a directory");
    // A database's user walks through it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(dir.path(), open).expect("the folder is ours");
    let Some(mut shell) = Shell::start(dir.path()) else {
        return;
    };
    shell.must(page.before, page.file);
    if let Some((daemon, asked)) = page.daemon {
        shell.serve(daemon, page.file);
        shell.must(asked, page.file);
    }
    let mut used = BTreeSet::new();
    let mut configurations = 0;
    for block in blocks(&text) {
        if block.language == "toml" {
            save(page, configurations, &block, dir.path());
            configurations += 1;
        }
        if block.language != "console" {
            continue;
        }
        for shown in commands(&block) {
            let Some(command) = command_for(page, &shown, &mut used) else {
                println!("{}: left out: {}", page.file, shown.command);
                continue;
            };
            let place = format!("{}: $ {}", page.file, shown.command);
            if shown.is_background() {
                shell.keep(&command);
                continue;
            }
            match (shown.is_daemon(), shown.refusal()) {
                (true, _) => shell.serve(&command, &place),
                (false, Some(refusal)) => shell.refused(&command, refusal, &place),
                (false, None) => shell.must(&command, &place),
            }
        }
    }
    let all: BTreeSet<&str> = page.rows.iter().map(|row| row.words).collect();
    assert_eq!(
        used, all,
        "rows of the table that nothing on {} needs",
        page.file
    );
    shell.stop();
}

#[test]
fn every_command_of_the_readme_runs_in_order() {
    read_through(&pages::README);
}

#[test]
fn every_command_of_the_store_guide_runs_in_order() {
    read_through(&pages::STORE);
}

#[test]
fn every_command_of_the_virtual_disks_guide_runs_in_order() {
    read_through(&pages::VIRTUAL_DISKS);
}

#[test]
fn every_command_of_the_tier_guide_runs_in_order() {
    read_through(&pages::TIER);
}

#[test]
fn every_command_of_the_prediction_guide_runs_in_order() {
    read_through(&pages::PREDICTION);
}

#[test]
fn every_command_of_the_admin_guide_runs_in_order() {
    read_through(&pages::ADMIN);
}

#[test]
fn every_command_of_the_access_page_runs_in_order() {
    read_through(&pages::ACCESS);
}

#[test]
fn every_command_of_the_nbd_page_runs_in_order() {
    read_through(&pages::NBD);
}

#[test]
fn every_command_of_the_reservations_page_runs_in_order() {
    read_through(&pages::RESERVATIONS);
}

#[test]
fn no_page_with_commands_is_left_out() {
    let mut found = BTreeSet::new();
    let mut pages = vec![project().join("README.md")];
    let mut folders = vec![project().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("docs are there") {
            let path = entry.expect("docs can be listed").path();
            match path.is_dir() {
                true => folders.push(path),
                false => pages.push(path),
            }
        }
    }
    for page in &pages {
        let text = fs::read_to_string(page).unwrap_or_default();
        let is_console = |block: &Block| block.language == "console";
        if blocks(&text).iter().any(is_console) {
            let name = page.strip_prefix(project()).expect("a page of ours");
            found.insert(name.display().to_string());
        }
    }
    let listed: BTreeSet<String> = pages::ALL.iter().map(|page| page.file.to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn a_page_is_cut_into_its_commands_and_what_they_print() {
    let text =
        "```toml\nname = 1\n```\n```console\n$ one  # why\nprinted\n$ two\ntanada: cannot\n```\n";
    let blocks = blocks(text);
    assert_eq!(blocks[0].lines, ["name = 1"]);
    let shown = commands(&blocks[1]);
    assert_eq!(
        (&*shown[0].command, shown[0].refusal()),
        ("one  # why", None)
    );
    assert_eq!(shown[1].refusal(), Some("tanada: cannot"));
}

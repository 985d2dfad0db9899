//! Each old spelling is the command of its new one.

use clap::CommandFactory;

use super::*;

#[test]
fn a_note_names_the_options_that_were_given() {
    for (old, new) in [
        ("--no-holder", "holder="),
        ("--holder ann", "holder=ann"),
        ("--min-copies 1 --max-read off", "min_copies=1 max_read=off"),
    ] {
        let (_, note) = of(&format!("volume set vm1 {old}"));
        let said = note.unwrap().to_string();
        assert!(
            said.contains(&format!("volume set VOLUME {old}'"))
                && said.contains(&format!("volume set VOLUME {new}'")),
            "{said}"
        );
    }
}

/// A row of the table of spellings: the old one, the new one, and what the note names.
struct Row(&'static str, &'static str, &'static str);

#[rustfmt::skip]
const ROWS: [Row; 54] = [
    Row("volume rm vm1@monday --yes", "snapshot delete vm1@monday --yes", "snapshot delete"),
    Row("volume snapshot vm1 monday", "snapshot create vm1@monday", "snapshot create"),
    Row("volume snapshots vm1 --json", "snapshot list vm1 --json", "snapshot list"),
    Row("volume clone vm1@monday vm2", "snapshot clone vm1@monday vm2", "snapshot clone"),
    Row("volume rollback vm1@monday --yes", "snapshot rollback vm1@monday --yes", "snapshot rollback"),
    Row("volume resize vm1 1048576", "volume set vm1 size=1048576", "volume set"),
    Row("volume resize vm1 1048576 --shrink", "volume set vm1 size=1048576 --shrink", "volume set"),
    Row("volume rename vm1 vm2", "volume set vm1 name=vm2", "volume set"),
    Row("volume set vm1 --priority low", "volume set vm1 priority=low", "volume set"),
    Row("volume set vm1 --fairness 2 --min-copies 1", "volume set vm1 fairness=2 min_copies=1", "volume set"),
    Row("volume set vm1 --holder ann", "volume set vm1 holder=ann", "volume set"),
    Row("volume set vm1 --no-holder", "volume set vm1 holder=", "volume set"),
    Row("volume set vm1 --on-meta-loss fail", "volume set vm1 on_meta_loss=fail", "volume set"),
    Row("volume set vm1 --max-read 1MB/s --max-write off", "volume set vm1 max_read=1MB/s max_write=off", "volume set"),
    Row("volume set vm1 --max-read-iops 5 --max-write-iops 6", "volume set vm1 max_read_iops=5 max_write_iops=6", "volume set"),
    Row("device models --json", "model list --json", "model list"),
    Row("device bench scm --json", "bench model scm --json", "bench model"),
    Row("device bench own.toml", "bench model own.toml", "bench model"),
    Row("device bench / --overwrite", "bench device / --quick --overwrite --yes", "bench device"),
    Row("store status", "store list", "store list"),
    Row("store status s0 --json", "store show s0 --json", "store show"),
    Row("store calibrate s0 --show", "store show s0 --calibration", "store show"),
    Row("store serve", "serve --store", "serve --store"),
    Row("store serve s.img --name s1 --data-dir d", "serve --store s.img --name s1 --data-dir d", "serve --store"),
    Row("store serve --listen unix:s --read-speed 1GB/s", "serve --store --listen unix:s --read-speed 1GB/s", "serve --store"),
    Row("store serve --unauthenticated --admin unix:a s.img", "serve --unauthenticated --admin unix:a --store s.img", "serve --store"),
    Row("store serve s.img --print-config", "config example --store s.img", "config example"),
    Row("object stat a --store s0", "object show a --store s0", "object show"),
    Row("node add n9 --store s9 --address unix:s9", "node create n9 --store s9 --address unix:s9", "node create"),
    Row("node add n9 --store s9 --address unix:s9 --number 3 --domain r1 --rotating",
        "node create n9 --store s9 --address unix:s9 --number 3 --domain r1 --rotating", "node create"),
    Row("node remove s9 --lost --yes", "node delete s9 --lost --yes", "node delete"),
    Row("trace stat a.csv -- b.csv", "trace show a.csv -- b.csv", "trace show"),
    Row("client disconnect unix:a#3", "client delete unix:a#3", "client delete"),
    Row("client disconnect --export vol0", "client delete --export vol0", "client delete"),
    Row("reserve add --store s0 --read 1MB/s --for 1h --scope a/ --holder ann",
        "reservation create --store s0 --read 1MB/s --for 1h --scope a/ --holder ann", "reservation create"),
    Row("reserve add --store s0 --store s1 --write 1MB/s --from +1h --for 1h --scope a/ --space 1MiB --window 2s --probability 90 --holder ann",
        "reservation create --store s0 --store s1 --write 1MB/s --from +1h --for 1h --scope a/ --space 1MiB --window 2s --probability 90 --holder ann",
        "reservation create"),
    Row("reserve offer --store s0 --read 1MB/s --for 1h --scope a/ --holder ann",
        "reservation create --dry-run --store s0 --read 1MB/s --for 1h --scope a/ --holder ann", "reservation create"),
    Row("reserve list --json", "reservation list --parts --json", "reservation list"),
    Row("reserve show s0/7", "reservation show s0/7", "reservation show"),
    Row("reserve show nightly --account ann", "reservation show nightly --account ann", "reservation show"),
    Row("reserve cancel s0/7", "reservation delete s0/7", "reservation delete"),
    Row("reserve cancel nightly", "reservation delete nightly", "reservation delete"),
    Row("reserve calendar s0 --for 2h", "reservation calendar s0 --for 2h", "reservation calendar"),
    Row("reserve create n --volume vm1 --read 1MB/s --for 1h", "reservation create n --volume vm1 --read 1MB/s --for 1h", "reservation create"),
    Row("reserve set n --for 1h", "reservation set n --for 1h", "reservation set"),
    Row("reserve capability n", "reservation capability n", "reservation capability"),
    Row("reserve delete n --if-exists", "reservation delete n --if-exists", "reservation delete"),
    Row("reserve run --read 1MB/s --volume vm1 -- true", "reservation run --read 1MB/s --volume vm1 -- true", "reservation run"),
    Row("serve --check", "config check", "config check"),
    Row("serve --check t.toml --data-dir d", "config check t.toml --data-dir d", "config check"),
    Row("serve t.toml --check", "config check t.toml", "config check"),
    Row("serve --print-config", "config example", "config example"),
    Row("serve --print-config --data-dir d", "config example --data-dir d", "config example"),
    Row("serve t.toml --print-config", "config example t.toml", "config example"),
];

/// The same command under another name, for good.
const ALIASES: [(&str, &str); 21] = [
    ("vol ls", "volume list"),
    ("vol info vm1", "volume show vm1"),
    ("volume rm vm1", "volume delete vm1"),
    ("snap ls", "snapshot list"),
    ("snap rm vm1@a", "snapshot delete vm1@a"),
    ("device ls", "device list"),
    ("model ls", "model list"),
    ("client ls", "client list"),
    ("client rm unix:a#3", "client delete unix:a#3"),
    ("node ls", "node list"),
    ("node rm s9", "node delete s9"),
    ("store ls", "store list"),
    ("store info s0", "store show s0"),
    ("object ls -l a/", "object list -l a/"),
    ("object rm a", "object delete a"),
    ("object info a", "object show a"),
    ("reservation ls", "reservation list"),
    ("reservation info n", "reservation show n"),
    ("reservation rm n", "reservation delete n"),
    ("account ls", "account list"),
    ("token ls", "token list"),
];

fn of(words: &str) -> (String, Option<Note>) {
    let words = ["tanada"].into_iter().chain(words.split_whitespace());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let (command, note) = read(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    (format!("{command:?}"), note)
}

#[test]
fn an_old_spelling_is_the_command_of_its_new_one() {
    for Row(old, new, named) in ROWS {
        let ((was, note), (is, none)) = (of(old), of(new));
        assert_eq!(was, is, "{old} | {new}");
        assert_eq!(none, None, "{new}");
        let note = note.unwrap_or_else(|| panic!("{old} is said to be old"));
        assert!(note.new.starts_with(named), "{old}: {note}");
        assert!(
            old.starts_with(note.old.split_whitespace().next().unwrap()),
            "{old}: {note}"
        );
    }
}

#[test]
fn an_alias_is_the_command_and_nothing_is_said_of_it() {
    for (alias, whole) in ALIASES {
        assert_eq!(of(alias), of(whole), "{alias}");
        assert_eq!(of(alias).1, None, "{alias}");
    }
}

#[test]
fn a_note_names_both_spellings_on_one_line() {
    let (_, note) = of("store status");
    assert_eq!(
        note.unwrap().to_string(),
        "note: 'tanada store status' is now 'tanada store list'; the old spelling goes in 0.3"
    );
}

/// The names of all subcommands that help shows, `volume set` for example.
fn shown(command: &clap::Command, before: &str, into: &mut Vec<String>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{before}{}", sub.get_name());
        shown(sub, &format!("{name} "), into);
        into.push(name);
    }
}

#[test]
fn help_shows_no_old_spelling() {
    let mut all = Vec::new();
    shown(&Cli::command(), "", &mut all);
    assert!(all.contains(&"snapshot rollback".to_owned()), "{all:?}");
    for old in [
        "reserve",
        "volume snapshots",
        "volume resize",
        "device bench",
        "store status",
        "store serve",
        "object stat",
        "node add",
        "client disconnect",
    ] {
        assert!(!all.contains(&old.to_owned()), "{old}");
    }
}

#[test]
fn what_two_kinds_of_words_say_is_refused() {
    for words in [
        "volume set vm1",
        "volume set vm1 size=1GiB --priority low",
        "serve t.toml --store s.img",
        "reservation create n --holder ann --store s0 --read 1MB/s --for 1h",
        "node create n1 --store s1",
        "snapshot create vm1",
    ] {
        let words: Vec<OsString> = format!("tanada {words}")
            .split(' ')
            .map(OsString::from)
            .collect();
        assert!(read(&words).is_err(), "{words:?}");
    }
}

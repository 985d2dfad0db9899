//! The file of what was done.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::audit::{ANCHOR, Audit, AuditError, Event, read, verify};

fn event(what: &str) -> Event {
    Event {
        at: 1_795_345_200.125_4,
        who: "account astro, booker, by token ..3f2a".to_owned(),
        from: "tcp 127.0.0.1".to_owned(),
        what: what.to_owned(),
        answer: 200,
    }
}

fn with_lines(dir: &Path, many: u64) -> PathBuf {
    let path = dir.join("audit.jsonl");
    let mut audit = Audit::open(&path, 0.0).unwrap();
    for n in 1..=many {
        assert_eq!(audit.append(&event(&format!("GET /{n}"))).unwrap(), n);
    }
    path
}

#[test]
fn a_log_goes_on_where_it_ended_and_its_chain_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_lines(dir.path(), 3);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut again = Audit::open(&path, 0.0).unwrap();
    assert_eq!(again.append(&event("DELETE /x")).unwrap(), 4);
    let verdict = verify(&path).unwrap();
    assert_eq!((verdict.lines, &verdict.broken), (4, &None));
    let lines = read(&path, 0, 100).unwrap();
    assert_eq!(lines[0].before, ANCHOR);
    assert_eq!(lines[3].what, "DELETE /x");
    assert_eq!(lines[3].at, 1_795_345_200.125);
    let page: Vec<u64> = read(&path, 1, 2).unwrap().iter().map(|it| it.n).collect();
    assert_eq!(page, [2, 3]);
}

#[test]
fn what_a_crash_left_is_cut_at_every_byte_and_a_line_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_lines(dir.path(), 3);
    let whole = fs::read(&path).unwrap();
    let second = whole
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .nth(1);
    let second = second.unwrap().0 + 1;
    for end in second..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let mut audit = Audit::open(&path, 7.0).unwrap();
        audit.append(&event("after")).unwrap();
        let verdict = verify(&path).unwrap();
        assert_eq!(verdict.broken, None, "cut at {end}");
        let lines = read(&path, 2, 9).unwrap();
        let torn = end > second;
        assert_eq!(lines.len(), if torn { 2 } else { 1 }, "cut at {end}");
        if torn {
            let said = format!("cut {} bytes of a line that a crash left", end - second);
            assert_eq!(lines[0].what, said);
        }
    }
}

#[test]
fn a_change_of_any_byte_is_found_and_its_line_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_lines(dir.path(), 4);
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let line = ends.iter().filter(|end| **end < at).count() as u64 + 1;
        let broken = verify(&path).unwrap().broken;
        // A change that leaves a line readable shows in the hash that the next one has; that of the last line shows
        // in the hash that was noted elsewhere.
        match broken {
            Some(broken) => assert!((line..=line + 1).contains(&broken.line), "{at}: {broken:?}"),
            None => assert_eq!(line, 4, "{at}"),
        }
    }
    // A line that is gone, and two that changed places.
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    fs::write(&path, [lines[0], lines[2], lines[3]].concat()).unwrap();
    assert_eq!(verify(&path).unwrap().broken.unwrap().line, 2);
    fs::write(&path, [lines[1], lines[0]].concat()).unwrap();
    assert_eq!(verify(&path).unwrap().broken.unwrap().line, 1);
}

#[test]
fn a_file_that_is_no_log_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    for odd in [
        "hello\n".to_owned(),
        "x".repeat(100_000),
        format!("{}\n", "y".repeat(40_000)),
    ] {
        fs::write(&path, &odd).unwrap();
        let refused = Audit::open(&path, 0.0).err();
        assert!(
            matches!(refused, Some(AuditError::NotOurs { .. })),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), odd);
        assert_eq!(verify(&path).unwrap().broken.unwrap().line, 1);
        assert!(read(&path, 0, 10).unwrap().is_empty());
    }
}

#[test]
fn long_texts_are_cut_so_that_a_line_stays_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut audit = Audit::open(&path, 0.0).unwrap();
    audit
        .append(&event(&"\u{0}\u{10ffff}".repeat(10_000)))
        .unwrap();
    audit.append(&event("next")).unwrap();
    drop(audit);
    assert_eq!(
        Audit::open(&path, 0.0)
            .unwrap()
            .append(&event("more"))
            .unwrap(),
        3
    );
    assert_eq!(verify(&path).unwrap().broken, None);
}

//! A shadow watches a running volume; `tanada advise NAME` reports what it found.

use crate::common::{Daemon, SMALL, ask, json, run, stderr, text};

#[test]
fn a_volume_is_advised_on_while_a_shadow_watches_and_not_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // No daemon to ask: said for a file and for a volume.
    let refused = run(dir, &["advise", "vol0"]);
    assert_eq!(refused.status.code(), Some(6));
    let said = stderr(&refused);
    assert!(
        said.contains("no file 'vol0'") && said.contains("no daemon"),
        "{said}"
    );

    let daemon = Daemon::start(dir, SMALL);
    let advised = || json(dir, &["volume", "show", "vol0", "--json"])["advise"].clone();
    assert_eq!(advised(), false);
    let refused = run(dir, &["advise", "vol0"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        stderr(&refused).contains("tanada volume set vol0 advise=on"),
        "{}",
        stderr(&refused)
    );
    let refused = run(dir, &["advise", "vol1"]);
    assert!(
        stderr(&refused).contains("the volumes are vol0"),
        "{}",
        stderr(&refused)
    );
    let refused = run(dir, &["volume", "set", "vol0", "advise=maybe"]);
    assert_eq!(refused.status.code(), Some(2));

    let said = text(dir, &["volume", "set", "vol0", "advise=on"]);
    assert!(said.contains("tanada advise vol0"), "{said}");
    assert_eq!(advised(), true);
    // QEMU looks at the first sectors by itself.
    let before = json(dir, &["advise", "vol0", "--json"]);
    assert_eq!(before["requests"], 0);
    let asked = ask(
        dir,
        &[
            "write -P 1 1M 64k",
            "read -P 1 1M 64k",
            "write -P 2 8M 4k",
            "flush",
        ],
    );
    let found = json(dir, &["advise", "vol0", "--json"]);
    if asked {
        assert!(found["requests"].as_u64() >= Some(3), "{found}");
        assert!(found["pages"].as_u64() >= Some(16 + 16 + 1), "{found}");
        // What was written is found again, at any size.
        let hits = found["sizes"][0]["hit_ratio"].as_f64().unwrap();
        assert!(hits > 0.3, "{found}");
    }
    assert_eq!(found["policy"], "s3-fifo");
    assert_eq!(found["sizes"].as_array().unwrap().len(), 5);
    let page = text(dir, &["advise", "vol0"]);
    assert!(
        page.contains("Too little was seen") && page.contains("SLOW I/O SAVED"),
        "{page}"
    );

    // Another policy: what was found for the old one holds no longer.
    text(dir, &["volume", "set", "vol0", "policy=lru"]);
    let found = json(dir, &["advise", "vol0", "--json"]);
    assert_eq!(
        (&found["policy"], &found["requests"]),
        (&"lru".into(), &0.into())
    );
    text(dir, &["volume", "set", "vol0", "advise=off"]);
    text(dir, &["config", "reset", "vol0"]);
    assert_eq!(advised(), false);
    assert_eq!(run(dir, &["advise", "vol0"]).status.code(), Some(5));
    drop(daemon);

    // As the configuration says it is on from the start.
    let on = SMALL.replace("fast = \"fast\"", "fast = \"fast\"\nadvise = true");
    let _daemon = Daemon::start(dir, &on);
    assert_eq!(advised(), true);
}

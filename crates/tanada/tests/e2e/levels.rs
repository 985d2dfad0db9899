//! The cluster's level from outside: raised, shown, and refused to programs that cannot do it.

use std::fs;
use std::path::Path;

use vdisk::meta::{Op, Redb};

use crate::common::{Daemon, json, run, stderr, text};
use crate::spellings::with_cluster;

/// Puts a record into the meta store of a data directory whose daemon is down.
fn put(dir: &Path, key: &str, value: &str) {
    let data = dir.join("tanada-data");
    fs::create_dir_all(&data).unwrap();
    let redb = Redb::open(&data.join("meta.redb")).unwrap();
    let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
    let meta = redb.handle().client();
    let put = Op::Put {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
        lease: None,
    };
    runtime.block_on(async move { meta.txn(Vec::new(), vec![put]).await.unwrap() });
}

#[test]
fn a_cluster_of_before_levels_is_raised_when_its_operator_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // As a program left it that knew of no levels, once it had taken a store in.
    put(dir, "store-next", "5");
    let daemon = Daemon::start(dir, &with_cluster());
    let list = text(dir, &["node", "list"]);
    let line = "the cluster is at level 1, and all nodes can do level 2: `tanada cluster upgrade`";
    assert!(list.contains(line), "{list}");
    let health = run(dir, &["health", "show"]);
    assert_eq!(health.status.code(), Some(3));
    let said = String::from_utf8(health.stdout).unwrap();
    assert!(said.contains("LEVEL_BEHIND"), "{said}");
    let file = dir.join("tanada-data/level");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");

    let dry = json(dir, &["cluster", "upgrade", "--dry-run", "--json"]);
    assert_eq!((&dry["from"], &dry["to"]), (&1.into(), &2.into()));
    let nodes = serde_json::json!([{"node": "n1", "up": true, "level_min": 1, "level_max": 2}]);
    assert_eq!((&dry["dry_run"], &dry["nodes"]), (&true.into(), &nodes));
    let done = text(dir, &["cluster", "upgrade"]);
    assert_eq!(
        done,
        "NODE  IS  LEVELS\nn1    up  1 to 2\nthe cluster is at level 2 now, after level 1\n"
    );
    let again = text(dir, &["cluster", "upgrade"]);
    assert!(again.ends_with("the cluster is at level 2, the highest that its nodes can do\n"));
    let status = text(dir, &["status"]);
    assert!(status.contains("the cluster is at level 2\n"), "{status}");
    assert!(!status.contains("LEVEL_BEHIND"), "{status}");
    let noted = || fs::read_to_string(&file).is_ok_and(|it| it == "2\n");
    // Asking takes some milliseconds each time.
    for _ in 0..200 {
        if noted() {
            break;
        }
        text(dir, &["node", "list"]);
    }
    daemon.stop();
    assert!(noted());

    // A later program raised it: by the file, and by the record alone.
    fs::write(&file, "3\n").unwrap();
    for words in [
        &["config", "check", "tanada.toml"][..],
        &["serve", "tanada.toml"],
    ] {
        let refused = run(dir, words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        let said = stderr(&refused);
        assert!(
            said.contains("is at level 3, and this program can do levels 1 to 2"),
            "{said}"
        );
    }
    fs::write(&file, "2\n").unwrap();
    put(dir, "cluster/level", r#"{"version":1,"level":3}"#);
    let refused = run(dir, &["serve", "tanada.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr(&refused);
    let part = "node n1 cannot take part in the cluster: that is at level 3";
    assert!(said.contains(part), "{said}");
}

#[test]
fn a_new_cluster_has_no_warning_of_its_level() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    let list = json(dir, &["node", "list", "--json"]);
    assert_eq!(list["level"]["level"], 2);
    assert!(list["level"]["next"].is_null());
    let health = json(dir, &["health", "show", "--json"]);
    assert!(!health.to_string().contains("LEVEL_BEHIND"), "{health}");
    daemon.stop();
}

//! awscli: `aws s3` and `aws s3api`.

use std::fs;

use serde_json::Value;

use super::{BIG, Served, bytes, fill, has, said, sum, sums, write};

/// Runs `aws`; what it printed.
fn aws(served: &Served, arguments: &[&str]) -> String {
    let mut command = served.client("aws");
    command.args(["--endpoint-url", &served.url]);
    said(command.args(arguments))
}

/// As [`aws`], read as JSON.
fn api(served: &Served, arguments: &[&str]) -> Value {
    let said = aws(
        served,
        &[&["s3api", "--output", "json"], arguments].concat(),
    );
    serde_json::from_str(&said).unwrap()
}

#[test]
fn awscli_copies_syncs_signs_moves_and_removes() {
    if !has("aws") {
        return;
    }
    let served = Served::start();
    let work = served.work();
    let s3 = |arguments: &[&str]| aws(&served, &[&["s3"], arguments].concat());
    fill(&work.join("up"));
    s3(&["mb", "s3://photos"]);
    s3(&["cp", "--quiet", "up/big", "s3://photos/a big one"]);
    s3(&["cp", "--quiet", "s3://photos/a big one", "big"]);
    assert_eq!(sum(&work.join("big")), sum(&work.join("up/big")));
    s3(&["sync", "--quiet", "up", "s3://photos/tree"]);
    s3(&["sync", "--quiet", "s3://photos/tree", "down"]);
    assert_eq!(sums(&work.join("down")), sums(&work.join("up")));
    assert_eq!(s3(&["sync", "up", "s3://photos/tree"]), "", "nothing to do");
    let url = s3(&["presign", "s3://photos/tree/Grüße/Käse und Öl.txt"]);
    said(served.client("curl").args(["-sfo", "signed", url.trim()]));
    let file = work.join("up/Grüße/Käse und Öl.txt");
    assert_eq!(sum(&work.join("signed")), sum(&file));
    s3(&["mv", "s3://photos/a big one", "s3://photos/moved"]);
    let list = s3(&["ls", "s3://photos"]);
    assert!(list.contains("PRE tree/"), "{list}");
    assert!(list.contains(&format!(" {BIG} moved")), "{list}");
    assert!(!list.contains("a big one"), "{list}");
    s3(&["rm", "--recursive", "--quiet", "s3://photos"]);
    s3(&["rb", "s3://photos"]);
    assert_eq!(s3(&["ls"]), "");
    served.stop();
}

#[test]
fn awscli_has_tags_and_versions_and_deletes_many() {
    if !has("aws") {
        return;
    }
    let served = Served::start();
    let work = served.work();
    let api = |arguments: &[&str]| api(&served, arguments);
    let quiet = |arguments: &[&str]| {
        let said = aws(&served, &[&["s3api"], arguments].concat());
        assert_eq!(said, "");
    };
    aws(&served, &["s3", "mb", "s3://papers"]);
    let enabled = ["--versioning-configuration", "Status=Enabled"];
    quiet(
        &[
            &["put-bucket-versioning", "--bucket", "papers"],
            &enabled[..],
        ]
        .concat(),
    );
    let of = ["--bucket", "papers", "--key", "x"];
    let put = |seed: u64| {
        write(&work, "x", &bytes(seed, 50_000));
        let more = ["--body", "x", "--tagging", "colour=red&size=a%20b"];
        let made = api(&[&["put-object"], &of[..], &more].concat());
        made["VersionId"].as_str().unwrap().to_owned()
    };
    let (first, second) = (put(1), put(2));
    let tags = api(&[&["get-object-tagging"], &of[..]].concat());
    assert_eq!(tags["TagSet"][1]["Value"], "a b", "{tags}");
    assert_eq!(tags["VersionId"], *second);
    let version = ["--version-id", &first, "old"];
    api(&[&["get-object"], &of[..], &version].concat());
    assert_eq!(fs::read(work.join("old")).unwrap(), bytes(1, 50_000));
    let gone = api(&[&["delete-object"], &of[..]].concat());
    assert_eq!(gone["DeleteMarker"], true);
    // All that is there, in the form in which it is asked to be deleted.
    let query = "{Objects: [Versions, DeleteMarkers][].{Key: Key, VersionId: VersionId}}";
    let list = ["list-object-versions", "--bucket", "papers", "--query"];
    let all = api(&[&list[..], &[query]].concat());
    let ids: Vec<&str> = (all["Objects"].as_array().unwrap().iter())
        .map(|it| it["VersionId"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        [&*second, &*first, gone["VersionId"].as_str().unwrap()]
    );
    let delete = ["delete-objects", "--bucket", "papers", "--delete"];
    let deleted = api(&[&delete[..], &[&all.to_string()]].concat());
    assert_eq!(deleted["Deleted"].as_array().unwrap().len(), 3, "{deleted}");
    aws(&served, &["s3", "rb", "s3://papers"]);
    served.stop();
}

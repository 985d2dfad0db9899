//! s3cmd, which knows no region: the gateway says it.

use super::{BIG, Served, fill, has, said, sum, sums};

#[test]
fn s3cmd_puts_gets_syncs_and_deletes() {
    if !has("s3cmd") {
        return;
    }
    let served = Served::start();
    let work = served.work();
    let (host, id, secret) = (served.host(), &served.id, &served.secret);
    let config = format!(
        "[default]\naccess_key = {id}\nsecret_key = {secret}\nhost_base = {host}\nhost_bucket = {host}\nuse_https = False\n"
    );
    std::fs::write(work.join("s3cfg"), config).unwrap();
    let s3cmd = |arguments: &[&str]| {
        let mut command = served.client("s3cmd");
        command.args(["-c", "s3cfg", "--no-progress"]);
        said(command.args(arguments))
    };
    fill(&work.join("up"));
    s3cmd(&["mb", "s3://photos"]);
    s3cmd(&["put", "up/big", "s3://photos/a big one"]);
    s3cmd(&["get", "s3://photos/a big one", "big"]);
    assert_eq!(sum(&work.join("big")), sum(&work.join("up/big")));
    s3cmd(&["sync", "up/", "s3://photos/tree/"]);
    s3cmd(&["sync", "s3://photos/tree/", "down/"]);
    assert_eq!(sums(&work.join("down")), sums(&work.join("up")));
    let list = s3cmd(&["ls", "s3://photos"]);
    assert!(list.contains(" s3://photos/tree/"), "{list}");
    assert!(
        list.contains(&format!(" {BIG}  s3://photos/a big one")),
        "{list}"
    );
    s3cmd(&["setacl", "--acl-private", "s3://photos/a big one"]);
    let info = s3cmd(&["info", "s3://photos/a big one"]);
    assert!(info.contains(&format!("File size: {BIG}")), "{info}");
    assert!(
        info.contains("FULL_CONTROL") && !info.contains("READ"),
        "{info}"
    );
    s3cmd(&["del", "--recursive", "--force", "s3://photos"]);
    s3cmd(&["rb", "s3://photos"]);
    assert_eq!(s3cmd(&["ls"]), "");
    served.stop();
}

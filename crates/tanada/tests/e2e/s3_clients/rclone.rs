//! rclone, with the gateway as the remote `gw:`.

use super::{Served, fill, has, stderr, sums, write};

#[test]
fn rclone_copies_syncs_and_checks() {
    if !has("rclone") {
        return;
    }
    let served = Served::start();
    let work = served.work();
    let (url, id, secret) = (&served.url, &served.id, &served.secret);
    let config = format!(
        "[gw]\ntype = s3\nprovider = Other\nendpoint = {url}\naccess_key_id = {id}\nsecret_access_key = {secret}\n"
    );
    std::fs::write(work.join("rclone.conf"), config).unwrap();
    let rclone = |arguments: &[&str]| {
        let mut command = served.client("rclone");
        command.env("RCLONE_CONFIG", "rclone.conf");
        // Parts from 5 MiB on, the least there are.
        command.args(["-v", "--s3-upload-cutoff=5M", "--s3-chunk-size=5M"]);
        let output = command.args(arguments).output().unwrap();
        let notes = stderr(&output);
        assert!(output.status.success(), "{arguments:?}: {notes}");
        (String::from_utf8(output.stdout).unwrap(), notes)
    };
    let same = |arguments: &[&str]| {
        let (_, notes) = rclone(&[&["check"], arguments].concat());
        assert!(notes.contains("0 differences found"), "{notes}");
    };
    fill(&work.join("up"));
    rclone(&["mkdir", "gw:photos"]);
    rclone(&["copy", "up", "gw:photos/tree"]);
    same(&["up", "gw:photos/tree"]);
    same(&["--download", "up", "gw:photos/tree"]);
    // Within the gateway no byte goes through the client.
    let (_, notes) = rclone(&["copyto", "gw:photos/tree/big", "gw:photos/copy of big"]);
    assert!(notes.contains("server-side copy"), "{notes}");
    write(&work.join("up"), "small", b"changed");
    std::fs::remove_file(work.join("up/deep/er/and/deeper/x")).unwrap();
    rclone(&["sync", "up", "gw:photos/tree"]);
    same(&["up", "gw:photos/tree"]);
    rclone(&["sync", "gw:photos/tree", "down"]);
    assert_eq!(sums(&work.join("down")), sums(&work.join("up")));
    let (list, _) = rclone(&["lsf", "gw:photos"]);
    assert_eq!(list, "copy of big\ntree/\n");
    rclone(&["purge", "gw:photos"]);
    assert_eq!(rclone(&["lsf", "gw:"]).0, "");
    served.stop();
}

//! `tanada trace convert` from the outside.

use std::fs;

use crate::common::{run, stderr};

const MSR: &str = "128166372003061629,src1,0,Read,8986374144,65536,4523\n\
                   128166372003071629,src1,0,Write,4096,512,991\n";

#[test]
fn a_trace_is_converted_and_the_summary_says_what_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("in.csv"), MSR).unwrap();
    let done = run(dir, &["trace", "convert", "in.csv", "out.csv"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(
        fs::read_to_string(dir.join("out.csv")).unwrap(),
        "t_us,op,offset,size,dev\n0,R,8986374144,65536,0\n1000,W,4096,512,0\n"
    );
    let said = stderr(&done);
    assert!(
        said.contains("in.csv (msr): 2 requests in 1.00 ms, 50.0 % of them reads -> out.csv (csv)"),
        "{said}"
    );
    assert!(said.contains("device 0: src1,0"), "{said}");
}

#[test]
fn a_file_that_is_there_is_bad_usage_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("in.csv"), MSR).unwrap();
    fs::write(dir.join("out.iolog"), "precious").unwrap();
    let refused = run(dir, &["trace", "convert", "in.csv", "out.iolog"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("out.iolog is there already"));
    assert_eq!(fs::read(dir.join("out.iolog")).unwrap(), b"precious");
    let done = run(dir, &["trace", "convert", "in.csv", "out.iolog", "--force"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let iolog = fs::read_to_string(dir.join("out.iolog")).unwrap();
    assert!(
        iolog.starts_with("fio version 3 iolog\n0 dev0 add\n"),
        "{iolog}"
    );
}

#[test]
fn a_bad_line_fails_the_job_or_is_counted_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("in.csv"),
        format!("{MSR}128166372003071630,src1,0,Read,x,512,1\n"),
    )
    .unwrap();
    let failed = run(dir, &["trace", "convert", "in.csv", "out.csv"]);
    assert_eq!(failed.status.code(), Some(1));
    let why = "in.csv, line 3 (byte 98): 'x' in the place of the offset is no whole number";
    assert!(stderr(&failed).contains(why), "{}", stderr(&failed));
    assert!(!dir.join("out.csv").exists());
    let done = run(
        dir,
        &[
            "trace", "convert", "in.csv", "out.csv", "--bad", "count", "--json",
        ],
    );
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("1 malformed records were left out:"));
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&summary["requests"], &summary["malformed"]),
        (&2.into(), &1.into())
    );
}

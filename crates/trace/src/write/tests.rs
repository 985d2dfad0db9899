//! What is written is read back the same; files keep their names to themselves until they are whole.

use std::path::Path;

use base::Nanos;

use super::super::tests::{drain, req};
use super::super::{Op, ReadOptions, Trace, open};
use super::*;

fn sample() -> Vec<Request> {
    let mut requests = vec![
        req(0, Op::Read, 4096, 512, 0),
        req(499, Op::Write, 0, 4096, 7),
        req(1_500, Op::Flush, 0, 0, 7),
        req(7_000_000, Op::Discard, 1 << 40, 1 << 32, 0),
    ];
    requests.extend((0..30_000).map(|i| req(8_000_000 + i * 1_000, Op::Read, i * 4096, 4096, 0)));
    requests
}

/// The requests as a form that counts microseconds has them.
fn in_micros(mut requests: Vec<Request>) -> Vec<Request> {
    for request in &mut requests {
        request.at = Nanos((request.at.0 + 500) / 1_000 * 1_000);
    }
    requests
}

fn write(path: &Path, force: bool) -> Result<Written, WriteError> {
    let mut writer = TraceWriter::create(path, Form::of_name(path), force)?;
    for batch in sample().chunks(777) {
        writer.write(batch)?;
    }
    writer.finish()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn a_generated_trace_says_so_in_every_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = folder.path().join("first.csv");
    let mut writer = TraceWriter::create(&first, Form::Csv, false).expect("created");
    let remark = "generated: tanada trace generate zipf --size 1048576 --seed 7";
    writer.remark(remark);
    writer.write(&sample()).expect("written");
    writer.finish().expect("finished");
    let text = std::fs::read_to_string(&first).expect("text");
    assert!(text.starts_with(&format!("{HEADER}\n# {remark}\n0,R,4096,512,0\n")));
    // Without its remarks it is what any writer of the same requests gets.
    let plain = folder.path().join("plain.csv");
    write(&plain, false).expect("written");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let bare: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(bare == std::fs::read_to_string(&plain).expect("text"));
    assert_eq!(generated(&plain), None);

    let mut from = first;
    for name in ["second.csv.gz", "third.csv.zst", "fourth.csv"] {
        let to = folder.path().join(name);
        let mut trace = open(&from, &ReadOptions::default()).expect(name);
        let writer = TraceWriter::create(&to, Form::of_name(&to), false).expect(name);
        copy(&mut trace, writer, |_, _| {}).expect(name);
        assert_eq!(generated(&to).as_deref(), Some(remark), "{name}");
        from = to;
    }
    assert!(std::fs::read_to_string(&from).expect("text") == text);
}

/// What the trace says of its having been generated.
fn generated(path: &Path) -> Option<String> {
    let mut trace = open(path, &ReadOptions::default()).expect("opened");
    drain(&mut trace).expect("read");
    trace.generated().map(str::to_owned)
}

#[test]
fn every_form_and_packing_is_read_back_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, format) in [
        ("a.csv", Format::Csv),
        ("a.csv.gz", Format::Csv),
        ("a.csv.zst", Format::Csv),
        ("a.iolog", Format::Fio),
        ("a.fio.zst", Format::Fio),
    ] {
        let path = folder.path().join(name);
        let written = write(&path, false).expect(name);
        assert_eq!(written.requests, sample().len() as u64);
        assert_eq!(written.bytes, path.metadata().expect("there").len());
        let mut trace = open(&path, &ReadOptions::default()).expect(name);
        assert_eq!(trace.format(), format);
        let mut expected = in_micros(sample());
        if format == Format::Fio {
            // fio knows its devices in the order in which they come.
            for request in &mut expected {
                request.device = request.device.min(1);
            }
        }
        assert!(drain(&mut trace).expect(name) == expected, "{name}");
    }
}

#[test]
fn a_file_that_is_there_stays_unless_forced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kept.csv");
    std::fs::write(&path, "precious").expect("written");
    let refusal = write(&path, false).unwrap_err();
    assert!(matches!(refusal, WriteError::Exists { .. }), "{refusal}");
    assert_eq!(std::fs::read(&path).expect("there"), b"precious");
    write(&path, true).expect("forced");
    assert!(
        std::fs::read(&path)
            .expect("there")
            .starts_with(HEADER.as_bytes())
    );
    assert_eq!(files(folder.path()), ["kept.csv"]);
}

#[test]
fn a_trace_cut_short_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("half.csv");
    let text = format!(
        "{HEADER}\n0,R,0,512,0\n{}nonsense\n",
        "1,R,0,512,0\n".repeat(100_000)
    );
    let reader = Box::new(std::io::Cursor::new(text.into_bytes()));
    let mut from = Trace::from_reader("sample", reader, &ReadOptions::default()).expect("opened");
    let writer = TraceWriter::create(&path, Form::Csv, false).expect("begun");
    let mut batches = 0;
    let error = copy(&mut from, writer, |_, _| batches += 1).unwrap_err();
    assert!(batches > 1, "some of it was written");
    assert!(error.to_string().contains("line 100003"), "{error}");
    assert_eq!(files(folder.path()), [""; 0]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = write(Path::new("no/such/folder/x.csv"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write the trace no/such/folder/x.csv"
    );
}

#[test]
fn parquet_is_not_packed_once_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = write(&folder.path().join("a.parquet.gz"), false).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Parquet packs its own columns: name "),
        "{error}"
    );
    assert_eq!(files(folder.path()), [""; 0]);
}

#[test]
fn formats_are_recognised_by_name() {
    assert_eq!("fio".parse(), Ok(Form::Fio));
    let refusal = "msr".parse::<Form>().unwrap_err().to_string();
    assert!(refusal.starts_with("traces are not written as 'msr'; they are written as csv, "));
}

#[test]
fn without_a_decoder_parquet_is_refused_with_the_program_that_has_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.parquet");
    let refused = write(&path, false).unwrap_err();
    let source = std::error::Error::source(&refused)
        .expect("a cause")
        .to_string();
    assert!(source.contains("tanada-lab does"), "{source}");
    assert_eq!(files(folder.path()), [""; 0]);
    std::fs::write(&path, b"PAR1").expect("written");
    let refused = open(&path, &ReadOptions::default())
        .err()
        .expect("no decoder");
    assert!(refused.to_string().contains("tanada-lab does"), "{refused}");
}

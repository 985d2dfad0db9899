//! Sweeps end the same whichever way they are run.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::*;

const PLAN: &str = "kind = 'test'\nseed = 5\nrepeats = 2\n\
                    [parameters]\nname = ['a', 'b, \"c\"']\nx = { from = 0, to = 4, step = 1 }\n";

fn plan() -> Plan {
    Plan::of(PLAN, Path::new("")).unwrap()
}

/// Two rows at a point, figures of all types, a third that does not always come; one point in seven fails, one panics.
fn job(point: &Point) -> Result<Vec<Row>, JobError> {
    let x = point
        .parameters
        .iter()
        .find(|(key, _)| key == "x")
        .unwrap()
        .1
        .number()
        .unwrap();
    if point.number % 7 == 3 {
        return Err(format!("{x} is no good").into());
    }
    assert_ne!(point.number, 8, "eight");
    let row = |op: &str| {
        let mut row = vec![
            ("op".to_owned(), Figure::from(op)),
            ("y".to_owned(), Figure::Real(x / 3.0 + point.seed as f64)),
            (
                "even".to_owned(),
                Figure::Truth(point.number.is_multiple_of(2)),
            ),
        ];
        if x > 2.0 {
            row.push(("x".to_owned(), Figure::Whole(1 << 40)));
        }
        row
    };
    Ok(vec![row("read"), row("write")])
}

fn files(out: &Path) -> (Vec<u8>, Vec<u8>) {
    (
        fs::read(out.join("results.csv")).unwrap(),
        fs::read(out.join("results.parquet")).unwrap(),
    )
}

fn whole(out: &Path) -> Summary {
    run(&plan(), &job, &Options::new(out), &|_| ()).unwrap()
}

#[test]
fn parts_merged_in_any_order_are_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let summary = whole(&at("whole"));
    assert_eq!(summary.failed().len(), 4);
    for part in [3, 1, 2] {
        let options = Options {
            shard: Shard { part, of: 3 },
            ..Options::new(at("parts"))
        };
        run(&plan(), &job, &options, &|_| ()).unwrap();
    }
    let merged = merge(&[at("parts")], false).unwrap();
    assert_eq!(merged, summary.results);
    write_merged(&merged, &at("merged")).unwrap();
    assert_eq!(files(&at("merged")), files(&at("whole")));

    // Named one by one, last first.
    let named = [2, 3, 1].map(|part| at("parts").join(journal::name(Shard { part, of: 3 })));
    assert_eq!(merge(&named, false).unwrap(), merged);
    let refusal = merge(&named[..2], false).unwrap_err().to_string();
    assert!(
        refusal.starts_with("7 of 20 points are missing (0 of part 1/3, 3 of part 1/3"),
        "{refusal}"
    );
    assert_eq!(merge(&named[..2], true).unwrap().failed().len(), 3);
    let twice = merge(&[named[0].clone(), at("parts")], false).unwrap_err();
    assert!(
        matches!(twice, SweepError::Twice { point: 1, .. }),
        "{twice}"
    );
}

#[test]
fn parts_of_two_plans_are_not_merged() {
    let directory = tempfile::tempdir().unwrap();
    let other = Plan::of(&PLAN.replace("seed = 5", "seed = 6"), Path::new("")).unwrap();
    for (part, plan) in [(1, plan()), (2, other)] {
        let options = Options {
            shard: Shard { part, of: 2 },
            ..Options::new(directory.path())
        };
        run(&plan, &job, &options, &|_| ()).unwrap();
    }
    let refusal = merge(&[directory.path().to_owned()], false).unwrap_err();
    assert!(matches!(refusal, SweepError::Mixed(_)), "{refusal}");
    let nothing = tempfile::tempdir().unwrap();
    let refusal = merge(&[nothing.path().to_owned()], false).unwrap_err();
    assert!(matches!(refusal, SweepError::NoJournal { .. }), "{refusal}");
}

#[test]
fn a_journal_cut_at_any_line_is_gone_on_with_and_ends_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path();
    whole(out);
    let expected = files(out);
    let path = out.join("journal.jsonl");
    let journal = fs::read(&path).unwrap();
    for share in 0..8 {
        fs::write(&path, &journal[..journal.len() * share / 8]).unwrap();
        let ran = AtomicU64::new(0);
        let counted = |point: &Point| {
            ran.fetch_add(1, Ordering::Relaxed);
            job(point)
        };
        let summary = run(&plan(), &counted, &Options::new(out), &|_| ()).unwrap();
        assert_eq!(ran.into_inner() + summary.resumed, 20);
        assert_eq!(files(out), expected, "cut to {share} eighths");
    }
}

#[test]
fn what_is_done_is_not_done_again_and_what_failed_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    whole(directory.path());
    let ran = Mutex::new(Vec::new());
    let better = |point: &Point| {
        ran.lock().unwrap().push(point.number);
        Ok(vec![vec![("y".to_owned(), Figure::Whole(1))]])
    };
    let summary = run(&plan(), &better, &Options::new(directory.path()), &|_| ()).unwrap();
    let mut ran = ran.into_inner().unwrap();
    ran.sort_unstable();
    assert_eq!((summary.resumed, ran), (16, vec![3, 8, 10, 17]));
    assert!(summary.failed().is_empty());
}

#[test]
fn a_failure_is_written_down_with_its_reason_and_the_rest_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Mutex::new((0, Vec::new()));
    let progress = |progress: Progress<'_>| {
        let mut seen = seen.lock().unwrap();
        seen.0 = progress.done;
        seen.1.extend(progress.failure.map(|(point, _)| point));
    };
    let summary = run(&plan(), &job, &Options::new(directory.path()), &progress).unwrap();
    let failed = summary.failed();
    assert_eq!(failed[0], (3, "1 is no good"));
    assert!(
        failed[1].0 == 8 && failed[1].1.contains("eight"),
        "{failed:?}"
    );
    let (done, mut reported) = seen.into_inner().unwrap();
    reported.sort_unstable();
    assert_eq!((done, reported), (20, vec![3, 8, 10, 17]));
    assert_eq!(summary.results.rows(), 16 * 2 + 4);
}

#[test]
fn results_are_typed_columns_and_quoted_lines() {
    let directory = tempfile::tempdir().unwrap();
    let summary = whole(directory.path());
    let csv = fs::read_to_string(&summary.csv).unwrap();
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some("point,plan,seed,name,x,op,y,even,result.x,failed")
    );
    let identity = plan().identity().to_owned();
    assert_eq!(
        lines.next(),
        Some(&*format!("0,{identity},5,a,0,read,5,true,,"))
    );
    assert!(csv.contains("\"b, \"\"c\"\"\""), "{csv}");

    let reader = SerializedFileReader::new(fs::File::open(&summary.parquet).unwrap()).unwrap();
    let rows: Vec<_> = reader
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows.len(), summary.results.rows());
    for (n, row) in rows.iter().enumerate() {
        for (name, field) in row.get_column_iter() {
            let expected = summary.results.cell(n, name);
            match (field, expected) {
                (Field::Null, None) => {}
                (Field::Long(a), Some(Figure::Whole(b))) => assert_eq!(a, b),
                (Field::Double(a), Some(Figure::Real(b))) => assert_eq!(a, b),
                (Field::Bool(a), Some(Figure::Truth(b))) => assert_eq!(a, b),
                (Field::Str(a), Some(Figure::Text(b))) => assert_eq!(a, b),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn jobs_at_a_time_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let results = [1, 4].map(|jobs| {
        let out = directory.path().join(jobs.to_string());
        let options = Options {
            jobs,
            ..Options::new(&out)
        };
        run(&plan(), &job, &options, &|_| ()).unwrap();
        files(&out)
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn the_page_draws_measured_values_along_a_numeric_parameter() {
    let directory = tempfile::tempdir().unwrap();
    let summary = whole(directory.path());
    let html = page(&summary.results, &View::default()).html();
    assert!(
        html.contains("y by x") && html.contains("b, &quot;c&quot;"),
        "curves by name"
    );
    assert!(html.contains("1 is no good") && html.contains(plan().identity()));
}

#[test]
fn a_part_is_written_as_one_of_so_many() {
    assert_eq!("3/16".parse(), Ok(Shard { part: 3, of: 16 }));
    for wrong in ["0/4", "5/4", "1/0", "x/4", "1", "-1/4", "1/4/2"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
    let parts = [1, 2, 3].map(|part| Shard { part, of: 3 });
    for point in 0..100 {
        assert_eq!(parts.iter().filter(|part| part.has(point)).count(), 1);
    }
}

#[test]
fn a_measured_value_that_is_not_there_ends_the_sweep_at_its_first_point() {
    let directory = tempfile::tempdir().unwrap();
    let ran = AtomicU64::new(0);
    let counted = |point: &Point| {
        ran.fetch_add(1, Ordering::Relaxed);
        job(point)
    };
    let options = |y: &str| Options {
        jobs: 1,
        wanted: vec!["y".to_owned(), y.to_owned()],
        ..Options::new(directory.path())
    };
    let refusal = run(&plan(), &counted, &options("speed"), &|_| ()).unwrap_err();
    let refusal = refusal.to_string();
    assert!(
        refusal.starts_with("'speed' was not measured at point 0; there are op, y, even;"),
        "{refusal}"
    );
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    // Its point is kept.
    let refusal = run(&plan(), &counted, &options("speed"), &|_| ()).unwrap_err();
    assert!(
        matches!(refusal, SweepError::NotMeasured { .. }),
        "{refusal}"
    );
    let summary = run(&plan(), &counted, &options("even"), &|_| ()).unwrap();
    assert_eq!((summary.resumed, ran.into_inner()), (1, 20));
}

#[test]
fn what_charts_run_along_is_looked_up_in_the_plan() {
    let along = |x: &str| {
        let view = View {
            x: Some(x.to_owned()),
            ..View::default()
        };
        view.check_plan(&plan())
    };
    assert_eq!((along("x"), along("seed")), (Ok(()), Ok(())));
    for wrong in ["name", "z"] {
        let refusal = along(wrong).unwrap_err();
        assert!(refusal.ends_with("there are seed, name, x"), "{refusal}");
    }
}

#[test]
fn constant_values_are_checked_but_not_drawn_generated_traces_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let same = |_: &Point| {
        let origin = Figure::from("generated: zipf, seed 5");
        Ok(vec![vec![
            ("y".to_owned(), Figure::Real(0.5)),
            (ORIGIN.to_owned(), origin),
        ]])
    };
    let results = run(&plan(), &same, &Options::new(directory.path()), &|_| ())
        .unwrap()
        .results;
    assert_eq!(headline(&results, &View::default()), ["y"]);
    assert_eq!(results.origins(), ["generated: zipf, seed 5"]);
    let html = page(&results, &View::default()).html();
    let facts = &html[..html.find("All points").unwrap()];
    assert!(!facts.contains("y by x") && facts.contains("generated: zipf, seed 5"));
}

//! Is the model what it says, and does every row come out once?

use super::*;

/// As little as has every row.
fn tiny() -> Plan {
    Plan {
        together: Nanos::secs(2),
        figures: Nanos::secs(3),
        seed: 1,
        seeds: 1,
        step: 10.0,
    }
}

#[test]
fn the_model_does_what_it_is_calibrated_to() {
    let plan = Plan {
        figures: Nanos::secs(40),
        seeds: 2,
        ..tiny()
    };
    let base = Base::measure(&plan);
    assert!((234.0..238.0).contains(&mb(base.read)), "{}", base.read);
    let rows = (single::jobs(&plan, &base)[0].1)().rows;
    for row in rows.iter().filter(|row| row.table == "table 2") {
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::number).unwrap();
        let (published, ours) = (number(&row.published), number(&row.ours));
        // Of the sums of writes the paper hides most; the model does not.
        let within = match (&*row.metric, row.case.ends_with("CSUM")) {
            (_, true) if row.case.starts_with("write") => 2.0,
            ("mean_mb_s", _) => 0.03,
            _ => 0.6,
        };
        assert!(
            (ours - published).abs() <= within * published,
            "{} {}: {ours} of {published}",
            row.case,
            row.metric
        );
    }
}

#[test]
fn reads_of_two_in_turn_lose_what_the_paper_lost() {
    let plan = tiny();
    let base = Base::measure(&plan);
    let half = BytesPerSec(base.read.0 / 2);
    let clients = bed::with_rates(Direction::Read, &[half, half]);
    let end = Instant(0) + Nanos::secs(10);
    let run = bed::run(&Method::rounds(64), Times::STORE, &clients, end, 1);
    let share = mb(run.total()) / mb(base.read);
    assert!((0.895..0.925).contains(&share), "{share}");
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let plan = tiny();
    let base = Base::measure(&plan);
    let jobs = needed::jobs(&plan, &base);
    let job = jobs.iter().find(|(name, _)| name == "tags of 3 writes");
    let (_, job) = job.expect("there is one");
    let rows = job().rows;
    assert_eq!(rows, job().rows);
    let overheads = rows.iter().filter(|row| row.metric == "overhead_percent");
    assert_eq!(overheads.count(), 13);
}

#[test]
fn no_two_rows_share_a_place() {
    let plan = tiny();
    let base = Base::measure(&plan);
    let mut jobs = needed::jobs(&plan, &base);
    jobs.retain(|(name, _)| name.contains("of 2 ") || name.contains("of 6 "));
    jobs.extend(
        scenes::jobs(&plan, &base)
            .into_iter()
            .filter(|(name, _)| !name.starts_with("32")),
    );
    let found = side_by_side(&jobs, &mut |_, _| {});
    let mut rows: Vec<Row> = found.into_iter().flat_map(|found| found.rows).collect();
    rows.extend(compare::stated(&rows));
    rows.extend(compare::claims(&rows));
    let mut places: Vec<_> = rows
        .iter()
        .map(|row| (&row.table, &row.case, &row.method, &row.metric))
        .collect();
    let all = places.len();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), all);
    assert!(rows.iter().any(|row| row.table == "scenes"));
}

//! Folders, names, warnings; and a real server where there is one.

use super::*;

/// A small plan: two clients, half a second.
fn small() -> Plan {
    Plan {
        records: Records {
            count: 2_000,
            ..Records::default()
        },
        workloads: vec![Workload::WorkloadA, Workload::WriteOnly],
        clients: 2,
        counts: Nanos::millis(500),
        ramp: Nanos::millis(100),
        runs: 1,
        server: Settings {
            log: Bytes::mib(8),
            buffer_pool: Bytes::mib(8),
            ..Settings::default()
        },
        ..Plan::default()
    }
}

#[test]
fn a_folder_of_ours_leaves_nothing_and_touches_nothing() {
    let target = tempfile::tempdir().unwrap();
    let mine = target.path().join("mine");
    fs::write(&mine, "data").unwrap();
    let refusal = Home::claim(target.path(), false).unwrap_err().to_string();
    assert!(
        refusal.contains("holds data, such as mine: ") && refusal.contains("--beside"),
        "{refusal}"
    );
    let (home, left) = Home::claim(target.path(), true).unwrap();
    assert!(!left);
    fs::create_dir(home.data()).unwrap();
    let busy = Home::claim(target.path(), true).unwrap_err().to_string();
    assert!(busy.starts_with("another run is under way in "), "{busy}");
    drop(home);
    let entries = fs::read_dir(target.path()).unwrap().count();
    assert_eq!(
        (entries, fs::read_to_string(&mine).unwrap()),
        (1, "data".to_owned())
    );
}

#[test]
fn what_a_dead_run_left_is_cleared_and_what_is_not_ours_is_not() {
    let target = tempfile::tempdir().unwrap();
    let folder = target.path().join(FOLDER);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("something"), "dear").unwrap();
    let refusal = Home::claim(target.path(), false).unwrap_err().to_string();
    assert!(
        refusal.contains("holds data, such as tanada-bench-app without its file 'owner'"),
        "{refusal}"
    );
    // No process has this number: the largest there can be is 2^22.
    fs::write(folder.join(OWNER), "4194305").unwrap();
    let (home, left) = Home::claim(target.path(), false).unwrap();
    assert!(left);
    assert!(!home.data().parent().unwrap().join("something").exists());
}

#[test]
fn what_differs_has_another_name() {
    let plan = small();
    let mut names = vec![plan.planned()[0].name.clone()];
    let mut other = |change: &dyn Fn(&mut Plan)| {
        let mut plan = small();
        change(&mut plan);
        names.push(plan.planned()[0].name.clone());
    };
    other(&|plan| plan.clients = 3);
    other(&|plan| plan.rate = Some(100.0));
    other(&|plan| plan.records.count = 2_001);
    other(&|plan| plan.server.commit = mariadb::Commit::Lazy);
    other(&|plan| plan.server.direct = false);
    other(&|plan| plan.server.buffer_pool = Bytes::mib(9));
    other(&|plan| plan.server.log = Bytes::mib(9));
    other(&|plan| plan.counts = Nanos::millis(501));
    other(&|plan| plan.ramp = Nanos::millis(101));
    other(&|plan| plan.seed = 2);
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}

#[test]
fn a_reader_is_warned_where_the_device_is_hardly_reached() {
    let memory = Some(Bytes::gib(16));
    assert_eq!(Plan::default().warnings(memory), Vec::<String>::new());
    let warned = small().warnings(memory);
    assert_eq!(
        warned,
        [
            "1.9 MiB of data are less than twice the buffer pool of 8.0 MiB: many reads will not reach the device"
        ]
    );
    let mut buffered = Plan::default();
    buffered.server.direct = false;
    assert!(buffered.warnings(memory)[0].contains("fit the page cache"));
    assert_eq!(buffered.warnings(None), Vec::<String>::new());
}

/// The programs; `None` if they are missing and may be.
fn tools() -> Option<Tools> {
    match Tools::find() {
        Ok(tools) => Some(tools),
        Err(error) => {
            let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|v| v == "1");
            assert!(!required, "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn a_real_server_is_loaded_measured_and_gone() {
    let Some(tools) = tools() else { return };
    let target = tempfile::tempdir().unwrap();
    // The server's user must get to its folder.
    fs::set_permissions(
        target.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    // A temporary table of another server: servers clear them away where they start.
    let mut foreign = tempfile::Builder::new();
    let foreign = foreign.prefix("#sql-temptable-").suffix(".MAD");
    let foreign = foreign.tempfile().unwrap();
    let plan = small();
    let stop = Stop::default();
    let (home, _) = Home::claim(target.path(), false).unwrap();
    let mut last = 0.0;
    prepare(&tools, &home.data(), &plan, &stop, &mut |_, done| {
        last = done
    })
    .unwrap();
    assert_eq!(last, 1.0);
    let server = Server::start(&tools, &home.data(), &plan.server, &stop).unwrap();
    let socket = server.connect().is_ok();
    assert!(socket);
    for planned in plan.planned() {
        let outcome = measure(&server, &plan, &planned, target.path(), &stop).unwrap();
        let reads = outcome.reads.map_or(0, |of| of.operations);
        let updates = outcome.updates.unwrap().operations;
        assert_eq!(reads > 0, planned.workload == Workload::WorkloadA);
        assert!(updates > 0 && outcome.operations_all >= reads + updates);
        assert!(
            outcome.reads_intended.is_none(),
            "a closed loop intends nothing"
        );
    }
    let paced = Plan {
        rate: Some(40.0),
        ..small()
    };
    let outcome = measure(&server, &paced, &paced.planned()[0], target.path(), &stop).unwrap();
    // 40 a second for half of one: all that were to begin did.
    let intended = outcome.reads_intended.map_or(0, |of| of.operations)
        + outcome.updates_intended.map_or(0, |of| of.operations);
    assert_eq!(intended, 20);
    // One that cannot be found fails the run.
    let mut client = sql::Client::new(server.connect().unwrap(), plan.records).unwrap();
    let missing = work::Operation::Read { record: 2_000 };
    let answer = env::Runtime::simulated(1)
        .block_on(async move { drive::Database::execute(&mut client, &missing).await });
    assert_eq!(answer, Err(format!("no record {}", keys::key(2_000))));
    server.stop().unwrap();
    assert!(foreign.path().exists(), "another server's file is gone");
    drop(home);
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_load_ends_and_leaves_nothing() {
    let Some(tools) = tools() else { return };
    let target = tempfile::tempdir().unwrap();
    fs::set_permissions(
        target.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let stop = Stop::default();
    let (home, _) = Home::claim(target.path(), false).unwrap();
    let stopping = stop.clone();
    let answer = prepare(&tools, &home.data(), &small(), &stop, &mut |what, done| {
        if what == "loading" && done > 0.4 {
            stopping.set();
        }
    });
    assert!(matches!(answer, Err(AppError::Interrupted)), "{answer:?}");
    drop(home);
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

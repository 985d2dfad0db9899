//! Configurations as stacks, and what is reported about them.

use base::Bytes;

use super::*;

const CACHE: &str = r#"
[[device]]
name = "hdd0"
model = "hdd-7200-sata"
size = "1GiB"
[[device]]
name = "ssd0"
model = "ssd-sata-mlc"
size = "64MiB"
[[hybrid]]
name = "vol0"
slow = "hdd0"
fast = "ssd0"
policy = "lru"
"#;

fn refusal(text: &str, volume: Option<&str>) -> String {
    let error = stack(text, "stack.toml", "stack", volume).unwrap_err();
    assert!(
        error.is::<Usage>() || error.is::<config::ConfigError>(),
        "{error}"
    );
    error.to_string()
}

/// A trace of `count` reads and writes within the first 200 MiB, one each 10 ms.
fn trace(count: u64) -> tempfile::NamedTempFile {
    let mut text = "t_us,op,offset,size,dev\n".to_owned();
    for n in 0..count {
        let op = if n % 3 == 0 { "W" } else { "R" };
        let page = n * 7919 % 100 * 500;
        text.push_str(&format!("{},{op},{},4096,0\n", n * 10_000, page * 4096));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn source(file: &tempfile::NamedTempFile) -> Source {
    let paths = [file.path().to_owned()];
    Source::survey(&paths, ReadOptions::default(), None, &mut |_| {}).unwrap()
}

#[test]
fn a_configuration_of_serve_is_a_stack() {
    let made = stack(CACHE, "stack.toml", "cache", None).unwrap();
    assert_eq!(
        (made.name.as_str(), made.volume.as_str()),
        ("cache", "vol0")
    );
    assert_eq!(made.volume_size(), Bytes::gib(1));
    assert_eq!(made.hybrids[0].settings.policy.to_string(), "lru");
    assert_eq!(made.config, CACHE);
    let part = stack(CACHE, "stack.toml", "cache", Some("hdd0")).unwrap();
    assert_eq!(part.volume, "hdd0");
    let built_in = config::default_text(Path::new("nowhere"));
    assert_eq!(
        stack(&built_in, "", "built-in", None).unwrap().volume,
        "vol0"
    );
}

#[test]
fn a_memory_device_is_the_model_of_one() {
    let text = "[[device]]\nname = \"m\"\nmemory = true\nsize = \"64MiB\"\n";
    let made = stack(text, "stack.toml", "memory", None).unwrap();
    assert_eq!(made.devices[0].spec.name, "dram");
}

#[test]
fn a_stripe_of_a_configuration_is_one_of_the_stack() {
    let disk =
        |n| format!("[[device]]\nname = \"hdd{n}\"\nmodel = \"hdd-10k-sas\"\nsize = \"1GiB\"\n");
    let disks: String = (0..4).map(disk).collect();
    let stripe =
        "[[stripe]]\nname = \"raid\"\ndevices = [\"hdd0\", \"hdd1\", \"hdd2\", \"hdd3\"]\n";
    let made = stack(&format!("{disks}{stripe}"), "stack.toml", "raid", None).unwrap();
    assert_eq!(
        (made.volume.as_str(), made.volume_size()),
        ("raid", Bytes::gib(4))
    );
    assert_eq!(made.stripes[0].members.len(), 4);
}

#[test]
fn a_real_device_and_an_unclear_volume_are_refused_by_name() {
    let real = "[[device]]\nname = \"hdd0\"\npath = \"/dev/nowhere\"\n";
    assert_eq!(
        refusal(real, None),
        "stack.toml: device \"hdd0\" is a real one (/dev/nowhere), and a simulation has only models: write model = \
         \"...\" and size = \"...\" in place of path (`tanada model list` lists them)"
    );
    let two = CACHE.split("[[hybrid]]").next().unwrap();
    assert_eq!(
        refusal(two, None),
        "stack.toml: there are hdd0, ssd0: say with --volume which one the trace goes to"
    );
    assert!(refusal(CACHE, Some("vol1")).contains("did you mean vol0?"));
    assert!(refusal("[[device]]\nnam = 1\n", None).contains("did you mean name?"));
}

#[test]
fn a_text_of_a_configuration_is_run_as_it_is() {
    let file = trace(600);
    let source = source(&file);
    assert_eq!(source.survey.requests, 600);
    let replay = Replay::default();
    let run =
        |text: &str| run_config_text(text, "a", None, &source, Fit::Refuse, &replay, &mut |_| {});
    let lru = run(CACHE).unwrap();
    assert_eq!((lru.counts.requests, lru.counts.writes), (600, 200));
    assert_eq!(lru.caches[0].status.policy, "lru");
    assert_eq!(
        serde_json::to_string(&lru).unwrap(),
        serde_json::to_string(&run(CACHE).unwrap()).unwrap()
    );
    let small = CACHE.replace("1GiB", "128MiB");
    let refused = run(&small).unwrap_err();
    assert!(refused.is::<Usage>(), "{refused}");
    assert!(refused.to_string().contains("--fit grow"), "{refused}");
    let grown =
        run_config_text(&small, "a", None, &source, Fit::Grow, &replay, &mut |_| {}).unwrap();
    assert_eq!(grown.setup.volume_bytes, 194 << 20);
}

#[test]
fn stacks_stand_side_by_side() {
    let file = trace(400);
    let source = source(&file);
    let replay = Replay {
        heat: true,
        ..Replay::default()
    };
    let outcomes = [("hdd", Some("hdd0")), ("cache", None)].map(|(name, volume)| {
        run_config_text(
            CACHE,
            name,
            volume,
            &source,
            Fit::Refuse,
            &replay,
            &mut |_| {},
        )
        .unwrap()
    });
    let text = text(&outcomes, "a.csv");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("a.csv: 400 requests, at 1x its speed; modelled devices"),
        "{text}"
    );
    assert!(
        lines[2].trim().starts_with("hdd") && lines[2].ends_with("cache"),
        "{text}"
    );
    let row = |what: &str| {
        let line = lines
            .iter()
            .find(|line| line.trim_start().starts_with(what));
        line.unwrap_or_else(|| panic!("no {what} in\n{text}"))
            .trim()
    };
    let cells: Vec<&str> = row("requests ").split_whitespace().collect();
    assert_eq!(cells, ["requests", "400", "400"]);
    assert!(row("hits, bytes").contains(" - "), "{text}");
    assert!(row("ssd0 written").ends_with('B'), "{text}");
    // Every line of figures has as many columns as there are stacks.
    assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text}");

    let html = page::page(
        &outcomes,
        &source,
        "tanada sim run a.csv --config cache.toml",
    );
    for part in [
        "Side by side",
        "Response times",
        "Requests by region, cache",
        "policy = &quot;lru&quot;",
        "tanada sim run a.csv",
    ] {
        assert!(html.contains(part), "no {part}");
    }
}

#[test]
fn warm_ups_are_requests_or_time() {
    assert_eq!(read_warm_up("100"), Ok(WarmUp::Requests(100)));
    assert_eq!(read_warm_up("10m"), Ok(WarmUp::For(Nanos::secs(600))));
    assert!(
        read_warm_up("long")
            .unwrap_err()
            .contains("neither a number")
    );
}

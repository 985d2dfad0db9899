//! The catalogue: every figure has its source, own models can be loaded, and every refusal names the key.

use base::{Bytes, Instant, Sector, Span};
use device::Op;
use device::model::{Kind, Request, Spec, SpecError, catalogue};

#[test]
fn every_figure_of_the_catalogue_has_a_source() {
    let models = catalogue();
    assert_eq!(models.len(), 11);
    for model in &models {
        assert!(!model.about.is_empty());
        assert!(model.figures.len() >= 8, "{}", model.name);
        for figure in &model.figures {
            assert!(
                figure.source.len() > 2,
                "{}: {} = {} has no source",
                model.name,
                figure.key,
                figure.value
            );
        }
    }
    let text = serde_json::to_string(&models).expect("it is plain data");
    assert!(
        text.contains(r#""key":"hdd.rpm","value":"7200","unit":"1/min""#),
        "{text}"
    );
}

#[test]
fn the_five_devices_of_the_prediction_paper_are_there_by_name() {
    for (name, kib, read, write) in [
        ("nand", 4, 151.73, 53.217),
        ("nand", 64, 583.91, 222.34),
        ("3dxp", 4, 18.287, 27.403),
        ("3dxp", 64, 49.79, 55.427),
        ("dram", 16, 3.5567, 5.7967),
        ("dram", 64, 15.247, 19.527),
        ("scm1", 64, 0.0, 50.0),
        ("scm2", 64, 0.0, 25.0),
    ] {
        let spec = Spec::find(name).expect("in the catalogue");
        for (op, published) in [(Op::Read, read), (Op::Write, write)] {
            if published == 0.0 {
                continue;
            }
            let mut core = spec.timing(None, 1).expect("its own size");
            let span = Span::new(Sector(0), Bytes::kib(kib));
            let (id, fua) = (0, false);
            core.submit(Instant(0), Request { id, op, span, fua });
            let took = core.next().expect("one is under way").0 as f64 / 1e3;
            assert!((took - published).abs() < 0.01, "{name} {op}: {took}");
        }
    }
}

#[test]
fn between_and_beyond_the_given_sizes_latency_runs_on_straight_lines() {
    let spec = Spec::find("dram").unwrap();
    let took = |bytes: u64| {
        let mut core = spec.timing(None, 1).unwrap();
        let span = Span::new(Sector(0), Bytes(bytes));
        let (id, op, fua) = (0, Op::Read, false);
        core.submit(Instant(0), Request { id, op, span, fua });
        core.next().unwrap().0 as f64 / 1e3
    };
    assert!((took(40_960) - (3.5567 + 15.247) / 2.0).abs() < 0.01);
    assert!((took(512) - 0.913).abs() < 0.001);
    let slope = (53.26 - 15.247) / (262_144.0 - 65_536.0);
    assert!((took(1 << 20) - (53.26 + slope * 786_432.0)).abs() < 0.1);
}

const OWN: &str = r#"
name = "mine"
about = "a small fast thing"
size = "1GiB"
[sources]
sheet = "its sheet"
[constant]
read_us = { value = [[4096, 10]], source = "sheet" }
write_us = [[4096, 20.5]]
parallel = 2
read_mb_s = 1000
write_mb_s = 500
[power]
idle_watts = 1
read_watts = 2
write_watts = { value = 3, source = "measured on 2026-11-01" }
"#;

#[test]
fn a_model_of_ones_own_is_loaded_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.toml");
    std::fs::write(&path, OWN).unwrap();
    let spec = Spec::find(path.to_str().unwrap()).expect("a good model");
    assert_eq!((spec.name.as_str(), spec.size), ("mine", Bytes::gib(1)));
    assert!(matches!(spec.kind, Kind::Constant(_)));
    let source = |key: &str| {
        let figure = spec.figures.iter().find(|figure| figure.key == key);
        figure.expect("it is a figure").source.clone()
    };
    assert_eq!(source("constant.read_us"), "its sheet");
    assert_eq!(source("power.write_watts"), "measured on 2026-11-01");
    assert_eq!(source("constant.parallel"), "");

    let gone = Spec::find(folder.path().join("gone.toml").to_str().unwrap());
    assert!(matches!(gone, Err(SpecError::Read { .. })));
}

#[test]
fn every_refusal_names_the_key() {
    for (from, to, key) in [
        ("parallel = 2", "parallel = 0", "constant.parallel"),
        ("read_mb_s = 1000", "", "read_mb_s"),
        (
            "read_mb_s = 1000",
            "read_mb_s = \"fast\"",
            "constant.read_mb_s",
        ),
        ("parallel = 2", "parallel = 2\nparalel = 3", "paralel"),
        (
            "write_us = [[4096, 20.5]]",
            "write_us = []",
            "constant.write_us",
        ),
        ("size = \"1GiB\"", "size = 1000", "size"),
        ("size = \"1GiB\"", "size = \"much\"", "size"),
        ("idle_watts = 1", "idle_watts = -1", "power.idle_watts"),
        (
            "idle_watts = 1",
            "standby_after_s = 5",
            "power.standby_after_s",
        ),
        ("[constant]", "[constants]", "constants"),
        ("idle_watts = 1", "idle_watts = nan", "power.idle_watts"),
    ] {
        let text = OWN.replacen(from, to, 1);
        assert_ne!(text, OWN, "{from}");
        let refusal = Spec::parse("own.toml", &text).expect_err(to).to_string();
        assert!(refusal.contains("own.toml"), "{refusal}");
        assert!(refusal.contains(key), "{to}: {refusal}");
    }
    let disk = include_str!("../src/model/catalogue/hdd-7200-sata.toml");
    for (from, to, key) in [
        ("[0.8, 8.5, 17.0]", "[0.8, 18.5, 17.0]", "hdd.read_seek_ms"),
        ("[0.8, 8.5, 17.0]", "[0.8, 8.5]", "hdd.read_seek_ms"),
        ("value = 7_200", "value = 0", "hdd.rpm"),
        ("value = 40,", "value = 90,", "hdd.inner_mb_s"),
        (
            "switch_ms = { value = 1.0",
            "switch_ms = { value = 0.5",
            "hdd.switch_ms",
        ),
    ] {
        let text = disk.replacen(from, to, 1);
        assert_ne!(text, disk, "{from}");
        let refusal = Spec::parse("disk.toml", &text).expect_err(to).to_string();
        assert!(refusal.contains(key), "{to}: {refusal}");
    }
    let flash = include_str!("../src/model/catalogue/ssd-sata-mlc.toml");
    for (from, to, key) in [
        ("\"256GiB\"", "\"240GB\"", "ssd.raw_size"),
        ("\"4MiB\"", "\"16KiB\"", "ssd.buffer_size"),
        (
            "channels = { value = 8",
            "channels = { value = 0",
            "ssd.channels",
        ),
    ] {
        let text = flash.replacen(from, to, 1);
        assert_ne!(text, flash, "{from}");
        let refusal = Spec::parse("flash.toml", &text).expect_err(to).to_string();
        assert!(refusal.contains(key), "{to}: {refusal}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_names_there_are() {
    let refusal = Spec::find("hdd-15k")
        .expect_err("there is none")
        .to_string();
    assert!(
        refusal.starts_with("no model 'hdd-15k': the catalogue has hdd-10k-sas, "),
        "{refusal}"
    );
    assert!(refusal.contains("3dxp"));
}

#[test]
fn every_model_serves_first_and_last_sector_at_its_size_and_at_a_mebibyte() {
    for model in catalogue() {
        let spec = Spec::find(&model.name).expect("in the catalogue");
        for size in [None, Some(Bytes::mib(1)), Some(Bytes::gib(1))] {
            let mut core = spec.timing(size, 1).expect("a size it can have");
            let last = size.unwrap_or(spec.size).sectors() - 8;
            let places = [
                (Op::Write, 0),
                (Op::Read, last),
                (Op::Write, last),
                (Op::Read, 0),
            ];
            for (id, (op, at)) in places.into_iter().enumerate() {
                let (id, fua) = (id as u64, op == Op::Write);
                let span = Span::new(Sector(at), Bytes(4096));
                core.submit(Instant(0), Request { id, op, span, fua });
            }
            let mut completed = 0;
            while let Some(next) = core.next() {
                core.advance(next);
                while core.take_done().is_some() {
                    completed += 1;
                }
            }
            assert_eq!(completed, 4, "{} at {size:?}", model.name);
        }
    }
}

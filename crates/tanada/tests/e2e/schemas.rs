//! What commands print with --json fits the schemas that `tanada schema` prints; completion, and the manual.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Daemon, json, run, stderr, text, without};
use crate::spellings::with_cluster;

/// Where `value` does not fit the schema of `command`.
fn misfits(dir: &Path, command: &str, value: &Value) -> Vec<String> {
    let words: Vec<&str> = ["schema"].into_iter().chain(command.split(' ')).collect();
    let schema = json(dir, &words);
    let mut found = Vec::new();
    fit(&schema, &schema, value, "", &mut found);
    found
}

/// Notes where `value`, at `at`, does not fit `schema` of the document `whole`. A keyword that is not known here fails.
fn fit(whole: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let keywords = schema.as_object().expect("a schema is an object");
    let mut odd = |what: String| found.push(format!("{at}: {what}"));
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "type" if !is_of(wanted, value) => odd(format!("{value} is not of type {wanted}")),
            "enum" if !wanted.as_array().unwrap().contains(value) => {
                odd(format!("{value} is none of {wanted}"));
            }
            // They say nothing of what is no number, such as null.
            "minimum" if value.is_number() && value.as_f64() < wanted.as_f64() => {
                odd(format!("{value} < {wanted}"));
            }
            "maximum" if value.is_number() && value.as_f64() > wanted.as_f64() => {
                odd(format!("{value} > {wanted}"));
            }
            "required" => {
                let keys = wanted.as_array().unwrap().iter();
                let lacks = keys.filter(|key| value.get(key.as_str().unwrap()).is_none());
                lacks.for_each(|key| odd(format!("{key} is missing")));
            }
            "type"
            | "enum"
            | "minimum"
            | "maximum"
            | "format"
            | "description"
            | "title"
            | "example"
            | "$schema"
            | "$defs"
            | "properties"
            | "items"
            | "$ref"
            | "oneOf"
            | "anyOf"
            | "allOf"
            | "additionalProperties"
            | "propertyNames"
            | "default" => {}
            unknown => panic!("{at}: {unknown}"),
        }
    }
    fit_below(whole, schema, value, at, found);
}

/// The same of what `schema` names and of what is inside `value`.
fn fit_below(whole: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(to) = schema.get("$ref") {
        let named = to.as_str().unwrap().trim_start_matches("#/$defs/");
        fit(whole, &whole["$defs"][named], value, at, found);
    }
    for one in schema
        .get("allOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        fit(whole, one, value, at, found);
    }
    for keyword in ["oneOf", "anyOf"] {
        let Some(choices) = schema.get(keyword).and_then(Value::as_array) else {
            continue;
        };
        let fitting = |choice: &&Value| {
            let mut found = Vec::new();
            fit(whole, choice, value, at, &mut found);
            found.is_empty()
        };
        match choices.iter().filter(fitting).count() {
            1 => {}
            0 => found.push(format!("{at}: fits none of {keyword}")),
            many if keyword == "oneOf" => found.push(format!("{at}: fits {many} of oneOf")),
            _ => {}
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, inside) in value.as_object().into_iter().flatten() {
        let known = properties.and_then(|properties| properties.get(key));
        let others = schema
            .get("additionalProperties")
            .filter(|it| it.is_object());
        if let Some(below) = known.or(others) {
            fit(whole, below, inside, &format!("{at}/{key}"), found);
        }
    }
    if let (Some(items), Some(all)) = (schema.get("items"), value.as_array()) {
        for (number, inside) in all.iter().enumerate() {
            fit(whole, items, inside, &format!("{at}/{number}"), found);
        }
    }
}

/// Is `value` of this type, or of one of these?
fn is_of(wanted: &Value, value: &Value) -> bool {
    if let Some(all) = wanted.as_array() {
        return all.iter().any(|one| is_of(one, value));
    }
    match wanted.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("{unknown}"),
    }
}

/// All commands that list or show something, with what they are asked.
const LOOKING: [(&str, &str); 29] = [
    ("account list", ""),
    ("account show", "ann"),
    ("audit list", ""),
    ("client list", ""),
    ("config diff", ""),
    ("device list", ""),
    ("device show", "d1"),
    ("job list", ""),
    ("model list", ""),
    ("model show", "scm"),
    ("node list", ""),
    ("node show", "n1"),
    (
        "object list",
        "--store unix:s1.sock --node-key tanada-data/keys/cluster.node",
    ),
    (
        "object show",
        "a --store unix:s1.sock --node-key tanada-data/keys/cluster.node",
    ),
    ("reservation calendar", ""),
    ("reservation list", ""),
    ("reservation list --parts", ""),
    ("reservation show", "night"),
    ("snapshot list", ""),
    ("snapshot show", "vm1@monday"),
    ("status", ""),
    ("store list", ""),
    ("store show", "s1"),
    ("token list", ""),
    ("top", "--interval 100ms"),
    ("trash list", ""),
    ("volume list", ""),
    ("volume show", "vm1"),
    ("volume show", "vol0"),
];

#[test]
fn what_is_listed_and_shown_fits_its_schema() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    let made = |words: &str| json(dir, &words.split(' ').collect::<Vec<_>>());
    let fits = |command: &str, value: &Value| {
        let misfits = misfits(dir, command, value);
        assert!(misfits.is_empty(), "{command}: {misfits:#?}\n{value:#}");
    };
    fits(
        "volume create",
        &made("volume create vm1 --size 32MiB --json"),
    );
    fits(
        "snapshot create",
        &made("snapshot create vm1@monday --json"),
    );
    fits("volume set", &made("volume set vol0 dirty_high=40 --json"));
    fits("volume set", &made("volume set vm1 max_read=1MB/s --json"));
    fits("cluster upgrade", &made("cluster upgrade --json"));
    fits(
        "account create",
        &made("account create ann --role booker --json"),
    );
    fits("token create", &made("token create ann --json"));
    let book = "--store s1 --write 1MB/s --for 1h --scope a/ --json";
    fits(
        "reservation create",
        &made(&format!("reservation create night {book}")),
    );
    fits(
        "reservation create --holder",
        &made(&format!("reservation create --holder bob {book}")),
    );
    fits(
        "snapshot delete --dry-run",
        &made("snapshot delete vm1@monday --dry-run --json"),
    );
    fs::write(dir.join("f"), b"data").unwrap();
    let at = "--store unix:s1.sock --node-key tanada-data/keys/cluster.node --json";
    fits("object put", &made(&format!("object put f a {at}")));
    made("volume create vm2 --size 32MiB --json");
    let deleted = made("volume delete vm2 --yes --json");
    fits("volume delete", &deleted);
    for (command, asked) in LOOKING {
        let words = format!("{command} {asked} --json");
        let words: Vec<&str> = words.split_whitespace().collect();
        fits(command, &json(dir, &words));
    }
    // What does not fit is seen.
    let mut wrong = json(dir, &["volume", "show", "vm1", "--json"]);
    wrong["size_bytes"] = "many".into();
    assert!(!misfits(dir, "volume show", &wrong).is_empty());
    let unknown = run(dir, &["schema", "volume", "frobnicate"]);
    assert_eq!(unknown.status.code(), Some(2));
    daemon.stop();
}

/// Commands that change something, in this order, with the schema of each. `AT` is where the store is.
const CHANGING: &str = "\
account set | account set ann --role reader
audit verify | audit verify
config check | config check tanada.toml
health show | health show
health mute | health mute NEAR_FULL --for 1h
health unmute | health unmute NEAR_FULL
store scrub | store scrub s1
job show | job show 1
reload --dry-run | reload --dry-run
reload | reload
reservation create --dry-run | reservation create --dry-run x --store s1 --write 1MB/s --for 1h --scope a/
reservation create --dry-run | reservation create --dry-run --holder bob --store s1 --write 1MB/s --for 1h --scope a/
reservation create --holder | reservation create --holder bob --store s1 --write 1MB/s --for 1h --scope b/
reservation show | reservation show s1/2
reservation capability | reservation capability s1/2
reservation capability | reservation capability night
reservation set | reservation set night --write 2MB/s
reservation delete | reservation delete s1/2
reservation delete | reservation delete night
snapshot clone | snapshot clone vm1@monday vm3
snapshot rollback --dry-run | snapshot rollback vm1@monday --dry-run
snapshot rollback | snapshot rollback vm1@monday --yes
volume set --dry-run | volume set vm1 size=16MiB --shrink --dry-run
volume import --dry-run | volume import f vm9 --dry-run
volume import | volume import f vm9
volume export --dry-run | volume export vm9 f --dry-run
volume export | volume export vm9 f9
volume delete --dry-run | volume delete vm9 --dry-run
volume delete | volume delete vm9 --yes
trash restore | trash restore vm9
volume delete | volume delete vm9 --yes
trash delete --dry-run | trash delete vm9 --dry-run
trash delete | trash delete vm9 --yes
volume repair | volume repair vm1
volume repair --no-wait | volume repair vm1 --no-wait
volume takeover | volume takeover vm1
volume heat | volume heat vol0
volume moves | volume moves vol0
volume detach | volume detach vol0
volume attach --dry-run | volume attach vol0 --dry-run
volume attach | volume attach vol0
object get | object get a f2 AT
object delete --dry-run | object delete a --dry-run AT
object delete | object delete a --yes AT
snapshot delete | snapshot delete vm1@monday --yes
account delete | account delete ann
config reset | config reset vol0
store rotate-key | store rotate-key s1 --keep-old
node delete --dry-run | node delete n1 --dry-run
cluster ca init | cluster ca init
cluster ca issue | cluster ca issue n1
cluster ca list | cluster ca list
cluster ca renew | cluster ca renew
store create | store create new.img --size 64MiB
store create --dry-run | store create new.img --force --dry-run
store check | store check new.img
status | status";

#[test]
fn what_changes_something_answers_what_its_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &with_cluster());
    let at = "--store unix:s1.sock --node-key tanada-data/keys/cluster.node";
    fs::write(dir.join("f"), vec![7; 1 << 20]).unwrap();
    for before in [
        "volume create vm1 --size 32MiB",
        "snapshot create vm1@monday",
        "account create ann --role booker",
        "reservation create night --store s1 --write 1MB/s --for 1h --scope a/",
        &format!("object put f a {at}"),
    ] {
        text(dir, &before.split(' ').collect::<Vec<_>>());
    }
    for line in CHANGING.lines() {
        let (command, words) = line.split_once(" | ").unwrap();
        let words = words.replace("AT", at) + " --json";
        let words: Vec<&str> = words.split(' ').collect();
        let value = json(dir, &words);
        let misfits = misfits(dir, command, &value);
        assert!(misfits.is_empty(), "{line}: {misfits:#?}\n{value:#}");
        if words.contains(&"--dry-run") && value.get("dry_run").is_some() {
            assert_eq!(value["dry_run"], true, "{line}");
        }
    }
    daemon.stop();
}

#[test]
fn each_shell_completes_nouns_and_verbs_and_no_old_spelling() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", Some("bash")), ("zsh", None), ("fish", None)] {
        let script = text(dir.path(), &["completion", shell]);
        for word in ["volume", "snapshot", "rollback", "until-restart"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        for old in ["disconnect", "print-config", "no-holder"] {
            assert!(!script.contains(old), "{shell}: {old}");
        }
        let Some(program) = check else { continue };
        let path = dir.path().join("script");
        fs::write(&path, script).unwrap();
        let read = Command::new(program).arg("-n").arg(&path).output();
        assert!(read.expect("bash is there").status.success());
    }
}

#[test]
fn each_page_of_the_manual_is_as_mandoc_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    text(dir.path(), &["man", "--dir", "man"]);
    let mut pages = Vec::new();
    for entry in fs::read_dir(dir.path().join("man")).unwrap() {
        pages.push(entry.unwrap().path());
    }
    let names: Vec<String> = pages
        .iter()
        .map(|it| it.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    for name in [
        "tanada.1",
        "tanada-volume.1",
        "tanada-snapshot.1",
        "tanada-serve.1",
        "tanada-sim.1",
        "tanada-advise.1",
    ] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    let page = fs::read_to_string(dir.path().join("man/tanada-volume.1")).unwrap();
    assert!(
        page.contains("tanada volume delete") && page.contains("dry\\-run"),
        "{page}"
    );
    let page = fs::read_to_string(dir.path().join("man/tanada-trace.1")).unwrap();
    assert!(page.contains("tanada trace convert"), "{page}");
    let Ok(lint) = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(&pages)
        .stdin(Stdio::null())
        .output()
    else {
        return without("mandoc");
    };
    let said = String::from_utf8_lossy(&lint.stdout).into_owned() + &stderr(&lint);
    assert!(lint.status.success() && said.is_empty(), "{said}");
}

//! What is different in a configuration, and can it be put in force while the daemon runs? Pure.
//!
//! ```text
//! text -> tables -> lines: hybrid.vol0.write = back -> two of them -> changes, each live or at a restart
//! ```

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::api::reload::{ConfigChange, Effect};
use crate::api::volume::Change;

/// Lines of a configuration by their keys.
type Lines = BTreeMap<String, String>;

/// What differs between two texts, both of which were good.
pub fn changes(before: &str, after: &str) -> Vec<ConfigChange> {
    let (before, after) = (lines(before), lines(after));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |key: &&String| before.get(*key) != after.get(*key);
    let change = |key: &String| ConfigChange {
        effect: effect(key, &before, &after),
        key: key.clone(),
        before: before.get(key).cloned(),
        after: after.get(key).cloned(),
    };
    keys.into_iter().filter(differs).map(change).collect()
}

/// The hybrids some of whose settings are other ones.
pub fn hybrids(changes: &[ConfigChange]) -> BTreeSet<String> {
    let of = |change: &ConfigChange| Some(setting(&change.key)?.0.to_owned());
    changes.iter().filter_map(of).collect()
}

/// A setting of a hybrid: its name and key.
fn setting(key: &str) -> Option<(&str, &str)> {
    let (name, key) = key.strip_prefix("hybrid.")?.split_once('.')?;
    Some((name, key))
}

fn effect(key: &str, before: &Lines, after: &Lines) -> Effect {
    let Some((name, setting)) = setting(key) else {
        return Effect::Restart;
    };
    // A recording begins and ends with the daemon, or by `tanada volume set`.
    let is_begun = ["trace", "trace_max"].contains(&setting);
    let is_live = setting.starts_with("tier.") || Change::KEYS.contains(&setting);
    let stays = format!("hybrid.{name}.name");
    match is_live && !is_begun && before.contains_key(&stays) && after.contains_key(&stays) {
        true => Effect::Live,
        false => Effect::Restart,
    }
}

fn lines(text: &str) -> Lines {
    let mut lines = Lines::new();
    let table: Table = toml::from_str(text).unwrap_or_default();
    put_table(&table, "", &mut lines);
    lines
}

fn put_table(table: &Table, at: &str, lines: &mut Lines) {
    for (key, value) in table {
        let key = match at.is_empty() {
            true => key.clone(),
            false => format!("{at}.{key}"),
        };
        put(value, &key, lines);
    }
}

fn put(value: &Value, key: &str, lines: &mut Lines) {
    match value {
        Value::Table(table) => put_table(table, key, lines),
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_table) => {
            for (number, table) in all.iter().filter_map(Value::as_table).enumerate() {
                put_table(table, &format!("{key}.{}", name(table, number)), lines);
            }
        }
        Value::String(text) => drop(lines.insert(key.to_owned(), text.clone())),
        other => drop(lines.insert(key.to_owned(), other.to_string())),
    }
}

/// What a table of several is called: by its name, else by what it is of.
fn name(table: &Table, number: usize) -> String {
    let mut names = ["name", "device", "volume"]
        .iter()
        .filter_map(|key| table.get(*key));
    let name = names.find_map(Value::as_str);
    name.map_or_else(|| number.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"
        data_dir = "d"
        [[device]]
        name = "hdd0"
        path = "/dev/sda"
        [[hybrid]]
        name = "vol0"
        slow = "hdd0"
        write = "back"
        [hybrid.tier]
        period = "10m"
        [[export]]
        device = "vol0"
        nbd = ["127.0.0.1:10809"]
    "#;

    fn after(from: &str, to: &str) -> Vec<(String, Effect)> {
        assert!(BEFORE.contains(from));
        let all = changes(BEFORE, &BEFORE.replace(from, to));
        all.into_iter().map(|it| (it.key, it.effect)).collect()
    }

    #[test]
    fn settings_of_a_hybrid_are_live_and_all_else_waits_for_a_restart() {
        let one = |key: &str, effect| vec![(key.to_owned(), effect)];
        assert_eq!(
            after("back", "through"),
            one("hybrid.vol0.write", Effect::Live)
        );
        assert_eq!(
            after("10m", "5m"),
            one("hybrid.vol0.tier.period", Effect::Live)
        );
        let policy = after("write = \"back\"", "write = \"back\"\npolicy = \"lru\"");
        assert_eq!(policy, one("hybrid.vol0.policy", Effect::Live));
        assert_eq!(
            after("write = \"back\"", ""),
            one("hybrid.vol0.write", Effect::Live)
        );
        assert_eq!(
            after("slow = \"hdd0\"", "slow = \"hdd1\""),
            one("hybrid.vol0.slow", Effect::Restart)
        );
        assert_eq!(
            after("/dev/sda", "/dev/sdb"),
            one("device.hdd0.path", Effect::Restart)
        );
        assert_eq!(
            after(":10809", ":10810"),
            one("export.vol0.nbd", Effect::Restart)
        );
        assert_eq!(
            after("data_dir = \"d\"", "data_dir = \"e\""),
            one("data_dir", Effect::Restart)
        );
        let trace = after("write = \"back\"", "write = \"back\"\ntrace = \"t\"");
        assert_eq!(trace, one("hybrid.vol0.trace", Effect::Restart));
        // Another name is another hybrid.
        let renamed = after("name = \"vol0\"", "name = \"vol1\"");
        assert!(
            renamed.len() > 4 && renamed.iter().all(|it| it.1 == Effect::Restart),
            "{renamed:?}"
        );
        assert!(changes(BEFORE, BEFORE).is_empty());
        assert!(changes(BEFORE, &format!("# a comment\n{BEFORE}")).is_empty());
    }

    #[test]
    fn the_hybrids_that_change_are_named_once() {
        let after = BEFORE.replace("back", "through").replace("10m", "5m");
        let names: Vec<String> = hybrids(&changes(BEFORE, &after)).into_iter().collect();
        assert_eq!(names, ["vol0"]);
    }
}

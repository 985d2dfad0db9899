//! What is different in a configuration, and can it be put in force while the daemon runs? Pure.
//!
//! ```text
//! lines before, lines after -> changes, each live or at a restart
//! ```

use std::collections::BTreeSet;

use super::lines::{Key, Lines};
use crate::api::reload::{ConfigChange, Effect};
use crate::api::volume::Change;

/// What differs between two configurations, both of which were good.
pub fn changes(before: &Lines, after: &Lines) -> Vec<ConfigChange> {
    let change = |key: &Key| ConfigChange {
        effect: effect(key, before, after),
        key: key.join("."),
        before: before.get(key).cloned(),
        after: after.get(key).cloned(),
    };
    differing(before, after).map(change).collect()
}

/// The hybrids some of whose settings are other ones.
pub fn hybrids(before: &Lines, after: &Lines) -> BTreeSet<String> {
    let name = |key: &Key| Some(setting(key)?.0.to_owned());
    differing(before, after).filter_map(name).collect()
}

/// The keys of lines that are not the same.
fn differing<'a>(before: &'a Lines, after: &'a Lines) -> impl Iterator<Item = &'a Key> {
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let differs = |key: &&Key| before.get(*key) != after.get(*key);
    keys.into_iter().filter(differs)
}

/// A setting of a hybrid: its name and key.
fn setting(key: &[String]) -> Option<(&str, String)> {
    let parts: Vec<&str> = key.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["hybrid", name, key @ ..] => Some((name, key.join("."))),
        _ => None,
    }
}

fn effect(key: &[String], before: &Lines, after: &Lines) -> Effect {
    let parts: Vec<&str> = key.iter().map(String::as_str).collect();
    let (name, setting) = match parts.as_slice() {
        // Data threads poll, or not, from the start on.
        ["export", .., "poll"] => return Effect::Restart,
        ["export", ..] | ["web" | "log", ..] | ["admin", "tcp" | "hosts"] => return Effect::Live,
        ["store", name, key] if is_there("store", name, before, after) => {
            return effect_on_store(key, before, after);
        }
        ["hybrid", name, setting @ ..] => (*name, setting.join(".")),
        _ => return Effect::Restart,
    };
    // A recording begins and ends with the daemon, or by `tanada volume set`.
    let is_begun = ["trace", "trace_max"].contains(&setting.as_str());
    let is_live = setting.starts_with("tier.") || Change::KEYS.contains(&setting.as_str());
    match is_live && !is_begun && is_there("hybrid", name, before, after) {
        true => Effect::Live,
        false => Effect::Restart,
    }
}

fn effect_on_store(key: &str, before: &Lines, after: &Lines) -> Effect {
    match key {
        "scrub" | "floor" | "ceiling" | "clock_skew" | "unauthenticated" => Effect::Live,
        // Other nodes find it where it was at its start.
        "listen" if !is_of_cluster(before) && !is_of_cluster(after) => Effect::Live,
        _ => Effect::Restart,
    }
}

fn is_of_cluster(lines: &Lines) -> bool {
    lines.keys().any(|key| key[0] == "cluster")
}

/// Do both have this one?
fn is_there(table: &str, name: &str, before: &Lines, after: &Lines) -> bool {
    let key = [table, name, "name"].map(str::to_owned);
    before.contains_key(&key[..]) && after.contains_key(&key[..])
}

#[cfg(test)]
mod tests {
    use super::super::lines::lines;
    use super::*;

    fn changes(before: &str, after: &str) -> Vec<ConfigChange> {
        super::changes(&lines(before), &lines(after))
    }

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
    fn what_has_an_engine_or_a_device_of_its_own_waits_for_a_restart_and_the_rest_is_live() {
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
            one("export.vol0.nbd", Effect::Live)
        );
        let poll = after("nbd = [", "poll = \"off\"\nnbd = [");
        assert_eq!(poll, one("export.vol0.poll", Effect::Restart));
        let web = after("data_dir", "[web]\nlisten = \"127.0.0.1:1\"\n[x]\ndata_dir");
        assert!(
            web.contains(&("web.listen".to_owned(), Effect::Live)),
            "{web:?}"
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
            renamed.len() > 4
                && renamed
                    .iter()
                    .all(|it| (it.1 == Effect::Restart) == it.0.starts_with("hybrid")),
            "{renamed:?}"
        );
        assert!(changes(BEFORE, BEFORE).is_empty());
        assert!(changes(BEFORE, &format!("# a comment\n{BEFORE}")).is_empty());
    }

    #[test]
    fn the_hybrids_that_change_are_named_once() {
        let after = BEFORE.replace("back", "through").replace("10m", "5m");
        let names: Vec<String> = hybrids(&lines(BEFORE), &lines(&after))
            .into_iter()
            .collect();
        assert_eq!(names, ["vol0"]);
    }

    #[test]
    fn tables_of_one_name_and_names_with_points_hide_no_line() {
        let two = format!("{BEFORE}[[export]]\ndevice = \"vol0\"\nnbd = [\"unix:a\"]\n");
        let first = two.replacen(
            "device = \"vol0\"",
            "device = \"vol0\"\nread_only = true",
            1,
        );
        let last = two.replace("\"unix:a\"", "\"unix:b\"");
        for after in [first, last] {
            let all = changes(&two, &after);
            assert!(all.len() == 1 && all[0].effect == Effect::Live, "{all:?}");
        }
        let dotted = format!("{BEFORE}[[hybrid]]\nname = \"vol0.tier\"\nslow = \"a\"\n");
        let all = changes(&dotted, &dotted.replace("slow = \"a\"", "slow = \"b\""));
        assert!(
            all.len() == 1 && all[0].effect == Effect::Restart,
            "{all:?}"
        );
    }
}

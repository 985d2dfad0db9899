//! What a configuration says, line by line; and which lines a setting hides that was made before they were written.
//!
//! ```text
//! text -> tables -> lines: hybrid, vol0, write = back
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use toml::{Table, Value};

/// The parts of a key, such as `hybrid`, `vol0`, `write`: names may have points in them.
pub type Key = Vec<String>;

/// Lines of a configuration by their keys.
pub type Lines = BTreeMap<Key, String>;

/// The lines of a configuration, and when its file was last changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Written {
    pub lines: Lines,
    pub modified_unix_seconds: u64,
}

impl Written {
    /// Of the text of a configuration, which was good.
    pub fn of(text: &str, modified_unix_seconds: u64) -> Written {
        Written {
            lines: lines(text),
            modified_unix_seconds,
        }
    }

    /// Is a line not in force because `value` was set earlier, at `set_unix_seconds`? Then what the line says.
    pub fn hidden(
        &self,
        volume: &str,
        key: &str,
        value: &Json,
        set_unix_seconds: u64,
    ) -> Option<&str> {
        let parts = ["hybrid", volume].into_iter().chain(key.split('.'));
        let line = self.lines.get(&parts.map(str::to_owned).collect::<Key>())?;
        let set = match value {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_later = self.modified_unix_seconds > set_unix_seconds;
        (is_later && *line != set).then_some(line.as_str())
    }
}

/// The lines of a text that was good.
pub fn lines(text: &str) -> Lines {
    let mut lines = Lines::new();
    let table: Table = toml::from_str(text).unwrap_or_default();
    put_table(&table, &[], &mut lines);
    lines
}

fn put_table(table: &Table, at: &[String], lines: &mut Lines) {
    for (key, value) in table {
        put(value, [at, std::slice::from_ref(key)].concat(), lines);
    }
}

fn put(value: &Value, key: Key, lines: &mut Lines) {
    match value {
        Value::Table(table) => put_table(table, &key, lines),
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_table) => {
            let mut taken = BTreeSet::new();
            for (number, table) in all.iter().filter_map(Value::as_table).enumerate() {
                let mut name = name(table, number);
                if !taken.insert(name.clone()) {
                    // Two exports of one device.
                    name = format!("{name}#{number}");
                }
                put_table(table, &[key.clone(), vec![name]].concat(), lines);
            }
        }
        Value::String(text) => drop(lines.insert(key, text.clone())),
        other => drop(lines.insert(key, other.to_string())),
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

    const TEXT: &str = r#"
        [[hybrid]]
        name = "vol0"
        write = "back"
        dirty_low = 10
        [hybrid.tier]
        period = "10m"
    "#;

    #[test]
    fn a_line_is_hidden_by_an_earlier_setting_of_another_value_alone() {
        let written = Written::of(TEXT, 1000);
        let hidden = |key: &str, value: Json, at| written.hidden("vol0", key, &value, at);
        assert_eq!(hidden("write", "through".into(), 999), Some("back"));
        assert_eq!(
            hidden("write", "through".into(), 1000),
            None,
            "set after it was written"
        );
        assert_eq!(hidden("write", "back".into(), 999), None, "the same");
        assert_eq!(hidden("dirty_low", 20.into(), 1), Some("10"));
        assert_eq!(hidden("dirty_low", 10.into(), 1), None);
        assert_eq!(hidden("tier.period", "5m".into(), 1), Some("10m"));
        assert_eq!(
            hidden("policy", "lru".into(), 1),
            None,
            "the file has no such line"
        );
        assert_eq!(written.hidden("vol1", "write", &"through".into(), 1), None);
    }
}

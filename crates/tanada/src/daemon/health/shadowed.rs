//! Which lines of the configuration were written after the settings that stand before them? They are not in force.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::{Table, Value as Toml};

/// What the file of the configuration names of its hybrids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenLines {
    /// By volume and key, such as `tier.period`.
    lines: BTreeMap<(String, String), String>,
    /// When the file was last changed, in seconds since 1970.
    modified_unix_seconds: u64,
}

impl WrittenLines {
    /// Of the text of a configuration, which was good.
    pub fn of(text: &str, modified_unix_seconds: u64) -> WrittenLines {
        let table: Table = toml::from_str(text).unwrap_or_default();
        let hybrids = table.get("hybrid").and_then(Toml::as_array);
        let mut lines = BTreeMap::new();
        for hybrid in hybrids.into_iter().flatten().filter_map(Toml::as_table) {
            let Some(name) = hybrid.get("name").and_then(Toml::as_str) else {
                continue;
            };
            let tier = hybrid.get("tier").and_then(Toml::as_table);
            let own = hybrid.iter().map(|(key, value)| (key.clone(), value));
            let of_tier = tier.into_iter().flatten();
            let of_tier = of_tier.map(|(key, value)| (format!("tier.{key}"), value));
            for (key, value) in own.chain(of_tier).filter(|(key, _)| key != "tier") {
                lines.insert((name.to_owned(), key), text_of(value));
            }
        }
        WrittenLines {
            lines,
            modified_unix_seconds,
        }
    }

    /// Is a line not in force because `value` was set earlier, at `set_unix_seconds`? Then what the line says.
    pub fn hidden(
        &self,
        volume: &str,
        key: &str,
        value: &Value,
        set_unix_seconds: u64,
    ) -> Option<&str> {
        let line = self.lines.get(&(volume.to_owned(), key.to_owned()))?;
        let set = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_later = self.modified_unix_seconds > set_unix_seconds;
        (is_later && *line != set).then_some(line.as_str())
    }
}

fn text_of(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        other => other.to_string(),
    }
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
        let written = WrittenLines::of(TEXT, 1000);
        let hidden = |key: &str, value: Value, at| written.hidden("vol0", key, &value, at);
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

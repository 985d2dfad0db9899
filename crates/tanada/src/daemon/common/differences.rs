//! What is different between two values, in words for the log.

use serde_json::Value;

/// What is another value now, in words: `settings.write: "back" -> "through"`.
pub fn differences(before: &Value, after: &Value) -> String {
    let mut words = Vec::new();
    compare("", before, after, &mut words);
    match words.is_empty() {
        true => "nothing is different".to_owned(),
        false => words.join(", "),
    }
}

fn compare(key: &str, before: &Value, after: &Value, out: &mut Vec<String>) {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        if before != after {
            out.push(format!("{key}: {before} -> {after}"));
        }
        return;
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    for name in new.keys().chain(gone) {
        let key = match key.is_empty() {
            true => name.clone(),
            false => format!("{key}.{name}"),
        };
        let of = |it: &serde_json::Map<String, Value>| it.get(name).cloned().unwrap_or_default();
        compare(&key, &of(old), &of(new), out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_different_is_said_by_key_before_and_after() {
        let before = json!({ "settings": { "write": "back", "dirty_low": 20 }, "caps": null });
        let after =
            json!({ "settings": { "write": "through", "dirty_low": 20 }, "caps": { "read": 5 } });
        assert_eq!(
            differences(&before, &after),
            r#"caps: null -> {"read":5}, settings.write: "back" -> "through""#
        );
        assert_eq!(differences(&after, &after), "nothing is different");
    }
}

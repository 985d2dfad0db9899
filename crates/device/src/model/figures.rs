//! What stands in a model file: figures, each with its source.
//!
//! ```text
//! table -> without sources, every figure noted -> one flat table a kind -> a group of figures a part of the device
//! ```
//!
//! A figure is written `key = value` or `key = { value = ..., source = "..." }`; its unit is the ending
//! of its key. A source that is a key of the `[sources]` table stands for the text there.
//!
//! Always true: a key that no group of its table has is refused by its name, and so is one that is missing.

use serde::de::value::Error as AnyError;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use toml::de::Error;
use toml::{Table, Value};

/// One figure of a model, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The key in the model's file, with its table.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// The unit; empty for a count, a flag or a name.
    pub unit: &'static str,
    /// Where the figure comes from.
    pub source: String,
}

/// The ending of a key names the unit.
fn unit_of(key: &str) -> &'static str {
    const ENDINGS: [(&str, &str); 8] = [
        ("_mb_s", "MB/s"),
        ("_ms", "ms"),
        ("_us", "us"),
        ("_s", "s"),
        ("watts", "W"),
        ("rpm", "1/min"),
        ("_percent", "%"),
        ("size", "bytes"),
    ];
    ENDINGS
        .iter()
        .find(|(ending, _)| key.ends_with(ending))
        .map_or("", |(_, unit)| unit)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Takes the sources out of a table and notes every figure in it.
pub(super) fn strip(table: Table, path: &str, sources: &Table, figures: &mut Vec<Figure>) -> Table {
    let explain = |source: &str| match sources.get(source).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => source.to_owned(),
    };
    let mut plain = Table::new();
    for (key, value) in table {
        let full = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let (value, source) = match value {
            Value::Table(mut inner) if inner.contains_key("value") => {
                let source = inner.get("source").and_then(Value::as_str).map(explain);
                let value = inner.remove("value").expect("it is there");
                (value, source.unwrap_or_default())
            }
            Value::Table(inner) => {
                plain.insert(key, Value::Table(strip(inner, &full, sources, figures)));
                continue;
            }
            value => (value, String::new()),
        };
        if !matches!(full.as_str(), "name" | "about" | "aliases") {
            figures.push(Figure {
                value: text_of(&value),
                unit: unit_of(&full),
                key: full,
                source,
            });
        }
        plain.insert(key, value);
    }
    plain
}

/// Reads the table `name`, whose keys stand flat, as three groups of figures.
///
/// # Errors
/// The first key, by name, that no group has; else what is wrong with a group.
pub(super) fn groups<A, B, C>(name: &str, table: &Table) -> Result<(A, B, C), Error>
where
    A: DeserializeOwned,
    B: DeserializeOwned,
    C: DeserializeOwned,
{
    let (a, b, c) = (keys_of::<A>(), keys_of::<B>(), keys_of::<C>());
    let known: Vec<&str> = [a, b, c].concat();
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        let known = known.join("`, `");
        return Err(Error::custom(format_args!(
            "unknown field `{key}`, expected one of `{known}`\nin `{name}`"
        )));
    }
    Ok((
        group(name, table, a)?,
        group(name, table, b)?,
        group(name, table, c)?,
    ))
}

/// Reads those `keys` of a table as one group.
fn group<T: DeserializeOwned>(name: &str, table: &Table, keys: &[&str]) -> Result<T, Error> {
    let own = table.iter().filter(|(key, _)| keys.contains(&key.as_str()));
    let own = own.map(|(key, value)| (key.clone(), value.clone()));
    // Below its name, so that an error has the whole key.
    let named = Table::from_iter([(name.to_owned(), Value::Table(own.collect()))]);
    let mut read: std::collections::BTreeMap<String, T> = Value::Table(named).try_into()?;
    Ok(read.remove(name).expect("it was put in"))
}

/// The keys of a struct, as its derived reader asks for them.
fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It is asked only what it wants, and gets nothing.
    let _: Result<T, AnyError> = T::deserialize(Asked(&mut keys));
    keys
}

/// Notes which fields are asked for.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = AnyError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, AnyError> {
        Err(AnyError::custom("only the keys are asked for"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AnyError> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

//! The JSON of a policy, read strictly.
//!
//! Always true: an element that is not understood, or that stands twice, is refused. A policy says what is read, and no more.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A policy as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Document {
    pub version: Option<String>,
    #[serde(rename = "Id")]
    _id: Option<String>,
    pub statement: Many<Written>,
}

/// A statement as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Written {
    #[serde(rename = "Sid")]
    _sid: Option<String>,
    pub effect: String,
    pub principal: Principal,
    pub action: Option<Many<Text>>,
    pub not_action: Option<Many<Text>>,
    pub resource: Many<Text>,
    pub condition: Option<Named<Named<Many<Text>>>>,
}

/// Whom a statement is about.
pub enum Principal {
    Word(String),
    Of(Named<Many<Text>>),
}

/// A text, a number or a truth value, as text.
pub struct Text(pub String);

/// One, or a list.
pub struct Many<T>(pub Vec<T>);

/// Values by name, each name once.
pub struct Named<T>(pub Vec<(String, T)>);

impl<'de> Deserialize<'de> for Principal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Principal;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a principal: \"*\" or {\"AWS\": ACCOUNT}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Principal, E> {
                Ok(Principal::Word(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Principal, A::Error> {
                Named::deserialize(MapAccessDeserializer::new(map)).map(Principal::Of)
            }
        }
        from.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a whole number, or true or false")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<Text, E> {
                Ok(Text(truth.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        from.deserialize_any(Reader)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Many<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one, or a list")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Many<T>, E> {
                one(serde::de::value::StrDeserializer::new(text))
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Many<T>, E> {
                one(BorrowedStrDeserializer::new(text))
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<Many<T>, E> {
                one(serde::de::value::BoolDeserializer::new(truth))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Many<T>, E> {
                one(serde::de::value::I64Deserializer::new(number))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Many<T>, E> {
                one(serde::de::value::U64Deserializer::new(number))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Many<T>, A::Error> {
                one(MapAccessDeserializer::new(map))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Many<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(Many(all))
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

fn one<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Many<T>, D::Error> {
    Ok(Many(vec![T::deserialize(from)?]))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut all: Vec<(String, T)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if all.iter().any(|it| it.0 == name) {
                        return Err(A::Error::custom(format!("{name} stands twice")));
                    }
                    all.push((name, value));
                }
                Ok(Named(all))
            }
        }
        from.deserialize_map(Reader(PhantomData))
    }
}

//! The conditions of a statement: what is compared with what a request says.
//!
//! ```text
//! operator, key, values  ->  one comparison  ->  holds | does not | cannot be known
//! ```
//!
//! Pure.
//!
//! Always true:
//! 1. An operator, a key or a value that is not understood is refused when the policy is put.
//! 2. A fact that the gateway does not have is never taken for one that the request left out.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::net::IpAddr;

use super::pattern::{cost, matches};
use super::{Facts, PolicyError};

/// Keys of which a condition may ask, in lower case, and how their values are compared.
const KEYS: [(&str, Kind); 19] = [
    ("s3:prefix", Kind::Text),
    ("s3:delimiter", Kind::Text),
    ("s3:max-keys", Kind::Number),
    ("s3:versionid", Kind::Text),
    ("s3:x-amz-acl", Kind::Text),
    ("s3:x-amz-grant-read", Kind::Text),
    ("s3:x-amz-grant-write", Kind::Text),
    ("s3:x-amz-grant-read-acp", Kind::Text),
    ("s3:x-amz-grant-write-acp", Kind::Text),
    ("s3:x-amz-grant-full-control", Kind::Text),
    ("s3:x-amz-copy-source", Kind::Text),
    ("s3:x-amz-metadata-directive", Kind::Text),
    ("s3:x-amz-storage-class", Kind::Text),
    ("aws:referer", Kind::Text),
    ("aws:useragent", Kind::Text),
    (SOURCE_IP, Kind::Address),
    (SECURE, Kind::Truth),
    (EXISTING_TAG, Kind::Text),
    (REQUEST_TAG, Kind::Text),
];
/// The address of the client.
pub const SOURCE_IP: &str = "aws:sourceip";
/// Did the request come in TLS?
pub const SECURE: &str = "aws:securetransport";
/// Before the name of a tag that the object has.
pub const EXISTING_TAG: &str = "s3:existingobjecttag/";
/// Before the name of a tag that the request gives.
pub const REQUEST_TAG: &str = "s3:requestobjecttag/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Truth,
    Address,
}

/// How a value is compared. An operator with `Not` is its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Equals,
    EqualsAnyCase,
    Like,
    /// Of these orders.
    Number(&'static [Ordering]),
    Truth,
    Address,
    /// Is the key absent?
    Null,
}

/// One comparison.
#[derive(Debug, Clone)]
pub struct Condition {
    test: Test,
    negated: bool,
    /// It holds where the request does not have the key.
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

fn test_of(name: &str) -> Option<(Test, bool)> {
    Some(match name {
        "StringEquals" => (Test::Equals, false),
        "StringNotEquals" => (Test::Equals, true),
        "StringEqualsIgnoreCase" => (Test::EqualsAnyCase, false),
        "StringNotEqualsIgnoreCase" => (Test::EqualsAnyCase, true),
        "StringLike" => (Test::Like, false),
        "StringNotLike" => (Test::Like, true),
        "NumericEquals" => (Test::Number(&[Equal]), false),
        "NumericNotEquals" => (Test::Number(&[Equal]), true),
        "NumericLessThan" => (Test::Number(&[Less]), false),
        "NumericLessThanEquals" => (Test::Number(&[Less, Equal]), false),
        "NumericGreaterThan" => (Test::Number(&[Greater]), false),
        "NumericGreaterThanEquals" => (Test::Number(&[Greater, Equal]), false),
        "Bool" => (Test::Truth, false),
        "IpAddress" => (Test::Address, false),
        "NotIpAddress" => (Test::Address, true),
        "Null" => (Test::Null, false),
        _ => return None,
    })
}

/// The key as it is compared: in lower case, but for the name of a tag.
fn key_of(name: &str) -> Option<(String, Kind)> {
    let lower = name.to_ascii_lowercase();
    let tag = [EXISTING_TAG, REQUEST_TAG]
        .into_iter()
        .find(|it| lower.starts_with(it) && lower.len() > it.len());
    let wanted = tag.unwrap_or(&lower);
    let kind = KEYS.iter().find(|it| it.0 == wanted)?.1;
    match tag {
        Some(tag) => Some((format!("{tag}{}", &name[tag.len()..]), kind)),
        None if lower.ends_with('/') => None,
        None => Some((lower, kind)),
    }
}

impl Condition {
    /// What `operator` compares `name` with.
    pub fn parse(
        operator: &str,
        name: &str,
        values: Vec<String>,
    ) -> Result<Condition, PolicyError> {
        let bad = |why: &str| PolicyError(format!("condition {operator} of {name}: {why}"));
        let (plain, if_exists) = match operator.strip_suffix("IfExists") {
            Some(plain) => (plain, true),
            None => (operator, false),
        };
        let (test, negated) =
            test_of(plain).ok_or_else(|| bad("the operator is not understood"))?;
        let (key, kind) = key_of(name).ok_or_else(|| bad("the key is not understood"))?;
        let fits = match test {
            Test::Null => !if_exists,
            Test::Equals | Test::EqualsAnyCase | Test::Like => kind == Kind::Text,
            Test::Number(_) => kind == Kind::Number,
            Test::Truth => kind == Kind::Truth,
            Test::Address => kind == Kind::Address,
        };
        if !fits {
            return Err(bad("the operator does not compare values of this key"));
        }
        let is_value = |value: &String| match test {
            Test::Number(_) => value.parse::<i64>().is_ok(),
            Test::Truth | Test::Null => matches!(&**value, "true" | "false"),
            Test::Address => Range::parse(value).is_some(),
            _ => !value.contains("${"),
        };
        match values.iter().find(|it| !is_value(it)) {
            _ if values.is_empty() => Err(bad("it has no value")),
            Some(value) => Err(bad(&format!("value {value:?} is not understood"))),
            None => Ok(Condition {
                test,
                negated,
                if_exists,
                key,
                values,
            }),
        }
    }

    /// Does it hold? `None`: the gateway does not have the fact.
    pub fn holds(&self, facts: &Facts<'_>) -> Option<bool> {
        let found = facts.value(&self.key)?;
        let wants = |text: &str| self.values.iter().any(|it| it == text);
        Some(match (self.test, found) {
            (Test::Null, Some(_)) => wants("false"),
            (Test::Null, None) => wants("true"),
            (_, None) => self.if_exists || self.negated,
            (_, Some(found)) => self.is_met(&found) != self.negated,
        })
    }

    fn is_met(&self, found: &str) -> bool {
        let mut values = self.values.iter();
        match self.test {
            Test::Equals | Test::Null => values.any(|it| it == found),
            Test::EqualsAnyCase => values.any(|it| it.to_lowercase() == found.to_lowercase()),
            Test::Like => values.any(|it| matches(it, found)),
            Test::Truth => values.any(|it| it.eq_ignore_ascii_case(found)),
            Test::Number(orders) => {
                let number = |text: &str| text.parse::<i64>().ok();
                let order = |it: &String| Some(number(found)?.cmp(&number(it)?));
                values.any(|it| order(it).is_some_and(|it| orders.contains(&it)))
            }
            Test::Address => {
                let found = found.parse::<IpAddr>().ok().map(|it| it.to_canonical());
                let ranges = values.filter_map(|it| Range::parse(it));
                found.is_some_and(|found| ranges.into_iter().any(|it| it.has(found)))
            }
        }
    }

    /// What comparing it may cost.
    pub fn cost(&self) -> usize {
        match self.test {
            Test::Like => self.values.iter().map(|it| cost(it)).sum(),
            _ => 0,
        }
    }

    /// Does it let in only clients of some networks, none of which is a large part of the internet?
    pub fn is_narrow(&self) -> bool {
        let narrow = |it: &String| Range::parse(it).is_some_and(|range| range.is_narrow());
        self.test == Test::Address
            && !self.negated
            && !self.if_exists
            && self.values.iter().all(narrow)
    }
}

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: IpAddr,
    bits: u8,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let first: IpAddr = address.parse().ok()?;
        let all = if first.is_ipv4() { 32 } else { 128 };
        let bits = match text.contains('/') {
            true => bits.parse().ok().filter(|it| *it <= all)?,
            false => all,
        };
        Some(Range { first, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(other)) => {
                let differs = u64::from(first.to_bits() ^ other.to_bits());
                differs >> (32 - self.bits) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(other)) => {
                let differs = first.to_bits() ^ other.to_bits();
                differs.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    fn is_narrow(&self) -> bool {
        self.bits >= if self.first.is_ipv4() { 8 } else { 32 }
    }
}

//! What etcd's JSON gateway is sent, and what it says.
//!
//! Numbers of 64 bits are strings there, bytes are base64, and what is zero is left out.
//!
//! Source: etcd's API v3 (`rpc.proto`, `kv.proto`) through its gateway, prefix `/v3`, etcd 3.4 and later.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::super::{Compare, Entry, Event, LeaseId, Op, Revision};

/// Where our keys lie in etcd.
#[derive(Debug, Clone)]
pub struct Names {
    pub prefix: String,
}

/// A key that is not ours: not text, or not under our prefix.
#[derive(Debug, thiserror::Error)]
#[error("it answered with the key '{0}', which no Tanada wrote; remove it")]
pub struct Foreign(String);

impl Names {
    fn key(&self, key: &str) -> String {
        STANDARD.encode([self.prefix.as_bytes(), key.as_bytes()].concat())
    }

    /// Behind every key that begins with `prefix`.
    fn end(&self, prefix: &str) -> String {
        let mut end = [self.prefix.as_bytes(), prefix.as_bytes()].concat();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        match end.last_mut() {
            Some(last) => *last += 1,
            // "All there is" is said by a zero byte.
            None => end.push(0),
        }
        STANDARD.encode(end)
    }

    /// The first key that can begin with `prefix`; etcd wants one byte at least.
    fn start(&self, prefix: &str) -> String {
        let whole = [self.prefix.as_bytes(), prefix.as_bytes()].concat();
        STANDARD.encode(if whole.is_empty() { vec![0] } else { whole })
    }

    fn ours(&self, key: &[u8]) -> Result<String, Foreign> {
        let text = std::str::from_utf8(key).ok();
        let ours = text.and_then(|key| key.strip_prefix(&self.prefix));
        let foreign = || Foreign(key.escape_ascii().to_string());
        ours.map(str::to_owned).ok_or_else(foreign)
    }

    fn entry(&self, kv: Kv) -> Result<Entry, Foreign> {
        Ok(Entry {
            key: self.ours(&kv.key)?,
            value: kv.value,
            created: Revision(kv.create_revision),
            changed: Revision(kv.mod_revision),
            lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
        })
    }

    pub fn event(&self, event: RawEvent) -> Result<Event, Foreign> {
        Ok(match event.kind.as_str() {
            "DELETE" => Event::Deleted {
                key: self.ours(&event.kv.key)?,
                revision: Revision(event.kv.mod_revision),
            },
            _ => Event::Put(self.entry(event.kv)?),
        })
    }

    pub fn entries(&self, range: RangeAnswer) -> Result<Vec<Entry>, Foreign> {
        range.kvs.into_iter().map(|kv| self.entry(kv)).collect()
    }

    // --- requests -------------------------------------------------------------------------------------

    pub fn get(&self, key: &str) -> Value {
        json!({ "key": self.key(key) })
    }

    pub fn range(&self, prefix: &str, after: Option<&str>, most: usize) -> Value {
        let start = match after {
            Some(after) if after >= prefix => self.key(&format!("{after}\0")),
            _ => self.start(prefix),
        };
        json!({ "key": start, "range_end": self.end(prefix), "limit": most.to_string() })
    }

    pub fn txn(&self, compares: &[Compare], ops: &[Op]) -> Value {
        let held = |compare: &Compare| json!({ "request_range": self.get(compare.key()) });
        json!({
            "compare": compares.iter().map(|compare| self.compare(compare)).collect::<Vec<_>>(),
            "success": ops.iter().map(|op| self.op(op)).collect::<Vec<_>>(),
            "failure": compares.iter().map(held).collect::<Vec<_>>(),
        })
    }

    fn compare(&self, compare: &Compare) -> Value {
        let key = self.key(compare.key());
        match compare {
            Compare::Absent(_) => {
                json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
            }
            Compare::Present(_) => {
                json!({ "key": key, "target": "CREATE", "result": "GREATER", "create_revision": "0" })
            }
            Compare::Unchanged(_, revision) => {
                let revision = revision.to_string();
                json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision })
            }
        }
    }

    fn op(&self, op: &Op) -> Value {
        match op {
            Op::Put { key, value, lease } => json!({ "request_put": {
                "key": self.key(key),
                "value": STANDARD.encode(value),
                "lease": lease.map_or(0, |lease| lease.0).to_string(),
            } }),
            Op::Delete { key } => json!({ "request_delete_range": { "key": self.key(key) } }),
        }
    }

    pub fn watch(&self, prefix: &str, from: Revision) -> Value {
        json!({ "create_request": {
            "key": self.start(prefix),
            "range_end": self.end(prefix),
            "start_revision": from.to_string(),
            "fragment": true,
        } })
    }
}

// --- answers ------------------------------------------------------------------------------------------

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(from)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Header {
    #[serde(deserialize_with = "number")]
    pub revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Kv {
    #[serde(deserialize_with = "bytes")]
    key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    create_revision: u64,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
    #[serde(deserialize_with = "number")]
    lease: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RangeAnswer {
    pub header: Header,
    kvs: Vec<Kv>,
    pub more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TxnAnswer {
    pub header: Header,
    pub succeeded: bool,
    pub responses: Vec<TxnPart>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TxnPart {
    pub response_range: Option<RangeAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeptAlive {
    /// Zero if the lease is not there.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub ttl: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Token {
    pub token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    kv: Kv,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Watched {
    pub created: bool,
    pub canceled: bool,
    pub cancel_reason: String,
    #[serde(deserialize_with = "number")]
    pub compact_revision: u64,
    pub events: Vec<RawEvent>,
    /// More of the same comes.
    pub fragment: bool,
}

/// A line of a stream.
#[derive(Debug, Deserialize)]
pub struct Line<T> {
    pub result: Option<T>,
    pub error: Option<Value>,
}

/// Why etcd did not do something: a gRPC code and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub code: u64,
    pub message: String,
}

impl Complaint {
    /// From the body of an answer that is an error, or the `error` of a stream's line.
    pub fn read(value: &Value) -> Option<Complaint> {
        let inner = value.get("error").unwrap_or(value);
        let (object, text) = match inner {
            Value::String(text) => (value, text.as_str()),
            object => (object, object.get("message")?.as_str()?),
        };
        let code = object.get("code").or(object.get("grpc_code"));
        Some(Complaint {
            code: code.and_then(Value::as_u64).unwrap_or(2),
            message: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str) -> Names {
        Names {
            prefix: prefix.to_owned(),
        }
    }

    fn plain(value: &Value) -> Vec<u8> {
        STANDARD.decode(value.as_str().unwrap()).unwrap()
    }

    #[test]
    fn a_prefix_reaches_to_the_next_one_that_can_be() {
        for (base, prefix, start, end) in [
            ("", "", &b"\0"[..], &b"\0"[..]),
            ("", "a", b"a", b"b"),
            ("", "a\u{7f}", b"a\x7f", b"a\x80"),
            ("", "\u{10ffff}", b"\xf4\x8f\xbf\xbf", b"\xf4\x8f\xbf\xc0"),
            ("t/", "", b"t/", b"t0"),
        ] {
            let range = names(base).range(prefix, None, 7);
            assert_eq!(plain(&range["key"]), start);
            assert_eq!(plain(&range["range_end"]), end);
            assert_eq!(range["limit"], "7");
        }
        let behind = names("t/").range("a", Some("ab"), 1);
        assert_eq!(plain(&behind["key"]), b"t/ab\0");
        let before = names("t/").range("b", Some("a"), 1);
        assert_eq!(plain(&before["key"]), b"t/b");
    }

    #[test]
    fn complaints_are_read_in_both_forms() {
        let expected = Complaint {
            code: 5,
            message: "no lease".to_owned(),
        };
        let plain = json!({ "error": "no lease", "message": "no lease", "code": 5 });
        assert_eq!(Complaint::read(&plain), Some(expected.clone()));
        let stream = json!({ "grpc_code": 5, "http_code": 404, "message": "no lease" });
        assert_eq!(Complaint::read(&stream), Some(expected.clone()));
        assert_eq!(Complaint::read(&json!({ "error": stream })), Some(expected));
        assert_eq!(Complaint::read(&json!({ "header": {} })), None);
    }

    #[test]
    fn keys_that_are_not_ours_are_named() {
        assert_eq!(names("t/").ours(b"t/a").unwrap(), "a");
        let error = names("t/").ours(b"x\xff").unwrap_err().to_string();
        assert!(error.contains("'x\\xff'"), "{error}");
    }
}

//! What do the points of a sweep run on: a trace file, or a generated one?
//!
//! Points of one sweep mostly share their trace: what was worked out of it once is kept for the others.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, bail};
use lens::trace::{Format, ReadOptions, Requests, TraceError};
use toml::{Table, Value};

/// Where requests come from.
#[derive(Debug, Clone)]
pub struct Source {
    path: PathBuf,
    options: ReadOptions,
}

impl Source {
    /// Takes what says where requests come from out of the settings of a point.
    pub fn take(settings: &mut Table) -> anyhow::Result<Source> {
        let mut word = |key: &str| match settings.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => bail!("{key} is {}; it must be a text", other.type_str()),
        };
        let path =
            word("trace")?.context("it has no trace; write trace = \"FILE\" under [base]")?;
        let format: Option<Format> = word("format")?.map(|name| name.parse()).transpose()?;
        Ok(Source {
            path: PathBuf::from(path),
            options: ReadOptions {
                format,
                ..ReadOptions::default()
            },
        })
    }

    /// The same text for the same requests.
    pub fn key(&self) -> String {
        format!("{:?}", (&self.path, self.options.format))
    }

    /// Opens it, from its beginning.
    pub fn open(&self) -> Result<Box<dyn Requests>, TraceError> {
        Ok(Box::new(lens::trace::open(&self.path, &self.options)?))
    }
}

/// What remains of the settings once all else is taken, read as `T`.
pub fn read<T: serde::de::DeserializeOwned>(settings: Table) -> anyhow::Result<T> {
    Ok(T::deserialize(Value::Table(settings))?)
}

/// The last few things that were worked out, by name; each is worked out once, however many ask for it at a time.
pub struct Kept<T> {
    room: usize,
    kept: Mutex<Vec<(String, Slot<T>)>>,
}

type Slot<T> = Arc<OnceLock<Result<Arc<T>, String>>>;

impl<T> Kept<T> {
    /// Keeps the last `room` things.
    pub fn new(room: usize) -> Kept<T> {
        Kept {
            room,
            kept: Mutex::new(Vec::new()),
        }
    }

    /// The thing called `name`, worked out if it is not kept.
    pub fn get(
        &self,
        name: &str,
        work_out: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Arc<T>> {
        let slot = self.slot(name);
        let known = slot.get_or_init(|| match work_out() {
            Ok(thing) => Ok(Arc::new(thing)),
            Err(error) => Err(format!("{error:#}")),
        });
        known.clone().map_err(anyhow::Error::msg)
    }

    fn slot(&self, name: &str) -> Slot<T> {
        // Whoever panicked while it was locked had changed nothing by halves.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match kept.iter().position(|(known, _)| known == name) {
            Some(at) => kept.remove(at).1,
            None => Slot::default(),
        };
        kept.push((name.to_owned(), Arc::clone(&slot)));
        if kept.len() > self.room {
            kept.remove(0);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_worked_out_once_and_the_oldest_gives_way() {
        let kept = Kept::new(2);
        let worked = std::cell::RefCell::new(String::new());
        for name in ["a", "b", "a", "c", "a", "b"] {
            let thing = kept.get(name, || {
                worked.borrow_mut().push_str(name);
                Ok(name.to_owned())
            });
            assert_eq!(*thing.unwrap(), name);
        }
        assert_eq!(worked.into_inner(), "abcb");
        let refusal = kept.get("d", || bail!("no")).unwrap_err().to_string();
        assert_eq!(refusal, "no");
    }
}

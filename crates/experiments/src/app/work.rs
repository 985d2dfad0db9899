//! What is asked of the database: core workloads, records, operations.
//!
//! ```text
//! Workload (share of reads) + Records + chance -> Operation, Operation, ...
//! ```
//!
//! Source: SCM table 3 (write-only, write-heavy, read-heavy, read-only; Zipfian) and Cooper et al. (SoCC 2010), table 2: its B and C are
//! the last two, its A is the second.

use std::fmt;
use std::str::FromStr;

use env::Rng;
use serde::{Deserialize, Serialize};

use super::keys::Keys;

/// What share of operations read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Half reads, half updates.
    WorkloadA,
    /// 95 % reads.
    WorkloadB,
    /// Reads alone.
    WorkloadC,
    /// Updates alone.
    WriteOnly,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 4] = [
        Workload::WorkloadA,
        Workload::WorkloadB,
        Workload::WorkloadC,
        Workload::WriteOnly,
    ];

    /// The share of operations that read.
    pub fn reads(self) -> f64 {
        match self {
            Workload::WorkloadA => 0.5,
            Workload::WorkloadB => 0.95,
            Workload::WorkloadC => 1.0,
            Workload::WriteOnly => 0.0,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::WorkloadA => "workload-a",
            Workload::WorkloadB => "workload-b",
            Workload::WorkloadC => "workload-c",
            Workload::WriteOnly => "write-only",
        })
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let all = Workload::ALL.into_iter();
        let mut named = all.filter(|one| {
            let name = one.to_string();
            name == text || name.strip_prefix("workload-") == Some(&text.to_ascii_lowercase())
        });
        named
            .next()
            .ok_or_else(|| format!("there is no workload '{text}'; choose a, b, c or write-only"))
    }
}

/// What the database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// How many.
    pub count: u64,
    /// Fields of each beside its key.
    pub fields: u32,
    /// Bytes of each field.
    pub field_bytes: u32,
}

impl Records {
    /// Bytes of all fields together.
    pub fn bytes(&self) -> u64 {
        self.count * u64::from(self.fields) * u64::from(self.field_bytes)
    }

    /// The contents of one field: printable, so that any database takes them, and nothing to compress.
    pub fn value(&self, rng: &mut Rng) -> Vec<u8> {
        let mut value = vec![0; self.field_bytes as usize];
        rng.fill(&mut value);
        for byte in &mut value {
            // 64 characters from '0' on.
            *byte = b'0' + (*byte & 63);
        }
        value
    }
}

impl Default for Records {
    /// Records as YCSB makes them, 100 MB of them.
    fn default() -> Records {
        Records {
            count: 100_000,
            fields: 10,
            field_bytes: 100,
        }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// All fields of a record.
    Read {
        /// Which.
        record: u64,
    },
    /// One field of a record anew.
    Update {
        /// Which.
        record: u64,
        /// Its field.
        field: u32,
        /// What it is now.
        value: Vec<u8>,
    },
}

impl Operation {
    /// Does it only read?
    pub fn reads(&self) -> bool {
        matches!(self, Operation::Read { .. })
    }
}

/// One client's operations, one after the other.
#[derive(Clone)]
pub struct Stream {
    workload: Workload,
    records: Records,
    keys: Keys,
    rng: Rng,
}

impl Stream {
    /// Its operations follow from `seed` alone.
    pub fn new(workload: Workload, records: Records, seed: u64) -> Stream {
        Stream {
            workload,
            records,
            keys: Keys::new(records.count),
            rng: Rng::from_seed(seed),
        }
    }

    /// The next one.
    pub fn draw(&mut self) -> Operation {
        let reads = self.rng.unit() < self.workload.reads();
        let record = self.keys.draw(&mut self.rng);
        match reads {
            true => Operation::Read { record },
            false => Operation::Update {
                record,
                field: self.rng.below(u64::from(self.records.fields)) as u32,
                value: self.records.value(&mut self.rng),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_read_as_often_as_their_names_say() {
        let few = Records {
            count: 50,
            ..Records::default()
        };
        for workload in Workload::ALL {
            let mut stream = Stream::new(workload, few, 5);
            let operations: Vec<Operation> = (0..20_000).map(|_| stream.draw()).collect();
            let reads = operations.iter().filter(|one| one.reads()).count() as f64 / 20_000.0;
            assert!(
                (reads - workload.reads()).abs() < 0.02,
                "{workload}: {reads}"
            );
            for operation in operations {
                if let Operation::Update {
                    record,
                    field,
                    value,
                } = operation
                {
                    assert!(record < 50 && field < 10 && value.len() == 100);
                    assert!(value.iter().all(|byte| (b'0'..b'0' + 64).contains(byte)));
                }
            }
        }
    }

    #[test]
    fn workloads_are_known_by_their_letters_too() {
        assert_eq!("a".parse(), Ok(Workload::WorkloadA));
        assert_eq!("B".parse(), Ok(Workload::WorkloadB));
        assert_eq!("workload-c".parse(), Ok(Workload::WorkloadC));
        assert_eq!("write-only".parse(), Ok(Workload::WriteOnly));
        assert_eq!(
            "d".parse::<Workload>().unwrap_err(),
            "there is no workload 'd'; choose a, b, c or write-only"
        );
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        let stream = |seed| {
            let mut stream = Stream::new(Workload::WorkloadA, Records::default(), seed);
            (0..50).map(move |_| stream.draw()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }
}

//! The formats a trace can have, by their names on the command line.

use std::fmt;
use std::str::FromStr;

/// A format of trace files. docs/traces.md says what each looks like and what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Our normal form: CSV with the header `t_us,op,offset,size,dev`.
    Csv,
    /// The normal form's columns in Parquet.
    Parquet,
    /// MSR Cambridge CSV, as SNIA publishes it.
    Msr,
    /// Records of blktrace, one file per CPU.
    Blktrace,
    /// What blkparse prints.
    Blkparse,
    /// fio's iolog, versions 2 and 3.
    Fio,
    /// CloudPhysics' vscsi records, versions 1 and 2.
    Vscsi,
    /// SPC, as UMass publishes it.
    Spc,
    /// ASCII of DiskSim, MQSim and SSDsim.
    Ascii,
    /// HP Labs' SRT.
    Srt,
    /// `.lis` of the ARC paper.
    Lis,
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// libCacheSim's CSV.
    CacheCsv,
    /// Alibaba's block traces.
    Alibaba,
    /// Tencent's block traces.
    Tencent,
}

impl Format {
    /// All of them.
    #[must_use]
    pub const fn all() -> &'static [Format] {
        &[
            Format::Csv,
            Format::Parquet,
            Format::Msr,
            Format::Blktrace,
            Format::Blkparse,
            Format::Fio,
            Format::Vscsi,
            Format::Spc,
            Format::Ascii,
            Format::Srt,
            Format::Lis,
            Format::OracleGeneral,
            Format::CacheCsv,
            Format::Alibaba,
            Format::Tencent,
        ]
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Msr => "msr",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
            Format::Vscsi => "vscsi",
            Format::Spc => "spc",
            Format::Ascii => "ascii",
            Format::Srt => "srt",
            Format::Lis => "lis",
            Format::OracleGeneral => "oracle-general",
            Format::CacheCsv => "cache-csv",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
        }
    }

    /// One line about it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Format::Csv => "normal form: CSV with the header t_us,op,offset,size,dev",
            Format::Parquet => "normal form in Parquet",
            Format::Msr => "MSR Cambridge CSV (SNIA)",
            Format::Blktrace => "blktrace records, one file per CPU",
            Format::Blkparse => "text printed by blkparse",
            Format::Fio => "fio iolog, version 2 or 3",
            Format::Vscsi => "CloudPhysics vscsi, version 1 or 2",
            Format::Spc => "SPC (UMass): ASU,LBA,size,opcode,timestamp",
            Format::Ascii => "DiskSim, MQSim, SSDsim: time device LBA sectors flag",
            Format::Srt => "HP Labs SRT",
            Format::Lis => ".lis of the ARC paper: first count 0 number",
            Format::OracleGeneral => "libCacheSim oracleGeneral",
            Format::CacheCsv => "libCacheSim CSV",
            Format::Alibaba => "Alibaba block traces (CSV)",
            Format::Tencent => "Tencent block traces (CSV)",
        }
    }

    /// Does it name the objects of a cache, which have no places on a disk? They are then taken to lie 512
    /// bytes apart.
    #[must_use]
    pub const fn names_objects(self) -> bool {
        matches!(self, Format::OracleGeneral | Format::CacheCsv)
    }

    /// All names, as a message lists them.
    pub(crate) fn list() -> String {
        let names: Vec<&str> = Format::all().iter().map(|format| format.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format '{name}'; there are {}", Format::list())]
pub struct UnknownFormat {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    /// Reads a name, in whatever case; the names that other tools use are understood too.
    fn from_str(text: &str) -> Result<Format, UnknownFormat> {
        let name = text.trim().to_ascii_lowercase();
        let known = Format::all().iter().find(|format| format.name() == name);
        let format = match name.as_str() {
            "normal" => Some(&Format::Csv),
            "iolog" => Some(&Format::Fio),
            "umass" => Some(&Format::Spc),
            "disksim" | "mqsim" | "ssdsim" => Some(&Format::Ascii),
            "arc" => Some(&Format::Lis),
            "cloudphysics" => Some(&Format::Vscsi),
            "oraclegeneral" => Some(&Format::OracleGeneral),
            "libcachesim" | "libcachesim-csv" => Some(&Format::CacheCsv),
            _ => known,
        };
        format.copied().ok_or_else(|| UnknownFormat {
            name: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read_by_the_name_it_shows() {
        for format in Format::all() {
            assert_eq!(format.to_string().parse::<Format>(), Ok(*format));
        }
        assert_eq!("oracleGeneral".parse::<Format>(), Ok(Format::OracleGeneral));
        let refusal = "tar".parse::<Format>().unwrap_err().to_string();
        assert!(
            refusal.starts_with("there is no trace format 'tar'; there are csv, parquet, msr"),
            "{refusal}"
        );
    }
}

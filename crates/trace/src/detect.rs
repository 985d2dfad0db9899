//! Which format is it? Found by reading the start of a file as each, the name deciding between equals. The
//! header of the normal form decides alone, whatever comes behind it.

use std::path::Path;

use base::Nanos;

use super::blktrace::Stage;
use super::decoders;
use super::input::Input;
use super::order::Order;
use super::sink::{Gathered, Sink};
use super::{Bad, Format, ReadOptions, Request, TraceError};

/// What some editors put before the first line to say "UTF-8".
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of a file is looked at.
const LOOKED_AT: usize = 16 << 10;

/// A time this far after 1970 is one since 1970: it lies in 2001.
const EPOCH_MIN: Nanos = Nanos::secs(1_000_000_000);

/// The start of a file, and its name without the ending of what it is packed with.
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: &'a [u8],
    /// Is that the whole file?
    pub(super) whole: bool,
}

/// The format of `input`.
///
/// # Errors
/// [`TraceError::Unknown`] if none fits, or several do and the name does not decide.
pub(super) fn detect(input: &Input) -> Result<Format, TraceError> {
    let name = bare_name(&input.name);
    let bytes = input.bytes();
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if super::normal::looks(bytes) {
        return Ok(Format::Csv);
    }
    let sample = Sample {
        name: &name,
        bytes: &bytes[..bytes.len().min(LOOKED_AT)],
        whole: input.is_last() && bytes.len() <= LOOKED_AT,
    };
    let fits: Vec<Format> = Format::all()
        .iter()
        .copied()
        .filter(|&format| fits(format, &sample))
        .collect();
    if let [format] = fits[..] {
        return Ok(format);
    }
    let named = by_name(&name);
    if let Some(format) = named
        && fits.contains(&format)
    {
        return Ok(format);
    }
    let why = match (&fits[..], named) {
        ([], None) => "it looks like none that is known".to_owned(),
        ([], Some(format)) => format!("its name says {format}, but its content does not look so"),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|format| format.name()).collect();
            format!("it may be any of {}", names.join(", "))
        }
    };
    Err(TraceError::Unknown {
        file: input.name.clone(),
        why,
    })
}

/// Does the sample look like `format`?
fn fits(format: Format, sample: &Sample<'_>) -> bool {
    match format {
        // Recognized before all others, by its header alone.
        Format::Csv => false,
        Format::Msr | Format::Blkparse | Format::Spc | Format::Ascii | Format::Lis => {
            reads(format, sample)
        }
        Format::CacheCsv => super::cache_csv::looks(sample.bytes) && reads(format, sample),
        Format::Fio => super::fio::looks(sample.bytes),
        Format::Alibaba | Format::Tencent => reads_since_1970(format, sample),
        Format::Parquet => sample.bytes.starts_with(super::PARQUET_MAGIC),
        Format::Blktrace => super::blktrace::looks(sample.bytes),
        Format::Vscsi => super::vscsi::looks(sample.bytes),
        Format::Srt => sample.bytes.starts_with(super::srt::MAGIC),
        Format::OracleGeneral => super::oracle::looks(sample.bytes),
    }
}

/// Are more of the sample's lines read as `format` than not?
fn reads(format: Format, sample: &Sample<'_>) -> bool {
    tried(format, sample).is_some()
}

/// The first request of the sample read as `format`, if more of its lines can be read than not.
fn tried(format: Format, sample: &Sample<'_>) -> Option<Request> {
    let options = ReadOptions {
        bad: Bad::Count,
        ..ReadOptions::default()
    };
    let mut decoder = decoders::decoder(format, &options, Stage::Queued)?;
    let mut gathered = Gathered::default();
    let mut order = Order::new(Nanos(u64::MAX));
    let mut sink = Sink {
        file: sample.name,
        options: &options,
        origin: 0,
        order: &mut order,
        gathered: &mut gathered,
    };
    // A line cut off by the end of the sample is not given.
    decoder.decode(sample.bytes, sample.whole, &mut sink).ok()?;
    if order.held() as u64 <= gathered.malformed.count {
        return None;
    }
    let mut requests = Vec::new();
    order.take(true, 1, &mut requests);
    requests.first().copied()
}

/// As [`reads`], the times counting from 1970.
fn reads_since_1970(format: Format, sample: &Sample<'_>) -> bool {
    tried(format, sample).is_some_and(|request| request.at >= EPOCH_MIN)
}

/// The name of the file in small letters, without folders and without `.gz` or `.zst`.
fn bare_name(name: &str) -> String {
    let file = Path::new(name).file_name();
    let file = file.map_or_else(String::new, |file| {
        file.to_string_lossy().to_ascii_lowercase()
    });
    let bare = [".gz", ".zst", ".zstd"]
        .iter()
        .find_map(|packed| file.strip_suffix(packed));
    bare.unwrap_or(&file).to_owned()
}

/// What the name says, if it says anything.
fn by_name(bare: &str) -> Option<Format> {
    let ending = Path::new(bare).extension()?.to_str()?;
    Some(match ending {
        "parquet" => Format::Parquet,
        "vscsi" => Format::Vscsi,
        "spc" => Format::Spc,
        "srt" => Format::Srt,
        "lis" => Format::Lis,
        "ascii" => Format::Ascii,
        "blkparse" => Format::Blkparse,
        "iolog" => Format::Fio,
        "oraclegeneral" => Format::OracleGeneral,
        "bin" if bare.contains("oraclegeneral") => Format::OracleGeneral,
        cpu if cpu.bytes().all(|byte| byte.is_ascii_digit()) && bare.contains(".blktrace.") => {
            Format::Blktrace
        }
        _ => return None,
    })
}

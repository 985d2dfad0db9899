//! Which decoder reads which format.

use super::input::Input;
use super::lines::Lines;
use super::records::Records;
use super::sink::Decoder;
use super::source::{Decoded, Source};
use super::{
    Format, ReadOptions, TraceError, ascii, blkparse, blktrace, cache_csv, cloud, columnar, fio,
    lis, msr, normal, oracle, spc, srt, vscsi,
};

/// What reads `input` as `format`; of blktrace's records those of `stage`.
pub(super) fn source(
    format: Format,
    input: Input,
    options: &ReadOptions,
    stage: blktrace::Stage,
) -> Result<Box<dyn Source>, TraceError> {
    Ok(match decoder(format, options, stage) {
        Some(decoder) => Box::new(Decoded::new(input, decoder)),
        None => Box::new(columnar::Rows::open(input)?),
    })
}

/// The decoder of a format; none for Parquet, which is not read from start to end.
pub(super) fn decoder(
    format: Format,
    options: &ReadOptions,
    stage: blktrace::Stage,
) -> Option<Box<dyn Decoder>> {
    Some(match format {
        Format::Csv => Box::new(normal::Normal::new()),
        Format::Parquet => return None,
        Format::Msr => Box::new(Lines::new(msr::Msr::default())),
        Format::Blktrace => Box::new(Records::new(blktrace::Parser::new(stage))),
        Format::Blkparse => Box::new(Lines::new(blkparse::Blkparse::new())),
        Format::Fio => Box::new(Lines::new(fio::Fio::new())),
        Format::Vscsi => Box::new(Records::new(vscsi::Parser::new())),
        Format::Spc => Box::new(Lines::new(spc::Spc)),
        Format::Ascii => Box::new(Lines::new(ascii::Ascii::new())),
        Format::Srt => Box::new(Records::new(srt::Parser::new())),
        Format::Lis => Box::new(Lines::new(lis::Lis::new())),
        Format::OracleGeneral => Box::new(Records::new(oracle::Parser::new(options.tick))),
        Format::CacheCsv => Box::new(Lines::new(cache_csv::CacheCsv::default())),
        Format::Alibaba => Box::new(Lines::new(cloud::Alibaba::default())),
        Format::Tencent => Box::new(Lines::new(cloud::Tencent::default())),
    })
}

//! Which decoder reads which format.

use super::input::Input;
use super::lines::Lines;
use super::read::{Decoded, Source};
use super::sink::Decoder;
use super::{
    Format, ReadOptions, TraceError, ascii, blkparse, cache_csv, cloud, fio, lis, msr, normal, spc,
};

/// What reads `input` as `format`.
pub(super) fn source(
    format: Format,
    input: Input,
    _options: &ReadOptions,
) -> Result<Box<dyn Source>, TraceError> {
    match text(format) {
        Some(decoder) => Ok(Box::new(Decoded::new(input, decoder))),
        None => Err(TraceError::Unsupported {
            file: input.name,
            format,
            why: "no reader of this format is built in".to_owned(),
        }),
    }
}

/// The decoder of a format of lines; none for the others.
pub(super) fn text(format: Format) -> Option<Box<dyn Decoder>> {
    Some(match format {
        Format::Csv => Box::new(normal::Normal::new()),
        Format::Ascii => Box::new(Lines::new(ascii::Ascii::new())),
        Format::Msr => Box::new(Lines::new(msr::Msr::default())),
        Format::Blkparse => Box::new(Lines::new(blkparse::Blkparse::new())),
        Format::Spc => Box::new(Lines::new(spc::Spc)),
        Format::Lis => Box::new(Lines::new(lis::Lis::new())),
        Format::CacheCsv => Box::new(Lines::new(cache_csv::CacheCsv::default())),
        Format::Fio => Box::new(Lines::new(fio::Fio::new())),
        Format::Alibaba => Box::new(Lines::new(cloud::Alibaba::default())),
        Format::Tencent => Box::new(Lines::new(cloud::Tencent::default())),
        _ => return None,
    })
}

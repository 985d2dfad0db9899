//! Which decoder reads which format.

use super::input::Input;
use super::lines::Lines;
use super::read::{Decoded, Source};
use super::sink::Decoder;
use super::{Format, ReadOptions, TraceError, ascii, cloud, fio, normal};

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
        Format::Fio => Box::new(Lines::new(fio::Fio::new())),
        Format::Alibaba => Box::new(Lines::new(cloud::Alibaba::default())),
        Format::Tencent => Box::new(Lines::new(cloud::Tencent::default())),
        _ => return None,
    })
}

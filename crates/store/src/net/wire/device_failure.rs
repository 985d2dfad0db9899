//! Errors of a device, and the pieces that they share with those of a store, as fields and back.

use base::{Bytes, Sector, Span};
use device::{DeviceError, Op as DeviceOp};

use super::fields::{Fields, Malformed, Put, shortened};

/// Longest sentence that travels, in bytes.
const SENTENCE_MAX: usize = 4096;

const DEVICE_OPS: [DeviceOp; 5] = [
    DeviceOp::Read,
    DeviceOp::Write,
    DeviceOp::Flush,
    DeviceOp::Discard,
    DeviceOp::WriteZeroes,
];

fn put_op(out: &mut Vec<u8>, op: DeviceOp) {
    let number = DEVICE_OPS.iter().position(|other| *other == op);
    out.u8(number.expect("all are listed") as u8);
}

fn op(fields: &mut Fields<'_>) -> Result<DeviceOp, Malformed> {
    let number = usize::from(fields.u8()?);
    match DEVICE_OPS.get(number) {
        Some(op) => Ok(*op),
        None => fields.refuse(format_args!("a device has no operation {number}")),
    }
}

pub(super) fn put_span(out: &mut Vec<u8>, span: Span) {
    out.u64(span.start.0);
    out.u64(span.len.0);
}

pub(super) fn span(fields: &mut Fields<'_>) -> Result<Span, Malformed> {
    Ok(Span {
        start: Sector(fields.u64()?),
        len: Bytes(fields.u64()?),
    })
}

pub(super) fn sentence(out: &mut Vec<u8>, text: &str) {
    out.text(shortened(text, SENTENCE_MAX));
}

pub(super) fn put_device(out: &mut Vec<u8>, error: &DeviceError) {
    match error {
        DeviceError::OutOfRange {
            device,
            op,
            at,
            len,
            size,
        } => {
            out.u8(1);
            out.text(device);
            put_op(out, *op);
            out.u64(*at);
            out.u64(*len);
            out.u64(*size);
        }
        DeviceError::Io {
            device,
            op,
            span,
            why,
        } => {
            out.u8(2);
            out.text(device);
            put_op(out, *op);
            put_span(out, *span);
            sentence(out, why);
        }
        DeviceError::Corrupt { device, span, why } => {
            out.u8(3);
            out.text(device);
            put_span(out, *span);
            sentence(out, why);
        }
        DeviceError::ReadOnly { device, op } => {
            out.u8(4);
            out.text(device);
            put_op(out, *op);
        }
        DeviceError::FlushFailed { device, why } => {
            out.u8(5);
            out.text(device);
            sentence(out, why);
        }
        DeviceError::NoSpace { device, op, why } | DeviceError::Gone { device, op, why } => {
            out.u8(match error {
                DeviceError::NoSpace { .. } => 6,
                _ => 7,
            });
            out.text(device);
            put_op(out, *op);
            sentence(out, why);
        }
        other => put_other(out, &other.to_string()),
    }
}

/// A kind this protocol has no number for: its sentence, as a failure of input and output.
fn put_other(out: &mut Vec<u8>, why: &str) {
    out.u8(2);
    out.text("the device");
    put_op(out, DeviceOp::Read);
    put_span(out, Span::bytes(0, 0));
    sentence(out, why);
}

pub(super) fn device(fields: &mut Fields<'_>) -> Result<DeviceError, Malformed> {
    let kind = fields.u8()?;
    let device = fields.text()?;
    Ok(match kind {
        1 => DeviceError::OutOfRange {
            device,
            op: op(fields)?,
            at: fields.u64()?,
            len: fields.u64()?,
            size: fields.u64()?,
        },
        2 => DeviceError::Io {
            device,
            op: op(fields)?,
            span: span(fields)?,
            why: fields.text()?,
        },
        3 => DeviceError::Corrupt {
            device,
            span: span(fields)?,
            why: fields.text()?,
        },
        4 => DeviceError::ReadOnly {
            device,
            op: op(fields)?,
        },
        5 => DeviceError::FlushFailed {
            device,
            why: fields.text()?,
        },
        6 => DeviceError::NoSpace {
            device,
            op: op(fields)?,
            why: fields.text()?,
        },
        7 => DeviceError::Gone {
            device,
            op: op(fields)?,
            why: fields.text()?,
        },
        other => return fields.refuse(format_args!("a device has no error {other}")),
    })
}

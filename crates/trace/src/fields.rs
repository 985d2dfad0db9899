//! Columns of text: split, and read as numbers, times and operations.

use base::{Nanos, SECTOR};

use super::Reason;

/// Splits a line at `separator` into exactly `N` columns.
pub(super) fn split<'a, const N: usize>(
    line: &'a [u8],
    separator: u8,
    wanted: &'static str,
) -> Result<[&'a [u8]; N], Reason> {
    let mut columns = [&line[..0]; N];
    let mut found = 0;
    for column in line.split(|&byte| byte == separator) {
        if found < N {
            columns[found] = column;
        }
        found += 1;
    }
    exactly(columns, found, wanted)
}

/// Splits a line at `separator` into its first `N` columns, whatever stands behind them.
pub(super) fn split_first<'a, const N: usize>(
    line: &'a [u8],
    separator: u8,
    wanted: &'static str,
) -> Result<[&'a [u8]; N], Reason> {
    let mut columns = [&line[..0]; N];
    let mut found = 0;
    for column in line.split(|&byte| byte == separator).take(N) {
        columns[found] = column;
        found += 1;
    }
    exactly(columns, found, wanted)
}

/// Splits a line at white space into exactly `N` columns.
pub(super) fn words<'a, const N: usize>(
    line: &'a [u8],
    wanted: &'static str,
) -> Result<[&'a [u8]; N], Reason> {
    let mut columns = [&line[..0]; N];
    let mut found = 0;
    for column in line.split(u8::is_ascii_whitespace) {
        if column.is_empty() {
            continue;
        }
        if found < N {
            columns[found] = column;
        }
        found += 1;
    }
    exactly(columns, found, wanted)
}

fn exactly<T, const N: usize>(
    columns: [T; N],
    found: usize,
    wanted: &'static str,
) -> Result<[T; N], Reason> {
    if found == N {
        Ok(columns)
    } else {
        Err(Reason::Columns { found, wanted })
    }
}

/// A whole number from 0 to 2^64 - 1.
#[inline]
pub(super) fn number(column: &'static str, text: &[u8]) -> Result<u64, Reason> {
    digits(text.trim_ascii()).ok_or_else(|| bad_number(column, text))
}

#[inline]
fn digits(text: &[u8]) -> Option<u64> {
    // 19 digits always fit, so only the twentieth needs care.
    if text.is_empty() || text.len() > 20 {
        return leading_zeros(text);
    }
    let (head, tail) = text.split_at(text.len().min(19));
    let mut value = 0u64;
    for &byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &byte in tail {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

#[cold]
fn leading_zeros(text: &[u8]) -> Option<u64> {
    let from = text.iter().position(|&byte| byte != b'0')?;
    let rest = &text[from..];
    if rest.len() > 20 { None } else { digits(rest) }
}

#[cold]
pub(super) fn bad_number(column: &'static str, text: &[u8]) -> Reason {
    Reason::Number {
        column,
        text: Reason::shown(text),
    }
}

/// A number of a device.
#[inline]
pub(super) fn device(column: &'static str, text: &[u8]) -> Result<u32, Reason> {
    let number = number(column, text)?;
    u32::try_from(number)
        .map_err(|_| Reason::Other(format!("the {column} {number} does not fit in 32 bits")))
}

/// A number of 512-byte sectors, in bytes.
#[inline]
pub(super) fn sectors(column: &'static str, text: &[u8]) -> Result<u64, Reason> {
    let sectors = number(column, text)?;
    sectors.checked_mul(SECTOR).ok_or_else(|| {
        Reason::Other(format!(
            "the {column} {sectors}, counted in sectors of 512 bytes, lies beyond 2^64 bytes"
        ))
    })
}

/// A time in units of `tick`: a whole number, a decimal fraction, or with an exponent; the fraction is
/// rounded down to the nanosecond.
pub(super) fn time(text: &[u8], tick: Nanos) -> Result<Nanos, Reason> {
    let text = text.trim_ascii();
    exact(text, tick)
        .or_else(|| with_exponent(text, tick))
        .ok_or_else(|| Reason::Time {
            text: Reason::shown(text),
        })
}

/// Without a rounding that binary fractions would bring: 0.1 s is 100,000,000 ns.
fn exact(text: &[u8], tick: Nanos) -> Option<Nanos> {
    let point = text
        .iter()
        .position(|&byte| byte == b'.')
        .unwrap_or(text.len());
    let (whole, fraction) = (&text[..point], text.get(point + 1..).unwrap_or(b""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { digits(whole)? };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // 18 digits of a tick of up to 2^64 ns are finer than a nanosecond, and their product fits in u128.
    let mut part = 0u128;
    let mut scale = 1u128;
    for &byte in fraction.iter().take(18) {
        part = part * 10 + u128::from(byte - b'0');
        scale *= 10;
    }
    let whole = u128::from(whole) * u128::from(tick.0);
    let sum = whole + part * u128::from(tick.0) / scale;
    u64::try_from(sum).ok().map(Nanos)
}

#[cold]
fn with_exponent(text: &[u8], tick: Nanos) -> Option<Nanos> {
    // `parse` also reads "inf" and "nan", which are no times.
    if !text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let nanos = value * tick.0 as f64;
    (nanos >= 0.0 && nanos < u64::MAX as f64).then_some(Nanos(nanos as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_reach_to_the_last_that_fits() {
        let read = |text: &str| number("size", text.as_bytes()).ok();
        assert_eq!(read("0"), Some(0));
        assert_eq!(read(" 4096 "), Some(4096));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        assert_eq!(read("18446744073709551616"), None);
        assert_eq!(read("000000000000000000000000007"), Some(7));
        for wrong in [
            "",
            "-1",
            "+1",
            "1.5",
            "0x10",
            "1 2",
            "99999999999999999999999",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let refusal = number("size", b"-1").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "'-1' in the place of the size is no whole number from 0 to 2^64 - 1"
        );
    }

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let read = |text: &str, tick| time(text.as_bytes(), tick).ok();
        assert_eq!(read("0.1", Nanos::secs(1)), Some(Nanos(100_000_000)));
        assert_eq!(
            read("1362509.099609", Nanos::millis(1)),
            Some(Nanos(1_362_509_099_609))
        );
        assert_eq!(read("26214000", Nanos(1)), Some(Nanos(26_214_000)));
        assert_eq!(read(".5", Nanos::secs(1)), Some(Nanos(500_000_000)));
        assert_eq!(read("7.", Nanos(3)), Some(Nanos(21)));
        assert_eq!(read("1.5e3", Nanos::millis(1)), Some(Nanos(1_500_000_000)));
        assert_eq!(read("0.0000000001", Nanos::secs(1)), Some(Nanos(0)));
        for wrong in [
            "",
            ".",
            "-1",
            "nan",
            "inf",
            "1e400",
            "1e-",
            "-1e3",
            "18446744074",
            "1,5",
        ] {
            assert_eq!(read(wrong, Nanos::secs(1)), None, "{wrong}");
        }
    }
}

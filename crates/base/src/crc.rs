//! The checksum of every block and every record: CRC-32C (Castagnoli).

/// CRC-32C of `bytes`, as in iSCSI (RFC 3720).
///
/// # Example
/// ```
/// assert_eq!(base::crc::crc32c(b"123456789"), 0xe306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    // 32-bit result in a u64: the upper half is always zero.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// [`crc32c`] of a page of zeroes.
pub const ZERO_PAGE: u32 = 0x98f9_4189;

/// [`crc32c`] of one page, of which `known_zero` says whether it is known to be zero (`Buf::is_known_zero`): then
/// it need not be looked at.
///
/// # Example
/// ```
/// let page = base::Buf::zeroed(4096);
/// assert_eq!(base::crc::crc32c_of_page(&page, page.is_known_zero()), base::crc::crc32c(&page));
/// ```
pub fn crc32c_of_page(page: &[u8], known_zero: bool) -> u32 {
    debug_assert_eq!(page.len(), crate::PAGE);
    match known_zero {
        true => ZERO_PAGE,
        false => crc32c(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_page_of_zeroes_is_the_one_written_down() {
        assert_eq!(crc32c(&[0; crate::PAGE]), ZERO_PAGE);
    }
}

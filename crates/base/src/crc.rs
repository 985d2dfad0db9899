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

//! CRC-32C (Castagnoli), the checksum of every data block.

/// The checksum of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_check_value() {
        // RFC 3720 appendix B.4: 32 bytes of zeros, of ones, and 0..31.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let counting: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&counting), 0x46dd_794e);
    }
}

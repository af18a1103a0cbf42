//! One record: 838 bytes of text with the record's number and a checksum, so that a file can be
//! verified without the original.
//!
//! ```text
//! bytes    0..5    "WREC "
//!          5..22   number of the record, 16 hexadecimal digits, space
//!         22..39   number of records in the file, the same way
//!         39..56   seed of the file, the same way
//!         56..828  letters a..p that follow from seed and number
//!        828..829  space
//!        829..837  CRC-32C of bytes 0..829, 8 hexadecimal digits
//!        837       newline
//! ```

use std::fmt;
use weir_types::checksum::crc32c;

/// Bytes of one record: those of the data set of paper 0.
pub const RECORD_BYTES: usize = 838;

const TAG: &[u8; 5] = b"WREC ";
const FILLER: std::ops::Range<usize> = 56..828;
const CHECKED: usize = 829;

/// Properties of all records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Number of records in the file.
    pub records: u64,
    /// Seed of the contents.
    pub seed: u64,
}

/// Why a record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The format is wrong.
    NotARecord,
    /// The checksum does not match.
    Checksum,
    /// The record is intact, but is in another record's place.
    Misplaced {
        /// Its own number.
        number: u64,
    },
    /// The record is intact, but comes from a file with another seed or length.
    OtherFile,
    /// The record is intact and in its place, but its letters do not match the seed.
    Contents,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotARecord => f.write_str("is not a record"),
            Fault::Checksum => f.write_str("does not match its checksum"),
            Fault::Misplaced { number } => write!(f, "is record {number}, out of place"),
            Fault::OtherFile => f.write_str("belongs to another file"),
            Fault::Contents => f.write_str("has contents that its seed does not give"),
        }
    }
}

/// Writes record `number` of a file.
pub fn write(spec: FileSpec, number: u64, out: &mut [u8; RECORD_BYTES]) {
    out[..5].copy_from_slice(TAG);
    for (at, value) in [(5, number), (22, spec.records), (39, spec.seed)] {
        write_hex(value, &mut out[at..at + 16]);
        out[at + 16] = b' ';
    }
    let mut state = mix(spec.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for chunk in out[FILLER].chunks_mut(8) {
        state = mix(state);
        // Eight letters a..p at once.
        let letters = (state & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161;
        chunk.copy_from_slice(&letters.to_le_bytes()[..chunk.len()]);
    }
    out[CHECKED - 1] = b' ';
    let sum = crc32c(&out[..CHECKED]);
    write_hex(u64::from(sum) << 32, &mut out[CHECKED..CHECKED + 8]);
    out[RECORD_BYTES - 1] = b'\n';
}

/// Checks that `found` is record `number` of a file.
pub fn check(spec: FileSpec, number: u64, found: &[u8; RECORD_BYTES]) -> Result<(), Fault> {
    let mut expected = [0; RECORD_BYTES];
    write(spec, number, &mut expected);
    if expected == *found {
        return Ok(());
    }
    let (its_number, its_spec) = read(found)?;
    Err(if its_spec != spec {
        Fault::OtherFile
    } else if its_number != number {
        Fault::Misplaced { number: its_number }
    } else {
        Fault::Contents
    })
}

/// Decodes the number and the file's properties from a record with a valid checksum.
pub fn read(found: &[u8; RECORD_BYTES]) -> Result<(u64, FileSpec), Fault> {
    let field = |at: usize| read_hex(&found[at..at + 16]).ok_or(Fault::NotARecord);
    if &found[..5] != TAG || found[RECORD_BYTES - 1] != b'\n' {
        return Err(Fault::NotARecord);
    }
    let (number, records, seed) = (field(5)?, field(22)?, field(39)?);
    let sum = read_hex(&found[CHECKED..CHECKED + 8]).ok_or(Fault::NotARecord)?;
    if sum != u64::from(crc32c(&found[..CHECKED])) {
        return Err(Fault::Checksum);
    }
    Ok((number, FileSpec { records, seed }))
}

/// The leading hexadecimal digits of a number, as many as fit.
fn write_hex(value: u64, out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(value >> (60 - 4 * i)) as usize & 15];
    }
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0u64, |value, &digit| Some(value << 4 | u64::from((digit as char).to_digit(16)?)))
}

/// A step of SplitMix64.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(spec: FileSpec, number: u64) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        write(spec, number, &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_record_says_which_it_is(records: u64, seed: u64, number: u64) {
            let spec = FileSpec { records, seed };
            let bytes = record(spec, number);
            prop_assert!(bytes[..837].iter().all(|b| b.is_ascii_graphic() || *b == b' '));
            prop_assert_eq!(read(&bytes), Ok((number, spec)));
            prop_assert_eq!(check(spec, number, &bytes), Ok(()));
        }

        #[test]
        fn any_changed_byte_is_noticed(at in 0..RECORD_BYTES, flip in 1u8..) {
            let spec = FileSpec { records: 10, seed: 1 };
            let mut bytes = record(spec, 3);
            bytes[at] ^= flip;
            prop_assert!(check(spec, 3, &bytes).is_err());
        }
    }

    #[test]
    fn a_whole_record_in_the_wrong_place_is_named() {
        let spec = FileSpec { records: 10, seed: 1 };
        assert_eq!(check(spec, 4, &record(spec, 3)), Err(Fault::Misplaced { number: 3 }));
        let other = FileSpec { records: 10, seed: 2 };
        assert_eq!(check(spec, 3, &record(other, 3)), Err(Fault::OtherFile));
    }
}

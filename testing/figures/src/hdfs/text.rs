//! The text that is searched.

use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;

/// What is searched for. The other letters are small ones.
pub const NEEDLE: &str = "NEEDLE";
const LINE_BYTES: u64 = 100;
/// One line in so many has it: one in a megabyte.
const RARE: u64 = 10_000;
/// Lines that are written at once.
const AT_ONCE: u64 = 10_000;

/// Writes so many bytes of lines; returns how many have the text.
pub fn write(path: &Path, bytes: u64) -> Result<u64> {
    let mut file = File::create(path)?;
    let (mut state, mut found) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    let mut part = Vec::with_capacity((AT_ONCE * LINE_BYTES) as usize);
    for first in (0..bytes.div_ceil(LINE_BYTES)).step_by(AT_ONCE as usize) {
        part.clear();
        for line in first..first + AT_ONCE {
            let begin = part.len();
            while part.len() < begin + LINE_BYTES as usize {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                part.extend(state.to_le_bytes().map(|byte| b'a' + byte % 16));
            }
            part.truncate(begin + LINE_BYTES as usize);
            part[begin + LINE_BYTES as usize - 1] = b'\n';
            // Somewhere in the middle of the file's parts, and at other places of lines.
            if line % RARE == RARE / 2 && (line + 1) * LINE_BYTES <= bytes {
                let at = begin + (line / RARE % 90) as usize;
                part[at..at + NEEDLE.len()].copy_from_slice(NEEDLE.as_bytes());
                found += 1;
            }
        }
        let left = bytes - first * LINE_BYTES;
        part.truncate(left.min(part.len() as u64) as usize);
        // The last line is a whole one too, if it is a short one.
        part.last_mut().into_iter().for_each(|last| *last = b'\n');
        file.write_all(&part)?;
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_have_the_text_as_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        for bytes in [0, 1, 500_100, 3_000_050] {
            let found = write(&path, bytes).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.len() as u64, bytes);
            let lines = text.lines().filter(|line| line.contains(NEEDLE)).count();
            assert_eq!(lines as u64, found, "{bytes}");
        }
    }
}

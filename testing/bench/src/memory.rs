//! Warm memory. A virtual machine may return freed pages to its host, and touching them again costs
//! up to 3 CPU s/GB, independent of Weir. So before a run that needs fresh pages, as many are
//! touched and freed.

use std::hint::black_box;

/// Added to the needed memory, for buffers of new processes.
const SLACK_BYTES: u64 = 64 << 20;

/// Touches memory and frees it. Does nothing unless twice as much is free.
pub fn warm(bytes: u64) {
    if bytes == 0 {
        return;
    }
    let bytes = bytes + SLACK_BYTES;
    if available_bytes() < 2 * bytes {
        return;
    }
    // Zeroed memory would be mapped without being touched.
    let mut memory = vec![1_u8; bytes as usize];
    memory[0] = 2;
    drop(black_box(memory));
}

fn available_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table.lines().find_map(|l| l.strip_prefix("MemAvailable:")).unwrap_or("");
    let kib = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0_u64);
    kib << 10
}

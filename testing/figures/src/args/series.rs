//! What is measured one after another: what was asked for, or else the usual.

/// Numbers of disks that are perturbed, or slow: none, some, all.
pub fn faults(asked: &[u32], disks: u32, quick: bool) -> Vec<u32> {
    if !asked.is_empty() {
        return asked.iter().map(|n| *n.min(&disks)).collect();
    }
    let doubled = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < disks);
    let between = doubled.filter(|n| !quick || *n == 1);
    [0].into_iter().chain(between).chain([disks]).collect()
}

/// Bytes of calls, where two are compared.
pub fn two_calls(asked: &[u64], quick: bool) -> Vec<u64> {
    match (asked, quick) {
        ([], true) => vec![1 << 20],
        ([], false) => vec![64 << 10, 1 << 20],
        (calls, _) => calls.to_vec(),
    }
}

/// Bytes of calls, where it is their size that counts.
pub fn many_calls(asked: &[u64], quick: bool) -> Vec<u64> {
    match (asked, quick) {
        ([], true) => vec![4 << 10, 64 << 10, 1 << 20],
        ([], false) => vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        (calls, _) => calls.to_vec(),
    }
}

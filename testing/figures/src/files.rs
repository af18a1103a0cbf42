//! Files that as many readers as disks read, with copies on neighbouring disks.

use crate::lab::Lab;
use std::io::{Error, Result};

/// A file for each disk; file i has its copies on disks i, i + 1 and so on, counted around.
pub fn chained(lab: &Lab, disks: usize, copies: usize, bytes: u64) -> Result<Vec<String>> {
    let write = |n: usize| {
        let (name, base) = (format!("f{copies}-{n}"), n.to_string());
        let copies_text = copies.to_string();
        let column = ["--layout", "striped", "--count", "1", "--base", &base];
        let chain = ["--copies", &copies_text, "--placement", "chained"];
        let chain = if copies > 1 { &chain[..] } else { &[] };
        lab.write(&name, &[&column[..], chain].concat(), bytes)?;
        check(lab, &name, &places(n..=n, disks, copies))?;
        Ok(name)
    };
    (0..disks).map(write).collect()
}

/// One file of a fragment for each disk, which lie as those files.
pub fn fragments(lab: &Lab, disks: usize, copies: usize, bytes: u64) -> Result<String> {
    let name = "fragments".to_owned();
    let (count, size, copies_text) = (disks.to_string(), bytes.to_string(), copies.to_string());
    let all = ["--layout", "fragments", "--count", &count, "--base", "0", "--chunk", &size];
    let chain = ["--copies", &copies_text, "--placement", "chained"];
    lab.write(&name, &[&all[..], &chain].concat(), bytes * disks as u64)?;
    check(lab, &name, &places(0..=disks - 1, disks, copies))?;
    Ok(name)
}

/// The disks of all copies of each of these.
fn places(of: std::ops::RangeInclusive<usize>, disks: usize, copies: usize) -> Vec<usize> {
    of.flat_map(|n| (n..n + copies).map(move |disk| disk % disks)).collect()
}

fn check(lab: &Lab, name: &str, expected: &[usize]) -> Result<()> {
    let places = lab.cluster.places(name)?;
    if places == expected {
        return Ok(());
    }
    Err(Error::other(format!("the copies of {name} are on disks {places:?}, not {expected:?}")))
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn copies_are_on_the_disks_that_follow() {
        assert_eq!(places(7..=7, 8, 3), [7, 0, 1]);
        assert_eq!(places(0..=2, 3, 2), [0, 1, 1, 2, 2, 0]);
    }
}

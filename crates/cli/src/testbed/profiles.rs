//! `weir testbed profiles`: lists the profiles.

use crate::failure::Done;
use crate::output::{print, print_json};
use crate::text::Table;
use weir_testbed::profile::{ALL, Profile};

/// Lists all profiles.
pub fn run(json: bool) -> Done {
    if json {
        return print_json(&ALL);
    }
    let mut table = Table::new(&["PROFILE", ">NODES", ">DISK MB/s", ">LINK MB/s", "HEAD", "WHAT"]);
    for profile in &ALL {
        let head = match profile.head {
            Some(head) if head.positioning_us > 0 => format!("{} ms", head.positioning_us / 1_000),
            Some(head) => format!("{} us", head.overhead_us),
            None => "-".into(),
        };
        table.row(vec![
            profile.name.into(),
            profile.nodes.to_string(),
            disks(profile),
            megabytes(profile.link_rate),
            head,
            profile.about.into(),
        ]);
    }
    print(&table.render())
}

/// The speeds of the slowest and the fastest disk.
fn disks(profile: &Profile) -> String {
    let rates = || profile.disk_rates.iter().copied();
    match (rates().min(), rates().max()) {
        (Some(low), Some(high)) if low != high => {
            format!("{}-{}", megabytes(low), megabytes(high))
        }
        (low, _) => megabytes(low.unwrap_or(0)),
    }
}

/// Bytes a second as millions of bytes, the unit of the papers.
pub fn megabytes(bytes_per_s: u64) -> String {
    let text = format!("{:.2}", bytes_per_s as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

//! Races of writers on simulated disks, each of whose chunks go to one of two: how near the slowest
//! comes to what all disks give. By variables of the environment, all of them numbers:
//!
//! ```text
//! DISKS MIB RATE SEEDS     the disks, as many writers, each one's file (MiB), MiB/s; seeds 1 to SEEDS
//! FAULTS=0,1,4             so many disks, as far from each other as can be, give half
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use weir_sim::graduated::write;
use weir_types::Placement;

const MIB: u64 = 1 << 20;

fn main() {
    let (disks, mib, rate) = (number("DISKS", 8), number("MIB", 96), number("RATE", 20));
    let faults = std::env::var("FAULTS").unwrap_or("0,1,4,8".into());
    for faults in faults.split(',').map(|n| n.parse::<u64>().unwrap()) {
        let is_slow = |n: u64| (n + 1) * faults / disks > n * faults / disks;
        let rates: Vec<u64> =
            (0..disks).map(|n| if is_slow(n) { rate / 2 } else { rate } * MIB).collect();
        let ideal_s = (mib * disks * MIB) as f64 / rates.iter().sum::<u64>() as f64;
        for seed in 1..=number("SEEDS", 4) {
            let seen = write(seed, &rates, mib, Placement::Graduated).unwrap();
            let ends: Vec<String> =
                seen.ends.iter().map(|end| format!("{:.2}", end.as_secs_f64())).collect();
            let last_s = seen.ends.iter().max().unwrap().as_secs_f64();
            let written: Vec<u64> = seen.bytes.iter().map(|bytes| bytes / MIB).collect();
            println!(
                "{faults} slow, seed {seed}: {:.1} %; ends {}, MiB of disks {written:?}",
                ideal_s / last_s * 100.0,
                ends.join(" ")
            );
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

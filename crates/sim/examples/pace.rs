//! Races of readers on simulated disks: how near to the ideal the policies come.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use weir_client::ReadPolicy;
use weir_sim::pace::{Arena, Race, Track};

fn main() {
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |value| value.parse().unwrap())
    };
    let disks = number("DISKS", 8) as u8;
    let (mib, rate) = (number("MIB", 80), number("RATE", 20));
    let track = Track {
        seed: number("SEED", 1),
        disks,
        copies: number("COPIES", 2) as u8,
        file_bytes: mib << 20,
        bytes_per_s: rate << 20,
    };
    let faults = std::env::var("FAULTS").unwrap_or("0,1,2,4,8".into());
    let job = number("JOB", 1) == 1;
    let course = number("COURSE", 0);
    let mut arena = Arena::new(track).unwrap();
    for n in faults.split(',').map(|n| n.parse::<u64>().unwrap()) {
        let slow: Vec<(u8, f64)> =
            (0..n).map(|k| ((k * u64::from(disks) / n) as u8, 0.5)).collect();
        let race = Race {
            policy: ReadPolicy::Proportional,
            job,
            call_bytes: number("CALL", 1024) << 10,
            slow,
        };
        let outcome = arena.race(&race).unwrap();
        let ideal = mib as f64 / (rate as f64 * (1.0 - n as f64 / f64::from(disks) / 2.0));
        let ends: Vec<f64> = outcome.ends.iter().map(|end| end.as_secs_f64()).collect();
        let slowest = outcome.slowest().as_secs_f64();
        let gave: Vec<u64> = outcome.disk_bytes.iter().map(|bytes| bytes >> 20).collect();
        println!("{n} slow: {slowest:.2} s, ideal {ideal:.2}, {:.1} %; ends {ends:.2?}, disks {gave:?}", 100.0 * ideal / slowest);
        if course > 0 {
            let len = outcome.course.iter().map(Vec::len).max().unwrap();
            for at in (0..len).step_by(course as usize) {
                let had: Vec<u64> = outcome.course.iter().map(|c| c.get(at).or(c.last()).unwrap() >> 20).collect();
                println!("  {:4.1} s {had:3?}", at as f64 / 10.0);
            }
        }
    }
}

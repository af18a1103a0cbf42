//! Blocks that go to whichever disk accepts them.

use std::collections::BTreeMap;
use weir_sim::spread::{spread, spread_in_vain};
use weir_types::ErrorKind;

const MIB: u64 = 1 << 20;
/// Of 64 KiB, for each of two writers.
const RECORDS: u64 = 3200;

#[test]
fn each_disk_gets_what_it_can_write_and_each_record_is_written_once() {
    for (seed, rates) in [(1, [20, 20, 20, 20]), (2, [10, 20, 20, 20]), (3, [10, 20, 40, 20])] {
        let rates = rates.map(|mib| mib * MIB);
        let seen = spread(seed, &rates, RECORDS).unwrap();
        let (total, all): (u64, u64) = (seen.bytes.iter().sum(), rates.iter().sum());
        assert_eq!(total, 2 * RECORDS * (64 << 10));
        for (bytes, rate) in seen.bytes.iter().zip(rates) {
            let share = total as f64 * rate as f64 / all as f64;
            // When the others have ended, half of its four batches may still be under way.
            let most = share * 0.03 + (2 * MIB) as f64;
            let differs = (*bytes as f64 - share).abs();
            assert!(differs < most, "seed {seed}: {:?} by disks of {rates:?}", seen.bytes);
        }
        let ideal = total as f64 / all as f64;
        let took = seen.took.as_secs_f64();
        assert!(took < ideal * 1.08, "seed {seed}: {took} s, ideal {ideal}");
        // In the order of their writer, and all of them.
        let mut writers = BTreeMap::<String, Vec<u64>>::new();
        for (name, records) in seen.records {
            assert!(records.is_sorted(), "{name}");
            let writer = name.split('-').nth(1).unwrap().to_owned();
            writers.entry(writer).or_default().extend(records);
        }
        assert_eq!(writers.len(), 2);
        for mut records in writers.into_values() {
            records.sort_unstable();
            assert!(records == (0..RECORDS).collect::<Vec<_>>());
        }
    }
}

#[test]
fn who_ends_is_told_of_a_block_for_which_there_was_no_room() {
    assert_eq!(spread_in_vain(1).unwrap(), Some(ErrorKind::NoSpace));
}

//! Bytes of a refused write that a client has read are not taken back.

use weir_sim::taken_back::{OLD, try_refusal};
use weir_types::ErrorKind;

#[test]
fn what_a_full_disk_refuses_is_read_nowhere_though_the_other_copy_had_taken_it() {
    for seed in 0..4 {
        let seen = try_refusal(seed).unwrap();
        assert_eq!(seen.told, Some(ErrorKind::NoSpace), "seed {seed}");
        assert_eq!(seen.reads, [OLD, OLD], "seed {seed}");
    }
}

//! Rot in the primary copy is repaired from a copy that has the bytes, even if that copy is noted
//! as lacking more.

use weir_sim::rotten_cut::{KEPT, NEW, OLD, try_write};
use weir_types::limits::BLOCK_BYTES;

#[test]
fn a_rotten_block_that_was_cut_is_made_good_from_a_copy_that_lacks_something_else() {
    let mut block = [OLD; KEPT].to_vec();
    block.extend([NEW; KEPT]);
    block.resize(BLOCK_BYTES, 0);
    for seed in 0..4 {
        let seen = try_write(seed).unwrap();
        assert_eq!(seen.told, None, "seed {seed}");
        assert!(seen.reads == [block.clone(), block.clone()], "seed {seed}");
    }
}

//! A call that has failed half way: its requests arrive late, or not at all, and undo nothing that
//! was written since.

use weir_sim::half_done::{Half, NEW, OLD, lost_size, no_room, try_half};
use weir_types::ErrorKind;

const BLOCK: usize = 4096;

/// The number of bytes that differ from the last write, and the first of them.
fn undone(read: &[u8]) -> (usize, Option<usize>) {
    let mut undone = (0..read.len()).filter(|at| read[*at] != NEW);
    let first = undone.next();
    (first.map_or(0, |_| 1 + undone.count()), first)
}

#[test]
fn what_a_client_writes_behind_a_cut_that_failed_half_way_stays() {
    let read = try_half(Half::Truncate).unwrap();
    assert_eq!(read.len(), 4 * BLOCK);
    assert!(read[..BLOCK].iter().all(|byte| *byte == OLD));
    assert_eq!(undone(&read[BLOCK..]), (0, None));
}

#[test]
fn pages_that_were_kept_before_a_cut_failed_half_way_are_dropped_when_another_writes() {
    let read = try_half(Half::TruncateAndLook).unwrap();
    assert_eq!(undone(&read), (0, None));
}

#[test]
fn a_hole_of_which_a_part_was_refused_changes_nothing_later() {
    let read = try_half(Half::Punch).unwrap();
    assert_eq!((read.len(), undone(&read)), (4 * BLOCK, (0, None)));
}

#[test]
fn a_copy_that_failed_changes_nothing_later() {
    let read = try_half(Half::Copy).unwrap();
    assert_eq!((read.len(), undone(&read)), (4 * BLOCK, (0, None)));
}

#[test]
fn a_write_that_waits_for_the_servers_is_told_that_there_is_no_room_and_nobody_else() {
    let none = Some(ErrorKind::NoSpace);
    assert_eq!(no_room(true).unwrap(), [none, None, None], "it had not returned");
    assert_eq!(no_room(false).unwrap(), [None, none, None], "it had");
}

#[test]
fn a_write_that_waits_for_the_servers_is_told_that_its_size_was_lost_and_nobody_else() {
    assert_eq!(lost_size().unwrap(), [Some(ErrorKind::LeaseLost), None]);
}

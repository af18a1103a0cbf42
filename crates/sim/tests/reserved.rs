//! Room that cannot be reserved on all copies.
#![allow(clippy::unwrap_used)]

use weir_sim::reserved::try_reservation;
use weir_types::ErrorKind;

#[test]
fn room_that_is_refused_takes_nothing_from_what_is_there() {
    for full in [&[1][..], &[0], &[0, 1]] {
        let seen = try_reservation(1, full).unwrap();
        assert_eq!(seen.told, [Some(ErrorKind::NoSpace); 2], "{full:?}");
        assert_eq!(seen.lacking, [0, 0], "{full:?}");
        assert_eq!((seen.byte, seen.told_of_written, seen.zeros), (1, [None; 2], true), "{full:?}");
    }
}

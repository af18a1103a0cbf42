//! What was done is not done a second time, and nobody is told that it was somebody else.

use weir_sim::once::try_once;
use weir_types::ErrorKind;

#[test]
fn a_client_whose_session_ended_before_the_answer_came_does_not_meet_what_it_has_made() {
    assert_eq!(try_once(true).unwrap(), Some(ErrorKind::TimedOut));
}

#[test]
fn a_client_that_was_cut_off_for_longer_than_its_session_goes_on() {
    assert_eq!(try_once(false).unwrap(), None);
}

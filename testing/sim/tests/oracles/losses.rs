//! The judge of what an administrator has accepted as lost.

use super::story::Story;
use std::time::Duration;
use weir_sim::history::{History, Node, What};
use weir_sim::oracle::available::{self, Expected};
use weir_sim::oracle::data::{self, ClientFacts, FileFacts};
use weir_sim::oracle::losses::Losses;
use weir_types::ErrorKind;

const A: Node = Node::Data(0);
const B: Node = Node::Data(1);
const CLIENT: ClientFacts = ClientFacts { write_behind: false, leases: true, keeps_pages: false };

/// One with 4 cells that two data servers have.
fn files(early: bool) -> [FileFacts; 1] {
    [FileFacts {
        cells: 4,
        nodes_of_cells: vec![vec![0, 1]; 4],
        nodes_of_columns: [vec![0, 1]].into(),
        log: false,
        early,
    }]
}

impl Story {
    fn is_ill(&mut self, node: Node, ms: u64) {
        let at = self.history.entries.last().map_or(Duration::ZERO, |entry| entry.at);
        self.push(What::Ill { node, peer: None, until: at + Duration::from_millis(ms) });
    }

    fn accepts(&mut self, cells: &[u32]) {
        let (nodes, column) = (vec![0, 1], vec![0, 1, 2, 3]);
        self.push(What::LossAccepted { file: 0, nodes, column, cells: cells.to_vec() });
    }

    /// The gap log of one is lost while the other is away.
    fn loses_gaps(&mut self) {
        self.is_ill(A, 1_000);
        self.is_ill(B, 1_000);
        self.push(What::GapsLost(A));
    }
}

fn is_possible(history: &History, early: bool) -> bool {
    Losses::of(history, &files(early)).judge(history).is_none()
}

fn is_safe(history: &History) -> bool {
    data::judge(history, &files(false), &[CLIENT, CLIENT]).violations.is_empty()
}

fn is_available(history: &History) -> bool {
    let seconds = Duration::from_secs;
    let (detection, recovery, request) = (seconds(2), seconds(4), seconds(12));
    let expected =
        Expected { leases: true, detection, recovery, request, removes: false, hangs: false };
    available::judge(history, &files(false), &[CLIENT, CLIENT], expected).is_empty()
}

#[test]
fn what_an_administrator_gives_up_may_be_older_and_is_the_same_for_all() {
    let reads = |cells: &[u32], first: usize, then: usize| {
        Story::told(|s| {
            let written = [None, Some(s.write(0)), Some(s.write(0))];
            s.sync(0);
            s.loses_gaps();
            s.accepts(cells);
            s.read(1, written[first]);
            s.read(1, written[then]);
        })
    };
    let all = [0, 1, 2, 3];
    for left in 0..3 {
        assert!(is_safe(&reads(&all, left, left)));
    }
    assert!(!is_safe(&reads(&all, 1, 2)));
    assert!(!is_safe(&reads(&all, 0, 1)));
    // Of the last cell nothing was lost.
    assert!(is_safe(&reads(&all[..3], 2, 2)));
    assert!(!is_safe(&reads(&all[..3], 1, 1)));
}

#[test]
fn what_is_written_later_is_not_given_up() {
    assert!(!is_safe(&Story::told(|s| {
        let old = s.write(0);
        s.loses_gaps();
        s.accepts(&[0, 1, 2, 3]);
        s.write(0);
        s.read(1, Some(old));
    })));
}

#[test]
fn nothing_is_lost_that_another_copy_has() {
    let with = |others_ill: bool, what: What| {
        Story::told(|s| {
            s.is_ill(A, 1_000);
            if others_ill {
                s.is_ill(B, 1_000);
            }
            s.push(what);
            s.accepts(&[0]);
        })
    };
    assert!(is_possible(&with(true, What::GapsLost(A)), false));
    assert!(!is_possible(&with(false, What::GapsLost(A)), false));
    assert!(!is_possible(&with(true, What::GapsLost(Node::Data(2))), false));
    // Each write was acknowledged when both had it, or when one had.
    assert!(!is_possible(&with(true, What::PowerCut(A)), false));
    assert!(is_possible(&with(true, What::PowerCut(A)), true));
    assert!(!is_possible(&with(false, What::PowerCut(A)), true));
    // It had time to say what the other one lacked.
    assert!(!is_possible(
        &Story::told(|s| {
            s.is_ill(B, 1_000);
            s.wait_ms(15_000);
            s.is_ill(A, 1_000);
            s.push(What::GapsLost(A));
            s.accepts(&[0]);
        }),
        false
    ));
}

#[test]
fn what_is_lost_is_refused_until_somebody_accepts_that_and_not_longer() {
    let refused = |accepted_first: bool, kind: ErrorKind| {
        Story::told(|s| {
            s.loses_gaps();
            s.wait_ms(60_000);
            if accepted_first {
                s.accepts(&[0]);
            }
            let read = s.begin_read(0);
            s.fails(read, kind);
            if !accepted_first {
                s.accepts(&[0]);
            }
        })
    };
    assert!(is_available(&refused(false, ErrorKind::NotCurrent)));
    assert!(!is_available(&refused(false, ErrorKind::TimedOut)));
    assert!(!is_available(&refused(true, ErrorKind::NotCurrent)));
}

#[test]
fn who_waits_for_one_that_a_loss_holds_up_may_give_up() {
    let waits = |holder_is_refused: bool, accepted_first: bool| {
        Story::told(|s| {
            s.loses_gaps();
            s.wait_ms(60_000);
            if accepted_first {
                s.accepts(&[0]);
            }
            if holder_is_refused {
                let holders = s.begin_read(0);
                s.fails(holders, ErrorKind::NotCurrent);
            }
            let read = s.begin_read(1);
            s.fails(read, ErrorKind::TimedOut);
            if !accepted_first {
                s.accepts(&[0]);
            }
        })
    };
    assert!(is_available(&waits(true, false)));
    assert!(!is_available(&waits(false, false)));
    assert!(!is_available(&waits(false, true)));
}

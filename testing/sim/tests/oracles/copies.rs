//! The judges of files with several copies.

use super::story::Story;
use std::time::Duration;
use weir_sim::history::{Call, History, Node, Outcome, What};
use weir_sim::oracle::available::{self, Expected};
use weir_sim::oracle::data::{ClientFacts, FileFacts, judge};
use weir_types::ErrorKind;

/// Of one file with 4 cells that two data servers have; two clients write
/// through.
fn files() -> [FileFacts; 1] {
    [FileFacts {
        cells: 4,
        nodes_of_cells: vec![vec![0, 1]; 4],
        nodes_of_columns: [vec![0, 1]].into(),
        log: false,
        early: false,
    }]
}

fn is_safe(history: &History) -> bool {
    let client = ClientFacts { write_behind: false, leases: false, keeps_pages: false };
    let verdict = judge(history, &files(), &[client.clone(), client]);
    verdict.violations.is_empty()
}

fn is_available(history: &History) -> bool {
    is_available_to(history, &files(), false)
}

fn is_available_to(history: &History, files: &[FileFacts], write_behind: bool) -> bool {
    let (detection, recovery) = (Duration::from_secs(2), Duration::from_secs(4));
    let request = Duration::from_secs(12);
    let removes = false;
    let expected = Expected { leases: true, detection, recovery, request, removes, hangs: false };
    let client = ClientFacts { write_behind, leases: true, keeps_pages: false };
    available::judge(history, files, &[client.clone(), client], expected).is_empty()
}

impl Story {
    /// A node has a fault for this time, which then ends.
    fn ill(&mut self, node: Node, peer: Option<Node>, ms: u64) {
        self.ill_while(node, peer, ms);
        self.wait_ms(ms);
    }
    fn ill_while(&mut self, node: Node, peer: Option<Node>, ms: u64) {
        let until = self.now() + Duration::from_millis(ms + 1);
        self.push(What::Ill { node, peer, until });
    }
    fn now(&self) -> Duration {
        self.history.entries.last().map_or(Duration::ZERO, |entry| entry.at)
    }
    fn fails_now(&mut self) {
        let read = self.begin_read(0);
        self.fails(read, ErrorKind::TimedOut);
    }
}

const A: Node = Node::Data(0);
const B: Node = Node::Data(1);
const C: Node = Node::Data(2);

#[test]
fn a_column_without_cells_may_be_missed_too() {
    let files = || {
        let [file] = files();
        [FileFacts { nodes_of_columns: [vec![0, 1], vec![2, 3]].into(), ..file }]
    };
    let away = |other: Node| {
        Story::told(|s| {
            s.ill_while(C, None, 60_000);
            s.ill_while(other, None, 60_000);
            s.wait_ms(30_000);
            s.fails_now();
        })
    };
    assert!(is_available_to(&away(Node::Data(3)), &files(), false));
    assert!(!is_available_to(&away(C), &files(), false));
}

/// Two copies that move: they may be on any two of three servers.
#[test]
fn of_copies_that_move_one_server_may_fail_unfelt_wherever_they_are() {
    let [file] = files();
    let files =
        [FileFacts { nodes_of_columns: [[0, 1], [0, 2], [1, 2]].map(Vec::from).into(), ..file }];
    let away = |nodes: &[Node]| {
        Story::told(|s| {
            nodes.iter().for_each(|node| s.ill_while(*node, None, 60_000));
            s.wait_ms(30_000);
            s.fails_now();
        })
    };
    for one in [A, B, C] {
        assert!(!is_available_to(&away(&[one]), &files, false));
    }
    assert!(is_available_to(&away(&[A, C]), &files, false));
}

#[test]
fn who_writes_behind_may_be_told_later_that_a_write_has_failed() {
    let story = Story::told(|s| {
        s.ill_while(A, None, 10);
        s.ill(B, None, 10);
        s.wait_ms(15_000);
        s.fails_now();
    });
    assert!(!is_available_to(&story, &files(), false));
    assert!(is_available_to(&story, &files(), true));
}

#[test]
fn what_one_machine_forgets_the_other_copy_still_has() {
    let one = |power_cut: Node| {
        Story::told(|s| {
            s.write(0);
            s.ill(power_cut, None, 10);
            s.power_cut(power_cut);
            s.read(0, None);
        })
    };
    assert!(!is_safe(&one(A)));
    assert!(!is_safe(&one(B)));
}

#[test]
fn two_machines_one_after_the_other_may_forget_what_was_not_synced() {
    let two = |rest_ms: u64, synced: bool| {
        Story::told(|s| {
            s.write(0);
            if synced {
                s.sync(0);
            }
            s.ill(A, None, 10);
            s.power_cut(A);
            s.wait_ms(rest_ms);
            s.ill(B, None, 10);
            s.power_cut(B);
            s.read(0, None);
        })
    };
    assert!(is_safe(&two(100, false)));
    assert!(!is_safe(&two(100, true)));
    // The first one had time to get it again.
    assert!(!is_safe(&two(15_000, false)));
}

#[test]
fn what_a_client_holds_back_is_not_lost_for_one_data_server() {
    let lost = |others_ill: bool| {
        Story::told(|s| {
            if others_ill {
                s.ill(B, None, 10);
            }
            let until = s.now() + Duration::from_secs(9);
            s.ill_while(A, None, 5_000);
            s.push(What::Trouble { client: None, until, late: true, one_data_server: true });
            s.write(0);
            s.read(1, None);
            let sync = s.begin_sync(0);
            s.fails(sync, ErrorKind::LeaseLost);
        })
    };
    let client = ClientFacts { write_behind: true, leases: true, keeps_pages: false };
    let is_good = |history: &History| {
        judge(history, &files(), &[client.clone(), client.clone()]).violations.is_empty()
    };
    assert!(!is_good(&lost(false)));
    assert!(is_good(&lost(true)));
}

#[test]
fn a_server_that_was_away_is_not_taken_for_one_that_has_everything() {
    let history = Story::told(|s| {
        s.ill(A, None, 10);
        s.write(0);
        s.power_cut(B);
        s.read(0, None);
    });
    assert!(is_safe(&history));
}

#[test]
fn a_single_failure_must_not_be_felt() {
    assert!(!is_available(&Story::told(|s| {
        s.ill_while(A, None, 5_000);
        s.fails_now();
    })));
    assert!(is_available(&Story::told(|s| {
        s.ill(A, None, 10);
        s.ill(B, None, 10);
        s.fails_now();
    })));
    // Of two copies that do not reach each other one goes on.
    assert!(!is_available(&Story::told(|s| {
        s.ill_while(A, Some(B), 5_000);
        s.fails_now();
    })));
    assert!(is_available(&Story::told(|s| {
        s.ill_while(A, Some(C), 5_000);
        s.ill_while(B, Some(C), 5_000);
        s.fails_now();
    })));
}

#[test]
fn trouble_of_clients_and_of_the_metadata_server_excuses_for_a_while() {
    for (node, peer) in [(Node::Meta, None), (Node::Client(1), Some(A))] {
        let after = |ms: u64| {
            Story::told(|s| {
                s.ill(node, peer, 10);
                s.wait_ms(ms);
                s.fails_now();
            })
        };
        assert!(is_available(&after(100)));
        assert!(!is_available(&after(5_000)));
    }
    // A data server that does not hear of the metadata server is one failure.
    assert!(!is_available(&Story::told(|s| {
        s.ill_while(Node::Meta, Some(A), 5_000);
        s.fails_now();
    })));
}

#[test]
fn an_answer_that_takes_much_longer_than_detection_is_none() {
    let slow = |ms: u64| {
        Story::told(|s| {
            let read = s.begin(0, Call::Read { file: 0, first: 0, cells: 1 });
            s.wait_ms(ms);
            s.end(read, Outcome::Cells(vec![0]));
        })
    };
    assert!(is_available(&slow(8_000)));
    assert!(!is_available(&slow(10_000)));
}

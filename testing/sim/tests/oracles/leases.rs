//! The judges of bytes, sizes and times where clients hold leases.

use super::story::Story;
use std::time::Duration;
use weir_sim::history::{CELL_BYTES, Call, History, Node, Outcome, What, cell_of_record};
use weir_sim::oracle::data::{ClientFacts, FileFacts, judge};
use weir_sim::oracle::stats;
use weir_types::ErrorKind;

const DATA: Node = Node::Data(0);
const LOG: u8 = 1;

/// File 0 has 4 cells, file 1 is appended to. Clients 0 and 1 write behind,
/// client 2 writes through; all hold leases.
fn is_good(history: &History) -> bool {
    let files = [
        FileFacts {
            cells: 4,
            nodes_of_cells: vec![vec![0]; 4],
            nodes_of_columns: [vec![0]].into(),
            log: false,
            early: false,
        },
        FileFacts {
            cells: 20,
            nodes_of_cells: vec![vec![0]; 20],
            nodes_of_columns: [vec![0]].into(),
            log: true,
            early: false,
        },
    ];
    let clients = [true, true, false].map(|write_behind| ClientFacts {
        write_behind,
        leases: true,
        keeps_pages: false,
    });
    let verdict = judge(history, &files, &clients);
    assert_eq!(verdict.undecided, 0);
    verdict.violations.is_empty() && stats::judge(history, &files, &clients, true).is_empty()
}

impl Story {
    fn loses(&mut self, id: u32) {
        self.fails(id, ErrorKind::LeaseLost);
    }
    fn trouble(&mut self, client: u8) {
        self.trouble_with(client, false);
    }
    fn trouble_with(&mut self, client: u8, late: bool) {
        let until = Duration::from_secs(9);
        self.push(What::Trouble { client: Some(client), until, late, one_data_server: false });
    }
    fn append_at(&mut self, client: u8, cells: u32, at: u32) -> u32 {
        let id = self.begin(client, Call::Append { file: LOG, cells });
        self.end(id, Outcome::At(u64::from(at) * CELL_BYTES as u64));
        id
    }
    /// Reads all of the file that is appended to.
    fn list(&mut self, client: u8, records: &[(u32, u32)]) {
        let id = self.begin(client, Call::Read { file: LOG, first: 0, cells: 20 });
        let cells = |(id, cells): &(u32, u32)| {
            let tag = u64::from(*id) + 1;
            (0..*cells).map(move |cell| cell_of_record(tag, cell)).collect::<Vec<_>>()
        };
        self.end(id, Outcome::Cells(records.iter().flat_map(cells).collect()));
    }
    fn stat(&mut self, client: u8, file: u8, cells: u32, mtime_ns: i64) {
        let id = self.begin(client, Call::Stat { file });
        self.end(id, Outcome::Stat { size: u64::from(cells) * CELL_BYTES as u64, mtime_ns });
    }
}

fn good(story: impl FnOnce(&mut Story)) {
    assert!(is_good(&Story::told(story)));
}

fn bad(story: impl FnOnce(&mut Story)) {
    assert!(!is_good(&Story::told(story)));
}

#[test]
fn what_a_write_returned_for_everybody_sees() {
    good(|s| {
        let a = s.write(0);
        s.read(1, Some(a));
        let b = s.write(1);
        s.read(2, Some(b));
        s.read(0, Some(b));
    });
    bad(|s| {
        s.write(0);
        s.read(1, None);
        s.sync(0);
    });
    bad(|s| {
        let a = s.write(0);
        s.write(1);
        s.read(2, Some(a));
    });
}

#[test]
fn two_readers_see_one_order() {
    let story = |s: &mut Story, second: [usize; 2]| {
        let writes = [s.begin_write(0), s.begin_write(1)];
        s.read(2, Some(writes[0]));
        for (write, again) in writes.into_iter().zip(second) {
            s.end(write, Outcome::Done);
            s.read(2, Some(writes[again]));
        }
    };
    good(|s| story(s, [0, 1]));
    good(|s| story(s, [1, 1]));
    bad(|s| story(s, [1, 0]));
}

#[test]
fn what_a_client_held_back_may_go_with_it_and_then_stays_gone() {
    good(|s| {
        let a = s.write(0);
        s.write(0);
        s.killed(0);
        s.read(1, Some(a));
        s.read(2, Some(a));
    });
    good(|s| {
        s.write(0);
        s.killed(0);
        s.read(1, None);
        s.read(0, None);
    });
    bad(|s| {
        let a = s.write(0);
        s.killed(0);
        s.read(1, None);
        s.read(1, Some(a));
    });
    // The later write was held back no less than the earlier one.
    bad(|s| {
        let a = s.write(0);
        let b = s.write(0);
        s.killed(0);
        s.read(1, Some(b));
        s.read(1, Some(a));
    });
}

#[test]
fn what_somebody_has_seen_or_a_sync_has_covered_is_not_lost_with_its_client() {
    bad(|s| {
        let a = s.write(0);
        s.read(1, Some(a));
        s.killed(0);
        s.read(1, None);
    });
    for call in [Call::Sync { file: 0 }, Call::Flush { file: 0 }] {
        bad(|s| {
            s.write(0);
            let id = s.begin(0, call);
            s.end(id, Outcome::Done);
            s.killed(0);
            s.read(1, None);
        });
    }
    bad(|s| {
        s.write(2);
        s.killed(2);
        s.read(1, None);
    });
}

#[test]
fn a_write_of_a_dead_client_takes_effect_before_others_are_let_in_or_never() {
    for client in [0, 2] {
        good(|s| {
            let a = s.begin_write(client);
            s.killed(client);
            s.read(1, Some(a));
            s.read(1, Some(a));
        });
        bad(|s| {
            let a = s.begin_write(client);
            s.killed(client);
            s.read(1, None);
            s.read(1, Some(a));
        });
        bad(|s| {
            let a = s.begin_write(client);
            s.killed(client);
            s.write(1);
            s.read(1, Some(a));
        });
    }
}

#[test]
fn whoever_loses_leases_is_told_by_the_next_write_sync_or_close() {
    let story = |s: &mut Story, told: bool, call: Call| {
        s.write(0);
        s.trouble(0);
        s.read(1, None);
        let id = s.begin(0, call);
        if told {
            s.loses(id)
        } else {
            s.end(id, Outcome::Done)
        }
        s.read(1, None);
        s.sync(0);
    };
    for call in [Call::Sync { file: 0 }, Call::Flush { file: 0 }] {
        good(|s| story(s, true, call.clone()));
        bad(|s| story(s, false, call));
    }
    let elsewhere = Call::Write { file: 0, first: 0, cells: 0 };
    good(|s| story(s, true, elsewhere.clone()));
    bad(|s| story(s, false, elsewhere));
    // A write that had begun before may still succeed.
    let under_way = |s: &mut Story, told: bool| {
        s.write(0);
        s.trouble(0);
        let b = s.begin(0, Call::Write { file: 0, first: 0, cells: 0 });
        s.read(1, None);
        s.end(b, Outcome::Done);
        let sync = s.begin_sync(0);
        if told { s.loses(sync) } else { s.end(sync, Outcome::Done) }
    };
    good(|s| under_way(s, true));
    bad(|s| under_way(s, false));
}

#[test]
fn nobody_loses_leases_without_a_reason() {
    bad(|s| {
        s.write(0);
        s.read(1, None);
        let id = s.begin_sync(0);
        s.loses(id);
    });
    bad(|s| {
        s.trouble(1);
        s.write(0);
        s.read(1, None);
        let id = s.begin_sync(0);
        s.loses(id);
    });
}

#[test]
fn whoever_was_told_may_sync_the_rest() {
    let story = |s: &mut Story, seen: usize| {
        let a = s.write(0);
        s.trouble(0);
        let b = s.begin_write(0);
        s.loses(b);
        s.sync(0);
        s.read(1, [None, Some(a)][seen]);
        s.read(1, [None, Some(a)][seen]);
    };
    good(|s| story(s, 0));
    good(|s| story(s, 1));
    // But not what it has written since.
    bad(|s| {
        story(s, 0);
        s.write(0);
        s.sync(0);
        s.read(1, None);
    });
}

#[test]
fn who_comes_after_a_client_that_was_killed_knows_nothing_of_what_it_held_back() {
    let story = |s: &mut Story, seen: usize| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        s.killed(0);
        s.sync(0);
        s.read(1, [None, Some(a), Some(b)][seen]);
    };
    bad(|s| story(s, 0));
    good(|s| story(s, 1));
    good(|s| story(s, 2));
}

#[test]
fn only_where_messages_are_held_back_a_write_that_was_lost_may_come_late() {
    let story = |s: &mut Story, late: bool| {
        let a = s.write(0);
        s.trouble_with(0, late);
        s.read(1, None);
        s.read(1, Some(a));
    };
    good(|s| story(s, true));
    bad(|s| story(s, false));
    // A sync says that it has come.
    bad(|s| {
        s.trouble_with(0, true);
        let a = s.write(0);
        s.sync(0);
        s.write(1);
        s.read(2, Some(a));
    });
}

#[test]
fn what_a_metadata_server_that_starts_anew_does_not_know_of_is_not_fenced() {
    let story = |s: &mut Story, restarts: bool| {
        let a = s.begin_write(2);
        s.killed(2);
        if restarts {
            s.push(What::Down(Node::Meta));
            s.push(What::Up(Node::Meta));
        }
        s.read(1, None);
        s.read(1, Some(a));
    };
    good(|s| story(s, true));
    bad(|s| story(s, false));
}

#[test]
fn a_power_cut_and_a_death_take_back_what_each_may() {
    let story = |s: &mut Story, seen: usize| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        s.power_cut(DATA);
        s.killed(0);
        s.read(1, [None, Some(a), Some(b)][seen]);
    };
    bad(|s| story(s, 0));
    good(|s| story(s, 1));
    good(|s| story(s, 2));
}

#[test]
fn each_record_is_appended_once_whole_and_in_order() {
    good(|s| {
        let a = s.append_at(0, 2, 0);
        let b = s.append_at(1, 1, 2);
        s.list(2, &[(a, 2), (b, 1)]);
        s.stat(2, LOG, 3, 1);
    });
    // Not whole.
    bad(|s| {
        let a = s.append_at(0, 2, 0);
        s.list(2, &[(a, 1)]);
    });
    // Over another one.
    bad(|s| {
        s.append_at(0, 2, 0);
        s.append_at(1, 1, 1);
    });
    // Before one that was there.
    bad(|s| {
        s.append_at(0, 2, 1);
        s.append_at(1, 1, 0);
    });
    // Elsewhere than it was told.
    bad(|s| {
        let a = s.append_at(0, 1, 0);
        let b = s.append_at(1, 1, 1);
        s.list(2, &[(b, 1), (a, 1)]);
    });
    // Twice.
    bad(|s| {
        let a = s.append_at(0, 1, 0);
        s.list(2, &[(a, 1), (a, 1)]);
    });
    // With the client that held it back.
    good(|s| {
        s.append_at(0, 2, 0);
        s.killed(0);
        let b = s.append_at(1, 1, 0);
        s.list(2, &[(b, 1)]);
    });
    bad(|s| {
        s.append_at(2, 2, 0);
        s.killed(2);
        s.append_at(1, 1, 0);
    });
}

#[test]
fn of_two_records_at_one_place_one_was_lost_with_its_client() {
    // Whichever was asked for first.
    for late in [true, false] {
        good(|s| {
            let early = |s: &mut Story| s.begin(1, Call::Append { file: LOG, cells: 2 });
            let a = (!late).then(|| early(s));
            s.append_at(0, 3, 0);
            s.killed(0);
            let a = a.unwrap_or_else(|| early(s));
            s.end(a, Outcome::At(0));
            s.list(2, &[(a, 2)]);
        });
    }
    bad(|s| {
        let a = s.begin(1, Call::Append { file: LOG, cells: 2 });
        s.append_at(0, 3, 0);
        s.end(a, Outcome::At(0));
    });
}

#[test]
fn a_power_cut_of_the_metadata_server_makes_no_bytes_durable() {
    good(|s| {
        s.power_cut(Node::Meta);
        let a = s.append_at(0, 1, 0);
        s.list(1, &[(a, 1)]);
        s.power_cut(DATA);
        s.list(2, &[]);
    });
}

#[test]
fn a_size_that_a_power_cut_took_back_is_gone_when_its_reader_has_heard_of_that() {
    let story = |s: &mut Story, heard: bool| {
        let a = s.append_at(0, 1, 0);
        let id = s.begin(0, Call::Flush { file: LOG });
        s.end(id, Outcome::Done);
        s.list(1, &[(a, 1)]);
        let until = Duration::from_millis(50);
        let (client, late, one_data_server) = (None, false, false);
        s.push(What::Trouble { client, until, late, one_data_server });
        s.power_cut(Node::Meta);
        s.list(1, &[(a, 1)]);
        if heard {
            s.wait_ms(100);
            s.list(1, &[(a, 1)]);
        }
        s.list(2, &[]);
    };
    good(|s| story(s, false));
    bad(|s| story(s, true));
}

#[test]
fn a_sync_says_nothing_of_a_write_that_has_failed() {
    let story = |s: &mut Story, told: bool| {
        let a = s.write(0);
        s.read(1, Some(a));
        s.power_cut(DATA);
        let b = s.begin(0, Call::Write { file: 0, first: 0, cells: 0 });
        if told {
            s.fails(b, ErrorKind::TimedOut)
        } else {
            s.end(b, Outcome::Done)
        }
        s.sync(0);
        s.read(1, None);
    };
    good(|s| story(s, true));
    bad(|s| story(s, false));
}

#[test]
fn a_record_whose_writer_was_not_told_is_there_once_or_not() {
    good(|s| {
        let a = s.begin(0, Call::Append { file: LOG, cells: 2 });
        s.loses(a);
        s.list(1, &[(a, 2)]);
    });
    bad(|s| {
        let a = s.begin(0, Call::Append { file: LOG, cells: 1 });
        s.loses(a);
        s.list(1, &[(a, 1), (a, 1)]);
    });
}

#[test]
fn sizes_are_those_of_the_last_write_and_times_never_go_back() {
    bad(|s| {
        s.append_at(0, 2, 0);
        s.stat(1, LOG, 1, 1);
    });
    bad(|s| s.stat(1, 0, 3, 1));
    good(|s| {
        s.stat(1, 0, 4, 1);
        s.stat(2, 0, 4, 1);
        s.stat(0, 0, 4, 2);
    });
    bad(|s| {
        s.stat(1, 0, 4, 2);
        s.stat(2, 0, 4, 1);
    });
    good(|s| {
        let cut = s.begin(1, Call::Cut { file: 0, keep: 1 });
        s.stat(2, 0, 1, 1);
        s.end(cut, Outcome::Done);
        s.stat(2, 0, 4, 1);
    });
    bad(|s| {
        let cut = s.begin(1, Call::Cut { file: 0, keep: 1 });
        s.end(cut, Outcome::Done);
        s.stat(2, 0, 1, 1);
    });
}

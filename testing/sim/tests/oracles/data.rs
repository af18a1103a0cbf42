//! The judge of bytes.

use super::story::Story;
use weir_sim::history::{Call, History, Node, Outcome, What};
use weir_sim::oracle::data::{ClientFacts, FileFacts, judge};
use weir_types::ErrorKind;

const DATA: Node = Node::Data(0);

/// Of one file with 4 cells on data server 0; client 0 writes through, client 1
/// writes behind.
fn one_file() -> [FileFacts; 1] {
    [FileFacts {
        cells: 4,
        nodes_of_cells: vec![vec![0]; 4],
        nodes_of_columns: [vec![0]].into(),
        log: false,
        early: false,
    }]
}

fn is_good(history: &History) -> bool {
    let clients = [false, true].map(|write_behind| ClientFacts {
        write_behind,
        leases: false,
        keeps_pages: false,
    });
    let verdict = judge(history, &one_file(), &clients);
    assert_eq!(verdict.undecided, 0);
    verdict.violations.is_empty()
}

impl Story {
    fn unknown(&mut self, id: u32) {
        self.fails(id, ErrorKind::TimedOut);
    }
    fn cut(&mut self, client: u8, keep: u32) {
        self.call(client, Call::Cut { file: 0, keep });
    }
}

fn good(story: impl FnOnce(&mut Story)) {
    assert!(is_good(&Story::told(story)));
}

fn bad(story: impl FnOnce(&mut Story)) {
    assert!(!is_good(&Story::told(story)));
}

#[test]
fn a_read_sees_the_last_completed_write() {
    good(|s| {
        s.read(0, None);
        let a = s.write(0);
        s.read(0, Some(a));
        let b = s.write(0);
        s.read(1, Some(b));
    });
    bad(|s| {
        s.write(0);
        s.read(1, None);
    });
    bad(|s| {
        let a = s.write(0);
        s.write(0);
        s.read(1, Some(a));
    });
}

#[test]
fn a_write_under_way_is_seen_or_not_but_never_goes_back() {
    good(|s| {
        let a = s.begin_write(0);
        s.read(1, None);
        s.read(1, Some(a));
        s.end(a, Outcome::Done);
    });
    bad(|s| {
        let a = s.begin_write(0);
        s.read(1, Some(a));
        s.read(1, None);
        s.end(a, Outcome::Done);
    });
}

#[test]
fn two_writes_at_once_have_one_order_for_everybody() {
    let race = |s: &mut Story, swap: bool| {
        let (a, b) = (s.begin_write(0), s.begin(2 - 1, Call::SyncNames));
        s.end(b, Outcome::Done);
        let c = s.begin(0, Call::Write { file: 0, first: 0, cells: 4 });
        s.end(a, Outcome::Done);
        s.end(c, Outcome::Done);
        s.read(0, Some(a));
        s.read(0, Some(if swap { c } else { a }));
    };
    // Calls of one client take effect in their order: `c` came last.
    bad(|s| race(s, false));
    bad(|s| race(s, true));
}

#[test]
fn a_value_that_nobody_wrote_is_noticed() {
    bad(|s| s.read(0, Some(7)));
    bad(|s| {
        let read = s.begin_read(0);
        s.end(read, Outcome::Cells(vec![weir_sim::history::TORN; 4]));
    });
}

#[test]
fn a_write_without_an_answer_may_come_late() {
    good(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        s.read(0, None);
        s.read(0, Some(a));
    });
    good(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        let b = s.write(1);
        s.flush(1);
        s.read(0, Some(b));
        s.read(0, Some(a));
    });
    good(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        s.read(0, None);
    });
    // But not after a newer one of its client: then or never.
    bad(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        let b = s.write(0);
        s.read(0, Some(b));
        s.read(0, Some(a));
    });
    good(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        let read = s.begin_read(1);
        let b = s.write(0);
        s.saw(read, Some(a));
        s.read(0, Some(b));
    });
    // A client that was killed comes back as another one.
    good(|s| {
        let a = s.begin_write(0);
        s.push(What::ClientKilled { client: 0 });
        let b = s.write(0);
        s.read(0, Some(b));
        s.read(0, Some(a));
    });
    // But what had an answer does not come twice.
    bad(|s| {
        let a = s.write(0);
        let b = s.write(0);
        s.read(0, Some(b));
        s.read(0, Some(a));
    });
}

#[test]
fn a_cut_keeps_out_what_was_given_up_before() {
    bad(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        s.cut(0, 2);
        s.read(0, Some(a));
    });
    // What it does not cut may have been written before.
    good(|s| {
        let a = s.begin_write(0);
        s.unknown(a);
        s.cut(0, 2);
        let read = s.begin_read(0);
        let tag = u64::from(a) + 1;
        s.end(read, Outcome::Cells(vec![tag, tag, 0, 0]));
    });
    bad(|s| {
        s.write(0);
        s.cut(0, 4);
        s.read(0, None);
    });
}

#[test]
fn nothing_that_was_synced_is_lost_in_a_power_cut() {
    good(|s| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        s.power_cut(DATA);
        s.read(0, Some(a));
        let _ = b;
    });
    good(|s| {
        s.write(0);
        s.power_cut(DATA);
        s.read(0, None);
    });
    bad(|s| {
        s.write(0);
        s.sync(0);
        s.power_cut(DATA);
        s.read(0, None);
    });
    bad(|s| {
        s.write(0);
        s.sync(0);
        s.write(0);
        s.power_cut(DATA);
        s.read(0, None);
    });
}

#[test]
fn what_a_failed_sync_was_for_may_seem_to_be_there_until_a_power_cut() {
    let forgets = |s: &mut Story| s.push(What::DiskForgets(Node::Data(0)));
    good(|s| {
        s.write(0);
        s.sync(0);
        let b = s.write(0);
        forgets(s);
        s.read(0, Some(b));
        s.power_cut(DATA);
        s.read(0, Some(b));
    });
    good(|s| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        forgets(s);
        s.read(0, Some(b));
        s.power_cut(DATA);
        s.read(0, Some(a));
    });
    bad(|s| {
        s.write(0);
        s.sync(0);
        s.write(0);
        forgets(s);
        s.read(0, None);
    });
}

#[test]
fn after_a_power_cut_one_value_stays() {
    bad(|s| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        s.power_cut(DATA);
        s.read(0, Some(a));
        s.read(0, Some(b));
    });
    bad(|s| {
        let a = s.write(0);
        s.sync(0);
        let b = s.write(0);
        s.power_cut(DATA);
        s.read(0, Some(b));
        s.read(0, Some(a));
    });
}

#[test]
fn a_sync_after_a_loss_may_not_report_success() {
    bad(|s| {
        s.write(0);
        s.power_cut(DATA);
        s.sync(0);
        s.read(0, None);
    });
    good(|s| {
        s.write(0);
        s.power_cut(DATA);
        let sync = s.begin(0, Call::Sync { file: 0 });
        s.fails(sync, ErrorKind::Io);
        // Told once, it may go on.
        s.sync(0);
        s.read(0, None);
    });
}

#[test]
fn a_sync_vouches_for_what_was_written_since_the_file_was_opened() {
    good(|s| {
        s.write(0);
        s.flush(0);
        s.power_cut(DATA);
        s.sync(0);
        s.read(0, None);
    });
    // What survived is durable then, whoever wrote it when.
    bad(|s| {
        let a = s.write(0);
        s.flush(0);
        s.sync(0);
        s.power_cut(DATA);
        s.read(0, None);
        let _ = a;
    });
}

#[test]
fn without_a_crash_nothing_goes_back() {
    bad(|s| {
        s.write(0);
        s.push(What::PowerCut(Node::Data(1)));
        s.push(What::PowerCut(Node::Meta));
        s.read(0, None);
    });
}

#[test]
fn write_behind_is_done_at_the_flush_and_seen_by_its_client_before() {
    good(|s| {
        let a = s.write(1);
        s.read(0, None);
        s.read(1, Some(a));
        s.flush(1);
        s.read(0, Some(a));
    });
    bad(|s| {
        s.write(1);
        s.read(1, None);
        s.flush(1);
    });
    bad(|s| {
        s.write(1);
        s.flush(1);
        s.read(0, None);
    });
    // Killed before the flush: gone, or not.
    good(|s| {
        s.write(1);
        s.push(What::ClientKilled { client: 1 });
        s.read(0, None);
    });
    // Sent again after a power cut, as it was not confirmed.
    good(|s| {
        let a = s.write(1);
        s.power_cut(DATA);
        s.read(0, None);
        s.sync(1);
        s.read(0, Some(a));
    });
}

#[test]
fn a_file_does_not_get_shorter_by_itself() {
    bad(|s| {
        let a = s.write(0);
        let read = s.begin_read(0);
        s.end(read, Outcome::Cells(vec![u64::from(a) + 1; 3]));
    });
    good(|s| {
        let cut = s.begin(0, Call::Cut { file: 0, keep: 2 });
        s.unknown(cut);
        let read = s.begin_read(0);
        s.end(read, Outcome::Cells(vec![0; 2]));
    });
}

/// Whatever was left out might have explained it, and which states those are is chance.
#[test]
fn of_more_orders_than_are_followed_nothing_is_said() {
    const WRITERS: u8 = 16;
    let history = Story::told(|s| {
        let writes: Vec<u32> = (0..WRITERS).map(|client| s.begin_write(client)).collect();
        s.read(0, writes.last().copied());
        writes.into_iter().for_each(|write| s.end(write, Outcome::Done));
        s.read(0, None);
    });
    let client = ClientFacts { write_behind: false, leases: false, keeps_pages: false };
    let verdict = judge(&history, &one_file(), &vec![client; usize::from(WRITERS)]);
    assert_eq!((verdict.undecided, verdict.violations.len()), (1, 0));
}

//! The judge of names, on histories made by hand: good ones and bad ones.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use weir_sim::history::{
    Call, History, NameCall, NameReply, Node, Outcome, RenameMode, Seen, What,
};
use weir_sim::oracle::names::{NamesFacts, judge};
use weir_types::{ErrorKind, FileKind};

const DIR: u64 = 2;

#[derive(Default)]
struct Story(History, u32, u64);

impl Story {
    fn push(&mut self, what: What) {
        self.2 += 1;
        self.0.push(Duration::from_millis(self.2), what);
    }
    fn wait_ms(&mut self, ms: u64) {
        self.2 += ms;
    }
    fn begin(&mut self, call: NameCall) -> u32 {
        self.1 += 1;
        self.push(What::Begin { client: 0, id: self.1, call: Call::Names(call) });
        self.1
    }
    fn end(&mut self, id: u32, reply: NameReply) {
        self.push(What::End { id, outcome: Outcome::Names(reply) });
    }
    fn call(&mut self, call: NameCall, reply: NameReply) {
        let id = self.begin(call);
        self.end(id, reply);
    }
    fn sync(&mut self) {
        self.1 += 1;
        self.push(What::Begin { client: 0, id: self.1, call: Call::SyncNames });
        self.push(What::End { id: self.1, outcome: Outcome::Done });
    }
    fn power_cut(&mut self) {
        self.push(What::PowerCut(Node::Meta));
    }
    fn is_good(&self) -> bool {
        let facts = NamesFacts {
            directories: vec![DIR],
            settle: Duration::from_secs(2),
            grace: Duration::from_secs(4),
        };
        let verdict = judge(&self.0, &facts);
        assert_eq!(verdict.undecided, 0);
        verdict.violations.is_empty()
    }
}

fn create(name: u8) -> NameCall {
    NameCall::Create { dir: DIR, name, exclusive: true, mode: 0o600 }
}
fn file(id: u64, nlink: u32) -> NameReply {
    NameReply::Attr(Seen { id, kind: FileKind::File, nlink, mode: 0o600 })
}
fn lookup(name: u8) -> NameCall {
    NameCall::Lookup { dir: DIR, name }
}
fn rename(from: u8, to: u8) -> NameCall {
    NameCall::Rename { from: (DIR, from), to: (DIR, to), mode: RenameMode::Replace }
}
fn refused(kind: ErrorKind) -> NameReply {
    NameReply::Refused(kind)
}
fn list(names: &[(u8, u64)]) -> (NameCall, NameReply) {
    (NameCall::List { dir: DIR }, NameReply::Names(names.to_vec()))
}

fn good(story: impl FnOnce(&mut Story)) {
    let mut s = Story::default();
    story(&mut s);
    assert!(s.is_good());
}

fn bad(story: impl FnOnce(&mut Story)) {
    let mut s = Story::default();
    story(&mut s);
    assert!(!s.is_good());
}

#[test]
fn a_create_that_succeeded_was_the_only_one() {
    good(|s| {
        let (a, b) = (s.begin(create(1)), s.begin(create(1)));
        s.end(b, file(10, 1));
        s.end(a, refused(ErrorKind::Exists));
        s.call(lookup(1), file(10, 1));
    });
    bad(|s| {
        let (a, b) = (s.begin(create(1)), s.begin(create(1)));
        s.end(b, file(10, 1));
        s.end(a, file(11, 1));
    });
    // Done twice for want of the answer's memory.
    bad(|s| s.call(create(1), refused(ErrorKind::Exists)));
}

#[test]
fn an_id_is_never_given_again() {
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.call(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.call(create(1), file(10, 1));
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.power_cut();
        s.call(lookup(1), refused(ErrorKind::NotFound));
        s.call(create(1), file(10, 1));
    });
}

#[test]
fn a_rename_is_done_whole() {
    good(|s| {
        s.call(create(1), file(10, 1));
        s.call(rename(1, 2), NameReply::Done);
        let (call, reply) = list(&[(2, 10)]);
        s.call(call, reply);
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.call(rename(1, 2), NameReply::Done);
        let (call, reply) = list(&[(1, 10), (2, 10)]);
        s.call(call, reply);
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.call(rename(1, 2), refused(ErrorKind::NotFound));
    });
}

#[test]
fn a_call_without_an_answer_was_done_or_not_and_what_is_seen_decides() {
    for done in [true, false] {
        good(|s| {
            s.begin(create(1));
            if done {
                s.call(lookup(1), file(10, 1));
                s.call(create(1), refused(ErrorKind::Exists));
            } else {
                s.call(lookup(1), refused(ErrorKind::NotFound));
                s.call(create(1), file(11, 1));
            }
        });
    }
    bad(|s| {
        s.begin(create(1));
        s.call(lookup(1), file(10, 1));
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
    bad(|s| {
        s.begin(create(1));
        s.call(lookup(1), file(10, 1));
        s.call(lookup(1), file(11, 1));
    });
}

#[test]
fn links_are_counted() {
    let link = NameCall::Link { file: 10, dir: DIR, name: 2 };
    good(|s| {
        s.call(create(1), file(10, 1));
        s.call(link.clone(), file(10, 2));
        s.call(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.call(lookup(2), file(10, 1));
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.call(link.clone(), file(10, 2));
        s.call(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.call(lookup(2), file(10, 2));
    });
}

#[test]
fn a_power_cut_takes_back_the_end_and_never_the_middle() {
    // Nothing, the first, or both: but not the second without the first.
    for (first, second) in [(false, false), (true, false), (true, true)] {
        good(|s| two_then_cut(s, first, second));
    }
    bad(|s| two_then_cut(s, false, true));
}

fn two_then_cut(s: &mut Story, first: bool, second: bool) {
    s.call(create(1), file(10, 1));
    s.call(create(2), file(11, 1));
    s.power_cut();
    let seen = |there: bool, id| if there { file(id, 1) } else { refused(ErrorKind::NotFound) };
    s.call(lookup(1), seen(first, 10));
    s.call(lookup(2), seen(second, 11));
}

#[test]
fn what_was_synced_or_is_old_survives_a_power_cut() {
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.sync();
        s.power_cut();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.wait_ms(2_500);
        s.power_cut();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
    // Who does not run syncs nothing.
    good(|s| {
        s.call(create(1), file(10, 1));
        s.push(What::Down(Node::Meta));
        s.wait_ms(2_500);
        s.power_cut();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
    good(|s| {
        s.call(create(1), file(10, 1));
        s.sync();
        s.call(rename(1, 2), NameReply::Done);
        s.power_cut();
        s.call(lookup(1), file(10, 1));
    });
}

#[test]
fn a_sync_after_a_loss_may_not_report_success() {
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.power_cut();
        s.sync();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
    good(|s| {
        s.call(create(1), file(10, 1));
        s.power_cut();
        s.1 += 1;
        s.push(What::Begin { client: 0, id: s.1, call: Call::SyncNames });
        let error = Outcome::Unknown(ErrorKind::Io.into());
        s.push(What::End { id: s.1, outcome: error });
        s.sync();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
}

#[test]
fn a_kill_takes_nothing_back() {
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.push(What::Note("meta killed".into()));
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
}

#[test]
fn after_a_power_cut_clients_answer_from_what_they_keep_until_they_hear_of_it() {
    let story = |s: &mut Story, after_ms: u64| {
        s.call(create(1), file(10, 1));
        s.power_cut();
        s.call(lookup(1), file(10, 1));
        s.push(What::Up(Node::Meta));
        s.call(lookup(1), file(10, 1));
        s.wait_ms(after_ms);
        s.call(lookup(1), refused(ErrorKind::NotFound));
    };
    good(|s| story(s, 0));
    // What a server has said counts, and after a while only that.
    bad(|s| {
        story(s, 0);
        s.call(lookup(1), file(10, 1));
    });
    bad(|s| {
        s.call(create(1), file(10, 1));
        s.sync();
        s.power_cut();
        s.call(lookup(1), refused(ErrorKind::NotFound));
    });
}

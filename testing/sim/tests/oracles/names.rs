//! The judge of names.

use super::story::Story;
use std::time::Duration;
use weir_sim::history::{
    Call, History, NameCall, NameReply, Node, Outcome, RenameMode, Seen, What,
};
use weir_sim::oracle::names::{NamesFacts, judge};
use weir_types::{ErrorKind, FileKind};

const DIR: u64 = 2;

impl Story {
    fn ask(&mut self, call: NameCall) -> u32 {
        self.begin(0, Call::Names(call))
    }
    fn answer(&mut self, id: u32, reply: NameReply) {
        self.end(id, Outcome::Names(reply));
    }
    fn asked(&mut self, call: NameCall, reply: NameReply) {
        let id = self.ask(call);
        self.answer(id, reply);
    }
    fn sync_names(&mut self) {
        self.call(0, Call::SyncNames);
    }
}

fn facts() -> NamesFacts {
    NamesFacts {
        directories: vec![DIR],
        settle: Duration::from_secs(2),
        grace: Duration::from_secs(4),
    }
}

fn is_good(history: &History) -> bool {
    let verdict = judge(history, &facts());
    assert_eq!(verdict.undecided, 0);
    verdict.violations.is_empty()
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
    assert!(is_good(&Story::told(story)));
}

fn bad(story: impl FnOnce(&mut Story)) {
    assert!(!is_good(&Story::told(story)));
}

#[test]
fn a_create_that_succeeded_was_the_only_one() {
    good(|s| {
        let (a, b) = (s.ask(create(1)), s.ask(create(1)));
        s.answer(b, file(10, 1));
        s.answer(a, refused(ErrorKind::Exists));
        s.asked(lookup(1), file(10, 1));
    });
    bad(|s| {
        let (a, b) = (s.ask(create(1)), s.ask(create(1)));
        s.answer(b, file(10, 1));
        s.answer(a, file(11, 1));
    });
    // Done twice for want of the answer's memory.
    bad(|s| s.asked(create(1), refused(ErrorKind::Exists)));
}

#[test]
fn an_id_is_never_given_again() {
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.asked(create(1), file(10, 1));
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.power_cut(Node::Meta);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
        s.asked(create(1), file(10, 1));
    });
}

#[test]
fn a_rename_is_done_whole() {
    good(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(rename(1, 2), NameReply::Done);
        let (call, reply) = list(&[(2, 10)]);
        s.asked(call, reply);
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(rename(1, 2), NameReply::Done);
        let (call, reply) = list(&[(1, 10), (2, 10)]);
        s.asked(call, reply);
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(rename(1, 2), refused(ErrorKind::NotFound));
    });
}

#[test]
fn a_call_without_an_answer_was_done_or_not_and_what_is_seen_decides() {
    for done in [true, false] {
        good(|s| {
            s.ask(create(1));
            if done {
                s.asked(lookup(1), file(10, 1));
                s.asked(create(1), refused(ErrorKind::Exists));
            } else {
                s.asked(lookup(1), refused(ErrorKind::NotFound));
                s.asked(create(1), file(11, 1));
            }
        });
    }
    bad(|s| {
        s.ask(create(1));
        s.asked(lookup(1), file(10, 1));
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
    bad(|s| {
        s.ask(create(1));
        s.asked(lookup(1), file(10, 1));
        s.asked(lookup(1), file(11, 1));
    });
}

#[test]
fn links_are_counted() {
    let link = NameCall::Link { file: 10, dir: DIR, name: 2 };
    good(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(link.clone(), file(10, 2));
        s.asked(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.asked(lookup(2), file(10, 1));
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.asked(link.clone(), file(10, 2));
        s.asked(NameCall::Unlink { dir: DIR, name: 1 }, NameReply::Done);
        s.asked(lookup(2), file(10, 2));
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
    s.asked(create(1), file(10, 1));
    s.asked(create(2), file(11, 1));
    s.power_cut(Node::Meta);
    let seen = |there: bool, id| if there { file(id, 1) } else { refused(ErrorKind::NotFound) };
    s.asked(lookup(1), seen(first, 10));
    s.asked(lookup(2), seen(second, 11));
}

#[test]
fn what_was_synced_or_is_old_survives_a_power_cut() {
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.sync_names();
        s.power_cut(Node::Meta);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.wait_ms(2_500);
        s.power_cut(Node::Meta);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
    // Who does not run syncs nothing.
    good(|s| {
        s.asked(create(1), file(10, 1));
        s.push(What::Down(Node::Meta));
        s.wait_ms(2_500);
        s.power_cut(Node::Meta);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
    good(|s| {
        s.asked(create(1), file(10, 1));
        s.sync_names();
        s.asked(rename(1, 2), NameReply::Done);
        s.power_cut(Node::Meta);
        s.asked(lookup(1), file(10, 1));
    });
}

#[test]
fn a_sync_after_a_loss_may_not_report_success() {
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.power_cut(Node::Meta);
        s.sync_names();
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
    good(|s| {
        s.asked(create(1), file(10, 1));
        s.power_cut(Node::Meta);
        let sync = s.begin(0, Call::SyncNames);
        let error = Outcome::Unknown(ErrorKind::Io.into());
        s.end(sync, error);
        s.sync_names();
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
}

#[test]
fn a_kill_takes_nothing_back() {
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.push(What::Note("meta killed".into()));
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
}

#[test]
fn after_a_power_cut_clients_answer_from_what_they_keep_until_they_hear_of_it() {
    let story = |s: &mut Story, after_ms: u64| {
        s.asked(create(1), file(10, 1));
        s.power_cut(Node::Meta);
        s.asked(lookup(1), file(10, 1));
        s.push(What::Up(Node::Meta));
        s.asked(lookup(1), file(10, 1));
        s.wait_ms(after_ms);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    };
    good(|s| story(s, 0));
    // What a server has said counts, and after a while only that.
    bad(|s| {
        story(s, 0);
        s.asked(lookup(1), file(10, 1));
    });
    bad(|s| {
        s.asked(create(1), file(10, 1));
        s.sync_names();
        s.power_cut(Node::Meta);
        s.asked(lookup(1), refused(ErrorKind::NotFound));
    });
}

#[test]
fn two_power_cuts_before_clients_hear_of_the_first_are_as_one() {
    let story = |s: &mut Story, is_up_between: bool| {
        s.asked(create(1), file(10, 1));
        s.power_cut(Node::Meta);
        if is_up_between {
            s.push(What::Up(Node::Meta));
        }
        s.power_cut(Node::Meta);
        s.asked(lookup(1), file(10, 1));
        s.push(What::Up(Node::Meta));
    };
    for is_up_between in [false, true] {
        good(|s| {
            story(s, is_up_between);
            s.asked(lookup(1), refused(ErrorKind::NotFound));
        });
        bad(|s| {
            story(s, is_up_between);
            s.asked(lookup(1), refused(ErrorKind::NotFound));
            s.asked(lookup(1), file(10, 1));
        });
    }
}

/// Whatever was left out might have explained it, and which states those are is chance.
#[test]
fn of_more_orders_than_are_followed_nothing_is_said() {
    let history = Story::told(|s| {
        let creates: Vec<(u64, u32)> =
            (0..14).map(|n| (10 + u64::from(n), s.ask(create(n)))).collect();
        s.asked(lookup(13), file(23, 1));
        for (id, asked) in creates {
            s.answer(asked, file(id, 1));
        }
        s.asked(lookup(0), refused(ErrorKind::NotFound));
    });
    let verdict = judge(&history, &facts());
    assert_eq!((verdict.undecided, verdict.violations.len()), (1, 0));
}

//! Several metadata servers with one journal: one serves, another goes on where it left off.
// Tests ask the operating system.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::server::{Client, Place, Running, mkdir};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_metaserver::{JournalConfig, MetaServerConfig, Observer, run_member};
use weir_metastore::{Begun, Embedded, EmbeddedConfig, Engine, Journal, ModelJournal, Sequence};
use weir_types::{ErrorKind, FileId, SessionId};
use weir_wire::meta::{LookupRequest, ReassertRequest, SyncMetaRequest};

/// Directories of two members; the second is a copy of the first.
fn members() -> [Place; 2] {
    let places = [Place::new(), Place::new()];
    places[0].init();
    copy(&places[0].config().dir, &places[1].config().dir);
    places
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn config(place: &Place, member: &str) -> MetaServerConfig {
    let journal = Some(JournalConfig { etcd: Vec::new(), member: member.to_owned() });
    MetaServerConfig { journal, cluster: Some([6; 16]), ..place.config() }
}

fn start(place: &Place, member: &str, journal: ModelJournal) -> Running {
    let config = config(place, member);
    Running::start_with(move |signal, ready| {
        let open = |_: &JournalConfig, cluster| {
            assert_eq!(cluster, [6; 16]);
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        };
        run_member(config, open, signal, Arc::<Observer>::default(), |info| {
            ready.send(info).unwrap();
        })
    })
}

/// A client of a server that is about to lead.
fn client(server: &Running, session: SessionId) -> Client {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match Client::open(&server.addresses[0], session) {
            Ok(client) => return client,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::NotLeader, "{error}");
                assert!(Instant::now() < deadline, "{error}");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lookup(name: &str) -> LookupRequest {
    LookupRequest { parent: FileId::ROOT, name: name.as_bytes().into() }
}

fn comes_back(client: &mut Client) {
    let (files, held, leases) = Default::default();
    client.ask(&ReassertRequest { first: true, files, held, leases, last: true }).unwrap();
}

#[test]
fn one_serves_and_the_other_says_who_until_it_takes_over_with_all_that_was_acknowledged() {
    let places = members();
    let journal = ModelJournal::default();
    let a = start(&places[0], "a", journal.another());
    let mut on_a = client(&a, SessionId(0));
    let b = start(&places[1], "b", journal.another());
    let names: Vec<String> = (0..50).map(|n| format!("d{n}")).collect();
    let made: Vec<FileId> =
        names.iter().map(|name| on_a.make(&mkdir(name)).unwrap().file).collect();
    on_a.ask(&SyncMetaRequest {}).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let error = Client::open(&b.addresses[0], SessionId(0)).map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotLeader, "{error}");
        if error.message.contains(&a.addresses[0]) {
            break;
        }
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }

    journal.end_lead();
    let mut on_b = client(&b, on_a.welcome.session);
    // The first one confirms nothing any more, and ends.
    assert!(on_a.ask(&lookup("d1")).is_err());
    let ended = a.thread.join().unwrap().unwrap_err();
    assert_eq!(ended.kind, ErrorKind::NotLeader, "{ended}");
    assert_ne!(on_b.welcome.instance, on_a.welcome.instance);
    let boot = |client: &Client| client.welcome.instance >> 32;
    assert_eq!(boot(&on_b), boot(&on_a), "nothing acknowledged was lost");
    comes_back(&mut on_b);
    for (name, file) in names.iter().zip(&made) {
        assert_eq!(on_b.ask(&lookup(name)).unwrap().file, *file);
    }
    // The last change once more, as by a client that had no answer; and a new one.
    on_b.continue_after(names.len() as u64 - 1);
    assert_eq!(on_b.make(&mkdir("d49")).unwrap().file, made[49]);
    let new = on_b.make(&mkdir("of b")).unwrap().file;
    assert!(!made.contains(&new));

    // It comes back as a standby, and takes over in turn.
    let a = start(&places[0], "a", journal.another());
    b.stop();
    let mut on_a = client(&a, on_b.welcome.session);
    comes_back(&mut on_a);
    assert_eq!(on_a.ask(&lookup("of b")).unwrap().file, new);
    a.stop();
}

#[test]
fn a_directory_that_does_not_fit_to_the_journal_is_refused() {
    let journal = ModelJournal::default();
    let places = members();
    let a = start(&places[0], "a", journal.another());
    client(&a, SessionId(0)).make(&mkdir("d")).unwrap();
    let refused = |place: &Place, journal: ModelJournal| {
        let running = start(place, "b", journal);
        let error = running.thread.join().unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        error.message
    };

    let last = journal.head().unwrap().unwrap();
    a.stop();
    // A journal is not begun anew by who had one.
    let told = refused(&places[0], ModelJournal::default());
    assert!(told.contains("gone") && told.contains("replicated"), "{told}");
    // One has served by itself.
    let alone = Place::new();
    alone.init();
    let dir = alone.config().dir;
    let mut engine = Embedded::open(&dir, EmbeddedConfig::default(), || {}).unwrap();
    for n in 0..last.0 + 10 {
        let put = |tx: &mut weir_metastore::Tx<'_>| tx.put(b"x", &n.to_le_bytes());
        weir_metastore::transact(&mut engine, |tx| Ok::<_, weir_types::Error>(put(tx)?)).unwrap();
    }
    engine.sync().unwrap();
    drop(engine);
    let told = refused(&alone, journal.another());
    assert!(told.contains("served without the journal"), "{told}");
}

#[test]
fn a_directory_of_another_history_is_refused_though_its_numbers_fit() {
    let journal = ModelJournal::default();
    let places = members();
    let [place, other] = &places;
    let late = Place::new();
    copy(&place.config().dir, &late.config().dir);
    let a = start(place, "a", journal.another());
    let mut on_a = client(&a, SessionId(0));
    for n in 0..20 {
        on_a.make(&mkdir(&format!("d{n}"))).unwrap();
    }
    let refused = |place: &Place, word: &str| {
        let error = start(place, "b", journal.another()).thread.join().unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.message.contains(word) && error.message.contains("snapshot"), "{error}");
    };
    // It has served by itself, and has fewer operations than the journal.
    let alone = Place::new();
    alone.init();
    let server = Running::start(alone.config());
    Client::open(&server.addresses[0], SessionId(0)).unwrap().make(&mkdir("own")).unwrap();
    server.stop();
    refused(&alone, "served without the journal");

    // It is a member of another journal of the same cluster.
    let another = ModelJournal::default();
    let b = start(other, "b", another.another());
    client(&b, SessionId(0)).make(&mkdir("other")).unwrap();
    b.stop();
    refused(other, "another journal");

    // It has left this journal, and gone on by itself; meanwhile another member leads.
    let config_of_late = config(&late, "late");
    let b = start(&late, "late", journal.another());
    let (head, until) =
        (journal.head().unwrap().unwrap(), Instant::now() + Duration::from_secs(60));
    while !journal.members().unwrap().iter().any(|it| it.member == "late" && it.upto >= head) {
        assert!(Instant::now() < until, "it does not follow");
        std::thread::sleep(Duration::from_millis(10));
    }
    a.stop();
    client(&b, SessionId(0)).make(&mkdir("late")).unwrap();
    b.stop();
    let as_one: Arc<dyn Journal> = Arc::new(journal.another());
    weir_metaserver::take_in_journal(&config_of_late, &as_one, "gone", false).unwrap();
    // By hand, so that the journal stays.
    std::fs::remove_file(late.config().dir.join("replicated")).unwrap();
    let server = Running::start(late.config());
    Client::open(&server.addresses[0], SessionId(0)).unwrap().make(&mkdir("own")).unwrap();
    server.stop();
    let a = start(place, "a", journal.another());
    let mut on_a = client(&a, SessionId(0));
    for n in 0..20 {
        on_a.make(&mkdir(&format!("e{n}"))).unwrap();
    }
    refused(&late, "served without the journal");
    a.stop();
}

#[test]
fn a_member_that_was_removed_goes_on_with_nothing_though_it_has_its_directory() {
    let [place, late] = members();
    let journal = ModelJournal::default();
    let a = start(&place, "a", journal.another());
    client(&a, SessionId(0)).make(&mkdir("d")).unwrap();
    let follows = |member: &str| {
        let b = start(&late, member, journal.another());
        let until = Instant::now() + Duration::from_secs(60);
        while !journal.members().unwrap().iter().any(|it| it.member == member) {
            assert!(Instant::now() < until, "it does not follow");
            std::thread::sleep(Duration::from_millis(10));
        }
        b.stop();
    };
    let refused = |member: &str, kind, word: &str| {
        let b = start(&late, member, journal.another());
        let error = b.thread.join().unwrap().unwrap_err();
        assert!(error.kind == kind && error.message.contains(word), "{error}");
        assert!(!journal.members().unwrap().iter().any(|it| it.member == member));
    };
    follows("late");
    a.stop();
    let as_one: Arc<dyn Journal> = Arc::new(journal.another());
    // A command that was interrupted is run again.
    for _ in 0..2 {
        weir_metaserver::take_in_journal(&config(&place, "a"), &as_one, "late", true).unwrap();
    }
    refused("late", ErrorKind::NotPermitted, "weir meta remove");
    leads(&place, &journal, Some("e"), &["d"]);

    // The last other one is removed, and the journal ends.
    follows("last");
    for _ in 0..2 {
        weir_metaserver::leave_journal(&config(&place, "a"), &as_one, "last").unwrap();
    }
    assert_eq!(journal.extent().unwrap(), None);
    refused("last", ErrorKind::NotPermitted, "weir meta remove");
    refused("other", ErrorKind::Corrupt, "journal is gone");
    // Nor does it go on with a journal that is begun later.
    let server = Running::start(place.config());
    Client::open(&server.addresses[0], SessionId(0)).unwrap().make(&mkdir("f")).unwrap();
    server.stop();
    leads(&place, &journal, None, &["d", "e", "f"]);
    refused("last", ErrorKind::Corrupt, "not one of this journal");
}

#[test]
fn a_member_that_is_new_or_was_away_too_long_gets_a_snapshot_of_the_one_that_leads() {
    let journal = ModelJournal::default();
    let [place, late] = members();
    let new = Place::new();
    let a = start(&place, "a", journal.another());
    let mut on_a = client(&a, SessionId(0));
    // Values that fill several pages, and the end of a page within one of them.
    let names: Vec<String> = (0..300).map(|n| format!("{n}-{}", "x".repeat(200))).collect();
    let made: Vec<FileId> =
        names.iter().map(|name| on_a.make(&mkdir(name)).unwrap().file).collect();
    // Nobody else has the beginning of the journal.
    let leader = journal.leading();
    leader.cut(leader.head().unwrap().unwrap()).unwrap();
    for (member, place) in [("new", &new), ("late", &late)] {
        let b = start(place, member, journal.another());
        let deadline = Instant::now() + Duration::from_secs(60);
        let here = |name: &str| {
            let members = journal.members().unwrap();
            members.into_iter().find(|held| held.member == name).map(|held| held.upto)
        };
        let wait = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(Instant::now() < deadline, "{member} has not caught up");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        // What comes after the snapshot it has from the journal.
        wait(&|| here(member).is_some());
        on_a.make(&mkdir(member)).unwrap();
        let head = journal.head().unwrap();
        wait(&|| here(member) >= head);
        b.stop();
    }
    a.stop();
    // Either has everything, and leads.
    for (member, place) in [("new", &new), ("late", &late)] {
        let b = start(place, member, journal.another());
        let mut on_b = client(&b, on_a.welcome.session);
        for (name, file) in names.iter().zip(&made) {
            assert_eq!(on_b.ask(&lookup(name)).unwrap().file, *file, "{member}");
        }
        b.stop();
    }
}

#[test]
fn a_server_without_the_journal_refuses_the_directory_of_a_member() {
    let [place, _] = members();
    let a = start(&place, "a", ModelJournal::default());
    drop(client(&a, SessionId(0)));
    a.stop();
    let alone = place.config();
    let run = |signal: &weir_host::net::Signal, _| weir_metaserver::run(alone, signal, |_| {});
    let signal = weir_host::net::Signal::new().unwrap();
    let error = run(&signal, ()).unwrap_err();
    assert!(error.message.contains("[journal]"), "{error}");
}

/// Makes a member lead and make a directory, or look for one that is there already, and stops it.
fn leads(place: &Place, journal: &ModelJournal, makes: Option<&str>, finds: &[&str]) {
    let server = start(place, "a", journal.another());
    let mut on_it = client(&server, SessionId(0));
    if let Some(name) = makes {
        on_it.make(&mkdir(name)).unwrap();
    }
    for name in finds {
        on_it.ask(&lookup(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    server.stop();
}

/// Makes a new member get everything from this one, and then lead.
fn gives_a_snapshot(place: &Place, journal: &ModelJournal, finds: &[&str]) {
    let a = start(place, "a", journal.another());
    drop(client(&a, SessionId(0)));
    let new = Place::new();
    let b = start(&new, "new", journal.another());
    let (head, until) = (journal.head().unwrap(), Instant::now() + Duration::from_secs(60));
    while !journal.members().unwrap().iter().any(|it| it.member == "new" && Some(it.upto) >= head) {
        assert!(Instant::now() < until, "it gets no snapshot");
        std::thread::sleep(Duration::from_millis(10));
    }
    a.stop();
    b.stop();
    leads(&new, journal, None, finds);
}

#[test]
fn a_directory_that_has_left_one_journal_begins_another_and_gives_snapshots_to_new_members() {
    let [place, _] = members();
    let first = ModelJournal::default();
    leads(&place, &first, Some("d"), &[]);
    let as_one: Arc<dyn Journal> = Arc::new(first.another());
    weir_metaserver::leave_journal(&config(&place, "a"), &as_one, "late").unwrap();
    // No metadata server has run without a journal meanwhile.
    let second = ModelJournal::default();
    leads(&place, &second, Some("e"), &["d"]);
    leads(&place, &second, None, &["d", "e"]);
    gives_a_snapshot(&place, &second, &["d", "e"]);
}

#[test]
fn the_advice_for_a_journal_that_is_gone_makes_the_directory_begin_a_new_one() {
    let [place, _] = members();
    leads(&place, &ModelJournal::default(), Some("d"), &[]);
    let second = ModelJournal::default();
    let error = start(&place, "a", second.another()).thread.join().unwrap().unwrap_err();
    assert!(error.message.contains("remove the file `replicated`"), "{error}");
    std::fs::remove_file(place.config().dir.join("replicated")).unwrap();
    leads(&place, &second, Some("e"), &["d"]);
    gives_a_snapshot(&place, &second, &["d", "e"]);
}

#[test]
fn a_server_that_dies_when_it_has_begun_a_journal_leads_again_and_others_are_refused() {
    let [place, other] = members();
    let first = ModelJournal::default();
    leads(&place, &first, Some("d"), &[]);
    leads(&other, &ModelJournal::default(), Some("x"), &[]);
    // It has begun the second journal, and has written nothing to it.
    let (begun, at) = first.extent().unwrap().map(|log| (log.begun.unwrap(), log.head)).unwrap();
    let second = ModelJournal::default();
    let begin = Begun { id: [9; 16], at, from: Some(begun.id), adopted: false };
    second.acquire("a", Some(begin)).unwrap().unwrap();
    second.end_lead();
    // Of another history, with just as many operations.
    let third = ModelJournal::default();
    let engine = Embedded::open_member(&other.config().dir, EmbeddedConfig::default(), || {});
    let at = engine.unwrap().sequence();
    third.acquire("a", Some(Begun { at, ..begin })).unwrap().unwrap();
    third.end_lead();
    let error = start(&other, "b", third.another()).thread.join().unwrap().unwrap_err();
    assert!(error.message.contains("another journal"), "{error}");
    leads(&place, &second, Some("e"), &["d"]);
    leads(&place, &second, None, &["d", "e"]);
}

/// Makes changes as the leader of a journal as an older version of Weir has it: without an id.
fn changes_of_an_older_version(place: &Place, journal: &ModelJournal, keys: &[&str]) {
    let dir = place.config().dir;
    let mut engine = Embedded::open_member(&dir, EmbeddedConfig::default(), || {}).unwrap();
    let begin = Begun { id: [8; 16], at: engine.sequence(), from: None, adopted: false };
    journal.acquire("older", Some(begin)).unwrap().unwrap();
    engine.lead(Arc::new(journal.leading())).unwrap();
    engine.mark_replicated().unwrap();
    for key in keys {
        let put = |tx: &mut weir_metastore::Tx<'_>| tx.put(key.as_bytes(), b"older");
        weir_metastore::transact(&mut engine, |tx| Ok::<_, weir_types::Error>(put(tx)?)).unwrap();
        engine.flush().unwrap();
    }
    engine.close().unwrap();
    journal.leading().resign();
    journal.forget_id();
}

fn has(place: &Place, key: &str) -> bool {
    let dir = place.config().dir;
    let engine = Embedded::open_member(&dir, EmbeddedConfig::default(), || {}).unwrap();
    weir_metastore::Tx::new(&engine).get(key.as_bytes()).unwrap().is_some()
}

#[test]
fn the_journal_of_an_older_version_goes_on_with_all_its_members_and_loses_nothing() {
    let [place, late] = members();
    let journal = ModelJournal::default();
    changes_of_an_older_version(&place, &journal, &["x1"]);
    // It has the first change, and lacks the second one.
    std::fs::remove_dir_all(late.config().dir).unwrap();
    copy(&place.config().dir, &late.config().dir);
    let [behind, alone] = [Place::new(), Place::new()];
    copy(&place.config().dir, &behind.config().dir);
    copy(&place.config().dir, &alone.config().dir);
    std::fs::remove_file(alone.config().dir.join("replicated")).unwrap();
    changes_of_an_older_version(&place, &journal, &["x2"]);

    // The commands that change the metadata servers take in what is there.
    let as_one: Arc<dyn Journal> = Arc::new(journal.another());
    weir_metaserver::take_in_journal(&config(&late, "late"), &as_one, "gone", false).unwrap();
    assert!(has(&late, "x2"));
    assert_eq!(journal.extent().unwrap().unwrap().begun, None, "they do not lead");

    // One that lacks a change takes it in, and gives the journal an id; and dies at once.
    let head = journal.head().unwrap().unwrap();
    let begin = Begun { id: [9; 16], at: Sequence::ZERO, from: None, adopted: true };
    journal.acquire("a", Some(begin)).unwrap().unwrap();
    journal.end_lead();
    assert_eq!(journal.extent().unwrap().unwrap().begun, Some(Begun { at: head, ..begin }));
    leads(&behind, &journal, Some("d"), &[]);
    assert!(has(&behind, "x2"));
    leads(&place, &journal, Some("e"), &["d"]);
    leads(&late, &journal, None, &["d", "e"]);
    gives_a_snapshot(&place, &journal, &["d", "e"]);
    // It follows no journal: it may have served by itself.
    let error = start(&alone, "alone", journal.another()).thread.join().unwrap().unwrap_err();
    assert!(error.message.contains("served without the journal"), "{error}");
}

#[test]
fn the_next_leader_gives_the_journal_of_an_older_version_an_id() {
    let [place, _] = members();
    let journal = ModelJournal::default();
    changes_of_an_older_version(&place, &journal, &["x"]);
    let head = journal.head().unwrap().unwrap();
    leads(&place, &journal, Some("d"), &[]);
    let begun = journal.extent().unwrap().unwrap().begun.unwrap();
    assert!(begun.adopted && begun.at == head);
    leads(&place, &journal, None, &["d"]);
    let as_one: Arc<dyn Journal> = Arc::new(journal.another());
    weir_metaserver::leave_journal(&config(&place, "a"), &as_one, "late").unwrap();
    assert!(has(&place, "x"));
    leads(&place, &ModelJournal::default(), None, &["d"]);
}

//! Several metadata servers with one journal: one serves, another goes on where it left off.
// Tests ask the operating system.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::server::{Client, Place, Running, mkdir};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_metaserver::{JournalConfig, MetaServerConfig, Observer, run_member};
use weir_metastore::{Embedded, EmbeddedConfig, Engine, Journal, ModelJournal};
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
    weir_metaserver::leave_journal(&config_of_late, &as_one).unwrap();
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

//! Tests of [`super`].

use super::super::sample;
use super::*;
use weir_types::codec::Bytes;
use weir_wire::lease::KEEP_ALL;

const DIR: FileId = FileId(2);
const FILE: FileId = FileId(9);
const NOW: Duration = Duration::from_secs(100);

fn attr(file: FileId) -> Attr {
    sample::attr(file, 1, 7)
}

fn kept() -> (Kept, (Asked, Found)) {
    let mut kept = Kept::default();
    kept.news.begin(1);
    let news = (kept.news.asking(), Found { epoch: 1, events: 0, keep: KEEP_ALL });
    kept.keep_name(news, (DIR, b"a"), Some(FILE), None);
    kept.keep_name(news, (DIR, b"b"), None, None);
    kept.keep_attr(news, &attr(FILE), None);
    kept.keep_attr(news, &attr(DIR), None);
    kept.keep_bare(news, FILE, None);
    kept.keep_acl(news, FILE, Some(b"list"), None);
    kept.keep_acl(news, DIR, None, None);
    (kept, news)
}

fn at(number: u64) -> Numbered {
    Numbered { epoch: 1, number }
}

fn name(name: &[u8]) -> EventKind {
    EventKind::Name { dir: DIR, name: Bytes(name.to_vec()) }
}

#[test]
fn names_attributes_and_what_is_not_there_are_kept() {
    let (mut kept, _) = kept();
    assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
    assert_eq!(kept.name(DIR, b"b", NOW), Some(None));
    assert_eq!(kept.name(DIR, b"c", NOW), None);
    assert_eq!(kept.attr(FILE, NOW).map(|attr| attr.size), Some(7));
    assert!(kept.is_bare(FILE, NOW) && !kept.is_bare(DIR, NOW));
    kept.clear();
    assert_eq!(kept.name(DIR, b"a", NOW), None);
    assert!(kept.attr(FILE, NOW).is_none());
}

#[test]
fn what_comes_with_the_reply_to_a_change_is_kept_unless_something_has_overtaken_it() {
    let found = Found { epoch: 1, events: 0, keep: HAS_ALSO };
    let newer = |file| sample::attr(file, 2, 8);
    let size = |kept: &mut Kept, file| kept.attr(file, NOW).map(|attr| attr.size);
    // A change of the directory that turns out to have changed the file too.
    let change = |kept: &mut Kept, meanwhile: &dyn Fn(&mut Kept)| {
        let begun = kept.news.begin_change(&[DIR]);
        kept.forget(DIR);
        meanwhile(kept);
        let ended = kept.news.end_change(begun, &[DIR]);
        for file in [DIR, FILE] {
            kept.keep_also((begun, ended), found, &[DIR], &newer(file), None);
        }
        ended
    };
    let (mut quiet, before) = kept();
    let ended = change(&mut quiet, &|_| ());
    assert_eq!((size(&mut quiet, DIR), size(&mut quiet, FILE)), (Some(8), Some(8)));
    quiet.keep_attr(before, &attr(FILE), None);
    assert_eq!(size(&mut quiet, FILE), Some(8), "an answer from before the change");
    quiet.keep_changed_name((ended, found), (DIR, b"a"), None, None);
    assert_eq!(quiet.name(DIR, b"a", NOW), Some(None));
    let forbidden = Found { keep: KEEP_ALL & !HAS_ALSO, ..found };
    quiet.keep_changed_name((ended, forbidden), (DIR, b"a"), Some(FILE), None);
    assert_eq!(quiet.name(DIR, b"a", NOW), Some(None));

    let (mut told, _) = kept();
    change(&mut told, &|kept| {
        kept.obey(at(1), &EventKind::Attributes { file: FILE });
    });
    assert_eq!((size(&mut told, DIR), size(&mut told, FILE)), (Some(8), None));

    let (mut own, _) = kept();
    change(&mut own, &|kept| kept.changed(FILE));
    assert_eq!((size(&mut own, DIR), size(&mut own, FILE)), (Some(8), None));
}

#[test]
fn what_a_file_takes_is_kept_as_long_as_it_is_as_it_was_and_its_attributes_are_kept() {
    let (mut kept, news) = kept();
    let later = NOW + DOUBTFUL;
    kept.keep_allocated(FILE, (1, 5), (4096, true), NOW);
    assert_eq!(kept.allocated(FILE, (1, 5), NOW), Some(4096));
    assert_eq!(kept.allocated(FILE, (1, 6), NOW), None, "changed by us");
    assert_eq!(kept.allocated(FILE, (2, 5), NOW), None, "changed by somebody");
    assert_eq!(kept.allocated(FILE, (1, 5), later - Duration::from_millis(1)), Some(4096));
    assert_eq!(kept.allocated(FILE, (1, 5), later), None, "said once");
    kept.keep_allocated(FILE, (1, 5), (4096, true), later);
    assert_eq!(kept.allocated(FILE, (1, 5), later * 2), Some(4096), "said twice");
    kept.keep_allocated(FILE, (1, 6), (4096, false), NOW);
    kept.keep_allocated(FILE, (1, 6), (4096, false), later);
    assert_eq!(kept.allocated(FILE, (1, 6), later * 2), None, "not all have said it");
    kept.keep_allocated(FILE, (1, 6), (4096, true), NOW);
    kept.keep_allocated(FILE, (1, 6), (8192, true), later);
    assert_eq!(kept.allocated(FILE, (1, 6), later * 2), None, "it was more the second time");
    kept.obey(at(1), &EventKind::Attributes { file: FILE });
    kept.keep_allocated(FILE, (1, 5), (4096, true), NOW);
    kept.keep_attr((kept.news.asking(), news.1), &attr(FILE), None);
    assert_eq!(kept.allocated(FILE, (1, 5), NOW), None, "asked for when nothing was kept");
}

#[test]
fn what_may_not_be_kept_is_not() {
    let (mut kept, (asked, found)) = kept();
    let forbidden = (asked, Found { keep: 0, ..found });
    kept.keep_name(forbidden, (DIR, b"c"), None, None);
    assert_eq!(kept.name(DIR, b"c", NOW), None);
    kept.keep_name(forbidden, (DIR, b"c"), None, Some(NOW));
    assert_eq!(kept.name(DIR, b"c", NOW - Duration::from_millis(1)), Some(None));
    assert_eq!(kept.name(DIR, b"c", NOW), None, "its time is over");
}

#[test]
fn a_name_event_takes_the_name_and_the_attributes_of_the_directory() {
    let (mut kept, _) = kept();
    assert!(!kept.obey(at(1), &name(b"a")));
    assert_eq!(kept.name(DIR, b"a", NOW), None);
    assert!(kept.attr(DIR, NOW).is_none());
    assert_eq!(kept.name(DIR, b"b", NOW), Some(None));
}

#[test]
fn a_directory_that_nobody_asked_of_since_the_last_event_is_forgotten() {
    let (mut kept, news) = kept();
    assert!(!kept.obey(at(1), &name(b"x")));
    assert!(kept.obey(at(2), &name(b"y")), "nothing was answered between the two");
    assert_eq!(kept.name(DIR, b"b", NOW), None);
    assert!(kept.attr(FILE, NOW).is_some(), "of another file");
    kept.keep_name(news, (DIR, b"b"), None, None);
    assert_eq!(kept.name(DIR, b"b", NOW), None, "the answer is older than the event");
}

#[test]
fn what_is_not_in_a_complete_directory_is_known_not_to_be_there() {
    let (mut kept, news) = kept();
    let listed = |kept: &mut Kept, news| {
        kept.keep_name(news, (DIR, b"a"), Some(FILE), None);
        kept.keep_page(news, DIR, (0, None), &DirPage { entries: Vec::new(), end: true, last: 1 });
    };
    listed(&mut kept, news);
    assert_eq!(kept.name(DIR, b"c", NOW), Some(None));
    assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
    let change = kept.news.begin_change(&[DIR]);
    assert_eq!(kept.name(DIR, b"c", NOW), None, "it is changing");
    let own = kept.news.end_change(change, &[DIR]);
    kept.forget_name(DIR, b"c");
    assert_eq!(kept.name(DIR, b"c", NOW), None, "of what came of it nothing is known");
    kept.keep_name((own, news.1), (DIR, b"c"), Some(FILE), None);
    assert_eq!(kept.name(DIR, b"c", NOW), Some(Some(FILE)));
    assert!(!kept.obey(at(1), &name(b"d")));
    assert_eq!(kept.name(DIR, b"d", NOW), None, "somebody else has made it");
    assert_eq!(kept.name(DIR, b"e", NOW), Some(None));
    listed(&mut kept, news);
    assert_eq!(kept.name(DIR, b"e", NOW), None, "the listing is older than the event");
    let later = (kept.news.asking(), Found { events: 1, ..news.1 });
    listed(&mut kept, later);
    assert_eq!(kept.name(DIR, b"e", NOW), Some(None));
    kept.obey(at(2), &EventKind::Attributes { file: DIR });
    assert_eq!(kept.name(DIR, b"e", NOW), None, "the directory was forgotten");
    let forbidden = (kept.news.asking(), Found { keep: 0, ..later.1 });
    kept.keep_empty(forbidden, FILE);
    assert_eq!(kept.name(FILE, b"e", NOW), None);
    kept.keep_empty((forbidden.0, later.1), FILE);
    assert_eq!(kept.name(FILE, b"e", NOW), Some(None), "a new directory");
    kept.clear();
    assert_eq!(kept.name(FILE, b"e", NOW), None);
}

#[test]
fn a_listing_is_kept_until_a_name_of_its_directory_changes() {
    let (mut kept, news) = kept();
    let asks = |attributes, max_entries| ReaddirRequest {
        dir: DIR,
        cookie: 0,
        last: 0,
        max_entries,
        attributes,
        layouts: false,
    };
    let entry = weir_wire::meta::DirEntry {
        name: (&b"a"[..]).into(),
        file: FILE,
        kind: weir_types::FileKind::File,
        cookie: 7,
        attr: None,
        layout: None,
    };
    let page = DirPage { entries: vec![entry], end: true, last: 7 };
    let listed = |kept: &mut Kept, news| kept.keep_page(news, DIR, (0, None), &page);
    listed(&mut kept, news);
    assert_eq!(kept.page(&asks(false, 1), NOW), Some(page.clone()));
    assert!(kept.page(&asks(false, 0), NOW).is_none(), "more than were asked for");
    let shown = kept.page(&asks(true, 1), NOW).unwrap();
    assert_eq!(shown.entries[0].attr, kept.attr(FILE, NOW));
    kept.forget(FILE);
    assert!(kept.page(&asks(true, 1), NOW).is_none(), "its attributes are not known");
    // Whoever changes a name: this client, or another one.
    let change = kept.news.begin_change(&[DIR]);
    assert!(kept.page(&asks(false, 1), NOW).is_none(), "it is changing");
    let own = kept.news.end_change(change, &[DIR]);
    assert!(kept.page(&asks(false, 1), NOW).is_some(), "it was not done");
    kept.forget_name(DIR, b"c");
    assert!(kept.page(&asks(false, 1), NOW).is_none());
    listed(&mut kept, news);
    assert!(kept.page(&asks(false, 1), NOW).is_none(), "it was asked for before the change");
    listed(&mut kept, (own, news.1));
    assert!(!kept.obey(at(1), &name(b"d")) && kept.page(&asks(false, 1), NOW).is_none());
    let later = (kept.news.asking(), Found { events: 1, ..news.1 });
    listed(&mut kept, later);
    kept.obey(at(2), &EventKind::Attributes { file: DIR });
    assert!(kept.page(&asks(false, 1), NOW).is_none());
    let later = (kept.news.asking(), Found { events: 2, ..news.1 });
    listed(&mut kept, later);
    assert!(kept.page(&asks(false, 1), NOW).is_some());
    kept.clear();
    assert!(kept.page(&asks(false, 1), NOW).is_none());
}

#[test]
fn no_directory_is_complete_after_names_have_made_room() {
    let (mut kept, news) = kept();
    kept.keep_page(news, DIR, (0, None), &DirPage { entries: Vec::new(), end: true, last: 1 });
    for number in 2..MAX_ENTRIES {
        assert_eq!(kept.name(DIR, b"c", NOW), Some(None), "{number} are no too many");
        kept.keep_name(news, (FILE, number.to_string().as_bytes()), Some(FILE), None);
    }
    kept.keep_name(news, (FILE, b"one more"), Some(FILE), None);
    assert_eq!(kept.name(DIR, b"c", NOW), None);
}

#[test]
fn an_attributes_event_of_a_directory_takes_all_names() {
    let (mut kept, _) = kept();
    kept.obey(at(1), &EventKind::Attributes { file: FILE });
    assert!(kept.attr(FILE, NOW).is_none() && !kept.is_bare(FILE, NOW));
    assert!(kept.acl(FILE, NOW).is_none());
    assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
    kept.obey(at(2), &EventKind::Attributes { file: DIR });
    assert_eq!(kept.name(DIR, b"a", NOW), None);
}

#[test]
fn while_it_changes_nothing_of_a_file_is_used() {
    let (mut kept, _) = kept();
    assert_eq!(kept.acl(FILE, NOW), Some(Some(b"list".to_vec())));
    assert_eq!(kept.acl(DIR, NOW), Some(None), "it has none");
    let change = kept.news.begin_change(&[DIR, FILE]);
    assert!(kept.acl(FILE, NOW).is_none());
    assert_eq!(kept.name(DIR, b"a", NOW), None);
    assert!(kept.attr(FILE, NOW).is_none() && !kept.is_bare(FILE, NOW));
    kept.news.end_change(change, &[DIR, FILE]);
    assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
}

#[test]
fn an_answer_from_before_a_change_that_concerned_its_file_too_is_not_kept() {
    let (mut kept, (asked, found)) = kept();
    kept.changed(FILE);
    assert!(kept.attr(FILE, NOW).is_none());
    kept.keep_attr((asked, found), &attr(FILE), None);
    assert!(kept.attr(FILE, NOW).is_none());
    kept.keep_attr((kept.news.asking(), found), &attr(FILE), None);
    assert!(kept.attr(FILE, NOW).is_some());
}

#[test]
fn what_is_used_stays_and_memory_is_bounded() {
    let (mut kept, news) = kept();
    for number in 0..3 * MAX_ENTRIES as u64 {
        kept.keep_attr(news, &attr(FileId(1000 + number)), None);
        if number % 1000 == 0 {
            assert!(kept.attr(FILE, NOW).is_some());
        }
    }
    let (young, old) = (kept.attributes.young.len(), kept.attributes.old.len());
    assert!(young + old <= MAX_ENTRIES, "{young} and {old}");
    assert!(kept.attr(DIR, NOW).is_none());
}

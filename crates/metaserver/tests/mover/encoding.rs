//! Copies become parities when files are old enough, or where room is short.

use super::servers::*;
use weir_metaserver::machine::MoverSettings;
use weir_types::{LayoutSpec, Segment};
use weir_wire::meta::OpenFile;

/// After this time files get parities, however much room there is.
const AFTER_S: u32 = 5_000;
/// Files are looked at again once a minute, and wait for ten minutes besides.
const SOON_S: u64 = 700;

fn spec(copies: u8) -> LayoutSpec {
    let (count, parities, encode_after_s) = (4, 2, AFTER_S);
    LayoutSpec { count, copies, parities, encode_after_s, ..LayoutSpec::default() }
}

/// A closed file that gets parities when it is old.
fn file(s: &mut Servers, name: &str, copies: u8) -> OpenFile {
    let open = s.create_of(name, spec(copies));
    s.c.close(&mut s.me, open.attr.file);
    open
}

fn is_coded(s: &mut Servers, file: &OpenFile) -> bool {
    s.segments(file).iter().all(Segment::is_coded)
}

fn encoding(s: &Servers) -> [u64; 3] {
    ["waiting", "sealed", "coded"].map(|name| s.counter(&format!("encoding.segments.{name}")))
}

fn all_use(s: &mut Servers, used: u64) {
    s.used = s.all.iter().map(|server| (*server, used)).collect();
}

#[test]
fn files_get_parities_early_where_room_is_short() {
    let mut s = Servers::new(6);
    all_use(&mut s, TOTAL / 2);
    let old = file(&mut s, "old", 3);
    s.pass(SOON_S);
    assert!(!is_coded(&mut s, &old), "there is room");
    assert_eq!(encoding(&s), [1, 0, 0]);
    all_use(&mut s, TOTAL / 100 * 91);
    let plain = file(&mut s, "plain", 1);
    s.pass(SOON_S);
    assert!(is_coded(&mut s, &old));
    assert!(!is_coded(&mut s, &plain), "with parities it would be longer");
    assert_eq!(s.copies(&old).iter().map(|on| on.len()).collect::<Vec<_>>(), [1; 4]);
    // Four columns of 256 KiB and two parities; another file of four columns.
    let bytes = |s: &Servers, name: &str| s.counter(&format!("encoding.bytes.{name}")) >> 18;
    assert_eq!(["logical", "stored", "reclaimable"].map(|name| bytes(&s, name)), [8, 10, 0]);
    assert_eq!(encoding(&s), [1, 0, 1]);
    // With a little more room nothing else changes: it was short before.
    all_use(&mut s, TOTAL / 100 * 89);
    let new = file(&mut s, "new", 3);
    s.pass(5);
    assert!(!is_coded(&mut s, &new), "it was just written");
    s.pass(SOON_S);
    assert!(is_coded(&mut s, &new));
    all_use(&mut s, TOTAL / 100 * 80);
    let last = file(&mut s, "last", 3);
    s.pass(SOON_S);
    assert!(!is_coded(&mut s, &last), "there is room again");
}

#[test]
fn without_encode_below_percent_files_wait_however_short_room_is() {
    let mut s = Servers::new(6);
    let mover = MoverSettings { encode_below_percent: 0, ..MoverSettings::default() };
    s.c.machine.set_mover(mover);
    all_use(&mut s, TOTAL / 100 * 97);
    let file = file(&mut s, "f", 3);
    s.pass(SOON_S);
    assert!(!is_coded(&mut s, &file));
    s.pass(AFTER_S.into());
    assert!(is_coded(&mut s, &file), "now it is old");
}

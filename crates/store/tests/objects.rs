//! Objects as a data server uses them: holes, records, fences, races.

use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_store::{ReadMode, ReadOutcome};
use weir_types::{ErrorKind, Generation};

#[test]
fn a_small_object_takes_two_blocks_of_disk() {
    use std::os::unix::fs::MetadataExt;
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 100));
    object.sync().unwrap();
    let stat = std::fs::metadata(store.only_file()).unwrap();
    assert_eq!(stat.size(), 32 * 4096 + 100);
    assert_eq!(stat.blocks() * 512, 8192);
}

#[test]
fn holes_read_as_zeros_and_verify() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let far = SECTION_BORDER + 5000;
    write(&object, 10, b"near");
    write(&object, far, b"far");
    let mut expected = vec![0; far as usize + 3];
    expected[10..14].copy_from_slice(b"near");
    expected[far as usize..].copy_from_slice(b"far");
    assert!(read(&object, 0, far + 100) == expected);
    assert_eq!(
        read_pieces(&object, &[(5000, 100)], ReadMode::Blocking).unwrap(),
        Received::Good(vec![0; 100])
    );
}

#[test]
fn an_object_beyond_its_first_slots_has_no_hole_where_a_stream_passes() {
    use std::os::unix::fs::MetadataExt;
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let len = SECTION_BORDER + 1_000_000;
    let data = pattern(3, 2_000_000);
    let mut at = 0;
    while at < len {
        let n = (len - at).min(data.len() as u64);
        write(&object, at, &data[..n as usize]);
        at += n;
    }
    object.sync().unwrap();
    let stat = std::fs::metadata(store.only_file()).unwrap();
    assert!(stat.blocks() * 512 >= stat.size());
    assert_eq!(stat.size(), 64 * 4096 + len);
    assert!(read(&object, SECTION_BORDER - 500_000, 2_000_000).len() == 1_500_000);
}

#[test]
fn records_of_838_bytes_are_appended_and_found() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    for i in 0..500 {
        assert_eq!(write(&object, i * 838, &pattern(i, 838)), (i + 1) * 838);
    }
    let store = store.reopen();
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    for i in (0..500).rev() {
        assert_eq!(read(&object, i * 838, 838), pattern(i, 838));
    }
    let strided: Vec<(u64, u64)> = (0..250).map(|i| (i * 2 * 838, 838)).collect();
    let expected: Vec<u8> = (0..250).flat_map(|i| pattern(i * 2, 838)).collect();
    for mode in [ReadMode::Blocking, ReadMode::Exact, ReadMode::Locked] {
        let received = read_pieces(&object, &strided, mode).unwrap();
        assert_eq!(received, Received::Good(expected.clone()));
    }
}

#[test]
fn a_write_from_before_a_truncation_is_refused() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, b"old");
    object.truncate(0, Generation(5)).unwrap();
    let late = write_pieces(&object, &[(0, 3)], b"old", Generation(4)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Stale);
    assert_eq!(object.truncate(9, Generation(4)).unwrap_err().kind, ErrorKind::Stale);
    write_pieces(&object, &[(0, 3)], b"new", Generation(5)).unwrap();
    // The truncation is repeated, as after a lost reply. It must not cut new data.
    assert_eq!(object.truncate(0, Generation(5)).unwrap(), 3);
    drop(object);
    let store = store.reopen();
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    assert_eq!(object.generation(), Generation(5));
    assert_eq!(read(&object, 0, 10), b"new");
    let late = write_pieces(&object, &[(0, 3)], b"old", Generation(4)).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Stale);
}

#[test]
fn truncating_an_object_that_was_never_written_fences_it() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    assert_eq!(object.truncate(5_000_000, Generation(2)).unwrap(), 5_000_000);
    drop(object);
    let store = store.reopen();
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    assert_eq!((object.len(), object.generation()), (5_000_000, Generation(2)));
    assert!(read(&object, 0, 5_000_000).iter().all(|&b| b == 0));
}

#[test]
fn data_damaged_on_the_way_changes_nothing() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, b"old");
    let data = pattern(1, 20_000);
    let mut checks = checks_of(&[(0, 20_000)], &data);
    checks[4] ^= 1;
    let error = object.write_pieces(&[(0, 20_000)], &data, &checks, G0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    assert!(error.message.contains("offset 16384"), "{error}");
    assert_eq!(read(&object, 0, 100), b"old");
}

#[test]
fn requests_that_do_not_add_up_are_refused() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 9000));
    let mut checks = Vec::new();
    for pieces in [[(0, 5000)], [(u64::MAX, 1)], [(1 << 62, 1)], [(0, u64::MAX)]] {
        let mut small = [0; 4999];
        let result = object.read_pieces(&pieces, &mut small, &mut checks, ReadMode::Blocking);
        assert!(
            matches!(&result, Err(e) if e.kind == ErrorKind::InvalidArgument)
                || result.is_ok_and(|o| matches!(o, ReadOutcome::Done { bytes: 0, .. })),
            "{pieces:?}"
        );
        assert_eq!(
            object.write_pieces(&pieces, b"x", &[1, 2, 3], G0).unwrap_err().kind,
            ErrorKind::InvalidArgument
        );
    }
    assert_eq!(object.truncate(1 << 63, Generation(1)).unwrap_err().kind, ErrorKind::FileTooLarge);
    assert_eq!(object.len(), 9000);
}

/// Whether the kernel tells what is cached: Linux 6.5.
fn tells_what_is_cached() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap().split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next()) >= (6, 5)
}

#[test]
fn a_cold_read_without_waiting_says_so_and_then_comes_warm() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let data = pattern(1, 3_000_000);
    write(&object, 0, &data);
    object.sync().unwrap();
    let file = std::fs::File::open(store.only_file()).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let pieces = [(1_000_000, 500_000)];
    // Repeated looks do not make the kernel fetch it. Before Linux 6.5 this cannot be tested.
    let look = || read_pieces(&object, &pieces, ReadMode::Resident).unwrap();
    if look() == Received::WouldBlock {
        let resident = (0..1000).filter(|_| look() != Received::WouldBlock).count();
        println!("{resident} of 1000 looks found it");
        assert!(resident == 0 || !tells_what_is_cached());
    }
    let cold = read_pieces(&object, &pieces, ReadMode::Nowait).unwrap();
    if cold != Received::WouldBlock {
        println!("the page cache was not dropped here (tmpfs?): only the data is checked");
    }
    let wanted = Received::Good(data[1_000_000..1_500_000].to_vec());
    assert_eq!(read_pieces(&object, &pieces, ReadMode::Blocking).unwrap(), wanted);
    let warm = read_pieces(&object, &pieces, ReadMode::Nowait).unwrap();
    assert!(warm == wanted || warm == Received::WouldBlock);
}

#[test]
fn of_a_large_exact_read_nothing_beyond_is_fetched() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let data = pattern(1, 3_000_000);
    write(&object, 0, &data);
    object.sync().unwrap();
    let file = std::fs::File::open(store.only_file()).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (start, end) = (1 << 20, (1 << 20) + (512 << 10));
    let beyond = || read_pieces(&object, &[(end, 64 << 10)], ReadMode::Resident).unwrap();
    if beyond() != Received::WouldBlock || !tells_what_is_cached() {
        println!("skipped: needs a page cache that can be dropped (no tmpfs), and Linux 6.5");
        return;
    }
    // In order, as a stream would.
    for start in [start, start + (256 << 10)] {
        let wanted = data[start as usize..][..256 << 10].to_vec();
        let received = read_pieces(&object, &[(start, 256 << 10)], ReadMode::Exact).unwrap();
        assert_eq!(received, Received::Good(wanted));
    }
    assert_eq!(beyond(), Received::WouldBlock, "it may be read from another copy");
}

#[test]
fn readers_beside_a_writer_see_old_or_new_blocks_and_no_rot() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let len = 300_000u64;
    write(&object, 0, &vec![1; len as usize]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 2..200u8 {
                write(&object, 1000, &vec![value; len as usize - 1000]);
                write(&object, 0, &vec![value; 1000]);
            }
            stop.store(true, Ordering::Release);
        });
        let mut clean = 0;
        while !stop.load(Ordering::Acquire) {
            for pieces in [[(0, len)], [(100, 50)], [(5000, 9001)]] {
                let mut received = read_pieces(&object, &pieces, ReadMode::Blocking).unwrap();
                if received == Received::Mismatch {
                    received = read_pieces(&object, &pieces, ReadMode::Locked).unwrap();
                }
                let Received::Good(bytes) = received else { panic!("{received:?}") };
                assert_eq!(bytes.len() as u64, pieces[0].1);
                clean += 1;
            }
        }
        assert!(clean > 0);
    });
    assert!(read(&object, 0, len).iter().all(|&b| b == 199));
}

#[test]
fn appends_that_a_crash_cut_short_do_not_spoil_later_holes() {
    use std::os::unix::fs::FileExt;
    for len in [1000u64, PAGE_BORDER, PAGE_BORDER + 70_000, SECTION_BORDER] {
        let store = TestTarget::new();
        let object = store.target.object_or_create(object_id(1)).unwrap();
        write(&object, len - 1000, &pattern(1, 1000));
        drop(object);
        // As written by the first format, which had no intent log.
        let store = store.into_version_1();
        // The slots of blocks behind the end were written, their data was not.
        let file = std::fs::File::options().write(true).open(store.only_file()).unwrap();
        let block = len.div_ceil(BLOCK) + 3;
        let slot = if len < SECTION_BORDER { 512 + block * 4 } else { 32_672 * BLOCK + 12 };
        file.write_all_at(&[1, 2, 3, 4], slot).unwrap();
        let store = store.reopen();
        let object = store.target.object(object_id(1)).unwrap().unwrap();
        assert_eq!(object.len(), len);
        write(&object, len + 1_000_000, b"!");
        let bytes = read(&object, len - 1000, 2_000_000);
        assert!(bytes[..1000] == pattern(1, 1000));
        assert!(bytes[1000..1_001_000].iter().all(|&b| b == 0) && bytes[1_001_000..] == *b"!");
    }
}

#[test]
fn a_cut_beyond_the_end_is_a_fence_and_takes_nothing_away() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, b"before");
    assert_eq!(object.cut(4096, Generation(1)).unwrap(), 6);
    assert_eq!(object.generation(), Generation(1));
    assert!(read(&object, 0, 100) == b"before");
    assert_eq!(object.cut(3, Generation(2)).unwrap(), 3);
    assert!(read(&object, 0, 100) == b"bef");
}

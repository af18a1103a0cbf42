//! Bits that flip on disk are noticed, wherever they are.

use crate::support::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weir_store::ReadMode;
use weir_types::{ErrorKind, Generation};

fn flip(file: &Path, position: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

/// An object with two pages of slots and a partial last block, with one bit flipped.
fn damaged(position: u64) -> TestTarget {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(0x1f)).unwrap();
    write(&object, 0, &pattern(1, PAGE_BORDER as usize + 10_000));
    drop(object);
    flip(&store.only_file(), position);
    store.reopen()
}

#[test]
fn rot_of_data_or_of_a_checksum_is_reported_with_its_place() {
    let data_of_block_5 = 4096 * (32 + 5) + 17;
    let slot_of_block_5 = 512 + 5 * 4 + 1;
    for position in [data_of_block_5, slot_of_block_5] {
        let store = damaged(position);
        let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
        // For whole blocks the reader notices, and the locked read confirms.
        let all = [(0, 100_000)];
        assert_eq!(read_pieces(&object, &all, ReadMode::Blocking).unwrap(), Received::Mismatch);
        let error = read_pieces(&object, &all, ReadMode::Locked).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        for part in
            ["target 3", "object 1f.0.0.0", "offset 20480", store.dir.path().to_str().unwrap()]
        {
            assert!(error.message.contains(part), "{error}");
        }
        // For a part of the block the server notices.
        let part = [(20_500, 10)];
        let error = read_pieces(&object, &part, ReadMode::Blocking).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        assert_eq!(read_pieces(&object, &part, ReadMode::Nowait).unwrap(), Received::WouldBlock);
        // The other blocks are good, and so is this one after it is replaced.
        assert_eq!(read(&object, 0, 20_480), pattern(1, 20_480));
        let error = write_pieces(&object, &[(20_500, 10)], &[0; 10], G0).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        write(&object, 20_480, &[9; 4096]);
        assert_eq!(read(&object, 20_480, 4096), [9; 4096]);
    }
}

#[test]
fn rot_survives_appends_and_truncations_of_its_block() {
    let last = PAGE_BORDER + 8192;
    let in_last_block = (32 + 898) * 4096 + 5;
    let store = damaged(in_last_block);
    let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
    let rotten = |from| {
        read_pieces(&object, &[(from, 10)], ReadMode::Locked)
            .is_err_and(|e| e.kind == ErrorKind::Corrupt)
    };
    write(&object, last + 1808, b"appended");
    assert!(rotten(last));
    object.truncate(last + 700, 1.into()).unwrap();
    assert!(rotten(last));
    object.truncate(last, 2.into()).unwrap();
    assert_eq!(read(&object, 0, last), pattern(1, last as usize));
}

#[test]
fn a_damaged_header_is_not_believed() {
    for position in [0, 16, 40, 300, 511] {
        let store = damaged(position);
        let error = store.target.object(object_id(0x1f)).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        assert!(error.message.contains("object 1f.0.0.0"), "{error}");
    }
}

#[test]
fn a_header_that_has_rotted_is_written_anew() {
    let store = damaged(16);
    let error = store.target.object(object_id(0x1f)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    // With the generation that another copy reports.
    store.target.restore_header(object_id(0x1f), Generation(7)).unwrap();
    let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
    let data = pattern(1, PAGE_BORDER as usize + 10_000);
    assert_eq!((object.len(), object.generation()), (data.len() as u64, Generation(7)));
    assert!(read(&object, 0, data.len() as u64) == data);
    assert_eq!(write_pieces(&object, &[(0, 1)], &[1], G0).unwrap_err().kind, ErrorKind::Stale);
    drop(object);
    // A sound header is not changed.
    store.target.restore_header(object_id(0x1f), Generation(9)).unwrap();
    let store = store.reopen();
    let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
    assert_eq!(object.generation(), Generation(7));
    // From the object in memory, while it is open.
    flip(&store.only_file(), 33);
    assert_eq!(object.check().unwrap_err().kind, ErrorKind::Corrupt);
    object.rewrite_header().unwrap();
    object.check().unwrap();
    object.rewrite_header().unwrap();
    drop(object);
    let store = store.reopen();
    let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
    assert_eq!(object.generation(), Generation(7));
    assert!(read(&object, 0, data.len() as u64) == data);
}

#[test]
fn a_stored_checksum_tells_what_was_written() {
    let end = (PAGE_BORDER + 10_000) / 4096 * 4096;
    let store = damaged(4096 * 37 + 17);
    let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
    let data = pattern(1, PAGE_BORDER as usize + 10_000);
    let block = &data[5 * 4096..6 * 4096];
    assert!(object.vouches_for(5 * 4096, block).unwrap());
    assert!(object.vouches_for(end, &data[end as usize..]).unwrap(), "the last one");
    let mut other = block.to_vec();
    other[100] ^= 1;
    assert!(!object.vouches_for(5 * 4096, &other).unwrap());
    assert!(!object.vouches_for(6 * 4096, block).unwrap());
}

#[test]
fn a_block_is_replaced_only_while_it_is_damaged() {
    let end = (PAGE_BORDER + 10_000) / 4096 * 4096;
    let data = pattern(1, PAGE_BORDER as usize + 10_000);
    for (start, position) in [(5 * 4096, 4096 * 37 + 17), (end, 4096 * 32 + end + 5)] {
        let store = damaged(position);
        let object = store.target.object(object_id(0x1f)).unwrap().unwrap();
        let till = data.len().min(start as usize + 4096);
        let block = &data[start as usize..till];
        // Refused for a sound block, for a part of a block, and beyond the end.
        assert!(!object.replace_damaged(6 * 4096, block).unwrap());
        assert!(!object.replace_damaged(start, &block[..100]).unwrap());
        assert!(!object.replace_damaged(start, &[0; 4097]).unwrap());
        assert!(object.replace_damaged(start, block).unwrap());
        assert!(!object.replace_damaged(start, &vec![7; block.len()]).unwrap(), "it is sound");
        assert!(read(&object, 0, data.len() as u64) == data);
        // Bytes that were written since stay.
        flip(&store.only_file(), position);
        write(&object, start, &vec![9; block.len()]);
        assert!(!object.replace_damaged(start, block).unwrap());
        assert_eq!(read(&object, start, block.len() as u64), vec![9; block.len()]);
    }
}

#[test]
fn an_object_under_a_wrong_name_is_refused() {
    let store = TestTarget::new();
    write(&store.target.object_or_create(object_id(0x1f)).unwrap(), 0, b"mine");
    let file = store.only_file();
    std::fs::rename(&file, file.with_file_name("f1f.0.1.0")).unwrap();
    let store = store.reopen();
    let mut id = object_id(0x1f);
    id.column = 1.into();
    let error = store.target.object(id).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains("object 1f.0.1.0 has the header of object 1f.0.0.0"), "{error}");
    let error = store.target.restore_header(id, Generation(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "whose bytes these are is not known");
}

#[test]
fn a_file_that_was_cut_from_outside_is_an_error_not_a_panic() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 50_000));
    std::fs::File::options()
        .write(true)
        .open(store.only_file())
        .unwrap()
        .set_len(32 * 4096 + 5000)
        .unwrap();
    for (piece, mode) in [((0, 50_000), ReadMode::Blocking), ((100, 40_000), ReadMode::Locked)] {
        let error = read_pieces(&object, &[piece], mode).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }
    let cached = read_pieces(&object, &[(0, 50_000)], ReadMode::Nowait).unwrap();
    assert_eq!(cached, Received::WouldBlock);
}

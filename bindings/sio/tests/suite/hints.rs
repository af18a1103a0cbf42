//! `sio_hint` and `sio_hint_by_name`. Hints change no result; their benefit is tested elsewhere.

use super::*;

pub const CASES: &[Case] = &[
    ("hints_of_every_kind_change_no_byte", hints_of_every_kind_change_no_byte),
    ("hints_by_name_change_no_byte", hints_by_name_change_no_byte),
    ("bad_hints_are_refused", bad_hints_are_refused),
];

const FLAGS: [u32; 12] = [
    HINT_READ,
    HINT_WRITE,
    HINT_CANCEL_ALL,
    HINT_CANCEL_NEXT,
    HINT_SEQUENTIAL,
    HINT_REVERSE,
    HINT_RANDOM_PARTIAL,
    HINT_RANDOM_COMPLETE,
    HINT_NO_FURTHER_USE,
    HINT_WILL_USE,
    HINT_READ_ONCE,
    HINT_RECORDS,
];

/// The record size in the hints of [`hint`].
static RECORD_BYTES: u64 = 838;

pub fn hint(flags: u32, list: &mut [sio_file_io_list_t]) -> sio_hint_t {
    let (io_list, list_len) = (list.as_mut_ptr(), list.len() as u32);
    let (arg, arg_len) = match flags & HINT_RECORDS {
        0 => (null_mut(), 0),
        _ => (std::ptr::from_ref(&RECORD_BYTES).cast_mut().cast::<c_void>(), 8),
    };
    sio_hint_t { flags, io_list, list_len, arg, arg_len }
}

pub fn give(fd: i32, class: u32, hints: &[sio_hint_t]) -> Code {
    // SAFETY: the list has the stated length.
    code(unsafe { sio_hint(fd, class, hints.as_ptr(), hints.len() as u32) })
}

pub fn give_by_name(name: &str, class: u32, hints: &[sio_hint_t]) -> Code {
    let name = CString::new(name).unwrap();
    // SAFETY: as above.
    code(unsafe { sio_hint_by_name(name.as_ptr(), class, hints.as_ptr(), hints.len() as u32) })
}

fn hints_of_every_kind_change_no_byte(_: Over) {
    let fd = create("hints");
    let data = noise(500_000, 1);
    write(fd, 0, &data);
    for class in [HINT_CLASS_ORDERED, HINT_CLASS_UNORDERED] {
        for flags in FLAGS {
            let mut list = [in_file(1000, 500, 5000, 20)];
            let both = [hint(flags | HINT_READ, &mut list), hint(flags, &mut [])];
            assert_eq!(give(fd, class, &both), Code::Success, "{flags} {}", last_error());
            assert!(read(fd, 0, 600_000) == data, "{flags}");
            let mut buffer = vec![0; 10_000];
            let ended = transfer(false, fd, &list, &all_of(&mut buffer));
            assert_eq!(ended, (Code::Success, 10_000));
            assert!(
                buffer.chunks(500).enumerate().all(|(i, c)| c == &data[1000 + i * 5000..][..500])
            );
        }
    }
    assert_eq!(give(fd, HINT_CLASS_ORDERED, &[]), Code::Success);
    drop_file(fd, "hints");
}

fn hints_by_name_change_no_byte(_: Over) {
    let none = give_by_name("named", HINT_CLASS_ORDERED, &[hint(HINT_WILL_USE, &mut [])]);
    assert_eq!(none, Code::FileNotFound);
    let fd = create("named");
    let data = noise(50_000, 2);
    write(fd, 0, &data);
    close(fd);
    for flags in FLAGS {
        let given = give_by_name("named", HINT_CLASS_UNORDERED, &[hint(flags, &mut [])]);
        assert_eq!(given, Code::Success, "{}", last_error());
    }
    let fd = open("named", MODE_READ);
    assert!(read(fd, 0, 60_000) == data);
    drop_file(fd, "named");
}

fn bad_hints_are_refused(_: Over) {
    let fd = create("bad hints");
    let good = hint(HINT_READ, &mut []);
    for class in [0, 3, u32::MAX] {
        assert_eq!(give(fd, class, &[good]), Code::InvalidClass);
        assert_eq!(give_by_name("bad hints", class, &[good]), Code::InvalidClass);
    }
    assert_eq!(give(-1, HINT_CLASS_ORDERED, &[good]), Code::InvalidDescriptor);
    assert_eq!(give_by_name("", HINT_CLASS_ORDERED, &[good]), Code::InvalidFilename);
    let refused = |hint: sio_hint_t| give(fd, HINT_CLASS_ORDERED, &[good, hint]);
    assert_eq!(refused(hint(1 << 20, &mut [])), Code::OpUnsupported);
    for both in [HINT_SEQUENTIAL | HINT_RANDOM_PARTIAL, HINT_READ_ONCE | HINT_RECORDS] {
        assert_eq!(refused(hint(both, &mut [])), Code::InvalidArgument);
    }
    let records = hint(HINT_RECORDS, &mut []);
    let mut none = 0u64;
    let of_none = std::ptr::from_mut(&mut none).cast();
    assert_eq!(refused(sio_hint_t { arg: of_none, ..records }), Code::InvalidArgument);
    assert_eq!(refused(sio_hint_t { arg_len: 4, ..records }), Code::InvalidArgument);
    assert_eq!(
        refused(sio_hint_t { arg: null_mut(), arg_len: 0, ..records }),
        Code::InvalidArgument
    );
    assert!(last_error().contains("record"), "{}", last_error());
    let mut list = [in_file(u64::MAX, 9, 9, 9)];
    assert_eq!(refused(hint(HINT_READ, &mut list)), Code::InvalidFileList);
    let null = sio_hint_t { list_len: 4, io_list: null_mut(), ..good };
    assert_eq!(refused(null), Code::InvalidFileList);
    assert_eq!(refused(sio_hint_t { arg_len: 1, ..good }), Code::InvalidArgument);
    drop_file(fd, "bad hints");
}

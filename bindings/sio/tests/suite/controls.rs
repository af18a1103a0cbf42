//! `sio_control` and the controls of `sio_open`.

use super::files::opened;
use super::*;

pub const CASES: &[Case] = &[
    ("sizes_are_asked_and_set", sizes_are_asked_and_set),
    ("old_and_new_value_come_from_one_list", old_and_new_value_come_from_one_list),
    (
        "a_mandatory_control_that_fails_undoes_an_open",
        a_mandatory_control_that_fails_undoes_an_open,
    ),
    ("an_optional_control_that_fails_is_told", an_optional_control_that_fails_is_told),
    ("controls_that_set_the_same_clash", controls_that_set_the_same_clash),
    ("room_is_reserved_when_a_file_is_created", room_is_reserved_when_a_file_is_created),
    ("what_does_not_fit_is_no_space", what_does_not_fit_is_no_space),
    ("caching_modes_are_set_at_open", caching_modes_are_set_at_open),
    ("weak_writes_are_seen_after_propagate_and_refresh", weak_writes_are_seen),
    ("a_label_is_kept", a_label_is_kept),
    ("a_layout_is_asked_and_set_at_create", a_layout_is_asked_and_set_at_create),
    ("data_is_synced", data_is_synced),
    ("bad_controls_are_refused", bad_controls_are_refused),
    ("fast_copy_copies", fast_copy_copies),
    ("fast_copy_knows_its_bounds", fast_copy_knows_its_bounds),
];

const CREATE: u32 = MODE_READ | MODE_WRITE | MODE_CREATE;

fn sizes_are_asked_and_set(_: Over) {
    let fd = create("size");
    assert_eq!(ask(fd, CTL_GET_SIZE), 0);
    write(fd, 100, b"x");
    assert_eq!(ask(fd, CTL_GET_SIZE), 101);
    let mut size = 1_000_000u64;
    assert_eq!(control(fd, &mut [mandatory(op(CTL_SET_SIZE, &mut size))]), Code::Success);
    assert_eq!(ask(fd, CTL_GET_SIZE), 1_000_000);
    assert_eq!(read(fd, 101, 50), [0; 50], "what was never written is zeros");
    assert_eq!(read(fd, 999_990, 50), [0; 10]);
    size = 3;
    assert_eq!(control(fd, &mut [mandatory(op(CTL_SET_SIZE, &mut size))]), Code::Success);
    assert_eq!((ask(fd, CTL_GET_SIZE), read(fd, 0, 9)), (3, vec![0; 3]));
    size = (1 << 62) + 1;
    let mut ops = [op(CTL_SET_SIZE, &mut size)];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::InvalidArgument]);
    write(fd, 0, &noise(100_000, 1));
    assert_eq!(control(fd, &mut [mandatory(bare(CTL_SYNC))]), Code::Success);
    let taken = ask(fd, CTL_GET_ALLOCATION);
    assert!((100_000..50_000_000).contains(&taken), "{taken}");
    assert_eq!(ask(fd, CTL_GET_CONSISTENCY_UNIT), 1);
    drop_file(fd, "size");
}

fn old_and_new_value_come_from_one_list(_: Over) {
    let fd = create("values");
    write(fd, 0, b"1234567");
    let (mut old, mut set, mut new) = (0u64, 2u64, 0u64);
    let mut ops = [
        mandatory(op(CTL_GET_SIZE, &mut old)),
        mandatory(op(CTL_SET_SIZE, &mut set)),
        mandatory(op(CTL_GET_SIZE, &mut new)),
    ];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!((old, set, new), (7, 2, 2));
    drop_file(fd, "values");
}

fn a_mandatory_control_that_fails_undoes_an_open(_: Over) {
    let (mut size, mut huge) = (10u64, u64::MAX);
    let mut ops = [
        op(CTL_SET_SIZE, &mut size),
        mandatory(op(CTL_SET_PREALLOCATION, &mut huge)),
        mandatory(bare(CTL_SYNC)),
    ];
    assert_eq!(opened("undone", CREATE, &mut ops), Err(Code::ControlFailed));
    use Code::{ControlNotAttempted, ControlWouldHaveSucceeded, InvalidArgument, NoSpace, Success};
    let want = [ControlWouldHaveSucceeded, InvalidArgument, ControlNotAttempted];
    assert_eq!(results(&ops), want);
    assert!(last_error().contains("the most is"), "{}", last_error());
    assert_eq!(unlink("undone"), Code::FileNotFound, "it was not created");
    // This error is found only when the control is carried out.
    huge = 1 << 60;
    let mut ops = [
        op(CTL_SET_SIZE, &mut size),
        mandatory(op(CTL_SET_PREALLOCATION, &mut huge)),
        mandatory(bare(CTL_SYNC)),
    ];
    assert_eq!(opened("undone", CREATE, &mut ops), Err(Code::ControlFailed));
    assert_eq!(results(&ops), [Success, NoSpace, ControlNotAttempted]);
    assert_eq!(unlink("undone"), Code::FileNotFound, "it was removed again");

    let fd = create("undone");
    write(fd, 0, b"stays");
    let mut layout = layout(LAYOUT_WIDTH, 1, 0);
    let mut ops = [op(CTL_SET_SIZE, &mut size), mandatory(op(CTL_SET_LAYOUT, &mut layout))];
    assert_eq!(control(fd, &mut ops), Code::ControlFailed);
    assert_eq!(results(&ops), [ControlWouldHaveSucceeded, Code::OnlyAtCreate]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 5, "nothing was done");
    drop_file(fd, "undone");
}

fn an_optional_control_that_fails_is_told(_: Over) {
    let (mut huge, mut size) = (1u64 << 60, 10u64);
    let mut ops = [op(CTL_SET_PREALLOCATION, &mut huge), op(CTL_SET_SIZE, &mut size)];
    let fd = opened("optional", CREATE, &mut ops).unwrap();
    assert_eq!(results(&ops), [Code::NoSpace, Code::Success]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 10);
    drop_file(fd, "optional");
}

fn controls_that_set_the_same_clash(_: Over) {
    let fd = create("clash");
    let (mut one, mut two) = (1u64, 2u64);
    let mut ops = [op(CTL_SET_SIZE, &mut one), op(CTL_SET_SIZE, &mut two)];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::Success, Code::ControlsClash]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 1);
    let mut ops = [op(CTL_SET_SIZE, &mut two), mandatory(op(CTL_SET_SIZE, &mut two))];
    assert_eq!(control(fd, &mut ops), Code::ControlFailed);
    assert_eq!(results(&ops), [Code::ControlWouldHaveSucceeded, Code::ControlsClash]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 1);
    drop_file(fd, "clash");
}

fn room_is_reserved_when_a_file_is_created(_: Over) {
    let mut bytes = 1u64 << 20;
    let mut ops = [mandatory(op(CTL_SET_PREALLOCATION, &mut bytes))];
    let fd = opened("reserved", CREATE, &mut ops).unwrap_or_else(|_| panic!("{}", last_error()));
    assert_eq!(ask(fd, CTL_GET_PREALLOCATION), 1 << 20);
    assert_eq!(ask(fd, CTL_GET_SIZE), 0);
    assert!(ask(fd, CTL_GET_ALLOCATION) >= 1 << 20, "{}", ask(fd, CTL_GET_ALLOCATION));
    let mut ops = [op(CTL_SET_PREALLOCATION, &mut bytes)];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::OnlyAtCreate]);
    close(fd);
    let mut ops = [op(CTL_SET_PREALLOCATION, &mut bytes)];
    let fd = opened("reserved", MODE_WRITE, &mut ops).unwrap();
    assert_eq!(results(&ops), [Code::OnlyAtCreate]);
    assert_eq!(ask(fd, CTL_GET_PREALLOCATION), 1 << 20, "it is kept with the file");
    drop_file(fd, "reserved");
    let fd = create("not reserved");
    assert_eq!(ask(fd, CTL_GET_PREALLOCATION), 0);
    drop_file(fd, "not reserved");
}

fn what_does_not_fit_is_no_space(_: Over) {
    let mut huge = 1u64 << 55;
    let mut ops = [mandatory(op(CTL_SET_PREALLOCATION, &mut huge))];
    assert_eq!(opened("too much", CREATE, &mut ops), Err(Code::ControlFailed));
    assert_eq!(results(&ops), [Code::NoSpace]);
}

fn caching_modes_are_set_at_open(_: Over) {
    let fd = create("caching");
    let mut found = 0u32;
    let mut ops = [mandatory(op(CTL_GET_CACHING_MODE, &mut found))];
    assert_eq!((control(fd, &mut ops), found), (Code::Success, CACHING_STRONG));
    let mut weak = CACHING_WEAK;
    let mut ops = [op(CTL_SET_CACHING_MODE, &mut weak)];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::OnlyAtOpen]);
    close(fd);
    for mode in [CACHING_NONE, CACHING_STRONG, CACHING_WEAK] {
        let (mut set, mut found) = (mode, 0u32);
        let mut ops = [
            mandatory(op(CTL_SET_CACHING_MODE, &mut set)),
            mandatory(op(CTL_GET_CACHING_MODE, &mut found)),
        ];
        let fd = opened("caching", MODE_READ | MODE_WRITE, &mut ops).unwrap();
        assert_eq!(found, mode);
        let data = noise(300_000, mode.into());
        write(fd, 5, &data);
        assert_eq!(read(fd, 5, 300_000), data);
        close(fd);
    }
    let mut bad = 9u32;
    let mut ops = [op(CTL_SET_CACHING_MODE, &mut bad)];
    close(opened("caching", MODE_READ, &mut ops).unwrap());
    assert_eq!(results(&ops), [Code::InvalidArgument]);
    assert_eq!(unlink("caching"), Code::Success);
}

/// Two descriptors of one process; `sio_over_weir` tests two clients.
fn weak_writes_are_seen(_: Over) {
    let (mut one, mut two) = (CACHING_WEAK, CACHING_WEAK);
    let writer = opened("weak", CREATE, &mut [mandatory(op(CTL_SET_CACHING_MODE, &mut one))]);
    let mut ops = [mandatory(op(CTL_SET_CACHING_MODE, &mut two))];
    let reader = opened("weak", MODE_READ, &mut ops).unwrap();
    let writer = writer.unwrap();
    let data = noise(10_000, 3);
    write(writer, 0, &data);
    assert_eq!(control(writer, &mut [mandatory(bare(CTL_PROPAGATE))]), Code::Success);
    assert_eq!(control(reader, &mut [mandatory(bare(CTL_REFRESH))]), Code::Success);
    assert_eq!(read(reader, 0, 20_000), data);
    // The same by ranges.
    write(writer, 77, b"changed");
    let list = [in_file(77, 7, 0, 1)];
    let mut ranges = sio_file_ranges_t { list: list.as_ptr(), list_len: 1 };
    let mut ops = [mandatory(op(CTL_PROPAGATE, &mut ranges))];
    assert_eq!(control(writer, &mut ops), Code::Success);
    let mut ops = [mandatory(op(CTL_REFRESH, &mut ranges))];
    assert_eq!(control(reader, &mut ops), Code::Success);
    assert_eq!(read(reader, 77, 7), b"changed");
    let list = [in_file(u64::MAX, 7, 0, 1)];
    ranges = sio_file_ranges_t { list: list.as_ptr(), list_len: 1 };
    let mut ops = [op(CTL_REFRESH, &mut ranges), op(CTL_PROPAGATE, &mut ranges)];
    assert_eq!(control(reader, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::InvalidFileList; 2]);
    close(reader);
    drop_file(writer, "weak");
}

fn a_label_is_kept(_: Over) {
    let mut text = *b"records of 838 bytes";
    let mut label = sio_label_t { size: 20, data: text.as_mut_ptr().cast() };
    let fd = opened("label", CREATE, &mut [mandatory(op(CTL_SET_LABEL, &mut label))]).unwrap();
    close(fd);
    let fd = open("label", MODE_READ | MODE_WRITE);
    let mut buffer = [b'.'; 30];
    let mut room = sio_label_t { size: 30, data: buffer.as_mut_ptr().cast() };
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LABEL, &mut room))]), Code::Success);
    assert_eq!((room.size, &buffer[..21]), (20, &b"records of 838 bytes."[..]));
    // As much as fits.
    let mut small = [b'.'; 4];
    let mut room = sio_label_t { size: 3, data: small.as_mut_ptr().cast() };
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LABEL, &mut room))]), Code::Success);
    assert_eq!((room.size, &small), (20, b"rec."));
    let mut none = sio_label_t { size: 0, data: null_mut() };
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LABEL, &mut none))]), Code::Success);
    assert_eq!(none.size, 20);
    let mut long = vec![b'x'; MAX_LABEL_LEN as usize + 1];
    let mut label = sio_label_t { size: long.len() as u64, data: long.as_mut_ptr().cast() };
    let mut ops = [op(CTL_SET_LABEL, &mut label)];
    assert_eq!(
        (control(fd, &mut ops), results(&ops)),
        (Code::Success, vec![Code::InvalidArgument])
    );
    label.size -= 1;
    assert_eq!(control(fd, &mut [mandatory(op(CTL_SET_LABEL, &mut label))]), Code::Success);
    let mut empty = sio_label_t { size: 0, data: null_mut() };
    assert_eq!(control(fd, &mut [mandatory(op(CTL_SET_LABEL, &mut empty))]), Code::Success);
    let mut room = sio_label_t { size: 30, data: buffer.as_mut_ptr().cast() };
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LABEL, &mut room))]), Code::Success);
    assert_eq!(room.size, 0);
    drop_file(fd, "label");
    let fd = create("no label");
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LABEL, &mut room))]), Code::Success);
    assert_eq!(room.size, 0);
    drop_file(fd, "no label");
}

fn layout(flags: u32, stripe_width: u32, stripe_depth: u64) -> sio_layout_t {
    sio_layout_t {
        flags,
        stripe_width,
        stripe_depth,
        algorithm: LAYOUT_ALGORITHM_SIMPLE_STRIPING,
        algorithm_data: null_mut(),
    }
}

fn a_layout_is_asked_and_set_at_create(over: Over) {
    let all = LAYOUT_WIDTH | LAYOUT_DEPTH | LAYOUT_ALGORITHM;
    let fd = create("layout");
    let mut found = layout(0, 0, 0);
    assert_eq!(control(fd, &mut [mandatory(op(CTL_GET_LAYOUT, &mut found))]), Code::Success);
    assert_eq!((found.flags, found.algorithm), (all, LAYOUT_ALGORITHM_SIMPLE_STRIPING));
    assert!(found.stripe_width >= 1 && found.stripe_depth >= 512);
    drop_file(fd, "layout");

    let (mut set, mut found) = (layout(all, over.servers.max(2) / 2, 8192), layout(0, 0, 0));
    let mut ops = [op(CTL_SET_LAYOUT, &mut set), mandatory(op(CTL_GET_LAYOUT, &mut found))];
    let fd = opened("layout", CREATE, &mut ops).unwrap_or_else(|_| panic!("{}", last_error()));
    if over.servers > 0 {
        assert_eq!(results(&ops), [Code::Success; 2]);
        assert_eq!((found.stripe_width, found.stripe_depth), (over.servers / 2, 8192));
    } else {
        assert_eq!(results(&ops), [Code::OpUnsupported, Code::Success]);
        assert_eq!(found.stripe_width, 1);
    }
    let data = noise(100_000, 8);
    write(fd, 0, &data);
    assert_eq!(read(fd, 0, 100_000), data);
    let mut ops = [op(CTL_SET_LAYOUT, &mut set)];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::OnlyAtCreate]);
    drop_file(fd, "layout");

    let bad = [
        (layout(64, 1, 1), Code::InvalidArgument),
        (layout(LAYOUT_WIDTH, 0, 1), Code::InvalidArgument),
        (layout(LAYOUT_DEPTH, 1, 0), Code::InvalidArgument),
        (sio_layout_t { algorithm: 7, ..layout(all, 1, 8192) }, Code::OpUnsupported),
        (layout(LAYOUT_WIDTH, 1_000_000, 0), Code::OpUnsupported),
        (layout(LAYOUT_DEPTH, 1, 1000), Code::OpUnsupported),
    ];
    for (mut layout, code) in bad {
        let mut ops = [mandatory(op(CTL_SET_LAYOUT, &mut layout))];
        assert_eq!(opened("layout", CREATE, &mut ops), Err(Code::ControlFailed));
        assert_eq!(results(&ops), [code], "{}", last_error());
    }
}

fn data_is_synced(_: Over) {
    let fd = create("sync");
    write(fd, 0, &noise(1000, 4));
    assert_eq!(control(fd, &mut [mandatory(bare(CTL_SYNC))]), Code::Success);
    drop_file(fd, "sync");
}

fn bad_controls_are_refused(_: Over) {
    let fd = create("bad controls");
    for op_code in [0, 17, u32::MAX] {
        let mut ops = [bare(op_code)];
        assert_eq!(control(fd, &mut ops), Code::Success);
        assert_eq!(results(&ops), [Code::OpUnsupported]);
        let mut ops = [mandatory(bare(op_code))];
        assert_eq!(control(fd, &mut ops), Code::ControlFailed);
    }
    let acts = [CTL_PROPAGATE, CTL_REFRESH, CTL_SYNC];
    for op_code in (1..=16).filter(|op_code| !acts.contains(op_code)) {
        let mut ops = [bare(op_code)];
        assert_eq!(control(fd, &mut ops), Code::Success);
        assert_eq!(results(&ops), [Code::InvalidArgument], "control {op_code} without data");
    }
    let mut size = 1u64;
    let mut ops = [sio_control_t { flags: 6, ..op(CTL_SET_SIZE, &mut size) }];
    assert_eq!(control(fd, &mut ops), Code::Success);
    assert_eq!(results(&ops), [Code::InvalidArgument]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 0);
    assert_eq!(control(fd, &mut vec![bare(CTL_SYNC); 65]), Code::InvalidArgument);
    drop_file(fd, "bad controls");
}

fn copy(source: i32, source_offset: u64, offset: u64, size: u64) -> sio_fast_copy_t {
    sio_fast_copy_t { source, source_offset, offset, size, copied: 99 }
}

fn fast_copy_copies(_: Over) {
    let from = create("copy from");
    let data = noise(3_000_000, 6);
    write(from, 0, &data);
    // When a file is created.
    let mut whole = copy(from, 0, 0, 3_000_000);
    let mut ops = [mandatory(op(CTL_FAST_COPY, &mut whole))];
    let to = opened("copy to", CREATE, &mut ops).unwrap_or_else(|_| panic!("{}", last_error()));
    assert_eq!((whole.copied, ask(to, CTL_GET_SIZE)), (3_000_000, 3_000_000));
    assert!(read(to, 0, 3_000_000) == data);
    // Later, up to the end of the source.
    let mut part = copy(from, 2_999_000, 10, 5_000);
    assert_eq!(control(to, &mut [mandatory(op(CTL_FAST_COPY, &mut part))]), Code::Success);
    assert_eq!(part.copied, 1000);
    assert!(read(to, 10, 1000) == data[2_999_000..]);
    assert!(read(to, 1010, 5000) == data[1010..6010]);
    let mut nothing = copy(from, 3_000_000, 0, 10);
    assert_eq!(control(to, &mut [mandatory(op(CTL_FAST_COPY, &mut nothing))]), Code::Success);
    assert_eq!(nothing.copied, 0);
    // Within a file.
    let mut inside = copy(to, 0, 1_000_000, 1_000_000);
    assert_eq!(control(to, &mut [mandatory(op(CTL_FAST_COPY, &mut inside))]), Code::Success);
    assert_eq!(inside.copied, 1_000_000);
    assert!(read(to, 0, 1_000_000) == read(to, 1_000_000, 1_000_000));
    drop_file(from, "copy from");
    drop_file(to, "copy to");
}

fn fast_copy_knows_its_bounds(_: Over) {
    let (from, to) = (open("source", MODE_WRITE | MODE_CREATE), create("sink"));
    write(from, 0, b"abc");
    let try_it = |fd, mut copy: sio_fast_copy_t| {
        let mut ops = [op(CTL_FAST_COPY, &mut copy)];
        assert_eq!(control(fd, &mut ops), Code::Success);
        results(&ops)[0]
    };
    assert_eq!(try_it(to, copy(from, 0, 0, 3)), Code::IncorrectMode, "cannot be read");
    assert_eq!(try_it(to, copy(-1, 0, 0, 3)), Code::InvalidDescriptor);
    assert_eq!(try_it(to, copy(to, 0, 1, 2)), Code::InvalidFileList, "overlap");
    assert_eq!(try_it(to, copy(to, u64::MAX, 1, 2)), Code::InvalidArgument);
    assert_eq!(try_it(to, copy(to, 0, 1 << 62, 1)), Code::InvalidArgument);
    let reads = open("source", MODE_READ);
    assert_eq!(try_it(reads, copy(to, 0, 0, 1)), Code::IncorrectMode, "cannot be written");
    assert_eq!(try_it(to, copy(reads, 0, 0, 3)), Code::Success);
    close(reads);
    drop_file(from, "source");
    drop_file(to, "sink");
}

//! Each function refuses what all are given in the same way, and what nothing is attached for.

use super::files::opened;
use super::*;
use std::ptr::null;

pub const CASES: &[Case] = &[
    ("every_transfer_is_refused_for_each_reason", every_transfer_is_refused_for_each_reason),
    ("a_round_is_refused_for_each_reason", a_round_is_refused_for_each_reason),
    ("hints_by_name_are_refused_as_others_are", hints_by_name_are_refused_as_others_are),
    ("every_setter_is_refused_for_each_reason", every_setter_is_refused_for_each_reason),
    ("test_wants_the_list_that_it_counts", test_wants_the_list_that_it_counts),
];

/// Every function that needs a file system says that there is none.
pub fn nothing_works_before_a_file_system_is_attached() {
    let name = c"nothing".as_ptr();
    let none = Code::NotAttached;
    assert_eq!(opened("nothing", MODE_READ, &mut []), Err(none));
    assert_eq!(files::test("nothing", MODE_READ, &mut []), none);
    assert_eq!(files::rename("nothing", "none"), none);
    assert_eq!(unlink("nothing"), none);
    assert_eq!(control(0, &mut []), none);
    for write in [false, true] {
        assert_eq!(transfer(write, 0, &[], &[]).0, none);
        assert_eq!(asynchronous::start(write, 0, &[], &[]), Err(none));
    }
    let some = || std::ptr::without_provenance_mut::<c_void>(1 << 31 | 1);
    assert_eq!(asynchronous::status(&mut [some()], ASYNC_NONBLOCKING), Err(none));
    assert_eq!(asynchronous::cancel(&mut [some()]), none);
    assert_eq!(collective::define(0, COLL_READ, 1), Err(none));
    assert_eq!(collective::join(some(), 0, &[], &[]), Err(none));
    assert_eq!(hints::give(0, HINT_CLASS_UNORDERED, &[]), none);
    // SAFETY: a string, and no hints.
    let hinted = unsafe { sio_hint_by_name(name, HINT_CLASS_UNORDERED, null(), 0) };
    for number in [hinted, sio_close(0), sio_coll_free(some()), sio_detach()] {
        assert_eq!(code(number), none);
    }
}

fn every_transfer_is_refused_for_each_reason(_: Over) {
    let both = create("refused");
    let (reads, writes) = (open("refused", MODE_READ), open("refused", MODE_WRITE));
    let mut byte = [0; 8];
    let (file, memory) = ([in_file(0, 8, 0, 1)], all_of(&mut byte));
    let none = [in_memory(null_mut(), 8, 0, 1)];
    for write in [false, true] {
        let other = if write { reads } else { writes };
        let cases: [(i32, &[_], &[_], Code); 5] = [
            (-1, &file, &memory, Code::InvalidDescriptor),
            (other, &file, &memory, Code::IncorrectMode),
            (both, &[in_file(1 << 62, 8, 0, 1)], &memory, Code::InvalidFileList),
            (both, &file, &none, Code::InvalidMemoryList),
            (both, &[in_file(0, 9, 0, 1)], &memory, Code::UnequalLists),
        ];
        for (fd, file, memory, want) in cases {
            assert_eq!(transfer(write, fd, file, memory), (want, 0), "{}", last_error());
            assert_eq!(asynchronous::start(write, fd, file, memory), Err(want));
        }
        // SAFETY: lists of one entry, and no place for the result.
        unsafe {
            let (file, memory) = (file.as_ptr(), memory.as_ptr());
            let call = if write { sio_sg_write } else { sio_sg_read };
            let start = if write { sio_async_sg_write } else { sio_async_sg_read };
            assert_eq!(code(call(both, file, 1, memory, 1, null_mut())), Code::InvalidArgument);
            assert_eq!(code(start(both, file, 1, memory, 1, null_mut())), Code::InvalidArgument);
        }
        let begin = || asynchronous::start(write, both, &[], &[]);
        let mut handles: Vec<_> = (0..MAX_ASYNC_OUTSTANDING).map(|_| begin().unwrap()).collect();
        assert_eq!(begin(), Err(Code::MaxAsyncOutstandingExceeded));
        assert!(asynchronous::wait_all(&mut handles).iter().all(|end| *end == (Code::Success, 0)));
    }
    close(reads);
    close(writes);
    drop_file(both, "refused");
}

fn a_round_is_refused_for_each_reason(_: Over) {
    let fd = create("round refused");
    let all = collective::define(fd, COLL_READ, 1).unwrap();
    // SAFETY: no lists, and no place for the handle.
    let nowhere = unsafe { sio_coll_join(all, 0, null(), 0, null(), 0, null_mut()) };
    assert_eq!(code(nowhere), Code::InvalidArgument);
    let begin = || asynchronous::start(false, fd, &[], &[]).unwrap();
    let mut handles: Vec<_> = (0..MAX_ASYNC_OUTSTANDING).map(|_| begin()).collect();
    let joined = collective::join(all, 0, &[], &[]);
    assert_eq!(joined, Err(Code::MaxAsyncOutstandingExceeded));
    asynchronous::wait_all(&mut handles);
    let mut joined = [collective::join(all, 0, &[], &[]).unwrap()];
    assert_eq!(asynchronous::wait_all(&mut joined), [(Code::Success, 0)]);
    done(sio_coll_free(all));
    drop_file(fd, "round refused");
}

fn hints_by_name_are_refused_as_others_are(_: Over) {
    close(create("named badly"));
    let refused =
        |hint: sio_hint_t| hints::give_by_name("named badly", HINT_CLASS_ORDERED, &[hint]);
    assert_eq!(refused(hints::hint(1 << 20, &mut [])), Code::OpUnsupported);
    let mut list = [in_file(u64::MAX, 9, 9, 9)];
    assert_eq!(refused(hints::hint(HINT_READ, &mut list)), Code::InvalidFileList);
    let both = HINT_SEQUENTIAL | HINT_REVERSE;
    assert_eq!(refused(hints::hint(both, &mut [])), Code::InvalidArgument);
    assert_eq!(unlink("named badly"), Code::Success);
}

fn every_setter_is_refused_for_each_reason(over: Over) {
    let (mut bytes, mut mode) = (0u64, CACHING_STRONG);
    let mut label = sio_label_t { size: 0, data: null_mut() };
    let mut layout = sio_layout_t {
        flags: LAYOUT_WIDTH,
        stripe_width: 1,
        stripe_depth: 0,
        algorithm: 0,
        algorithm_data: null_mut(),
    };
    let setters = [
        op(CTL_SET_SIZE, &mut bytes),
        op(CTL_SET_PREALLOCATION, &mut bytes),
        op(CTL_SET_CACHING_MODE, &mut mode),
        op(CTL_SET_LABEL, &mut label),
        op(CTL_SET_LAYOUT, &mut layout),
    ];
    for setter in setters {
        let both = &mut [setter, setter];
        drop_file(opened("set", MODE_WRITE | MODE_CREATE, both).unwrap(), "set");
        let is_layout = setter.op_code == CTL_SET_LAYOUT && over.servers == 0;
        let first = if is_layout { Code::OpUnsupported } else { Code::Success };
        assert_eq!(results(both)[0], first, "{}", last_error());
        if !is_layout {
            assert_eq!(results(both)[1], Code::ControlsClash);
            assert_eq!(files::test("set", MODE_WRITE | MODE_CREATE, both), Code::Success);
            assert_eq!(results(both)[0], Code::ControlWouldHaveSucceeded);
        }
        let reads = &mut [setter];
        drop_file(opened("set", MODE_READ | MODE_CREATE, reads).unwrap(), "set");
        let want = match setter.op_code {
            CTL_SET_CACHING_MODE => Code::Success,
            _ => Code::IncorrectMode,
        };
        assert_eq!(results(reads), [want], "{}", setter.op_code);
    }
}

fn test_wants_the_list_that_it_counts(_: Over) {
    let name = c"list".as_ptr();
    // SAFETY: the interface reports NULL as an error.
    let tested = unsafe { sio_test(name, MODE_READ, null_mut(), 1) };
    assert_eq!(code(tested), Code::InvalidArgument);
}

//! `sio_open`, `sio_close`, `sio_unlink`, `sio_rename`, `sio_test`, names, modes, codes.

use super::*;
use std::ffi::c_char;
use std::ptr::null;

pub const CASES: &[Case] = &[
    ("open_creates_once_and_finds_what_is_there", open_creates_once_and_finds_what_is_there),
    ("a_mode_is_read_write_or_both", a_mode_is_read_write_or_both),
    ("names_stay_below_the_root", names_stay_below_the_root),
    ("so_many_files_are_open_and_no_more", so_many_files_are_open_and_no_more),
    ("a_closed_descriptor_is_none", a_closed_descriptor_is_none),
    ("what_is_open_keeps_its_name", what_is_open_keeps_its_name),
    ("rename_replaces_nothing", rename_replaces_nothing),
    ("test_answers_and_opens_nothing", test_answers_and_opens_nothing),
    ("null_is_an_error", null_is_an_error),
    ("every_code_has_a_text", every_code_has_a_text),
    ("extensions_are_known_by_number", extensions_are_known_by_number),
    ("what_is_in_use_stays_attached", what_is_in_use_stays_attached),
];

pub fn opened(name: &str, mode: u32, ops: &mut [sio_control_t]) -> Result<i32, Code> {
    let (name, mut fd) = (CString::new(name).unwrap(), -1);
    // SAFETY: a string, and a list that is as long as it says.
    let number =
        unsafe { sio_open(&mut fd, name.as_ptr(), mode, ops.as_mut_ptr(), ops.len() as u32) };
    match code(number) {
        Code::Success => Ok(fd),
        code => {
            assert_eq!(fd, -1, "no descriptor comes with a failure");
            Err(code)
        }
    }
}

pub fn test(name: &str, mode: u32, ops: &mut [sio_control_t]) -> Code {
    let name = CString::new(name).unwrap();
    // SAFETY: as above.
    code(unsafe { sio_test(name.as_ptr(), mode, ops.as_mut_ptr(), ops.len() as u32) })
}

pub fn rename(old: &str, new: &str) -> Code {
    let (old, new) = (CString::new(old).unwrap(), CString::new(new).unwrap());
    // SAFETY: strings.
    code(unsafe { sio_rename(old.as_ptr(), new.as_ptr()) })
}

fn open_creates_once_and_finds_what_is_there(_: Over) {
    assert_eq!(opened("once", MODE_READ, &mut []), Err(Code::FileNotFound));
    assert!(last_error().contains("once"), "{}", last_error());
    let fd = create("once");
    write(fd, 0, b"here");
    close(fd);
    let again = opened("once", MODE_WRITE | MODE_CREATE, &mut []);
    assert_eq!(again, Err(Code::AlreadyExists));
    let fd = open("once", MODE_READ);
    assert_eq!(read(fd, 0, 10), b"here");
    drop_file(fd, "once");
    assert_eq!(unlink("once"), Code::FileNotFound);
    let inside = opened("no directory/file", MODE_WRITE | MODE_CREATE, &mut []);
    assert_eq!(inside, Err(Code::FileNotFound));
}

fn a_mode_is_read_write_or_both(_: Over) {
    for mode in [0, MODE_CREATE, 8, MODE_READ | 8, u32::MAX] {
        assert_eq!(opened("mode", mode, &mut []), Err(Code::IncorrectMode), "{mode}");
        assert_eq!(test("mode", mode, &mut []), Code::IncorrectMode, "{mode}");
    }
    let writes = open("mode", MODE_WRITE | MODE_CREATE);
    write(writes, 0, b"abc");
    let reads = open("mode", MODE_READ);
    let mut byte = [0];
    let list = [in_file(0, 1, 0, 1)];
    assert_eq!(transfer(false, writes, &list, &all_of(&mut byte)), (Code::IncorrectMode, 0));
    assert_eq!(transfer(true, reads, &list, &all_of(&mut byte)), (Code::IncorrectMode, 0));
    let mut size = 1u64;
    let mut ops = [mandatory(op(CTL_SET_SIZE, &mut size))];
    assert_eq!(control(reads, &mut ops), Code::ControlFailed);
    assert_eq!(results(&ops), [Code::IncorrectMode]);
    close(writes);
    assert_eq!(read(reads, 0, 9), b"abc");
    drop_file(reads, "mode");
}

fn names_stay_below_the_root(_: Over) {
    let long = "x".repeat(MAX_NAME_LEN as usize + 1);
    for name in ["", "/", ".", "..", "a/../b", "a//b", "a/", &long, &"y".repeat(300)] {
        let create = MODE_WRITE | MODE_CREATE;
        assert_eq!(opened(name, create, &mut []), Err(Code::InvalidFilename), "{name}");
        assert_eq!(unlink(name), Code::InvalidFilename, "{name}");
        assert_eq!(rename(name, "fine"), Code::InvalidFilename, "{name}");
    }
    let fd = create("/file of the root");
    let other = open("file of the root", MODE_READ);
    close(other);
    let below = opened("file of the root/x", MODE_READ, &mut []);
    assert_eq!(below, Err(Code::InvalidFilename), "{}", last_error());
    drop_file(fd, "file of the root");
}

fn so_many_files_are_open_and_no_more(_: Over) {
    let mut all = vec![create("many")];
    all.extend((1..MAX_OPEN).map(|_| open("many", MODE_READ)));
    assert_eq!(opened("many", MODE_READ, &mut []), Err(Code::MaxOpenExceeded));
    let created = opened("one more", MODE_WRITE | MODE_CREATE, &mut []);
    assert_eq!(created, Err(Code::MaxOpenExceeded));
    assert_eq!(unlink("one more"), Code::FileNotFound, "nothing is left behind");
    let mut distinct = all.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), MAX_OPEN as usize);
    close(all.remove(0));
    let again = open("many", MODE_READ);
    all.into_iter().for_each(close);
    drop_file(again, "many");
}

fn a_closed_descriptor_is_none(_: Over) {
    let fd = create("closed");
    close(fd);
    let next = open("closed", MODE_READ);
    let mut byte = [0];
    for bad in [fd, -1, 0, 1, i32::MAX, i32::MIN] {
        assert_eq!(code(sio_close(bad)), Code::InvalidDescriptor, "{bad}");
        assert_eq!(control(bad, &mut []), Code::InvalidDescriptor);
        let list = [in_file(0, 1, 0, 1)];
        let ended = transfer(false, bad, &list, &all_of(&mut byte));
        assert_eq!(ended, (Code::InvalidDescriptor, 0));
        let mut size = 0u64;
        let mut ops = [op(CTL_GET_SIZE, &mut size)];
        assert_eq!(control(bad, &mut ops), Code::InvalidDescriptor);
        assert_eq!(results(&ops), [Code::ControlNotAttempted]);
    }
    drop_file(next, "closed");
}

fn what_is_open_keeps_its_name(_: Over) {
    let fd = create("open");
    assert_eq!(unlink("open"), Code::FileOpen);
    assert_eq!(rename("open", "other"), Code::FileOpen);
    assert_eq!(code(sio_detach()), Code::FileOpen);
    drop_file(fd, "open");
}

fn rename_replaces_nothing(_: Over) {
    let fd = create("old");
    write(fd, 0, b"old");
    close(fd);
    close(create("taken"));
    assert_eq!(rename("old", "taken"), Code::AlreadyExists);
    assert_eq!(rename("old", "old"), Code::AlreadyExists);
    assert_eq!(rename("absent", "new"), Code::FileNotFound);
    assert_eq!(rename("old", "no directory/new"), Code::FileNotFound);
    assert_eq!(rename("old", "new"), Code::Success, "{}", last_error());
    assert_eq!(opened("old", MODE_READ, &mut []), Err(Code::FileNotFound));
    let fd = open("new", MODE_READ);
    assert_eq!(read(fd, 0, 9), b"old");
    drop_file(fd, "new");
    assert_eq!(unlink("taken"), Code::Success);
}

fn test_answers_and_opens_nothing(_: Over) {
    let create_mode = MODE_WRITE | MODE_CREATE;
    assert_eq!(test("tested", MODE_READ, &mut []), Code::FileNotFound);
    assert_eq!(test("..", MODE_READ, &mut []), Code::InvalidFilename);
    assert_eq!(test("no directory/x", create_mode, &mut []), Code::FileNotFound);
    let mut size = 5u64;
    let mut ops = [op(CTL_SET_SIZE, &mut size), op(CTL_GET_SIZE, &mut size)];
    assert_eq!(test("tested", create_mode, &mut ops), Code::Success, "{}", last_error());
    assert_eq!(results(&ops), [Code::ControlWouldHaveSucceeded, Code::ControlNotOnTest]);
    assert_eq!(test("tested", MODE_READ, &mut []), Code::FileNotFound, "nothing was created");

    let fd = create("tested");
    write(fd, 0, b"12345");
    close(fd);
    assert_eq!(test("tested", create_mode, &mut []), Code::AlreadyExists);
    let (mut new, mut found, mut mode) = (1u64, 0u64, CACHING_WEAK);
    let mut ops = [
        mandatory(op(CTL_SET_SIZE, &mut new)),
        mandatory(op(CTL_GET_SIZE, &mut found)),
        op(CTL_SET_CACHING_MODE, &mut mode),
        bare(CTL_SYNC),
        bare(CTL_PROPAGATE),
        bare(CTL_REFRESH),
        op(CTL_GET_CACHING_MODE, &mut mode),
    ];
    let both = MODE_READ | MODE_WRITE;
    assert_eq!(test("tested", both, &mut ops), Code::Success, "{}", last_error());
    use Code::{ControlNotOnTest, ControlWouldHaveSucceeded, Success};
    let want = [ControlWouldHaveSucceeded, Success, ControlWouldHaveSucceeded];
    assert_eq!(results(&ops)[..3], want);
    assert_eq!(results(&ops)[3..], [ControlNotOnTest; 4]);
    assert_eq!(found, 5, "what is asked is answered, and nothing is set");
    let mut ops = [op(CTL_GET_SIZE, &mut found), mandatory(bare(CTL_SYNC)), bare(CTL_SYNC)];
    assert_eq!(test("tested", both, &mut ops), Code::ControlFailed);
    let want = [ControlWouldHaveSucceeded, ControlNotOnTest, Code::ControlNotAttempted];
    assert_eq!(results(&ops), want);
    // Nothing is open, so the name can be removed.
    assert_eq!(unlink("tested"), Code::Success);
}

fn null_is_an_error(_: Over) {
    let (mut fd, none) = (-1, null::<c_char>());
    let mut handle = null_mut();
    // SAFETY: the interface reports NULL as an error.
    unsafe {
        let name = c"null".as_ptr();
        let mode = MODE_READ | MODE_WRITE | MODE_CREATE;
        assert_eq!(code(sio_open(null_mut(), name, mode, null_mut(), 0)), Code::InvalidArgument);
        assert_eq!(code(sio_open(&mut fd, none, mode, null_mut(), 0)), Code::InvalidFilename);
        assert_eq!(code(sio_open(&mut fd, name, mode, null_mut(), 1)), Code::InvalidArgument);
        assert_eq!(code(sio_unlink(none)), Code::InvalidFilename);
        assert_eq!(code(sio_rename(name, none)), Code::InvalidFilename);
        assert_eq!(code(sio_rename(none, name)), Code::InvalidFilename);
        assert_eq!(code(sio_test(none, mode, null_mut(), 0)), Code::InvalidFilename);
        assert_eq!(code(sio_hint_by_name(none, 1, null(), 0)), Code::InvalidFilename);
        done(sio_open(&mut fd, name, mode, null_mut(), 0));
        assert_eq!(code(sio_control(fd, null_mut(), 1)), Code::InvalidArgument);
        assert_eq!(code(sio_control(fd, null_mut(), u32::MAX)), Code::InvalidArgument);
        assert_eq!(code(sio_hint(fd, 1, null(), 1)), Code::InvalidArgument);
        let (mut total, mut byte) = (0, 0u8);
        let (file, memory) = (in_file(0, 1, 0, 1), in_memory(&mut byte, 1, 0, 1));
        let read = |f, m, t| code(sio_sg_read(fd, f, 1, m, 1, t));
        assert_eq!(read(null(), &memory, &mut total), Code::InvalidFileList);
        assert_eq!(read(&file, null(), &mut total), Code::InvalidMemoryList);
        assert_eq!(read(&file, &memory, null_mut()), Code::InvalidArgument);
        let start = code(sio_async_sg_read(fd, &file, 1, &memory, 1, null_mut()));
        assert_eq!(start, Code::InvalidArgument);
        let start = code(sio_async_sg_write(fd, null(), 1, &memory, 1, &mut handle));
        assert_eq!(start, Code::InvalidFileList);
        assert_eq!(code(sio_async_cancel_all(null_mut(), 1)), Code::InvalidHandle);
        let (mut index, mut status) = (0, sio_async_status_t::default());
        let any = |l, i, s| code(sio_async_status_any(l, 1, i, s, ASYNC_NONBLOCKING));
        assert_eq!(any(null_mut(), &mut index, &mut status), Code::InvalidHandle);
        assert_eq!(any(&mut handle, null_mut(), &mut status), Code::InvalidArgument);
        assert_eq!(any(&mut handle, &mut index, null_mut()), Code::InvalidArgument);
        let defined = code(sio_coll_define(fd, COLL_READ, 1, null_mut()));
        assert_eq!(defined, Code::InvalidArgument);
    }
    drop_file(fd, "null");
}

fn every_code_has_a_text(_: Over) {
    let text = |number| {
        // SAFETY: the function returns a string for any number.
        unsafe { CStr::from_ptr(sio_error_string(number)) }.to_str().unwrap()
    };
    for (code, name) in Code::ALL {
        assert!(text(*code as i32).len() > 5, "{name}");
    }
    assert_eq!(text(-1), "no such code");
    assert_eq!(text(i32::MAX), "no such code");
}

fn extensions_are_known_by_number(_: Over) {
    done(sio_query_extension(EXT_FAST_COPY));
    done(sio_query_extension(EXT_COLLECTIVE));
    assert_eq!(code(sio_query_extension(0)), Code::InvalidExtension);
    assert_eq!(code(sio_query_extension(77)), Code::InvalidExtension);
}

fn what_is_in_use_stays_attached(over: Over) {
    let fd = create("held");
    let again = CString::new(over.files).unwrap();
    // SAFETY: a string.
    let attach = || code(unsafe { sio_attach(again.as_ptr()) });
    assert_eq!(attach(), Code::FileOpen);
    // The file is closed while its operation is not yet asked for.
    let mut part = vec![3u8; 1 << 20];
    let list = [in_file(0, 1 << 20, 0, 1)];
    let handle = asynchronous::start(true, fd, &list, &all_of(&mut part)).unwrap();
    while code(sio_close(fd)) == Code::IoInProgress {
        std::thread::yield_now();
    }
    assert_eq!((attach(), code(sio_detach())), (Code::IoInProgress, Code::IoInProgress));
    assert_eq!(asynchronous::wait_all(&mut [handle]), [(Code::Success, 1 << 20)]);
    assert_eq!(unlink("held"), Code::Success);
    // Nothing holds it any longer.
    assert_eq!(attach(), Code::Success, "{}", last_error());
}

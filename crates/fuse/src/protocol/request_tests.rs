use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

/// A request as the kernel would send it.
fn raw(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body: Vec<u8> = parts.concat();
    let header = abi::InHeader {
        len: (size_of::<abi::InHeader>() + body.len()) as u32,
        opcode,
        unique: 42,
        nodeid: 7,
        uid: 1000,
        gid: 100,
        pid: 4711,
        ..Default::default()
    };
    [header.as_bytes(), &body].concat()
}

fn errno_of(bytes: &[u8]) -> Errno {
    Request::parse(bytes, true).expect_err("refused").errno
}

#[test]
fn a_write_hands_out_exactly_its_data() {
    let head = abi::WriteIn {
        fh: 3,
        offset: 4096,
        size: 5,
        write_flags: abi::WRITE_LOCKOWNER | abi::WRITE_KILL_SUIDGID,
        lock_owner: 9,
        ..Default::default()
    };
    let bytes = raw(opcode::WRITE, &[head.as_bytes(), b"hello"]);
    let request = Request::parse(&bytes, true).unwrap();
    assert_eq!(request.header, Header { unique: 42, node: 7, uid: 1000, gid: 100, pid: 4711 });
    let Op::Write { fh: 3, offset: 4096, data: b"hello", args } = request.op else {
        panic!("{:?}", request.op)
    };
    assert_eq!(args.lock_owner, Some(9));
    assert!(args.kill_suidgid && !args.from_page_cache && args.is_past_pages());
}

#[test]
fn lengths_that_lie_are_refused() {
    let head = abi::WriteIn { size: 6, ..Default::default() };
    assert_eq!(errno_of(&raw(opcode::WRITE, &[head.as_bytes(), b"hello"])), Errno::EIO);
    let forget = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert_eq!(errno_of(&raw(opcode::BATCH_FORGET, &[forget.as_bytes(), &[0; 64]])), Errno::EIO);
    let mut long = raw(opcode::LOOKUP, &[b"a\0"]);
    long[0] += 1;
    assert_eq!(errno_of(&long), Errno::EIO);
    assert_eq!(Request::parse(&long[..39], true).expect_err("cut").unique, None);
    let read = abi::ReadIn { offset: u64::MAX, size: 2, ..Default::default() };
    assert_eq!(errno_of(&raw(opcode::READ, &[read.as_bytes()])), Errno::EINVAL);
}

#[test]
fn names_are_checked() {
    let lookup = |name: &[u8]| errno_of(&raw(opcode::LOOKUP, &[name]));
    assert_eq!(lookup(b"no end"), Errno::EIO);
    assert_eq!(lookup(b"a/b\0"), Errno::EINVAL);
    assert_eq!(lookup(b"\0"), Errno::ENOENT);
    assert_eq!(lookup(&[&[b'x'; 256][..], b"\0"].concat()), Errno::ENAMETOOLONG);
    let longest = raw(opcode::LOOKUP, &[&[b'x'; 255], b"\0"]);
    assert!(matches!(
        Request::parse(&longest, true).unwrap().op,
        Op::Lookup { name } if name.len() == 255
    ));
}

#[test]
fn both_forms_of_setxattr_and_init_are_understood() {
    let short = abi::SetxattrInShort { size: 2, flags: 1 };
    let bytes = raw(opcode::SETXATTR, &[short.as_bytes(), b"user.a\0", b"xy"]);
    assert!(matches!(
        Request::parse(&bytes, false).unwrap().op,
        Op::SetXattr { name: b"user.a", value: b"xy", flags: 1, kill_sgid: false }
    ));
    let long = abi::SetxattrIn { size: 2, flags: 1, setxattr_flags: 1, padding: 0 };
    let bytes = raw(opcode::SETXATTR, &[long.as_bytes(), b"user.a\0", b"xy"]);
    assert!(matches!(
        Request::parse(&bytes, true).unwrap().op,
        Op::SetXattr { name: b"user.a", value: b"xy", flags: 1, kill_sgid: true }
    ));
    let hello = abi::InitIn {
        major: 7,
        minor: 45,
        flags: init::INIT_EXT as u32,
        flags2: 1 << 4,
        ..Default::default()
    };
    let Op::Init(init) = Request::parse(&raw(opcode::INIT, &[hello.as_bytes()]), true).unwrap().op
    else {
        panic!("not INIT")
    };
    assert_eq!(init.flags & init::DIRECT_IO_ALLOW_MMAP, init::DIRECT_IO_ALLOW_MMAP);
    let old = abi::InitInShort { major: 7, minor: 31, ..Default::default() };
    assert!(Request::parse(&raw(opcode::INIT, &[old.as_bytes()]), true).is_ok());
}

#[test]
fn times_before_1970_and_now_are_told_apart() {
    let raw_attr = abi::SetattrIn {
        valid: fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::MODE,
        mtime: (-5i64).cast_unsigned(),
        mtimensec: 7,
        mode: 0o100_644,
        ..Default::default()
    };
    let set = set_attr(&raw_attr);
    assert_eq!(set.atime, Some(SetTime::Now));
    assert_eq!(set.mtime, Some(SetTime::At(Timestamp::new(-5, 7))));
    assert_eq!((set.mode, set.size), (Some(0o644), None));
}

#[test]
fn an_unknown_operation_is_enosys() {
    for code in [0, 7, 19, opcode::NOTIFY_REPLY, 4096, u32::MAX] {
        assert_eq!(errno_of(&raw(code, &[&[0; 256]])), Errno::ENOSYS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), ext: bool) {
        let _ = Request::parse(&bytes, ext);
    }

    /// A true header in front, so that the parsers of bodies get the garbage.
    #[test]
    fn garbage_bodies_never_panic(
        code in 0u32..60,
        body in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..300),
        ext: bool,
    ) {
        let bytes = raw(code, &[&body]);
        if let Ok(Request { op: Op::BatchForget(list), .. }) = Request::parse(&bytes, ext) {
            prop_assert!(list.iter().count() * 16 <= body.len());
        }
    }
}

//! What the kernel hands to the mount.

use crate::random::Gen;
use weir_fuse::{Op, Request};
use weir_types::limits::{MAX_NAME_BYTES, MAX_SYMLINK_BYTES, MAX_XATTR_BYTES};

/// Bytes of a request's header.
const HEADER_BYTES: usize = 40;

/// Parses a request, with both forms of SETXATTR: names are checked and no
/// slice is longer than what came.
pub(crate) fn request(data: &[u8]) {
    for setxattr_ext in [false, true] {
        let Ok(request) = Request::parse(data, setxattr_ext) else { continue };
        match request.op {
            Op::Lookup { name }
            | Op::MkNod { name, .. }
            | Op::MkDir { name, .. }
            | Op::Unlink { name }
            | Op::RmDir { name }
            | Op::Create { name, .. }
            | Op::Link { new_name: name, .. } => check_name(name),
            Op::Rename { name, new_name, .. } => {
                check_name(name);
                check_name(new_name);
            }
            Op::Symlink { name, target } => {
                check_name(name);
                assert!((1..=MAX_SYMLINK_BYTES).contains(&target.len()));
            }
            Op::SetXattr { value, .. } => assert!(value.len() <= MAX_XATTR_BYTES),
            Op::Write { offset, data, .. } => {
                assert!(offset.checked_add(data.len() as u64).is_some());
            }
            Op::BatchForget(list) => assert!(list.iter().count() * 16 <= data.len()),
            _ => {}
        }
    }
}

fn check_name(name: &[u8]) {
    assert!((1..=MAX_NAME_BYTES).contains(&name.len()));
    assert!(!name.contains(&b'/') && !name.contains(&0));
}

/// Operation, bytes of its fixed part, strings behind it.
const SHAPES: &[(u32, usize, usize)] = &[
    (1, 0, 1),   // LOOKUP
    (2, 8, 0),   // FORGET
    (3, 16, 0),  // GETATTR
    (4, 88, 0),  // SETATTR
    (5, 0, 0),   // READLINK
    (6, 0, 2),   // SYMLINK
    (8, 16, 1),  // MKNOD
    (9, 8, 1),   // MKDIR
    (10, 0, 1),  // UNLINK
    (11, 0, 1),  // RMDIR
    (12, 8, 2),  // RENAME
    (13, 8, 1),  // LINK
    (14, 8, 0),  // OPEN
    (15, 40, 0), // READ
    (16, 40, 0), // WRITE
    (17, 0, 0),  // STATFS
    (18, 24, 0), // RELEASE
    (20, 16, 0), // FSYNC
    (21, 16, 1), // SETXATTR
    (22, 8, 1),  // GETXATTR
    (23, 8, 0),  // LISTXATTR
    (24, 0, 1),  // REMOVEXATTR
    (25, 24, 0), // FLUSH
    (26, 64, 0), // INIT
    (27, 8, 0),  // OPENDIR
    (28, 40, 0), // READDIR
    (29, 24, 0), // RELEASEDIR
    (30, 16, 0), // FSYNCDIR
    (31, 48, 0), // GETLK
    (32, 48, 0), // SETLK
    (33, 48, 0), // SETLKW
    (34, 8, 0),  // ACCESS
    (35, 16, 1), // CREATE
    (36, 8, 0),  // INTERRUPT
    (37, 16, 0), // BMAP
    (38, 0, 0),  // DESTROY
    (39, 32, 0), // IOCTL
    (40, 24, 0), // POLL
    (42, 8, 0),  // BATCH_FORGET
    (43, 32, 0), // FALLOCATE
    (44, 40, 0), // READDIRPLUS
    (45, 16, 2), // RENAME2
    (46, 24, 0), // LSEEK
    (47, 56, 0), // COPY_FILE_RANGE
    (50, 8, 0),  // SYNCFS
    (51, 16, 1), // TMPFILE
    (52, 24, 0), // STATX
    (53, 56, 0), // COPY_FILE_RANGE_64
];

/// A request with small numbers in every field, so that lengths and counts in
/// it can be true.
pub(crate) fn request_example(g: &mut Gen) -> Vec<u8> {
    let (opcode, fixed, strings) = g.pick(SHAPES);
    let mut body = Vec::new();
    for _ in 0..fixed / 4 {
        let field = if g.one_in(3) { g.below(48) as u32 } else { 0 };
        body.extend_from_slice(&field.to_le_bytes());
    }
    for _ in 0..strings {
        body.extend((0..=g.below(12)).map(|_| g.pick(b"ab.-")));
        body.push(0);
    }
    if matches!(opcode, 16 | 21 | 39 | 42) {
        body.extend(g.bytes(64));
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    bytes.extend_from_slice(&opcode.to_le_bytes());
    bytes.extend_from_slice(&g.any().to_le_bytes());
    bytes.extend_from_slice(&1u64.to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend(body);
    bytes
}

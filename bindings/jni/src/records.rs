//! Records for Java: big-endian numbers, as its `ByteBuffer` reads them.
//!
//! ```text
//! file   kind u8, flags u8, mode u16, uid u32, gid u32, id u64, size u64, mtime i64, atime i64
//! entry  name's length u16, name, file
//! page   more u8, cookie u64, last u64, entries
//! block  offset u64, length u64, count u8, hosts (length u16, text)
//! placed entry, blocks u32 (u32::MAX: it is to be asked for), each block
//! located more u8, cookie u64, last u64, placed entries
//! ```

use crate::located::Block;
use weir_types::{Attr, FileKind};
use weir_wire::meta::DirPage;

/// The file has an access control list.
const HAS_ACL: u8 = 1;
/// A page that has this many bytes tells no further blocks.
const MAX_LOCATED_BYTES: usize = 8 << 20;

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::Directory => 1,
        FileKind::Symlink => 2,
        FileKind::File
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => 0,
    }
}

fn put_file(out: &mut Vec<u8>, attr: &Attr) {
    let ms = |at: weir_types::Timestamp| at.0.div_euclid(1_000_000).to_be_bytes();
    let has_acl = attr.extras.acl || attr.extras.default_acl;
    out.extend([kind(attr.kind), if has_acl { HAS_ACL } else { 0 }]);
    out.extend(attr.mode.to_be_bytes());
    out.extend(attr.uid.to_be_bytes());
    out.extend(attr.gid.to_be_bytes());
    out.extend(attr.file.0.to_be_bytes());
    out.extend(attr.size.to_be_bytes());
    out.extend(ms(attr.mtime));
    out.extend(ms(attr.atime));
}

/// Encodes the attributes of a file.
pub fn file(attr: &Attr) -> Vec<u8> {
    let mut out = Vec::new();
    put_file(&mut out, attr);
    out
}

/// Encodes a page of a directory.
pub fn page(page: &DirPage, cookie: u64) -> Vec<u8> {
    entries(page, cookie, |_, _| ())
}

/// Encodes a page of a directory with the blocks of its files. Of those for which it has no room Java
/// asks alone.
pub fn located(
    page: &DirPage,
    cookie: u64,
    blocks_of: impl Fn(usize) -> Option<Vec<Block>>,
) -> Vec<u8> {
    let asked = |out: &[u8], entry| (out.len() < MAX_LOCATED_BYTES).then(|| blocks_of(entry));
    entries(page, cookie, |out, entry| match asked(out, entry).flatten() {
        Some(found) => {
            out.extend((found.len() as u32).to_be_bytes());
            found.iter().for_each(|block| put_block(out, block));
        }
        None => out.extend(u32::MAX.to_be_bytes()),
    })
}

/// Encodes a page, and what else there is of each entry, by its position.
fn entries(page: &DirPage, cookie: u64, more_of: impl Fn(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut out = Vec::new();
    let more = !page.end && !page.entries.is_empty();
    out.push(u8::from(more));
    out.extend(page.entries.last().map_or(cookie, |entry| entry.cookie).to_be_bytes());
    out.extend(page.last.to_be_bytes());
    for (position, entry) in page.entries.iter().enumerate() {
        // A file that was removed meanwhile has no attributes (`Session::listed`).
        let Some(attr) = &entry.attr else { continue };
        if &*entry.name == b"." || &*entry.name == b".." {
            continue;
        }
        let Ok(len) = u16::try_from(entry.name.len()) else { continue };
        out.extend(len.to_be_bytes());
        out.extend_from_slice(&entry.name);
        put_file(&mut out, attr);
        more_of(&mut out, position);
    }
    out
}

/// Encodes the locations of a file.
pub fn blocks(blocks: &[Block]) -> Vec<u8> {
    let mut out = Vec::new();
    blocks.iter().for_each(|block| put_block(&mut out, block));
    out
}

fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.extend(block.offset.to_be_bytes());
    out.extend(block.len.to_be_bytes());
    let hosts = block.hosts.iter().filter(|host| host.len() <= usize::from(u16::MAX));
    let hosts: Vec<&String> = hosts.take(usize::from(u8::MAX)).collect();
    out.push(hosts.len() as u8);
    for host in hosts {
        out.extend((host.len() as u16).to_be_bytes());
        out.extend_from_slice(host.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use weir_types::codec::Bytes;
    use weir_types::{Extras, FileId, Generation, Timestamp};
    use weir_wire::meta::DirEntry;

    fn entry(n: u64) -> DirEntry {
        let (file, kind, now) = (FileId(n), FileKind::File, Timestamp(1));
        let attr = Attr {
            file,
            kind,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 1,
            atime: now,
            mtime: now,
            ctime: now,
            change: 1,
            generation: Generation(0),
            preferred_io_bytes: 4096,
            birth: None,
            extras: Extras::default(),
            sparse: false,
        };
        let name = Bytes(b"f".to_vec());
        DirEntry { name, file, kind, cookie: n, attr: Some(attr), layout: None }
    }

    #[test]
    fn a_page_that_is_full_tells_no_further_blocks_and_does_not_look_for_them() {
        let page = DirPage { entries: (1..=5).map(entry).collect(), end: true, last: 5 };
        let looked = Cell::new(0);
        // 3 MB an entry.
        let blocks_of = |_: usize| {
            looked.set(looked.get() + 1);
            let block = |n: u64| Block { offset: n * 10, len: 10, hosts: vec!["h".repeat(30_000)] };
            Some((0..100).map(block).collect())
        };
        let out = located(&page, 0, blocks_of);
        assert_eq!(looked.get(), 3);
        assert!(out.len() < MAX_LOCATED_BYTES + 4_000_000, "{}", out.len());
        // The last two are to be asked for.
        let last = [&[0, 1, b'f'][..], &file(page.entries[4].attr.as_ref().unwrap()), &[0xff; 4]];
        assert!(out.ends_with(&last.concat()));
        let whole = located(&page, 0, |_| Some(Vec::new()));
        let none = [&[0, 1, b'f'][..], &file(page.entries[4].attr.as_ref().unwrap()), &[0; 4]];
        assert!(whole.ends_with(&none.concat()));
    }
}

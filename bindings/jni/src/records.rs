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

/// Encodes a page of a directory with the blocks of its files.
pub fn located(
    page: &DirPage,
    cookie: u64,
    blocks_of: impl Fn(usize) -> Option<Vec<Block>>,
) -> Vec<u8> {
    entries(page, cookie, |out, entry| match blocks_of(entry) {
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

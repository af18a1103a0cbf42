//! Finds the path of a directory whose number is known.

use weir_client::{Client, Context};
use weir_types::FileId;

/// The most parents that are followed.
const MAX_DEPTH: usize = 256;
/// The most pages of a directory that are searched for one name.
const MAX_PAGES: usize = 256;

/// The path of a directory, found through its parents; `None` if it cannot be found.
pub fn path_of(client: &Client, mut dir: FileId) -> Option<String> {
    let ctx = Context::root();
    let mut names: Vec<Vec<u8>> = Vec::new();
    while dir != FileId::ROOT {
        if names.len() > MAX_DEPTH {
            return None;
        }
        let parent = client.lookup(&ctx, dir, b"..").ok()?.file;
        names.push(name_in(client, parent, dir)?);
        dir = parent;
    }
    names.reverse();
    Some(format!("/{}", String::from_utf8_lossy(&names.join(&b'/'))))
}

fn name_in(client: &Client, parent: FileId, dir: FileId) -> Option<Vec<u8>> {
    let (mut cookie, mut last) = (0, 0);
    for _ in 0..MAX_PAGES {
        let page = client.readdir(&Context::root(), parent, (cookie, last), 4096, false).ok()?;
        last = page.last;
        if let Some(entry) = page.entries.iter().find(|entry| entry.file == dir) {
            return Some(entry.name.0.clone());
        }
        cookie = page.entries.last().filter(|_| !page.end)?.cookie;
    }
    None
}

//! A whole tree, of a model or of a directory.

use super::op::Kind;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Differences that a complaint shows.
const MAX_SHOWN: usize = 10;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Number of links.
    pub links: u64,
    /// Contents, or what a link says.
    pub bytes: Vec<u8>,
    /// Attributes of users.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The first name of the same inode.
    pub same_as: String,
}

/// Names with what they lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    entries: BTreeMap<String, Entry>,
    first_names: BTreeMap<u64, String>,
}

impl Snapshot {
    /// Adds a name; names come in the same order from everybody.
    pub fn add(&mut self, path: String, inode: u64, mut entry: Entry) {
        entry.same_as = self.first_names.entry(inode).or_insert_with(|| path.clone()).clone();
        self.entries.insert(path, entry);
    }

    /// Without what local file systems count in their own ways.
    pub fn without_links_of_directories(mut self) -> Self {
        for entry in self.entries.values_mut().filter(|e| e.kind == Kind::Dir) {
            entry.links = 0;
        }
        self
    }

    /// What differs in `other`, if anything.
    pub fn differences(&self, other: &Self) -> Option<String> {
        let paths: std::collections::BTreeSet<_> =
            self.entries.keys().chain(other.entries.keys()).collect();
        let mut text = String::new();
        let mut count = 0;
        for path in paths {
            let (want, got) = (self.entries.get(path), other.entries.get(path));
            if want == got {
                continue;
            }
            count += 1;
            if count <= MAX_SHOWN {
                let _ = writeln!(text, "  {path}: {}, not {}", shown(got), shown(want));
            }
        }
        (count > 0).then(|| format!("{count} names differ:\n{text}"))
    }
}

fn shown(entry: Option<&Entry>) -> String {
    let Some(e) = entry else { return "missing".to_owned() };
    let bytes = String::from_utf8_lossy(&e.bytes[..e.bytes.len().min(20)]).into_owned();
    format!(
        "{:?} {:o}, {} links, {} bytes {bytes:?}, {:?}, same as {}",
        e.kind,
        e.mode,
        e.links,
        e.bytes.len(),
        e.xattrs,
        e.same_as
    )
}

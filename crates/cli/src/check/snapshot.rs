//! A snapshot of the metadata, from which the paths and segments of files can be looked up.

use crate::check::spool::Spool;
use crate::failure::Done;
use crate::progress::Progress;
use crate::text::named;
use std::collections::{BTreeMap, BTreeSet};
use weir_client::Administrator;
use weir_metaserver::audit::{Fact, Problem, SnapshotReader};
use weir_metaserver::schema::Body;
use weir_types::codec::Bytes;
use weir_types::{FileId, Segment, SegmentIndex, TargetId};

/// The most levels of directories that are followed for the path of a file.
const MAX_DEPTH: usize = 1024;

/// What a snapshot contains besides facts.
pub struct Taken {
    /// The number of records.
    pub records: u64,
    /// The first id that was never reserved.
    pub ids_end: u64,
    /// Targets that were removed from the cluster.
    pub removed: BTreeSet<TargetId>,
    /// Problems of single records, or of the whole snapshot.
    pub problems: Vec<Problem>,
}

/// Fetches a snapshot and adds its facts to a spool.
pub fn take(admin: &Administrator, spool: &mut Spool, progress: &Progress) -> Done<Taken> {
    let mut reader = SnapshotReader::new();
    let mut add = |fact: Fact| spool.add(&fact);
    for record in admin.export()? {
        let (key, value) = record?;
        reader.record(&key, &value, &mut add);
        if reader.records().is_multiple_of(1000) {
            progress.say(|| format!("metadata: {} records", reader.records()));
        }
    }
    let (records, ids_end) = (reader.records(), reader.ids_end());
    let removed = reader.removed().clone();
    let problems = reader.finish(&mut add);
    spool.check()?;
    Ok(Taken { records, ids_end, removed, problems })
}

/// Paths of files that have a name.
#[derive(Default)]
pub struct Paths {
    /// The directory and name of each file; `None` if it has no name.
    known: BTreeMap<FileId, Option<(FileId, Bytes)>>,
}

impl Paths {
    /// Looks up the paths of these files. A file with several names gets one of them.
    pub fn find(spool: &mut Spool, files: impl Iterator<Item = FileId>) -> Done<Self> {
        let mut paths = Self::default();
        let mut wanted: BTreeSet<FileId> = files.filter(|file| *file != FileId::ROOT).collect();
        for _ in 0..MAX_DEPTH {
            if wanted.is_empty() {
                break;
            }
            let parts: BTreeSet<usize> = wanted.iter().map(|file| Spool::part_of(*file)).collect();
            paths.known.extend(wanted.iter().map(|file| (*file, None)));
            for part in parts {
                spool.read(part, |fact| {
                    if let Fact::Named { file, dir, name, .. } = fact
                        && wanted.contains(&file)
                    {
                        paths.known.insert(file, Some((dir, name)));
                    }
                })?;
            }
            let above = wanted.iter().filter_map(|file| Some(paths.known.get(file)?.as_ref()?.0));
            let above: BTreeSet<FileId> = above.collect();
            wanted = above
                .into_iter()
                .filter(|dir| *dir != FileId::ROOT && !paths.known.contains_key(dir))
                .collect();
        }
        Ok(paths)
    }

    /// The path of a file; `None` if it cannot be reached from the root.
    pub fn path(&self, file: FileId) -> Option<String> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut here = file;
        while here != FileId::ROOT {
            let (dir, name) = self.known.get(&here)?.as_ref()?;
            names.push(name);
            if names.len() > MAX_DEPTH {
                return None;
            }
            here = *dir;
        }
        names.reverse();
        Some(format!("/{}", String::from_utf8_lossy(&names.join(&b'/'))))
    }

    /// How messages name a file.
    pub fn shown(&self, file: FileId) -> String {
        match self.path(file) {
            Some(path) => named(format!("weir:{path}")),
            None => format!("file {file}"),
        }
    }
}

/// Returns the segments in use of some files.
pub fn segments(
    spool: &mut Spool,
    files: &BTreeSet<FileId>,
) -> Done<BTreeMap<(FileId, SegmentIndex), Segment>> {
    let parts: BTreeSet<usize> = files.iter().map(|file| Spool::part_of(*file)).collect();
    let mut lists = BTreeMap::new();
    let mut found = Vec::new();
    for part in parts {
        spool.read(part, |fact| match fact {
            Fact::Inode { file, inode } if files.contains(&file) => {
                if let Body::File(body) = inode.body {
                    lists.insert(file, body.list);
                }
            }
            Fact::Segments { file, list, page, .. } if files.contains(&file) => {
                found.push((file, list, page));
            }
            _ => {}
        })?;
    }
    found.retain(|(file, list, _)| lists.get(file) == Some(list));
    let segments = found.into_iter().flat_map(|(file, _, page)| {
        page.segments.into_iter().map(move |segment| ((file, segment.index), segment))
    });
    Ok(segments.collect())
}

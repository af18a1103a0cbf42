//! The facts about one file, and their contradictions.

use super::Bounds;
use super::fact::Fact;
use super::problem::{Kind, Problem};
use crate::schema::{Body, Inode, RegularFile, SegmentPage, WrittenPage};
use std::collections::{BTreeMap, BTreeSet};
use weir_types::limits::SEGMENT_PAGE;
use weir_types::{FileId, FileKind, LayoutKind, ObjectId, Segment, TargetId};

/// The facts about a file. The largest files have 2^20 segments, which take some 200 MB here.
#[derive(Debug, Default)]
pub(super) struct FileFacts {
    pub inode: Option<Inode>,
    /// Directory and kind of each of its names.
    names: Vec<(FileId, FileKind)>,
    /// Number of its names that are directories, if it is a directory with names.
    holds: Option<u64>,
    last_cookie: Option<u64>,
    /// Pages by list and first byte.
    pub pages: BTreeMap<(u32, u64), SegmentPage>,
    pub written: BTreeMap<(u32, u64), WrittenPage>,
    pub dead: BTreeSet<u32>,
    pub garbage: BTreeSet<(TargetId, ObjectId)>,
    orphan: bool,
    link: Option<u64>,
    /// Directories of its names according to its own records, if it has several names.
    directories: BTreeMap<FileId, u32>,
    xattrs: u32,
    xattr_name_bytes: u32,
    pub objects: BTreeMap<(TargetId, ObjectId), u64>,
}

impl FileFacts {
    pub(super) fn add(&mut self, fact: Fact) {
        match fact {
            Fact::Inode { inode, .. } => self.inode = Some(*inode),
            Fact::Named { dir, kind, .. } => self.names.push((dir, kind)),
            Fact::Holds { subdirs, .. } => self.holds = Some(subdirs),
            Fact::Listed { last_cookie, .. } => self.last_cookie = Some(last_cookie),
            Fact::Segments { list, start, page, .. } => {
                drop(self.pages.insert((list, start), page))
            }
            Fact::Written { list, start, page, .. } => {
                self.written.insert((list, start), page);
            }
            Fact::Dead { list, .. } => drop(self.dead.insert(list)),
            Fact::Garbage { target, object } => drop(self.garbage.insert((target, object))),
            Fact::Orphan { .. } => self.orphan = true,
            Fact::Link { len, .. } => self.link = Some(len),
            Fact::InDirectory { dir, names, .. } => drop(self.directories.insert(dir, names)),
            Fact::Xattr { name_bytes, .. } => {
                self.xattrs += 1;
                self.xattr_name_bytes = self.xattr_name_bytes.saturating_add(name_bytes + 1);
            }
            Fact::Object { target, object, len } => {
                self.objects.insert((target, object), len);
            }
            // Of a name, not of a file.
            Fact::ByName { .. } | Fact::ByCookie { .. } => {}
        }
    }

    pub(super) fn judge(&self, file: FileId, bounds: &Bounds, problems: &mut Vec<Problem>) {
        match &self.inode {
            None => self.judge_without_inode(file, problems),
            Some(inode) => {
                self.judge_names(file, inode, problems);
                self.judge_directory(file, inode, problems);
                self.judge_attributes(file, inode, problems);
                if let Body::File(body) = &inode.body {
                    self.judge_layout(file, inode, body, problems);
                }
            }
        }
        self.judge_leftovers(file, problems);
        self.judge_objects(file, bounds, problems);
    }

    fn judge_without_inode(&self, file: FileId, problems: &mut Vec<Problem>) {
        let mut wrong = |kind, what: &str| problems.push(Problem::new(kind, file, what));
        for (dir, _) in &self.names {
            wrong(
                Kind::Name,
                &format!("a name of directory {dir} stands for it, but it does not exist"),
            );
        }
        if self.holds.is_some() || self.last_cookie.is_some() {
            wrong(Kind::Name, "a directory that does not exist has names");
        }
        if self.orphan {
            wrong(Kind::Leftover, "it is to be removed when it is closed, but does not exist");
        }
        if self.link.is_some() {
            wrong(Kind::Leftover, "the target of a symbolic link that does not exist");
        }
        if !self.directories.is_empty() {
            wrong(Kind::Leftover, "records of the directories of a file that does not exist");
        }
        if self.xattrs > 0 && self.dead.is_empty() {
            wrong(Kind::Leftover, "extended attributes of a file that does not exist");
        }
    }

    fn judge_names(&self, file: FileId, inode: &Inode, problems: &mut Vec<Problem>) {
        let mut wrong = |kind, what: String| problems.push(Problem::new(kind, file, what));
        if self.names.iter().any(|(_, kind)| *kind != inode.kind) {
            wrong(Kind::Name, "a name says another kind than it has".into());
        }
        if inode.kind == FileKind::Directory {
            let expected = if file == FileId::ROOT { 0 } else { 1 };
            match self.names.as_slice() {
                many if many.len() != expected => {
                    wrong(Kind::Name, format!("a directory with {} names", many.len()));
                }
                [(dir, _)] if *dir != inode.parent => wrong(
                    Kind::Name,
                    format!("its name is in directory {dir}, its `..` is {}", inode.parent),
                ),
                [] if inode.parent != file => {
                    wrong(Kind::Name, format!("the `..` of the root is {}", inode.parent));
                }
                _ => {}
            }
            return;
        }
        let names = self.names.len();
        if names as u64 != u64::from(inode.nlink) {
            wrong(Kind::Count, format!("it has {names} names and a link count of {}", inode.nlink));
        }
        // Where names are missing, that is told of already.
        if names as u64 == u64::from(inode.nlink) {
            self.judge_directories_of(inode, &mut wrong);
        }
        match (inode.nlink, names, self.orphan) {
            (0, 0, false) => {
                let what = "it has no name, and is not on the list of those to be removed";
                wrong(Kind::Leftover, what.into());
            }
            (1.., _, true) | (_, 1.., true) => {
                wrong(Kind::Name, "it has a name, but is to be removed when it is closed".into());
            }
            _ => {}
        }
    }

    fn judge_directories_of(&self, inode: &Inode, wrong: &mut impl FnMut(Kind, String)) {
        let mut directories = BTreeMap::new();
        self.names.iter().for_each(|(dir, _)| *directories.entry(*dir).or_default() += 1);
        if !self.names.is_empty() && !directories.contains_key(&inode.parent) {
            let parent = inode.parent;
            wrong(Kind::Name, format!("its parent is directory {parent}, which has no name of it"));
        }
        if self.names.len() < 2 {
            directories.clear();
        }
        if self.directories != directories {
            let what = "the records of the directories that it has names in are not as its names";
            wrong(Kind::Name, what.into());
        }
    }

    fn judge_directory(&self, file: FileId, inode: &Inode, problems: &mut Vec<Problem>) {
        let mut wrong = |kind, what: String| problems.push(Problem::new(kind, file, what));
        let Body::Directory(body) = &inode.body else {
            if self.holds.is_some() || self.last_cookie.is_some() {
                wrong(Kind::Name, "it is no directory, but has names in it".into());
            }
            return;
        };
        let links = 2 + self.holds.unwrap_or(0);
        if u64::from(inode.nlink) != links {
            wrong(Kind::Count, format!("its link count is {}, not {links}", inode.nlink));
        }
        if self.last_cookie.is_some_and(|last| last >= body.next_cookie) {
            wrong(Kind::Name, "the place of its next name in the listing is taken".into());
        }
    }

    fn judge_attributes(&self, file: FileId, inode: &Inode, problems: &mut Vec<Problem>) {
        let mut wrong = |kind, what: String| problems.push(Problem::new(kind, file, what));
        let counted = (inode.xattrs, inode.xattr_name_bytes);
        if counted != (self.xattrs, self.xattr_name_bytes) {
            let what = format!("it has {} extended attributes, not {}", self.xattrs, inode.xattrs);
            wrong(Kind::Count, what);
        }
        let says = self.link.filter(|len| *len == inode.size);
        if inode.kind == FileKind::Symlink && says.is_none() {
            wrong(Kind::Record, "the target of the symbolic link is missing".into());
        }
        if inode.kind != FileKind::Symlink && self.link.is_some() {
            wrong(Kind::Leftover, "the target of a symbolic link, for a file that is none".into());
        }
    }

    /// The segments of the list in use, ascending.
    pub(super) fn segments<'a>(
        &'a self,
        body: &RegularFile,
    ) -> impl Iterator<Item = &'a Segment> + use<'a> {
        self.pages_of(body.list).flat_map(|(_, page)| &page.segments)
    }

    pub(super) fn pages_of(&self, list: u32) -> impl Iterator<Item = (u64, &SegmentPage)> {
        self.pages.range((list, 0)..=(list, u64::MAX)).map(|((_, start), page)| (*start, page))
    }

    fn judge_layout(
        &self,
        file: FileId,
        inode: &Inode,
        body: &RegularFile,
        problems: &mut Vec<Problem>,
    ) {
        let mut wrong = |what: String| problems.push(Problem::new(Kind::Layout, file, what));
        let pages: Vec<_> = self.pages_of(body.list).collect();
        if pages.is_empty() {
            return wrong("its layout is missing".into());
        }
        for (number, (start, page)) in pages.iter().enumerate() {
            let full = page.segments.len() == SEGMENT_PAGE;
            let last = number + 1 == pages.len();
            let begins = page.segments.first().map_or(*start, |s| s.start) == *start;
            if !begins || !(full || last) || page.segments.len() > SEGMENT_PAGE {
                wrong(format!("the page of its layout at byte {start} is not as it must be"));
            }
        }
        let layout = body.layout(self.segments(body).cloned().collect());
        if let Err(error) = weir_layout::check_layout(&layout) {
            wrong(error.to_string());
        }
        let covered = weir_layout::covered_bytes(&layout);
        // A chunked file may have been made longer than it was written.
        if body.spec.kind != LayoutKind::Chunked && covered < inode.size {
            wrong(format!("its layout ends at byte {covered}, its size is {}", inode.size));
        }
        if let Some(high) = layout.segments.iter().map(|s| s.index.0).max()
            && high >= body.next_segment
        {
            wrong(format!("segment {high} exists, and the next one will be {}", body.next_segment));
        }
    }

    fn judge_leftovers(&self, file: FileId, problems: &mut Vec<Problem>) {
        let mut wrong = |kind, what: String| problems.push(Problem::new(kind, file, what));
        let list = match self.inode.as_ref().map(|inode| &inode.body) {
            Some(Body::File(body)) => Some(body.list),
            _ => None,
        };
        if let Some(list) = list.filter(|list| self.dead.contains(list)) {
            let what = format!("list {list} of its segments is in use, but is to be removed");
            wrong(Kind::DoomedObject, what);
        }
        let lists: BTreeSet<u32> = self.pages.keys().map(|(list, _)| *list).collect();
        for lost in lists.iter().filter(|l| Some(**l) != list && !self.dead.contains(l)) {
            wrong(Kind::Leftover, format!("list {lost} of its segments, which nothing leads to"));
        }
        let stray = |at: &&(u32, u64)| !self.pages.contains_key(*at) && !self.dead.contains(&at.0);
        for (list, start) in self.written.keys().filter(stray) {
            let what = format!("the written columns of list {list} at byte {start}, without list");
            wrong(Kind::Leftover, what);
        }
    }
}

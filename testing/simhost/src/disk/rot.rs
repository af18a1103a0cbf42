//! What a test sees and does behind the back of all processes.

use super::SimDisk;
use super::content::Content;
use super::state::{DirectoryNode, Kind, ROOT, State};
use rustix::io::{Errno, Result};
use std::hash::{DefaultHasher, Hash, Hasher};

impl SimDisk {
    /// Every file as processes see it: path and length, in order.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state();
        let tree = state.tree().into_iter();
        tree.filter_map(|(path, inode)| Some((path, state.file(inode).ok()?.seen.len()))).collect()
    }

    /// What is in a file.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>> {
        let state = self.state();
        Ok(state.file(state.find(ROOT, path)?)?.seen.bytes())
    }

    /// Makes a file, and the directories that lead to it, or replaces what is
    /// in it, durably. All names of the disk become durable first.
    ///
    /// # Errors
    /// `ISDIR`, `NOTDIR`, `INVAL` for a path that has no name.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut content = Content::default();
        content.put(0, bytes);
        content.set_len(bytes.len() as u64);
        let mut state = self.state();
        let mut at = ROOT;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            at = match (state.find(at, name), names.peek()) {
                (Ok(inode), _) => inode,
                (Err(Errno::NOENT), None) => {
                    state.create(at, name, Kind::File(super::file_node::FileNode::default()))?
                }
                (Err(Errno::NOENT), Some(_)) => {
                    state.create(at, name, Kind::Directory(DirectoryNode::default()))?
                }
                (Err(e), _) => return Err(e),
            };
        }
        state.change_file(at, |file| file.settle(content))?;
        commit_all_names(&mut state);
        Ok(())
    }

    /// Turns one bit over, in memory and on the disk. False if the file has no
    /// such byte.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`.
    pub fn flip_bit(&self, path: &str, byte: u64, bit: u32) -> Result<bool> {
        let mut state = self.state();
        let inode = state.find(ROOT, path)?;
        state.change_file(inode, |file| {
            file.durable.flip_bit(byte, bit);
            file.seen.flip_bit(byte, bit)
        })
    }

    /// Removes a file durably. All names of the disk become durable first.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        let mut state = self.state();
        let (parent, name) = state.find_parent(ROOT, path)?;
        let inode = state.find(parent, name)?;
        state.file(inode)?;
        state.change_name(inode, Some((parent, name.into())), None)?;
        commit_all_names(&mut state);
        Ok(())
    }

    /// Removes a directory durably, with all that is in it, under the eyes of
    /// those who have it open: their calls give `NOENT` then, but open files
    /// still work. All names of the disk become durable first.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, `INVAL` for the root.
    pub fn remove_directory(&self, path: &str) -> Result<()> {
        let mut state = self.state();
        let inode = state.find_parent(ROOT, path).and_then(|(at, name)| state.find(at, name))?;
        state.directory(inode)?;
        let inner = format!("{path}/");
        let tree = state.tree().into_iter().rev();
        for (path, inode) in tree.filter(|(p, _)| p == path || p.starts_with(&inner)) {
            let (parent, name) = state.find_parent(ROOT, &path)?;
            state.change_name(inode, Some((parent, name.into())), None)?;
        }
        commit_all_names(&mut state);
        Ok(())
    }

    /// Cuts a file or extends it with zeros, durably, with all it holds.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`.
    pub fn truncate_file(&self, path: &str, bytes: u64) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(ROOT, path)?;
        state.change_file(inode, |file| {
            let mut content = file.seen.clone();
            content.set_len(bytes);
            file.settle(content);
        })
    }

    /// A number for all that processes see: paths, lengths and bytes. Equal
    /// trees have equal ones.
    pub fn digest(&self) -> u64 {
        let state = self.state();
        let mut hasher = DefaultHasher::new();
        for (path, inode) in state.tree() {
            path.hash(&mut hasher);
            match state.file(inode) {
                Ok(file) => file.seen.hash(&mut hasher),
                Err(_) => "directory".hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

fn commit_all_names(state: &mut State) {
    let mark = state.seq;
    state.commit_names(None, mark);
}

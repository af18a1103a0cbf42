//! Files by path, of this machine or of a cluster.

use crate::invalid;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use weir_client::job::JobReader;
use weir_client::{Client, Context, CreateOptions, File, Location, MAX_LOCATIONS};
use weir_connect::{Choice, Problem, caller, program_name};
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, Result, TargetId};
use weir_wire::Rights;
use weir_wire::meta::RenameRequest;

/// Names requested at once.
const PAGE: u32 = 1024;
/// Bytes of a request to one target. Small enough that no slow reply counts as a dead copy.
const REQUEST_BYTES: usize = 1 << 20;

/// A file: its file system and its path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The file system.
    pub place: Place,
    /// The path. In a cluster it begins with `/`.
    pub path: String,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Files of this machine.
    Local,
    /// Files of a cluster: the named one, or that of the environment.
    Cluster(Option<String>),
}

impl Name {
    /// Parses `weir:/path`, `weir://CLUSTER/path` or the path of a local file.
    ///
    /// # Errors
    /// `InvalidArgument`: the name is empty or not UTF-8.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let text = text.to_str().ok_or_else(|| invalid("a file name is not UTF-8"))?;
        if text.is_empty() {
            return Err(invalid("an empty file name"));
        }
        let Some(rest) = text.strip_prefix("weir:") else {
            return Ok(Self { place: Place::Local, path: text.to_owned() });
        };
        let (cluster, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let cluster = (!cluster.is_empty()).then(|| cluster.to_owned());
        let path = format!("/{}", path.trim_matches('/'));
        Ok(Self { place: Place::Cluster(cluster), path })
    }
}

/// The directory and the last part of a path.
pub fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => (".", path),
    }
}

/// The path of a name in a directory.
pub fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// Access to a file system.
#[derive(Clone)]
pub enum Tree {
    /// Files of this machine.
    Local,
    /// Files of a cluster.
    Weir(Arc<Cluster>),
}

/// A session with a cluster.
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The user of this process.
    pub context: Context,
}

/// An open file.
pub enum Open {
    /// A file of this machine.
    Local(std::fs::File),
    /// A file of a cluster.
    Weir(Box<InCluster>),
}

/// An open file of a cluster.
pub struct InCluster {
    cluster: Arc<Cluster>,
    file: File,
    /// The user on whose behalf it is read.
    context: Context,
    /// Ranges that have a copy on this machine, in order, with the target of each.
    near: Vec<(Range<u64>, TargetId)>,
}

impl Tree {
    /// Opens a file system; connects to a cluster if it is one.
    ///
    /// # Errors
    /// Those of connecting, with what to do.
    pub fn open(place: &Place, program: &str) -> Result<Self> {
        let Place::Cluster(name) = place else { return Ok(Self::Local) };
        let connected = Choice::of_cluster(name.as_deref()).connect(&program_name(program));
        let client = connected.map_err(|problem| {
            let Problem { kind, message, hint } = problem;
            Error::new(kind, hint.into_iter().fold(message, |text, hint| format!("{text}; {hint}")))
        })?;
        Ok(Self::Weir(Arc::new(Cluster { client, context: Context::of(caller()) })))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn read(&self, path: &str) -> Result<Open> {
        let opened = match self {
            Self::Local => std::fs::File::open(path).map(Open::Local).map_err(Error::from),
            Self::Weir(cluster) => cluster.open(path, Rights::READ),
        };
        opened.map_err(|e| e.context(path))
    }

    /// Opens an existing file for writing.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn write(&self, path: &str) -> Result<Open> {
        let opened = match self {
            Self::Local => {
                let opened = std::fs::File::options().write(true).open(path);
                opened.map(Open::Local).map_err(Error::from)
            }
            Self::Weir(cluster) => cluster.open(path, Rights::READ_WRITE),
        };
        opened.map_err(|e| e.context(path))
    }

    /// Makes an empty file, or empties an existing one.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn create(&self, path: &str) -> Result<Open> {
        let opened = match self {
            Self::Local => std::fs::File::create(path).map(Open::Local).map_err(Error::from),
            Self::Weir(cluster) => cluster.create(path),
        };
        opened.map_err(|e| e.context(path))
    }

    /// Writes a small file atomically: other processes see all of it, or nothing.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (dir, name) = split(path);
        let hidden = join(dir, &format!(".{name}"));
        let file = self.create(&hidden)?;
        file.write_at(0, bytes).and_then(|()| file.finish()).map_err(|e| e.context(path))?;
        let renamed = match self {
            Self::Local => std::fs::rename(&hidden, path).map_err(Error::from),
            Self::Weir(cluster) => cluster.rename(dir, split(&hidden).1, name),
        };
        renamed.map_err(|e| e.context(path))
    }

    /// The contents of a small file.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.read(path)?;
        let mut bytes = vec![0; file.size().map_err(|e| e.context(path))? as usize];
        let read = file.read_at(0, &mut bytes).map_err(|e| e.context(path))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Kind and size of a file, following symbolic links; `None`: there is none.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn stat(&self, path: &str) -> Result<Option<(FileKind, u64)>> {
        let found = match self {
            Self::Local => std::fs::metadata(path).map_err(Error::from).map(|found| {
                let kind = if found.is_dir() { FileKind::Directory } else { FileKind::File };
                (kind, found.len())
            }),
            Self::Weir(cluster) => cluster.attr(path).map(|attr| (attr.kind, attr.size)),
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.context(path)),
        }
    }

    /// A unique identity of a file; `None`: there is no such file.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn id(&self, path: &str) -> Result<Option<(u64, u64)>> {
        let found = match self {
            Self::Local => std::fs::metadata(path).map(|m| (m.dev(), m.ino())).map_err(Error::from),
            Self::Weir(cluster) => cluster.attr(path).map(|attr| (0, attr.file.0)),
        };
        match found {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.context(path)),
        }
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn names(&self, dir: &str) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Local => local_names(dir),
            Self::Weir(cluster) => cluster.names(dir),
        }
        .map_err(|e| e.context(dir))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Makes a directory; `false`: it exists already.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn make_dir(&self, path: &str) -> Result<bool> {
        let made = match self {
            Self::Local => std::fs::create_dir(path).map_err(Error::from),
            Self::Weir(cluster) => cluster.parent(path).and_then(|(dir, name)| {
                let made = cluster.client.mkdir(&cluster.context, dir, name.as_bytes(), 0o700);
                made.map(drop)
            }),
        };
        match made {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::Exists => Ok(false),
            Err(error) => Err(error.context(path)),
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn remove(&self, path: &str) -> Result<()> {
        let removed = match self {
            Self::Local => std::fs::remove_file(path).map_err(Error::from),
            Self::Weir(cluster) => cluster.parent(path).and_then(|(dir, name)| {
                cluster.client.unlink(&cluster.context, dir, name.as_bytes()).map(drop)
            }),
        };
        removed.map_err(|e| e.context(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn remove_dir(&self, path: &str) -> Result<()> {
        let removed = match self {
            Self::Local => std::fs::remove_dir(path).map_err(Error::from),
            Self::Weir(cluster) => cluster.parent(path).and_then(|(dir, name)| {
                cluster.client.rmdir(&cluster.context, dir, name.as_bytes())
            }),
        };
        removed.map_err(|e| e.context(path))
    }
}

fn local_names(dir: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().into_string().map_err(|_| invalid("a name is not UTF-8"))?);
    }
    Ok(names)
}

impl Cluster {
    /// The attributes of a file.
    ///
    /// # Errors
    /// `NotFound`, and others of the metadata server.
    pub fn attr(&self, path: &str) -> Result<Attr> {
        self.client.resolve(&self.context, path.as_bytes(), true)
    }

    /// The locations of all bytes of a file of this size, in order. A hole at its end has none.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn locations(&self, path: &str, size: u64) -> Result<Vec<Location>> {
        let (mut all, mut at) = (Vec::new(), 0);
        while at < size {
            let found = self.client.locations_of(&self.context, path.as_bytes(), at, size - at);
            let found = found.map_err(|e| e.context(path))?;
            let last = found.last().filter(|_| found.len() == MAX_LOCATIONS);
            at = last.map_or(size, |last| last.offset + last.len);
            all.extend(found);
        }
        Ok(all)
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(FileId, &'a str)> {
        let (dir, name) = split(path);
        Ok((self.attr(dir)?.file, name))
    }

    fn open(self: &Arc<Self>, path: &str, rights: Rights) -> Result<Open> {
        let (file, _) = self.client.open(&self.context, self.attr(path)?.file, rights)?;
        Ok(self.opened(file))
    }

    fn create(self: &Arc<Self>, path: &str) -> Result<Open> {
        let (dir, name) = self.parent(path)?;
        let options = CreateOptions { truncate: true, ..CreateOptions::default() };
        let (file, _) = self.client.create(&self.context, dir, name.as_bytes(), &options)?;
        Ok(self.opened(file))
    }

    fn opened(self: &Arc<Self>, file: File) -> Open {
        let (cluster, context) = (self.clone(), self.context.clone());
        Open::Weir(Box::new(InCluster { cluster, file, context, near: Vec::new() }))
    }

    fn rename(&self, dir: &str, from: &str, to: &str) -> Result<()> {
        let dir = self.attr(dir)?.file;
        let request = RenameRequest {
            parent: dir,
            name: from.as_bytes().into(),
            new_parent: dir,
            new_name: to.as_bytes().into(),
            no_replace: false,
            exchange: false,
            whiteout: false,
            hold: false,
        };
        self.client.rename(&self.context, &request)
    }

    fn names(&self, dir: &str) -> Result<Vec<String>> {
        let dir = self.attr(dir)?.file;
        let (mut names, mut place) = (Vec::new(), (0, 0));
        loop {
            let page = self.client.readdir(&self.context, dir, place, PAGE, false)?;
            let Some(last) = page.entries.last() else { return Ok(names) };
            place = (last.cookie, page.last);
            for entry in &page.entries {
                let name = String::from_utf8(entry.name.to_vec());
                names.push(name.map_err(|_| invalid("a name is not UTF-8"))?);
            }
            if page.end {
                return Ok(names);
            }
        }
    }
}

impl Open {
    /// Counts reads of the file for a process of a job.
    pub fn read_for(&mut self, reader: JobReader) {
        if let Self::Weir(of) = self {
            reader.reads(of.file.size());
            of.context.reader = Some(Arc::new(reader));
        }
    }

    /// Reads these ranges from the copies on these targets, while they serve. The ranges must be
    /// sorted and must not overlap.
    pub fn read_near(&mut self, bytes: Vec<(Range<u64>, TargetId)>) {
        if let Self::Weir(of) = self {
            of.near = bytes;
        }
    }

    /// The size, bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn size(&self) -> Result<u64> {
        match self {
            Self::Local(file) => Ok(file.metadata()?.len()),
            Self::Weir(of) => Ok(of.cluster.client.getattr(&of.context, of.file.id())?.size),
        }
    }

    /// Reads until `buffer` is full or the file ends; returns the number of bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = match self {
            Self::Weir(of) => return of.read_at(offset, buffer),
            Self::Local(file) => file,
        };
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Local(file) => Ok(file.write_all_at(bytes, offset)?),
            Self::Weir(of) => of.file.write_at(&of.context, offset, bytes),
        }
    }

    /// Sends buffered writes, so that other processes see them, and closes the file.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Weir(of) => {
                let InCluster { file, context, .. } = *of;
                file.close(&context)
            }
        }
    }

    /// As [`Open::finish`], but also makes the writes durable.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub fn finish_durably(self) -> Result<()> {
        match &self {
            Self::Local(file) => file.sync_all()?,
            Self::Weir(of) => of.file.sync(&of.context)?,
        }
        self.finish()
    }
}

impl InCluster {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if self.near.is_empty() {
            return self.file.read_at(&self.context, offset, buffer);
        }
        let end = offset + buffer.len() as u64;
        match self.read_here(offset, buffer) {
            // The layout has changed since the locations were looked up.
            Err(error) if error.kind == ErrorKind::Stale => {}
            read => {
                read?;
                if self.file.size() >= end {
                    return Ok(buffer.len());
                }
            }
        }
        self.file.read_at(&self.context, offset, buffer)
    }

    /// Reads from a copy on this machine if there is one, and nothing ahead, because another
    /// process reads the following bytes.
    fn read_here(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let before = self.near.partition_point(|(bytes, _)| bytes.end <= offset);
        let end = offset + buffer.len() as u64;
        let near = self.near.get(before).filter(|(at, _)| at.start <= offset && end <= at.end);
        let (target, mut at) = (near.map(|(_, target)| *target), offset);
        buffer.chunks_mut(REQUEST_BYTES).try_for_each(|part| {
            let begin = at;
            at += part.len() as u64;
            self.file.read_from(&self.context, begin, part, target)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_place_and_the_path() {
        let parse = |text: &str| {
            let name = Name::parse(OsStr::new(text)).unwrap();
            (name.place, name.path)
        };
        let cluster = |name: Option<&str>| Place::Cluster(name.map(str::to_owned));
        assert_eq!(parse("a/b"), (Place::Local, "a/b".into()));
        assert_eq!(parse("weir:/a/b/"), (cluster(None), "/a/b".into()));
        assert_eq!(parse("weir:a"), (cluster(None), "/a".into()));
        assert_eq!(parse("weir://two/a"), (cluster(Some("two")), "/a".into()));
        assert_eq!(parse("weir:///a"), (cluster(None), "/a".into()));
        assert_eq!(parse("weir://two"), (cluster(Some("two")), "/".into()));
        assert_eq!([split("/a"), split("a"), split("a/b")], [("/", "a"), (".", "a"), ("a", "b")]);
    }
}

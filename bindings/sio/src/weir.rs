//! A Weir cluster as a backend.

mod regions;

use crate::backend::{Attribute, Backend, How, Identity, OpenFile};
use crate::core::codes::{Code, Failure, Result};
use crate::core::control::{Caching, Layout};
use crate::core::hint::{Hint, Pattern};
use crate::core::list::{Span, before};
use crate::core::name::Name;
use std::any::Any;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use weir_client::{Client, Consistency, Context, CreateOptions, File, Hint as ClientHint};
use weir_connect::Choice;
use weir_types::limits::{MAX_STRIPE_UNIT_BYTES, MIN_STRIPE_UNIT_BYTES};
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, LayoutKind, LayoutSpec};
use weir_wire::Rights;
use weir_wire::meta::{RenameRequest, XattrMode};

/// A session with a cluster.
pub struct Weir {
    client: Arc<Client>,
    context: Context,
}

impl Weir {
    /// Connects to a cluster: by its name on this machine, by the path of a credential file, or for
    /// an empty text to the cluster that `weir` would use.
    ///
    /// # Errors
    /// `IoFailed`, with what to do about it.
    pub fn new(cluster: &OsStr) -> Result<Self> {
        let choice = match cluster.to_str() {
            Some("") => Choice::from_environment(),
            Some(name) if !name.contains('/') => Choice::of_cluster(Some(name)),
            _ => Choice::of_credential(Path::new(cluster)),
        };
        let client = choice.connect("sio").map_err(|problem| {
            Failure::new(code(problem.kind, Code::IoFailed), problem.to_string())
        })?;
        Ok(Self { client: Arc::new(client), context: Context::of(weir_connect::caller()) })
    }

    fn find(&self, name: &Name) -> Result<Attr> {
        let found = self.client.resolve(&self.context, name.bytes(), true);
        found.map_err(|error| failure(error, name))
    }

    fn directory(&self, name: &Name) -> Result<FileId> {
        let found = self.client.resolve(&self.context, name.split().0, true);
        let attr = found.map_err(|error| failure(error, name))?;
        match attr.kind {
            FileKind::Directory => Ok(attr.file),
            _ => Err(failure(ErrorKind::NotDirectory.into(), name)),
        }
    }

    /// The layout of a new file. Fields that are not named come from the directory.
    fn spec(&self, directory: FileId, layout: &Layout) -> Result<LayoutSpec, Error> {
        let default = self.client.default_layout(&self.context, directory)?;
        let base = match default.kind {
            LayoutKind::Striped => default,
            // Striping is requested.
            _ => LayoutSpec {
                copies: default.copies,
                duplication: default.duplication,
                ..LayoutSpec::default()
            },
        };
        let unit = layout.depth.and_then(|depth| u32::try_from(depth).ok());
        Ok(LayoutSpec {
            count: layout.width.and_then(|width| width.try_into().ok()).unwrap_or(base.count),
            stripe_unit_bytes: unit.unwrap_or(base.stripe_unit_bytes),
            ..base
        })
    }
}

fn code(kind: ErrorKind, other: Code) -> Code {
    match kind {
        ErrorKind::NotFound => Code::FileNotFound,
        ErrorKind::Exists => Code::AlreadyExists,
        ErrorKind::NameTooLong
        | ErrorKind::IsDirectory
        | ErrorKind::NotDirectory
        | ErrorKind::SymlinkLoop => Code::InvalidFilename,
        ErrorKind::AccessDenied | ErrorKind::NotPermitted | ErrorKind::ReadOnly => {
            Code::IncorrectMode
        }
        ErrorKind::NoSpace | ErrorKind::QuotaExceeded => Code::NoSpace,
        ErrorKind::Unsupported => Code::OpUnsupported,
        _ => other,
    }
}

fn failure(error: Error, what: &dyn std::fmt::Display) -> Failure {
    Failure::new(code(error.kind, Code::IoFailed), format!("{what}: {error}"))
}

impl Backend for Weir {
    fn open(&self, name: &Name, how: How) -> Result<Box<dyn OpenFile>> {
        let rights = match (how.read, how.write) {
            (true, true) => Rights::READ_WRITE,
            (true, false) => Rights::READ,
            (false, _) => Rights::WRITE,
        };
        let opened = if how.create {
            let directory = self.directory(name)?;
            let spec = how.layout.map(|layout| self.spec(directory, &layout)).transpose();
            spec.and_then(|layout| {
                let options =
                    CreateOptions { exclusive: true, rights, layout, ..CreateOptions::default() };
                self.client.create(&self.context, directory, name.split().1, &options)
            })
        } else {
            let attr = self.find(name)?;
            if attr.kind != FileKind::File {
                let what = format!("{name} is no regular file");
                return Err(Failure::new(Code::InvalidFilename, what));
            }
            self.client.open(&self.context, attr.file, rights)
        };
        let (file, _) = opened.map_err(|error| failure(error, name))?;
        file.set_consistency(match how.caching {
            Caching::None => Consistency::None,
            Caching::Strong => Consistency::Strict,
            Caching::Weak => Consistency::Relaxed,
        });
        let (client, context) = (self.client.clone(), self.context.clone());
        Ok(Box::new(WeirFile { file, client, context, name: name.to_string() }))
    }

    fn identify(&self, name: &Name) -> Result<Identity> {
        Ok((0, self.find(name)?.file.0))
    }

    fn check_directory(&self, name: &Name) -> Result<()> {
        self.directory(name).map(drop)
    }

    fn unlink(&self, name: &Name) -> Result<()> {
        let directory = self.directory(name)?;
        let removed = self.client.unlink(&self.context, directory, name.split().1);
        removed.map(drop).map_err(|error| failure(error, name))
    }

    fn rename(&self, old: &Name, new: &Name) -> Result<()> {
        let request = RenameRequest {
            parent: self.directory(old)?,
            name: old.split().1.into(),
            new_parent: self.directory(new)?,
            new_name: new.split().1.into(),
            no_replace: true,
            exchange: false,
            whiteout: false,
            hold: false,
        };
        let renamed = self.client.rename(&self.context, &request);
        renamed.map_err(|error| failure(error, &format!("{old} to {new}")))
    }

    fn check_layout(&self, layout: &Layout) -> Result<()> {
        let refused = |what: String| Err(Failure::new(Code::OpUnsupported, what));
        let (least, most) = (MIN_STRIPE_UNIT_BYTES, MAX_STRIPE_UNIT_BYTES);
        if let Some(depth) = layout.depth
            && (depth % u64::from(least) != 0 || depth > most.into())
        {
            return refused(format!(
                "a stripe depth of {depth} bytes: it is a multiple of {least}, and {most} at most"
            ));
        }
        if let Some(width) = layout.width {
            let map = self.client.cluster_map();
            let map = map.map_err(|error| failure(error, &"the servers of the cluster"))?;
            let targets = map.targets().count();
            if width as usize > targets {
                return refused(format!("a stripe width of {width}: there are {targets} targets"));
            }
        }
        Ok(())
    }
}

struct WeirFile {
    file: File,
    client: Arc<Client>,
    context: Context,
    name: String,
}

impl WeirFile {
    fn say(&self, error: Error) -> Failure {
        failure(error, &self.name)
    }

    fn read_one(&self, span: Span, buffer: &mut [u8]) -> Result<u64> {
        let read = self.file.read_at(&self.context, span.start, buffer);
        read.map(|bytes| bytes as u64).map_err(|error| self.say(error))
    }
}

impl OpenFile for WeirFile {
    fn identity(&self) -> Identity {
        (0, self.file.id().0)
    }

    fn read(&self, spans: &[Span], buffer: &mut [u8], pattern: Pattern) -> Result<u64> {
        let hint = match pattern {
            Pattern::Unknown | Pattern::Sequential => Some(ClientHint::Normal),
            Pattern::Reverse => Some(ClientHint::Reverse),
            Pattern::Records(bytes) => Some(ClientHint::Records(bytes)),
            Pattern::RandomPartial | Pattern::RandomComplete | Pattern::ReadOnce => None,
        };
        if let ([one], Some(hint)) = (spans, hint) {
            self.file.hint(&self.context, hint).map_err(|error| self.say(error))?;
            return self.read_one(*one, buffer);
        }
        let end = spans.iter().map(|span| span.end()).max().unwrap_or(0);
        let size = self.file.size_for(&self.context, end).map_err(|error| self.say(error))?;
        let (spans, total) = before(spans, size);
        let mut rest = &mut buffer[..total as usize];
        for list in regions::lists(&spans).map_err(|error| self.say(error))? {
            let (here, later) = rest.split_at_mut(list.total_bytes() as usize);
            let read = self.file.read_regions(&self.context, &list, here);
            read.map_err(|error| self.say(error))?;
            rest = later;
        }
        Ok(total)
    }

    fn write(&self, spans: &[Span], data: &[u8]) -> Result<()> {
        if let [one] = spans {
            let written = self.file.write_at(&self.context, one.start, data);
            return written.map_err(|error| self.say(error));
        }
        let (spans, sorted) = regions::ascending(spans, data);
        let mut rest = sorted.as_deref().unwrap_or(data);
        for list in regions::lists(&spans).map_err(|error| self.say(error))? {
            let (here, later) = rest.split_at(list.total_bytes() as usize);
            let written = self.file.write_regions(&self.context, &list, here);
            written.map_err(|error| self.say(error))?;
            rest = later;
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        let attr = self.client.getattr(&self.context, self.file.id());
        attr.map(|attr| attr.size).map_err(|error| self.say(error))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.file.truncate(&self.context, size).map(drop).map_err(|error| self.say(error))
    }

    fn allocation(&self) -> Result<u64> {
        let attr = self.client.getattr(&self.context, self.file.id());
        let attr = attr.map_err(|error| self.say(error))?;
        Ok(self.client.allocated(&self.context, &attr).unwrap_or(attr.size))
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        let room = self.client.statfs(&self.context, self.file.id());
        let free = room.map_err(|error| self.say(error))?.free_bytes;
        if bytes > free {
            // Otherwise all free space would be reserved before it proves too little.
            let what = format!("{}: {bytes} bytes to reserve, {free} are free", self.name);
            return Err(Failure::new(Code::NoSpace, what));
        }
        let reserved = match bytes {
            0 => Ok(()),
            _ => self.file.allocate(&self.context, 0, bytes, true),
        };
        reserved.map_err(|error| self.say(error))
    }

    fn propagate(&self, _spans: Option<&[Span]>) -> Result<()> {
        self.file.flush(&self.context).map_err(|error| self.say(error))
    }

    fn refresh(&self, _spans: Option<&[Span]>) -> Result<()> {
        self.file.refresh(&self.context).map_err(|error| self.say(error))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync(&self.context).map_err(|error| self.say(error))
    }

    fn layout(&self) -> Result<Layout> {
        let layout = self.file.layout();
        let segment = layout.segments.first();
        Ok(Layout {
            width: segment.map(|segment| segment.columns.len() as u32),
            depth: segment.map(|segment| segment.stripe_unit_bytes.into()),
            algorithm: layout.kind == LayoutKind::Striped,
        })
    }

    fn consistency_unit(&self) -> u64 {
        1
    }

    fn attribute(&self, attribute: Attribute) -> Result<Option<Vec<u8>>> {
        let name = attribute.name().as_bytes();
        match self.client.get_xattr(&self.context, self.file.id(), name) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind == ErrorKind::NoAttribute => Ok(None),
            Err(error) => Err(self.say(error)),
        }
    }

    fn set_attribute(&self, attribute: Attribute, value: &[u8]) -> Result<()> {
        let (file, name) = (self.file.id(), attribute.name().as_bytes());
        let set = self.client.set_xattr(&self.context, file, name, value, XattrMode::Any);
        set.map_err(|error| self.say(error))
    }

    fn copy_from(&self, source: &dyn OpenFile, from: Span, to: u64) -> Result<u64> {
        let any: &dyn Any = source;
        let Some(source) = any.downcast_ref::<Self>() else {
            return Err(Failure::new(Code::OpUnsupported, "the files are of different systems"));
        };
        let mut done = 0;
        while done < from.len {
            let (at, to, left) = (from.start + done, to + done, from.len - done);
            let copied = source.file.copy_range(&self.context, at, &self.file, to, left);
            match copied.map_err(|error| self.say(error))? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    fn advise(&self, hint: &Hint) {
        if hint.no_further_use {
            // A failed hint is ignored: the read reports what is wrong.
            let _ = self.file.hint(&self.context, ClientHint::DoneWith(0, u64::MAX));
        }
        if hint.will_use && !hint.write {
            let all = [Span { start: 0, len: self.file.size() }];
            let spans = if hint.spans.is_empty() { &all[..] } else { &hint.spans };
            for span in spans {
                let will_need = ClientHint::WillNeed(span.start, span.len);
                let _ = self.file.hint(&self.context, will_need);
            }
        }
    }

    fn close(&self) -> Result<()> {
        self.file.flush(&self.context).map_err(|error| self.say(error))
    }
}

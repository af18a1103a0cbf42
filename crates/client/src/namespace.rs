//! Names, attributes, directories: calls to the metadata server.

use crate::client::Client;
use crate::context::Context;
use crate::core::news::Found;
use crate::file::File;
use std::time::Duration;
use weir_host::clock::since_boot;
use weir_types::codec::Bytes;
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, FsUsage, LayoutSpec, Result};
use weir_wire::capability::Rights;
use weir_wire::meta::{
    CreateRequest, DirPage, GetDefaultLayoutRequest, LinkRequest, MkdirRequest, OpenRequest,
    ReaddirRequest, ReadlinkRequest, RemoveXattrRequest, RenameRequest, RmdirRequest,
    SetAttrRequest, SetLayoutRequest, SetXattrRequest, StatfsRequest, SymlinkRequest,
    UnlinkRequest, XattrMode,
};

/// How to create a file.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Permission bits.
    pub mode: u16,
    /// Bits that are taken from them, unless the directory has a default access control list.
    pub umask: u16,
    /// Fail if the name exists.
    pub exclusive: bool,
    /// Empty the file if it exists.
    pub truncate: bool,
    /// The rights to open it with.
    pub rights: Rights,
    /// Layout; `None`: the directory's default.
    pub layout: Option<LayoutSpec>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            mode: 0o644,
            umask: 0,
            exclusive: false,
            truncate: false,
            rights: Rights::READ_WRITE,
            layout: None,
        }
    }
}

impl Client {
    /// Finds a name in a directory.
    pub fn lookup(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<Attr> {
        self.inner.lookup(ctx, parent, name)
    }

    /// Finds a path from the root, following no symbolic link in its last part
    /// unless `follow`. Empty parts are ignored; `..` is not interpreted.
    pub fn resolve(&self, ctx: &Context, path: &[u8], follow: bool) -> Result<Attr> {
        let mut links = 0;
        let mut todo: Vec<Vec<u8>> = parts(path);
        let mut trail = vec![self.getattr(ctx, FileId::ROOT)?];
        while let Some(name) = todo.pop() {
            if name == b".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let at = trail.last().map_or(FileId::ROOT, |a| a.file);
            let attr = self.lookup(ctx, at, &name)?;
            if attr.kind == FileKind::Symlink && (follow || !todo.is_empty()) {
                links += 1;
                if links > 40 {
                    return Err(ErrorKind::SymlinkLoop.into());
                }
                let target = self.readlink(ctx, attr.file)?;
                if target.first() == Some(&b'/') {
                    trail.truncate(1);
                }
                todo.extend(parts(&target));
                continue;
            }
            trail.push(attr);
        }
        trail.pop().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Attributes of a file, this client's own writes included.
    pub fn getattr(&self, ctx: &Context, file: FileId) -> Result<Attr> {
        self.inner.getattr(ctx, file)
    }

    /// Bytes of disk that a file takes which has these attributes (`st_blocks`); `None`: as many
    /// as its size says. Costs messages for files that may have holes ([`Attr::sparse`]), unless
    /// nothing was changed since it was asked before.
    pub fn allocated(&self, ctx: &Context, attr: &Attr) -> Option<u64> {
        self.inner.allocated(ctx, attr)
    }

    /// Changes attributes (see [`crate::set_nothing`]).
    pub fn setattr(&self, ctx: &Context, request: &SetAttrRequest) -> Result<Attr> {
        self.inner.set_attr(ctx, request).map(|attr| self.inner.seen(attr))
    }

    /// A file is being read: its time of access is to be now; unless `always`, only if it is not
    /// later than that of the last change, or a day old. It is shown with the file's attributes
    /// from now on, and the metadata server is told of it later.
    pub fn note_access(&self, file: FileId, always: bool) {
        self.inner.accesses.note(file, always);
    }

    /// Attributes that are known without asking.
    pub fn known_attr(&self, file: FileId) -> Option<Attr> {
        self.inner.known_attr(file)
    }

    /// How long what is kept may be believed if nothing more is heard of the metadata server.
    pub fn keeps_for(&self) -> Duration {
        self.inner.holdings.clock.good_until().saturating_sub(since_boot())
    }

    /// Opens a file.
    pub fn open(&self, ctx: &Context, file: FileId, rights: Rights) -> Result<(File, Attr)> {
        let _under_way = self.inner.begin_open();
        let (reply, found) = self.inner.session.alter(ctx, &OpenRequest { file, rights });
        let reply = reply?;
        let handle = self.inner.opened(ctx, &reply, found, false)?;
        Ok((handle, self.inner.seen(reply.attr)))
    }

    /// Creates and opens a regular file.
    pub fn create(
        &self,
        ctx: &Context,
        parent: FileId,
        name: &[u8],
        options: &CreateOptions,
    ) -> Result<(File, Attr)> {
        if name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a file's name is not empty"));
        }
        self.make_open(ctx, parent, Some(name), options)
    }

    /// Creates and opens a regular file without a name (`O_TMPFILE`), with the layout of the
    /// directory's new files. It goes when it is closed, unless [`Client::link`] has given it one.
    pub fn create_unnamed(
        &self,
        ctx: &Context,
        parent: FileId,
        options: &CreateOptions,
    ) -> Result<(File, Attr)> {
        self.make_open(ctx, parent, None, options)
    }

    fn make_open(
        &self,
        ctx: &Context,
        parent: FileId,
        name: Option<&[u8]>,
        options: &CreateOptions,
    ) -> Result<(File, Attr)> {
        let request = CreateRequest {
            parent,
            name: name.unwrap_or_default().into(),
            kind: FileKind::File,
            mode: options.mode,
            umask: options.umask,
            rdev: 0,
            exclusive: options.exclusive,
            truncate: options.truncate,
            rights: options.rights,
            layout: options.layout.clone(),
        };
        let _under_way = self.inner.begin_open();
        let name = name.map(|name| (parent, name));
        let (reply, changed) = self.inner.alter(ctx, &request, &[], name.as_slice());
        let reply = reply?;
        self.inner.keep_changed(changed, &reply.attr, name);
        let emptied = options.truncate && reply.attr.size == 0;
        let handle = self.inner.opened(ctx, &reply, changed.found, emptied)?;
        Ok((handle, self.inner.seen(reply.attr)))
    }

    /// Makes a regular or special file without opening it. `umask`: see [`CreateOptions`].
    pub fn mknod(
        &self,
        ctx: &Context,
        parent: FileId,
        name: &[u8],
        kind: FileKind,
        (mode, umask): (u16, u16),
        rdev: u32,
    ) -> Result<Attr> {
        if kind == FileKind::File {
            let options =
                CreateOptions { mode, umask, exclusive: true, ..CreateOptions::default() };
            let (file, attr) = self.create(ctx, parent, name, &options)?;
            file.close(ctx)?;
            return Ok(attr);
        }
        let request = CreateRequest {
            parent,
            name: name.into(),
            kind,
            mode,
            umask,
            rdev,
            exclusive: true,
            truncate: false,
            rights: Rights::READ,
            layout: None,
        };
        let (reply, changed) = self.inner.alter(ctx, &request, &[], &[(parent, name)]);
        let attr = reply?.attr;
        self.inner.keep_changed(changed, &attr, Some((parent, name)));
        Ok(attr)
    }

    /// Makes a directory.
    pub fn mkdir(&self, ctx: &Context, parent: FileId, name: &[u8], mode: u16) -> Result<Attr> {
        self.mkdir_masked(ctx, parent, name, (mode, 0))
    }

    /// Makes a directory. `umask`: see [`CreateOptions`].
    pub fn mkdir_masked(
        &self,
        ctx: &Context,
        parent: FileId,
        name: &[u8],
        (mode, umask): (u16, u16),
    ) -> Result<Attr> {
        let request = MkdirRequest { parent, name: name.into(), mode, umask };
        let (attr, changed) = self.inner.alter(ctx, &request, &[], &[(parent, name)]);
        let attr = attr?;
        self.inner.keep_changed(changed, &attr, Some((parent, name)));
        Ok(attr)
    }

    /// Removes a name that is not a directory's; returns what is left of its
    /// file: the attributes, with `nlink` 0 if that was its last name.
    pub fn unlink(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<Option<Attr>> {
        self.remove(ctx, &UnlinkRequest { parent, name: name.into(), hold: false })
    }

    /// The same, but if it was the last name of a regular file (`nlink` 0), that stays as it
    /// would if it was open, until [`Client::let_go`].
    pub fn unlink_and_hold(
        &self,
        ctx: &Context,
        parent: FileId,
        name: &[u8],
    ) -> Result<Option<Attr>> {
        self.remove(ctx, &UnlinkRequest { parent, name: name.into(), hold: true })
    }

    fn remove(&self, ctx: &Context, request: &UnlinkRequest) -> Result<Option<Attr>> {
        let names = [(request.parent, &request.name[..])];
        let ctx = Context { learns_end: request.hold, ..ctx.clone() };
        let (reply, changed) = self.inner.alter(&ctx, request, &[], &names);
        Ok(self.left(reply?.attr, request.hold, changed.found))
    }

    /// What is left of a file that has lost a name.
    fn left(&self, left: Option<Attr>, hold: bool, found: Found) -> Option<Attr> {
        if let Some(attr) = &left {
            self.inner.forget(attr.file);
            if hold && attr.nlink == 0 && attr.kind == FileKind::File {
                self.inner.is_held(attr.file, found);
            }
        }
        left
    }

    /// A file that was held is not needed any more. The metadata server is told soon, of many at
    /// once.
    pub fn let_go(&self, file: FileId) {
        self.inner.let_go(file);
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<()> {
        let request = RmdirRequest { parent, name: name.into() };
        self.inner.alter(ctx, &request, &[], &[(parent, name)]).0
    }

    /// Moves a name.
    pub fn rename(&self, ctx: &Context, request: &RenameRequest) -> Result<()> {
        self.replace(ctx, request).map(drop)
    }

    /// Renames, and says what it has replaced, as it is now: see [`Client::unlink_and_hold`].
    pub fn replace(&self, ctx: &Context, request: &RenameRequest) -> Result<Option<Attr>> {
        let names =
            [(request.parent, &request.name[..]), (request.new_parent, &request.new_name[..])];
        let ctx = Context { learns_end: request.hold, ..ctx.clone() };
        let (reply, changed) = self.inner.alter(&ctx, request, &[], &names);
        Ok(self.left(reply?.attr, request.hold, changed.found))
    }

    /// Gives a file another name.
    pub fn link(&self, ctx: &Context, file: FileId, parent: FileId, name: &[u8]) -> Result<Attr> {
        let request = LinkRequest { file, parent, name: name.into() };
        let (attr, changed) = self.inner.alter(ctx, &request, &[file], &[(parent, name)]);
        let attr = attr?;
        self.inner.keep_changed(changed, &attr, Some((parent, name)));
        Ok(self.inner.seen(attr))
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        ctx: &Context,
        parent: FileId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        let request = SymlinkRequest { parent, name: name.into(), target: target.into() };
        let (attr, changed) = self.inner.alter(ctx, &request, &[], &[(parent, name)]);
        let attr = attr?;
        self.inner.keep_changed(changed, &attr, Some((parent, name)));
        Ok(attr)
    }

    /// What a symbolic link says.
    pub fn readlink(&self, ctx: &Context, file: FileId) -> Result<Vec<u8>> {
        Ok(self.inner.session.call(ctx, &ReadlinkRequest { file })?.0)
    }

    /// A part of a directory, from a cookie on (0: the beginning). `last`: where the listing
    /// ends, as its first page has said (0 when that is asked for).
    pub fn readdir(
        &self,
        ctx: &Context,
        dir: FileId,
        (cookie, last): (u64, u64),
        max_entries: u32,
        attributes: bool,
    ) -> Result<DirPage> {
        let request = ReaddirRequest { dir, cookie, last, max_entries, attributes };
        self.inner.readdir(ctx, &request)
    }

    /// The value of an extended attribute.
    pub fn get_xattr(&self, ctx: &Context, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.get_xattr(ctx, file, name)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        ctx: &Context,
        file: FileId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let request = SetXattrRequest { file, name: name.into(), value: value.into(), mode };
        self.inner.alter(ctx, &request, &[file], &[]).0
    }

    /// The names of all extended attributes.
    pub fn list_xattr(&self, ctx: &Context, file: FileId) -> Result<Vec<Bytes>> {
        self.inner.list_xattr(ctx, file)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, ctx: &Context, file: FileId, name: &[u8]) -> Result<()> {
        let request = RemoveXattrRequest { file, name: name.into() };
        self.inner.alter(ctx, &request, &[file], &[]).0
    }

    /// Space of the file system, or what the quotas of directories leave for a file or in a
    /// directory.
    pub fn statfs(&self, ctx: &Context, file: FileId) -> Result<FsUsage> {
        self.inner.session.call(ctx, &StatfsRequest { file })
    }

    /// Sets the default layout of a directory, lays an empty file out anew, or says which
    /// copies there are to be of a file with data: what is not named of those stays.
    pub fn set_layout(
        &self,
        ctx: &Context,
        file: FileId,
        layout: Option<LayoutSpec>,
    ) -> Result<()> {
        self.inner.alter(ctx, &SetLayoutRequest { file, layout }, &[file], &[]).0
    }

    /// The layout that new files of a directory get.
    pub fn default_layout(&self, ctx: &Context, dir: FileId) -> Result<LayoutSpec> {
        self.inner.session.call(ctx, &GetDefaultLayoutRequest { dir })
    }

    /// Makes all names and attributes changed so far durable.
    pub fn sync_metadata(&self, ctx: &Context) -> Result<()> {
        self.inner.session.sync(ctx)
    }
}

/// The parts of a path, the last first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
    parts.map(<[u8]>::to_vec).rev().collect()
}

//! Names, attributes, directories: calls to the metadata server.

use super::Client;
use crate::context::Context;
use crate::core::news::Found;
use crate::file::{File, set_nothing};
use crate::leases::Cut;
use crate::state::{Call, Writer};
use std::time::Duration;
use weir_host::clock::since_boot;
use weir_host::plant::{Bug, planted};
use weir_types::codec::Bytes;
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, FsUsage, LayoutSpec, Result};
use weir_wire::capability::Rights;
use weir_wire::meta::{
    CreateRequest, DirPage, GetDefaultLayoutRequest, GetXattrRequest, LinkRequest, MkdirRequest,
    OpenRequest, ReaddirRequest, ReadlinkRequest, RemoveXattrRequest, RenameRequest, RmdirRequest,
    SetAttrRequest, SetLayoutRequest, SetXattrRequest, StatfsRequest, SymlinkRequest,
    UnlinkRequest, XattrMode,
};

/// How often a name may become another file's while its file is emptied.
const MAX_REPLACED: usize = 16;

/// Options for creating a file.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Permission bits.
    pub mode: u16,
    /// Bits that are removed from the mode, unless the directory has a default access control list.
    pub umask: u16,
    /// Fail if the name exists.
    pub exclusive: bool,
    /// Truncate the file if it exists.
    pub truncate: bool,
    /// Rights to open the file with.
    pub rights: Rights,
    /// Layout; `None` for the directory's default.
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
    /// Looks up a name in a directory.
    pub fn lookup(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<Attr> {
        self.inner.lookup(ctx, parent, name)
    }

    /// Looks up a path from the root. A symbolic link as the last part is followed only with
    /// `follow`. Empty parts are ignored; `..` is not interpreted.
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

    /// Attributes of a file, with this client's own writes.
    pub fn getattr(&self, ctx: &Context, file: FileId) -> Result<Attr> {
        self.inner.getattr(ctx, file)
    }

    /// Bytes of disk of a file with these attributes (`st_blocks`); `None` if they equal its size.
    /// Costs messages for files that may have holes ([`Attr::sparse`]), unless nothing has changed
    /// since the last query.
    pub fn allocated(&self, ctx: &Context, attr: &Attr) -> Option<u64> {
        self.inner.allocated(ctx, attr)
    }

    /// Changes attributes (see [`crate::set_nothing`]).
    pub fn setattr(&self, ctx: &Context, request: &SetAttrRequest) -> Result<Attr> {
        self.inner.set_attr(ctx, request).map(|attr| self.inner.seen(attr))
    }

    /// Notes that a file is being read: its access time becomes the present time. Without `always`
    /// that happens only if the access time is not later than the last change, or is a day old. The
    /// file's attributes show it from now on, and the metadata server is told later.
    pub fn note_access(&self, file: FileId, always: bool) {
        self.inner.accesses.note(file, always);
    }

    /// Cached attributes.
    pub fn known_attr(&self, file: FileId) -> Option<Attr> {
        self.inner.known_attr(file)
    }

    /// Cached attributes of a file that is not open here. They change only with news for the layer
    /// above ([`crate::UpperCache`]) or when it notes an access itself.
    pub fn settled_attr(&self, file: FileId) -> Option<Attr> {
        let is_open = self.inner.open_state(file).is_some();
        (!is_open).then(|| self.known_attr(file)).flatten()
    }

    /// The file of a cached name. It changes only with news for the layer above
    /// ([`crate::UpperCache::names_change`]), or by a change of this client.
    pub fn known_name(&self, dir: FileId, name: &[u8]) -> Option<FileId> {
        self.inner.known_name(dir, name)
    }

    /// How long cached data may be used if nothing more arrives from the metadata server.
    pub fn keeps_for(&self) -> Duration {
        self.inner.holdings.clock.good_until().saturating_sub(since_boot())
    }

    /// Opens a file.
    pub fn open(&self, ctx: &Context, file: FileId, rights: Rights) -> Result<(File, Attr)> {
        let _under_way = self.inner.begin_open();
        let (reply, found) = self.inner.session.alter(ctx, &OpenRequest { file, rights });
        let (reply, _) = reply?;
        let handle = self.inner.opened(ctx, &reply, found)?;
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

    /// Creates and opens a regular file without a name (`O_TMPFILE`), with the default layout of
    /// the directory. It is removed when it is closed, unless [`Client::link`] has given it a name.
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
        let mut made = self.open_made(ctx, name, &request);
        for _ in 0..MAX_REPLACED {
            match (&made, name) {
                (Err(error), Some(name)) if error.kind == ErrorKind::Busy && request.truncate => {
                    if let Some(opened) = self.cut_and_open(ctx, name, &request)? {
                        return Ok(opened);
                    }
                }
                _ => break,
            }
            made = self.open_made(ctx, name, &request);
        }
        made
    }

    /// Empties and opens a file that this client has open: then the cut excludes the writes of other
    /// threads. It comes first, because an empty file needs no copies in place of its parities.
    /// `None`: the name has become another file's.
    fn cut_and_open(
        &self,
        ctx: &Context,
        name: &[u8],
        request: &CreateRequest,
    ) -> Result<Option<(File, Attr)>> {
        let there = match self.lookup(ctx, request.parent, name) {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            there => there?,
        };
        self.inner.set_attr(ctx, &SetAttrRequest { size: Some(0), ..set_nothing(there.file) })?;
        let request = CreateRequest { truncate: false, ..request.clone() };
        let (handle, attr) = self.open_made(ctx, Some(name), &request)?;
        if attr.file == there.file {
            return Ok(Some((handle, attr)));
        }
        handle.close(ctx)?;
        Ok(None)
    }

    fn open_made(
        &self,
        ctx: &Context,
        name: Option<&[u8]>,
        request: &CreateRequest,
    ) -> Result<(File, Attr)> {
        let _under_way = self.inner.begin_open();
        let name = name.map(|name| (request.parent, name));
        let (reply, changed) = self.inner.alter(ctx, request, &[], name.as_slice());
        let reply = reply?;
        self.inner.keep_changed(&changed, &reply.attr, name);
        let handle = self.inner.opened(ctx, &reply, changed.found)?;
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
        self.inner.keep_changed(&changed, &attr, Some((parent, name)));
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
        self.inner.keep_changed(&changed, &attr, Some((parent, name)));
        self.inner.keep_empty(&changed, attr.file);
        Ok(attr)
    }

    /// Removes a name of a file that is no directory. Returns the file's attributes, with `nlink` 0
    /// if that was its last name.
    pub fn unlink(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<Option<Attr>> {
        self.remove(ctx, &UnlinkRequest { parent, name: name.into(), hold: false })
    }

    /// As [`Client::unlink`], but a regular file without names (`nlink` 0) stays as if it was open,
    /// until [`Client::let_go`].
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
        let left = self.left(reply?.attr, request.hold, changed.found);
        self.inner.keep_changed_name(&changed, names[0], None);
        Ok(left)
    }

    /// The attributes of a file that has lost a name.
    fn left(&self, left: Option<Attr>, hold: bool, found: Found) -> Option<Attr> {
        if let Some(attr) = &left {
            if !self.inner.has_learned(attr) {
                self.inner.forget(attr.file);
            }
            if hold && attr.nlink == 0 && attr.kind == FileKind::File {
                self.inner.is_held(attr.file, found);
            }
        }
        left
    }

    /// Ends the hold on a file. The metadata server is told soon, of many files at once.
    pub fn let_go(&self, file: FileId) {
        self.inner.let_go(file);
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, ctx: &Context, parent: FileId, name: &[u8]) -> Result<()> {
        let request = RmdirRequest { parent, name: name.into() };
        let (done, changed) = self.inner.alter(ctx, &request, &[], &[(parent, name)]);
        done?;
        self.inner.keep_changed_name(&changed, (parent, name), None);
        Ok(())
    }

    /// Renames a file or directory.
    pub fn rename(&self, ctx: &Context, request: &RenameRequest) -> Result<()> {
        self.replace(ctx, request).map(drop)
    }

    /// Renames, and returns the present attributes of the replaced file: see
    /// [`Client::unlink_and_hold`].
    pub fn replace(&self, ctx: &Context, request: &RenameRequest) -> Result<Option<Attr>> {
        let names =
            [(request.parent, &request.name[..]), (request.new_parent, &request.new_name[..])];
        let ctx = Context { learns_end: request.hold, ..ctx.clone() };
        let (reply, changed) = self.inner.alter(&ctx, request, &[], &names);
        let left = self.left(reply?.attr, request.hold, changed.found);
        let is_plain = !request.exchange && !request.whiteout && names[0] != names[1];
        // Besides the directories only these two have changed.
        let replaced = left.as_ref().map(|left| left.file);
        let dirs = [request.parent, request.new_parent];
        let mut others = changed.also.iter().filter(|file| !dirs.contains(file));
        if let Some(moved) = others.find(|file| replaced != Some(**file)).filter(|_| is_plain) {
            self.inner.keep_changed_name(&changed, names[0], None);
            self.inner.keep_changed_name(&changed, names[1], Some(*moved));
        }
        Ok(left)
    }

    /// Adds a name to a file (hard link).
    pub fn link(&self, ctx: &Context, file: FileId, parent: FileId, name: &[u8]) -> Result<Attr> {
        let request = LinkRequest { file, parent, name: name.into() };
        let (attr, changed) = self.inner.alter(ctx, &request, &[file], &[(parent, name)]);
        let attr = attr?;
        self.inner.keep_changed(&changed, &attr, Some((parent, name)));
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
        self.inner.keep_changed(&changed, &attr, Some((parent, name)));
        Ok(attr)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ctx: &Context, file: FileId) -> Result<Vec<u8>> {
        assert!(!planted(Bug::PanicAtLinks), "planted");
        Ok(self.inner.session.call(ctx, &ReadlinkRequest { file })?.0)
    }

    /// A page of a directory, from a cookie on (0 for the beginning). `last` is the end of the
    /// listing as its first page has said it (0 for the first page).
    pub fn readdir(
        &self,
        ctx: &Context,
        dir: FileId,
        (cookie, last): (u64, u64),
        max_entries: u32,
        attributes: bool,
    ) -> Result<DirPage> {
        let layouts = false;
        let request = ReaddirRequest { dir, cookie, last, max_entries, attributes, layouts };
        self.inner.readdir(ctx, &request)
    }

    /// The value of an extended attribute.
    pub fn get_xattr(&self, ctx: &Context, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.get_xattr(ctx, file, name)
    }

    /// As [`Client::get_xattr`], but asks the metadata server in any case.
    pub fn get_xattr_anew(&self, ctx: &Context, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        let request = GetXattrRequest { file, name: name.into() };
        Ok(self.inner.session.call(ctx, &request)?.0)
    }

    /// Sets an extended attribute, whether it exists or not, and asks again as long as there is no
    /// answer and `go_on` allows it. However often it asks, the attribute is set once.
    pub fn set_xattr_at_last(
        &self,
        ctx: &Context,
        file: FileId,
        (name, value): (&[u8], &[u8]),
        go_on: impl Fn() -> bool,
    ) -> Result<()> {
        let (name, value, mode) = (name.into(), value.into(), XattrMode::Any);
        let request = SetXattrRequest { file, name, value, mode };
        self.inner.session.change_at_last(ctx, &request, go_on)
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

    /// Space of the file system, or what the quotas of enclosing directories leave for a file or
    /// directory.
    pub fn statfs(&self, ctx: &Context, file: FileId) -> Result<FsUsage> {
        self.inner.session.call(ctx, &StatfsRequest { file })
    }

    /// Sets the default layout of a directory, changes the layout of an empty file, or sets the
    /// copies of a file with data. Settings that are not named stay.
    pub fn set_layout(
        &self,
        ctx: &Context,
        file: FileId,
        layout: Option<LayoutSpec>,
    ) -> Result<()> {
        // An empty file gets other objects: what is written meanwhile would not be in them.
        let cut = Cut::begin(&self.inner, file);
        let _alone = cut.alone();
        let state = self.inner.open_state(file);
        if let Some(state) = &state {
            // The file is not empty if this client has written to it.
            Writer::flush_and_keep_error(Call { inner: &self.inner, file: state, ctx })?;
        }
        let before = state.as_ref().map(|state| state.generation());
        let request = SetLayoutRequest { file, layout };
        state.iter().for_each(|state| state.begin_resize());
        let (done, _) = self.inner.alter(ctx, &request, &[file], &[]);
        state.iter().for_each(|state| state.end_resize(None));
        let Some((state, before)) = state.zip(before) else { return done };
        if done.is_err() {
            // It may have been done all the same: the next call asks for its lease again, and
            // learns of that.
            state.lease().lose();
            return done;
        }
        // An empty file has other objects now.
        state.refresh(&self.inner, ctx)?;
        if state.is_fenced_off(&self.inner.config, before) {
            // What was written meanwhile is not in them.
            state.lose_leases();
        }
        Ok(())
    }

    /// The default layout of new files in a directory.
    pub fn default_layout(&self, ctx: &Context, dir: FileId) -> Result<LayoutSpec> {
        self.inner.session.call(ctx, &GetDefaultLayoutRequest { dir })
    }

    /// Makes all changes of names and attributes so far durable.
    pub fn sync_metadata(&self, ctx: &Context) -> Result<()> {
        self.inner.session.sync(ctx)
    }
}

/// The parts of a path, the last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
    parts.map(<[u8]>::to_vec).rev().collect()
}

//! Directory listings: from pages of the metadata server to the kernel's buffer.

use crate::open::handles::Handle;
use crate::operations::callers::READ;
use crate::operations::gone::in_directory;
use crate::operations::told::asker;
use crate::translate::for_kernel;
use crate::weirfs::WeirFs;
use weir_fuse::{DirEntry, DirSink, Entry, Errno, NodeId, Reply, RequestContext};
use weir_types::FileKind;

/// Entries in one request to the metadata server.
const DIR_PAGE: u32 = 512;
/// Cookies 1 and 2 are `.` and `..`; those of the server follow.
const DOTS: u64 = 2;

impl WeirFs {
    /// Lists a directory from an offset until the sink is full or the directory ends.
    pub(crate) fn list(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        self.heard(ctx);
        let mut names_last = false;
        let listed = self.list_into(ctx, (node, fh), offset, sink, &mut names_last);
        if !names_last {
            self.cache.names.tells_none(asker(ctx));
        }
        listed
    }

    /// As [`Self::list`]; says whether the kernel is told of names with a lifetime.
    fn list_into(
        &self,
        ctx: &RequestContext<'_>,
        (node, fh): (NodeId, u64),
        offset: u64,
        sink: &mut DirSink<'_>,
        names_last: &mut bool,
    ) -> Reply<()> {
        let handle = self.handle(fh)?;
        let Handle::Dir(dir) = &*handle else { return Err(Errno::EBADF) };
        let listed = self.file(node)?;
        if offset == 0 {
            dir.begin();
        }
        if offset == 0 && !dir.unseen {
            self.is_listed(listed);
        }
        // One that was found by its number alone is its own, which is of no harm: the kernel does
        // not go up by it.
        let parent = self.nodes.parent(node).unwrap_or(listed);
        for (at, file, name) in [(0, listed, &b"."[..]), (1, parent, &b".."[..])] {
            let dot = DirEntry {
                node: file.0,
                kind: FileKind::Directory,
                name,
                next_offset: at + 1,
                entry: None,
            };
            if offset <= at && !sink.push(&dot) {
                return Ok(());
            }
        }
        let mut cookie = offset.saturating_sub(DOTS);
        let (mut lasting, mut is_told) = (false, false);
        loop {
            let page = match dir.take(cookie) {
                Some(page) => page,
                // What ends a lifetime waits for the reply.
                None if lasting => return Ok(()),
                None => {
                    let attributes = sink.wants_entries();
                    let from = (cookie, dir.last());
                    let page = |by: &_| self.client.readdir(by, listed, from, DIR_PAGE, attributes);
                    let judged = |page: &dyn Fn(&_) -> _| self.judged(ctx, listed, READ, page);
                    let page = match in_directory(for_kernel(ctx, page, judged)) {
                        // The kernel counts what it is told of, and it is told of nothing by an
                        // error. It asks for the rest again.
                        Err(_) if is_told => return Ok(()),
                        page => page?,
                    };
                    dir.ends_at(page.last);
                    page
                }
            };
            for (i, found) in page.entries.iter().enumerate() {
                // Without attributes the kernel asks when somebody wants them.
                // (A page may be left that was asked for with them.)
                let told = found.attr.as_ref().filter(|_| sink.wants_entries());
                let attr = told.cloned().filter(|attr| self.cache.may_tell(ctx.pid, attr));
                let entry = attr.map(|attr| {
                    let mut entry = Entry::new(attr, self.ttl());
                    self.number(&mut entry, node, &found.name);
                    let name = (listed, &found.name[..]);
                    let entry_ttl = self.name_lifetime(ctx, name, found.file, true);
                    if entry_ttl.is_zero() && !*names_last {
                        self.cache.names.tells_none(asker(ctx));
                    }
                    self.lasting(ctx, Entry { entry_ttl, ..entry })
                });
                let pushed = sink.push(&DirEntry {
                    node: found.file.0,
                    kind: found.kind,
                    name: &found.name,
                    next_offset: found.cookie + DOTS,
                    entry: entry.as_ref(),
                });
                is_told |= pushed;
                if let Some(entry) = entry.as_ref().filter(|_| pushed) {
                    *names_last |= !entry.entry_ttl.is_zero();
                    lasting |= !entry.attr_ttl.is_zero() || *names_last;
                }
                if !pushed {
                    // The kernel does not learn of it.
                    if let Some(entry) = entry {
                        if !entry.attr_ttl.is_zero() {
                            self.cache.was_told(entry.attr.file);
                        }
                        self.forgotten(entry.node, 1);
                    }
                    dir.put_back(cookie, page, i);
                    return Ok(());
                }
                cookie = found.cookie;
            }
            if page.end {
                // The kernel asks for what follows, and needs no message to learn that nothing does.
                let all = page.entries.len();
                dir.put_back(cookie, page, all);
                return Ok(());
            }
            if page.entries.is_empty() {
                return Ok(());
            }
        }
    }
}

//! A client of a run: makes the calls of the plan with the real client library, and records them
//! with their results.

use crate::cells::{fill, record, records, tags};
use crate::history::{CELL_BYTES, Call, Name, NameCall, NameReply, Outcome, RenameMode, Seen};
use crate::oracle::names::is_refusal;
use crate::pages::Pages;
use crate::plan::{Op, Place};
use crate::shared::Shared;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, set_nothing};
use weir_host::thread::sleep;
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, FileLayout, Result};
use weir_wire::capability::Rights;
use weir_wire::meta::{RenameRequest, SetAttrRequest, XattrMode};

/// Number of cells of a published file.
pub(crate) const PUBLISHED_CELLS: u32 = 12;
/// First of the names that only one client uses, for files to be published.
pub(crate) const FIRST_OWN_NAME: Name = 200;
/// Pause between attempts to open a session.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Time after a start within which a metadata server has collected unused files: it waits for 10 s,
/// then collects, and tells the data servers.
const COLLECTED: Duration = Duration::from_secs(16);
/// Entries requested at once: more than a directory has.
const LIST_ENTRIES: u32 = 1000;

/// A running client.
pub(crate) struct Worker {
    shared: Rc<Shared>,
    number: u8,
    client: Client,
    ctx: Context,
    /// The page cache above the client.
    pages: Option<Arc<Pages>>,
    open: Vec<Option<File>>,
    /// An open file without a name.
    hidden: Option<File>,
}

/// The bytes of a name.
fn text(name: Name) -> Vec<u8> {
    format!("n{name}").into_bytes()
}

impl Worker {
    /// Opens a session as soon as there is a server.
    pub fn connect(
        shared: Rc<Shared>,
        number: u8,
        config: &ClientConfig,
        keeps_pages: bool,
    ) -> Self {
        let pages = keeps_pages.then(|| Arc::new(Pages::default()));
        let client = loop {
            let config = config.clone();
            let connected = match &pages {
                Some(pages) => Client::connect_with(config, pages.clone()),
                None => Client::connect(config),
            };
            match connected {
                Ok(client) => break client,
                Err(_) => sleep(CONNECT_PAUSE),
            }
        };
        let open = shared.made.borrow().files.iter().map(|_| None).collect();
        Self { shared, number, client, ctx: Context::root(), pages, open, hidden: None }
    }

    /// Makes the remaining calls of the plan, and ends the session.
    pub fn run(mut self) {
        let client = usize::from(self.number);
        loop {
            let at = self.shared.next.borrow()[client];
            let Some(planned) = self.shared.plan.clients[client].ops.get(at).cloned() else {
                break;
            };
            // Counted first, so that a killed client does not repeat it.
            self.shared.next.borrow_mut()[client] += 1;
            sleep(Duration::from_millis(planned.wait_ms.into()));
            self.perform(planned.op);
        }
        if self.hidden.is_some() {
            // By then a restarted metadata server has collected files that nobody has open.
            sleep(COLLECTED);
            self.perform(Op::Peek);
        }
        self.hidden = None;
        for file in 0..self.open.len() {
            self.close(file as u8);
        }
        let Self { shared, client: session, .. } = self;
        session.shutdown();
        shared.next.borrow_mut()[client] += 1;
    }

    /// Ends the session.
    pub fn shut_down(self) {
        drop(self.open);
        self.client.shutdown();
    }

    /// Records a call and its result.
    fn call(&self, call: Call, body: impl FnOnce(u32) -> Result<Outcome>) -> Outcome {
        let id = self.shared.begin(self.number, call);
        let outcome = body(id).unwrap_or_else(Outcome::Unknown);
        self.shared.end(id, outcome.clone());
        outcome
    }

    pub fn perform(&mut self, op: Op) {
        match op {
            Op::Write { file, first, cells } => drop(self.write(file, first, cells)),
            Op::Read { file, first, cells } => drop(self.read(file, first, cells)),
            Op::Append { file, cells } => drop(self.append(file, cells)),
            Op::Tail { file, cells } => self.tail(file, cells),
            Op::Stat { file } => drop(self.stat(file)),
            Op::Sync { file } => {
                drop(self.on_file(file, Call::Sync { file }, |f, ctx| f.sync(ctx)))
            }
            Op::Reopen { file } => self.reopen(file),
            Op::Cut { file, keep } => drop(self.cut(file, keep)),
            Op::SyncNames => drop(self.sync_names()),
            other => self.perform_on_names(other),
        }
    }

    fn opened(&mut self, file: u8) -> Option<&File> {
        let at = usize::from(file);
        if self.open[at].is_none() {
            let id = FileId(self.shared.made.borrow().files[at]);
            self.open[at] = self.client.open(&self.ctx, id, Rights::READ_WRITE).ok().map(|f| f.0);
        }
        self.open[at].as_ref()
    }

    fn on_file(
        &mut self,
        file: u8,
        call: Call,
        body: impl FnOnce(&File, &Context) -> Result<()>,
    ) -> Option<Outcome> {
        self.opened(file)?;
        let file = self.open[usize::from(file)].as_ref()?;
        Some(self.call(call, |_| body(file, &self.ctx).map(|()| Outcome::Done)))
    }

    fn write(&mut self, file: u8, first: u32, cells: u32) -> Option<Outcome> {
        self.opened(file)?;
        let handle = self.open[usize::from(file)].as_ref()?;
        Some(self.call(Call::Write { file, first, cells }, |id| {
            let bytes = fill(file, first, cells, u64::from(id) + 1);
            let offset = u64::from(first) * CELL_BYTES as u64;
            match &self.pages {
                Some(pages) => pages.write(handle, &self.ctx, offset, &bytes)?,
                None => handle.write_at(&self.ctx, offset, &bytes)?,
            }
            Ok(Outcome::Done)
        }))
    }

    fn append(&mut self, file: u8, cells: u32) -> Option<Outcome> {
        self.opened(file)?;
        let handle = self.open[usize::from(file)].as_ref()?;
        Some(self.call(Call::Append { file, cells }, |id| {
            let bytes = record(file, cells, u64::from(id) + 1);
            handle.append(&self.ctx, &bytes).map(Outcome::At)
        }))
    }

    pub fn stat(&mut self, file: u8) -> Option<Outcome> {
        self.opened(file)?;
        let id = self.open[usize::from(file)].as_ref()?.id();
        Some(self.call(Call::Stat { file }, |_| {
            let attr = self.client.getattr(&self.ctx, id)?;
            Ok(Outcome::Stat { size: attr.size, mtime_ns: attr.mtime.0 })
        }))
    }

    /// Reads from a place near the end.
    fn tail(&mut self, file: u8, cells: u32) {
        let Some(handle) = self.opened(file) else { return };
        let end = (handle.size() / CELL_BYTES as u64) as u32;
        let most = self.shared.plan.cells(file);
        let first = end.saturating_sub(cells).min(most - 1);
        self.read(file, first, (2 * cells).min(most - first));
    }

    pub fn read(&mut self, file: u8, first: u32, cells: u32) -> Option<Outcome> {
        self.opened(file)?;
        let handle = self.open[usize::from(file)].as_ref()?;
        let log = file >= self.shared.plan.first_log();
        Some(self.call(Call::Read { file, first, cells }, |_| {
            let mut bytes = vec![0xee; cells as usize * CELL_BYTES];
            let offset = u64::from(first) * CELL_BYTES as u64;
            let n = match &self.pages {
                Some(pages) if !log => pages.read(handle, &self.ctx, offset, &mut bytes)?,
                _ => handle.read_at(&self.ctx, offset, &mut bytes)?,
            };
            let bytes = &bytes[..n];
            Ok(Outcome::Cells(if log { records(file, bytes) } else { tags(file, first, bytes) }))
        }))
    }

    /// Layouts of the open files.
    pub fn layouts(&self) -> impl Iterator<Item = (usize, FileLayout)> + '_ {
        let open = self.open.iter().enumerate();
        open.filter_map(|(file, handle)| Some((file, handle.as_ref()?.layout())))
    }

    fn cut(&mut self, file: u8, keep: u32) -> Option<Outcome> {
        let whole = u64::from(self.shared.plan.shape.cells) * CELL_BYTES as u64;
        let keep_bytes = u64::from(keep) * CELL_BYTES as u64;
        self.opened(file)?;
        let handle = self.open[usize::from(file)].as_ref()?;
        self.forget_pages(handle.id());
        Some(self.call(Call::Cut { file, keep }, |_| {
            // An incomplete earlier cut may have left the file shorter; then the following cut
            // would cut nothing.
            for size in [whole, keep_bytes, whole] {
                handle.truncate(&self.ctx, size)?;
            }
            self.client.sync_metadata(&self.ctx)?;
            Ok(Outcome::Done)
        }))
    }

    fn forget_pages(&self, file: FileId) {
        if let Some(pages) = &self.pages {
            pages.forget(file);
        }
    }

    fn close(&mut self, file: u8) {
        if let Some(handle) = self.open[usize::from(file)].take() {
            self.forget_pages(handle.id());
            self.call(Call::Flush { file }, |_| handle.close(&self.ctx).map(|()| Outcome::Done));
        }
    }

    fn reopen(&mut self, file: u8) {
        self.close(file);
        self.opened(file);
    }

    pub fn sync_names(&self) -> Outcome {
        self.call(Call::SyncNames, |_| self.client.sync_metadata(&self.ctx).map(|()| Outcome::Done))
    }

    fn directory(&self, dir: u8) -> u64 {
        self.shared.made.borrow().directories[usize::from(dir)]
    }

    /// The directory and the name of a place.
    fn find(&self, place: Place) -> (u64, Name) {
        let dir = self.directory(place.dir);
        if let Some(inner) = place.inner
            && let Some(seen) = self.lookup(dir, place.name)
            && seen.kind == FileKind::Directory
        {
            return (seen.id, inner);
        }
        (dir, place.name)
    }

    fn names(&self, call: NameCall) -> Outcome {
        self.call(Call::Names(call.clone()), |_| match self.ask(&call) {
            Ok(reply) => Ok(Outcome::Names(reply)),
            Err(error) if is_refusal(error.kind) => {
                Ok(Outcome::Names(NameReply::Refused(error.kind)))
            }
            Err(error) => Err(error),
        })
    }

    pub fn lookup(&self, dir: u64, name: Name) -> Option<Seen> {
        match self.names(NameCall::Lookup { dir, name }) {
            Outcome::Names(NameReply::Attr(seen)) => Some(seen),
            _ => None,
        }
    }

    fn ask(&self, call: &NameCall) -> Result<NameReply> {
        let (client, ctx) = (&self.client, &self.ctx);
        let attr = |attr: Attr| NameReply::Attr(seen(&attr));
        Ok(match *call {
            NameCall::Create { dir, name, exclusive, mode } => {
                let options = CreateOptions { mode, exclusive, ..CreateOptions::default() };
                let (file, made) = client.create(ctx, FileId(dir), &text(name), &options)?;
                // Nothing was written, so closing sends nothing that can fail.
                drop(file);
                attr(made)
            }
            NameCall::Mkdir { dir, name, mode } => {
                attr(client.mkdir(ctx, FileId(dir), &text(name), mode)?)
            }
            NameCall::Symlink { dir, name, target } => {
                let target = target.to_string();
                attr(client.symlink(ctx, FileId(dir), &text(name), target.as_bytes())?)
            }
            NameCall::Unlink { dir, name } => {
                client.unlink(ctx, FileId(dir), &text(name))?;
                NameReply::Done
            }
            NameCall::Rmdir { dir, name } => {
                client.rmdir(ctx, FileId(dir), &text(name))?;
                NameReply::Done
            }
            NameCall::Rename { from, to, mode } => {
                client.rename(
                    ctx,
                    &RenameRequest {
                        parent: FileId(from.0),
                        name: text(from.1)[..].into(),
                        new_parent: FileId(to.0),
                        new_name: text(to.1)[..].into(),
                        no_replace: mode == RenameMode::NoReplace,
                        exchange: mode == RenameMode::Exchange,
                        whiteout: false,
                        hold: false,
                    },
                )?;
                NameReply::Done
            }
            NameCall::Link { file, dir, name } => {
                attr(client.link(ctx, FileId(file), FileId(dir), &text(name))?)
            }
            NameCall::Lookup { dir, name } => attr(client.lookup(ctx, FileId(dir), &text(name))?),
            NameCall::List { dir } => self.list(dir)?,
            NameCall::GetAttr { file } => attr(client.getattr(ctx, FileId(file))?),
            NameCall::Readlink { file } => number(&client.readlink(ctx, FileId(file))?)?,
            NameCall::SetMode { file, mode } => {
                let request = SetAttrRequest { mode: Some(mode), ..set_nothing(FileId(file)) };
                attr(client.setattr(ctx, &request)?)
            }
            NameCall::SetXattr { file, name, value } => {
                let (name, value) = (xattr(name), value.to_string());
                client.set_xattr(ctx, FileId(file), &name, value.as_bytes(), XattrMode::Any)?;
                NameReply::Done
            }
            NameCall::GetXattr { file, name } => {
                number(&client.get_xattr(ctx, FileId(file), &xattr(name))?)?
            }
        })
    }

    fn list(&self, dir: u64) -> Result<NameReply> {
        let page = self.client.readdir(&self.ctx, FileId(dir), (0, 0), LIST_ENTRIES, false)?;
        let name_of = |bytes: &[u8]| {
            let digits = bytes.strip_prefix(b"n").and_then(|d| std::str::from_utf8(d).ok());
            digits.and_then(|d| d.parse::<Name>().ok())
        };
        let mut names = Vec::new();
        for entry in &page.entries {
            let name = name_of(&entry.name.0)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a name that nobody made"))?;
            names.push((name, entry.file.0));
        }
        names.sort_unstable();
        Ok(NameReply::Names(names))
    }

    fn perform_on_names(&mut self, op: Op) {
        match op {
            Op::Create { at, exclusive, mode } => {
                let (dir, name) = self.find(at);
                self.names(NameCall::Create { dir, name, exclusive, mode });
            }
            Op::Mkdir { at } => {
                let (dir, name) = self.find(at);
                self.names(NameCall::Mkdir { dir, name, mode: 0o755 });
            }
            Op::Symlink { at } => {
                let (dir, name) = self.find(at);
                self.names(NameCall::Symlink { dir, name, target: u32::from(name) });
            }
            Op::Unlink { at } => {
                let (dir, name) = self.find(at);
                self.names(NameCall::Unlink { dir, name });
            }
            Op::Rmdir { at } => {
                let (dir, name) = self.find(at);
                self.names(NameCall::Rmdir { dir, name });
            }
            Op::Rename { from, to, mode } => {
                let (from, to) = (self.find(from), self.find(to));
                self.names(NameCall::Rename { from, to, mode });
            }
            Op::Look { at } => self.look(at),
            Op::List { dir } => {
                self.names(NameCall::List { dir: self.directory(dir) });
            }
            Op::Publish { at } => {
                if let Some(file) = self.write_new(at.dir) {
                    self.keep_or_rename(file, at);
                }
            }
            Op::Hide => self.hide(),
            Op::Peek => self.peek(),
            Op::Fetch { at } => self.fetch_at(at),
            other => self.perform_on_found(other),
        }
    }

    /// Calls that first need the id of a file.
    fn perform_on_found(&mut self, op: Op) {
        let (Op::Link { from: at, .. } | Op::SetMode { at, .. } | Op::SetXattr { at, .. }) = op
        else {
            return;
        };
        let (dir, name) = self.find(at);
        let Some(found) = self.lookup(dir, name) else { return };
        let file = found.id;
        match op {
            Op::Link { to, .. } => {
                let (dir, name) = self.find(to);
                self.names(NameCall::Link { file, dir, name });
            }
            Op::SetMode { mode, .. } => {
                self.names(NameCall::SetMode { file, mode });
            }
            Op::SetXattr { name, .. } => {
                // The number of the call is a unique value.
                let value = self.shared.next_call();
                self.names(NameCall::SetXattr { file, name, value });
            }
            _ => {}
        }
    }

    fn look(&self, at: Place) {
        let (dir, name) = self.find(at);
        if let Some(found) = self.lookup(dir, name) {
            self.inspect(found);
        }
    }

    /// Makes all queries about a file without opening it.
    pub fn inspect(&self, found: Seen) {
        let file = found.id;
        self.names(NameCall::GetAttr { file });
        match found.kind {
            FileKind::Symlink => drop(self.names(NameCall::Readlink { file })),
            FileKind::Directory => drop(self.names(NameCall::List { dir: file })),
            _ => drop(self.names(NameCall::GetXattr { file, name: 0 })),
        }
    }

    /// Lists a directory, and records it.
    pub fn listed(&self, dir: u64) -> Option<Vec<(Name, u64)>> {
        match self.names(NameCall::List { dir }) {
            Outcome::Names(NameReply::Names(names)) => Some(names),
            _ => None,
        }
    }

    /// Writes a new file under a temporary name and syncs it.
    fn write_new(&self, dir: u8) -> Option<File> {
        let (dir, own) = (self.directory(dir), FIRST_OWN_NAME + self.number);
        let options = CreateOptions { mode: 0o600, exclusive: true, ..CreateOptions::default() };
        let call = NameCall::Create { dir, name: own, exclusive: true, mode: 0o600 };
        let mut file = None;
        let outcome = self.call(Call::Names(call), |_| {
            match self.client.create(&self.ctx, FileId(dir), &text(own), &options) {
                Ok((made, attr)) => {
                    file = Some(made);
                    Ok(Outcome::Names(NameReply::Attr(seen(&attr))))
                }
                Err(e) if is_refusal(e.kind) => Ok(Outcome::Names(NameReply::Refused(e.kind))),
                Err(e) => Err(e),
            }
        });
        let Some(file) = file else {
            // Left from an attempt with an unknown outcome.
            if outcome == Outcome::Names(NameReply::Refused(ErrorKind::Exists)) {
                self.names(NameCall::Unlink { dir, name: own });
            }
            return None;
        };
        let written = self.call(Call::Publish { id: file.id().0 }, |id| {
            let bytes = fill(0, 0, PUBLISHED_CELLS, u64::from(id) + 1);
            file.write_at(&self.ctx, 0, &bytes)?;
            file.sync(&self.ctx)?;
            Ok(Outcome::Done)
        });
        (written == Outcome::Done).then_some(file)
    }

    /// Gives a written file the name that promises its contents.
    fn keep_or_rename(&self, file: File, at: Place) {
        // No writes are pending.
        drop(file);
        let dir = self.directory(at.dir);
        let (from, to) = ((dir, FIRST_OWN_NAME + self.number), (dir, at.name));
        self.names(NameCall::Rename { from, to, mode: RenameMode::Replace });
    }

    /// Makes a file without a name, which only this client has open.
    fn hide(&mut self) {
        let Some(file) = self.write_new(0) else { return };
        let dir = self.directory(0);
        let name = FIRST_OWN_NAME + self.number;
        if self.names(NameCall::Unlink { dir, name }) == Outcome::Names(NameReply::Done) {
            self.hidden = Some(file);
        }
    }

    fn peek(&self) {
        let Some(file) = &self.hidden else { return };
        self.call(Call::Peek { id: file.id().0 }, |_| {
            let seen = read_cells(file, &self.ctx, 0, 0, PUBLISHED_CELLS)?;
            Ok(Outcome::Cells(seen))
        });
    }

    fn fetch_at(&self, at: Place) {
        let (dir, name) = self.find(at);
        if let Some(found) = self.lookup(dir, name) {
            self.fetch(found);
        }
    }

    /// Reads a whole file.
    pub fn fetch(&self, found: Seen) {
        if found.kind != FileKind::File {
            return;
        }
        self.call(Call::Fetch { id: found.id }, |_| {
            let (file, _) = self.client.open(&self.ctx, FileId(found.id), Rights::READ)?;
            if self.shared.plan.shape.is_mirrored() {
                self.shared.found.borrow_mut().insert(file.id(), file.layout());
            }
            let seen = read_cells(&file, &self.ctx, 0, 0, PUBLISHED_CELLS)?;
            file.close(&self.ctx)?;
            Ok(Outcome::Cells(seen))
        });
    }
}

fn read_cells(file: &File, ctx: &Context, number: u8, first: u32, cells: u32) -> Result<Vec<u64>> {
    let mut bytes = vec![0xee; cells as usize * CELL_BYTES];
    let n = file.read_at(ctx, u64::from(first) * CELL_BYTES as u64, &mut bytes)?;
    Ok(tags(number, first, &bytes[..n]))
}

fn seen(attr: &Attr) -> Seen {
    Seen { id: attr.file.0, kind: attr.kind, nlink: attr.nlink, mode: attr.mode }
}

fn xattr(name: Name) -> Vec<u8> {
    format!("user.n{name}").into_bytes()
}

fn number(bytes: &[u8]) -> Result<NameReply> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    let wrong = || Error::new(ErrorKind::Internal, "a value that nobody wrote");
    number.map(NameReply::Value).ok_or_else(wrong)
}

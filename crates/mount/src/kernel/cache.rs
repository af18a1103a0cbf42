//! The kernel's page cache, as the client's upper cache: it has to drop pages when a lease is
//! recalled, and before a size is shown.

use crate::kernel::dropper::{Dropper, Dropping};
use crate::kernel::pages::{Drop as PageDrop, FilePages, without};
use weir_fuse::{MAX_STORE_BYTES, NodeId, Notifier};
use crate::kernel::seen::Seen;
use crate::kernel::acls::KernelAcls;
use crate::kernel::files::KernelFiles;
use crate::kernel::size::{Answer, Failed, Mark, Tell};
use crate::kernel::lifetimes::Lifetimes;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_client::UpperCache;
use weir_types::{Attr, FileId, FileKind};

/// Time after which a drop is checked for what blocks it, and first interval of these checks.
const FIRST_LOOK: Duration = Duration::from_millis(3);
/// The longest interval of these checks.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// A drop gives up after this time. Every request of the kernel is served sooner.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(60);
/// The most files that are dropped completely in parallel.
const DROPS_AT_ONCE: usize = 64;
/// How often a size is asked for again because another one was told meanwhile.
const MAX_ASKS: usize = 16;
/// A write arrives within this time after the kernel has put its bytes into pages.
const WRITE_ARRIVES: Duration = Duration::from_secs(1);

/// An open file, shared by its handles.
pub(crate) struct OpenPages {
    pages: Mutex<FilePages>,
    /// Notified when the kernel has raised its size.
    raised: Condvar,
    last_drop: Mutex<Option<Instant>>,
}

/// A request for attributes; to be made before they are fetched.
pub(crate) struct Question {
    by: u32,
    asked: Option<(FileId, Mark)>,
    to: Answer,
}

/// The kernel's caches of all files of a mount.
#[derive(Clone, Default)]
pub struct KernelCache {
    pub(crate) dropper: Dropper,
    /// The kernel asks again before it judges by an access control list, but not always before it
    /// shows one to a program.
    acls: Arc<Mutex<KernelAcls>>,
    /// Attributes that the kernel uses without asking.
    pub(crate) lifetimes: Arc<Lifetimes>,
    seen: Arc<Seen>,
    pub(crate) files: Arc<KernelFiles>,
    open: Arc<RwLock<HashMap<FileId, OpenFile>>>,
}

struct OpenFile {
    handles: usize,
    /// Handles through which a program may change mapped pages.
    mappers: usize,
    pages: Arc<OpenPages>,
}

impl OpenFile {
    fn new(leased: bool, size: u64) -> Self {
        let pages = OpenPages {
            pages: Mutex::new(FilePages::new(leased, size)),
            raised: Condvar::new(),
            last_drop: Mutex::new(None),
        };
        Self { handles: 0, mappers: 0, pages: Arc::new(pages) }
    }
}

/// A write that bypassed the page cache.
pub(crate) struct Passed {
    /// Its bytes.
    pub(crate) bytes: Range<u64>,
    /// Its end according to the kernel.
    pub(crate) believed_end: u64,
}

/// An open handle of a file.
pub(crate) struct Opening {
    cache: KernelCache,
    file: FileId,
    maps: bool,
    pages: Arc<OpenPages>,
}

impl KernelCache {
    /// Attaches the mount's notifier.
    pub fn attach(&self, notifier: Notifier) {
        self.files.attach(&notifier);
        self.dropper.attach(notifier);
    }

    /// Records that the kernel is about to be told of an access control list.
    pub(crate) fn tells_acl(&self, file: FileId, node: NodeId) {
        let forgotten = self.acls().told(file, node);
        for node in forgotten {
            self.dropper.forget(node);
        }
    }

    fn acls(&self) -> MutexGuard<'_, KernelAcls> {
        self.acls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file has the state of its last open.
    pub(crate) fn same(&self, attr: &Attr) -> bool {
        self.seen.same(attr)
    }

    /// Records the opening of a handle of a file with this size; `maps` says that it is for reading
    /// and writing. Returns `true` if other handles are open, so that the kernel's pages are valid.
    pub(crate) fn opening(
        &self,
        file: FileId,
        (leased, maps): (bool, bool),
        size: u64,
    ) -> (Opening, bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let entry = open.entry(file).or_insert_with(|| OpenFile::new(leased, size));
        entry.handles += 1;
        entry.mappers += usize::from(maps);
        let opening = Opening { cache: self.clone(), file, maps, pages: entry.pages.clone() };
        (opening, entry.handles > 1)
    }

    pub(crate) fn get(&self, file: FileId) -> Option<Arc<OpenPages>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).map(|file| file.pages.clone())
    }

    /// Records a request of a kernel thread for attributes, of this file if that is known.
    pub(crate) fn asks(&self, by: u32, file: Option<FileId>, to: Answer) -> Question {
        let mark = |file| Some((file, self.get(file)?.lock().size.mark()));
        Question { by, asked: file.and_then(mark), to }
    }

    /// Prepares a reply: makes sure that the kernel will have the size. Returns what to reply,
    /// fetched again with `again` if necessary.
    pub(crate) fn tell<E>(
        &self,
        question: Question,
        mut attr: Attr,
        again: impl Fn(FileId) -> Result<Attr, E>,
    ) -> Result<Attr, E> {
        let Question { by, asked, to } = question;
        let mut asked = asked.filter(|(file, _)| *file == attr.file).map(|(_, mark)| mark);
        for ask in 0.. {
            if attr.kind != FileKind::File {
                break;
            }
            let Some(pages) = self.get(attr.file) else { break };
            let state = pages.lock();
            let raising = |state: &mut FilePages| state.size.is_raising();
            let waited = pages.raised.wait_timeout_while(state, 2 * GIVE_UP, raising);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if ask == MAX_ASKS {
                // Others change the file all the time: one of their sizes is as good.
                asked = Some(state.size.mark());
            }
            match state.size.tell(by, attr.size, asked, to, Instant::now()) {
                Tell::Now => break,
                Tell::Raise => {
                    let drop = state.before_growth();
                    std::mem::drop(state);
                    self.raise(attr.file, &pages, attr.size, drop);
                    break;
                }
                Tell::AskAgain => {
                    asked = Some(state.size.mark());
                    std::mem::drop(state);
                    attr = again(attr.file)?;
                }
            }
        }
        Ok(attr)
    }

    /// Whether these attributes may be told without waiting.
    pub(crate) fn may_tell(&self, by: u32, attr: &Attr) -> bool {
        let Some(pages) = self.get(attr.file).filter(|_| attr.kind == FileKind::File) else {
            return true;
        };
        let mut state = pages.lock();
        !state.size.is_raising() && state.size.tells_nothing_new(by, attr.size, Instant::now())
    }

    fn raise(&self, file: FileId, pages: &OpenPages, size: u64, drop: Option<PageDrop>) {
        if let Some(drop) = drop {
            self.carry_out(file, pages, &drop);
        }
        let (from, drop) = {
            let mut pages = pages.lock();
            let from = pages.quiet_byte(size, MAX_STORE_BYTES as u64);
            let page = from..from + 1;
            (from, (!pages.may_show(&page)).then(|| pages.drop_begins(page)))
        };
        let begin = Instant::now();
        let raising = self.dropper.raise(file, size, from, drop.is_some());
        // When it is blocked it has been done.
        let mut done = raising.wait(begin + FIRST_LOOK) || raising.is_blocked();
        while !done && begin.elapsed() < GIVE_UP {
            done = raising.wait(Instant::now() + FIRST_LOOK) || raising.is_blocked();
        }
        if !done {
            tracing::error!(
                "file {file}: the kernel did not take note of its size within {GIVE_UP:?}; \
                 programs that have it open may find it too short"
            );
        }
        if let Some(drop) = drop.filter(|_| done) {
            pages.was_dropped(&drop);
        }
        pages.lock().size.raised(done.then_some(size));
        pages.raised.notify_all();
    }

    fn drop_range(&self, file: FileId, bytes: Range<u64>) {
        match self.get(file) {
            Some(pages) => {
                let drop = pages.lock().drop_begins(bytes);
                self.carry_out(file, &pages, &drop);
            }
            None => {
                self.dropper.start(file, bytes).wait(Instant::now() + GIVE_UP);
            }
        }
    }

    /// Whether a program may have changed a file through a mapping without the kernel having
    /// written it back.
    pub(crate) fn may_be_changed(&self, file: FileId) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).is_some_and(|open| open.mappers > 0)
    }

    /// Makes the kernel write back changes of these bytes through mappings. Returns `false` if
    /// there are none. (Only a drop makes it write.)
    pub(crate) fn writes_back(&self, file: FileId, bytes: Range<u64>) -> bool {
        let may = || self.get(file).is_some_and(|pages| pages.lock().may_show(&bytes));
        let some = !bytes.is_empty() && self.may_be_changed(file) && may();
        if some {
            self.drop_range(file, bytes);
        }
        some
    }

    fn carry_out(&self, file: FileId, pages: &OpenPages, drop: &PageDrop) {
        let whole = match self.begin(file, pages, drop) {
            Begun::Around(around) if around.is_done(Instant::now() + LAST_LOOK) => {
                return pages.was_dropped(drop);
            }
            Begun::Around(_) => self.dropper.start(file, drop.bytes.clone()),
            Begun::Whole(whole) => whole,
        };
        self.carry_on(file, pages, drop, &whole);
    }

    /// Begins a drop, around locked pages if there are any, so that no thread waits for those with
    /// the rest behind them.
    fn begin(&self, file: FileId, pages: &OpenPages, drop: &PageDrop) -> Begun {
        let held = pages.lock().held(&drop.bytes);
        match held.is_empty() {
            true => Begun::Whole(self.dropper.start(file, drop.bytes.clone())),
            false => Begun::Around(self.begin_around(file, &drop.bytes, &held, &mut Vec::new())),
        }
    }

    fn carry_on(&self, file: FileId, pages: &OpenPages, drop: &PageDrop, whole: &Dropping) {
        if self.drop_now(file, pages, &drop.bytes, whole) {
            pages.was_dropped(drop);
        } else {
            tracing::error!(
                "file {file}: the kernel did not drop its pages within {GIVE_UP:?}; \
                 programs that have it open may see old bytes"
            );
        }
    }

    /// Drops pages. The kernel waits for locked ones. Pages locked by a request that itself may be
    /// waiting for the lease being given up are left: see [`FilePages::held`].
    fn drop_now(
        &self,
        file: FileId,
        pages: &OpenPages,
        bytes: &Range<u64>,
        whole: &Dropping,
    ) -> bool {
        let begin = Instant::now();
        let (mut look, mut started) = (FIRST_LOOK, Vec::new());
        while !whole.wait(Instant::now() + look) {
            if begin.elapsed() > GIVE_UP {
                return false;
            }
            look = (look * 2).min(LAST_LOOK);
            let held = pages.lock().held(bytes);
            // When it is blocked it has begun: no answer is disbelieved later.
            if !held.is_empty()
                && whole.is_blocked()
                && self.drop_around(file, bytes, &held, &mut started)
            {
                return true;
            }
        }
        true
    }

    /// Whether everything is dropped except held pages, and those are indeed locked.
    fn drop_around(
        &self,
        file: FileId,
        bytes: &Range<u64>,
        held: &[Range<u64>],
        started: &mut Started,
    ) -> bool {
        self.begin_around(file, bytes, held, started).is_done(Instant::now() + LAST_LOOK)
    }

    fn begin_around(
        &self,
        file: FileId,
        bytes: &Range<u64>,
        held: &[Range<u64>],
        started: &mut Started,
    ) -> Around {
        let mut start = |part: Range<u64>| {
            let known = started.iter().find(|(begun, _)| *begun == part);
            known.map(|(_, dropping)| dropping.clone()).unwrap_or_else(|| {
                let dropping = Rc::new(self.dropper.start(file, part.clone()));
                started.push((part, dropping.clone()));
                dropping
            })
        };
        let others = without(bytes, held).into_iter().map(&mut start).collect();
        Around { others, held: held.iter().cloned().map(start).collect() }
    }
}

/// A begun drop.
enum Begun {
    Whole(Dropping),
    Around(Around),
}

/// Parts for which the same drop has begun already.
type Started = Vec<(Range<u64>, Rc<Dropping>)>;

/// A drop around held pages, and a check of those.
struct Around {
    others: Vec<Rc<Dropping>>,
    held: Vec<Rc<Dropping>>,
}

impl Around {
    /// Whether by then everything is dropped except held pages, and those are indeed locked.
    fn is_done(&self, until: Instant) -> bool {
        self.others.iter().all(|part| part.wait(until))
            && self.held.iter().all(|part| {
                // It may have to wait for its turn on a processor.
                while !part.wait(Instant::now() + FIRST_LOOK) {
                    if part.is_blocked() {
                        return true;
                    }
                    if Instant::now() > until {
                        return false;
                    }
                }
                true
            })
    }
}

impl UpperCache for KernelCache {
    fn forget_attributes(&self, file: FileId) {
        let nodes = self.acls().take(file);
        // An answer that is under way is not kept after this.
        let begun: Vec<_> = nodes.into_iter().map(|node| self.dropper.forget(node)).collect();
        let until = Instant::now() + LAST_LOOK;
        // The kernel may be busy with the end of this very file: then it forgets it anyway.
        for forgetting in &begun {
            if !forgetting.wait(until) {
                tracing::debug!("file {file}: the kernel has not forgotten its list yet");
            }
        }
        self.end_lifetime(file);
    }

    fn attributes_change(&self, file: FileId) {
        self.end_lifetime(file);
    }

    fn forget_all_attributes(&self) {
        self.end_all_lifetimes();
    }

    fn knows(&self, file: FileId) -> bool {
        self.files.may_hold(file)
    }

    fn holds(&self, file: FileId) -> bool {
        self.files.holds(file)
    }

    fn drop_pages(&self, file: FileId, start: u64, end: u64) {
        // Each drop makes the kernel disbelieve answers that are under way.
        if self.get(file).is_none_or(|pages| pages.lock().may_show(&(start..end))) {
            self.drop_range(file, start..end);
        }
    }

    fn drop_everything(&self) {
        // What is not open is not read before it has been opened: as unseen.
        self.seen.clear();
        self.end_all_lifetimes();
        let open: Vec<(FileId, Arc<OpenPages>)> = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.iter().map(|(file, open)| (*file, open.pages.clone())).collect()
        };
        // Some may have to wait for pages that are locked: others do not wait for them.
        let mut late = Vec::new();
        for some in open.chunks(DROPS_AT_ONCE) {
            let begin = |(file, pages): &(FileId, Arc<OpenPages>)| {
                let (file, pages) = (*file, pages.clone());
                let drop = pages.lock().drop_begins(0..u64::MAX);
                let begun = self.begin(file, &pages, &drop);
                (file, pages, drop, begun)
            };
            let until = Instant::now() + LAST_LOOK;
            let begun: Vec<_> = some.iter().map(begin).collect();
            for (file, pages, drop, begun) in begun {
                let done = match &begun {
                    Begun::Whole(whole) => whole.wait(until),
                    Begun::Around(around) => around.is_done(until),
                };
                match done {
                    true => pages.was_dropped(&drop),
                    false => late.push((file, pages, drop, begun)),
                }
            }
        }
        for (file, pages, drop, begun) in late {
            match begun {
                Begun::Whole(whole) => self.carry_on(file, &pages, &drop, &whole),
                Begun::Around(_) => self.carry_out(file, &pages, &drop),
            }
        }
        // Last, since there may be many, and nothing is judged by them without asking.
        let nodes = self.acls().take_all();
        for some in nodes.chunks(DROPS_AT_ONCE) {
            let begun: Vec<_> = some.iter().map(|node| self.dropper.forget(*node)).collect();
            let until = Instant::now() + LAST_LOOK;
            begun.iter().for_each(|forgetting| _ = forgetting.wait(until));
        }
    }
}

impl OpenPages {
    pub(crate) fn lock(&self) -> MutexGuard<'_, FilePages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_dropped(&self, drop: &PageDrop) {
        self.lock().dropped(drop);
        *self.last_drop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn dropped_recently(&self) -> bool {
        let last = *self.last_drop.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < WRITE_ARRIVES)
    }
}

impl Opening {
    /// Records that the kernel keeps its pages of the file, which has this size.
    pub(crate) fn kept(&self, size: u64) {
        self.pages.lock().kept(size);
    }

    /// Serves a read. `read` returns the number of bytes, and calls its argument with whether it
    /// holds the lease.
    pub(crate) fn reading<E>(
        &self,
        by: u32,
        bytes: &Range<u64>,
        read: impl FnOnce(&dyn Fn(bool)) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let number = {
            let mut pages = self.pages.lock();
            pages.size.asks(by, Instant::now());
            pages.read_begins(by, bytes)
        };
        let result = read(&|entered| self.pages.lock().read_enters(number, entered));
        // Of a read that failed the kernel keeps nothing.
        let brought = result.as_ref().map_or(bytes.end, |n| bytes.start + *n as u64);
        let again = self.pages.lock().read_ends(number, bytes.end, brought);
        if let Some(drop) = again {
            // It waits for the answer; nobody waits for it.
            self.cache.dropper.start(self.file, drop.bytes);
        }
        result
    }

    /// Serves a write through the page cache; `write` returns the end of the bytes. (That is not
    /// where the kernel assumes if `O_APPEND` was set by `fcntl`: then its pages are wrong.)
    pub(crate) fn writing<E>(
        &self,
        by: u32,
        bytes: Range<u64>,
        write: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        let recent = self.pages.dropped_recently();
        let number = self.pages.lock().write_begins(bytes.clone(), recent);
        let result = write();
        let mut drop = self.pages.lock().write_works(number);
        if result.as_ref().is_ok_and(|end| *end != bytes.end) {
            drop = Some(self.pages.lock().drop_begins(bytes.start..u64::MAX));
        }
        if let Some(drop) = drop {
            self.cache.carry_out(self.file, &self.pages, &drop);
        }
        let mut pages = self.pages.lock();
        pages.write_ends(number);
        if result.is_ok() {
            pages.size.writes(by, bytes.end);
        }
        result.map(|_| ())
    }

    /// Serves a write that bypasses the page cache.
    pub(crate) fn passing<E>(
        &self,
        by: u32,
        write: impl FnOnce() -> Result<Passed, E>,
    ) -> Result<(), E> {
        self.pages.lock().passes();
        let passed = write();
        // Of one that failed nobody knows how far it came.
        let bytes = passed.as_ref().map_or(0..u64::MAX, |passed| passed.bytes.clone());
        let drop = self.pages.lock().passed(&bytes);
        if let Some(drop) = drop {
            self.cache.carry_out(self.file, &self.pages, &drop);
        }
        let mut pages = self.pages.lock();
        pages.pass_ends();
        if let Ok(passed) = &passed {
            pages.size.writes(by, passed.believed_end);
            pages.size.passes(by, passed.believed_end, Instant::now());
        }
        passed.map(|_| ())
    }

    /// See [`crate::kernel::size::KernelSize::appends_here`].
    pub(crate) fn appends_here(&self, offset: u64) -> bool {
        self.pages.lock().size.appends_here(offset)
    }

    /// Records a failed write that bypassed the page cache.
    pub(crate) fn fails(&self, failed: Failed) {
        self.pages.lock().size.fails(failed, Instant::now());
    }

    /// Whether a size that this thread sets through this handle may be the kernel taking a failed
    /// write back.
    pub(crate) fn may_take_back(&self, by: u32, fh: u64, size: u64) -> bool {
        self.pages.lock().size.may_take_back(by, fh, size, Instant::now())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut open = self.cache.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = open.get_mut(&self.file) {
            entry.handles -= 1;
            entry.mappers -= usize::from(self.maps);
            if entry.handles == 0 {
                open.remove(&self.file);
            }
        }
    }
}

//! Drops of the kernel's pages, as the client's upper cache: when a lease is recalled, and before a
//! size is shown. Pages that are locked are left.

use crate::kernel::cache::{GIVE_UP, KernelCache, OpenPages};
use crate::kernel::dropper::Dropping;
use crate::kernel::pages::{Drop as PageDrop, without};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use weir_client::UpperCache;
use weir_types::FileId;

/// Time after which a drop is checked for what blocks it, and first interval of these checks.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(3);
/// The longest interval of these checks.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// The most files that are dropped completely in parallel.
const DROPS_AT_ONCE: usize = 64;

impl KernelCache {
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

    pub(super) fn carry_out(&self, file: FileId, pages: &OpenPages, drop: &PageDrop) {
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
    /// waiting for the lease being given up are left: see [`crate::kernel::pages::FilePages::held`].
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
    /// The kernel holds the lock of the inode, and writes no page back meanwhile.
    fn excludes_writes_from_cuts(&self) -> bool {
        true
    }

    fn forget_attributes(&self, file: FileId) {
        self.close_for(file);
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

    fn names_change(&self, dir: FileId) {
        self.names.close(dir, Instant::now());
        self.end_lifetime(dir);
    }

    fn forget_all_attributes(&self) {
        self.names.close_all();
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
        self.names.close_all();
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

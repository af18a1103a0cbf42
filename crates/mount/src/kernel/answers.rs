//! Answers that tell the kernel the size of a file.

use crate::kernel::cache::{GIVE_UP, KernelCache, OpenPages};
use crate::kernel::drops::FIRST_LOOK;
use crate::kernel::pages::{Drop as PageDrop, FilePages};
use crate::kernel::size::{Answer, Mark, Tell};
use std::sync::PoisonError;
use std::time::Instant;
use weir_fuse::MAX_STORE_BYTES;
use weir_types::{Attr, FileId, FileKind};

/// How often a size is asked for again because another one was told meanwhile.
const MAX_ASKS: usize = 16;

/// A request for attributes; to be made before they are fetched.
pub(crate) struct Question {
    by: u32,
    asked: Option<(FileId, Mark)>,
    to: Answer,
}

impl KernelCache {
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
}

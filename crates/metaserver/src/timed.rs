//! The journal of several metadata servers, with the duration of its appends.

use crate::metrics::Observer;
use std::sync::Arc;
use weir_host::clock;
use weir_metastore::{Batch, Begun, Extent, Held, Journal, Sequence};
use weir_types::Result;

/// A journal whose appends are timed.
pub(crate) struct Timed {
    pub journal: Arc<dyn Journal>,
    pub observer: Arc<Observer>,
}

impl Journal for Timed {
    fn leader(&self) -> Result<Option<String>> {
        self.journal.leader()
    }
    fn extent(&self) -> Result<Option<Extent>> {
        self.journal.extent()
    }
    fn acquire(&self, address: &str, begin: Option<Begun>) -> Result<Option<u64>> {
        self.journal.acquire(address, begin)
    }
    fn read(&self, after: Sequence) -> Result<Vec<Batch>> {
        self.journal.read(after)
    }
    fn append(&self, previous: Sequence, batch: &Batch) -> Result<()> {
        let begin = clock::now();
        let appended = self.journal.append(previous, batch);
        self.observer.appends.add(clock::elapsed(begin));
        appended
    }
    fn renew(&self) -> Result<()> {
        self.journal.renew()
    }
    fn check(&self) -> Result<()> {
        self.journal.check()
    }
    fn resign(&self) {
        self.journal.resign();
    }
    fn report(&self, member: &str, upto: Sequence) -> Result<()> {
        self.journal.report(member, upto)
    }
    fn forget(&self, member: &str) -> Result<()> {
        self.journal.forget(member)
    }
    fn remove(&self, member: &str) -> Result<()> {
        self.journal.remove(member)
    }
    fn removed(&self) -> Result<Vec<String>> {
        self.journal.removed()
    }
    fn end(&self) -> Result<()> {
        self.journal.end()
    }
    fn members(&self) -> Result<Vec<Held>> {
        self.journal.members()
    }
    fn cut(&self, upto: Sequence) -> Result<()> {
        self.journal.cut(upto)
    }
    fn compact(&self) -> Result<()> {
        self.journal.compact()
    }
}

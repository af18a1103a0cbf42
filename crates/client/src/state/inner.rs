//! All that the handles of a client share.

use super::accesses::Accesses;
use super::damage::Damage;
use super::events::EventQueue;
use super::holdings::Holdings;
use super::open::OpenState;
use super::pairs::Pairs;
use super::silent::Silent;
use super::turns::Turns;
use super::upper::UpperCache;
use crate::config::{ClientConfig, Consistency};
use crate::context::Context;
use crate::counters::Counters;
use crate::rpc::servers::Servers;
use crate::rpc::session::MetaSession;
use std::sync::Arc;
use weir_net::{BufferPool, raise_descriptor_limit};
use weir_types::{Attr, FileId, Result};

/// The most bytes of buffers of a client.
const BUFFER_BYTES: usize = 256 << 20;
/// Wanted limit of open descriptors.
const MAX_DESCRIPTORS: u64 = 65_536;

/// State that all handles of a client share.
pub(crate) struct Inner {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) session: MetaSession,
    pub(crate) servers: Servers,
    pub(crate) buffers: BufferPool,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) events: EventQueue,
    pub(crate) pairs: Pairs,
    pub(crate) damage: Damage,
    pub(crate) accesses: Accesses,
    /// Targets that gave no reply about allocated space.
    pub(crate) silent: Silent,
    /// The cache of the layer above.
    pub(crate) upper: Option<Arc<dyn UpperCache>>,
    /// The turns of the background threads.
    pub(crate) turns: Turns,
}

/// The context of a call in progress.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) file: &'a OpenState,
    pub(crate) ctx: &'a Context,
}

impl Inner {
    /// Opens a session, for a layer above if there is one.
    pub(crate) fn open(config: ClientConfig, upper: Option<Arc<dyn UpperCache>>) -> Result<Self> {
        // Every request on its way has a connection of its own.
        let descriptors = raise_descriptor_limit(MAX_DESCRIPTORS);
        let config =
            if config.consistency == Consistency::None { config.without_cache() } else { config };
        let (config, counters) = (Arc::new(config), Arc::new(Counters::default()));
        let holdings = Arc::new(Holdings { upper: upper.clone(), ..Holdings::default() });
        let clock = holdings.clock.clone();
        let session = MetaSession::open(config.clone(), counters.clone(), holdings.clone(), clock)?;
        Ok(Self {
            servers: Servers::new(config.clone(), counters.clone(), descriptors)?,
            buffers: BufferPool::new(BUFFER_BYTES),
            turns: Turns::default(),
            events: EventQueue::new()?,
            pairs: Pairs::default(),
            damage: Damage::default(),
            accesses: Accesses::default(),
            silent: Silent::default(),
            session,
            holdings,
            upper,
            config,
            counters,
        })
    }

    /// The state of a file, if it is open in this client.
    pub(crate) fn open_state(&self, file: FileId) -> Option<Arc<OpenState>> {
        self.holdings.opened.lock().files.get(&file).map(|(state, _)| state.clone())
    }

    /// Attributes as this client sees them, with its own writes.
    pub(crate) fn seen(&self, mut attr: Attr) -> Attr {
        if let Some(state) = self.open_state(attr.file) {
            state.saw_attr(&attr);
            attr.size = state.size();
            state.correct_times(&mut attr);
            if let Some((_, mtime)) = state.uncommitted() {
                // As the metadata server will see it: times never go back.
                let older = mtime < attr.ctime;
                attr.mtime = if older { mtime.max(attr.mtime) } else { mtime };
                attr.ctime = attr.ctime.max(mtime);
            }
            attr.sparse |= state.has_gap();
        }
        self.accesses.show(&mut attr);
        attr
    }
}

//! The service of a metadata server that shares a journal: it refuses everybody until it leads.

use crate::news::News;
use crate::service::MetaService;
use std::sync::Arc;
use weir_host::sync::Mutex;
use weir_metastore::Engine;
use weir_net::{ConnId, Frame, Outbox, Service};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::handshake::{Hello, Welcome};
use weir_wire::{Key, Level};

/// What the thread that follows the journal tells the loop.
pub(crate) struct Standing<E: Engine> {
    /// Address of the server that leads.
    leader: Mutex<Option<String>>,
    /// What serves from the next [`News::Lead`] on.
    next: Mutex<Option<MetaService<E>>>,
}

impl<E: Engine> Default for Standing<E> {
    fn default() -> Self {
        Self { leader: Mutex::new(None), next: Mutex::new(None) }
    }
}

impl<E: Engine> Standing<E> {
    pub(crate) fn set_leader(&self, leader: Option<String>) {
        *self.leader.lock() = leader;
    }

    pub(crate) fn set_next(&self, service: MetaService<E>) {
        *self.next.lock() = Some(service);
    }

    /// What everybody is told meanwhile. Clients and data servers try their other addresses, and
    /// then try again.
    fn refusal(&self) -> Error {
        let what = match &*self.leader.lock() {
            Some(leader) => format!("this metadata server does not lead: ask {leader}"),
            None => "this metadata server does not lead, and no other one does yet".to_owned(),
        };
        Error::new(ErrorKind::NotLeader, what)
    }
}

pub(crate) struct Candidate<E: Engine> {
    standing: Arc<Standing<E>>,
    /// Serves, once this server leads.
    leads: Option<MetaService<E>>,
}

impl<E: Engine> Candidate<E> {
    pub(crate) fn new(standing: Arc<Standing<E>>) -> Self {
        Self { standing, leads: None }
    }

    fn service(&mut self) -> Result<&mut MetaService<E>> {
        self.leads.as_mut().ok_or_else(|| self.standing.refusal())
    }
}

impl<E: Engine + Send + 'static> Service for Candidate<E> {
    type Event = News;

    fn key_for(&mut self, hello: &Hello) -> Result<Key> {
        self.service()?.key_for(hello)
    }

    fn protection(&self) -> Level {
        // Without a service nobody gets as far as that.
        self.leads.as_ref().map_or(Level::Private, Service::protection)
    }

    fn welcome(&mut self, conn: ConnId, hello: &Hello) -> Result<Welcome> {
        self.service()?.welcome(conn, hello)
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        // Nobody was welcomed before there was a service.
        if let Some(service) = &mut self.leads {
            service.on_frame(frame, out);
        }
    }

    fn on_event(&mut self, news: News, out: &mut Outbox) {
        match (news, &mut self.leads) {
            (News::Lead, leads) => {
                *leads = leads.take().or_else(|| self.standing.next.lock().take())
            }
            (news, Some(service)) => service.on_event(news, out),
            // The thread that follows looks after the engine.
            (News::Engine | News::Observer | News::Room(_) | News::Members(_), None) => {}
        }
    }

    fn on_turn_end(&mut self, out: &mut Outbox) {
        if let Some(service) = &mut self.leads {
            service.on_turn_end(out);
        }
    }

    fn on_tick(&mut self, out: &mut Outbox) {
        if let Some(service) = &mut self.leads {
            service.on_tick(out);
        }
    }

    fn on_closed(&mut self, conn: ConnId) {
        if let Some(service) = &mut self.leads {
            service.on_closed(conn);
        }
    }
}

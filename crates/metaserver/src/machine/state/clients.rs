//! The records of clients and their restrictions, kept in memory too, because every request needs
//! them.

use crate::machine::store::each;
use crate::schema::{self, ClientRecord, key};
use std::collections::BTreeMap;
use weir_metastore::Engine;
use weir_types::{ClientId, Restrictions, Result};

/// All clients with a record.
#[derive(Debug, Default)]
pub struct Clients {
    pub by_id: BTreeMap<ClientId, ClientRecord>,
}

impl Clients {
    /// Reads the stored records.
    pub fn load(engine: &dyn Engine) -> Result<Self> {
        let mut clients = Self::default();
        let (start, end) = key::clients();
        each(engine, start, &end, |at, bytes| {
            let record = schema::decode(bytes, "of a client")?;
            clients.by_id.insert(key::client_id(at)?, record);
            Ok(())
        })?;
        Ok(clients)
    }

    /// Name of its key.
    pub fn name(&self, client: ClientId) -> &str {
        self.by_id.get(&client).map_or("", |record| &record.name)
    }

    /// Restrictions of a client.
    pub fn limits(&self, client: ClientId) -> Restrictions {
        self.by_id.get(&client).map_or(Restrictions::NONE, |record| record.restrictions)
    }
}

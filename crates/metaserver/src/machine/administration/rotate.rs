//! Rotation of working keys, and of targets' own keys.

use crate::keys::WorkingKeys;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::{self, key};
use crate::target_keys::TargetKeys;
use weir_metastore::{Engine, Tx, transact};
use weir_types::{ClientId, Error, ErrorKind, Result, TargetId};
use weir_wire::targets::{KeyRotation, RotateKeysRequest};

/// The stored generations.
pub(in crate::machine) fn load(engine: &dyn Engine) -> Result<WorkingKeys> {
    let stored = Tx::new(engine).get(key::WORKING_KEYS)?;
    let stored = stored.map(|it| schema::decode(&it, "of working keys")).transpose()?;
    Ok(stored.unwrap_or_default())
}

/// The stored generations of targets' own keys.
pub(in crate::machine) fn load_own(engine: &dyn Engine) -> Result<TargetKeys> {
    let stored = Tx::new(engine).get(key::TARGET_KEYS)?;
    let stored = stored.map(|it| schema::decode(&it, "of targets' keys")).transpose()?;
    Ok(stored.unwrap_or_default())
}

impl<E: Engine> MetaMachine<E> {
    /// Records that earlier keys have ended.
    ///
    /// # Errors
    /// Those of the engine.
    pub(in crate::machine) fn settle_keys(&mut self, now: Moment) -> Result<()> {
        let Some(keys) = self.keys.settled(now.unix_ms()) else { return Ok(()) };
        let record = schema::encode(&keys);
        transact(&mut self.engine, |tx| Ok::<_, Error>(tx.put(key::WORKING_KEYS, &record)?))?;
        self.keys = keys;
        Ok(())
    }

    /// Makes new working keys, which sign from now on. The earlier ones of a target, or of all
    /// targets, count until what they have signed has expired, or no more at once.
    pub(in crate::machine) fn rotate_keys(
        &mut self,
        client: ClientId,
        request: &RotateKeysRequest,
        now: Moment,
    ) -> Result<KeyRotation> {
        self.require_administrator(client)?;
        let all: Vec<TargetId> = self.cluster.all().into_iter().map(|(_, t)| t.target).collect();
        let of = match request.target {
            None => all.clone(),
            Some(target) if all.contains(&target) => vec![target],
            Some(target) => {
                let message = format!("there is no target {target}: see `weir target list`");
                return Err(Error::new(ErrorKind::TargetMissing, message));
            }
        };
        let old_until_unix_ms = self.old_until(request.now, now);
        let there = |target| all.contains(&target);
        let keys = self.keys.rotated(&of, old_until_unix_ms, now.unix_ms(), there)?;
        if request.own {
            let mut own = self.target_keys.clone();
            for target in of {
                own = own.begun(target, request.now, there)?;
            }
            let record = schema::encode(&own);
            transact(&mut self.engine, |tx| Ok::<_, Error>(tx.put(key::TARGET_KEYS, &record)?))?;
            self.target_keys = own;
            return Ok(KeyRotation { generation: self.keys.generation(), old_until_unix_ms });
        }
        let record = schema::encode(&keys);
        transact(&mut self.engine, |tx| Ok::<_, Error>(tx.put(key::WORKING_KEYS, &record)?))?;
        let generation = keys.generation();
        self.keys = keys;
        self.signer.rotate(generation);
        self.signer.prepare(self.cluster.view.targets.iter().map(|t| t.target));
        tracing::info!(generation = generation.0, now = request.now, "new working keys sign");
        Ok(KeyRotation { generation, old_until_unix_ms })
    }
}

//! Targets' own keys on their way to the servers: see [`crate::target_keys`].

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::{self, key};
use weir_metastore::{Engine, transact};
use weir_types::{Error, ErrorKind, KeyGeneration, Result, ServerId, TargetId};
use weir_wire::peer::{OwnKey, TargetReport};

impl<E: Engine> MetaMachine<E> {
    /// Has the own keys sign that have arrived at a server. While two generations of working keys of
    /// a target count already, its new key waits.
    pub(in crate::machine) fn take_own_keys(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        now: Moment,
    ) -> Result<()> {
        for report in reports {
            let (target, has) = (report.target, (report.own_key, report.own_key_from));
            if !self.cluster.serves(server, target) || !self.target_keys.has_arrived(target, has) {
                continue;
            }
            let all: Vec<TargetId> =
                self.cluster.all().into_iter().map(|(_, t)| t.target).collect();
            let there = |target| all.contains(&target);
            let until = self.old_until(self.target_keys.ends_at_once(target), now);
            let keys = match self.keys.rotated(&[target], until, now.unix_ms(), there) {
                Err(error) if error.kind == ErrorKind::Busy => continue,
                keys => keys?,
            };
            let own = self.target_keys.switched(target, has, keys.generation(), there)?;
            let (working, targets) = (schema::encode(&keys), schema::encode(&own));
            transact(&mut self.engine, |tx| {
                tx.put(key::WORKING_KEYS, &working)?;
                Ok::<_, Error>(tx.put(key::TARGET_KEYS, &targets)?)
            })?;
            self.signer.rotate(keys.generation());
            (self.keys, self.target_keys) = (keys, own);
            self.signer.set_own(self.target_keys.replaced());
            self.signer.prepare(self.cluster.view.targets.iter().map(|t| t.target));
            tracing::info!(%target, generation = has.0.0, "a new key of a target signs");
        }
        Ok(())
    }

    /// The own keys of targets that their server lacks.
    pub(in crate::machine) fn own_keys_for(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
    ) -> Vec<OwnKey> {
        let mut lacking = Vec::new();
        for report in reports.iter().filter(|it| self.cluster.serves(server, it.target)) {
            let has = (report.own_key, report.own_key_from);
            lacking
                .extend(self.target_keys.wanted(report.target, has).map(|it| (report.target, it)));
        }
        let server_key = self.signer.server_key(server);
        let seal = |(target, of): (TargetId, (KeyGeneration, KeyGeneration))| {
            let key = self.signer.master().target(target, of.0);
            self.nonce_count += 1;
            let nonce = self.nonces.mac("weir 1 nonce", &[&self.nonce_count.to_le_bytes()]).0;
            OwnKey::seal(target, of, &key, nonce, &server_key)
        };
        lacking.into_iter().map(seal).collect()
    }
}

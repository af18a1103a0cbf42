//! What is done without a request: periodic and background work, and the end of a turn.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::{Engine, Sequence};
use weir_types::{ErrorKind, Result};

/// Transactions per tick.
const TICK_STEPS: usize = 256;

impl<E: Engine> MetaMachine<E> {
    /// Runs periodic work. To be called about once a second, after the requests of the turn.
    pub fn on_tick(&mut self, now: Moment) -> Result<()> {
        self.engine.poll()?;
        self.notice_pause(now);
        // While replies wait for the journal it is as if the process was stopped.
        if !self.is_stalled {
            self.last_tick_ms = now.monotonic_ms;
        }
        self.recorded.hand_over();
        self.exports.forget_old(now.monotonic_ms);
        self.revoked.forget_old(now.unix_ms());
        // A step that finds no room does not keep the others from being taken.
        let mut no_room = None;
        let mut goes_on = |done: Result<()>| match done {
            Err(error) if error.kind == ErrorKind::NoSpace => {
                no_room.get_or_insert(error);
                Ok(())
            }
            done => done,
        };
        goes_on(self.settle_keys(now))?;
        goes_on(self.lose_silent_targets(now))?;
        self.cluster.give_up_removal(now.monotonic_ms);
        self.cluster.sample(now.monotonic_ms);
        goes_on(self.tick_mover(now))?;
        goes_on(self.expire_sessions(now))?;
        goes_on(self.tick_leases(now))?;
        self.tick_locks(now);
        if now.monotonic_ms.saturating_sub(self.started_ms) >= self.times.grace_ms {
            self.settle();
        }
        goes_on(self.work(TICK_STEPS, now))?;
        no_room.map_or(Ok(()), Err)
    }

    /// Says whether replies wait for the journal: those who do not get them cannot go on, and are not
    /// silent by themselves.
    pub fn set_stalled(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
    }

    /// Whether [`MetaMachine::work`] has anything to do.
    pub fn has_work(&self) -> bool {
        !self.background.is_idle() || self.quotas.is_counting() || self.mover.has_work()
    }

    /// Runs at most `steps` transactions of background work.
    ///
    /// # Errors
    /// Those of the engine. An invalid record is logged, and ignored until the next start: it must
    /// not stop the server. After `NoSpace` the work is still recorded, and can wait.
    pub fn work(&mut self, steps: usize, now: Moment) -> Result<()> {
        for _ in 0..steps {
            // Copies are made while files are counted: they take turns.
            let (moves, counts) = (self.mover.has_work(), self.quotas.is_counting());
            self.background.counted = counts && !(moves && self.background.counted);
            let step = match self.background.is_idle() {
                false => self.step(now),
                true if self.background.counted => self.count_for_quotas(),
                true if moves => self.step_mover(now),
                true => break,
            };
            match step {
                Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    tracing::error!("background work: {error}");
                }
                Err(error) if error.kind == ErrorKind::NoSpace => {
                    self.background.look_again();
                    return Err(error);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Ends a turn: when this returns, the turn's changes survive the death of the process. After
    /// an error no reply of this turn may be sent, and the server has to stop.
    pub fn flush(&mut self) -> Result<Sequence> {
        self.reserve_ids()?;
        self.engine.flush()
    }

    /// Ends a turn as [`MetaMachine::flush`], and waits for nothing that takes long: replies of this
    /// turn may be sent when a later call returns the turn's last commit ([`Engine::begin_flush`]).
    pub fn begin_flush(&mut self) -> Result<Sequence> {
        self.reserve_ids()?;
        self.engine.begin_flush()
    }

    fn reserve_ids(&mut self) -> Result<()> {
        match self.ids.upkeep(&mut self.engine) {
            // Who wants one, when all that are reserved are used, is told.
            Err(error) if error.kind == ErrorKind::NoSpace => Ok(()),
            other => other,
        }
    }
}

//! What happens next, one event after another.

use crate::world::{Event, Next, World};

impl World {
    /// Does the next event that is not after `limit`, as far as no thread has to run for it.
    pub(crate) fn advance(&mut self, limit: u64) -> Next {
        let Some((time, event)) = self.take_next(limit) else { return Next::Nothing };
        match event {
            Event::Run(thread) => self.run(thread),
            Event::Deadline(thread) => self.reach_deadline(thread, time),
            Event::Arrival(connection, to) => {
                self.arrive(connection, to);
                Next::Done
            }
        }
    }
}

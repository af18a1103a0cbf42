//! A distributed queue (River, 1.05 and 1.06): a writer sends each block to any disk for which it
//! has a credit, and gets the credit back when the block is written. So each disk gets as many
//! blocks as it can write, and its queue is no longer than the credits of all writers.

/// The credits of one writer for each disk.
#[derive(Clone, Debug)]
pub struct Credits {
    left: Vec<u32>,
    each: Vec<u32>,
}

impl Credits {
    /// Starts with `each` credits for each of `disks` disks.
    pub fn new(disks: usize, each: u32) -> Self {
        Self { left: vec![each; disks], each: vec![each; disks] }
    }

    /// Takes a credit for the next block and returns its disk, chosen by `random` among the disks
    /// with credits. Returns `None` if there is no credit: a block has to be written first.
    pub fn take(&mut self, random: u64) -> Option<usize> {
        let able = self.left.iter().filter(|left| **left > 0).count() as u64;
        let mut turn = random.checked_rem(able)?;
        for (disk, left) in self.left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
            if turn == 0 {
                *left -= 1;
                return Some(disk);
            }
            turn -= 1;
        }
        None
    }

    /// Returns a credit after a block was written. A credit that was not taken is ignored.
    pub fn give(&mut self, disk: usize) {
        if let Some((left, each)) = self.left.get_mut(disk).zip(self.each.get(disk)) {
            *left = (*left + 1).min(*each);
        }
    }

    /// Ends the use of a disk: no further block goes there.
    pub fn close(&mut self, disk: usize) {
        if let Some((left, each)) = self.left.get_mut(disk).zip(self.each.get_mut(disk)) {
            (*left, *each) = (0, 0);
        }
    }

    /// Whether any disk is still in use.
    pub fn any(&self) -> bool {
        self.each.iter().any(|each| *each > 0)
    }

    /// Number of blocks on their way to a disk.
    pub fn outstanding(&self, disk: usize) -> u32 {
        self.left.get(disk).zip(self.each.get(disk)).map_or(0, |(left, each)| each - left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_disk_has_more_than_its_credits_and_none_is_lost(
            steps in prop::collection::vec((any::<u64>(), 0usize..5, any::<bool>()), 0..200),
        ) {
            let mut credits = Credits::new(5, 3);
            let mut out = [0u32; 5];
            for (random, disk, gives) in steps {
                if gives {
                    out[disk] = out[disk].saturating_sub(1);
                    credits.give(disk);
                } else if let Some(disk) = credits.take(random) {
                    out[disk] += 1;
                } else {
                    prop_assert_eq!(out, [3; 5]);
                }
                for (disk, out) in out.iter().enumerate() {
                    prop_assert!(*out <= 3);
                    prop_assert_eq!(credits.outstanding(disk), *out);
                }
            }
        }
    }

    #[test]
    fn nothing_goes_to_a_disk_that_is_closed() {
        let mut credits = Credits::new(2, 2);
        let first = credits.take(0);
        assert_eq!(first, Some(0));
        credits.close(0);
        credits.give(0);
        assert_eq!([credits.take(0), credits.take(1), credits.take(2)], [Some(1), Some(1), None]);
        assert!(credits.any());
        credits.close(1);
        assert!(!credits.any());
    }

    #[test]
    fn disks_get_blocks_as_fast_as_they_write_them() {
        // Disk 2 needs twice as long as the others for a block.
        let takes = [4u64, 4, 8, 4];
        let (mut credits, mut random) = (Credits::new(4, 4), 1u64);
        let mut queues = vec![std::collections::VecDeque::new(); 4];
        let mut written = [0u32; 4];
        for now in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            while let Some(disk) = credits.take(random >> 33) {
                let busy = queues[disk].back().copied().unwrap_or(now).max(now);
                queues[disk].push_back(busy + takes[disk]);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            for disk in 0..4 {
                while queues[disk].front().is_some_and(|end| *end <= now) {
                    queues[disk].pop_front();
                    credits.give(disk);
                    written[disk] += 1;
                }
            }
        }
        let share = f64::from(written[2]) / f64::from(written.iter().sum::<u32>());
        assert!((share - 1.0 / 7.0).abs() < 0.005, "{written:?}");
    }
}

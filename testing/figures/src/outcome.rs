//! What a round came to, by the readers' clocks and the kernel's counts.

use crate::worker::Step;
use weir_policy::best_common_rate;
use weir_testbed::{LinkCounts, Sample};

const MIB: f64 = (1 << 20) as f64;

/// What a disk did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// All that it gave, by the kernel's count, from before the perturber began until it had
    /// ended.
    pub disk_bytes: u64,
    /// Of that, what the perturber got.
    pub perturber_bytes: u64,
    /// What it gave while the readers read,
    pub meanwhile_disk_bytes: u64,
    /// of that, to the perturber,
    pub meanwhile_perturber_bytes: u64,
    /// and what was written to it meanwhile.
    pub meanwhile_written_bytes: u64,
}

impl Use {
    /// What the server got.
    pub fn served_bytes(&self) -> u64 {
        self.disk_bytes.saturating_sub(self.perturber_bytes)
    }

    /// What part of so many bytes, which the disk could give, the perturber got while the readers
    /// read.
    pub fn perturbers_part(&self, could_give: f64) -> f64 {
        self.meanwhile_perturber_bytes as f64 / could_give
    }
}

/// What came of it.
pub struct Outcome {
    /// Of each reader, how far it was when.
    pub readers: Vec<Vec<Step>>,
    pub disks: Vec<Use>,
    /// What the link of each disk's node carried while they read; none without a testbed.
    pub links: Vec<LinkCounts>,
    /// What the perturber of each of them has sent, from before they read until it had ended.
    pub sent_bytes: Vec<u64>,
    /// Since the readers began, or a moment earlier.
    pub samples: Vec<Sample>,
    /// From the beginning until the last one had ended.
    pub seconds: f64,
    /// What [`crate::round::Round::processes`] used of processors meanwhile.
    pub cpu_seconds: f64,
    /// The name of the job whose processes they are.
    pub job: Option<String>,
}

impl Outcome {
    /// What the perturber of a disk has had, and when.
    pub fn perturbed(&mut self, disk: usize, steps: &[Step]) {
        let had = |at_us| steps.iter().take_while(|step| step.at_us <= at_us).last();
        let bytes = |at_us| had(at_us).map_or(0, |step| step.bytes);
        let end = self.readers.iter().map(|steps| steps[steps.len() - 1].at_us).max();
        let meanwhile = bytes(end.unwrap_or(0)) - bytes(self.begin_us());
        let disk = &mut self.disks[disk];
        (disk.perturber_bytes, disk.meanwhile_perturber_bytes) = (bytes(u64::MAX), meanwhile);
    }

    fn begin_us(&self) -> u64 {
        self.readers.iter().map(|steps| steps[0].at_us).min().unwrap_or(0)
    }

    /// What all of them have read.
    pub fn read_bytes(&self) -> u64 {
        self.readers.iter().filter_map(|steps| steps.last()).map(|step| step.bytes).sum()
    }

    /// MiB a second of each reader, by its own clock from the common beginning.
    pub fn rates(&self) -> Vec<f64> {
        let begin = self.begin_us();
        let rate = |steps: &Vec<Step>| {
            let end = steps[steps.len() - 1];
            end.bytes as f64 / MIB / ((end.at_us - begin) as f64 / 1e6)
        };
        self.readers.iter().map(rate).collect()
    }

    /// MiB a second of all readers until the last one had ended, by their number: what the slowest
    /// has if all read as much.
    pub fn together(&self) -> f64 {
        let (mut bytes, mut seconds) = (0.0, 0.0_f64);
        for (steps, rate) in self.readers.iter().zip(self.rates()) {
            let own = steps[steps.len() - 1].bytes as f64 / MIB;
            (bytes, seconds) = (bytes + own, seconds.max(own / rate));
        }
        bytes / seconds / self.readers.len() as f64
    }

    /// MiB a second that each disk could give until the last reader had ended without what its
    /// perturber had.
    fn left(&self, rate: u64) -> impl Iterator<Item = f64> {
        let perturber = |disk: &Use| disk.meanwhile_perturber_bytes as f64 / self.seconds;
        let of_disk = move |disk| (rate as f64 - perturber(disk)) / MIB;
        self.disks.iter().map(of_disk)
    }

    /// MiB a second that each of the readers would have had, if the disks had given them all that
    /// they can.
    pub fn left_for_each(&self, rate: u64) -> f64 {
        self.left(rate).sum::<f64>() / self.readers.len() as f64
    }

    /// The same by what is possible at best with so many chained copies of parts of equal size, one
    /// for each reader, whoever reads them; `None`: there is another number of disks.
    pub fn bound(&self, rate: u64, copies: usize) -> Option<f64> {
        let left: Vec<f64> = self.left(rate).collect();
        best_common_rate(&vec![1.0; self.readers.len()], &left, copies)
    }

    /// All bytes by the mean time of a reader, in MiB a second.
    pub fn aggregate(&self) -> f64 {
        let bytes = |steps: &Vec<Step>| steps[steps.len() - 1].bytes as f64 / MIB;
        let all = self.readers.iter().map(bytes);
        let seconds: f64 = all.clone().zip(self.rates()).map(|(mib, rate)| mib / rate).sum();
        all.sum::<f64>() / (seconds / self.readers.len() as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// Of readers with so many MiB after so many seconds, and disks that gave 20 MiB/s, the first
    /// of them half to a perturber.
    fn outcome(readers: &[(u64, u64)]) -> Outcome {
        let steps = |(mib, seconds): &(u64, u64)| {
            let begin = Step { at_us: SECOND_US, bytes: 0 };
            vec![begin, Step { at_us: (1 + seconds) * SECOND_US, bytes: mib << 20 }]
        };
        let seconds = readers.iter().map(|(_, seconds)| *seconds).max().unwrap_or_default();
        let given = (20 << 20) * seconds;
        let disk = |n: usize| {
            let meanwhile_perturber_bytes = if n == 0 { given / 2 } else { 0 };
            Use { meanwhile_perturber_bytes, meanwhile_disk_bytes: given, ..Use::default() }
        };
        Outcome {
            readers: readers.iter().map(steps).collect(),
            disks: (0..readers.len()).map(disk).collect(),
            links: Vec::new(),
            sent_bytes: Vec::new(),
            samples: Vec::new(),
            seconds: seconds as f64,
            cpu_seconds: 0.0,
            job: None,
        }
    }

    #[test]
    fn what_a_perturber_has_had_before_and_after_does_not_count() {
        let mut outcome = outcome(&[(40, 2), (40, 4)]);
        let step = |at, mib: u64| Step { at_us: at * SECOND_US, bytes: mib << 20 };
        outcome.perturbed(1, &[step(0, 0), step(1, 7), step(3, 20), step(5, 47), step(6, 60)]);
        let disk = outcome.disks[1];
        assert_eq!((disk.perturber_bytes, disk.meanwhile_perturber_bytes), (60 << 20, 40 << 20));
        assert_eq!(disk.perturbers_part((80 << 20) as f64), 0.5);
    }

    #[test]
    fn the_last_reader_counts_for_all() {
        assert_eq!(outcome(&[(40, 2), (40, 4)]).together(), 10.0);
        assert_eq!(outcome(&[(20, 1), (40, 4), (60, 3), (40, 2)]).together(), 10.0);
    }

    #[test]
    fn possible_is_what_perturbers_leave_of_the_narrowest_arc() {
        let outcome = outcome(&[(40, 4); 4]);
        assert_eq!(outcome.left_for_each(20 << 20), 17.5);
        assert_eq!(outcome.bound(20 << 20, 2), Some(17.5));
        assert_eq!(outcome.bound(20 << 20, 1), Some(10.0), "each has a disk alone");
    }
}

//! To which job a program belongs, by the environment that launchers give it: nothing has to
//! be compiled anew, or told.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
pub use weir_policy::Partition;
use weir_policy::Progress;
use weir_types::{JobId, Rank};
use weir_wire::Header;

/// What `weir run` sets, and anybody may: the name of the job,
pub const JOB: &str = "WEIR_JOB";
/// which process of it this is,
pub const RANK: &str = "WEIR_RANK";
/// of how many,
pub const RANKS: &str = "WEIR_RANKS";
/// and, if it is `1`, that each process reads its share of one file rather than all of one.
pub const SHARED: &str = "WEIR_SHARED";
/// Which ranges of each file it reads, as `0+64M,1G+64M`, if not all of it.
pub const RANGES: &str = "WEIR_RANGES";

/// Launchers: what names the job (all of the first that are there), the rank and the number
/// of ranks. A launcher that runs under another one comes before that.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        job: &[&["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"]],
        rank: &["RANK"],
        ranks: &["WORLD_SIZE"],
    },
    Launcher {
        name: "openmpi",
        job: &[&["PMIX_NAMESPACE"], &["OMPI_MCA_ess_base_jobid"], &["OMPI_MCA_orte_ess_jobid"]],
        rank: &["OMPI_COMM_WORLD_RANK"],
        ranks: &["OMPI_COMM_WORLD_SIZE"],
    },
    Launcher {
        name: "pmi",
        job: &[&["PMI_JOBID"], &["PMI_PORT"], &["SLURM_JOB_ID", "SLURM_STEP_ID"], &[]],
        rank: &["PMI_RANK"],
        ranks: &["PMI_SIZE"],
    },
    Launcher {
        name: "slurm",
        job: &[&["SLURM_JOB_ID", "SLURM_STEP_ID"]],
        rank: &["SLURM_PROCID"],
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    },
];

struct Launcher {
    name: &'static str,
    job: &'static [&'static [&'static str]],
    rank: &'static [&'static str],
    ranks: &'static [&'static str],
}

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The job.
    pub job: JobId,
    /// Which process.
    pub rank: Rank,
    /// Of how many, at least 1.
    pub ranks: u32,
    /// Each reads its share of a file.
    pub shared: bool,
}

impl Member {
    /// By the variables of its environment. `parent`: a number that the processes of a job on
    /// one machine have in common, for launchers that give the job no name. `None`: it belongs to
    /// no job.
    pub fn of(environment: &BTreeMap<&str, &str>, uid: u32, parent: u64) -> Option<Self> {
        let get = |name: &&str| environment.get(*name).copied().filter(|value| !value.is_empty());
        let number = |names: &[&str]| names.iter().find_map(get).and_then(|n| n.parse().ok());
        let launched = LAUNCHERS.iter().find_map(|launcher| {
            let rank: u32 = number(launcher.rank)?;
            let all = |names: &&&[&str]| names.iter().all(|name| get(name).is_some());
            let names = launcher.job.iter().find(all)?;
            let mut name: Vec<&str> = names.iter().filter_map(get).collect();
            name.push(launcher.name);
            // One that has no name is the same as far as one machine goes.
            let parent = if names.is_empty() { parent } else { 0 };
            Some((number_of(&name, uid, parent), rank, number(launcher.ranks).unwrap_or(1)))
        });
        let named = get(&JOB).map(|name| job_named(name, uid));
        let (job, rank, ranks) = match (named, launched) {
            (Some(job), Some((_, rank, ranks))) => (job, rank, ranks),
            (Some(job), None) => (job, 0, 1),
            (None, Some(launched)) => launched,
            (None, None) => return None,
        };
        let rank = number(&[RANK]).unwrap_or(rank);
        let ranks = number(&[RANKS]).unwrap_or(ranks).max(1);
        let shared = get(&SHARED).is_some_and(|value| value == "1");
        Some(Self { job, rank: Rank(rank), ranks, shared })
    }
}

/// The job that a user has given a name ([`JOB`], `weir run --job`).
pub fn job_named(name: &str, uid: u32) -> JobId {
    number_of(&[name], uid, 0)
}

/// The number of a job, from what names it (FNV-1a).
fn number_of(names: &[&str], uid: u32, parent: u64) -> JobId {
    let numbers = uid.to_le_bytes().into_iter().chain(parent.to_le_bytes());
    // No name has a zero byte.
    let text = names.iter().flat_map(|name| name.bytes().chain([0]));
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    JobId(text.chain(numbers).fold(0xcbf2_9ce4_8422_2325, mix).max(1))
}

/// One open file, read by a process of a job: how far that is. Bytes are counted as they come, so
/// that others can be told between requests as well.
#[derive(Debug)]
pub struct JobReader {
    member: Member,
    ranges: Option<Arc<Partition>>,
    work_bytes: AtomicU64,
    done_bytes: AtomicU64,
    /// Of reads that have not ended.
    coming_bytes: AtomicU64,
}

impl JobReader {
    /// It reads all of the file, or its share of it, and has read nothing yet.
    pub fn new(member: Member) -> Self {
        Self::of_ranges(member, None)
    }

    /// It reads these ranges, and has read nothing yet.
    pub fn of_ranges(member: Member, ranges: Option<Arc<Partition>>) -> Self {
        let [work_bytes, done_bytes, coming_bytes] = [0; 3].map(AtomicU64::new);
        Self { member, ranges, work_bytes, done_bytes, coming_bytes }
    }

    /// Which process.
    pub fn member(&self) -> Member {
        self.member
    }

    /// These bytes were read. Those that it did not mean to read do not count.
    pub fn has_read(&self, bytes: Range<u64>) {
        self.done_bytes.fetch_add(self.counted(bytes), Relaxed);
    }

    fn counted(&self, bytes: Range<u64>) -> u64 {
        match &self.ranges {
            Some(ranges) => ranges.overlap(bytes),
            None => bytes.end.saturating_sub(bytes.start),
        }
    }

    /// These bytes of a read have come, which has not ended. How much of it counts: that is to be
    /// [`JobReader::ends`]ed.
    pub(crate) fn comes(&self, bytes: Range<u64>) -> u64 {
        let counted = self.counted(bytes);
        self.coming_bytes.fetch_add(counted, Relaxed);
        counted
    }

    /// A read has ended of which so much had come.
    pub(crate) fn ends(&self, bytes: u64) {
        self.coming_bytes.fetch_sub(bytes, Relaxed);
    }

    /// It reads a file of so many bytes, or its part of that.
    pub fn reads(&self, file_bytes: u64) {
        let work_bytes = match &self.ranges {
            Some(ranges) => ranges.overlap(0..file_bytes),
            None if self.member.shared => file_bytes.div_ceil(self.member.ranks.into()),
            None => file_bytes,
        };
        self.work_bytes.store(work_bytes, Relaxed);
    }

    /// How far it is; `None`: it is not known what it reads.
    pub fn progress(&self) -> Option<Progress> {
        let work_bytes = self.work_bytes.load(Relaxed);
        let done_bytes = self.done_bytes.load(Relaxed) + self.coming_bytes.load(Relaxed);
        let done_bytes = done_bytes.min(work_bytes);
        (work_bytes > 0).then_some(Progress { done_bytes, work_bytes })
    }

    /// Says in a request for whom it is.
    pub(crate) fn sign(&self, request: &mut Header) {
        request.job = self.member.job;
        request.rank = self.member.rank;
        if let Some(progress) = self.progress() {
            let all = f64::from(u32::MAX);
            request.progress = (progress.share() * all) as u32;
            let mib = progress.work_bytes.div_ceil(1 << 20).clamp(1, u32::MAX.into());
            request.work = mib as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(environment: &[(&str, &str)], parent: u64) -> Option<Member> {
        Member::of(&environment.iter().copied().collect(), 1000, parent)
    }

    fn rank_of(environment: &[(&str, &str)]) -> (u32, u32) {
        member(environment, 5).map(|m| (m.rank.0, m.ranks)).unwrap()
    }

    #[test]
    fn what_has_come_of_a_read_counts_once_before_and_after_its_end() {
        let member = Member { job: JobId(1), rank: Rank(0), ranks: 2, shared: false };
        let ranges = Arc::new(Partition::new([100..200, 200..300]));
        let reader = JobReader::of_ranges(member, Some(ranges));
        reader.reads(1_000);
        let done = || reader.progress().unwrap().done_bytes;
        let came = reader.comes(0..150) + reader.comes(250..400);
        assert_eq!((came, done()), (100, 100), "of its own part");
        reader.ends(came);
        reader.has_read(0..400);
        assert_eq!(done(), 200);
    }

    #[test]
    fn each_launcher_says_which_process_of_how_many() {
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("PMIX_NAMESPACE", "prterun-host-77@1"),
            ("PMIX_RANK", "3"),
        ];
        assert_eq!(rank_of(&open_mpi), (3, 8));
        let mpich = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_FD", "6")];
        assert_eq!(rank_of(&mpich), (1, 4));
        let slurm = [
            ("SLURM_JOB_ID", "12"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "2"),
            ("SLURM_NTASKS", "16"),
        ];
        assert_eq!(rank_of(&slurm), (2, 16));
        let torch = [
            ("TORCHELASTIC_RUN_ID", "none"),
            ("MASTER_ADDR", "host"),
            ("MASTER_PORT", "29500"),
            ("RANK", "5"),
            ("WORLD_SIZE", "6"),
        ];
        assert_eq!(rank_of(&torch), (5, 6));
        // It runs under it.
        assert_eq!(rank_of(&[&slurm[..], &torch[..]].concat()), (5, 6));
        assert_eq!(member(&[("HOME", "/root"), ("RANK", "5")], 5), None);
        // A shell in an allocation is no process of a step.
        assert_eq!(member(&slurm[..2], 5), None);
    }

    #[test]
    fn processes_of_a_job_have_its_number_and_no_others() {
        let of = |rank, size| member(&[("PMI_RANK", rank), ("PMI_SIZE", size)], 5).unwrap().job;
        assert_eq!(of("0", "4"), of("3", "4"));
        let unnamed = [("PMI_RANK", "0"), ("PMI_SIZE", "4")];
        assert_ne!(member(&unnamed, 5), member(&unnamed, 6), "another launcher");
        let named = |name| member(&[(JOB, name), (RANK, "1"), (RANKS, "2")], 5).unwrap();
        assert_eq!(named("a"), named("a"));
        assert_ne!(named("a").job, named("b").job);
        assert_eq!(named("a").rank, Rank(1));
        let name = BTreeMap::from([(JOB, "a")]);
        assert_ne!(Member::of(&name, 0, 5), Member::of(&name, 1, 5), "of another user");
        // A name for what a launcher has begun.
        let both = [(JOB, "a"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")];
        let both = member(&both, 5).unwrap();
        assert_eq!((both.job, both.rank, both.ranks), (named("a").job, Rank(3), 4));
    }

    #[test]
    fn progress_is_of_a_file_or_of_a_share_of_one() {
        let read = |shared: &str| {
            let of = [(JOB, "a"), (RANK, "0"), (RANKS, "4"), (SHARED, shared)];
            let reader = JobReader::new(member(&of, 0).unwrap());
            assert_eq!(reader.progress(), None);
            reader.reads(1_000);
            reader.has_read(0..100);
            let progress = reader.progress().unwrap();
            reader.has_read(100..9_100);
            (progress.done_bytes, progress.work_bytes, reader.progress().unwrap().left_bytes())
        };
        assert_eq!(read("0"), (100, 1_000, 0));
        assert_eq!(read("1"), (100, 250, 0));
    }

    #[test]
    fn progress_is_of_the_ranges_that_are_read_and_there() {
        let member = member(&[(JOB, "a"), (SHARED, "1"), (RANKS, "4")], 0).unwrap();
        let ranges: Partition = "100+100,300+100,350+100,900+200".parse().unwrap();
        let reader = JobReader::of_ranges(member, Some(Arc::new(ranges)));
        reader.reads(1_000);
        let progress = || reader.progress().map(|p| (p.done_bytes, p.work_bytes));
        assert_eq!(progress(), Some((0, 350)));
        // What a kernel reads ahead of the gap is nothing that was to be done.
        reader.has_read(150..320);
        assert_eq!(progress(), Some((70, 350)));
        reader.reads(100);
        assert_eq!(progress(), None, "there is nothing of it");
    }
}

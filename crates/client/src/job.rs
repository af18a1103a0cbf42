//! The job of a program, from the environment variables that launchers set. Programs need not be
//! recompiled or configured.

pub use crate::core::job::{JobReader, Member};
use std::collections::BTreeMap;
pub use weir_policy::Partition;
use weir_types::{JobId, Rank};

/// Variable with the name of the job. `weir run` sets it, and so may anyone.
pub const JOB: &str = "WEIR_JOB";
/// Variable with the rank of the process in the job.
pub const RANK: &str = "WEIR_RANK";
/// Variable with the number of processes in the job.
pub const RANKS: &str = "WEIR_RANKS";
/// Variable that is `1` if each process reads its share of one file rather than a whole file.
pub const SHARED: &str = "WEIR_SHARED";
/// Variable with the ranges of each file that the process reads, such as `0+64M,1G+64M`, if it does
/// not read all of it.
pub const RANGES: &str = "WEIR_RANGES";

/// Known launchers, with the variables for the job (all that are set), the rank and the number of
/// ranks. A launcher that runs under another one comes first.
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

impl Member {
    /// Finds the job from the environment variables of a process. `parent` is a number that the
    /// processes of a job on one machine share, for launchers that give the job no name. Returns
    /// `None` outside of jobs.
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

/// Id of the job with a name given by a user ([`JOB`], `weir run --job`).
pub fn job_named(name: &str, uid: u32) -> JobId {
    number_of(&[name], uid, 0)
}

/// What the processes of a job on one machine have in common if they have the same parent process:
/// a number from that and the boot.
pub fn parent_number(pid: u64) -> u64 {
    let boot = weir_host::boot_id().unwrap_or_default();
    pid ^ (boot as u64).rotate_left(32)
}

/// Id of a job, computed from its names (FNV-1a).
fn number_of(names: &[&str], uid: u32, parent: u64) -> JobId {
    let numbers = uid.to_le_bytes().into_iter().chain(parent.to_le_bytes());
    // No name has a zero byte.
    let text = names.iter().flat_map(|name| name.bytes().chain([0]));
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    JobId(text.chain(numbers).fold(0xcbf2_9ce4_8422_2325, mix).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn member(environment: &[(&str, &str)], parent: u64) -> Option<Member> {
        Member::of(&environment.iter().copied().collect(), 1000, parent)
    }

    fn rank_of(environment: &[(&str, &str)]) -> (u32, u32) {
        member(environment, 5).map(|m| (m.rank.0, m.ranks)).unwrap()
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

//! The command line: names and flags follow cp, ls, df, mount and kubectl.

mod checks;
mod choices;
mod cluster;
mod daemons;
#[cfg(test)]
mod effects;
mod files;
mod holders;
mod jobs;
mod joining;
mod keys;
mod layouts;
mod log;
mod manual;
mod members;
mod mount_helper;
mod quotas;
mod reduce;
mod spark_env;
mod testbed;

pub use checks::{AcceptLoss, Fsck, Scrub, Sim};
pub use choices::{ClientChoice, ClusterChoice};
pub use cluster::{Down, Rebalance, Status, Up};
pub use daemons::{
    Daemon, Detach, Meta, MetaAdd, MetaCommand, MetaExport, MetaImport, MetaJoin, MetaRemove,
    Mount, Umount,
};
pub use files::{Cat, Cp, Kept, Ls, Mkdir, Rm, Spread, Stat, Take};
pub use holders::{Clients, HoldChoice, Locks, StandingChoice};
pub use jobs::{Explain, Run};
pub use joining::{Invite, Join};
pub use keys::{Key, KeyList, KeyNew, KeyRevoke, KeyRotate, KeyServer, SquashChoice};
pub use layouts::{
    Advise, Df, Family, Layout, LayoutFlags, MkFile, Places, Protocol, Reduced, SetLayout,
};
pub use log::Log;
pub use manual::{Completions, Man};
pub use members::{
    Server, ServerAdd, ServerChoice, ServerDrain, ServerList, ServerRemove, Target, TargetAdd,
    TargetChoice, TargetCreate, TargetDrain, TargetRemove, TargetReplace, Targets, Top,
};
pub use mount_helper::MountHelper;
pub use quotas::{Quota, QuotaCommand, QuotaList, QuotaRemove, QuotaSet, SubjectName};
pub use reduce::{Reduce, ReduceEncode, ReduceRemove, ReduceShow, ReduceWork};
pub use spark_env::SparkEnv;
pub use testbed::{
    Testbed, TestbedChoice, TestbedCold, TestbedDisk, TestbedPerturb, TestbedRun, TestbedStatus,
    TestbedUp,
};

use clap::{Parser, Subcommand};

/// Weir: a parallel file system
#[derive(Parser)]
#[command(name = "weir", version = crate::version::LINE, propagate_version = true)]
#[command(after_help = "Start with: weir up --mount /tmp/weir")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster on this machine: make it, or start the daemons that are not running
    Up(Up),
    /// Stop the cluster of `weir up`
    Down(Down),
    /// Print what another machine needs to join this cluster
    Invite(Invite),
    /// Join a cluster whose metadata server is on another machine, with disks of this one
    Join(Join),
    /// Show servers, targets, space and problems
    Status(Status),
    /// Show the logs of the daemons and mounts on this machine
    Log(Log),
    /// Move copies so that targets use space evenly
    Rebalance(Rebalance),
    /// Run a data server in the foreground
    Data(Daemon),
    /// Run a metadata server in the foreground; save and restore its metadata
    Meta(Meta),
    /// Mount the file system
    Mount(Mount),
    /// Unmount the file system
    #[command(alias = "unmount")]
    Umount(Umount),
    /// Copy files into, out of, or within the cluster
    Cp(Cp),
    /// Print files
    Cat(Cat),
    /// Write records, in any order, to those disks that accept them first
    Spread(Spread),
    /// Print those parts of files that no other process of the job prints
    Take(Take),
    /// List directories
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// Show the attributes of files
    Stat(Stat),
    /// Remove files
    Rm(Rm),
    /// Make directories
    Mkdir(Mkdir),
    /// Show where the bytes of a file are
    Layout(Layout),
    /// Show the space of each target
    #[command(disable_help_flag = true)]
    Df(Df),
    /// Make an empty file with a layout of its own
    Mkfile(MkFile),
    /// Set the default layout of a directory or the layout of an empty file; without layout flags,
    /// show it
    Setlayout(SetLayout),
    /// Recommend a stripe unit and a number of targets for the way in which a file is read
    Advise(Advise),
    /// Run a program as a job, whose processes should finish at the same time
    Run(Run),
    /// Show the progress of the processes of jobs, and which disk delays them
    Explain(Explain),
    /// Print what a Spark cluster needs to use this cluster
    SparkEnv(SparkEnv),
    /// Verify all data and metadata against their checksums
    Scrub(Scrub),
    /// Check that names, files and objects belong together
    Fsck(Fsck),
    /// Make files usable again after the last current copy of some bytes is lost for good
    AcceptLoss(AcceptLoss),
    /// Run whole clusters on simulated machines with random faults
    Sim(Sim),
    /// Emulate machines with disks and links of a set speed on this one, for experiments
    #[command(subcommand)]
    Testbed(Testbed),
    /// Compute how long data lasts, for layouts, codes, protocols and rebuild speeds
    Reliability(Box<crate::reliability::arguments::Reliability>),
    /// Replace copies of files in plain directories by parity data
    #[command(subcommand)]
    Reduce(Reduce),
    /// Make keys for clients and servers
    #[command(subcommand)]
    Key(Key),
    /// Show and set the quotas of users, groups and directories
    Quota(Quota),
    /// Show the targets with their states and what they lack
    Targets(Targets),
    /// Show what each disk does now, and which disk delays the others
    Top(Top),
    /// Show the connected mounts and programs
    Clients(Clients),
    /// Show who holds, or waits for, which locks and leases on which files
    Locks(Locks),
    /// Show, add, drain, remove and replace targets
    #[command(subcommand)]
    Target(Target),
    /// Show, add, drain and remove data servers
    #[command(subcommand)]
    Server(Server),
    /// Print the completions of this command line for a shell
    Completions(Completions),
    /// Write a manual page for each command
    Man(Man),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        MountHelper::command().debug_assert();
    }
}

//! The problems that a cluster can have: each has one line that describes it and another that says
//! what to do.
//!
//! Invariant: each `weir` command in these texts can be run as it is written (a test parses them
//! with clap).

use crate::cluster::daemon::data_name;
use crate::cluster::targets::{lacking, left};
use crate::failure::Failure;
use crate::text::{human_duration, human_size};
use serde_json::{Value, json};
use weir_types::{Error, ErrorKind, FsUsage};
use weir_wire::map::TargetState;
use weir_wire::peer::is_recovering;
use weir_wire::targets::TargetView;

/// A disk with less free space than this, in percent, is nearly full.
const SCARCE_PERCENT: u64 = 5;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A daemon of this machine is not running.
    DaemonDown { name: String },
    /// A daemon or mount does not serve metrics at its configured address.
    NoMetrics { name: String, address: String },
    /// The process of a mount has ended.
    MountDead { path: String, log: String },
    /// The process of a mount was killed but cannot end.
    MountStuck { path: String, pid: i32, log: String },
    /// The process of a mount is stopped.
    MountStopped { path: String, pid: i32 },
    /// A server cannot be asked, with the reason.
    NoAnswer { server: String, host: String, error: Error },
    /// A server has another version than this program.
    OtherVersion { server: String, version: String },
    /// A metadata server that stands by has not reported to the one that leads.
    MetaSilent { name: String, silent_s: u64 },
    /// No target is online, so no file can be read or written.
    NoTargetOnline { targets: usize },
    /// A data server of this machine was removed from the cluster for good.
    Removed { name: String, joined: bool },
    /// The cluster does not know a data server of this machine.
    NotKnown { name: String },
    /// A target of this machine was removed from the cluster for good.
    TargetRemoved { target: u32, dir: String },
    /// A target is out of service and accepts no changes. `replace` says what to do if its disk is
    /// lost.
    OutOfService {
        target: u32,
        reason: String,
        server: String,
        host: String,
        pid: Option<i32>,
        replace: String,
    },
    /// The metadata server reports a problem with a target. The text says what to do if the target
    /// is lost.
    Target(Box<TargetView>, String),
    /// The disk of a target is nearly or completely full.
    TargetFull { target: u32, server: u32, host: String, usage: FsUsage },
    /// The disk of the metadata is nearly or completely full.
    MetadataFull { place: String, usage: FsUsage },
    /// Copies cannot be made, or not where their layout wants them.
    CopiesStuck { segments: u64 },
    /// Copies should be made, but no existing copy is online.
    CopiesWithoutSource { copies: u64 },
    /// Blocks have no correct copy.
    Rotten { blocks: u64 },
}

impl Trouble {
    /// The problem in the metadata server's view of a target. `None` if there is none, or if the
    /// target's server reports it better.
    pub fn of_target(view: &TargetView, replace: String) -> Option<Self> {
        let is_well = match view.state {
            TargetState::Offline | TargetState::Syncing => false,
            TargetState::OutOfService => view.hangs_ms == 0,
            TargetState::Online | TargetState::Suspect => {
                view.hangs_ms == 0 && !view.suspect && !view.slow
            }
        };
        (!is_well).then(|| Self::Target(Box::new(view.clone()), replace))
    }

    /// The problem of a target's disk with little free space.
    pub fn of_space(target: u32, (server, host): (u32, &str), usage: FsUsage) -> Option<Self> {
        let host = host.to_owned();
        is_scarce(&usage).then_some(Self::TargetFull { target, server, host, usage })
    }

    /// The problem of a metadata disk with little free space. `place` is a directory or a machine.
    pub fn of_metadata_space(place: String, usage: FsUsage) -> Option<Self> {
        is_scarce(&usage).then_some(Self::MetadataFull { place, usage })
    }

    /// Whether this is only a note: the cluster works. With notes alone `weir status` exits with 0.
    pub fn is_note(&self) -> bool {
        matches!(
            self,
            Self::TargetFull { .. }
                | Self::MetadataFull { .. }
                | Self::NoMetrics { .. }
                | Self::TargetRemoved { .. }
        )
    }

    /// Whether both are about one daemon that does not run.
    pub fn is_of_same_daemon(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::DaemonDown { name }, Self::MetaSilent { name: silent, .. }) if name == silent
        )
    }

    /// The kind of the problem for JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DaemonDown { .. } => "daemon_down",
            Self::NoMetrics { .. } => "no_metrics",
            Self::MountDead { .. } => "mount_dead",
            Self::MountStuck { .. } => "mount_stuck",
            Self::MountStopped { .. } => "mount_stopped",
            Self::NoAnswer { error, .. } if is_of_clocks(error) => "clock_off",
            Self::NoAnswer { error, .. } => match error.kind {
                ErrorKind::VersionMismatch => "version_differs",
                ErrorKind::AuthFailed => "key_refused",
                _ => "no_answer",
            },
            Self::OtherVersion { .. } => "version_differs",
            Self::MetaSilent { .. } => "metadata_server_silent",
            Self::NoTargetOnline { .. } => "no_target_online",
            Self::Removed { .. } => "server_removed",
            Self::NotKnown { .. } => "server_not_known",
            Self::TargetRemoved { .. } => "target_removed",
            Self::OutOfService { .. } => "out_of_service",
            Self::Target(view, _) => match view.state {
                TargetState::Offline if recovers(view) => "target_recovering",
                TargetState::Offline if view.given_up => "disk_given_up",
                TargetState::Offline => "target_offline",
                _ if view.hangs_ms > 0 => "disk_hangs",
                TargetState::Syncing => "target_syncing",
                _ if view.suspect => "target_suspect",
                _ => "disk_slow",
            },
            Self::TargetFull { .. } => "target_full",
            Self::MetadataFull { .. } => "metadata_full",
            Self::CopiesStuck { .. } => "copies_missing",
            Self::CopiesWithoutSource { .. } => "copies_without_source",
            Self::Rotten { .. } => "rot",
        }
    }

    /// Describes the problem.
    pub fn what(&self) -> String {
        match self {
            Self::DaemonDown { name } => format!("{name} does not run"),
            Self::NoMetrics { name, address } => {
                format!("the metrics of {name} cannot be had at {address}")
            }
            Self::MountDead { path, .. } => format!("the process of the mount on {path} has ended"),
            Self::MountStuck { path, pid, .. } => format!(
                "the process of the mount on {path}, {pid}, was killed, and cannot end while the \
                 kernel waits for it"
            ),
            Self::MountStopped { path, pid } => {
                format!("{path}: the process of the mount, {pid}, is stopped")
            }
            Self::NoAnswer { server, host, error } if is_of_clocks(error) => format!(
                "the clock of {host} ({server}) is off: it takes for expired what the metadata \
                 server has just signed"
            ),
            Self::NoAnswer { server, error, .. } => format!("{server}: {error}"),
            Self::OtherVersion { server, version } => format!(
                "{server} runs version {version} of the program, and this is {}",
                env!("CARGO_PKG_VERSION")
            ),
            Self::MetaSilent { name, silent_s } => format!(
                "the metadata server {name} has not been heard of for {}",
                human_duration(*silent_s)
            ),
            Self::NoTargetOnline { targets } => {
                format!("none of the {targets} targets is online: nothing can be read or written")
            }
            Self::OutOfService { target, reason, server, host, .. } => {
                format!("target {target}: {reason} ({server} on {host})")
            }
            Self::Removed { name, .. } => {
                format!("{name}, of this machine, was removed from the cluster: its key is refused")
            }
            Self::NotKnown { name } => {
                format!("{name}, of this machine, has not been heard of by the cluster yet")
            }
            Self::TargetRemoved { target, dir } => {
                format!("target {target}, in {dir}, was removed from the cluster")
            }
            Self::Target(view, _) => what_of(view),
            Self::TargetFull { target, host, usage, .. } if usage.free_bytes == 0 => {
                format!("the disk of target {target}, on {host}, is full")
            }
            Self::TargetFull { target, host, usage, .. } => format!(
                "the disk of target {target}, on {host}, is nearly full: {} of {} free",
                human_size(usage.free_bytes),
                human_size(usage.total_bytes)
            ),
            Self::MetadataFull { place, usage } => format!(
                "the disk of the metadata, {place}, is nearly full: {} of {} free",
                human_size(usage.free_bytes),
                human_size(usage.total_bytes)
            ),
            Self::CopiesStuck { segments } => format!(
                "{segments} segments of files have fewer copies than they should, or copies where \
                 they should not be: there is no target for more, or no copy online"
            ),
            Self::CopiesWithoutSource { copies } => {
                format!("{copies} copies are to be made of what no copy is online")
            }
            Self::Rotten { blocks } => {
                format!("{blocks} blocks have rotted, and no other copy of them is sound")
            }
        }
    }

    /// Says what to do.
    pub fn remedy(&self) -> String {
        let takes_over = |path: &str, log: &str| {
            format!(
                "`weir mount {path}` takes over, `weir umount {path}` takes it away; its log: {log}"
            )
        };
        match self {
            Self::DaemonDown { name } => {
                format!("`weir up` starts it; `weir log {name}` shows why it ended")
            }
            Self::NoMetrics { name, .. } => format!(
                "does another program listen there? `weir log {name}` says; the daemon serves all \
                 the same"
            ),
            Self::MountDead { path, log } | Self::MountStuck { path, log, .. } => {
                takes_over(path, log)
            }
            Self::MountStopped { path, pid } => format!(
                "`kill -CONT {pid}` lets it go on; `kill -9 {pid}` ends it, without what it had not \
                 written yet, and `weir mount {path}` then takes over"
            ),
            Self::NoAnswer { host, error, .. } if is_of_clocks(error) => format!(
                "set the clocks of {host} and of the metadata server's machine by one source \
                 (`timedatectl` shows whether they are)"
            ),
            Self::NoAnswer { host, error, .. } => match error.kind {
                ErrorKind::VersionMismatch => {
                    "install the same release everywhere (`weir --version`), and restart what is \
                     older"
                        .to_owned()
                }
                ErrorKind::AuthFailed => {
                    "use a credential of this cluster: client.toml in its state directory, or one \
                     of `weir key new`; if only one data server refuses, it does not have the key \
                     that was made for it (server_key_file in its configuration)"
                        .to_owned()
                }
                _ => format!(
                    "does it run on {host}, and can {host} be reached from here? There `weir up` \
                     starts it, or `systemctl status 'weir-*'` says why it ended"
                ),
            },
            Self::OtherVersion { .. } => {
                "install the same release everywhere, and restart what is \
                older: `weir down`, `weir up`"
                    .to_owned()
            }
            Self::MetaSilent { .. } => "start it: `weir up` on its machine. Without it fewer may \
                fail. If it is gone for good: docs/high-availability.md"
                .to_owned(),
            Self::NoTargetOnline { .. } => {
                "start the data servers: `weir up` on their machines; `weir targets` shows which \
                 are missing"
                    .to_owned()
            }
            Self::Removed { name, joined: false } => format!(
                "`weir server remove {}` removes what is left of it here",
                name.trim_start_matches("data-")
            ),
            Self::Removed { .. } => "`weir down --purge` deletes what is left of it here. To have \
                this machine in the cluster again: after that `weir invite` on the machine of the \
                metadata server, and `weir join` here, with empty directories"
                .to_owned(),
            Self::NotKnown { name } => format!(
                "does it run (`weir up`), and does it reach the metadata server? `weir log {name}` \
                 says"
            ),
            Self::TargetRemoved { .. } => {
                "nobody needs what is there any more; its server continues with its other \
                    targets"
                    .to_owned()
            }
            Self::OutOfService { server, host, pid, replace, .. } => {
                let stop = pid.map(|pid| format!(": `kill {pid}`, then `weir up`"));
                format!(
                    "repair its disk (`dmesg`; is it mounted, and writable?), then restart \
                     {server} on {host}{}; if the disk has failed, {replace}",
                    stop.unwrap_or_default()
                )
            }
            Self::Target(view, replace) => remedy_of(view, replace),
            Self::TargetFull { target, server, .. } => format!(
                "remove files, balance targets with `weir rebalance`, or add room with `weir \
                 target add --server {server}` or `weir server add`; `weir target drain {target}` \
                 empties this one"
            ),
            Self::MetadataFull { .. } => "make room there: when it is full nothing can be made or \
                renamed (`weir meta export /elsewhere/names.weir` saves what there is)"
                .to_owned(),
            Self::CopiesStuck { .. } => "`weir targets` shows which targets are away: bring them \
                back, or add some with `weir server add`; `weir fsck` names the files"
                .to_owned(),
            Self::CopiesWithoutSource { .. } => "`weir targets` shows which targets are away: \
                bring one back; `weir fsck` names the files"
                .to_owned(),
            Self::Rotten { .. } => {
                "`weir scrub` names their files: copy those again from their source".to_owned()
            }
        }
    }

    /// The data server of this machine that the problem says was removed.
    pub fn removed(&self) -> Option<String> {
        match self {
            Self::Removed { name, .. } => Some(name.clone()),
            _ => None,
        }
    }

    /// The problem as text for people.
    pub fn text(&self) -> String {
        let word = if self.is_note() { "NOTE" } else { "TROUBLE" };
        format!("{word}: {}\n  -> {}\n", self.what(), self.remedy())
    }

    /// The problem as JSON.
    pub fn json(&self) -> Value {
        json!({ "kind": self.kind(), "what": self.what(), "remedy": self.remedy() })
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Failure::new(trouble.what()).hint(trouble.remedy())
    }
}

/// Whether clocks disagree: a new ticket or capability was refused because of its age.
fn is_of_clocks(error: &Error) -> bool {
    ["ticket has expired", "capability has expired"].iter().any(|said| error.message.contains(said))
}

fn is_scarce(usage: &FsUsage) -> bool {
    let (free, total) = (u128::from(usage.free_bytes), u128::from(usage.total_bytes));
    free * 100 < total * u128::from(SCARCE_PERCENT)
}

/// Whether the target's server is running and recovering the target.
pub fn recovers(view: &TargetView) -> bool {
    view.given_up && is_recovering(&view.trouble)
}

/// Describes the problem of a target.
fn what_of(view: &TargetView) -> String {
    let TargetView { target, host, behind, .. } = view;
    let name = data_name(view.server.0);
    let since = |ms| human_duration(ms / 1000);
    let so_long = view.since_ms.map_or(String::new(), |ms| format!(" since {}", since(ms)));
    match view.state {
        TargetState::Offline if recovers(view) => format!(
            "target {target}: {name} on {host} was not stopped cleanly, and makes it ready ({}); \
             files with copies elsewhere are served from those{}",
            view.trouble,
            lacking(*behind)
        ),
        TargetState::Offline if view.given_up => {
            let hangs = match view.hangs_ms {
                0 => "has hung, and answers again".to_owned(),
                ms => format!("hangs since {}", since(ms)),
            };
            format!(
                "target {target}: its disk, of {name} on {host}, {hangs}; its server has given it \
                 up: files with copies elsewhere are served from those{}",
                lacking(*behind)
            )
        }
        TargetState::Offline => format!(
            "target {target} is offline{so_long}: {name} on {host} has not been heard of; files \
             with copies elsewhere are served from those{}",
            lacking(*behind)
        ),
        _ if view.hangs_ms > 0 => format!(
            "target {target}: its disk, of {name} on {host}, hangs since {}: it has not ended an \
             operation for so long. What needs it waits, for 15 s if others have what it has: then \
             it is done without until it answers",
            since(view.hangs_ms)
        ),
        TargetState::Syncing if view.held_ms > 0 => format!(
            "target {target} on {host} came and went too often: it is kept waiting for another {}",
            human_duration(view.held_ms.div_ceil(1000))
        ),
        TargetState::Syncing => format!(
            "target {target} on {host} is being brought up to date{so_long}: {behind} parts of \
             objects to go, {}/s{}",
            view.behind_per_s,
            left(view)
                .map_or(", how long is not known yet".to_owned(), |left| format!(", {left} left"))
        ),
        _ if view.suspect => format!(
            "target {target}: {name} on {host} has not been heard of for {} ms",
            view.silent_ms
        ),
        _ => format!(
            "target {target}: its disk, of {name} on {host}, has become slow: reading takes more \
             than twice as long as on the others. Files with copies elsewhere are read there in \
             part, and new files with one copy are made elsewhere"
        ),
    }
}

/// Says what to do about the problem of a target.
fn remedy_of(view: &TargetView, replace: &str) -> String {
    let TargetView { target, host, .. } = view;
    let name = data_name(view.server.0);
    match view.state {
        TargetState::Offline if recovers(view) => {
            format!("nothing needs to be done; if it makes no progress, look at the disk on {host}")
        }
        TargetState::Offline if view.given_up => format!(
            "it comes back by itself when all disks of {name} answer. Look at the disk (`dmesg`, \
             `iostat -x`); if it is lost, {replace}"
        ),
        TargetState::Offline => format!(
            "restart {name} on {host} (there: `weir up`, or `systemctl status weir-data@{}`); if \
             it is lost for good, {replace}",
            view.server
        ),
        _ if view.hangs_ms > 0 => "look at the disk (`dmesg`, `iostat -x`)".to_owned(),
        TargetState::Syncing if view.held_ms > 0 => {
            format!("look at its machine, disk and network; `weir log {name}` on {host}")
        }
        TargetState::Syncing => {
            "nothing needs to be done; `weir targets` shows how far it is".to_owned()
        }
        _ if view.suspect => format!("if it stays so, look at {host} and the network to it"),
        _ => format!(
            "look at the disk (`iostat -x`, `smartctl -a`), and if it stays so, `weir target drain \
             {target}`"
        ),
    }
}

#[cfg(test)]
mod tests;

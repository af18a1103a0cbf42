//! `weir target remove` and `weir server remove`. The metadata server removes its entry first, and
//! this machine its files afterwards. An interrupted command can be run again.

use crate::args::{ServerRemove, TargetRemove};
use crate::check::fsck::unreadable;
use crate::check::lacking::Lacking;
use crate::check::snapshot::{self, Paths};
use crate::check::spool::Spool;
use crate::cluster::servers::{self, Member, listed};
use crate::cluster::shrink;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::{confirmed, print};
use crate::progress::Progress;
use crate::settings::{self, Cluster};
use std::collections::{BTreeMap, BTreeSet};
use weir_client::losses::States;
use weir_client::{Administrator, Client};
use weir_metaserver::audit::{Bounds, Part, Problem, Subject};
use weir_types::{ErrorKind, FileId, ServerId, TargetId};
use weir_wire::map::TargetState;

/// The most lines shown about data that may be lost with a target.
const MAX_SHOWN: usize = 100;

/// Runs `weir target remove`.
pub fn remove_target(remove: &TargetRemove) -> Done {
    let cluster = settings::cluster(&remove.choice.client)?;
    let client = connect(&cluster.credential()?, "target remove")?;
    let target = TargetId(remove.choice.target);
    if remove.force {
        ask(&client, &[target], remove.yes, print)?;
    }
    print(&take_out(&cluster, &client.administrator()?, target, remove.force)?)
}

/// Runs `weir server remove`.
pub fn remove_server(remove: &ServerRemove) -> Done {
    let cluster = settings::cluster(&remove.choice.client)?;
    let client = connect(&cluster.credential()?, "server remove")?;
    let admin = client.administrator()?;
    let server = remove.choice.server;
    let mut members = servers::all(&client)?;
    if let Some(member) = members.remove(&ServerId(server)) {
        if members.is_empty() {
            let what = format!("data server {server} is the last one of the cluster");
            return Err(Failure::new(what)
                .hint("`weir server add` adds one, `weir down --purge` deletes all"));
        }
        can_go(&admin, &member, remove.force)?;
        let targets = member.numbers();
        if remove.force {
            ask(&client, &targets, remove.yes, print)?;
        }
        for target in targets {
            print(&removed(target, admin.remove_target(target, remove.force)?))?;
        }
        admin.remove_server(ServerId(server))?;
    } else if !is_described(&cluster, server)? {
        return Err(servers::unknown(server));
    }
    let mut text = format!("data server {server} is removed: its key is refused from now on\n");
    if let Cluster::Here(state) = &cluster {
        for dir in shrink::forget_server(state, server)? {
            text += &format!("{} can be deleted\n", dir.display());
        }
    }
    print(&text)
}

/// Whether a server is in the description of the cluster on this machine.
fn is_described(cluster: &Cluster, server: u32) -> Done<bool> {
    match cluster {
        Cluster::Here(state) => Ok(state.description()?.servers.iter().any(|s| s.id == server)),
        Cluster::Elsewhere(_) => Ok(false),
    }
}

/// Checks that a server can be removed, before any of its targets is.
fn can_go(admin: &Administrator, member: &Member, force: bool) -> Done {
    let server = member.entry.server;
    let is_served = |state| !matches!(state, TargetState::Offline | TargetState::OutOfService);
    let served = member.targets.iter().filter(|view| is_served(view.state));
    let served: Vec<_> = served.collect();
    if force && !served.is_empty() {
        let what = format!(
            "data server {server} serves target {}, and what it has would be lost",
            listed(&served.iter().map(|view| view.target).collect::<Vec<_>>())
        );
        return Err(Failure::new(what)
            .hint("stop it first, or drain it (`weir server drain`) and leave out --force"));
    }
    if let Some(view) = served.iter().find(|view| !view.draining) {
        let what = format!("data server {server} is in use: target {}", view.target);
        return Err(Failure::new(what).hint(format!("`weir server drain {server} --wait` first")));
    }
    if !force && !member.targets.is_empty() {
        let files = admin.count_copies(&member.numbers())?;
        if files > 0 {
            let what = format!("{files} files have copies on data server {server} yet");
            return Err(Failure::new(what).hint(format!(
                "`weir server drain {server} --wait`; or, if its data is lost for good, --force"
            )));
        }
    }
    Ok(())
}

/// Removes a target from the cluster and from what this machine serves. Returns the message for the
/// user.
pub fn take_out(
    cluster: &Cluster,
    admin: &Administrator,
    target: TargetId,
    force: bool,
) -> Done<String> {
    let known_here = match cluster {
        Cluster::Here(state) => state.description()?.server_of(target.0).is_some(),
        Cluster::Elsewhere(_) => false,
    };
    let mut text = match admin.remove_target(target, force) {
        Ok(files) => removed(target, files),
        // An earlier command was interrupted after this step.
        Err(e) if e.kind == ErrorKind::TargetMissing && known_here => {
            format!("target {target} was removed already\n")
        }
        Err(e) => return Err(e.into()),
    };
    if let Cluster::Here(state) = cluster
        && let Some(dir) = shrink::forget_target(state, target.0)?
    {
        text += &format!("it is not served any more; {} can be deleted\n", dir.display());
    }
    Ok(text)
}

/// The message about a removed target, with the number of files that had copies on it.
fn removed(target: TargetId, files: u64) -> String {
    match files {
        0 => format!("target {target} is removed\n"),
        _ => format!(
            "target {target} is removed; {files} files had copies there: `weir fsck` lists those \
             without a current copy, `weir accept-loss` makes what is left of them usable\n"
        ),
    }
}

/// Lists by `say` what may be lost with the targets, and asks for confirmation.
pub fn ask(client: &Client, targets: &[TargetId], yes: bool, say: impl Fn(&str) -> Done) -> Done {
    let lasts = Lasts::of(client, &client.administrator()?, targets)?;
    if lasts.files.is_empty() && lasts.not_asked.is_empty() {
        return Ok(());
    }
    say(&lasts.text())?;
    let (shown, count) = (listed(targets), lasts.files.len());
    let question = match lasts.not_asked.is_empty() {
        true => format!("Target {shown} may be all that has the last bytes of {count} files."),
        false => format!(
            "Target {shown} may be all that has the last bytes of {count} files, and of others: \
             not all servers could be asked."
        ),
    };
    confirmed(&question, yes)
}

/// Data of which the targets may have the only copies.
struct Lasts {
    /// One line for each file.
    files: Vec<String>,
    /// What could not be asked.
    not_asked: Vec<String>,
}

impl Lasts {
    fn of(client: &Client, admin: &Administrator, targets: &[TargetId]) -> Done<Self> {
        let map = client.cluster_map()?;
        let mut states: States =
            map.targets().map(|(_, entry)| (entry.target, entry.state)).collect();
        // The targets are treated as if they were gone.
        states.extend(targets.iter().map(|target| (*target, TargetState::Offline)));
        let (mut away, stale) = unreadable(&map);
        away.extend(targets);
        let mut spool = Spool::new();
        let progress = Progress::start(false, 0);
        let taken = snapshot::take(admin, &mut spool, &progress)?;
        let (ids_end, removed, listed) = (taken.ids_end, taken.removed, BTreeSet::new());
        let bounds = Bounds { listed, ids_end, removed, away, stale };
        let mut files: BTreeMap<FileId, Vec<(u64, u64)>> = BTreeMap::new();
        // First: files whose copies are all on these targets, or on others that are away or not up
        // to date.
        for part in spool.parts() {
            progress.say(|| format!("comparing: {} of {}", part + 1, spool.parts().len()));
            let mut facts = Part::default();
            spool.read(part, |fact| facts.add(fact))?;
            let is_there = |problem: &Problem| match &problem.subject {
                Subject::Column { targets: on } => on.iter().any(|target| targets.contains(target)),
                _ => false,
            };
            let problems = facts.judge(&bounds).into_iter().filter(is_there);
            files.extend(problems.filter_map(|problem| Some((problem.file?, Vec::new()))));
        }
        // Then: files of which another copy is online, but knows that it lacks something.
        let whole: BTreeSet<FileId> = files.keys().copied().collect();
        progress.say(|| "asking the servers what copies lack".to_owned());
        let (lacking, not_asked) = Lacking::ask(admin, &states);
        for (file, loss) in lacking.losses(client, &mut spool, &states)? {
            let was_there = loss.missing.iter().any(|target| targets.contains(target));
            if let (true, false, Some(bytes)) = (was_there, whole.contains(&file), loss.bytes) {
                files.entry(file).or_default().push(bytes);
            }
        }
        let paths = Paths::find(&mut spool, files.keys().copied())?;
        progress.finish();
        let line = |(file, ranges): (&FileId, &Vec<(u64, u64)>)| {
            let ranges: Vec<String> =
                ranges.iter().map(|(first, last)| format!("bytes {first}-{last}")).collect();
            match ranges.is_empty() {
                true => paths.shown(*file),
                false => format!("{}: {}", paths.shown(*file), ranges.join(", ")),
            }
        };
        Ok(Self { files: files.iter().map(line).collect(), not_asked })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.files.iter().take(MAX_SHOWN).for_each(|line| text += &format!("  {line}\n"));
        if self.files.len() > MAX_SHOWN {
            text += &format!("  and {} more\n", self.files.len() - MAX_SHOWN);
        }
        for what in &self.not_asked {
            text += &format!("NOT ASKED: {what}\n");
        }
        text
    }
}

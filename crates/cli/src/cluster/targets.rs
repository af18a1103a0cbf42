//! `weir targets`, and `weir target drain`, `undrain` and `remove`.

use crate::args::{TargetChoice, TargetRemove, Targets};
use crate::check::fsck::unreadable;
use crate::check::progress::Progress;
use crate::check::snapshot::{self, Paths};
use crate::check::spool::Spool;
use crate::cluster::daemon::data_name;
use crate::failure::Done;
use crate::files::remote::connect;
use crate::layouts::df::{percent, state_name};
use crate::output::{Table, confirmed, human_duration, human_size, print, print_json};
use crate::settings;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weir_client::{Administrator, Client};
use weir_metaserver::audit::{Bounds, Part, Problem, Subject};
use weir_types::TargetId;
use weir_wire::map::TargetState;
use weir_wire::targets::TargetView;

/// The most files that are named before a target is removed that may be all that has them.
const MAX_SHOWN: usize = 100;

/// Runs `weir targets`.
pub fn list(asked: &Targets) -> Done {
    let cluster = settings::cluster(&asked.client)?;
    let views = connect(&cluster.credential()?, "targets")?.targets()?;
    if asked.json {
        return print_json(&views.iter().map(to_json).collect::<Vec<_>>());
    }
    let titles = [
        ">TARGET", "SERVER", "STATE", ">SINCE", ">SIZE", ">AVAIL", ">USE%", ">BEHIND", ">PER S",
        ">LEFT", "TROUBLE",
    ];
    let mut table = Table::new(&titles);
    for view in &views {
        table.row(vec![
            view.target.to_string(),
            format!("{} ({})", data_name(view.server.0), view.host),
            state_of(view),
            view.since_ms.map_or("-".to_owned(), |ms| human_duration(ms / 1000)),
            human_size(view.usage.total_bytes),
            human_size(view.usage.free_bytes),
            percent(&view.usage),
            view.behind.to_string(),
            if syncs(view) { view.behind_per_s.to_string() } else { "-".to_owned() },
            left(view).unwrap_or_else(|| "-".to_owned()),
            view.trouble.clone(),
        ]);
    }
    print(&table.render())
}

/// Runs `weir target drain` and `weir target undrain`.
pub fn drain(choice: &TargetChoice, draining: bool) -> Done {
    let cluster = settings::cluster(&choice.client)?;
    let admin = connect(&cluster.credential()?, "target drain")?.administrator()?;
    Ok(admin.set_target(TargetId(choice.target), draining)?)
}

/// Runs `weir target remove`.
pub fn remove(remove: &TargetRemove) -> Done {
    let cluster = settings::cluster(&remove.choice.client)?;
    let client = connect(&cluster.credential()?, "target remove")?;
    let admin = client.administrator()?;
    let target = remove.choice.target;
    if remove.force {
        let lost = only_there(&client, &admin, TargetId(target))?;
        if !lost.is_empty() {
            ask(target, &lost, remove.yes)?;
        }
    }
    let files = admin.remove_target(TargetId(target), remove.force)?;
    match files {
        0 => print(&format!("target {target} is removed\n")),
        _ => print(&format!(
            "target {target} is removed; {files} files had copies there: `weir fsck` lists those \
             of which nothing current is left, `weir accept-loss` goes on with what there is\n"
        )),
    }
}

fn ask(target: u32, lost: &[String], yes: bool) -> Done {
    let mut text = String::new();
    lost.iter().take(MAX_SHOWN).for_each(|path| text += &format!("  {path}\n"));
    if lost.len() > MAX_SHOWN {
        text += &format!("  and {} more\n", lost.len() - MAX_SHOWN);
    }
    print(&text)?;
    let count = lost.len();
    let question = format!("Target {target} may be all that has the last bytes of {count} files.");
    confirmed(&question, yes)
}

/// Files of which a target may have the only current copies, by name.
fn only_there(client: &Client, admin: &Administrator, target: TargetId) -> Done<Vec<String>> {
    let (mut away, stale) = unreadable(&client.cluster_map()?);
    away.insert(target);
    let mut spool = Spool::new();
    let taken = snapshot::take(admin, &mut spool, &Progress::start(true, 0))?;
    let (ids_end, removed, listed) = (taken.ids_end, taken.removed, BTreeSet::new());
    let bounds = Bounds { listed, ids_end, removed, away, stale };
    let mut files = BTreeSet::new();
    for part in spool.parts() {
        let mut facts = Part::default();
        spool.read(part, |fact| facts.add(fact))?;
        let is_there = |problem: &Problem| match &problem.subject {
            Subject::Column { targets } => targets.contains(&target),
            _ => false,
        };
        let problems = facts.judge(&bounds).into_iter().filter(is_there);
        files.extend(problems.filter_map(|problem| problem.file));
    }
    let paths = Paths::find(&mut spool, files.iter().copied())?;
    Ok(files.iter().map(|file| paths.shown(*file)).collect())
}

/// The state of a target in words.
pub fn state_of(view: &TargetView) -> String {
    let state = if view.suspect { "suspect" } else { state_name(view.state) };
    match view.draining {
        true => format!("{state}, draining"),
        false => state.to_owned(),
    }
}

/// Whether it gets what it lacks.
fn syncs(view: &TargetView) -> bool {
    view.state == TargetState::Syncing
}

/// How long it will take until a target that is syncing has all, in words.
fn left(view: &TargetView) -> Option<String> {
    let known = syncs(view) && view.behind_expected_s > 0;
    known.then(|| human_duration(view.behind_expected_s))
}

/// A target for programs.
pub fn to_json(view: &TargetView) -> Value {
    json!({
        "target": view.target.0,
        "server": view.server.0,
        "host": view.host,
        "state": if view.suspect { "suspect" } else { state_name(view.state) },
        "draining": view.draining,
        "since_s": view.since_ms.map(|ms| ms / 1000),
        "heard_ms_ago": view.silent_ms,
        "total_bytes": view.usage.total_bytes,
        "free_bytes": view.usage.free_bytes,
        "behind": view.behind,
        "behind_per_s": view.behind_per_s,
        "behind_expected_s": view.behind_expected_s,
        "trouble": view.trouble,
    })
}

/// What is wrong with a target, and what to do; `None`: nothing, or its server says
/// it better.
pub fn trouble_of(view: &TargetView) -> Option<String> {
    let TargetView { target, host, behind, .. } = view;
    let name = data_name(view.server.0);
    let since =
        view.since_ms.map_or(String::new(), |ms| format!(" since {}", human_duration(ms / 1000)));
    let missing = match behind {
        0 => String::new(),
        _ => format!("; it lacks {behind} parts of objects, which it gets when it is back"),
    };
    match view.state {
        TargetState::Offline => Some(format!(
            "target {target} is offline{since}: {name} on {host} has not been heard of; files \
             with copies elsewhere are served from those{missing}; start it anew, or, if it is \
             lost for good, `weir target drain {target}` and then `weir target remove {target}`"
        )),
        TargetState::Syncing if view.held_ms > 0 => Some(format!(
            "target {target} on {host} came and went too often: it is kept waiting for another \
             {}; look at its machine, disk and network",
            human_duration(view.held_ms.div_ceil(1000))
        )),
        TargetState::Syncing => Some(format!(
            "target {target} on {host} is being brought up to date{since}: {behind} parts of \
             objects to go, {}/s{}; nothing needs to be done",
            view.behind_per_s,
            left(view).map_or(String::new(), |left| format!(", {left} left"))
        )),
        TargetState::Online if view.suspect => Some(format!(
            "target {target}: {name} on {host} has not been heard of for {} ms",
            view.silent_ms
        )),
        TargetState::Online | TargetState::Suspect | TargetState::OutOfService => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{FsUsage, ServerId};

    fn view(state: TargetState) -> TargetView {
        TargetView {
            target: TargetId(3),
            server: ServerId(2),
            host: "node".into(),
            state,
            suspect: false,
            draining: false,
            since_ms: Some(12_000),
            silent_ms: 0,
            held_ms: 0,
            usage: FsUsage::default(),
            behind: 7,
            behind_per_s: 2,
            behind_expected_s: 3,
            trouble: String::new(),
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_do() {
        let offline = trouble_of(&view(TargetState::Offline)).unwrap();
        for part in ["target 3 is offline since", "on node", "lacks 7", "weir target remove 3"] {
            assert!(offline.contains(part), "{offline}");
        }
        let syncing = trouble_of(&view(TargetState::Syncing)).unwrap();
        assert!(syncing.contains("7 parts of objects to go, 2/s, "), "{syncing}");
        assert!(left(&view(TargetState::Syncing)).is_some_and(|left| syncing.contains(&left)));
        assert_eq!(left(&view(TargetState::Offline)), None, "it gets nothing");
        let held = TargetView { held_ms: 4_100, ..view(TargetState::Syncing) };
        assert!(trouble_of(&held).unwrap().contains("too often"));
        assert_eq!(trouble_of(&view(TargetState::Online)), None);
        let drained = TargetView { draining: true, suspect: true, ..view(TargetState::Online) };
        assert_eq!(state_of(&drained), "suspect, draining");
    }
}

//! `weir accept-loss`: makes what is left of a file usable again after its last current copy is
//! lost for good.

use crate::args::AcceptLoss;
use crate::failure::{Done, Failure};
use crate::layouts::whereabouts::{Finder, Found};
use crate::output::{confirmed, print, print_json};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use weir_client::losses::{self, Left, Loss, States, named};
use weir_types::{FileKind, TargetId};

/// Runs `weir accept-loss`.
pub fn run(accept: &AcceptLoss) -> Done {
    let mut finder = Finder::new(&accept.client, "accept-loss");
    let mut all = Vec::new();
    for path in &accept.paths {
        all.push(one(&mut finder, path, accept)?);
    }
    if accept.json { print_json(&all) } else { Ok(()) }
}

fn one(finder: &mut Finder<'_>, path: &OsString, accept: &AcceptLoss) -> Done<Value> {
    let found = finder.find(path)?;
    let attr = found.attr()?;
    if attr.kind != FileKind::File {
        return Err(Failure::new("is not a regular file").about(&found.named));
    }
    let client = &found.tree.client;
    let admin = client.administrator()?;
    let states = losses::states(&client.targets()?);
    let all = losses::of_file(&admin, (attr.file, attr.size), &states)?;
    let (away, lost): (Vec<Loss>, Vec<Loss>) =
        all.into_iter().partition(|loss| loss.left == Left::Away);
    if lost.is_empty() && !away.is_empty() {
        return Err(waits(&found, &away, &states));
    }
    let mut text = format!("{}:\n", found.named);
    for loss in away.iter().chain(&lost) {
        text += &format!("  {}\n", loss.text(|target| named(target, &states)));
    }
    if lost.is_empty() {
        text = format!("{}: nothing is lost\n", found.named);
    }
    if !accept.json {
        print(&text)?;
    }
    if !lost.is_empty() {
        confirmed("The last bytes that were written there are given up.", accept.yes)?;
        losses::give_up(&admin, attr.file, &lost)?;
    }
    Ok(json!({
        "path": found.named,
        "file": attr.file.0,
        "accepted": lost.iter().map(to_json).collect::<Vec<_>>(),
        "away": away.iter().map(to_json).collect::<Vec<_>>(),
    }))
}

/// The failure for files whose copies may come back: their loss is not certain yet.
fn waits(found: &Found, away: &[Loss], states: &States) -> Failure {
    let missing: BTreeSet<TargetId> = away.iter().flat_map(|loss| loss.missing.clone()).collect();
    let known = missing.iter().filter(|target| states.contains_key(target));
    let names: Vec<String> = known.clone().map(|target| named(*target, states)).collect();
    let orders: Vec<String> =
        known.map(|target| format!("`weir target remove {target} --force`")).collect();
    let what = format!("its last bytes may be on {}", names.join(", and on "));
    Failure::new(what).about(&found.named).hint(format!(
        "bring the missing targets back; only if they are lost for good: {}, then this command \
            again",
        orders.join(", ")
    ))
}

fn to_json(loss: &Loss) -> Value {
    json!({
        "segment": loss.segment.0,
        "column": loss.column.0,
        "bytes": loss.bytes.map(|(first, last)| [first, last]),
        "was_on": loss.missing.iter().map(|target| target.0).collect::<Vec<_>>(),
        "left": match loss.left {
            Left::Away => "away",
            Left::Older(_) => "older",
            Left::Nothing => "zeros",
        },
        "from": match loss.left {
            Left::Older(target) => Some(target.0),
            _ => None,
        },
    })
}

//! Checks findings again, because a cluster in use may look wrong for a moment, and carries out
//! safe repairs.

use std::collections::BTreeMap;
use weir_client::{Administrator, Client, Context};
use weir_metaserver::audit::{Kind, Problem, Short, Subject};
use weir_types::limits::MAX_OBJECT_PAGE;
use weir_types::{Error, ErrorKind, FileId, ObjectId, Result, TargetId};
use weir_wire::quota::QuotaChange;

/// The outcome of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The problem was repaired.
    Repaired,
    /// Nothing was changed, for this reason.
    Left(String),
}

/// The result of a second check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The problem exists.
    Confirmed,
    /// The problem does not exist, or exists no longer.
    Passed,
    /// The file is in use, so the check cannot decide.
    InUse,
}

/// Checks again whether a problem exists.
pub fn confirm(client: &Client, admin: &Administrator, problem: &Problem) -> Result<Verdict> {
    match &problem.subject {
        _ if !problem.needs_confirmation() => Ok(Verdict::Confirmed),
        // The object cannot have been made again: its file is gone for good.
        Subject::Object { target, object, .. } => {
            Ok(if exists(admin, *target, *object)? { Verdict::Confirmed } else { Verdict::Passed })
        }
        Subject::Lost(lost) => {
            if exists(admin, lost.target, lost.object)? {
                return Ok(Verdict::Passed);
            }
            // The object existed as long as its segment, which still exists.
            let segment = match admin.segment_at(lost.object.file, lost.segment_start) {
                Err(error) if error.kind == ErrorKind::Stale => None,
                other => other?,
            };
            let same = segment.is_some_and(|s| s.index == lost.object.segment);
            Ok(if same { Verdict::Confirmed } else { Verdict::Passed })
        }
        Subject::Short(short) => confirm_short(client, admin, short),
        Subject::File | Subject::Column { .. } | Subject::Quota(_) => Ok(Verdict::Confirmed),
    }
}

/// Whether an object exists. One that cannot be opened because it is corrupt counts as existing.
fn exists(admin: &Administrator, target: TargetId, object: ObjectId) -> Result<bool> {
    match admin.stat_object(target, object) {
        Err(error) if error.kind == ErrorKind::Corrupt => Ok(true),
        other => other.map(|stat| stat.exists),
    }
}

/// Confirms that a file is short: no client has it open, before and after the check, and it has not
/// changed since it was seen. So its writer has ended and left it as it is.
fn confirm_short(client: &Client, admin: &Administrator, short: &Short) -> Result<Verdict> {
    let file = short.object.file;
    let is_quiet = || -> Result<Option<Verdict>> {
        if admin.count_opens(&[file])?.first().is_none_or(|count| *count > 0) {
            return Ok(Some(Verdict::InUse));
        }
        match client.getattr(&Context::root(), file) {
            Err(error) if error.kind == ErrorKind::Stale => Ok(Some(Verdict::Passed)),
            Err(error) => Err(error),
            Ok(attr) if attr.size >= short.found => Ok(Some(Verdict::Passed)),
            Ok(attr) if attr.change != short.change => Ok(Some(Verdict::InUse)),
            Ok(_) => Ok(None),
        }
    };
    if let Some(verdict) = is_quiet()? {
        return Ok(verdict);
    }
    let stat = admin.stat_object(short.target, short.object)?;
    if stat.len != short.object_len {
        return Ok(Verdict::Passed);
    }
    Ok(is_quiet()?.unwrap_or(Verdict::Confirmed))
}

/// Carries out the safe repairs. For each other problem the outcome says why it is left.
pub fn repair(admin: &Administrator, problems: &[Problem]) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = problems.iter().map(|p| Outcome::Left(why_left(p))).collect();
    let mut orphans: BTreeMap<TargetId, Vec<(usize, ObjectId)>> = BTreeMap::new();
    for (number, problem) in problems.iter().enumerate() {
        match (&problem.subject, problem.kind) {
            (Subject::Object { target, object, .. }, Kind::OrphanObject) => {
                orphans.entry(*target).or_default().push((number, *object));
            }
            (Subject::Short(short), _) => {
                let file = short.object.file;
                let raised = admin.raise_size(file, short.found, short.generation);
                outcomes[number] = outcome(raised.map(drop), file);
            }
            (Subject::Quota(subject), _) => {
                outcomes[number] = match admin.set_quota(*subject, QuotaChange::Recount) {
                    Ok(()) => Outcome::Repaired,
                    Err(error) => Outcome::Left(error.to_string()),
                };
            }
            _ => {}
        }
    }
    for (target, objects) in orphans {
        for page in objects.chunks(MAX_OBJECT_PAGE) {
            let ids: Vec<ObjectId> = page.iter().map(|(_, object)| *object).collect();
            let removed = admin.remove_objects(target, &ids);
            for (number, object) in page {
                outcomes[*number] = outcome(removed.clone(), object.file);
            }
        }
    }
    outcomes
}

fn outcome(result: Result<()>, file: FileId) -> Outcome {
    match result {
        Ok(()) => Outcome::Repaired,
        Err(Error { kind: ErrorKind::Stale, .. }) => {
            Outcome::Left(format!("file {file} changed meanwhile: check again"))
        }
        Err(error) => Outcome::Left(error.to_string()),
    }
}

/// Says why a problem is not repaired without `--repair`, or not at all.
pub fn why_left(problem: &Problem) -> String {
    match problem.kind {
        Kind::OrphanObject => "`--repair` removes it",
        Kind::Size if matches!(problem.subject, Subject::Short(_)) => {
            "`--repair` raises the size; nothing is ever cut"
        }
        Kind::Size => "the layout may be an old one: see where the metadata came from",
        Kind::MissingObject => "copy the file again from its source; its other bytes are good",
        Kind::LostColumn => {
            "copy the file again from its source; its other columns are good; or accept zeros \
             there: `weir accept-loss`"
        }
        Kind::AwayColumn => {
            "bring one of the targets back; if they are lost for good: `weir target remove N \
             --force`, then `weir accept-loss` for the file"
        }
        Kind::LackingColumn => {
            "bring the missing targets back; if they are lost for good: `weir target remove N \
             --force`, then `weir accept-loss` for the file"
        }
        Kind::MisplacedObject => "nobody reads it; it may be a column of a lost layout",
        Kind::DoomedObject => "stop the data server, and restore the metadata from a good copy",
        Kind::StrayFile => "nobody reads it; look at it and move it away",
        Kind::Quota => "`--repair` counts it again",
        Kind::Leftover => "it takes space and does no harm",
        Kind::Name | Kind::Count | Kind::Layout | Kind::Record => {
            "which value is right is not known: restore the metadata from a good copy"
        }
    }
    .to_owned()
}

/// Whether `--repair` handles this problem.
pub fn is_repairable(problem: &Problem) -> bool {
    problem.kind == Kind::OrphanObject
        || matches!(problem.subject, Subject::Short(_) | Subject::Quota(_))
}

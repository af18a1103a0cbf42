//! `weir reduce`: erasure codes over plain directories. It needs no cluster.

use crate::args::{Reduce, ReduceEncode, ReduceRemove, ReduceShow, ReduceWork};
use crate::failure::{Done, Failure};
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::text::{human_size, named};
use serde::Serialize;
use serde_json::json;
use weir_reduce::{Finding, Purpose, Step, Tree, Trouble, Usage, Wishes};

/// Runs `weir reduce`.
pub fn run(command: &Reduce) -> Done {
    match command {
        Reduce::Encode(asked) => encode(asked),
        Reduce::Remove(asked) => remove(asked),
        Reduce::Status(asked) => status(asked),
        Reduce::Verify(asked) => verify(asked),
        Reduce::Repair(asked) => repair(asked),
    }
}

impl From<weir_reduce::Failure> for Failure {
    fn from(failure: weir_reduce::Failure) -> Self {
        Self::new(failure.to_string())
    }
}

fn encode(asked: &ReduceEncode) -> Done {
    let mut tree = Tree::open(&asked.work.show.dirs, Purpose::Encode)?;
    let forgotten = asked.forget.iter().cloned().collect();
    let wishes = Wishes {
        forgotten,
        after: asked.after,
        low_percent: asked.low,
        clean_percent: asked.clean_at,
    };
    let progress = Progress::start(asked.work.quiet, tree.usage().other_stored_bytes);
    progress.say(|| format!("encoding with {}", asked.code));
    let done = weir_reduce::encode(&mut tree, asked.code, &wishes, &mut watch(&progress));
    progress.finish();
    let done = done?;
    let mut summary = format!(
        "encoded {} files in {} sets, removed {} copies ({})\n",
        done.files,
        done.sets,
        done.removed_copies,
        human_size(done.removed_bytes)
    );
    if done.cleaned > 0 {
        summary += &format!("cleaned {} sets of removed files\n", done.cleaned);
    }
    if done.waiting > 0 {
        let bytes = human_size(done.waiting_bytes);
        summary += &format!("{} files wait until they are older: {bytes}\n", done.waiting);
    }
    report(&asked.work.show, &done, &(summary + &usage_text(&done.usage)))?;
    end(&done.left, "the files named above were left as they are")
}

fn remove(asked: &ReduceRemove) -> Done {
    let mut tree = Tree::open(&asked.show.dirs, Purpose::Remove)?;
    let files = asked.file.iter().cloned().collect();
    let done = weir_reduce::remove_files(&mut tree, &files, &mut |_| Ok(()))?;
    let text = format!(
        "removed {} files of sets, whose {} stay until the sets are cleaned, and {} copies ({})\n",
        done.marked,
        human_size(done.marked_bytes),
        done.removed_copies,
        human_size(done.removed_bytes)
    );
    report(&asked.show, &done, &(text + &usage_text(&done.usage)))?;
    end(&done.left, "what is named above was not removed")
}

fn status(asked: &ReduceShow) -> Done {
    let usage = Tree::open(&asked.dirs, Purpose::Look)?.usage();
    report(
        asked,
        &json!({ "usage": usage, "percent": usage.overhead_percent() }),
        &usage_text(&usage),
    )
}

fn verify(asked: &ReduceWork) -> Done {
    let tree = Tree::open(&asked.show.dirs, Purpose::Look)?;
    let progress = Progress::start(asked.quiet, tree.bytes_in_sets());
    progress.say(|| "verifying".to_owned());
    let done = weir_reduce::verify(&tree, &mut watch(&progress));
    progress.finish();
    let done = done?;
    report(&asked.show, &done, &usage_text(&done.usage))?;
    let advice = "`weir reduce repair` restores missing and rotten files, `weir reduce encode` \
                  encodes changed ones again";
    end(&done.findings, advice)
}

fn repair(asked: &ReduceWork) -> Done {
    let mut tree = Tree::open(&asked.show.dirs, Purpose::Repair)?;
    let progress = Progress::start(asked.quiet, tree.bytes_in_sets());
    progress.say(|| "looking for what is missing".to_owned());
    let done = weir_reduce::repair(&mut tree, &mut watch(&progress));
    progress.finish();
    let done = done?;
    let (copies, parities, records) = (done.copies, done.parities, done.records);
    let replaced = done.replaced.iter();
    let replaced: String = replaced
        .map(|(target, dir)| format!("{} takes the place of target {target}\n", named(dir.clone())))
        .collect();
    let text = format!("restored: {copies} files, {parities} parities, {records} records\n");
    let text = replaced + &text;
    report(&asked.show, &done, &text)?;
    end(&done.left, "they could not be repaired; `weir reduce encode` encodes changed files again")
}

fn watch(progress: &Progress) -> impl FnMut(Step) -> weir_reduce::Done + '_ {
    |step| {
        if let Step::Read(bytes) = step {
            progress.advance(bytes);
        }
        Ok(())
    }
}

fn report(asked: &ReduceShow, value: &impl Serialize, text: &str) -> Done {
    if asked.json { print_json(value) } else { print(text) }
}

fn usage_text(usage: &Usage) -> String {
    let overhead = usage.overhead_percent().map_or(String::new(), |percent| {
        format!(" for {}, overhead {percent:.1} %", human_size(usage.logical_bytes))
    });
    let mut text = match usage.sets {
        0 => "nothing is encoded\n".to_owned(),
        sets => format!(
            "{sets} sets of {} files: {} on disk{overhead}\n",
            usage.files,
            human_size(usage.stored_bytes)
        ),
    };
    if usage.dead_files > 0 {
        let bytes = human_size(usage.dead_bytes);
        text += &format!("{} removed files still in sets: {bytes} of it\n", usage.dead_files);
    }
    if usage.other_files > 0 {
        let (stored, logical) = (usage.other_stored_bytes, usage.other_logical_bytes);
        let (stored, logical) = (human_size(stored), human_size(logical));
        text += &format!("{} files as copies: {stored} for {logical}\n", usage.other_files);
    }
    if usage.left_alone > 0 {
        let why = "no regular files, not readable, names not UTF-8, or on another file system";
        text += &format!("{} left alone: {why}\n", usage.left_alone);
    }
    text
}

/// Says what is wrong, and fails if anything is.
fn end(findings: &[Finding], advice: &str) -> Done {
    for finding in findings {
        let trouble = match finding.trouble {
            Trouble::Missing => "missing",
            Trouble::Rotten => "rotten",
            Trouble::Changed => "written since",
            Trouble::Record => "record missing or rotten",
            Trouble::Lost => "lost",
            Trouble::Failed => "could not be read or written",
            Trouble::FewCopies => "too few copies for a place in a set",
            Trouble::Differ => "left as copies",
        };
        let on = finding.target.map_or(String::new(), |target| format!(" (target {target})"));
        Failure::new(format!("{trouble}: {}{on}", named(finding.what.clone()))).say();
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::new(format!("1 problem found: {advice}"))),
        count => Err(Failure::new(format!("{count} problems found: {advice}"))),
    }
}

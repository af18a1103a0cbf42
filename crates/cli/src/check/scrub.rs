//! `weir scrub`: verifies every block of every object, and the metadata, against their checksums, and
//! parities against their columns. All targets work at the same time.

use crate::args::Scrub;
use crate::check::parities::{self, Parities};
use crate::check::snapshot::{self, Paths};
use crate::check::spool::Spool;
use crate::cluster::daemon::data_name;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::settings;
use crate::text::human_size;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_client::Administrator;
use weir_layout::segment_ranges;
use weir_types::limits::MAX_SCRUB_BYTES;
use weir_types::{Error, FileId, Segment, SegmentIndex, TargetId};
use weir_wire::data::{Damage, Mended, ScrubCursor, ScrubFinding};
use weir_wire::map::{ClusterMap, TargetState};

/// The steps of the progress bar for each target: its hash directories.
const STEPS: u64 = 4096;

/// The findings of one target.
struct Scrubbed {
    target: TargetId,
    server: String,
    objects: u64,
    bytes: u64,
    findings: Vec<ScrubFinding>,
    /// Why the target was verified only in part or not at all.
    failure: Option<String>,
}

/// Runs `weir scrub`. The exit code is 1 if damage was found that no other copy repaired, or if
/// something was not verified.
pub fn run(scrub: &Scrub) -> Done {
    let cluster = settings::cluster(&scrub.client)?;
    let client = connect(&cluster.credential()?, "scrub")?;
    let admin = client.administrator()?;
    let map = client.cluster_map()?;
    let targets = chosen(scrub, &map)?;
    let quiet = scrub.quiet || scrub.json;
    let mut spool = Spool::new();
    let metadata = match scrub.targets.is_empty() {
        true => Some(verify_metadata(&admin, &mut spool, quiet)),
        false => None,
    };
    let scrubbed = verify_targets(scrub, &admin, &targets, quiet);
    // After what is rotten was repaired.
    let limit = scrub.limit.map(|limit| limit.0.max(1));
    let parities = match metadata {
        Some(Ok(_)) => Some(parities::compare(&client, &mut spool, limit, quiet)?),
        _ => None,
    };
    let report = Report::new(&admin, scrubbed, metadata, parities, spool)?;
    match scrub.json {
        true => print_json(&report.json())?,
        false => print(&report.text())?,
    }
    if report.is_clean() { Ok(()) } else { Err(Failure::new("")) }
}

/// Returns the targets to verify, each with its server's name and its state.
fn chosen(scrub: &Scrub, map: &ClusterMap) -> Done<Vec<(TargetId, String, TargetState)>> {
    for wanted in &scrub.targets {
        if !map.targets().any(|(_, t)| t.target.0 == *wanted) {
            let failure = Failure::new(format!("there is no target {wanted}"));
            return Err(failure.hint("`weir df` lists the targets"));
        }
    }
    let all = scrub.targets.is_empty();
    let named = map.targets().filter(|(_, t)| all || scrub.targets.contains(&t.target.0));
    Ok(named.map(|(s, t)| (t.target, data_name(s.server.0), t.state)).collect())
}

/// Verifies everything that the metadata server has on disk, and then every record. If something is
/// damaged, the records are not read: reading a damaged record stops the server.
fn verify_metadata(admin: &Administrator, spool: &mut Spool, quiet: bool) -> Done<Metadata> {
    let progress = Progress::start(quiet, 0);
    let mut found = Metadata::default();
    let mut place = Some(0);
    while let Some(from) = place {
        let step = admin.verify_metadata(from)?;
        found.bytes += step.bytes;
        found.damage.extend(step.damage);
        place = step.next;
        progress.say(|| format!("metadata: {} verified", human_size(found.bytes)));
    }
    if found.damage.is_empty() {
        let taken = snapshot::take(admin, spool, &progress)?;
        found.records = taken.records;
        found.damage.extend(taken.problems.into_iter().map(|problem| problem.what));
    }
    progress.finish();
    Ok(found)
}

/// The findings in the metadata.
#[derive(Default)]
struct Metadata {
    bytes: u64,
    records: u64,
    damage: Vec<String>,
}

fn verify_targets(
    scrub: &Scrub,
    admin: &Administrator,
    targets: &[(TargetId, String, TargetState)],
    quiet: bool,
) -> Vec<Scrubbed> {
    let progress = Progress::start(quiet, STEPS * targets.len() as u64);
    let (bytes, findings) = (AtomicU64::new(0), AtomicU64::new(0));
    let limit = scrub.limit.map(|limit| limit.0.max(1));
    let one = |(target, server, state): &(TargetId, String, TargetState)| {
        let mut found = Scrubbed {
            target: *target,
            server: server.clone(),
            objects: 0,
            bytes: 0,
            findings: Vec::new(),
            failure: None,
        };
        if *state == TargetState::Offline {
            found.failure = Some("it is offline: nothing of it was verified".into());
            return found;
        }
        let told = |page_bytes: u64, page_findings: usize, steps: u64| {
            progress.advance(steps);
            let bytes = bytes.fetch_add(page_bytes, Relaxed) + page_bytes;
            let wrong = findings.fetch_add(page_findings as u64, Relaxed) + page_findings as u64;
            progress.say(|| format!("{} verified, {wrong} findings", human_size(bytes)));
        };
        if let Err(error) = verify_target(admin, limit, &mut found, told) {
            found.failure = Some(error.to_string());
        }
        found
    };
    let done = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = targets.iter().map(|t| scope.spawn(move || one(t))).collect();
        // A target that was not verified to its end must not be missing in the report.
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|found| found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    progress.finish();
    done
}

fn verify_target(
    admin: &Administrator,
    limit: Option<u64>,
    found: &mut Scrubbed,
    told: impl Fn(u64, usize, u64),
) -> Result<(), Error> {
    // A slow disk gets small requests.
    let budget = limit.map_or(MAX_SCRUB_BYTES, |limit| limit.min(MAX_SCRUB_BYTES.into()) as u32);
    let begun = Instant::now();
    let mut cursor: Option<ScrubCursor> = None;
    loop {
        let page = admin.scrub(found.target, cursor.clone(), budget)?;
        let at = |cursor: &Option<ScrubCursor>| cursor.as_ref().map(|c| u64::from(c.hash));
        let steps = at(&page.next).unwrap_or(STEPS).saturating_sub(at(&cursor).unwrap_or(0));
        told(page.bytes, page.findings.len(), steps);
        found.objects += page.objects;
        found.bytes += page.bytes;
        found.findings.extend(page.findings);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
        if let Some(limit) = limit {
            let due = Duration::from_secs_f64(found.bytes as f64 / limit as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    }
}

/// All findings, and what they mean for files.
struct Report {
    targets: Vec<Scrubbed>,
    /// `None` if the metadata was not to be verified.
    metadata: Option<Done<Metadata>>,
    /// `None` if parities were not to be compared, or the metadata cannot be read.
    parities: Option<Parities>,
    paths: Paths,
    segments: BTreeMap<(FileId, SegmentIndex), Segment>,
}

impl Report {
    fn new(
        admin: &Administrator,
        targets: Vec<Scrubbed>,
        metadata: Option<Done<Metadata>>,
        parities: Option<Parities>,
        mut spool: Spool,
    ) -> Done<Self> {
        let findings = targets.iter().flat_map(|t| &t.findings);
        let found = findings.filter_map(|f| Some(f.object?.file));
        let files: BTreeSet<FileId> =
            found.chain(parities.iter().flat_map(Parities::named)).collect();
        let (mut paths, mut segments) = (Paths::default(), BTreeMap::new());
        if !files.is_empty() {
            // Problems without paths are better than none.
            if metadata.is_none()
                && let Err(failure) = snapshot::take(admin, &mut spool, &Progress::start(true, 0))
            {
                failure.about("cannot name the files").say();
            }
            segments = snapshot::segments(&mut spool, &files)?;
            paths = Paths::find(&mut spool, files.into_iter())?;
        }
        Ok(Self { targets, metadata, parities, paths, segments })
    }

    fn is_clean(&self) -> bool {
        let metadata = match &self.metadata {
            None => true,
            Some(found) => found.as_ref().is_ok_and(|found| found.damage.is_empty()),
        };
        let good = |t: &Scrubbed| t.failure.is_none() && t.findings.iter().all(is_mended);
        let parities = self.parities.as_ref().is_none_or(Parities::is_clean);
        metadata && parities && self.targets.iter().all(good)
    }

    /// Returns the first and last byte of each range of a file that a finding concerns.
    fn file_ranges(&self, finding: &ScrubFinding) -> Vec<(u64, u64)> {
        let Some(object) = finding.object else { return Vec::new() };
        let Some(segment) = self.segments.get(&(object.file, object.segment)) else {
            return Vec::new();
        };
        segment_ranges(segment.stripe(), object.column, finding.offset, finding.len)
            .map(|(start, len)| (segment.start + start, segment.start + start + len - 1))
            .collect()
    }

    fn line(&self, target: &Scrubbed, finding: &ScrubFinding) -> String {
        let place = format!("target {} ({})", target.target, target.server);
        let Some(object) = finding.object else {
            return format!("{place}: {}: {}\n", finding.path, finding.what);
        };
        let ranges: Vec<String> =
            self.file_ranges(finding).iter().map(|(a, b)| format!("{a}-{b}")).collect();
        let file = match self.segments.contains_key(&(object.file, object.segment)) {
            true => self.paths.shown(object.file),
            false => "no file".to_owned(),
        };
        let bytes = match ranges.as_slice() {
            [] => String::new(),
            ranges => format!(", bytes {}", ranges.join(", ")),
        };
        let what = match finding.mended {
            Mended::No => "",
            Mended::Done => ": repaired from another copy",
            Mended::UnderWay => ": it is being restored from another copy",
            Mended::Failed => ": not repaired",
        };
        format!("{file}{bytes}: {place}: object {object}: {}{what}\n", finding.what)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for target in &self.targets {
            for finding in &target.findings {
                text += &self.line(target, finding);
            }
            if let Some(failure) = &target.failure {
                text += &format!("target {} ({}): {failure}\n", target.target, target.server);
            }
        }
        match &self.metadata {
            None => {}
            Some(Err(failure)) => text += &format!("metadata: {failure}\n"),
            Some(Ok(found)) => {
                text.extend(found.damage.iter().map(|what| format!("metadata: {what}\n")));
            }
        }
        text.extend(self.parities.iter().map(|parities| parities.text(&self.paths)));
        text + &self.summary()
    }

    fn summary(&self) -> String {
        let sum = |of: fn(&Scrubbed) -> u64| self.targets.iter().map(of).sum::<u64>();
        let wrong = sum(|t| t.findings.len() as u64);
        let mended = sum(|t| t.findings.iter().filter(|f| is_mended(f)).count() as u64);
        let mut text = format!(
            "{} objects, {} on {} targets",
            sum(|t| t.objects),
            human_size(sum(|t| t.bytes)),
            self.targets.len()
        );
        let mut in_metadata = 0;
        if let Some(Ok(found)) = &self.metadata {
            text += &format!(", {} metadata records", found.records);
            in_metadata = found.damage.len() as u64;
        }
        let mut failures = self.targets.iter().filter(|t| t.failure.is_some()).count()
            + usize::from(matches!(self.metadata, Some(Err(_))));
        let mut of_parities = 0;
        if let Some(parities) = &self.parities {
            text += &parities.summary();
            of_parities = parities.wrong();
            failures += usize::from(parities.has_failures());
        }
        text += &match (wrong + in_metadata + of_parities, failures) {
            (0, 0) => ": all as it was written\n".to_owned(),
            (wrong, 0) => format!(": {wrong} findings, {mended} of them repaired\n"),
            (wrong, failures) => format!(
                ": {wrong} findings, {mended} of them repaired, and {failures} not verified to \
                 the end\n"
            ),
        };
        text
    }

    fn json(&self) -> Value {
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|t| {
                json!({
                    "target": t.target.0,
                    "server": t.server,
                    "server_name": t.server,
                    "objects": t.objects,
                    "bytes": t.bytes,
                    "findings": t.findings.len(),
                    "repaired": t.findings.iter().filter(|f| is_mended(f)).count(),
                    "failure": t.failure,
                })
            })
            .collect();
        let findings: Vec<Value> = self
            .targets
            .iter()
            .flat_map(|t| t.findings.iter().map(move |f| (t, f)))
            .map(|(target, f)| {
                json!({
                    "target": target.target.0,
                    "server": target.server,
                    "server_name": target.server,
                    "damage": damage_name(f.damage),
                    "what": f.what,
                    "object": f.object.map(|object| object.to_string()),
                    "object_file": f.path,
                    "offset": f.offset,
                    "length": f.len,
                    "file": f.object.map(|object| object.file.0),
                    "path": f.object.and_then(|object| self.paths.path(object.file)),
                    "bytes": self.file_ranges(f),
                    "repair": mended_name(f.mended),
                })
            })
            .collect();
        let metadata = self.metadata.as_ref().map(|taken| match taken {
            Err(failure) => json!({ "failure": failure.message }),
            Ok(found) => json!({
                "records": found.records,
                "bytes": found.bytes,
                "findings": found.damage,
                "failure": null,
            }),
        });
        let parities = self.parities.as_ref().map(|parities| parities.json(&self.paths));
        json!({
            "targets": targets,
            "metadata": metadata,
            "parities": parities,
            "findings": findings,
        })
    }
}

/// Whether damage has been repaired from another copy, or is being repaired.
fn is_mended(finding: &ScrubFinding) -> bool {
    matches!(finding.mended, Mended::Done | Mended::UnderWay)
}

fn mended_name(mended: Mended) -> &'static str {
    match mended {
        Mended::No => "none",
        Mended::Done => "done",
        Mended::UnderWay => "under-way",
        Mended::Failed => "failed",
    }
}

fn damage_name(damage: Damage) -> &'static str {
    match damage {
        Damage::Block => "block",
        Damage::Header => "header",
        Damage::BehindEnd => "behind-end",
        Damage::Unreadable => "unreadable",
        Damage::Stranger => "stranger",
        Damage::Superblock => "superblock",
        Damage::IntentLog => "intent-log",
    }
}

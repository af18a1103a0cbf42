//! Compares the objects of a file with its segments.

use super::Bounds;
use super::files::FileFacts;
use super::problem::{Kind, Lost, Problem, Short, Subject};
use crate::schema::{Body, Inode, RegularFile};
use std::collections::BTreeMap;
use weir_layout::{implied_segment_len, object_len, segment_offset};
use weir_types::{
    Column, ColumnIndex, CopyIndex, FileId, ObjectId, Segment, SegmentIndex, TargetId,
};

/// The place of an object according to the segments.
enum Place<'a> {
    /// The object belongs here.
    Right(&'a Segment),
    /// The segment has the object on another target.
    Elsewhere(TargetId),
    /// The segment has no such column or copy.
    NoColumn,
    /// No segment in use has the object.
    NoSegment,
}

impl FileFacts {
    pub(super) fn judge_objects(&self, file: FileId, bounds: &Bounds, problems: &mut Vec<Problem>) {
        let regular = self.inode.as_ref().and_then(|inode| match &inode.body {
            Body::File(body) => Some((inode, body)),
            _ => None,
        });
        let in_use: BTreeMap<SegmentIndex, &Segment> = match regular {
            Some((_, body)) => self.segments(body).map(|s| (s.index, s)).collect(),
            None => BTreeMap::new(),
        };
        for (&(target, object), &len) in &self.objects {
            let found = match place(&in_use, target, object) {
                Place::Right(_) => continue,
                Place::NoSegment if self.is_on_its_way_out(target, object) => continue,
                Place::NoSegment if object.file.0 >= bounds.ids_end => (
                    Kind::MisplacedObject,
                    "its id has not been given out: the metadata is an older copy than the \
                     objects; put the newest back, and remove nothing before"
                        .to_owned(),
                ),
                Place::NoSegment => {
                    let what = match regular {
                        Some(_) => "an object of a segment that the file does not have",
                        None => "an object of a file that does not exist",
                    };
                    (Kind::OrphanObject, what.to_owned())
                }
                _ if self.garbage.contains(&(target, object)) => continue,
                Place::Elsewhere(right) => {
                    let what = format!("its layout has this object on target {right}");
                    (Kind::MisplacedObject, what)
                }
                Place::NoColumn => {
                    (Kind::MisplacedObject, "its layout has no such column or copy".to_owned())
                }
            };
            let (kind, what) = found;
            let subject = Subject::Object { target, object, len };
            problems.push(Problem { kind, file: Some(file), what, subject });
        }
        self.judge_garbage(file, &in_use, problems);
        if let Some((inode, body)) = regular {
            self.judge_copies(file, body, bounds, problems);
            self.judge_written(file, inode, body, bounds, problems);
            self.judge_size(file, inode, body, &in_use, problems);
        }
    }

    /// Whether an object without a segment in use will be removed anyway.
    fn is_on_its_way_out(&self, target: TargetId, object: ObjectId) -> bool {
        let in_list = |(&(list, _), page): (&(u32, u64), &crate::schema::SegmentPage)| {
            let current = self
                .inode
                .as_ref()
                .is_some_and(|inode| matches!(&inode.body, Body::File(body) if body.list == list));
            // A list that nothing leads to is told of as such.
            !current && page.segments.iter().any(|segment| segment.index == object.segment)
        };
        self.garbage.contains(&(target, object)) || self.pages.iter().any(in_list)
    }

    fn judge_garbage(
        &self,
        file: FileId,
        in_use: &BTreeMap<SegmentIndex, &Segment>,
        problems: &mut Vec<Problem>,
    ) {
        for &(target, object) in &self.garbage {
            if matches!(place(in_use, target, object), Place::Right(_)) {
                let len = self.objects.get(&(target, object)).copied().unwrap_or(0);
                problems.push(Problem {
                    kind: Kind::DoomedObject,
                    file: Some(file),
                    what: "an object of the file is about to be removed: stop the data server of \
                           the target before it happens"
                        .into(),
                    subject: Subject::Object { target, object, len },
                });
            }
        }
    }

    /// Checks that every written column has a copy on a target of the cluster.
    fn judge_copies(
        &self,
        file: FileId,
        body: &RegularFile,
        bounds: &Bounds,
        problems: &mut Vec<Problem>,
    ) {
        for (start, page) in self.pages_of(body.list) {
            let Some(written) = self.written.get(&(body.list, start)) else { continue };
            for (position, segment) in page.segments.iter().enumerate() {
                for (column, placed) in segment.columns.iter().enumerate() {
                    let column = ColumnIndex(column as u16);
                    let whole =
                        |(copy, _): &(CopyIndex, TargetId)| !segment.is_filling(column, *copy);
                    let targets = placed.copies().filter(whole).map(|(_, target)| target);
                    let targets: Vec<TargetId> = targets.collect();
                    let away = |t: &TargetId| {
                        let stale = targets.len() > 1 && bounds.stale.contains(t);
                        stale || bounds.removed.contains(t) || bounds.away.contains(t)
                    };
                    if written.has(position, usize::from(column.0))
                        && targets.iter().all(away)
                        && !is_decodable(segment, |t| !away(&t))
                    {
                        problems.push(unreadable(file, segment, column, targets, bounds));
                    }
                }
            }
        }
    }

    /// Checks that every written column has an object.
    fn judge_written(
        &self,
        file: FileId,
        inode: &Inode,
        body: &RegularFile,
        bounds: &Bounds,
        problems: &mut Vec<Problem>,
    ) {
        for (start, page) in self.pages_of(body.list) {
            let Some(written) = self.written.get(&(body.list, start)) else { continue };
            for (position, segment) in page.segments.iter().enumerate() {
                for (column, placed) in segment.columns.iter().enumerate() {
                    let column_index = ColumnIndex(column as u16);
                    let object = |copy| ObjectId {
                        file,
                        segment: segment.index,
                        column: column_index,
                        copy,
                    };
                    let whole = |(copy, _): &(CopyIndex, TargetId)| {
                        !segment.is_filling(column_index, *copy)
                    };
                    let places: Vec<_> = placed.copies().filter(whole).collect();
                    let there = |&(copy, target): &(CopyIndex, TargetId)| {
                        self.objects.contains_key(&(target, object(copy)))
                    };
                    // What others hold that did not say so nobody knows.
                    let unheard =
                        |(_, target): &(CopyIndex, TargetId)| !bounds.listed.contains(target);
                    let Some(&(copy, target)) = places.first() else { continue };
                    if !written.has(position, column)
                        || places.iter().any(unheard)
                        || places.iter().any(there)
                    {
                        continue;
                    }
                    let object = object(copy);
                    // What was cut off again is not missed.
                    let Some((first, last)) = bytes_of(segment, column_index, inode.size) else {
                        continue;
                    };
                    let lost = Lost { target, object, segment_start: segment.start, first, last };
                    problems.push(Problem {
                        kind: Kind::MissingObject,
                        file: Some(file),
                        what: "an object was written and is not there: it is lost, or was not \
                               durable yet when the power failed"
                            .into(),
                        subject: Subject::Lost(lost),
                    });
                }
            }
        }
    }

    /// Checks that no object extends beyond the file's size.
    fn judge_size(
        &self,
        file: FileId,
        inode: &Inode,
        body: &RegularFile,
        in_use: &BTreeMap<SegmentIndex, &Segment>,
        problems: &mut Vec<Problem>,
    ) {
        // A truncation that is still to be carried out, or a file that goes.
        if body.pending_truncate.is_some() || inode.nlink == 0 {
            return;
        }
        let mut furthest: Option<Short> = None;
        for (&(target, object), &object_len) in &self.objects {
            let Place::Right(segment) = place(in_use, target, object) else { continue };
            // A parity is as long as the longest column.
            if usize::from(object.column.0) >= segment.columns.len() {
                continue;
            }
            let implied = implied_segment_len(segment.stripe(), object.column, object_len);
            let within = segment.len.unwrap_or(u64::MAX);
            let Some(len) = implied.filter(|len| *len <= within) else {
                problems.push(Problem {
                    kind: Kind::Size,
                    file: Some(file),
                    what: format!("an object of {object_len} bytes is longer than its segment"),
                    subject: Subject::Object { target, object, len: object_len },
                });
                continue;
            };
            let found = segment.start + len;
            if len == 0 || found <= furthest.as_ref().map_or(inode.size, |f| f.found) {
                continue;
            }
            furthest = Some(Short {
                size: inode.size,
                found,
                generation: inode.generation,
                change: inode.change,
                object,
                target,
                object_len,
            });
        }
        if let Some(short) = furthest {
            problems.push(Problem {
                kind: Kind::Size,
                file: Some(file),
                what: format!(
                    "its size is {}, but its objects hold bytes up to {}: a writer ended before \
                     it could say so",
                    short.size, short.found
                ),
                subject: Subject::Short(short),
            });
        }
    }
}

/// Whether enough of a segment with parities is on such targets to compute the rest.
fn is_decodable(segment: &Segment, is_there: impl Fn(TargetId) -> bool) -> bool {
    let has_one = |(column, member): &(ColumnIndex, &Column)| {
        let mut copies = member.copies();
        copies.any(|(copy, target)| !segment.is_filling(*column, copy) && is_there(target))
    };
    segment.is_coded() && segment.members().filter(has_one).count() >= segment.columns.len()
}

fn place<'a>(
    in_use: &BTreeMap<SegmentIndex, &'a Segment>,
    target: TargetId,
    object: ObjectId,
) -> Place<'a> {
    let Some(segment) = in_use.get(&object.segment) else { return Place::NoSegment };
    match segment.target(usize::from(object.column.0), object.copy) {
        Some(placed) if placed == target => Place::Right(segment),
        Some(TargetId::NONE) => Place::NoColumn,
        Some(placed) => Place::Elsewhere(placed),
        None => Place::NoColumn,
    }
}

/// The problem of a column without a readable copy.
fn unreadable(
    file: FileId,
    segment: &Segment,
    column: ColumnIndex,
    targets: Vec<TargetId>,
    bounds: &Bounds,
) -> Problem {
    let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let (index, names) = (segment.index, names.join(", "));
    let (kind, what) = match targets.iter().all(|target| bounds.removed.contains(target)) {
        true => (
            Kind::LostColumn,
            format!(
                "column {column} of segment {index} is lost: it was on targets that were removed \
                 from the cluster ({names})"
            ),
        ),
        false => (
            Kind::AwayColumn,
            format!(
                "column {column} of segment {index} cannot be read: none of its copies (targets \
                 {names}) is current and online"
            ),
        ),
    };
    Problem { kind, file: Some(file), what, subject: Subject::Column { targets } }
}

/// First and last byte of a file of this size in a column of a segment; `None` if there are none.
fn bytes_of(segment: &Segment, column: ColumnIndex, size: u64) -> Option<(u64, u64)> {
    let stripe = segment.stripe();
    let within = size.clamp(segment.start, segment.end()) - segment.start;
    let last = object_len(stripe, column, within).checked_sub(1)?;
    let first = segment_offset(stripe, column, 0)?;
    Some((segment.start + first, segment.start + segment_offset(stripe, column, last)?))
}

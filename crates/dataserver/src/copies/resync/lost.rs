//! Recovery of lost gaps: a target does not know what its copies lack, because its gap log is lost,
//! or its machine has lost new objects. All its copies of those files are noted as lacking
//! everything, so the ordering copy sends all of them again. If this copy orders itself, its own
//! bytes count. Until then none of it is served from here. If the log is gone, so are the gaps of
//! other targets: targets that are not online may lack everything. What this one lacked is unknown
//! then too: see `unheard.rs`.

use super::{Resync, Search};
use weir_store::Note;
use weir_types::limits::{MAX_FILE_BYTES, MAX_FIND_COPIES};
use weir_types::{CopyIndex, Epoch, FileId, ObjectId, Result, TargetId};
use weir_wire::peer::{CopyPage, ListCopiesRequest};

/// Timeout of the metadata server's reply, milliseconds.
const LIST_MS: u64 = 4_000;
/// No more gaps are noted while this many objects have gaps of this target that others can fill: the
/// gap log keeps space for others. What waits for copies that are away is limited by the log alone.
const MAX_NOTED: u64 = 1 << 18;

impl Resync {
    /// Goes on until all gaps are noted, or until too many have to be worked off first.
    pub(super) fn look_for_lost(&mut self) -> Result<()> {
        let gaps = self.disk.store.gaps();
        let own = self.own();
        // Without a map nobody knows who is away.
        if self.shared.copies.standings.acting() == Epoch(0) {
            return Ok(());
        }
        let (files, lost_others) = (gaps.lost_files(), gaps.lost_others());
        while let Some(range) = files.get(self.search.done) {
            if !has_room(&gaps.counts(), own) {
                return Ok(());
            }
            let request = ListCopiesRequest {
                target: own,
                start: FileId(range.start),
                end: FileId(range.end),
                after: self.search.after,
            };
            let lines = &self.shared.copies.lines;
            let page: CopyPage = lines.peers().ask_metadata(&request, &lines.wait(LIST_MS))?;
            let note = |&object: &ObjectId| {
                let (behind, copy, bytes) = (own, object.copy, 0..MAX_FILE_BYTES);
                Note { object, behind, copy, bytes }
            };
            let notes = match lost_others {
                true => self.lost_of_all(&page.objects)?,
                false => page.objects.iter().map(note).collect(),
            };
            gaps.note_all(&notes)?;
            self.search.after = page.next;
            self.search.done += usize::from(page.next.is_none());
        }
        // Until they have been looked at all of them count.
        self.disk.progress.look_again();
        gaps.found()?;
        self.search = Search::default();
        tracing::info!("{}: the suspect copies are known again", self.disk.store.name());
        Ok(())
    }

    /// Gaps of this target for these objects, and gaps of other targets. Online targets lack
    /// nothing.
    fn lost_of_all(&self, objects: &[ObjectId]) -> Result<Vec<Note>> {
        let (own, standings) = (self.own(), &self.shared.copies.standings);
        let mut notes = Vec::new();
        for page in objects.chunks(MAX_FIND_COPIES) {
            for (object, column) in page.iter().zip(self.find(page.to_vec())?) {
                notes.extend(self.suspect(*object, column.as_ref()));
                let copies = column.into_iter().flat_map(|column| column.copies).enumerate();
                let lacks = |target| {
                    ![own, TargetId::NONE].contains(&target) && !standings.is_online(target)
                };
                notes.extend(copies.filter(|(_, copy)| lacks(copy.target)).map(|(at, copy)| {
                    let (behind, copy) = (copy.target, CopyIndex(at as u8));
                    Note { object: *object, behind, copy, bytes: 0..MAX_FILE_BYTES }
                }));
            }
        }
        Ok(notes)
    }
}

/// Whether more gaps may be noted now.
fn has_room(counts: &[(TargetId, u64)], own: TargetId) -> bool {
    counts.iter().all(|(behind, count)| *behind != own || *count < MAX_NOTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::{ELSEWHERE, UNHEARD};

    #[test]
    fn the_search_goes_on_however_much_waits_for_copies_that_are_away() {
        let (own, away) = (TargetId(1), TargetId(2));
        let of_others = [(away, 1 << 19), (ELSEWHERE, 1 << 19), (UNHEARD, 1 << 19)];
        assert!(has_room(&of_others, own));
        assert!(has_room(&[(own, MAX_NOTED - 1)], own));
        assert!(!has_room(&[(own, MAX_NOTED)], own));
    }
}

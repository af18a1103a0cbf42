//! Names are stored twice, by name and by cookie. Both records must exist and agree.

use super::problem::{Kind, Problem};
use weir_types::{FileId, FileKind};

/// The two records of one name: file, kind and cookie.
#[derive(Debug, Default)]
pub(super) struct NameFacts {
    pub by_name: Option<(FileId, FileKind, u64)>,
    pub by_cookie: Vec<(FileId, FileKind, u64)>,
}

impl NameFacts {
    pub(super) fn judge(&self, dir: FileId, name: &[u8], problems: &mut Vec<Problem>) {
        let name = String::from_utf8_lossy(name);
        let mut wrong = |what: String| problems.push(Problem::new(Kind::Name, dir, what));
        let Some(by_name) = self.by_name else {
            return wrong(format!("the listing has '{name}', which cannot be looked up"));
        };
        match self.by_cookie.as_slice() {
            [] => wrong(format!("'{name}' can be looked up but is not in the listing")),
            [one] if *one == by_name => {}
            [_] => wrong(format!("listing and lookup of '{name}' disagree")),
            many => wrong(format!("'{name}' is in the listing {} times", many.len())),
        }
    }
}

//! Controls: operations on a file beside reading and writing, and the check which controls of a
//! list may be carried out.
//!
//! A list is checked as a whole before any of it takes effect ([`check`]). If a mandatory control
//! fails the check, nothing is done.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::{MAX_LABEL_LEN, MAX_OFFSET, MAX_SIZE};
use crate::core::list::Span;

/// How a file is cached on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// No cache: every call goes to the servers.
    None,
    /// Reads and writes of all processes have one order.
    #[default]
    Strong,
    /// Writes are visible to others after `Propagate`, and writes of others after `Refresh`.
    Weak,
}

/// How a file is striped over servers. The file system chooses fields that are not named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of servers.
    pub width: Option<u32>,
    /// Consecutive bytes on one server.
    pub depth: Option<u64>,
    /// Whether the algorithm is named: simple striping, the only one.
    pub algorithm: bool,
}

/// A copy of bytes from another open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Descriptor of the file to copy from.
    pub source: i32,
    /// Offset in the source.
    pub source_offset: u64,
    /// Offset in the destination.
    pub offset: u64,
    /// Length, bytes.
    pub size: u64,
}

/// One control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Gets the size.
    GetSize,
    /// Sets the size.
    SetSize(u64),
    /// Gets the disk space of the file, bytes.
    GetAllocation,
    /// Gets the number of bytes that were preallocated at creation.
    GetPreallocation,
    /// Preallocates bytes.
    SetPreallocation(u64),
    /// Gets the caching mode of the descriptor.
    GetCachingMode,
    /// Sets the caching mode.
    SetCachingMode(Caching),
    /// Makes writes visible to others: in these ranges, or in all of the file.
    Propagate(Option<Vec<Span>>),
    /// Drops cached bytes: in these ranges, or all.
    Refresh(Option<Vec<Span>>),
    /// Makes writes durable.
    Sync,
    /// Gets the layout.
    GetLayout,
    /// Sets the layout.
    SetLayout(Layout),
    /// Gets the label.
    GetLabel,
    /// Sets the label.
    SetLabel(Vec<u8>),
    /// Gets the granularity of the cache, bytes.
    GetConsistencyUnit,
    /// Copies from another file.
    FastCopy(Copy),
    /// The arguments were invalid.
    Refused(Failure),
}

/// The answer of a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No answer.
    Done,
    /// A number of bytes.
    Bytes(u64),
    /// A mode.
    Caching(Caching),
    /// A layout.
    Layout(Layout),
    /// A label.
    Label(Vec<u8>),
}

/// One control of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Whether the call fails if this control fails.
    pub mandatory: bool,
    /// The operation.
    pub op: Op,
}

/// The outcome of a control.
pub type Outcome = Result<Answer>;

/// The call that has the list of controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `sio_open`.
    Open {
        /// Whether the file is created.
        create: bool,
    },
    /// `sio_control`.
    Control,
    /// `sio_test`.
    Test {
        /// Whether the question is if the file could be created.
        create: bool,
    },
}

/// The state of the file, for checking a control.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The call that has the control.
    pub when: When,
    /// Whether the file is open for writing.
    pub writable: bool,
}

impl Op {
    /// Group of the control. Controls of one group exclude each other in a list.
    fn sets(&self) -> Option<u8> {
        match self {
            Op::SetSize(_) => Some(0),
            Op::SetPreallocation(_) => Some(1),
            Op::SetCachingMode(_) => Some(2),
            Op::SetLayout(_) => Some(3),
            Op::SetLabel(_) => Some(4),
            _ => None,
        }
    }

    fn changes_file(&self) -> bool {
        use Op::{FastCopy, SetLabel, SetLayout, SetPreallocation, SetSize};
        matches!(self, SetSize(_) | SetPreallocation(_) | SetLayout(_) | SetLabel(_) | FastCopy(_))
    }

    /// Whether it can be answered for a file that is not open.
    fn is_on_test(&self, create: bool) -> bool {
        use Op::{FastCopy, GetCachingMode, Propagate, Refresh, Sync};
        let acts = matches!(self, GetCachingMode | Propagate(_) | Refresh(_) | Sync | FastCopy(_));
        let sets = self.sets().is_some() || matches!(self, Op::Refused(_));
        !acts && (sets || !create)
    }

    /// Checks a single control.
    fn check(&self, setting: Setting) -> Result<()> {
        if let Op::Refused(failure) = self {
            return Err(failure.clone());
        }
        let at_create =
            matches!(setting.when, When::Open { create: true } | When::Test { create: true });
        match self {
            Op::SetLayout(_) | Op::SetPreallocation(_) if !at_create => {
                return Err(Code::OnlyAtCreate.into());
            }
            Op::SetCachingMode(_) if setting.when == When::Control => {
                return Err(Code::OnlyAtOpen.into());
            }
            _ => {}
        }
        if let When::Test { create } = setting.when
            && !self.is_on_test(create)
        {
            return Err(Code::ControlNotOnTest.into());
        }
        if self.changes_file() && !setting.writable {
            return Err(Failure::new(Code::IncorrectMode, "the file is not open to write"));
        }
        let too_much = match self {
            Op::SetSize(size) => (*size > MAX_OFFSET).then_some(MAX_OFFSET),
            Op::SetPreallocation(size) => (*size > MAX_SIZE).then_some(MAX_SIZE),
            Op::SetLabel(label) => (label.len() > MAX_LABEL_LEN).then_some(MAX_LABEL_LEN as u64),
            Op::FastCopy(copy) => {
                let fits = |at: u64| at.checked_add(copy.size).is_some_and(|end| end <= MAX_OFFSET);
                (!fits(copy.offset) || !fits(copy.source_offset)).then_some(MAX_OFFSET)
            }
            _ => None,
        };
        match too_much {
            Some(limit) => {
                Err(Failure::new(Code::InvalidArgument, format!("the most is {limit} bytes")))
            }
            None => Ok(()),
        }
    }
}

/// Checks a list. `backend` says whether the attached file system supports a control. If a
/// mandatory control fails, returns the outcome of each; otherwise whether each may be carried out.
pub fn check(
    list: &[Control],
    setting: Setting,
    backend: impl Fn(&Op) -> Result<()>,
) -> Result<Vec<Result<()>>, Vec<Outcome>> {
    let mut checked: Vec<Result<()>> = Vec::with_capacity(list.len());
    for (at, control) in list.iter().enumerate() {
        let sets = control.op.sets();
        let clash = sets.is_some() && list[..at].iter().any(|earlier| earlier.op.sets() == sets);
        let verdict = match clash {
            true => Err(Code::ControlsClash.into()),
            false => control.op.check(setting).and_then(|()| backend(&control.op)),
        };
        if control.mandatory && verdict.is_err() {
            let would = |done: Result<()>| done.and(Err(Code::ControlWouldHaveSucceeded.into()));
            let mut outcomes: Vec<Outcome> = checked.into_iter().map(would).collect();
            outcomes.push(verdict.map(|()| Answer::Done));
            outcomes.resize(list.len(), Err(Code::ControlNotAttempted.into()));
            return Err(outcomes);
        }
        checked.push(verdict);
    }
    Ok(checked)
}

/// Carries out a checked list, in order. `false`: a mandatory control failed, and the later ones
/// were not attempted.
pub fn carry_out(
    list: &[Control],
    checked: Vec<Result<()>>,
    mut run: impl FnMut(&Op) -> Outcome,
) -> (Vec<Outcome>, bool) {
    let mut outcomes = Vec::with_capacity(list.len());
    for (control, may) in list.iter().zip(checked) {
        let outcome = may.and_then(|()| run(&control.op));
        // This means success in `sio_test`.
        let good = match &outcome {
            Ok(_) => true,
            Err(failure) => failure.code == Code::ControlWouldHaveSucceeded,
        };
        outcomes.push(outcome);
        if control.mandatory && !good {
            outcomes.resize(list.len(), Err(Code::ControlNotAttempted.into()));
            return (outcomes, false);
        }
    }
    (outcomes, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Setting = Setting { when: When::Control, writable: true };

    fn list(ops: &[(bool, Op)]) -> Vec<Control> {
        ops.iter()
            .map(|(mandatory, op)| Control { mandatory: *mandatory, op: op.clone() })
            .collect()
    }

    fn codes(outcomes: &[Outcome]) -> Vec<Code> {
        let code = |o: &Outcome| o.as_ref().map_or_else(|f| f.code, |_| Code::Success);
        outcomes.iter().map(code).collect()
    }

    #[test]
    fn a_mandatory_control_that_fails_the_check_leaves_everything_undone() {
        let list = list(&[
            (false, Op::GetSize),
            (false, Op::SetLayout(Layout::default())),
            (true, Op::SetSize(MAX_OFFSET + 1)),
            (true, Op::Sync),
        ]);
        let outcomes = check(&list, OPEN, |_| Ok(())).unwrap_err();
        use Code::{ControlNotAttempted, ControlWouldHaveSucceeded, InvalidArgument, OnlyAtCreate};
        let want = [ControlWouldHaveSucceeded, OnlyAtCreate, InvalidArgument, ControlNotAttempted];
        assert_eq!(codes(&outcomes), want);
    }

    #[test]
    fn a_mandatory_control_that_fails_later_ends_the_list() {
        let list =
            list(&[(true, Op::GetSize), (false, Op::Sync), (true, Op::Sync), (false, Op::GetSize)]);
        let checked = check(&list, OPEN, |_| Ok(())).unwrap();
        let fail = |op: &Op| match op {
            Op::Sync => Err(Code::NoSpace.into()),
            _ => Ok(Answer::Bytes(1)),
        };
        let (outcomes, good) = carry_out(&list, checked, fail);
        assert!(!good);
        use Code::{ControlNotAttempted, NoSpace, Success};
        assert_eq!(codes(&outcomes), [Success, NoSpace, NoSpace, ControlNotAttempted]);
    }

    #[test]
    fn two_that_set_the_same_clash_and_old_and_new_value_do_not() {
        let list = list(&[
            (true, Op::GetSize),
            (true, Op::SetSize(5)),
            (true, Op::GetSize),
            (false, Op::SetSize(6)),
        ]);
        let checked = check(&list, OPEN, |_| Ok(())).unwrap();
        assert_eq!(checked[..3], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(checked[3], Err(Code::ControlsClash.into()));
    }

    #[test]
    fn the_call_decides_what_may_be_set() {
        let code = |op: &Op, when, writable| {
            op.check(Setting { when, writable })
                .map_or_else(|failure| failure.code, |()| Code::Success)
        };
        let (open, create) = (When::Open { create: false }, When::Open { create: true });
        let (test, test_create) = (When::Test { create: false }, When::Test { create: true });
        let layout = Op::SetLayout(Layout::default());
        assert_eq!(code(&layout, open, true), Code::OnlyAtCreate);
        assert_eq!(code(&layout, create, true), Code::Success);
        assert_eq!(code(&layout, create, false), Code::IncorrectMode);
        let mode = Op::SetCachingMode(Caching::Weak);
        assert_eq!(code(&mode, When::Control, true), Code::OnlyAtOpen);
        assert_eq!(code(&mode, open, false), Code::Success);
        assert_eq!(code(&Op::Sync, test, true), Code::ControlNotOnTest);
        assert_eq!(code(&Op::GetSize, test, true), Code::Success);
        assert_eq!(code(&Op::GetSize, test_create, true), Code::ControlNotOnTest);
        assert_eq!(code(&Op::SetSize(1), test_create, true), Code::Success);
    }
}

//! The chain of copies along which a change is passed. Pure. The chain begins with the copy that
//! orders the change and goes on in the order of the layout, in a circle, without copies that lack
//! the change. So a copy that has a change has everything that all copies after it have.

use weir_types::TargetId;
use weir_wire::data::{CopyAccess, Relay};

/// The position of a target among the copies.
pub(crate) fn position(copies: &[CopyAccess], target: TargetId) -> Option<usize> {
    copies.iter().position(|copy| copy.target == target)
}

/// The position of the copy after `own`; `None` at the end.
pub(crate) fn next(copies: &[CopyAccess], own: TargetId, relay: &Relay) -> Option<usize> {
    if relay.alone {
        return None;
    }
    let at = position(copies, own)?;
    let circle = copies.iter().enumerate().cycle().skip(at + 1).take(copies.len() - 1);
    let mut after = circle.take_while(|(_, copy)| copy.target != relay.by);
    after.find(|(_, copy)| takes(copy, relay)).map(|(at, _)| at)
}

/// All targets after `own`.
pub(crate) fn after(copies: &[CopyAccess], own: TargetId, relay: &Relay) -> Vec<TargetId> {
    let following = |at: &TargetId| next(copies, *at, relay).map(|at| copies[at].target);
    std::iter::successors(following(&own), following).collect()
}

/// Targets that pass a change on before `own` has it, except the one that orders it.
pub(crate) fn before(copies: &[CopyAccess], own: TargetId, relay: &Relay) -> Vec<TargetId> {
    let passed_on = after(copies, relay.by, relay);
    passed_on.into_iter().take_while(|target| *target != own).collect()
}

/// Number of copies that have a change before `own`. The first copy has it from its client.
pub(crate) fn depth(copies: &[CopyAccess], own: TargetId, relay: &Relay) -> usize {
    let Some(first) = position(copies, relay.by) else { return 0 };
    let circle = copies.iter().cycle().skip(first).take(copies.len());
    let before = circle.take_while(|copy| copy.target != own);
    before.filter(|copy| takes(copy, relay)).count()
}

fn takes(copy: &CopyAccess, relay: &Relay) -> bool {
    copy.target != TargetId::NONE && !relay.lacking.contains(&copy.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::Epoch;
    use weir_wire::Mac;

    fn copies(targets: &[u32]) -> Vec<CopyAccess> {
        let copy = |t: &u32| CopyAccess { target: TargetId(*t), mac: Mac([0; 16]), filling: false };
        targets.iter().map(copy).collect()
    }

    fn relay(by: u32, lacking: &[u32]) -> Relay {
        let lacking = lacking.iter().map(|t| TargetId(*t)).collect();
        Relay { by: TargetId(by), epoch: Epoch(1), lacking, alone: false, vouched: false, way: 0 }
    }

    #[test]
    fn it_goes_round_and_past_those_that_lack_it() {
        let all = copies(&[1, 2, 3]);
        let next = |own, relay: &Relay| next(&all, TargetId(own), relay);
        assert_eq!(next(1, &relay(1, &[])), Some(1));
        assert_eq!(next(3, &relay(1, &[])), None);
        assert_eq!(next(1, &relay(1, &[2])), Some(2));
        assert_eq!(next(2, &relay(2, &[])), Some(2));
        assert_eq!(next(3, &relay(2, &[])), Some(0), "the first takes changes again");
        assert_eq!(next(1, &relay(2, &[])), None);
        assert_eq!(next(2, &relay(2, &[1, 3])), None);
        let after = |own, relay: &Relay| after(&all, TargetId(own), relay);
        assert_eq!(after(2, &relay(2, &[])), [TargetId(3), TargetId(1)]);
        assert_eq!(after(3, &relay(2, &[1])), []);
        assert_eq!(before(&all, TargetId(1), &relay(2, &[])), [TargetId(3)]);
        assert_eq!(before(&all, TargetId(3), &relay(2, &[])), []);
        assert_eq!(before(&all, TargetId(1), &relay(2, &[3])), []);
        assert_eq!(next(1, &Relay { alone: true, ..relay(1, &[]) }), None);
        assert_eq!(depth(&all, TargetId(1), &relay(2, &[])), 2);
        assert_eq!(depth(&all, TargetId(1), &relay(2, &[3])), 1);
    }

    proptest! {
        #[test]
        fn everybody_who_takes_it_gets_it_once(
            count in 1u32..8, first in 0u32..8, lacks in proptest::collection::vec(any::<bool>(), 8)
        ) {
            let all = copies(&(0..count).collect::<Vec<_>>());
            let first = first % count;
            let lacking: Vec<u32> = (0..count).filter(|t| *t != first && lacks[*t as usize]).collect();
            let relay = relay(first, &lacking);
            let (mut seen, mut at) = (vec![first], TargetId(first));
            while let Some(position) = next(&all, at, &relay) {
                at = all[position].target;
                seen.push(at.0);
                prop_assert!(seen.len() <= count as usize);
                prop_assert_eq!(depth(&all, at, &relay), seen.len() - 1);
            }
            seen.sort_unstable();
            let taking: Vec<u32> = (0..count).filter(|t| !lacking.contains(t)).collect();
            prop_assert_eq!(seen, taking);
        }
    }
}

//! Every kernel computes the bytes of the scalar one, and they form a code: lost blocks are
//! restored, and updated, extended and merged parities equal those of an encoding from the
//! beginning.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use proptest::prelude::*;
use weir_erasure::{Code, Kernel, MAX_MEMBERS, MAX_PARITIES, MIN_MEMBERS, merge};

/// Members of different lengths, around the step sizes of the kernels.
fn members(
    count: impl Into<proptest::collection::SizeRange>,
) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![0..40_usize, 120..140_usize, 250..400_usize];
    let member = len.prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len));
    proptest::collection::vec(member, count)
}

fn slices(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
    blocks.iter().map(Vec::as_slice).collect()
}

fn longest(members: &[Vec<u8>]) -> usize {
    members.iter().map(Vec::len).max().unwrap_or(0)
}

/// The parities from `first` on, computed by a kernel.
fn encode(kernel: Kernel, code: &Code, members: &[Vec<u8>], first: usize) -> Vec<Vec<u8>> {
    let mut parities = vec![vec![0xa5; longest(members)]; code.parities() - first];
    let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode_some(kernel, &slices(members), first, &mut outputs).unwrap();
    parities
}

/// The lost blocks, as a kernel decodes them from the others.
fn decode(kernel: Kernel, code: &Code, blocks: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
    let present: Vec<bool> = (0..code.blocks()).map(|i| !lost.contains(&i)).collect();
    let repair = code.repair(&present, lost).unwrap();
    assert!(repair.sources().iter().all(|source| present[*source]));
    let sources: Vec<&[u8]> = repair.sources().iter().map(|&i| blocks[i].as_slice()).collect();
    let mut found: Vec<Vec<u8>> = lost.iter().map(|&i| vec![0x5a; blocks[i].len()]).collect();
    let mut outputs: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
    repair.run_with(kernel, &sources, &mut outputs).unwrap();
    found
}

fn available() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| kernel.is_available())
}

proptest! {
    #[test]
    fn every_kernel_encodes_and_decodes_as_the_scalar_one(
        members in members(MIN_MEMBERS..=MAX_MEMBERS),
        parities in 1..=MAX_PARITIES,
        seed in any::<prop::sample::Index>(),
    ) {
        let code = Code::new(members.len(), parities).unwrap();
        let expected = encode(Kernel::Scalar, &code, &members, 0);
        let lost: Vec<usize> =
            (0..parities).map(|i| (seed.index(code.blocks()) + i * 3) % code.blocks()).collect();
        let mut lost = lost;
        lost.sort_unstable();
        lost.dedup();
        let blocks = [members.clone(), expected.clone()].concat();
        let wanted: Vec<Vec<u8>> = lost.iter().map(|&i| blocks[i].clone()).collect();
        for kernel in available() {
            prop_assert_eq!(&encode(kernel, &code, &members, 0), &expected, "{:?}", kernel);
            prop_assert_eq!(decode(kernel, &code, &blocks, &lost), &wanted[..], "{:?}", kernel);
        }
    }

    #[test]
    fn a_change_of_a_member_changes_parities_as_if_encoded_anew(
        members in members(MIN_MEMBERS..=12),
        parities in 1..=MAX_PARITIES,
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let code = Code::new(members.len(), parities).unwrap();
        let mut parity = encode(Kernel::best(), &code, &members, 0);
        let (mut changed, member) = (members, at.index(code.members()));
        let change: Vec<u8> = changed[member].iter().map(|byte| byte ^ value).collect();
        changed[member].fill(value);
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.update(member, &change, 0, &mut outputs).unwrap();
        prop_assert_eq!(parity, encode(Kernel::best(), &code, &changed, 0));
    }

    #[test]
    fn q_alone_makes_raid_6_of_raid_5(members in members(MIN_MEMBERS..=MAX_MEMBERS)) {
        let (five, six) =
            (Code::raid5(members.len()).unwrap(), Code::raid6(members.len()).unwrap());
        let p = encode(Kernel::best(), &five, &members, 0);
        let q = encode(Kernel::best(), &six, &members, 1);
        prop_assert_eq!([p, q].concat(), encode(Kernel::Scalar, &six, &members, 0));
    }

    #[test]
    fn two_sets_of_8_merge_to_one_of_16_from_their_parities(
        members in members(16..=16),
        parities in 1..=3_usize,
    ) {
        let half = Code::new(8, parities).unwrap();
        let mut merged = encode(Kernel::best(), &half, &members[..8], 0);
        let second = encode(Kernel::best(), &half, &members[8..], 0);
        for (parity, (first, second)) in merged.iter_mut().zip(&second).enumerate() {
            first.resize(longest(&members), 0);
            merge(8, parity, first, second).unwrap();
        }
        let whole = Code::new(16, parities).unwrap();
        prop_assert_eq!(merged, encode(Kernel::Scalar, &whole, &members, 0));
    }
}

/// Every pair of ten blocks is restored byte for byte.
#[test]
fn every_double_loss_of_8_and_2_comes_back() {
    let members: Vec<Vec<u8>> =
        (0..8_usize).map(|i| (0..300 - 31 * i).map(|at| (at * (i + 7)) as u8).collect()).collect();
    let code = Code::raid6(8).unwrap();
    let blocks = [members.clone(), encode(Kernel::best(), &code, &members, 0)].concat();
    for (first, second) in (0..10).flat_map(|i| (0..i).map(move |j| (j, i))) {
        let found = decode(Kernel::best(), &code, &blocks, &[first, second]);
        assert_eq!(found, [blocks[first].clone(), blocks[second].clone()], "{first}, {second}");
    }
}

#[test]
fn one_lost_member_is_read_from_the_others_and_p() {
    let code = Code::raid6(8).unwrap();
    let mut present = [true; 10];
    present[3] = false;
    let repair = code.repair(&present, &[3]).unwrap();
    assert_eq!(repair.sources(), [0, 1, 2, 4, 5, 6, 7, 8]);
}

#[test]
fn a_loss_of_more_than_there_are_parities_is_said() {
    let code = Code::raid6(4).unwrap();
    let error = code.repair(&[true, false, false, true, false, true], &[1]).unwrap_err();
    assert_eq!((error.lost, error.parities), (2, 1));
}

//! Debian's ISA-L computes the same bytes.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

#[path = "isal/library.rs"]
mod library;

use library::Isal;
use weir_erasure::{Code, Kernel, MAX_MEMBERS, MAX_PARITIES, MIN_MEMBERS};

/// A multiple of the alignment that ISA-L needs.
const LEN: usize = 3 * 128 + 32;

fn members(count: usize) -> Vec<Vec<u8>> {
    let byte = |member: usize, at: usize| (at * (2 * member + 3) + (at >> 3) + 17 * member) as u8;
    (0..count).map(|member| (0..LEN).map(|at| byte(member, at)).collect()).collect()
}

fn encode(kernel: Kernel, code: &Code, members: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parities = vec![vec![0; LEN]; code.parities()];
    let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode_some(kernel, &members, 0, &mut outputs).unwrap();
    parities
}

#[test]
fn parities_are_those_of_isa_l() {
    let Some(isal) = Isal::load() else {
        println!("skipped: needs libisal.so.2 (Debian: libisal2)");
        return;
    };
    for count in MIN_MEMBERS..=MAX_MEMBERS {
        let members = members(count);
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
            let ours = encode(kernel, &Code::raid6(count).unwrap(), &members);
            let (p, q) = isal.p_and_q(&members);
            assert!(ours == [p, q], "P and Q of {count} by {kernel:?}");
            for parities in 1..=MAX_PARITIES {
                let code = Code::new(count, parities).unwrap();
                let rows: Vec<u8> = (0..parities).flat_map(|r| code.factors(r).to_vec()).collect();
                let theirs = isal.encode(&rows, &members, parities);
                assert!(encode(kernel, &code, &members) == theirs, "{count}+{parities}");
            }
        }
    }
}

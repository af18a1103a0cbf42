//! Speed of computing parities: each kernel, a plain copy and ISA-L, with one core, from its
//! second-level cache.

#[path = "../../../crates/erasure/tests/isal/library.rs"]
mod library;

use library::{Aligned, Isal};
use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};
use weir_erasure::{Code, Kernel};

const MEMBERS: usize = 8;
/// With at most 640 KiB of parities, which fit the second-level cache of most servers.
const BLOCK_BYTES: usize = 64 << 10;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(60);
/// Minimum speed of P and Q on a core with AVX2.
const AIM_GB_PER_S: f64 = 10.0;

/// The speed of one way.
#[derive(Debug, Serialize)]
pub struct Line {
    what: String,
    /// GB (10^9 bytes) of members per second: the median of the rounds.
    gb_per_s: f64,
    /// The minimum, if there is one.
    aim_gb_per_s: Option<f64>,
}

/// Measures all ways with alternating rounds.
pub fn run() -> Vec<Line> {
    let mut ways = ways();
    let mut rounds: Vec<Vec<f64>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (way, rounds) in ways.iter_mut().zip(&mut rounds) {
            rounds.push(round(&mut way.code));
        }
    }
    let line = |(way, mut rounds): (Way, Vec<f64>)| {
        rounds.sort_by(f64::total_cmp);
        Line { what: way.what, gb_per_s: rounds[ROUNDS / 2], aim_gb_per_s: way.aim }
    };
    ways.into_iter().zip(rounds).map(line).collect()
}

/// The table.
pub fn text(lines: &[Line]) -> String {
    let size = BLOCK_BYTES >> 10;
    let mut out = format!("\nparities of {MEMBERS} members of {size} KiB, one core     GB/s\n");
    for line in lines {
        let verdict = match line.aim_gb_per_s {
            Some(aim) if line.gb_per_s >= aim => format!("  ≥ {aim:.0}  PASS"),
            Some(aim) => format!("  ≥ {aim:.0}  FAIL"),
            None => String::new(),
        };
        out += &format!("  {:44} {:>7.2}{verdict}\n", line.what, line.gb_per_s);
    }
    out
}

struct Way {
    what: String,
    aim: Option<f64>,
    code: Box<dyn FnMut()>,
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    let member = |i: usize| (0..BLOCK_BYTES).map(|at| (at * (i + 3)) as u8).collect();
    let members: Vec<Vec<u8>> = (0..MEMBERS).map(member).collect();
    let (from, mut to) = (members.clone(), vec![vec![0; BLOCK_BYTES]; MEMBERS]);
    let copy = move || {
        for (from, to) in from.iter().zip(&mut to) {
            black_box(to).copy_from_slice(black_box(from));
        }
    };
    ways.push(Way { what: "plain copy".into(), aim: None, code: Box::new(copy) });
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
        for (name, parities) in [("P", 1), ("P and Q", 2), ("8+3", 3), ("8+4, Cauchy", 4)] {
            let Ok(code) = Code::new(MEMBERS, parities) else { continue };
            let (members, mut out) = (members.clone(), vec![vec![0; BLOCK_BYTES]; parities]);
            let run = move || {
                let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
                let mut out: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                let done = code.encode_some(kernel, black_box(&members), 0, &mut out);
                black_box(done).expect("blocks of one length");
            };
            let aim = (parities == 2 && kernel != Kernel::Scalar).then_some(AIM_GB_PER_S);
            ways.push(Way { what: format!("{name}, {kernel:?}"), aim, code: Box::new(run) });
        }
    }
    if let Some(isal) = Isal::load() {
        let mut blocks: Vec<Aligned> = members.iter().map(|member| Aligned::of(member)).collect();
        blocks.extend((0..2).map(|_| Aligned::of(&members[0])));
        let run = move || isal.pq_gen(black_box(&mut blocks));
        ways.push(Way { what: "P and Q, ISA-L".into(), aim: None, code: Box::new(run) });
    }
    ways
}

/// GB/s over as many runs as the time allows.
fn round(code: &mut dyn FnMut()) -> f64 {
    code();
    let (begin, mut runs) = (Instant::now(), 0_u32);
    while begin.elapsed() < ROUND {
        code();
        runs += 1;
    }
    f64::from(runs) * (MEMBERS * BLOCK_BYTES) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

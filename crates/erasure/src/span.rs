//! Splits a computation on blocks of different lengths into ranges in which all lengths are equal,
//! as the kernels need them.

use crate::kernel::{Job, Kernel, MAX_OUTPUTS};

/// An output, and its factor for each source.
pub(crate) struct Output<'a> {
    pub(crate) factors: &'a [u8],
    pub(crate) bytes: &'a mut [u8],
}

/// Sets each output to the sum of its products, or adds the sum to it. A source counts as padded
/// with zeros; its bytes beyond the end of an output are ignored.
pub(crate) fn combine(kernel: Kernel, sources: &[&[u8]], outputs: Vec<Output<'_>>, add: bool) {
    let mut outputs = outputs;
    let longest = outputs.iter().map(|output| output.bytes.len()).max().unwrap_or(0);
    let mut ends: Vec<usize> = sources.iter().map(|source| source.len()).collect();
    ends.extend(outputs.iter().map(|output| output.bytes.len()));
    ends.retain(|&end| 0 < end && end <= longest);
    ends.sort_unstable();
    ends.dedup();
    let mut begin = 0;
    for end in ends {
        let present: Vec<usize> = (0..sources.len()).filter(|&i| sources[i].len() >= end).collect();
        let parts: Vec<&[u8]> = present.iter().map(|&i| &sources[i][begin..end]).collect();
        let mut open: Vec<Output<'_>> = Vec::with_capacity(outputs.len());
        for output in outputs.iter_mut().filter(|output| output.bytes.len() >= end) {
            open.push(Output { factors: output.factors, bytes: &mut output.bytes[begin..end] });
        }
        for group in open.chunks_mut(MAX_OUTPUTS) {
            match group {
                [a] => run(kernel, &present, &parts, [a], add),
                [a, b] => run(kernel, &present, &parts, [a, b], add),
                [a, b, c] => run(kernel, &present, &parts, [a, b, c], add),
                [a, b, c, d] => run(kernel, &present, &parts, [a, b, c, d], add),
                _ => unreachable!("chunks have 1 to MAX_OUTPUTS outputs"),
            }
        }
        begin = end;
    }
}

fn run<const N: usize>(
    kernel: Kernel,
    present: &[usize],
    parts: &[&[u8]],
    outputs: [&mut Output<'_>; N],
    add: bool,
) {
    let factors: Vec<[u8; N]> = present
        .iter()
        .map(|&source| std::array::from_fn(|output| outputs[output].factors[source]))
        .collect();
    let bytes = outputs.map(|output| &mut *output.bytes);
    kernel.run(Job::new(&factors, parts, bytes, add));
}

//! The checks.

use crate::{Random, Subject};

/// The result of a check: success, or what is wrong.
pub type Outcome = Result<(), String>;

/// Largest file of the model test, bytes.
const MAX_FILE: u64 = 3 << 20;
/// Largest single call of the model test, bytes.
const MAX_CALL: u64 = 700_000;

/// Checks everything that a file must do. `fresh` makes an empty file.
pub fn run_suite<S: Subject>(mut fresh: impl FnMut(&str) -> S, seed: u64) -> Outcome {
    for (name, check) in CHECKS {
        let file: &mut dyn Subject = &mut fresh(name);
        check(file).map_err(|e| format!("{name}: {e}"))?;
    }
    let mut file = fresh("model");
    run_model(&mut file, seed, 150)
}

type Check = fn(&mut dyn Subject) -> Outcome;

const CHECKS: &[(&str, Check)] = &[
    ("empty", empty),
    ("written bytes come back", round_trip),
    ("holes read as zeros", holes),
    ("records", records),
    ("truncate and extend", truncate_and_extend),
    ("overwrite", overwrite),
    ("unaligned ends", unaligned_ends),
    ("punch", punch),
    ("allocate", allocate),
    ("zero range", zero_range),
    ("data and holes", data_and_holes),
];

fn expect(file: &mut dyn Subject, offset: u64, len: usize, want: &[u8]) -> Outcome {
    let got = file.read(offset, len)?;
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(g, w)| g != w);
    Err(match at {
        Some(at) => format!(
            "read of {len} at {offset}: byte {} is {:#04x}, not {:#04x}",
            offset + at as u64,
            got[at],
            want[at]
        ),
        None => format!("read of {len} at {offset}: {} bytes, not {}", got.len(), want.len()),
    })
}

fn expect_size(file: &mut dyn Subject, want: u64) -> Outcome {
    let got = file.size()?;
    if got == want { Ok(()) } else { Err(format!("size is {got}, not {want}")) }
}

fn empty(file: &mut dyn Subject) -> Outcome {
    expect_size(file, 0)?;
    expect(file, 0, 100, b"")?;
    expect(file, 1 << 30, 100, b"")
}

fn round_trip(file: &mut dyn Subject) -> Outcome {
    let data = Random::new(1).bytes(1_500_001);
    file.write(0, &data)?;
    expect(file, 0, data.len() + 10, &data)?;
    expect_size(file, data.len() as u64)?;
    file.reopen()?;
    expect_size(file, data.len() as u64)?;
    for (offset, len) in [(0, 1), (4095, 2), (65_535, 70_000), (1_499_000, 5000)] {
        let end = (offset + len).min(data.len());
        expect(file, offset as u64, len, &data[offset..end])?;
    }
    Ok(())
}

fn holes(file: &mut dyn Subject) -> Outcome {
    file.write(1_000_000, b"end")?;
    expect_size(file, 1_000_003)?;
    expect(file, 0, 200_000, &vec![0; 200_000])?;
    expect(file, 999_990, 20, b"\0\0\0\0\0\0\0\0\0\0end")?;
    file.write(300_000, b"middle")?;
    file.reopen()?;
    expect(file, 299_998, 10, b"\0\0middle\0\0")?;
    expect(file, 999_998, 5, b"\0\0end")
}

fn records(file: &mut dyn Subject) -> Outcome {
    let data = Random::new(2).bytes(838 * 1000);
    for (i, record) in data.chunks(838).enumerate() {
        file.write(i as u64 * 838, record)?;
    }
    file.sync()?;
    for i in [0usize, 1, 4, 78, 79, 500, 999] {
        expect(file, i as u64 * 838, 838, &data[i * 838..(i + 1) * 838])?;
    }
    file.reopen()?;
    expect(file, 0, data.len(), &data)
}

fn truncate_and_extend(file: &mut dyn Subject) -> Outcome {
    let data = vec![0xaa; 400_000];
    file.write(0, &data)?;
    file.truncate(100_001)?;
    expect_size(file, 100_001)?;
    expect(file, 100_000, 10, &[0xaa])?;
    file.truncate(300_000)?;
    expect(file, 100_000, 6, &[0xaa, 0, 0, 0, 0, 0])?;
    expect(file, 200_000, 100_000, &vec![0; 100_000])?;
    file.truncate(0)?;
    expect_size(file, 0)?;
    file.write(5, b"x")?;
    expect(file, 0, 100, b"\0\0\0\0\0x")?;
    file.reopen()?;
    expect(file, 0, 100, b"\0\0\0\0\0x")
}

fn overwrite(file: &mut dyn Subject) -> Outcome {
    let mut model = vec![1u8; 500_000];
    file.write(0, &model)?;
    for (i, offset) in (0..490_000).step_by(9_973).enumerate() {
        let patch = vec![i as u8; 5000];
        model[offset..offset + 5000].copy_from_slice(&patch);
        file.write(offset as u64, &patch)?;
    }
    expect(file, 0, model.len(), &model)?;
    file.sync()?;
    file.reopen()?;
    expect(file, 0, model.len(), &model)
}

fn unaligned_ends(file: &mut dyn Subject) -> Outcome {
    let mut model = Vec::new();
    for len in [1usize, 4095, 1, 4096, 4097, 65_535, 1, 65_537, 3] {
        let data = vec![len as u8; len];
        file.write(model.len() as u64, &data)?;
        model.extend_from_slice(&data);
        expect_size(file, model.len() as u64)?;
    }
    expect(file, 0, model.len() + 1, &model)
}

fn punch(file: &mut dyn Subject) -> Outcome {
    let mut model = Random::new(3).bytes(900_001);
    file.write(0, &model)?;
    // Inside a block, across blocks, across columns and segments, beyond the
    // end, and where nothing was ever written.
    for (at, len) in [(10, 100), (4000, 5000), (70_000, 450_000), (899_000, 1 << 33), (1 << 20, 1)]
    {
        file.punch(at, len)?;
        let (from, to) = ((at as usize).min(900_001), (at + len).min(900_001) as usize);
        model[from..to.max(from)].fill(0);
        expect_size(file, 900_001)?;
        expect(file, 0, model.len() + 1, &model)?;
    }
    // Later writes are there, and no other bytes have come back.
    model[300_000..300_838].copy_from_slice(&[0x5a; 838]);
    file.write(300_000, &[0x5a; 838])?;
    expect(file, 0, model.len(), &model)?;
    file.sync()?;
    file.reopen()?;
    expect_size(file, 900_001)?;
    expect(file, 0, model.len(), &model)
}

fn allocate(file: &mut dyn Subject) -> Outcome {
    file.write(10_000, b"here")?;
    file.allocate(0, 300_000, true)?;
    expect_size(file, 10_004)?;
    expect(file, 9_998, 100, b"\0\0here")?;
    file.allocate(5_000, 400_000, false)?;
    expect_size(file, 405_000)?;
    let mut model = vec![0; 405_000];
    model[10_000..10_004].copy_from_slice(b"here");
    expect(file, 0, 500_000, &model)?;
    // Smaller than the file: nothing changes.
    file.allocate(0, 1, false)?;
    expect_size(file, 405_000)?;
    file.write(404_999, b"xy")?;
    model[404_999] = b'x';
    model.push(b'y');
    file.reopen()?;
    expect_size(file, 405_001)?;
    expect(file, 0, 500_000, &model)?;
    // Space that was preallocated beyond a truncation reads as zeros after an extension.
    file.truncate(100)?;
    file.allocate(50, 100_000, false)?;
    model.truncate(100);
    model.resize(100_050, 0);
    file.reopen()?;
    expect(file, 0, 200_000, &model)
}

fn zero_range(file: &mut dyn Subject) -> Outcome {
    let mut model = Random::new(4).bytes(200_000);
    file.write(0, &model)?;
    file.zero(50_001, 100_000, true)?;
    model[50_001..150_001].fill(0);
    expect(file, 0, 200_001, &model)?;
    file.zero(190_000, 20_000, true)?;
    expect_size(file, 200_000)?;
    file.zero(190_000, 20_000, false)?;
    model[190_000..].fill(0);
    model.resize(210_000, 0);
    expect_size(file, 210_000)?;
    file.reopen()?;
    expect(file, 0, 300_000, &model)
}

/// Nothing determines how much of a file's zeros is a hole, but nothing else may be one.
fn data_and_holes(file: &mut dyn Subject) -> Outcome {
    check_seek(file, &[])?;
    let mut model = vec![0; 1_600_000];
    for (at, len) in [(0, 100), (600_000, 65_536), (1_500_000, 100_000)] {
        let data = vec![0xdd; len];
        model[at..at + len].copy_from_slice(&data);
        file.write(at as u64, &data)?;
    }
    check_seek(file, &model)?;
    // A MiB of data with a hole in the middle.
    model[..1_400_000].fill(0xaa);
    let all = model.clone();
    file.write(0, &all[..1_400_000])?;
    file.punch(300_000, 800_000)?;
    model[300_000..1_100_000].fill(0);
    check_seek(file, &model)?;
    file.sync()?;
    file.reopen()?;
    check_seek(file, &model)?;
    let hole = file.next_hole(0)?.unwrap_or(0);
    // Blocks at its edges may stay.
    if !(300_000..310_000).contains(&hole) {
        return Err(format!("the first hole is at {hole}, not soon after 300000"));
    }
    let data = file.next_data(hole)?.unwrap_or(0);
    if !(hole + 4096..=1_100_000).contains(&data) {
        return Err(format!("after the hole at {hole} there is data at {data}"));
    }
    file.punch(0, 1 << 32)?;
    match file.next_data(0)? {
        None => Ok(()),
        Some(at) => Err(format!("data at {at} of a file that is one hole")),
    }
}

/// Queries data and holes at many offsets, and compares them with the file's bytes.
fn check_seek(file: &mut dyn Subject, model: &[u8]) -> Outcome {
    let len = model.len() as u64;
    for at in [len, len + 1, 1 << 40] {
        if (file.next_data(at)?, file.next_hole(at)?) != (None, None) {
            return Err(format!("data or a hole from {at} on, beyond the end at {len}"));
        }
    }
    for at in (0..len).step_by(33_333).chain([0, 4095, 4096].into_iter().filter(|at| *at < len)) {
        let data = file.next_data(at)?;
        let before = data.unwrap_or(len);
        let skipped = model.get(at as usize..before as usize);
        if !skipped.is_some_and(|bytes| bytes.iter().all(|&b| b == 0)) {
            return Err(format!("data from {at} on was said to begin at {data:?}"));
        }
        match file.next_hole(at)? {
            Some(hole) if hole == len => {}
            Some(hole) if (at..len).contains(&hole) && model[hole as usize] == 0 => {}
            other => return Err(format!("a hole from {at} on was said to begin at {other:?}")),
        }
    }
    Ok(())
}

/// Random operations on one file and on an array of bytes; both must agree
/// after each.
pub fn run_model(file: &mut dyn Subject, seed: u64, operations: usize) -> Outcome {
    let mut random = Random::new(seed);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..operations {
        one_step(file, &mut model, &mut random)
            .map_err(|e| format!("seed {seed}, step {step}: {e}"))?;
    }
    file.reopen()?;
    expect(file, 0, model.len() + 1, &model).map_err(|e| format!("seed {seed}, at the end: {e}"))
}

fn one_step(file: &mut dyn Subject, model: &mut Vec<u8>, random: &mut Random) -> Outcome {
    let len = match random.below(4) {
        0 => random.below(100) + 1,
        1 => random.below(10_000) + 1,
        2 => 4096 * (random.below(20) + 1),
        _ => random.below(MAX_CALL) + 1,
    };
    let offset = match random.below(3) {
        0 => model.len() as u64,
        1 => 4096 * random.below(MAX_FILE / 4096),
        _ => random.below(model.len() as u64 + 1),
    };
    match random.below(23) {
        20 => {
            let keep_size = random.below(2) == 0;
            if !keep_size && model.len() < (offset + len) as usize {
                model.resize((offset + len) as usize, 0);
            }
            file.allocate(offset, len, keep_size)
        }
        21..23 => {
            let from = (offset as usize).min(model.len());
            let to = (from + len as usize).min(model.len());
            if offset as usize <= model.len() {
                model[from..to].fill(0);
            }
            file.punch(offset, len)
        }
        0..9 => {
            let len = len.min(MAX_FILE.saturating_sub(offset)).max(1);
            let data = random.bytes(len as usize);
            let end = (offset + len) as usize;
            if model.len() < end {
                model.resize(end, 0);
            }
            model[offset as usize..end].copy_from_slice(&data);
            file.write(offset, &data)
        }
        9..16 => {
            let from = (offset as usize).min(model.len());
            let to = (from + len as usize).min(model.len());
            let want = if offset as usize >= model.len() { &[] } else { &model[from..to] };
            expect(file, offset, len as usize, want)
        }
        16 => {
            let to = random.below(MAX_FILE);
            model.resize(to as usize, 0);
            file.truncate(to)
        }
        17 => file.sync(),
        18 => expect_size(file, model.len() as u64),
        _ => {
            file.reopen()?;
            expect_size(file, model.len() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PosixFile;

    #[test]
    fn a_plain_file_passes() {
        let dir = std::env::temp_dir().join(format!("weir-conformance-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fresh = |name: &str| PosixFile::create(dir.join(name.replace(' ', "-"))).unwrap();
        run_suite(fresh, Random::seed_of_run()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

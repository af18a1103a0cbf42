//! The checks.

use crate::{Random, Subject};

/// What a check found: nothing, or what is wrong.
pub type Outcome = Result<(), String>;

/// Largest file of the model test, bytes.
const MAX_FILE: u64 = 3 << 20;
/// Largest single call of the model test, bytes.
const MAX_CALL: u64 = 700_000;

/// Everything a file must do. `fresh` makes an empty file.
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
    match random.below(20) {
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

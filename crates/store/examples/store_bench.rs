//! The cost of the object store: CPU s/GB of reading and rewriting a cached object in pieces of 256
//! KiB through one warm buffer, compared with plain `pread` and `pwrite` of a file of the same
//! size. Both alternate in one run. Also the cost of making small objects.
//!
//! `store_bench [directory] [MiB] [rounds]`

#![allow(clippy::disallowed_methods, reason = "it compares with plain files")]

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use weir_store::{ReadMode, Target, TargetIdentity};
use weir_types::checksum::crc32c;
use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};
use weir_types::{Generation, ObjectId, ServerId, TargetId};

const PIECE: usize = 256 << 10;

type Outcome = Result<(), Box<dyn Error>>;

/// CPU time and wall time of `work` over `bytes`, in s/GB.
fn measure(bytes: u64, mut work: impl FnMut() -> Outcome) -> Result<(f64, f64), Box<dyn Error>> {
    let now = |clock| {
        let t = clock_gettime(clock);
        t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
    };
    let (cpu, wall) = (now(ClockId::ProcessCPUTime), now(ClockId::Monotonic));
    work()?;
    let gb = bytes as f64 / 1e9;
    Ok(((now(ClockId::ProcessCPUTime) - cpu) / gb, (now(ClockId::Monotonic) - wall) / gb))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn crc_speed() -> Result<f64, Box<dyn Error>> {
    let block = vec![0x5a; 4096];
    let count = 200_000;
    let (cpu, _) = measure(count * 4096, || {
        for _ in 0..count {
            black_box(crc32c(black_box(&block)));
        }
        Ok(())
    })?;
    Ok(1.0 / cpu)
}

fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    let base = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mib: u64 = args.next().map_or(Ok(512), |s| s.parse())?;
    let rounds: usize = args.next().map_or(Ok(7), |s| s.parse())?;
    let dir = base.join(format!("weir-store-bench-{}", std::process::id()));
    let result = bench(&dir, mib << 20, rounds);
    std::fs::remove_dir_all(&dir)?;
    result
}

/// Makes objects of one block each, as small files are.
fn create_small_objects(target: &Target) -> Outcome {
    const COUNT: u64 = 20_000;
    let (data, sums) = ([0x5a; 4096], [crc32c(&[0x5a; 4096])]);
    // The "bytes" are objects here, so that s/GB means ns per object.
    let (cpu, wall) = measure(COUNT, || {
        for file in 0..COUNT {
            let id = object_id(1_000_000 + file);
            let object = target.object_or_create(id)?;
            object.write_pieces(&[(0, 4096)], &data, &sums, Generation(0))?;
        }
        Ok(())
    })?;
    println!("new object of 4 KiB: {:.1} us CPU, {:.0} a second", cpu / 1e3, 1e9 / wall);
    Ok(())
}

fn object_id(file: u64) -> ObjectId {
    ObjectId {
        file: FileId(file),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    }
}

fn bench(dir: &std::path::Path, bytes: u64, rounds: usize) -> Outcome {
    let identity = TargetIdentity { cluster: [0; 16], target: TargetId(1), server: ServerId(1) };
    Target::create(dir, identity)?;
    let target = Target::open(dir)?;
    create_small_objects(&target)?;
    let object = target.object_or_create(object_id(1))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let plain = rustix::fs::open(dir.join("plain"), flags, Mode::from(0o600))?;

    let data: Vec<u8> =
        (0..PIECE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sums: Vec<u32> = data.chunks(4096).map(crc32c).collect();
    let mut buf = vec![0u8; PIECE];
    let mut checks = Vec::new();
    let offsets = || (0..bytes / PIECE as u64).map(|i| i * PIECE as u64);

    let names = ["pread", "store read", "pwrite", "store rewrite"];
    let mut cpu = names.map(|_| Vec::new());
    let mut wall = names.map(|_| Vec::new());
    // The first round makes the files and warms the caches; it does not count.
    for round in 0..=rounds {
        let mut note = |i: usize, (c, w): (f64, f64)| {
            if round > 0 {
                cpu[i].push(c);
                wall[i].push(w);
            }
        };
        note(
            2,
            measure(bytes, || {
                for at in offsets() {
                    assert_eq!(rustix::io::pwrite(&plain, &data, at)?, PIECE);
                }
                Ok(())
            })?,
        );
        note(
            3,
            measure(bytes, || {
                for at in offsets() {
                    object.write_pieces(&[(at, PIECE as u64)], &data, &sums, Generation(0))?;
                }
                Ok(())
            })?,
        );
        note(
            0,
            measure(bytes, || {
                for at in offsets() {
                    assert_eq!(rustix::io::pread(&plain, &mut buf, at)?, PIECE);
                }
                Ok(())
            })?,
        );
        note(
            1,
            measure(bytes, || {
                for at in offsets() {
                    checks.clear();
                    object.read_pieces(
                        &[(at, PIECE as u64)],
                        &mut buf,
                        &mut checks,
                        ReadMode::Nowait,
                    )?;
                    assert_eq!(checks, sums);
                }
                Ok(())
            })?,
        );
    }
    println!("crc32c of 4 KiB blocks: {:.1} GB/s", crc_speed()?);
    let mut limit = 0.0;
    for (i, name) in names.iter().enumerate() {
        let (cpu, wall) = (median(&mut cpu[i]), median(&mut wall[i]));
        if i % 2 == 0 {
            limit = cpu;
        }
        println!("{name:14} {cpu:.4} CPU s/GB ({:.2}x plain), {:.2} GB/s", cpu / limit, 1.0 / wall);
    }
    Ok(())
}

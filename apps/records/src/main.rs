//! `weir-records`: makes files of fixed 838-byte records (the data set of paper 0) with checksums,
//! verifies them, and reads them as the paper does.

use clap::{Parser, Subcommand};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_records::end::end;
use weir_records::record::{self, FileSpec, RECORD_BYTES};
use weir_records::size::parse_size;
use weir_records::workload::{self, Read, Reader};

/// Make, read and verify files of fixed 838-byte records
#[derive(Parser)]
#[command(name = "weir-records", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a file of records
    Generate {
        /// The file to write; it is replaced if it exists
        file: PathBuf,
        /// Its size, as in 1GiB, 838000, 30GB; rounded down to whole records
        #[arg(long, value_parser = parse_size, default_value = "1GiB")]
        size: u64,
        /// Decides the contents: equal seeds and sizes give equal files
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Check every record of a file: its checksum, its place, its contents
    Verify {
        /// The file to check
        file: PathBuf,
    },
    /// Read a file of records with several readers at once, and print their speed
    #[command(after_help = "Examples:\n  \
        weir-records read /mnt/weir/records --readers 7 --records 150\n  \
        weir-records read /mnt/weir/records --workload random --chunks 1000 --via 'ssh a' --via 'ssh b'")]
    Read(Read),
    /// One of the readers, controlled through standard input and output
    Reader(Reader),
}

/// Records read or written by one call: about 1 MiB.
const RECORDS_PER_CALL: usize = 1250;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Generate { file, size, seed } => generate(&file, size, seed),
        Command::Verify { file } => verify(&file),
        Command::Read(asked) => workload::read(&asked),
        Command::Reader(asked) => workload::serve(&asked),
    };
    end("weir-records", done.map(|message| message + "\n"))
}

fn generate(path: &Path, size_bytes: u64, seed: u64) -> Result<String, String> {
    let fail = |e: io::Error| format!("{}: {e}", path.display());
    let spec = FileSpec { records: size_bytes / RECORD_BYTES as u64, seed };
    let mut file = File::create(path).map_err(fail)?;
    let mut buffer = Vec::with_capacity(RECORDS_PER_CALL * RECORD_BYTES);
    let mut one = [0; RECORD_BYTES];
    let mut next = 0;
    while next < spec.records {
        buffer.clear();
        let end = spec.records.min(next + RECORDS_PER_CALL as u64);
        for number in next..end {
            record::write(spec, number, &mut one);
            buffer.extend_from_slice(&one);
        }
        file.write_all(&buffer).map_err(fail)?;
        next = end;
    }
    file.sync_all().map_err(fail)?;
    Ok(format!(
        "{}: {} records of {RECORD_BYTES} bytes, {} bytes, seed {seed}",
        path.display(),
        spec.records,
        spec.records * RECORD_BYTES as u64
    ))
}

fn verify(path: &Path) -> Result<String, String> {
    let fail = |e: io::Error| format!("{}: {e}", path.display());
    let mut file = File::open(path).map_err(fail)?;
    let mut buffer = vec![0; RECORDS_PER_CALL * RECORD_BYTES];
    let mut spec: Option<FileSpec> = None;
    let mut number = 0u64;
    loop {
        let filled = fill(&mut file, &mut buffer).map_err(fail)?;
        let (records, rest) = buffer[..filled].as_chunks::<RECORD_BYTES>();
        for bytes in records {
            let at = |fault| format!("{}: record {number} {fault}", path.display());
            let spec = match spec {
                Some(spec) => spec,
                // The first record determines the properties of the others.
                None => spec.insert(record::read(bytes).map_err(at)?.1).to_owned(),
            };
            record::check(spec, number, bytes).map_err(at)?;
            number += 1;
        }
        if !rest.is_empty() {
            return Err(format!("{}: ends in the middle of record {number}", path.display()));
        }
        if filled < buffer.len() {
            break;
        }
    }
    let expected = spec.map_or(0, |s| s.records);
    if number != expected {
        return Err(format!("{}: {number} records, not {expected}", path.display()));
    }
    Ok(format!("{}: {number} records verified", path.display()))
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

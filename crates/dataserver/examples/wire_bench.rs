//! What the data path costs: four data server processes, a client of one
//! thread, and beside them in the same run four raw `pread` + `send` loops.
//! Prints GB/s and CPU seconds per GB of all processes together.
//!
//! ```text
//! cargo run --release -p weir-dataserver --example wire_bench -- [dir] [unix] [ahead=N] [passes=N] [mib=N] [only=WHAT]
//! ```
//!
//! `dir` (default: the temporary directory) should not be a tmpfs, which knows
//! no `RWF_NOWAIT`. The files are warm in the page cache.

// Asks the operating system for what it wants.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bench {
    pub mod cluster;
    pub mod raw;
    pub mod wire;
}

use bench::cluster::{Options, Processes, SERVERS, STRIPE_BYTES};
use bench::{raw, wire};
use std::time::Instant;

/// One measurement.
struct Sample {
    seconds: f64,
    cpu: f64,
    client_cpu: f64,
}

fn measure(servers: &Processes, work: impl FnOnce()) -> Sample {
    let (own, others, start) = (own_cpu(), servers.cpu_seconds(), Instant::now());
    work();
    let seconds = start.elapsed().as_secs_f64();
    let client_cpu = own_cpu() - own;
    Sample { seconds, cpu: client_cpu + servers.cpu_seconds() - others, client_cpu }
}

fn own_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn report_stream(name: &str, bytes: u64, samples: &mut [Sample]) {
    samples.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let median = &samples[samples.len() / 2];
    let gb = bytes as f64 * 1e-9;
    println!(
        "{name:34} {:5.2} GB/s  {:.3} CPU s/GB (client {:.3}, servers {:.3})",
        gb / median.seconds,
        median.cpu / gb,
        median.client_cpu / gb,
        (median.cpu - median.client_cpu) / gb,
    );
}

fn report_random(name: &str, reads: u64, sample: &Sample) {
    println!(
        "{name:34} {:6.0} /s    {:.1} CPU us (client {:.1}, servers {:.1})",
        reads as f64 / sample.seconds,
        sample.cpu / reads as f64 * 1e6,
        sample.client_cpu / reads as f64 * 1e6,
        (sample.cpu - sample.client_cpu) / reads as f64 * 1e6,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => return bench::cluster::serve(&args[2..]),
        Some("raw") => return raw::serve(&args[2..]),
        _ => {}
    }
    let options = Options::parse(&args[1..]);
    let dir = options.scratch_dir();
    println!(
        "{} servers, {} MiB, stripes of {} KiB, {} ahead, {} passes, {}",
        SERVERS,
        options.mib,
        STRIPE_BYTES >> 10,
        options.ahead,
        options.passes,
        if options.unix { "Unix sockets" } else { "TCP" },
    );
    let bytes = options.mib << 20;

    let servers = Processes::start_data_servers(&dir, &options);
    let mut client = wire::Client::connect(&servers, &options);
    client.write_all(bytes);
    let raw_servers = Processes::start_raw(&dir, bytes / SERVERS as u64);
    let mut raw_client = raw::Client::connect(&raw_servers);

    if options.wants("read") {
        streams(&mut client, &servers, &mut raw_client, &raw_servers, &options);
    }
    if options.wants("write") {
        for (name, sync) in [("rewrite, weir", false), ("rewrite + sync, weir", true)] {
            let rewrite = |_| measure(&servers, || client.rewrite(bytes, sync));
            let mut samples: Vec<_> = (0..options.passes).map(rewrite).collect();
            report_stream(name, bytes, &mut samples);
        }
    }
    if options.wants("random") {
        random_reads(&servers, &raw_servers, &options);
    }
    println!("reads that were not in the page cache: {}", client.disk_reads());
    drop((client, raw_client, servers, raw_servers));
    std::fs::remove_dir_all(&dir).ok();
}

fn streams(
    client: &mut wire::Client,
    servers: &Processes,
    raw_client: &mut raw::Client,
    raw_servers: &Processes,
    options: &Options,
) {
    let (bytes, ahead) = (options.mib << 20, options.ahead);
    for verify in [true, false] {
        let (mut of_weir, mut of_raw) = (Vec::new(), Vec::new());
        // The first pass warms up.
        for pass in 0..=options.passes {
            let weir = measure(servers, || client.read_all(bytes, verify, ahead));
            let raw = measure(raw_servers, || raw_client.read_all(bytes, verify, ahead));
            if pass > 0 {
                of_weir.push(weir);
                of_raw.push(raw);
            }
        }
        let how = if verify { "with checksums" } else { "without checksums" };
        report_stream(&format!("read, weir, {how}"), bytes, &mut of_weir);
        report_stream(&format!("read, raw pread+send, {how}"), bytes, &mut of_raw);
    }
}

fn random_reads(servers: &Processes, raw_servers: &Processes, options: &Options) {
    let (bytes, reads) = (options.mib << 20, 40_000);
    for jobs in [1, 4] {
        let mut clients: Vec<_> =
            (0..jobs).map(|_| wire::Client::connect(servers, options)).collect();
        let sample = measure(servers, || wire::random(&mut clients, bytes, reads));
        report_random(&format!("random 4 KiB, {jobs} jobs, weir"), reads, &sample);
        let mut clients: Vec<_> = (0..jobs).map(|_| raw::Client::connect(raw_servers)).collect();
        let sample = measure(raw_servers, || raw::random(&mut clients, bytes, reads));
        report_random(&format!("random 4 KiB, {jobs} jobs, raw"), reads, &sample);
    }
}

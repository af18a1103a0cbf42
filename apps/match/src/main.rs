//! `weir-match`: links records to customers, and makes profiles of customers and households
//! (`docs/applications.md`). These are the loading and matching for which paper 0 needs a file
//! system.
//!
//! ```text
//! link       readers look up the records of one file in the other;  index: finds them by key
//!   └─ profiles   of customers and of households
//! oracle     the same result by comparing every pair
//! likeness   keys and similarity: no I/O;  fields: the layout of a record
//! people     generated customers, and records of them with errors
//! ```

mod fields;
mod index;
mod likeness;
mod link;
mod oracle;
mod people;
mod profiles;

use clap::{Args, Parser, Subcommand};
use index::{Index, MAX_RECORDS, RECORDS_PER_CALL, records_of};
use link::{Linked, Matching};
use people::Spec;
use serde_json::json;
use sio::safe::{self, File};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;
use weir_records::end::end;
use weir_records::progress::Progress;
use weir_records::record::RECORD_BYTES;
use weir_records::size::megabytes_per_second;

/// Link records to customers, and make profiles of customers and households
///
/// Files are those of the SIO interface: `plain:DIRECTORY` or `weir:CLUSTER` (docs/sio.md).
#[derive(Parser)]
#[command(name = "weir-match", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write made-up customers, and records of them with errors
    Generate(Generate),
    /// Look each record up among the customers, and make profiles
    Run(Run),
}

/// Where the files are.
#[derive(Args)]
struct Place {
    /// Where the files are: plain:DIRECTORY or weir:CLUSTER [default: plain files, here]
    #[arg(long, env = "SIO_FILES", value_name = "FILES")]
    files: Option<String>,
}

impl Place {
    fn attach(&self, names: &[&str]) -> Result<(), String> {
        let are_absolute = names.iter().all(|name| name.starts_with('/'));
        let files = match &self.files {
            Some(files) => files,
            None if are_absolute => "plain:/",
            None if names.iter().any(|name| name.starts_with('/')) => {
                return Err("some names begin with / and some do not: say --files".into());
            }
            None => "plain:.",
        };
        safe::attach(files).map_err(told)
    }
}

#[derive(Args)]
struct Generate {
    /// The file of customers to write
    customers: String,
    /// The file of records to write
    records: String,
    #[command(flatten)]
    place: Place,
    /// Customers
    #[arg(long, default_value_t = 10_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=MAX_RECORDS))]
    count: u64,
    /// Records [default: as many as customers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=MAX_RECORDS))]
    record_count: Option<u64>,
    /// Decides the contents: equal arguments give equal files
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Run {
    /// The file of records, read from front to back
    records: String,
    /// The file of customers, read wherever a record may be meant
    customers: String,
    #[command(flatten)]
    place: Place,
    /// Readers, each of an equal part of the records
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=256))]
    readers: u64,
    /// Give the hint that customers are read at random, and request those for 350 records with one
    /// list
    #[arg(long)]
    hinted: bool,
    /// Write NAME.links, NAME.customers and NAME.households, as CSV
    #[arg(long, value_name = "NAME")]
    out: Option<String>,
    /// Compare with the result of comparing every record with every customer
    #[arg(long)]
    verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Generate(asked) => generate(&asked),
        Command::Run(asked) => run(&asked),
    };
    end("weir-match", done)
}

fn told(error: safe::Error) -> String {
    error.text
}

fn generate(asked: &Generate) -> Result<String, String> {
    asked.place.attach(&[&asked.customers, &asked.records])?;
    let spec = Spec { customers: asked.count, seed: asked.seed };
    let records = asked.record_count.unwrap_or(asked.count);
    let mut progress = Progress::default();
    let mut said = String::new();
    type Make = fn(Spec, u64) -> [u8; RECORD_BYTES];
    let both: [(&str, u64, Make); 2] = [
        (&asked.customers, asked.count, people::customer),
        (&asked.records, records, people::record),
    ];
    for (name, count, make) in both {
        progress.name(format!("writing {name}"));
        let file = File::create(name).map_err(told)?;
        let mut call = Vec::new();
        for first in (0..count).step_by(RECORDS_PER_CALL as usize) {
            call.clear();
            let end = count.min(first + RECORDS_PER_CALL);
            (first..end).for_each(|number| call.extend_from_slice(&make(spec, number)));
            file.write_at(first * RECORD_BYTES as u64, &call).map_err(told)?;
            progress.at(end, count);
        }
        file.sync().map_err(told)?;
        file.close().map_err(told)?;
        let bytes = count * RECORD_BYTES as u64;
        // Writing to a String cannot fail.
        let _ = writeln!(said, "{name}: {count} records of {RECORD_BYTES} bytes, {bytes} bytes");
    }
    progress.end();
    Ok(said)
}

fn run(asked: &Run) -> Result<String, String> {
    let names = [Some(&asked.records), Some(&asked.customers), asked.out.as_ref()];
    let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    asked.place.attach(&names)?;
    let count = |name: &str| File::open(name).map_err(told).and_then(|f| records_of(&f, name));
    let (records, customers) = (count(&asked.records)?, count(&asked.customers)?);
    let mut progress = Progress::default();
    progress.name("reading customers".into());
    let begin = Instant::now();
    let second = File::open(&asked.customers).map_err(told)?;
    let index = Index::of(&second, &asked.customers, customers, |n| progress.at(n, customers))?;
    let load_s = begin.elapsed().as_secs_f64();
    progress.name("matching".into());
    let begin = Instant::now();
    let matching = Matching {
        first: &asked.records,
        first_records: records,
        second: &asked.customers,
        index: &index,
        is_hinted: asked.hinted,
    };
    let linked = matching.link(asked.readers, |n| progress.at(n, records))?;
    let match_s = begin.elapsed().as_secs_f64();
    progress.end();
    if asked.verify {
        let first = (&*asked.records, records);
        let (links, profiles) = oracle::link(first, (&asked.customers, customers))?;
        let same = links == linked.links
            && profiles.customers() == linked.profiles.customers()
            && profiles.households() == linked.profiles.households();
        if !same {
            return Err("comparing all with all finds something else: this is a bug".into());
        }
    }
    if let Some(name) = &asked.out {
        write_files(name, &linked)?;
    }
    Ok(report(asked, (customers, load_s), (records, match_s), &linked))
}

fn write_files(name: &str, linked: &Linked) -> Result<(), String> {
    let mut links = "record,customer,score\n".to_owned();
    for (record, link) in linked.links.iter().enumerate() {
        let customer = link.customer.map(|n| n.to_string()).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(links, "{record},{customer},{}", link.score);
    }
    let customers = profiles::customers_csv(&linked.profiles);
    let households = profiles::households_csv(&linked.profiles);
    for (kind, text) in [("links", links), ("customers", customers), ("households", households)] {
        let file = File::create(&format!("{name}.{kind}")).map_err(told)?;
        for (n, part) in text.as_bytes().chunks(1 << 20).enumerate() {
            file.write_at((n as u64) << 20, part).map_err(told)?;
        }
        file.sync().map_err(told)?;
        file.close().map_err(told)?;
    }
    Ok(())
}

fn report(
    asked: &Run,
    (customers, load_s): (u64, f64),
    (records, match_s): (u64, f64),
    linked: &Linked,
) -> String {
    let found = linked.links.iter().filter(|link| link.customer.is_some()).count();
    let (people, households) = (linked.profiles.customers(), linked.profiles.households());
    let bytes = (records + linked.looked_up) * RECORD_BYTES as u64;
    let rate = megabytes_per_second(bytes, match_s);
    if asked.json {
        let report = json!({
            "customers": customers,
            "records": records,
            "readers": asked.readers,
            "hinted": asked.hinted,
            "load_seconds": load_s,
            "match_seconds": match_s,
            "match_bytes": bytes,
            "looked_up": linked.looked_up,
            "calls": linked.calls,
            "linked": found,
            "right": linked.right,
            "told": linked.told,
            "profiles": people.len(),
            "households": households.len(),
            "verified": asked.verify,
        });
        return format!("{report:#}\n");
    }
    let mut text = format!(
        "load      {customers} customers in {load_s:.2} s, {:.1} MB/s\n\
         match     {records} records in {match_s:.2} s, {rate:.1} MB/s: {} customers looked up by {} calls\n\
         linked    {found} records; {} of the {} whose customer is known are right\n\
         profiles  {} customers in {} households\n",
        megabytes_per_second(customers * RECORD_BYTES as u64, load_s),
        linked.looked_up,
        linked.calls,
        linked.right,
        linked.told,
        people.len(),
        households.len()
    );
    if asked.verify {
        text += "verified: comparing every record with every customer finds the same\n";
    }
    text
}

//! Files made by many clients at the same time through the library, with one metadata server and with
//! several, and what one commit of etcd takes on the same machine (`weir-bench creates`).

use crate::accounting::Accounting;
use crate::args::Creates;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::library::Library;
use crate::stop;
use serde::Serialize;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weir_client::CreateOptions;
use weir_etcd::EtcdJournal;
use weir_metastore::{Journal, Sequence};
use weir_types::FileId;

const TARGETS: usize = 2;
/// Commits of etcd that are timed before and after each round.
const PUTS: u64 = 200;
/// Where they go: no cluster has this id.
const NOBODY: [u8; 16] = [0xbe; 16];

/// The result of one round.
#[derive(Debug, Serialize)]
struct Round {
    metadata_servers: u32,
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// One commit of etcd at a time, while nothing else happens; `None` without etcd.
    etcd_p50_us: Option<f64>,
}

/// Measures all numbers of metadata servers, and prints a table.
pub fn run(arguments: &Creates, weir: &Path, dir: &Path) -> Done {
    let mut rounds = Vec::new();
    for &metas in &arguments.metas {
        let place = tempfile::Builder::new()
            .prefix("weir-bench-")
            .tempdir_in(dir)
            .map_err(|e| Failure::file(dir, e))?;
        let mut accounting = Accounting::new();
        let of = (TARGETS, metas);
        let cluster = Cluster::start_with_metas(weir, place.path(), of, &mut accounting)?;
        rounds.extend(of_cluster(arguments, &cluster, metas)?);
    }
    print!("{}", text(&rounds));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "clients": arguments.clients, "creates": rounds });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

fn of_cluster(arguments: &Creates, cluster: &Cluster, metas: u32) -> Done<Vec<Round>> {
    let etcd = etcd_of(cluster)?;
    let clients = (0..arguments.clients)
        .map(|_| Library::connect_without_cache(&cluster.credential()))
        .collect::<Done<Vec<_>>>()?;
    let mut rounds = Vec::new();
    // The first round is a warm-up.
    for number in 0..=arguments.rounds {
        stop::check()?;
        let mut puts = commits(etcd.as_ref())?;
        let begun = Instant::now();
        let mut times = round(&clients, number, arguments.files)?;
        let took = begun.elapsed();
        puts.extend(commits(etcd.as_ref())?);
        if number > 0 {
            let per_s = times.len() as f64 / took.as_secs_f64();
            let [p50_us, p99_us] = [0.5, 0.99].map(|share| quantile(&mut times, share));
            let etcd_p50_us = (!puts.is_empty()).then(|| quantile(&mut puts, 0.5));
            rounds.push(Round { metadata_servers: metas, per_s, p50_us, p99_us, etcd_p50_us });
        }
    }
    Ok(rounds)
}

/// The journal of a cluster, to time commits on; `None` if it has no etcd.
fn etcd_of(cluster: &Cluster) -> Done<Option<EtcdJournal>> {
    let config = cluster.configuration("meta")?;
    let Some(etcd) = config.get("journal").and_then(|journal| journal.get("etcd")) else {
        return Ok(None);
    };
    let members = etcd.as_array().into_iter().flatten();
    let members: Vec<String> = members.filter_map(|it| it.as_str().map(str::to_owned)).collect();
    Ok(Some(EtcdJournal::new(&members, NOBODY)?))
}

/// The times of commits of etcd, one after the other.
fn commits(etcd: Option<&EtcdJournal>) -> Done<Vec<Duration>> {
    let Some(etcd) = etcd else { return Ok(Vec::new()) };
    let put = |number| {
        let begun = Instant::now();
        // One key with a small value.
        etcd.report("bench", Sequence(number))?;
        Ok(begun.elapsed())
    };
    (0..PUTS).map(put).collect()
}

/// All clients make their files. Returns the time of each.
fn round(clients: &[Library], number: u32, files: u32) -> Done<Vec<Duration>> {
    let all_ready = Barrier::new(clients.len());
    let one = &|(at, library): (usize, &Library)| -> Done<Vec<Duration>> {
        let (client, context) = library.session();
        let name = format!("{number}-{at}");
        let made = client.mkdir(context, FileId::ROOT, name.as_bytes(), 0o755);
        all_ready.wait();
        let dir = made?.file;
        let make = |n: u32| {
            let begun = Instant::now();
            let options = CreateOptions::default();
            client.create(context, dir, format!("f{n}").as_bytes(), &options)?;
            Ok(begun.elapsed())
        };
        (0..files).map(make).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter().enumerate().map(|it| scope.spawn(move || one(it))).collect();
        let mut times = Vec::new();
        for thread in threads {
            let done = thread.join().map_err(|_| Failure::other("a client has panicked"))?;
            times.extend(done?);
        }
        Ok(times)
    })
}

fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn text(rounds: &[Round]) -> String {
    let mut out = format!(
        "\n{:>17} {:>10} {:>9} {:>9} {:>14} {:>9}\n",
        "metadata servers", "creates/s", "p50, ms", "p99, ms", "etcd p50, ms", "p50/etcd"
    );
    for round in rounds {
        let etcd = round.etcd_p50_us;
        let shown = etcd.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / 1000.0));
        let times = etcd.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", round.p50_us / us));
        out += &format!(
            "{:>17} {:>10.0} {:>9.2} {:>9.2} {shown:>14} {times:>9}\n",
            round.metadata_servers,
            round.per_s,
            round.p50_us / 1000.0,
            round.p99_us / 1000.0,
        );
    }
    out
}

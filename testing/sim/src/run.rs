//! One run: a plan is carried out, everything heals and is inspected, and the oracles judge.

use crate::cluster::Cluster;
use crate::copies;
use crate::generate;
use crate::history::{History, Outcome, What};
use crate::losses;
use crate::nemesis::{Nemesis, RECOVERY, is_done, usual_latency};
use crate::oracle::data::{ClientFacts, FileFacts};
use crate::oracle::errors::GRACE;
use crate::oracle::losses::Losses;
use crate::oracle::names::NamesFacts;
use crate::oracle::{Violation, available, data, errors, names, published, stats};
use crate::plan::{ClientPlan, Fault, NodeName, Op, Place, Plan};
use crate::shared::Shared;
use crate::worker::{FIRST_OWN_NAME, Worker};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use weir_client::ClientConfig;
use weir_simhost::{Exit, Options, Trace};
use weir_types::FileKind;

/// Maximum time after the last fault until the clients have finished their calls.
const FINISH: Duration = Duration::from_secs(120);
/// Changes that were acknowledged this long before a power cut of the metadata server survive it:
/// one second, and the time of a sync.
const SETTLE: Duration = Duration::from_millis(2_000);

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Hash of the trace; equal for equal runs.
    pub trace_hash: u64,
    /// Elapsed virtual time.
    pub simulated: Duration,
    /// CPU time.
    pub cpu: Duration,
    /// Number of calls of clients.
    pub calls: u64,
    /// Number of faults.
    pub faults: u64,
    /// Violations found.
    pub violations: Vec<Violation>,
    /// Number of judgements given up because there were too many possible orders.
    pub undecided: u64,
}

/// Carries out a plan. Killed simulated processes do not free their memory, so a process should end
/// after some dozens of runs.
pub fn run(plan: &Plan) -> Report {
    run_with(plan, false).0
}

/// As [`run`], but returns the whole history; `print` prints it as it happens.
pub fn run_with(plan: &Plan, print: bool) -> (Report, History) {
    let begun = cpu_time();
    let shared = Rc::new(Shared::new(plan.clone()));
    let trace = if print { Trace::Print } else { Trace::Off };
    let mut cluster = Cluster::new(shared.clone(), Options { trace, ..Options::default() });
    let mut violations = match cluster.set_up() {
        Ok(()) => {
            let mut violations = carry_out(&mut cluster);
            violations.extend(shared.trouble.borrow_mut().take().map(plain));
            violations
        }
        Err(what) => vec![plain(format!("the cluster could not be made: {what}"))],
    };
    for panic in cluster.sim.panics() {
        let at = panic.time.as_secs_f64();
        violations
            .push(plain(format!("{} panicked at {at:.4} s: {}", panic.thread, panic.message)));
    }
    let files: Vec<FileFacts> = (0..shared.made.borrow().files.len())
        .map(|file| FileFacts {
            cells: plan.cells(file as u8),
            nodes_of_cells: cluster.nodes_of_cells(file),
            nodes_of_columns: match plan.moves() {
                true => places_of_copies(plan, file),
                false => cluster.nodes_of_columns(file),
            },
            log: file >= usize::from(plan.first_log()),
            early: plan.shape.copies_of(file) > 1 && plan.shape.protocol_of(file).is_early(),
        })
        .collect();
    let mut report = Report {
        trace_hash: cluster.sim.trace_hash(),
        simulated: cluster.sim.now(),
        faults: plan.faults.len() as u64,
        violations,
        ..Report::default()
    };
    let directories = shared.made.borrow().directories.clone();
    drop(cluster);
    let history = shared.take_history();
    judge(plan, &history, &files, directories, &mut report);
    report.cpu = cpu_time().saturating_sub(begun);
    (report, history)
}

/// The possible places of a column's copies if copies move. A copy is removed only after another
/// one exists, so there are always at least as many as required, on different servers. With several
/// targets per server, two may be on one server.
fn places_of_copies(plan: &Plan, file: usize) -> BTreeSet<Vec<u8>> {
    let shape = &plan.shape;
    let ordered = plan.faults.iter().filter_map(|planned| match planned.fault {
        Fault::Copies { file: of, copies } if usize::from(of) == file => Some(copies),
        _ => None,
    });
    let copies = ordered.chain([shape.copies_of(file)]).min().unwrap_or(1);
    let copies = if shape.targets_each > 1 { 1 } else { copies };
    let of_some =
        (0u32..1 << shape.all_servers()).filter(|set| set.count_ones() == u32::from(copies));
    let servers = |set: u32| (0..shape.all_servers()).filter(|n| set & 1 << n != 0).collect();
    of_some.map(servers).collect()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn plain(what: String) -> Violation {
    Violation { what, evidence: String::new() }
}

fn judge(
    plan: &Plan,
    history: &History,
    files: &[FileFacts],
    directories: Vec<u64>,
    report: &mut Report,
) {
    let begins = |e: &&crate::history::Entry| matches!(e.what, What::Begin { .. });
    report.calls = history.entries.iter().filter(begins).count() as u64;
    let leases = plan.shape.leases;
    let facts = |c: &ClientPlan| ClientFacts {
        write_behind: c.write_behind,
        leases,
        keeps_pages: c.keeps_pages,
    };
    let mut clients: Vec<ClientFacts> = plan.clients.iter().map(facts).collect();
    clients.push(ClientFacts { write_behind: false, leases, keeps_pages: false });
    let bytes = data::judge(history, files, &clients);
    let clocks_agree = !plan.faults.iter().any(|f| matches!(f.fault, Fault::Clock { .. }));
    // A slow disk needs longer to sync.
    let slow = plan.faults.iter().any(|f| {
        matches!(
            f.fault,
            Fault::SlowDisk { .. }
                | Fault::Hang { .. }
                | Fault::DiskError { .. }
                | Fault::Stop { .. }
        )
    });
    let settle = if slow { Duration::from_secs(3600) } else { SETTLE };
    let grace = Duration::from_millis(plan.shape.grace_ms.into());
    let tree = names::judge(history, &NamesFacts { directories, settle, grace });
    report.undecided = bytes.undecided + tree.undecided;
    report.violations.extend(bytes.violations);
    report.violations.extend(tree.violations);
    report.violations.extend(published::judge(history));
    report.violations.extend(stats::judge(history, files, &clients, clocks_agree));
    let losses = Losses::of(history, files);
    report.violations.extend(losses.judge(history));
    report.violations.extend(errors::judge(history, plan, &losses));
    if plan.shape.is_mirrored() {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let detection = ms(plan.shape.target_timeout_ms);
        let recovery = RECOVERY + 2 * detection + ms(2 * plan.shape.lease_ms + plan.shape.grace_ms);
        let request = ms(plan.shape.request_timeout_ms);
        let removes = plan.removes();
        let hangs = plan.faults.iter().any(|f| matches!(f.fault, Fault::Hang { .. }));
        let expected = available::Expected { leases, detection, recovery, request, removes, hangs };
        report.violations.extend(available::judge(history, files, &clients, expected));
    }
}

/// Faults, healing, remaining calls, inspection, shutdown.
fn carry_out(cluster: &mut Cluster) -> Vec<Violation> {
    let plan = cluster.shared.plan.clone();
    let clients = plan.clients.len() as u8;
    for node in cluster.nodes.keys().copied().collect::<Vec<_>>() {
        usual_latency(cluster.disk(node));
    }
    cluster.sim.network().set_reset_rate(plan.shape.reset_ppm);
    for client in 0..clients {
        cluster.start(NodeName::Client(client));
    }
    let mut nemesis = Nemesis::new(cluster);
    let end = cluster.sim.now() + Duration::from_millis(plan.duration_ms.into());
    nemesis.run_until(cluster, end);
    nemesis.heal(cluster);
    let mirrored = plan.shape.is_mirrored();
    let mut violations = Vec::new();
    let mut finished = finish(cluster, &mut nemesis);
    // A loss delays each call that meets it.
    if !finished && let Some(troubles) = accept_losses(cluster, &mut nemesis) {
        violations.extend(troubles);
        finished = finish(cluster, &mut nemesis);
    }
    if !finished {
        violations.push(unfinished(cluster));
        return violations;
    }
    nemesis.run_until(cluster, cluster.sim.now() + GRACE);
    if mirrored {
        violations.extend(copies::wait_for_all(cluster, &mut nemesis));
        if plan.moves() {
            violations.extend(copies::wait_for_moves(cluster, &mut nemesis));
        }
        if plan.faults.iter().any(|planned| matches!(planned.fault, Fault::Rot { .. })) {
            violations.extend(copies::wait_for_sound(cluster, &mut nemesis));
        }
    }
    violations.extend(audit_all(cluster, &mut nemesis));
    if mirrored && violations.is_empty() {
        violations.extend(read_without_each(cluster, &mut nemesis));
    }
    violations.extend(nemesis.strange_ends.iter().map(|what| plain(what.clone())));
    violations.extend(shut_down(cluster));
    if violations.is_empty() {
        violations.extend(cluster.scrub().err().map(plain));
    }
    if mirrored && violations.is_empty() {
        match copies::compare(cluster) {
            Ok(differences) => violations.extend(differences),
            Err(what) => violations.push(plain(what)),
        }
    }
    violations
}

/// Lets clients finish their calls; returns whether the time was enough.
fn finish(cluster: &mut Cluster, nemesis: &mut Nemesis) -> bool {
    let clients = cluster.shared.plan.clients.len() as u8;
    let deadline = cluster.sim.now() + FINISH;
    let done = |cluster: &Cluster| (0..clients).all(|client| is_done(cluster, client));
    while !done(cluster) && cluster.sim.now() < deadline {
        let next = cluster.sim.now() + Duration::from_millis(100);
        nemesis.run_until(cluster, next);
    }
    done(cluster)
}

fn unfinished(cluster: &Cluster) -> Violation {
    let what = format!(
        "clients do not come to an end after the last fault; done: {:?}",
        cluster.shared.next.borrow()
    );
    Violation { what, evidence: format!("  {}\n", cluster.sim.threads().join("\n  ")) }
}

/// An administrator accepts losses, and the copies become equal. `None`: there are no losses.
fn accept_losses(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Option<Vec<Violation>> {
    // Only files with several copies can have such losses.
    cluster.shared.plan.shape.is_mirrored().then(|| losses::accept(cluster, nemesis))?
}

/// Fresh clients read files with several copies, each while it cannot reach one of the data
/// servers.
fn read_without_each(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Vec<Violation> {
    let mut violations = Vec::new();
    for server in 0..cluster.shared.plan.shape.all_servers() {
        let node = NodeName::Data(server);
        cluster.cut_off_auditor(node, true);
        let what = What::Note(format!("a client that does not reach data{server} reads"));
        cluster.shared.record_at(cluster.sim.now(), what);
        violations.extend(look(cluster, nemesis, read_mirrored));
        cluster.cut_off_auditor(node, false);
    }
    violations
}

fn read_mirrored(shared: Rc<Shared>, config: ClientConfig) {
    let clients = shared.plan.clients.len() as u8;
    let mut worker = Worker::connect(shared.clone(), clients, &config, false);
    for file in 0..shared.made.borrow().files.len() as u8 {
        if shared.plan.shape.copies_of(file.into()) > 1
            && worker.read(file, 0, shared.plan.cells(file)).is_none()
        {
            *shared.trouble.borrow_mut() = Some(format!("file {file} cannot be opened"));
        }
    }
    worker.shut_down();
}

/// A fresh client inspects everything. All of its calls must succeed, after losses have been
/// accepted.
fn audit_all(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Vec<Violation> {
    // Only the final state counts.
    cluster.shared.found.borrow_mut().clear();
    let mut violations = look(cluster, nemesis, audit);
    let refused = cluster.shared.refused.take();
    if refused && let Some(troubles) = accept_losses(cluster, nemesis) {
        violations.extend(troubles);
        let accepted = cluster.shared.accepted.borrow().clone();
        cluster.shared.unopened.borrow_mut().retain(|file| !accepted.contains(file));
        cluster.shared.found.borrow_mut().clear();
        violations.extend(look(cluster, nemesis, audit));
    }
    let unopened = cluster.shared.unopened.take();
    violations.extend(unopened.iter().map(|file| plain(format!("file {file} cannot be opened"))));
    violations
}

fn look(
    cluster: &mut Cluster,
    nemesis: &mut Nemesis,
    how: fn(Rc<Shared>, ClientConfig),
) -> Vec<Violation> {
    let auditor = cluster.start_auditor(how);
    let deadline = cluster.sim.now() + FINISH;
    while cluster.sim.is_running(auditor) && cluster.sim.now() < deadline {
        let next = cluster.sim.now() + Duration::from_millis(50);
        nemesis.run_until(cluster, next);
    }
    if cluster.sim.exit(auditor) == Some(Exit::Returned) {
        return Vec::new();
    }
    let evidence = format!("  {}\n", cluster.sim.threads().join("\n  "));
    vec![Violation { what: "the last look at everything does not end".into(), evidence }]
}

fn audit(shared: Rc<Shared>, config: ClientConfig) {
    let clients = shared.plan.clients.len() as u8;
    let made = shared.made.borrow().clone();
    let mut worker = Worker::connect(shared.clone(), clients, &config, false);
    for file in 0..made.files.len() as u8 {
        let cells = shared.plan.cells(file);
        worker.stat(file);
        let seen = worker.read(file, 0, cells);
        if !matches!(seen, Some(Outcome::Cells(_))) {
            shared.refused.set(true);
        }
        if seen.is_none() {
            shared.record(What::Note(format!("file {file} cannot be opened")));
            shared.unopened.borrow_mut().insert(file);
        }
    }
    for (file, layout) in worker.layouts() {
        // A file that is appended to has grown meanwhile.
        shared.made.borrow_mut().layouts[file] = layout;
    }
    let mut waiting = made.directories.clone();
    while let Some(dir) = waiting.pop() {
        for (name, id) in worker.listed(dir).unwrap_or_default() {
            let Some(found) = worker.lookup(dir, name) else { continue };
            worker.inspect(found);
            worker.fetch(found);
            if found.kind == FileKind::Directory {
                waiting.push(id);
            }
        }
    }
    let at = Place { dir: 0, name: FIRST_OWN_NAME - 1, inner: None };
    worker.perform(Op::Publish { at });
    worker.perform(Op::Fetch { at });
    worker.perform(Op::Unlink { at });
    worker.sync_names();
    worker.shut_down();
}

/// Ends the servers; they must end without errors.
pub(crate) fn shut_down(cluster: &mut Cluster) -> Vec<Violation> {
    let before = cluster.shared.ended.borrow().len();
    for signal in cluster.shared.signals.borrow().values() {
        signal.raise();
    }
    let servers = cluster.servers();
    let servers: Vec<_> =
        servers.iter().filter_map(|n| cluster.processes.get(n).copied()).collect();
    let deadline = cluster.sim.now() + Duration::from_secs(60);
    let ended = cluster.sim.run_until(deadline, |sim| servers.iter().all(|p| !sim.is_running(*p)));
    let mut violations = Vec::new();
    if !ended {
        let evidence = format!("  {}\n", cluster.sim.threads().join("\n  "));
        violations.push(Violation { what: "servers do not end when asked".into(), evidence });
    }
    for (node, result) in &cluster.shared.ended.borrow()[before..] {
        if let Err(error) = result {
            violations.push(plain(format!("{node:?} did not end well: {error}")));
        }
    }
    violations
}

/// Runs the plan of a seed.
pub fn run_seed(seed: u64, duration: Duration) -> Report {
    run(&generate::plan(seed, duration.as_millis() as u32))
}

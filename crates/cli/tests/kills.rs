//! A cluster of real processes on machines of their own (network namespaces, small
//! disks), whose servers, links and disks fail under a mixed load from two mounts. With
//! trouble on one machine at a time who uses files with several copies goes on; with
//! trouble on several, calls may wait or fail. Nothing acknowledged is lost, nothing
//! stale is read, and afterwards all copies are the same.
//!
//! `WEIR_KILL_CYCLES` says how many cycles in all (11); `WEIR_KILL_LONG=1` lets things last for
//! up to 30 s; `WEIR_SEED` brings a run's choices back; `WEIR_LOG` makes daemons say more.

use crate::harness::{Place, said};
use crate::kill_lab::{CLIENTS, DETECTION, Failure, Fault, KINDS, Lab, META, SERVERS};
use crate::kill_load::{self, DIRECTORIES, MountLoad, Policy};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_conformance::Random;
use weir_types::checksum::crc32c;

/// Beyond detection: retries, and two busy cores.
const SLACK: Duration = Duration::from_secs(12);
/// A metadata server that was started again waits so long for clients to come back.
const GRACE: Duration = Duration::from_secs(10);
/// What may be slow, but not hang.
const PATIENCE: Duration = Duration::from_secs(90);
/// So many workers of a load use files of which one copy alone may have something; those of
/// the others have several.
const SINGLE: usize = 2;
const PAUSE_EVERY: u64 = 4;
/// Steps of a worker that come to every server, more likely than not.
const MANY: u64 = 60;

#[test]
fn load_process() {
    kill_load::run_if_asked();
}

struct Run<'a> {
    // It ends first, and with it every call of the loads.
    lab: Lab<'a>,
    loads: Vec<MountLoad>,
    policy: Policy,
    policy_file: PathBuf,
    random: Random,
    is_long: bool,
    /// A disk was full in the last cycle: of what one copy has refused another may still be the
    /// only one that has the MiB around it.
    was_full: bool,
}

impl Run<'_> {
    fn check(&mut self) {
        self.loads.iter_mut().for_each(MountLoad::check);
        self.lab.check_daemons();
    }

    fn steps(&self) -> Vec<Vec<u64>> {
        let steps = |load: &MountLoad| load.done().into_iter().map(|(steps, _)| steps).collect();
        self.loads.iter().map(steps).collect()
    }

    fn set(&mut self, policy: Policy) {
        self.policy = policy;
        policy.write(&self.policy_file);
    }

    /// Waits until the workers (from one on) of each load have done so much more.
    fn go_on(&mut self, from: usize, steps: u64, within: Duration) -> Duration {
        let (before, begin) = (self.steps(), Instant::now());
        loop {
            self.check();
            let now = self.steps();
            let went_on = |(now, before): (&Vec<u64>, &Vec<u64>)| {
                now.iter().zip(before).skip(from).all(|(n, b)| *n >= b + steps)
            };
            if now.iter().zip(&before).all(went_on) && now.iter().all(|w| w.len() > from) {
                return begin.elapsed();
            }
            assert!(
                begin.elapsed() < within,
                "not every worker went on within {within:?}: {before:?}, then {now:?}\n{}\n{}",
                self.loads[0].log(),
                self.loads[1].log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Chooses the faults of a cycle, and whether users of files with several copies must go on.
    fn choose(&mut self, kind: u64) -> (Vec<Fault>, bool) {
        if kind < KINDS {
            let fault = Fault::choose(kind, &mut self.random);
            return (vec![fault], fault.leaves_copies());
        }
        let mut faults: Vec<Fault> = Vec::new();
        while faults.len() < 2 + self.random.below(2) as usize {
            let kind = self.random.below(KINDS);
            let fault = Fault::choose(kind, &mut self.random);
            let machines: Vec<_> = faults.iter().flat_map(|fault| fault.machines()).collect();
            let is_free = fault.machines().iter().all(|machine| !machines.contains(machine));
            // Two disks that forget lose what they alone had.
            if is_free && !(fault.forgets() && faults.iter().any(|other| other.forgets())) {
                faults.push(fault);
            }
        }
        (faults, false)
    }

    fn policy_for(&self, faults: &[Fault], must_go_on: bool, hold: Duration) -> Policy {
        let calm = calm(&self.policy);
        let is_disk = faults.iter().any(|fault| matches!(fault, Fault::Disk(..)));
        let forgets = u64::from(faults.iter().any(|fault| fault.forgets()));
        // A mount that is cut off for longer than its lease loses what it has not sent.
        let fences =
            faults.iter().any(|fault| matches!(fault, Fault::Island(..)) || fault.ends_a_mount());
        let several = faults.len() > 1 || fences;
        let full = faults.iter().any(|fault| matches!(fault, Fault::Full(_)));
        Policy {
            may_fail: if several { 3 } else { u64::from(is_disk) },
            full,
            risks_single: calm.risks_single + u64::from(several || full || is_disk),
            risks_all: calm.risks_all + u64::from(several || full),
            lost_single: calm.lost_single + forgets,
            // With several machines in trouble this may have been the only copy.
            lost_all: calm.lost_all + if several { forgets } else { 0 },
            mirrored: if must_go_on { calm.mirrored } else { hold + PATIENCE },
            other: hold + PATIENCE,
            ..calm
        }
    }

    fn cycle(&mut self, cycle: u64, kind: u64) {
        let (faults, must_go_on) = self.choose(kind);
        self.was_full = faults.iter().any(|fault| matches!(fault, Fault::Full(_)));
        let longest = if self.is_long { 30_000 } else { 5_000 };
        let asked = Duration::from_millis(self.random.below(longest));
        let asked = match &faults[..] {
            [alone] => asked.max(alone.least()),
            _ => asked,
        };
        let hold = faults.iter().fold(asked, |hold, fault| fault.longest(hold));
        let until_they_go_on = must_go_on && self.random.below(3) > 0;
        println!("cycle {cycle}: {faults:?}{}", if must_go_on { ", copies go on" } else { "" });
        self.carry_out(&faults, hold, must_go_on, until_they_go_on);
    }

    /// The faults for so long, and what must be so meanwhile and afterwards.
    fn carry_out(
        &mut self,
        faults: &[Fault],
        hold: Duration,
        must_go_on: bool,
        until_they_go_on: bool,
    ) {
        if faults.iter().any(|fault| matches!(fault, Fault::Disk(..))) {
            // Nobody may be left out for what was before: the disk may have the only copy then.
            self.lab.all_stay_online(PATIENCE);
        }
        self.set(self.policy_for(faults, must_go_on, hold + DETECTION + SLACK));
        faults.iter().for_each(|fault| fault.begin(&mut self.lab));
        let begin = Instant::now();
        if until_they_go_on {
            let took = self.go_on(SINGLE, MANY, DETECTION + SLACK);
            println!("  with several copies they went on within {took:.1?}");
        }
        while begin.elapsed() < hold {
            std::thread::sleep(Duration::from_millis(20));
            self.loads.iter_mut().for_each(MountLoad::check);
        }
        // What is mounted anew needs the servers.
        let (mounts, others): (Vec<Fault>, Vec<Fault>) =
            faults.iter().partition(|fault| fault.ends_a_mount());
        others.iter().chain(&mounts).for_each(|fault| fault.end(&mut self.lab));
        self.set(Policy { remounts: self.policy.remounts + mounts.len() as u64, ..self.policy });
        let online = self.lab.all_online(PATIENCE);
        println!("  mended after {:.1?}, all online {online:.1?} later", begin.elapsed());
        if faults.iter().any(|fault| matches!(fault, Fault::Kill(name) if *name == META)) {
            // It waits for a mount that was killed before, too: it knows only that it was there.
            self.go_on(0, 5, GRACE + SLACK);
        }
        self.set(calm(&self.policy));
        let took = self.go_on(0, 5, PATIENCE);
        println!("  all went on within {took:.1?}");
    }

    /// Everybody waits; what there is, is what there should be, on both mounts and in all
    /// copies.
    fn compare(&mut self, pause: u64) {
        self.set(Policy { pause, other: PATIENCE, mirrored: PATIENCE, ..calm(&self.policy) });
        let begin = Instant::now();
        loop {
            self.check();
            let done: Vec<_> = self.loads.iter().flat_map(MountLoad::done).collect();
            if !done.is_empty() && done.iter().all(|(_, paused)| *paused == pause) {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "not all has been verified: {done:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.lab.all_online(PATIENCE);
        let mounts = self.lab.mounts().to_vec();
        let mut files = 0;
        for (i, load) in self.loads.iter().enumerate() {
            let (own, other) = (mounts[i].to_str().unwrap(), mounts[1 - i].to_str().unwrap());
            for line in load.manifest() {
                let mut words = line.split(' ');
                let path = words.next().unwrap().replacen(own, other, 1);
                let found = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
                let is = format!("{} {}", found.len(), crc32c(&found));
                assert_eq!(is, words.collect::<Vec<_>>().join(" "), "{path} on the other mount");
                files += 1;
            }
        }
        self.lab.all_the_same();
        let safe = DIRECTORIES.iter().filter(|directory| directory.safe > 1);
        self.lab.belongs_together(&safe.map(|directory| directory.name).collect::<Vec<_>>());
        println!("  {files} files are the same on both mounts, and so are all copies");
    }
}

fn calm(policy: &Policy) -> Policy {
    let mirrored = DETECTION + SLACK;
    Policy {
        may_fail: 0,
        full: false,
        risks_single: policy.risks_single.next_multiple_of(2),
        risks_all: policy.risks_all.next_multiple_of(2),
        lost_single: policy.lost_single.next_multiple_of(2),
        lost_all: policy.lost_all.next_multiple_of(2),
        mirrored,
        other: PATIENCE,
        pause: 0,
        ..*policy
    }
}

/// Two labs at a time: each has as many machines as two cores bear, and they wait much.
static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

fn turn(of: usize) -> MutexGuard<'static, ()> {
    TURNS[of].lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Run<'a> {
    /// Both loads run. Nothing where that is not possible.
    fn begin(place: &'a Place, seed: u64) -> Option<Self> {
        let lab = Lab::new(place)?;
        let mut random = Random::new(seed);
        for directory in DIRECTORIES {
            let name = format!("weir:/{}", directory.name);
            said(lab.weir(&["mkdir", &name])).ok();
            let (copies, several) = (directory.copies.to_string(), directory.copies > 1);
            let mut wish = vec!["setlayout", &name, "--copies", &copies];
            if several {
                let placements: &[_] = match copies.as_str() {
                    "2" => &["chained", "random", "groups"],
                    _ => &["chained", "random"],
                };
                wish.extend(["--placement", pick(&mut random, placements)]);
                wish.extend(["--duplication", pick(&mut random, directory.protocols)]);
                println!("{wish:?}");
            }
            said(lab.weir(&wish)).ok();
        }
        kill_load::prepare(&lab.mounts()[0]);
        let nothing = Policy {
            may_fail: 0,
            full: false,
            risks_single: 0,
            risks_all: 0,
            lost_single: 0,
            lost_all: 0,
            mirrored: Duration::ZERO,
            other: Duration::ZERO,
            remounts: 0,
            pause: 0,
            stop: false,
        };
        let (policy, policy_file) = (calm(&nothing), place.path("policy"));
        policy.write(&policy_file);
        let base = place.path("loads");
        std::fs::create_dir(&base).unwrap();
        let start = |i: u64| {
            let mount = &lab.mounts()[i as usize - 1];
            MountLoad::start(mount, i, &base, &policy_file, seed)
        };
        let loads = vec![start(1), start(2)];
        let is_long = number("WEIR_KILL_LONG") == Some(1);
        let was_full = false;
        let mut run = Self { lab, loads, policy, policy_file, random, is_long, was_full };
        run.go_on(0, 1, PATIENCE);
        Some(run)
    }

    /// Everything is verified, and everybody goes on.
    fn look(&mut self, pause: u64) {
        self.compare(pause);
        self.set(calm(&self.policy));
        self.go_on(0, 1, PATIENCE);
    }

    fn finish(mut self) {
        self.set(Policy { stop: true, ..self.policy });
        self.loads.iter_mut().for_each(MountLoad::finish);
    }
}

fn pick<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Cycles with faults of these kinds, for each half of them one lab.
fn cycles(turn_of: usize, of: RangeInclusive<u64>) {
    let _turn = turn(turn_of);
    let of: Vec<u64> = of.collect();
    let cycles = number("WEIR_KILL_CYCLES").map_or(of.len() as u64, |asked| asked.div_ceil(2));
    let (place, seed) = (Place::new(), Random::seed_of_run());
    let Some(mut run) = Run::begin(&place, seed) else { return };
    // Each kind comes once before any comes twice, whatever the seed.
    let mut kinds: Vec<u64> = Vec::new();
    for cycle in 1..=cycles {
        if kinds.is_empty() {
            kinds.clone_from(&of);
        }
        let at = run.random.below(kinds.len() as u64) as usize;
        let kind = kinds.swap_remove(at);
        run.cycle(cycle, kind);
        // What a full disk has refused it has not been brought at once when there is room again:
        // until then those files have a copy less.
        if cycle % PAUSE_EVERY == 0 || cycle == cycles || run.was_full {
            run.look(cycle);
        }
    }
    run.finish();
}

#[test]
fn nothing_acknowledged_is_lost_whatever_daemon_or_disk_fails() {
    cycles(0, 0..=KINDS / 2);
}

#[test]
fn nothing_acknowledged_is_lost_whatever_room_or_link_or_several_fail() {
    cycles(1, KINDS / 2 + 1..=KINDS);
}

#[test]
fn who_stood_still_or_was_cut_off_or_has_another_time_serves_nothing_old() {
    let _turn = turn(0);
    let (place, seed) = (Place::new(), Random::seed_of_run());
    let Some(mut run) = Run::begin(&place, seed) else { return };
    let seconds = Duration::from_secs;
    println!("a disk fails and forgets what was not synced, and no machine has started anew");
    let forgets = Fault::Disk(SERVERS[0], Failure::DeadAndForgetful);
    run.carry_out(&[forgets], seconds(1), true, true);
    run.look(1);
    println!("a server has another time than the others");
    run.carry_out(&[Fault::Kill(SERVERS[0])], seconds(1), true, true);
    run.lab.kill(SERVERS[0]);
    run.lab.start_ahead(SERVERS[0], 86_400);
    run.lab.all_online(PATIENCE);
    run.carry_out(&[Fault::Unplug(SERVERS[0])], 2 * DETECTION, true, true);
    run.lab.kill(SERVERS[0]);
    run.lab.start(SERVERS[0]);
    run.lab.all_online(PATIENCE);
    println!("a server stands still, for longer than it takes to miss it");
    run.carry_out(&[Fault::Stop(SERVERS[1])], 2 * DETECTION, true, true);
    run.look(2);
    println!("a server and a mount see each other, and nobody else");
    run.carry_out(&[Fault::Island(SERVERS[2], CLIENTS[1])], seconds(16), false, false);
    println!("a server stands still for 30 s");
    run.carry_out(&[Fault::Stop(SERVERS[3])], seconds(30), true, true);
    run.look(3);
    run.finish();
}

#[test]
fn clocks_that_run_fast_or_slowly_make_nobody_serve_what_is_old() {
    let _turn = turn(1);
    if !cfg!(target_arch = "x86_64") {
        return eprintln!("skipped: needs x86-64");
    }
    let (place, seed) = (Place::new(), Random::seed_of_run());
    let Some(mut run) = Run::begin(&place, seed) else { return };
    let seconds = Duration::from_secs;
    println!("a server's clock runs three times as fast, another's a tenth slower");
    for (server, rate) in [(SERVERS[0], 3.0), (SERVERS[1], 0.9)] {
        run.lab.kill(server);
        run.lab.start_at_rate(server, rate);
        run.lab.all_online(PATIENCE);
    }
    run.carry_out(&[Fault::Unplug(SERVERS[0])], 2 * DETECTION, true, true);
    run.carry_out(&[Fault::Stop(SERVERS[1])], 2 * DETECTION, true, true);
    run.carry_out(&[Fault::Island(SERVERS[1], CLIENTS[1])], seconds(16), false, false);
    run.look(1);
    println!("the metadata server's clock runs a tenth faster: it misses others too early");
    run.lab.kill(META);
    run.lab.start_at_rate(META, 1.1);
    run.lab.all_online(PATIENCE);
    run.carry_out(&[Fault::Stop(SERVERS[2])], 2 * DETECTION, true, true);
    run.carry_out(&[Fault::Island(SERVERS[3], CLIENTS[0])], seconds(16), false, false);
    run.look(2);
    run.finish();
}

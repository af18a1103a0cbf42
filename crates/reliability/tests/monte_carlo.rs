//! Compares the models with simulations of disks, nodes and segments that do not use Markov chains.
//! Fixed seeds; tolerance of four standard errors.

use fastrand::Rng;
use weir_reliability::{Cluster, Duplication, Layout, Redundancy, Scheme, assess};

/// A cluster whose disks fail so often that thousands of losses are simulated quickly.
fn cluster(nodes: u32, disks_per_node: u32) -> Cluster {
    Cluster {
        nodes,
        disks_per_node,
        disk_mttf_hours: 300.0,
        node_mttf_hours: 100.0,
        node_repair_hours: 5.0,
        disk_bytes: 3.6e9,
        rebuild_bytes_per_s: 1e5,
        detect_hours: 2.0,
        segment_bytes: 1.0,
        unreadable_per_bit: 0.0,
    }
}

fn scheme(layout: Layout, redundancy: Redundancy) -> Scheme {
    Scheme { layout, redundancy, duplication: Duplication::Synchronous }
}

/// Sets of disks. A set loses data if more than `spare` of its disks are failed at the same time.
struct Sets {
    sets: Vec<Vec<usize>>,
    spare: usize,
    mirrored: Vec<MirroredSet>,
}

/// RAID 5 and mirror: the disks of each member, and the disk of the parity.
struct MirroredSet {
    members: Vec<[usize; 2]>,
    parity: usize,
}

impl MirroredSet {
    /// Draws sets on these nodes, each using one disk of a node: always the same, or a random one.
    fn draw(
        members: usize,
        (nodes, per_node): (&[usize], usize),
        any_disk: bool,
        rng: &mut Rng,
    ) -> Self {
        let one = rng.usize(0..per_node);
        let mut nodes = nodes.to_vec();
        let parity = nodes.swap_remove(rng.usize(0..nodes.len()));
        let pairs: Vec<[usize; 2]> = (0..nodes.len())
            .flat_map(|a| (a + 1..nodes.len()).map(move |b| [a, b]))
            .map(|pair| pair.map(|node| nodes[node]))
            .collect();
        let pairs = rng.choose_multiple(pairs, members);
        let mut disk =
            |node: usize| node * per_node + if any_disk { rng.usize(0..per_node) } else { one };
        let members = pairs.into_iter().map(|pair| pair.map(&mut disk)).collect();
        Self { members, parity: disk(parity) }
    }

    fn lost(&self, down: &[bool]) -> bool {
        let gone = |pair: &&[usize; 2]| pair.iter().all(|disk| down[*disk]);
        self.members.iter().filter(gone).count() + usize::from(down[self.parity]) > 1
            && self.members.iter().any(|pair| gone(&pair))
    }
}

impl Sets {
    /// Disk `d` of node `n` is number `n * disks_per_node + d`.
    fn of(cluster: &Cluster, scheme: &Scheme, segments: usize, rng: &mut Rng) -> Self {
        let (nodes, per_node) = (cluster.nodes as usize, cluster.disks_per_node as usize);
        let width = scheme.redundancy.width() as usize;
        let spare = scheme.redundancy.spare() as usize;
        let starts: Vec<usize> = match scheme.layout {
            Layout::Chained => (0..nodes).collect(),
            _ => (0..nodes).step_by(width).collect(),
        };
        let run = |start: usize, disk: usize| {
            (start..start + width).map(|n| n % nodes * per_node + disk).collect()
        };
        let mirrored = match scheme.redundancy {
            Redundancy::Raid5Mirror { data } => {
                let all: Vec<usize> = (0..nodes).collect();
                let is_random = scheme.layout == Layout::Random;
                let group = if is_random { nodes } else { width };
                let groups = all.chunks_exact(group).cycle().take(segments);
                let mut draw =
                    |of| MirroredSet::draw(data as usize, (of, per_node), is_random, rng);
                groups.map(&mut draw).collect()
            }
            _ => Vec::new(),
        };
        let sets = if !mirrored.is_empty() {
            Vec::new()
        } else if scheme.layout == Layout::Random {
            let mut drawn = || {
                let nodes = rng.choose_multiple(0..nodes, width);
                nodes.into_iter().map(|n| n * per_node + rng.usize(0..per_node)).collect()
            };
            (0..segments).map(|_| drawn()).collect()
        } else {
            (0..per_node).flat_map(|d| starts.iter().map(move |s| run(*s, d))).collect()
        };
        Self { sets, spare, mirrored }
    }

    fn lost(&self, down: &[bool]) -> bool {
        self.sets.iter().any(|set| set.iter().filter(|disk| down[**disk]).count() > self.spare)
            || self.mirrored.iter().any(|set| set.lost(down))
    }

    /// Number of sets that cannot bear another loss and that contain this disk.
    fn critical(&self, down: &[bool], disk: usize) -> usize {
        let with = self.sets.iter().filter(|set| set.contains(&disk));
        with.filter(|set| set.iter().filter(|d| down[**d]).count() == self.spare).count()
    }
}

fn exponential(rng: &mut Rng, rate: f64) -> f64 {
    -f64::ln_1p(-rng.f64()) / rate
}

/// Hours until the first loss. `unreadable`: the probability that the rebuild of
/// a critical set fails.
fn until_loss(
    cluster: &Cluster,
    sets: &Sets,
    repairs_per_hour: &dyn Fn(f64) -> f64,
    unreadable: f64,
    rng: &mut Rng,
) -> f64 {
    let mut down = vec![false; (cluster.nodes * cluster.disks_per_node) as usize];
    let mut now = 0.0;
    loop {
        let failed: Vec<usize> = (0..down.len()).filter(|d| down[*d]).collect();
        let fails = (down.len() - failed.len()) as f64 / cluster.disk_mttf_hours;
        let repairs = if failed.is_empty() { 0.0 } else { repairs_per_hour(failed.len() as f64) };
        now += exponential(rng, fails + repairs);
        if rng.f64() * (fails + repairs) < fails {
            let up: Vec<usize> = (0..down.len()).filter(|d| !down[*d]).collect();
            down[up[rng.usize(0..up.len())]] = true;
            if sets.lost(&down) {
                return now;
            }
        } else {
            let disk = failed[rng.usize(0..failed.len())];
            for _ in 0..sets.critical(&down, disk) {
                if rng.f64() < unreadable {
                    return now;
                }
            }
            down[disk] = false;
        }
    }
}

/// The mean and its standard error.
fn mean(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

fn simulated(cluster: &Cluster, scheme: &Scheme, unreadable: f64, runs: usize) -> Vec<f64> {
    let mut rng = Rng::with_seed(7);
    let rebuild = cluster.detect_hours + cluster.disk_bytes / cluster.rebuild_bytes_per_s / 3600.0;
    let sets = Sets::of(cluster, scheme, 100, &mut rng);
    let repairs = |failed: f64| failed / rebuild;
    (0..runs).map(|_| until_loss(cluster, &sets, &repairs, unreadable, &mut rng)).collect()
}

#[test]
fn fixed_groups_last_as_long_as_simulated_ones() {
    for (nodes, disks, layout, redundancy) in [
        (6, 2, Layout::Striped, Redundancy::Copies(1)),
        (8, 2, Layout::Mirrored, Redundancy::Copies(2)),
        (6, 2, Layout::Mirrored, Redundancy::Copies(3)),
        (12, 1, Layout::Striped, Redundancy::Code { data: 4, parity: 2 }),
        (5, 3, Layout::Striped, Redundancy::Code { data: 4, parity: 1 }),
        (12, 1, Layout::Striped, Redundancy::Raid5Mirror { data: 8 }),
    ] {
        let (cluster, scheme) = (cluster(nodes, disks), scheme(layout, redundancy));
        let times = simulated(&cluster, &scheme, 0.0, 3000);
        let (seen, error) = mean(&times);
        let month = 720.0;
        let assessed = assess(&cluster, &scheme, month).unwrap();
        let expected = assessed.mttdl_hours;
        assert!((seen - expected).abs() < 4.0 * error, "{layout} {redundancy}: {seen} {expected}");

        let within = times.iter().filter(|t| **t < month).count() as f64 / times.len() as f64;
        let p = assessed.loss_probability;
        let error = (p * (1.0 - p) / times.len() as f64).sqrt().max(1e-9);
        assert!((within - p).abs() < 4.0 * error, "{layout} {redundancy}: {within} {p}");
    }
}

#[test]
fn sectors_that_cannot_be_read_end_a_rebuild_as_in_the_simulation() {
    let mut cluster = cluster(8, 1);
    for redundancy in [Redundancy::Copies(2), Redundancy::Code { data: 2, parity: 2 }] {
        let layout =
            if redundancy == Redundancy::Copies(2) { Layout::Mirrored } else { Layout::Striped };
        let bits = 8.0 * cluster.disk_bytes * redundancy.read_for_one();
        cluster.unreadable_per_bit = -f64::ln_1p(-0.2) / bits;
        let scheme = scheme(layout, redundancy);
        let (seen, error) = mean(&simulated(&cluster, &scheme, 0.2, 3000));
        let expected = assess(&cluster, &scheme, 1.0).unwrap().mttdl_hours;
        assert!((seen - expected).abs() < 4.0 * error, "{redundancy}: {seen} {expected}");
    }
}

/// The model of chained copies is a lower bound. It gets closer the more rarely two disks are down
/// at the same time.
#[test]
fn chained_copies_last_at_least_as_long_as_promised() {
    for (copies, mttf, slack) in [(2, 300.0, 1.2), (3, 300.0, 1.5), (2, 1500.0, 1.07)] {
        let cluster = Cluster { disk_mttf_hours: mttf, ..cluster(8, 1) };
        let scheme = scheme(Layout::Chained, Redundancy::Copies(copies));
        let (seen, error) = mean(&simulated(&cluster, &scheme, 0.0, 3000));
        let promised = assess(&cluster, &scheme, 1.0).unwrap().mttdl_hours;
        assert!(seen > promised - 4.0 * error, "{copies}: {seen} {promised}");
        assert!(seen < promised * slack, "{copies}: {seen} {promised}");
    }
}

fn random_layout(
    segments: usize,
    cluster: &mut Cluster,
    redundancy: Redundancy,
) -> (f64, f64, f64) {
    let scheme = scheme(Layout::Random, redundancy);
    let disks = cluster.disks();
    let parts = f64::from(redundancy.parts());
    cluster.segment_bytes = disks * cluster.disk_bytes / parts / segments as f64;
    let moved = cluster.disk_bytes * (redundancy.read_for_one() + 1.0);
    let cluster = *cluster;
    let repairs = |failed: f64| {
        let speed = cluster.rebuild_bytes_per_s * (disks - failed) * 3600.0;
        failed / (cluster.detect_hours + failed * moved / speed)
    };
    let mut rng = Rng::with_seed(11);
    let times: Vec<f64> = (0..2000)
        .map(|_| {
            let sets = Sets::of(&cluster, &scheme, segments, &mut rng);
            until_loss(&cluster, &sets, &repairs, 0.0, &mut rng)
        })
        .collect();
    let (seen, error) = mean(&times);
    (seen, error, assess(&cluster, &scheme, 1.0).unwrap().mttdl_hours)
}

#[test]
fn random_layouts_last_as_long_as_simulated_ones() {
    // With this many segments, any disks on distinct nodes hold one in common.
    for redundancy in [
        Redundancy::Copies(2),
        Redundancy::Code { data: 2, parity: 2 },
        Redundancy::Raid5Mirror { data: 8 },
    ] {
        let (seen, error, expected) = random_layout(300, &mut cluster(8, 1), redundancy);
        assert!((seen - expected).abs() < 4.0 * error, "{redundancy}: {seen} {expected}");
    }
}

/// With few segments, most pairs of disks hold none in common. The model treats sets of failed
/// disks as independent.
#[test]
fn few_random_segments_last_longer_than_many() {
    let redundancy = Redundancy::Copies(2);
    let (many, _, _) = random_layout(300, &mut cluster(8, 2), redundancy);
    let (few, error, expected) = random_layout(20, &mut cluster(8, 2), redundancy);
    assert!(few > 1.5 * many, "{few} {many}");
    assert!((few - expected).abs() < 4.0 * error + 0.05 * expected, "{few} {expected}");
}

/// With so few sets, the loss of three disks is mostly harmless, and the loss of some four disks is
/// not.
#[test]
fn few_sets_of_raid5_and_mirror_last_as_long_as_simulated_ones() {
    let redundancy = Redundancy::Raid5Mirror { data: 3 };
    for (nodes, disks, segments) in [(8, 1, 4), (6, 2, 20)] {
        let (seen, error, expected) =
            random_layout(segments, &mut cluster(nodes, disks), redundancy);
        let near = 4.0 * error + 0.05 * expected;
        assert!((seen - expected).abs() < near, "{nodes} {disks}: {seen} {expected}");
    }
}

/// Random snapshots, in which disks and nodes are down with the probabilities of the model.
#[test]
fn everything_can_be_read_as_often_as_in_snapshots() {
    let mut rng = Rng::with_seed(3);
    for (nodes, disks, layout, redundancy, exact) in [
        (6, 2, Layout::Striped, Redundancy::Copies(1), true),
        (8, 2, Layout::Mirrored, Redundancy::Copies(2), true),
        (12, 2, Layout::Striped, Redundancy::Code { data: 4, parity: 2 }, true),
        (7, 2, Layout::Random, Redundancy::Copies(3), true),
        (8, 2, Layout::Chained, Redundancy::Copies(2), false),
        (12, 2, Layout::Striped, Redundancy::Raid5Mirror { data: 8 }, true),
        (8, 2, Layout::Random, Redundancy::Raid5Mirror { data: 8 }, true),
    ] {
        let (cluster, scheme) = (cluster(nodes, disks), scheme(layout, redundancy));
        let assessed = assess(&cluster, &scheme, 1.0).unwrap();
        let disk_down = assessed.rebuild_hours / (assessed.rebuild_hours + cluster.disk_mttf_hours);
        let node_down = 5.0 / 105.0;
        // With this many sets, any three disks hold one in common.
        let is_mirrored = matches!(redundancy, Redundancy::Raid5Mirror { .. });
        let segments = if is_mirrored { 300 } else { 3000 };
        let sets = Sets::of(&cluster, &scheme, segments, &mut rng);
        let runs = 20_000;
        let mut unreadable = 0.0;
        for _ in 0..runs {
            let mut down = Vec::new();
            for _ in 0..nodes {
                let node = rng.f64() < node_down;
                down.extend((0..disks).map(|_| node || rng.f64() < disk_down));
            }
            unreadable += f64::from(u8::from(sets.lost(&down)));
        }
        let seen = unreadable / f64::from(runs);
        let expected = assessed.unavailability;
        let error = (expected * (1.0 - expected) / f64::from(runs)).sqrt();
        assert!(seen < expected + 4.0 * error, "{layout} {redundancy}: {seen} {expected}");
        let least = if exact { expected } else { 0.8 * expected };
        assert!(seen > least - 4.0 * error, "{layout} {redundancy}: {seen} {expected}");
    }
}

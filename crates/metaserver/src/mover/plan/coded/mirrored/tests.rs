use super::*;
use crate::mover::plan::{Parities, improve_with};
use crate::mover::sites::{Fit, Site};
use proptest::prelude::*;
use weir_layout::Home;
use weir_types::{Decode, Encode, Epoch, Filling, Scheme, SegmentIndex};

/// A segment, and targets of which every `servers`-th is on the same server.
struct World {
    segment: Segment,
    sites: BTreeMap<TargetId, Site>,
    wish: Parities,
    servers: u32,
}

fn site(target: u32, servers: u32) -> Site {
    let home = Home::alone(ServerId(target % servers));
    Site { home, fit: Fit::Takes, online: true, free_bytes: u64::MAX }
}

impl World {
    /// The copies of each column are on these targets.
    fn new(servers: u32, targets: u32, columns: &[Vec<u32>]) -> Self {
        let column =
            |of: &Vec<u32>| Column { targets: of.iter().map(|target| TargetId(*target)).collect() };
        let segment = Segment {
            index: SegmentIndex(3),
            start: 0,
            len: None,
            stripe_unit_bytes: 65536,
            columns: columns.iter().map(column).collect(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
            filling: Vec::new(),
            parities: Vec::new(),
        };
        let sites = (0..targets).map(|target| (TargetId(target), site(target, servers))).collect();
        Self { segment, sites, wish: Parities::Mirrored, servers }
    }

    /// Two copies of each column, on the targets of two columns.
    fn chained(servers: u32, targets: u32, columns: u32) -> Self {
        let copies = |column: u32| vec![column % targets, (column + 1) % targets];
        Self::new(servers, targets, &(0..columns).map(copies).collect::<Vec<_>>())
    }

    fn sites(&self) -> Sites {
        Sites::new(self.sites.clone())
    }

    fn look(&mut self) -> Verdict {
        let (relieved, barred) = (BTreeSet::new(), BTreeSet::new());
        let all = self.segment.members().flat_map(|(column, member)| {
            let copies: Vec<_> = member.copies().map(|(copy, _)| (column, copy)).collect();
            copies
        });
        let settled = all.collect();
        let wish = Wish {
            copies: COPIES,
            in_groups: false,
            relieved: &relieved,
            barred: &barred,
            settled: &settled,
            seed: 7,
            most: usize::MAX,
            room: usize::MAX,
            decodes: false,
        };
        let verdict = improve_with(self.wish, &self.segment, &wish, &mut self.sites());
        if let Verdict::Change(change) = &verdict {
            self.segment = change.segment.clone();
            let again = Segment::from_bytes(&self.segment.to_bytes());
            assert_eq!(again.as_ref(), Ok(&self.segment), "it can be stored");
        }
        verdict
    }

    fn has_whole(&self, number: usize) -> bool {
        let (sites, column) = (self.sites(), ColumnIndex(number as u16));
        let mut copies = self.segment.member(number).unwrap().copies();
        copies
            .any(|(copy, target)| !self.segment.is_filling(column, copy) && sites.is_online(target))
    }

    fn is_there(&self) -> bool {
        let all = (0..self.segment.columns.len()).all(|number| self.has_whole(number));
        all || decodes(&self.segment, &self.sites())
    }

    /// What is being made and can be is whole.
    fn made(&mut self) {
        let (sites, is_there) = (self.sites(), self.is_there());
        let is_made = |f: &Filling| {
            let target = self.segment.target(usize::from(f.column.0), f.copy);
            is_there && target.is_some_and(|target| sites.is_online(target))
        };
        let made: Vec<Filling> =
            self.segment.filling.iter().filter(|f| is_made(f)).copied().collect();
        self.segment.filling.retain(|f| !made.contains(f));
    }

    fn settle(&mut self) -> Verdict {
        for _ in 0..32 {
            self.look();
            self.made();
        }
        self.look()
    }

    fn server(&self, target: TargetId) -> u32 {
        target.0 % self.servers
    }

    /// Servers of the copies of each column, and of the parity.
    fn servers_of(&self) -> (Vec<Vec<u32>>, u32) {
        let of = |member: &Column| -> Vec<u32> {
            let mut servers: Vec<u32> =
                member.copies().map(|(_, target)| self.server(target)).collect();
            servers.sort_unstable();
            servers
        };
        let parity = of(&self.segment.parities[0]);
        (self.segment.columns.iter().map(of).collect(), parity[0])
    }

    /// Two copies of each column in two servers, no two in the same two, and the parity apart.
    fn is_complete(&self) -> bool {
        let segment = &self.segment;
        if !segment.is_coded() || !segment.filling.is_empty() || segment.parities.len() != 1 {
            return false;
        }
        let (columns, parity) = self.servers_of();
        let pairs: BTreeSet<&Vec<u32>> = columns.iter().collect();
        segment.parities[0].copies().count() == 1
            && columns.iter().all(|pair| pair.len() == COPIES && pair[0] != pair[1])
            && pairs.len() == columns.len()
            && !columns.iter().flatten().any(|server| *server == parity)
    }

    fn lose(&mut self, server: u32) {
        for target in (0..self.sites.len() as u32).filter(|target| target % self.servers == server)
        {
            let lost = Site { fit: Fit::Lost, online: false, ..site(target, self.servers) };
            self.sites.insert(TargetId(target), lost);
        }
    }

    /// Numbers of good copies of each column, and of the parity.
    fn numbers(&self) -> Vec<usize> {
        let is_good = |(copy, target): &(CopyIndex, TargetId), number: usize| {
            !self.segment.is_filling(ColumnIndex(number as u16), *copy)
                && self.sites[target].fit == Fit::Takes
        };
        let members = self.segment.members().enumerate();
        members
            .map(|(n, (_, member))| member.copies().filter(|copy| is_good(copy, n)).count())
            .collect()
    }

    /// What is made again becomes whole, and then nothing changes any more: nothing is on other
    /// targets than good ones, and each column has two copies, and the parity one.
    fn becomes_as_whole_as_it_can(&mut self, what: &str) {
        let mut passes = 0;
        while let Verdict::Change(_) = self.look() {
            let before = self.segment.clone();
            if !self.segment.filling.is_empty() {
                assert_eq!(self.look(), Verdict::Filling, "{what}: {before:?}");
            }
            self.made();
            passes += 1;
            assert!(passes < 16, "{what}: it goes on: {:?}", self.segment);
        }
        let numbers = self.numbers();
        let columns = self.segment.columns.len();
        assert!(self.segment.is_coded() && self.segment.filling.is_empty(), "{what}");
        let is_enough = |number: usize| match number < columns {
            true => numbers[number] >= COPIES,
            false => numbers[number] == 1,
        };
        assert!((0..=columns).all(is_enough), "{what}: {numbers:?} {:?}", self.segment);
        let stay = self.sites.values().filter(|site| site.fit == Fit::Takes);
        let servers = stay.map(|site| site.home.server).collect::<BTreeSet<_>>().len();
        if !self.is_complete() && (servers - 1) * (servers - 2) / 2 >= columns {
            // It waits for other servers.
            return;
        }
        let all = self.segment.members().flat_map(|(_, member)| member.copies());
        let mut bad = all.filter(|(_, target)| self.sites[target].fit != Fit::Takes);
        assert_eq!(bad.next(), None, "{what}: {:?}", self.segment);
    }
}

/// The bytes of a column; the last ones are shorter.
fn bytes(column: usize) -> Vec<u8> {
    let len = 40 - 3 * column;
    (0..len).map(|at| (at * 31 + column * 57 + 11) as u8).collect()
}

/// The exclusive or of columns, each padded with zeros.
fn xor(columns: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut sum = vec![0; bytes(0).len()];
    for column in columns {
        sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// Every column without two servers, by what is left.
fn read_without(world: &World, dead: [u32; 2]) -> Option<Vec<Vec<u8>>> {
    let (columns, parity) = world.servers_of();
    let is_dead = |server: &u32| dead.contains(server);
    let is_lost = |number: &usize| columns[*number].iter().all(is_dead);
    let lost: Vec<usize> = (0..columns.len()).filter(is_lost).collect();
    let mut read: Vec<Vec<u8>> = (0..columns.len()).map(bytes).collect();
    match lost[..] {
        [] => {}
        [number] if !is_dead(&parity) => {
            let others = (0..columns.len()).filter(|other| *other != number).map(bytes);
            let parity = xor((0..columns.len()).map(bytes));
            let mut computed = xor(others.chain([parity]));
            computed.truncate(bytes(number).len());
            read[number] = computed;
        }
        _ => return None,
    }
    Some(read)
}

#[test]
fn every_two_servers_may_die_and_every_byte_is_there() {
    let mut pairs = 0;
    for servers in 4..=7_u32 {
        for each in 1..=2 {
            let targets = servers * each;
            let most = ((servers - 1) * (servers - 2) / 2).min(targets).min(8);
            for columns in 2..=most {
                let mut world = World::chained(servers, targets, columns);
                let what = format!("{columns} columns on {servers} servers of {each}");
                assert_eq!(world.settle(), Verdict::Fine, "{what}: {:?}", world.segment);
                assert!(world.is_complete(), "{what}: {:?}", world.segment);
                let all: Vec<Vec<u8>> = (0..columns as usize).map(bytes).collect();
                for first in 0..servers {
                    for second in first + 1..servers {
                        let read = read_without(&world, [first, second]);
                        assert_eq!(read.as_ref(), Some(&all), "{what}, {first} and {second}");
                        pairs += 1;
                    }
                }
            }
        }
    }
    assert!(pairs > 500, "{pairs}");
}

#[test]
fn six_servers_are_enough_for_eight_columns() {
    let mut world = World::chained(6, 12, 8);
    assert_eq!(world.settle(), Verdict::Fine);
    assert!(world.is_complete(), "{:?}", world.segment);
}

#[test]
fn what_a_lost_server_had_is_made_again_where_no_other_part_is_left_for_it() {
    for (servers, targets, chain, columns) in
        [(6, 6, 5, 4), (6, 6, 5, 5), (6, 12, 12, 8), (6, 6, 6, 6), (4, 4, 4, 3), (5, 5, 5, 4)]
    {
        for lost in 0..servers {
            for drains in [false, true] {
                let mut world = World::chained(servers, chain, columns);
                world.sites =
                    (0..targets).map(|target| (TargetId(target), site(target, servers))).collect();
                let what = format!("{columns} columns on {servers} servers without {lost}");
                assert_eq!(world.settle(), Verdict::Fine, "{what}");
                assert!(world.is_complete(), "{what}: {:?}", world.segment);
                match drains {
                    false => world.lose(lost),
                    true => {
                        let of = |target: &&u32| **target % servers == lost;
                        let all: Vec<u32> = (0..targets).collect();
                        for target in all.iter().filter(of) {
                            world.sites.get_mut(&TargetId(*target)).unwrap().fit = Fit::Leaves;
                        }
                    }
                }
                world.becomes_as_whole_as_it_can(&format!("{what}, drained: {drains}"));
            }
        }
    }
}

#[test]
fn a_lost_parity_has_a_part_of_its_own_again_if_the_columns_can_move() {
    let mut world = World::chained(6, 5, 4);
    world.sites.insert(TargetId(5), site(5, 6));
    assert_eq!(world.settle(), Verdict::Fine);
    assert_eq!(world.servers_of().1, 5, "the parity is where no column is");
    world.lose(5);
    world.becomes_as_whole_as_it_can("without the parity's server");
    assert!(world.is_complete(), "{:?}", world.segment);
}

#[test]
fn copies_stay_until_the_set_is_as_it_should_be() {
    let mut world = World::chained(6, 6, 5);
    assert!(matches!(world.look(), Verdict::Change(_)));
    assert_eq!((world.segment.state, world.segment.scheme), (SegmentState::Sealed, Scheme::Copies));
    assert_eq!(world.look(), Verdict::Filling, "the parity is not there yet");
    world.made();
    assert!(matches!(world.look(), Verdict::Change(_)) && world.segment.is_coded());
    let before = world.segment.clone();
    assert!(matches!(world.look(), Verdict::Change(_)), "one copy is beside the parity");
    assert!(!world.segment.filling.is_empty());
    for (old, new) in before.columns.iter().zip(&world.segment.columns) {
        let has = |column: &Column, target| column.copies().any(|(_, is)| is == target);
        assert!(old.copies().all(|(_, target)| has(new, target)), "nothing is dropped yet");
    }
    assert_eq!(world.settle(), Verdict::Fine);
    assert!(world.is_complete(), "{:?}", world.segment);
}

#[test]
fn where_servers_are_too_few_copies_stay_copies() {
    for (servers, columns) in [(3, 2), (4, 4), (2, 2)] {
        let mut world = World::chained(servers, 2 * servers, columns);
        assert_eq!(world.settle(), Verdict::Stuck, "{columns} columns on {servers} servers");
        assert_eq!(world.segment.state, SegmentState::Open);
    }
}

#[test]
fn who_writes_need_not_wait_for_copies() {
    let mut world = World::chained(6, 6, 5);
    world.settle();
    world.wish = Parities::None;
    assert!(matches!(world.look(), Verdict::Change(_)));
    assert_eq!(world.segment.state, SegmentState::Open, "both copies of each column are there");
    assert!(world.segment.filling.is_empty() && world.segment.parities.is_empty());
}

#[test]
fn a_set_with_one_parity_gets_second_copies_and_loses_them_again() {
    let mut world = World::chained(6, 6, 4);
    world.wish = Parities::Wished(1);
    assert_eq!(world.settle(), Verdict::Fine);
    let copies = |world: &World| -> Vec<usize> {
        world.segment.columns.iter().map(|column| column.copies().count()).collect()
    };
    assert_eq!(copies(&world), [1; 4]);
    world.wish = Parities::Mirrored;
    assert_eq!(world.settle(), Verdict::Fine);
    assert!(world.is_complete(), "{:?}", world.segment);
    world.wish = Parities::Wished(1);
    assert_eq!(world.settle(), Verdict::Fine);
    assert_eq!(copies(&world), [1; 4]);
}

/// What may happen between two looks.
#[derive(Clone, Debug)]
enum Event {
    Lost(u32),
    Away(u32),
    Leaves(u32),
    Back,
    Made,
    Wished(bool),
}

const SERVERS: u32 = 8;

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..SERVERS).prop_map(Event::Lost),
        1 => (0..SERVERS).prop_map(Event::Leaves),
        2 => (0..SERVERS).prop_map(Event::Away),
        1 => Just(Event::Back),
        4 => Just(Event::Made),
        1 => any::<bool>().prop_map(Event::Wished),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn whatever_gets_a_parity_becomes_as_it_should_be(
        servers in 4..8_u32,
        each in 1..=2_u32,
        copies in prop::collection::vec((any::<u32>(), any::<u32>()), 2..=8),
    ) {
        let targets = servers * each;
        let pair = |(one, other): &(u32, u32)| {
            let (one, apart) = (one % targets, 1 + other % (servers - 1));
            vec![one, (one + apart) % targets]
        };
        let mut world = World::new(servers, targets, &copies.iter().map(pair).collect::<Vec<_>>());
        world.look();
        if world.segment.state == SegmentState::Sealed {
            for _ in 0..64 {
                world.look();
                world.made();
            }
            prop_assert!(world.is_complete(), "{:?}", world.segment);
        }
    }

    #[test]
    fn while_no_more_than_two_servers_fail_until_a_set_is_whole_again_everything_is_there(
        columns in 2..=6_u32, events in prop::collection::vec(event(), 0..60)
    ) {
        let mut world = World::chained(SERVERS, SERVERS, columns);
        let mut bad = BTreeSet::new();
        for event in &events {
            // Copies bear one loss.
            let most = if world.segment.is_coded() && world.is_complete() { 2 } else { 1 };
            let may = |target: &u32, bad: &BTreeSet<u32>| bad.len() < most || bad.contains(target);
            match event {
                Event::Lost(target) if may(target, &bad) => {
                    bad.insert(*target);
                    let lost = Site { fit: Fit::Lost, online: false, ..site(*target, SERVERS) };
                    world.sites.insert(TargetId(*target), lost);
                }
                Event::Away(target) if may(target, &bad) => {
                    bad.insert(*target);
                    world.sites.get_mut(&TargetId(*target)).unwrap().online = false;
                }
                Event::Leaves(target) if may(target, &bad) => {
                    bad.insert(*target);
                    world.sites.get_mut(&TargetId(*target)).unwrap().fit = Fit::Leaves;
                }
                Event::Back => {
                    for (_, site) in world.sites.iter_mut().filter(|(_, s)| s.fit != Fit::Lost) {
                        site.online = true;
                    }
                    bad.retain(|target| world.sites[&TargetId(*target)].fit != Fit::Takes);
                }
                Event::Made => world.made(),
                Event::Wished(wished) => {
                    world.wish = if *wished { Parities::Mirrored } else { Parities::None };
                }
                Event::Lost(_) | Event::Away(_) | Event::Leaves(_) => {}
            }
            world.look();
            prop_assert!(world.is_there(), "after {event:?}: {:?}", world.segment);
            // A target that has nothing any more is another one when it comes back.
            let used: BTreeSet<u32> = world
                .segment
                .members()
                .flat_map(|(_, member)| member.copies())
                .map(|(_, target)| target.0)
                .collect();
            let is_whole = world.segment.filling.is_empty()
                && bad.iter().all(|target| !used.contains(target));
            if is_whole {
                for target in std::mem::take(&mut bad) {
                    world.sites.insert(TargetId(target), site(target, SERVERS));
                }
            }
        }
        for target in 0..SERVERS {
            let site = world.sites.get_mut(&TargetId(target)).unwrap();
            site.online |= site.fit != Fit::Lost;
        }
        world.wish = Parities::Mirrored;
        world.settle();
        prop_assert!(world.is_complete(), "{:?}", world.segment);
    }
}

use super::*;
use crate::mover::sites::Site;
use proptest::prelude::*;
use weir_layout::Home;
use weir_types::{Decode, Encode, Epoch, SegmentIndex, ServerId};

const TARGETS: u32 = 9;
const COLUMNS: u32 = 4;
const COPIES: usize = 3;
const WISHED: Parities = Parities::Wished(2);

/// What may happen between two looks at a segment.
#[derive(Clone, Debug)]
enum Event {
    Lost(u32),
    Away(u32),
    Back,
    Leaves(u32),
    Wished(bool),
    /// All that is being made is there, or only the first.
    Made(bool),
    Looked,
}

struct World {
    segment: Segment,
    sites: BTreeMap<TargetId, Site>,
    wish: Parities,
    copies: usize,
    servers: u32,
    /// Places with objects that are still to be removed.
    barred: BTreeSet<Place>,
}

/// On one of so many servers.
fn site(target: u32, servers: u32) -> Site {
    let home = Home::alone(ServerId(target % servers));
    Site { home, fit: Fit::Takes, online: true, free_bytes: u64::MAX }
}

impl World {
    /// Chained: the copies of a column are on the targets of the next columns, too.
    fn new() -> Self {
        Self::of_servers(TARGETS)
    }

    fn of_servers(servers: u32) -> Self {
        let copy = |column: u32, copy: u32| TargetId((column + copy) % TARGETS);
        let column =
            |column| Column { targets: (0..COPIES as u32).map(|n| copy(column, n)).collect() };
        let segment = Segment {
            index: SegmentIndex(3),
            start: 0,
            len: None,
            stripe_unit_bytes: 65536,
            columns: (0..COLUMNS).map(column).collect(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
            filling: Vec::new(),
            parities: Vec::new(),
        };
        let sites = (0..TARGETS).map(|target| (TargetId(target), site(target, servers))).collect();
        let barred = BTreeSet::new();
        Self { segment, sites, wish: WISHED, copies: COPIES, servers, barred }
    }

    fn sites(&self) -> Sites {
        Sites::new(self.sites.clone())
    }

    fn look(&mut self) -> Verdict {
        let relieved = BTreeSet::new();
        let whole = |(column, member): (ColumnIndex, &Column)| {
            let copies: Vec<_> = member.copies().map(|(copy, _)| (column, copy)).collect();
            copies
        };
        let settled = self.segment.members().flat_map(whole).collect();
        let wish = Wish {
            copies: self.copies,
            in_groups: false,
            relieved: &relieved,
            barred: &self.barred,
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
        let sites = self.sites();
        let column = ColumnIndex(number as u16);
        let mut copies = self.segment.member(number).unwrap().copies();
        copies
            .any(|(copy, target)| !self.segment.is_filling(column, copy) && sites.is_online(target))
    }

    /// Every column can be read, or computed.
    fn is_there(&self) -> bool {
        let all = (0..self.segment.columns.len()).all(|number| self.has_whole(number));
        all || decodes(&self.segment, &self.sites())
    }

    fn made(&mut self, all: bool) {
        let sites = self.sites();
        let is_made = |f: &Filling| {
            let target = self.segment.target(usize::from(f.column.0), f.copy);
            target.is_some_and(|target| sites.is_online(target)) && self.is_there()
        };
        let mut made: Vec<Filling> =
            self.segment.filling.iter().filter(|f| is_made(f)).copied().collect();
        made.truncate(if all { usize::MAX } else { 1 });
        self.segment.filling.retain(|f| !made.contains(f));
    }

    fn is_used(&self, target: TargetId) -> bool {
        self.segment.members().any(|(_, member)| member.targets.contains(&target))
    }

    fn happens(&mut self, event: &Event) {
        // A target that has nothing any more is another one when it comes back.
        for target in (0..TARGETS).map(TargetId) {
            if !self.is_used(target) && self.sites[&target].online {
                self.sites.insert(target, site(target.0, self.servers));
            }
        }
        let bad = |site: &&Site| site.fit != Fit::Takes || !site.online;
        let bad = self.sites.values().filter(bad).count();
        // As many as may be lost.
        let most = if self.segment.is_coded() { 2 } else { self.copies - 1 };
        match event {
            Event::Lost(target) if bad < most => {
                let lost = Site { fit: Fit::Lost, online: false, ..site(*target, self.servers) };
                self.sites.insert(TargetId(*target), lost);
            }
            Event::Away(target) if bad < most => {
                let away = Site { online: false, ..site(*target, self.servers) };
                self.sites.insert(TargetId(*target), away);
            }
            Event::Back => {
                let away = self.sites.values_mut().filter(|site| site.fit != Fit::Lost);
                away.for_each(|site| site.online = true);
            }
            Event::Leaves(target) if bad < most => {
                let leaves = Site { fit: Fit::Leaves, ..site(*target, self.servers) };
                self.sites.insert(TargetId(*target), leaves);
            }
            Event::Wished(wished) => self.wish = if *wished { WISHED } else { Parities::None },
            Event::Made(all) => self.made(*all),
            Event::Lost(_) | Event::Leaves(_) | Event::Away(_) | Event::Looked => {}
        }
        self.look();
    }

    fn settle(&mut self) -> Verdict {
        self.happens(&Event::Back);
        for _ in 0..64 {
            self.happens(&Event::Made(true));
        }
        self.look()
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..TARGETS).prop_map(Event::Lost),
        1 => (0..TARGETS).prop_map(Event::Leaves),
        2 => (0..TARGETS).prop_map(Event::Away),
        1 => Just(Event::Back),
        1 => any::<bool>().prop_map(Event::Wished),
        4 => any::<bool>().prop_map(Event::Made),
        2 => Just(Event::Looked),
    ]
}

/// Each column and parity has one copy, each on another target.
fn assert_encoded(world: &World) {
    let segment = &world.segment;
    assert!(segment.is_coded() && segment.filling.is_empty(), "{segment:?}");
    assert_eq!(segment.parities.len(), 2);
    let targets: Vec<TargetId> =
        segment.members().flat_map(|(_, member)| member.copies()).map(|(_, t)| t).collect();
    assert_eq!(targets.len(), COLUMNS as usize + 2, "{segment:?}");
    assert_eq!(targets.iter().collect::<BTreeSet<_>>().len(), targets.len(), "{segment:?}");
}

#[test]
fn copies_are_dropped_only_when_the_parities_are_whole() {
    let mut world = World::new();
    assert!(matches!(world.look(), Verdict::Change(_)));
    assert_eq!((world.segment.state, world.segment.scheme), (SegmentState::Sealed, Scheme::Copies));
    assert_eq!(world.look(), Verdict::Filling);
    world.made(false);
    assert_eq!(world.look(), Verdict::Filling, "one parity is not two");
    world.made(true);
    let copies = |world: &World| world.segment.columns[0].copies().count();
    assert!(matches!(world.look(), Verdict::Change(_)) && world.segment.is_coded());
    assert_eq!(copies(&world), COPIES);
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
}

#[test]
fn copies_that_stay_while_a_target_is_away_are_looked_at_again() {
    let mut world = World::new();
    world.look();
    world.made(true);
    assert!(matches!(world.look(), Verdict::Change(_)) && world.segment.is_coded());
    // The parity on it has no copy.
    let (_, away) = world.segment.parities[0].copies().next().unwrap();
    world.sites.get_mut(&away).unwrap().online = false;
    let segment = world.segment.clone();
    assert_eq!(world.look(), Verdict::Stuck, "nobody would look again at what is fine");
    assert_eq!(world.segment, segment);
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
}

#[test]
fn a_lost_column_is_made_behind_places_whose_objects_are_still_to_be_removed() {
    let mut world = World::new();
    assert_eq!(world.settle(), Verdict::Fine);
    let (_, lost) = world.segment.columns[0].copies().next().unwrap();
    let column = ColumnIndex(0);
    let place = |target| Place { column, copy: CopyIndex(1), target: TargetId(target) };
    world.barred = (0..TARGETS).map(place).collect();
    world.sites.insert(lost, Site { fit: Fit::Lost, online: false, ..site(lost.0, TARGETS) });
    assert!(matches!(world.look(), Verdict::Change(_)));
    let copies: Vec<CopyIndex> = world.segment.columns[0].copies().map(|(copy, _)| copy).collect();
    assert_eq!(copies, [CopyIndex(0), CopyIndex(2)]);
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
}

#[test]
fn who_wants_to_write_has_the_parities_dropped_when_there_are_copies() {
    let mut world = World::new();
    world.look();
    world.wish = Parities::None;
    assert!(matches!(world.look(), Verdict::Change(_)), "nothing was encoded yet");
    assert_eq!(world.segment.state, SegmentState::Open);
    world.wish = WISHED;
    world.settle();
    world.wish = Parities::None;
    world.look();
    assert!(world.segment.is_coded() && !world.segment.filling.is_empty(), "copies come first");
    assert_eq!(world.settle(), Verdict::Fine);
    assert_eq!(world.segment.state, SegmentState::Open);
    assert!(world.segment.columns.iter().all(|column| column.copies().count() == COPIES));
}

#[test]
fn who_is_away_for_a_while_is_waited_for() {
    let mut world = World::new();
    world.settle();
    let before = world.segment.clone();
    for target in [0, 1] {
        world.happens(&Event::Away(target));
    }
    assert_eq!(world.segment, before);
    world.happens(&Event::Lost(0));
    assert_eq!(world.segment, before, "two are away already");
    world.sites.insert(TargetId(0), Site { fit: Fit::Lost, online: false, ..site(0, TARGETS) });
    world.look();
    assert_ne!(world.segment, before);
}

#[test]
fn a_column_that_is_away_is_computed_for_a_writer_before_the_parities_go() {
    for copies in [1, 2] {
        let mut world = World::new();
        world.settle();
        world.copies = copies;
        world.wish = Parities::None;
        let target = world.segment.columns[2].copies().next().unwrap().1;
        world.happens(&Event::Away(target.0));
        let is_made = |world: &World| {
            let of_it = |f: &&Filling| f.column == ColumnIndex(2);
            world.segment.is_coded() && world.segment.filling.iter().filter(of_it).count() == copies
        };
        assert!(is_made(&world), "{:?}", world.segment);
        assert_eq!(world.look(), Verdict::Filling);
        assert!(is_made(&world), "{:?}", world.segment);
        world.made(true);
        while world.segment.is_coded() {
            assert!(matches!(world.look(), Verdict::Change(_)), "{:?}", world.segment);
        }
        assert_eq!(world.segment.state, SegmentState::Open);
        assert!((0..4).all(|number| world.has_whole(number)), "{:?}", world.segment);
    }
}

#[test]
fn parities_stay_as_long_as_a_column_can_neither_be_read_nor_computed_anew() {
    let mut world = World::new();
    world.copies = 1;
    world.settle();
    world.wish = Parities::None;
    let used: Vec<TargetId> = world.segment.columns.iter().map(|c| c.targets[0]).collect();
    for target in &used[..3] {
        world.sites.get_mut(target).unwrap().online = false;
    }
    assert_eq!(world.look(), Verdict::Stuck, "three are too many");
    assert!(world.segment.is_coded());
    world.happens(&Event::Back);
    assert_eq!(world.segment.state, SegmentState::Open);
}

#[test]
fn while_parities_are_made_what_columns_need_and_full_targets_come_first() {
    let full = |world: &mut World, target: TargetId| {
        world.sites.get_mut(&target).unwrap().free_bytes = 0;
    };
    let lost = |world: &mut World, target: TargetId| {
        *world.sites.get_mut(&target).unwrap() =
            Site { fit: Fit::Lost, online: false, ..site(target.0, TARGETS) };
    };
    for of_column in [true, false] {
        let mut world = World::new();
        world.look();
        assert_eq!(world.look(), Verdict::Filling);
        match of_column {
            true => {
                let target = world.segment.columns[0].targets[0];
                lost(&mut world, target);
            }
            false => {
                let target = world.segment.parities[0].copies().next().unwrap().1;
                full(&mut world, target);
            }
        }
        assert!(matches!(world.look(), Verdict::Change(_)));
        assert_eq!(world.segment.state, SegmentState::Open);
        assert_eq!(world.settle(), Verdict::Fine);
        assert_encoded(&world);
    }
}

/// Three servers of three targets each, whose copies are on different ones.
fn few_servers() -> World {
    World::of_servers(3)
}

fn most_on_one_server(world: &World) -> usize {
    let all = || world.segment.members().flat_map(|(_, member)| member.copies());
    let on = |server| all().filter(|(_, target)| target.0 % 3 == server).count();
    (0..3).map(on).max().unwrap()
}

#[test]
fn no_server_has_more_than_there_are_parities() {
    let mut world = few_servers();
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
    assert_eq!(most_on_one_server(&world), 2, "{:?}", world.segment);
    for (_, site) in world.sites.iter_mut().filter(|(target, _)| target.0 % 3 == 1) {
        site.online = false;
    }
    assert!(decodes(&world.segment, &world.sites()), "without one server");
    // While there are only two, the others have more.
    let before = world.sites.clone();
    for (_, site) in world.sites.iter_mut().filter(|(target, _)| target.0 % 3 == 1) {
        site.fit = Fit::Lost;
    }
    world.settle();
    assert_encoded(&world);
    assert_eq!(most_on_one_server(&world), 3, "{:?}", world.segment);
    let segment = world.segment.clone();
    world.settle();
    assert_eq!(world.segment, segment, "nothing can be better");
    world.sites = before;
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
    assert_eq!(most_on_one_server(&world), 2, "{:?}", world.segment);
}

#[test]
fn copies_stay_as_long_as_a_server_would_have_too_many_without_them() {
    let mut world = few_servers();
    world.look();
    world.made(true);
    assert!(matches!(world.look(), Verdict::Change(_)) && world.segment.is_coded());
    let before = world.sites.clone();
    for (_, site) in world.sites.iter_mut().filter(|(target, _)| target.0 % 3 == 1) {
        (site.fit, site.online) = (Fit::Lost, false);
    }
    world.settle();
    assert!((0..6).all(|number| world.has_whole(number)), "{:?}", world.segment);
    let copies = world.segment.columns.iter().map(|column| column.copies().count());
    assert!(copies.max().unwrap() > 1, "{:?}", world.segment);
    world.sites = before;
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
    assert_eq!(most_on_one_server(&world), 2, "{:?}", world.segment);
}

#[test]
fn columns_whose_only_copies_are_on_one_server_are_made_on_others_beside_parities() {
    let mut world = few_servers();
    world.copies = 1;
    for (column, target) in world.segment.columns.iter_mut().zip([0, 3, 6, 1]) {
        column.targets = vec![TargetId(target)];
    }
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
    assert_eq!(most_on_one_server(&world), 2, "{:?}", world.segment);
}

#[test]
fn copies_on_too_few_targets_stay_until_each_column_is_on_one_of_its_own() {
    let mut world = World::new();
    for (number, column) in world.segment.columns.iter_mut().enumerate() {
        column.targets = (0..3).map(|copy| TargetId((number as u32 + copy) % 3)).collect();
    }
    let copies = |world: &World| world.segment.columns.iter().map(|c| c.copies().count()).min();
    assert!(matches!(world.look(), Verdict::Change(_)));
    world.made(true);
    assert!(matches!(world.look(), Verdict::Change(_)) && world.segment.is_coded());
    assert!(matches!(world.look(), Verdict::Change(_)) && !world.segment.filling.is_empty());
    assert_eq!(copies(&world), Some(COPIES), "nothing is dropped yet");
    assert_eq!(world.settle(), Verdict::Fine);
    assert_encoded(&world);
}

#[test]
fn copies_on_too_few_targets_stay_copies_while_there_are_no_others() {
    let mut world = World::new();
    world.sites.retain(|target, _| target.0 < 3 + 2);
    for (number, column) in world.segment.columns.iter_mut().enumerate() {
        column.targets = (0..3).map(|copy| TargetId((number as u32 + copy) % 3)).collect();
    }
    assert_eq!(world.look(), Verdict::Stuck);
    assert_eq!(world.segment.state, SegmentState::Open);
}

#[test]
fn without_targets_for_the_parities_copies_stay() {
    let mut world = World::new();
    world.sites.retain(|target, _| target.0 < COLUMNS + 1);
    world.segment.columns[3].targets[2] = TargetId(0);
    world.segment.columns[3].targets[1] = TargetId(4);
    assert_eq!(world.look(), Verdict::Stuck);
    assert_eq!(world.segment.state, SegmentState::Open);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn whatever_two_targets_are_lost_and_whoever_writes_everything_is_there(
        copies in 1..=COPIES, events in prop::collection::vec(event(), 0..60)
    ) {
        let mut world = World::new();
        world.copies = copies;
        for event in &events {
            let was_coded = world.segment.is_coded();
            world.happens(event);
            prop_assert!(world.is_there(), "after {event:?}: {:?}", world.segment);
            let mut columns = 0..world.segment.columns.len();
            let gone = was_coded && !world.segment.is_coded();
            prop_assert!(!gone || columns.all(|number| world.has_whole(number)));
        }
        world.wish = WISHED;
        world.settle();
        // With fewer copies columns may be left on fewer targets than there are columns.
        if copies == COPIES || world.segment.is_coded() {
            assert_encoded(&world);
        }
        world.wish = Parities::None;
        world.settle();
        prop_assert_eq!(world.segment.state, SegmentState::Open);
        let whole = |c: &Column| c.copies().count() == copies;
        prop_assert!(world.segment.columns.iter().all(whole), "{:?}", world.segment);
    }
}

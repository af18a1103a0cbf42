use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A list and its rules for access and inheritance, word for word from acl(5).
#[derive(Clone, Debug, Default)]
struct Plain {
    owner: u16,
    users: BTreeMap<u32, u16>,
    owning_group: u16,
    groups: BTreeMap<u32, u16>,
    mask: Option<u16>,
    other: u16,
}

impl Plain {
    fn bytes(&self) -> Vec<u8> {
        let mut entries = vec![(0x01, self.owner, NOBODY)];
        entries.extend(self.users.iter().map(|(id, bits)| (0x02, *bits, *id)));
        entries.push((0x04, self.owning_group, NOBODY));
        entries.extend(self.groups.iter().map(|(id, bits)| (0x08, *bits, *id)));
        entries.extend(self.mask.map(|bits| (0x10, bits, NOBODY)));
        entries.push((0x20, self.other, NOBODY));
        raw(&entries)
    }

    /// "ACCESS CHECK ALGORITHM".
    fn allows(&self, caller: &Caller, (uid, gid): (u32, u32), wanted: u16) -> bool {
        let contains = |bits: u16| wanted & !bits == 0;
        if caller.uid == uid {
            return contains(self.owner);
        }
        if let Some(bits) = self.users.get(&caller.uid) {
            return contains(*bits) && self.mask.is_none_or(contains);
        }
        let mut matching = Vec::new();
        if caller.in_group(gid) {
            matching.push(self.owning_group);
        }
        matching.extend(self.groups.iter().filter(|(id, _)| caller.in_group(**id)).map(|g| *g.1));
        if !matching.is_empty() {
            return matching.into_iter().any(contains) && self.mask.is_none_or(contains);
        }
        contains(self.other)
    }

    /// "OBJECT CREATION AND DEFAULT ACLs".
    fn inherited(&self, mode: u16) -> Self {
        let mut new = self.clone();
        new.owner &= mode >> 6;
        new.other &= mode;
        match &mut new.mask {
            Some(mask) => *mask &= mode >> 3,
            None => new.owning_group &= mode >> 3,
        }
        new
    }

    /// "CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS".
    fn mode(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.owning_group) << 3 | self.other
    }
}

fn raw(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn plain() -> impl Strategy<Value = Plain> {
    let bits = || 0u16..8;
    let named = || proptest::collection::btree_map(0u32..6, 0u16..8, 0..4);
    (bits(), named(), bits(), named(), proptest::option::of(bits()), bits()).prop_map(
        |(owner, users, owning_group, groups, mask, other)| {
            let needed = !users.is_empty() || !groups.is_empty();
            let mask = mask.or(needed.then_some(5));
            Plain { owner, users, owning_group, groups, mask, other }
        },
    )
}

proptest! {
    #[test]
    fn access_is_as_the_standard_says(
        list in plain(), uid in 0u32..6, gid in 0u32..6,
        groups in proptest::collection::vec(0u32..6, 0..3), owner in 0u32..6, group in 0u32..6,
    ) {
        let acl = Acl::decode(&list.bytes()).unwrap().unwrap();
        prop_assert_eq!(acl.encode(), list.bytes());
        let caller = Caller { uid, gid, groups };
        for wanted in 0..8 {
            let expected = list.allows(&caller, (owner, group), wanted);
            prop_assert_eq!(acl.allows(&caller, (owner, group), wanted), expected, "{}", wanted);
        }
    }

    #[test]
    fn inheritance_and_chmod_are_as_the_standard_says(list in plain(), mode in 0u16..0o10000) {
        let acl = Acl::decode(&list.bytes()).unwrap().unwrap();
        let is_all = list.mask.is_none() && list.users.is_empty() && list.groups.is_empty();
        prop_assert_eq!(acl.mode(), (list.mode(), is_all));
        let (new, made) = acl.inherited(mode);
        let expected = list.inherited(mode);
        prop_assert_eq!(new.encode(), expected.bytes());
        prop_assert_eq!(made, mode & 0o7000 | expected.mode());
        let mut changed = acl;
        changed.set_mode(mode);
        prop_assert_eq!(changed.mode().0, mode & 0o777);
        let kept = |acl: &Acl| acl.entries.iter().filter(|entry| {
            matches!(entry.who, Who::User(_) | Who::Group(_))
        }).copied().collect::<Vec<_>>();
        prop_assert_eq!(kept(&changed), kept(&new), "named entries stay");
    }

    #[test]
    fn strangers_get_what_some_stranger_gets(list in plain(), gid in 0u32..6) {
        let acl = Acl::decode(&list.bytes()).unwrap().unwrap();
        let mut some = 0;
        // 99 owns it. Users and groups that are not named are as 77.
        for uid in (1..6).chain([77]) {
            for group in (1..6).chain([77]) {
                let caller = Caller { uid, gid: group, groups: Vec::new() };
                for bit in [1, 2, 4] {
                    some |= if acl.allows(&caller, (99, gid), bit) { bit } else { 0 };
                }
            }
        }
        prop_assert_eq!(acl.bits_of_strangers(gid) | some, acl.bits_of_strangers(gid));
    }

    #[test]
    fn garbage_is_refused_or_is_a_list(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(Some(acl)) = Acl::decode(&bytes) {
            prop_assert_eq!(acl.encode().len(), bytes.len());
        }
    }
}

const OWNER: (u16, u16, u32) = (0x01, 6, NOBODY);
const USER: (u16, u16, u32) = (0x02, 6, 5);
const OWNING_GROUP: (u16, u16, u32) = (0x04, 4, NOBODY);
const GROUP: (u16, u16, u32) = (0x08, 4, 5);
const MASK: (u16, u16, u32) = (0x10, 7, NOBODY);
const OTHER: (u16, u16, u32) = (0x20, 0, NOBODY);

#[test]
fn what_is_no_list_is_refused_as_on_linux() {
    let good: [&[(u16, u16, u32)]; 4] = [
        &[OWNER, OWNING_GROUP, OTHER],
        &[OWNER, OWNING_GROUP, MASK, OTHER],
        &[OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER],
        // The first one counts.
        &[OWNER, USER, USER, OWNING_GROUP, MASK, OTHER],
    ];
    for entries in good {
        assert!(Acl::decode(&raw(entries)).unwrap().is_some(), "{entries:?}");
    }
    let bad: [&[(u16, u16, u32)]; 12] = [
        &[OWNER, OWNING_GROUP],
        &[OWNER, OTHER],
        &[OWNING_GROUP, OTHER],
        &[OWNER, OWNER, OWNING_GROUP, OTHER],
        &[OWNER, OWNING_GROUP, OTHER, OTHER],
        &[OWNER, OWNING_GROUP, MASK, MASK, OTHER],
        &[OWNING_GROUP, OWNER, OTHER],
        &[OWNER, OWNING_GROUP, USER, MASK, OTHER],
        &[OWNER, USER, OWNING_GROUP, OTHER],
        &[(0x01, 8, NOBODY), OWNING_GROUP, OTHER],
        &[OWNER, (0x02, 6, NOBODY), OWNING_GROUP, MASK, OTHER],
        &[OWNER, OWNING_GROUP, (0x40, 0, NOBODY), OTHER],
    ];
    for entries in bad {
        assert_eq!(Acl::decode(&raw(entries)), Err(ErrorKind::InvalidArgument), "{entries:?}");
    }
    let list = raw(&[OWNER, OWNING_GROUP, OTHER]);
    for cut in 1..list.len() {
        let whole = cut == 4;
        assert_eq!(Acl::decode(&list[..cut]).is_ok(), whole, "{cut} bytes");
    }
    // None at all.
    assert_eq!(Acl::decode(&[]), Ok(None));
    assert_eq!(Acl::decode(&raw(&[])), Ok(None));
    let other = [&[3, 0, 0, 0], &list[4..]].concat();
    assert_eq!(Acl::decode(&other), Err(ErrorKind::Unsupported));
}

#[test]
fn as_many_entries_as_linux_fetches_and_no_more() {
    let list = |users: usize| {
        let named = (0..users as u32).map(|id| (0x02, 4, id));
        let rest = [OWNING_GROUP, MASK, OTHER];
        raw(&[OWNER].into_iter().chain(named).chain(rest).collect::<Vec<_>>())
    };
    assert_eq!(MAX_ENTRIES, 511);
    let most = Acl::decode(&list(MAX_ENTRIES - 4)).unwrap().unwrap();
    assert!(most.encode().len() <= 4096);
    assert_eq!(Acl::decode(&list(MAX_ENTRIES - 3)), Err(ErrorKind::TooBig));
}

//! What a key does not let its client do, whatever the client says.

use crate::harness::*;
use weir_metaserver::schema::{self, Body, Inode, key};
use weir_metastore::{Engine, ModelEngine, transact};
use weir_types::restrictions::{NOBODY, plain_client, recorded_client};
use weir_types::{
    Caller, ClientId, ClientStanding, Error, ErrorKind, FileId, FileKind, Restrictions, SessionId,
    Squash,
};
use weir_wire::Rights;
use weir_wire::handshake::Identity;
use weir_wire::meta::*;

const ROOT: FileId = FileId::ROOT;
const GUEST: ClientId = ClientId(77);

struct Fixture {
    c: Cluster<ModelEngine>,
    admin: Client,
    guest: Client,
}

impl Fixture {
    fn new(restrictions: Restrictions) -> Self {
        let mut c = Cluster::new(2);
        let admin = c.client(root());
        c.set_client(GUEST, restrictions);
        let guest = c.session_of(GUEST, root());
        Self { c, admin, guest }
    }

    fn attr(&mut self, file: FileId) -> weir_types::Attr {
        self.c.getattr(&self.admin, file).unwrap()
    }

    fn chmod(&mut self, file: FileId, mode: u16) {
        let set = SetAttrRequest { mode: Some(mode), ..set_nothing(file) };
        self.c.make(&mut self.admin, &set).unwrap();
    }

    fn as_guest(&mut self, caller: Caller) -> Client {
        self.c.session_of(GUEST, caller)
    }
}

fn read_only() -> Restrictions {
    Restrictions { read_only: true, ..Restrictions::NONE }
}
fn squash(squash: Squash) -> Restrictions {
    Restrictions { squash, ..Restrictions::NONE }
}
fn below(dir: FileId) -> Restrictions {
    Restrictions { subtree: Some(dir), ..Restrictions::NONE }
}

fn name(text: &str) -> weir_types::codec::Bytes {
    text.as_bytes().into()
}
fn link(file: FileId, parent: FileId, text: &str) -> LinkRequest {
    LinkRequest { file, parent, name: name(text) }
}
fn open(file: FileId, rights: Rights) -> OpenRequest {
    OpenRequest { file, rights }
}

#[test]
fn a_read_only_key_reads_and_changes_nothing() {
    let mut f = Fixture::new(read_only());
    let made = f.c.create(&mut f.admin, ROOT, "f");
    let file = made.attr.file;
    let (c, guest) = (&mut f.c, &mut f.guest);
    assert_eq!(c.lookup(guest, ROOT, "f").unwrap().file, file);
    let opened = c.make(guest, &open(file, Rights::READ)).unwrap();
    assert_eq!(opened.capability.capability.rights, Rights::READ);
    // As O_CREAT does where the file is there.
    let there =
        CreateRequest { exclusive: false, rights: Rights::READ, ..create_request(ROOT, "f") };
    assert_eq!(c.make(guest, &there).unwrap().attr.file, file);

    let mut refused = 0;
    macro_rules! refused {
        ($($request:expr),* $(,)?) => {$(
            assert_eq!(kind(c.make(guest, &$request)), ErrorKind::ReadOnly, "{}", stringify!($request));
            refused += 1;
        )*};
    }
    refused![
        open(file, Rights::WRITE),
        open(file, Rights::READ_WRITE),
        create_request(ROOT, "new"),
        CreateRequest { truncate: true, ..there.clone() },
        CreateRequest { name: name("new"), ..there.clone() },
        CreateRequest { rights: Rights::READ_WRITE, ..there.clone() },
        CreateRequest { kind: FileKind::Fifo, ..create_request(ROOT, "fifo") },
        MkdirRequest { parent: ROOT, name: name("d"), mode: 0o755, umask: 0 },
        SymlinkRequest { parent: ROOT, name: name("s"), target: name("f") },
        UnlinkRequest { parent: ROOT, name: name("f"), hold: false },
        RmdirRequest { parent: ROOT, name: name("f") },
        rename_request((ROOT, "f"), (ROOT, "g")),
        link(file, ROOT, "g"),
        set_size(file, 0),
        SetAttrRequest { mode: Some(0), ..set_nothing(file) },
        SetXattrRequest { file, name: name("user.a"), value: name("b"), mode: XattrMode::Any },
        RemoveXattrRequest { file, name: name("user.a") },
        ExtendRequest::covering(file, 0),
        commit(&made, 9),
        TruncateDoneRequest { file, generation: made.attr.generation },
        SetLayoutRequest { file, layout: None },
    ];
    assert_eq!(refused, 21);
    let layout = GetLayoutRequest { file, offset: 0, rights: Rights::READ_WRITE };
    assert_eq!(kind(c.ask(guest, &layout)), ErrorKind::ReadOnly);
    let layout = GetLayoutRequest { rights: Rights::READ, ..layout };
    assert_eq!(c.ask(guest, &layout).unwrap().capability.capability.rights, Rights::READ);
    assert_eq!(f.c.list(&f.admin, ROOT), ["f"]);

    // Not by saying after a restart what it has open, either.
    let Fixture { c, admin: _, guest } = f;
    let mut c = c.restart();
    c.ask(&guest, &reassert(&[file])).unwrap();
    assert_eq!(kind(c.ask(&guest, &ExtendRequest::covering(file, 0))), ErrorKind::ReadOnly);
}

#[test]
fn a_squashed_superuser_is_nobody_and_others_are_who_they_are() {
    let mut f = Fixture::new(squash(Squash::Root));
    let secret = f.c.create(&mut f.admin, ROOT, "secret").attr.file;
    f.c.close(&mut f.admin, secret);
    f.chmod(secret, 0o600);
    f.chmod(ROOT, 0o777);
    let got = f.c.make(&mut f.guest, &open(secret, Rights::READ));
    assert_eq!(kind(got), ErrorKind::AccessDenied);
    let made = f.c.create(&mut f.guest, ROOT, "made").attr;
    assert_eq!((made.uid, made.gid), (NOBODY, NOBODY));
    let chown = SetAttrRequest { uid: Some(0), ..set_nothing(made.file) };
    assert_eq!(kind(f.c.make(&mut f.guest, &chown)), ErrorKind::NotPermitted);
    let device = CreateRequest { kind: FileKind::BlockDevice, ..create_request(ROOT, "sda") };
    assert_eq!(kind(f.c.make(&mut f.guest, &device)), ErrorKind::NotPermitted);

    // Neither is group 0 theirs, and a user is who it says.
    let group = f.c.create(&mut f.admin, ROOT, "group").attr.file;
    f.chmod(group, 0o060);
    let user_of_root = f.as_guest(user(5, 0, &[0]));
    let got = f.c.ask(&user_of_root, &open(group, Rights::READ));
    assert_eq!(kind(got), ErrorKind::AccessDenied);
    let mut plain = f.as_guest(user(5, 6, &[7]));
    let made = f.c.create(&mut plain, ROOT, "plain").attr;
    assert_eq!((made.uid, made.gid), (5, 6));
}

#[test]
fn with_all_squashed_every_caller_is_one_user() {
    let all = Restrictions { anon_uid: 40, anon_gid: 41, ..squash(Squash::All) };
    let mut f = Fixture::new(all);
    f.chmod(ROOT, 0o777);
    let file = f.c.create(&mut f.admin, ROOT, "of-50").attr.file;
    let owner = SetAttrRequest { uid: Some(50), gid: Some(51), ..set_nothing(file) };
    f.c.make(&mut f.admin, &owner).unwrap();
    f.chmod(file, 0o640);
    for caller in [user(50, 1, &[]), user(1, 51, &[]), user(1, 1, &[51]), root()] {
        let who = f.as_guest(caller);
        assert_eq!(kind(f.c.ask(&who, &open(file, Rights::READ))), ErrorKind::AccessDenied);
    }
    let made = f.c.create(&mut f.guest, ROOT, "made").attr;
    assert_eq!((made.uid, made.gid), (40, 41));
}

#[test]
fn a_squashed_client_cannot_say_after_a_restart_that_it_may_write() {
    for how in [Squash::Root, Squash::All] {
        let mut f = Fixture::new(squash(how));
        let secret = f.c.create(&mut f.admin, ROOT, "secret").attr.file;
        f.chmod(secret, 0o600);
        let readable = f.c.create(&mut f.admin, ROOT, "readable").attr.file;
        f.chmod(readable, 0o604);
        let Fixture { c, guest, .. } = f;
        let mut c = c.restart();
        c.ask(&guest, &reassert(&[secret, readable])).unwrap();
        let layout = |file, rights| GetLayoutRequest { file, offset: 0, rights };
        let got = c.ask(&guest, &layout(secret, Rights::READ));
        assert_eq!(kind(got), ErrorKind::AccessDenied);
        let got = c.ask(&guest, &layout(readable, Rights::WRITE));
        assert_eq!(kind(got), ErrorKind::AccessDenied);
        c.ask(&guest, &layout(readable, Rights::READ)).unwrap();
    }
}

#[test]
fn writing_to_a_setuid_program_drops_the_bit_also_for_a_squashed_mount() {
    let mut f = Fixture::new(squash(Squash::Root));
    f.chmod(ROOT, 0o777);
    let mut owner = f.as_guest(user(5, 6, &[]));
    let file = f.c.create(&mut owner, ROOT, "program").attr.file;
    f.chmod(file, 0o6755);
    // The mount does it in its own name, which is the superuser's.
    owner.caller = root();
    let other = SetAttrRequest { mode: Some(0o777), ..set_nothing(file) };
    assert_eq!(kind(f.c.make(&mut owner, &other)), ErrorKind::NotPermitted);
    let drop = SetAttrRequest { mode: Some(0o755), ..set_nothing(file) };
    assert_eq!(f.c.make(&mut owner, &drop).unwrap().attr.mode, 0o755);
    f.chmod(file, 0o6755);
    f.c.close(&mut owner, file);
    assert_eq!(kind(f.c.make(&mut owner, &drop)), ErrorKind::NotPermitted, "it is not open");
}

/// `/out/f`, `/in/sub/g`, and a guest below `/in`.
struct Tree {
    f: Fixture,
    outside: FileId,
    out_file: FileId,
    inside: FileId,
    sub: FileId,
    in_file: FileId,
}

fn tree() -> Tree {
    let mut f = Fixture::new(Restrictions::NONE);
    let outside = f.c.mkdir(&mut f.admin, ROOT, "out");
    let out_file = f.c.create(&mut f.admin, outside, "f").attr.file;
    let inside = f.c.mkdir(&mut f.admin, ROOT, "in");
    let sub = f.c.mkdir(&mut f.admin, inside, "sub");
    let in_file = f.c.create(&mut f.admin, sub, "g").attr.file;
    f.c.set_client(GUEST, below(inside));
    f.guest = f.c.session_of(GUEST, root());
    Tree { f, outside, out_file, inside, sub, in_file }
}

#[test]
fn the_subtree_is_the_root_and_nothing_is_above_it() {
    let Tree { mut f, inside, sub, in_file, .. } = tree();
    let (c, guest) = (&mut f.c, &mut f.guest);
    assert_eq!(c.getattr(guest, ROOT).unwrap().file, ROOT);
    assert_eq!(c.list(guest, ROOT), ["sub"]);
    assert_eq!(c.lookup(guest, ROOT, "sub").unwrap().file, sub);
    for (dir, dots) in [(ROOT, ".."), (ROOT, "."), (inside, ".."), (sub, "..")] {
        let own_root = c.getattr(guest, ROOT).unwrap();
        assert_eq!(c.lookup(guest, dir, dots).unwrap(), own_root, "{dots} of {dir}");
    }
    assert_eq!(c.lookup(guest, sub, "g").unwrap().file, in_file);
    let mode = SetAttrRequest { mode: Some(0o700), ..set_nothing(ROOT) };
    assert_eq!(c.make(guest, &mode).unwrap().attr.file, ROOT);
    let made = c.mkdir(guest, ROOT, "made");
    assert_eq!(f.attr(inside).mode, 0o700, "it was the subtree's root that changed");
    assert_eq!(f.c.lookup(&f.admin, inside, "made").unwrap().file, made);
    assert_eq!(f.attr(ROOT).mode, 0o755);
}

#[test]
fn what_is_outside_does_not_exist_whichever_way_its_number_was_learned() {
    let Tree { mut f, outside, out_file, in_file, sub, .. } = tree();
    let (c, guest) = (&mut f.c, &mut f.guest);
    let nonsense = FileId(1 << 50);
    for file in [outside, out_file, nonsense] {
        let error = c.getattr(guest, file).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Stale, ""), "{file}");
    }
    macro_rules! stale {
        ($($request:expr),* $(,)?) => {$(
            assert_eq!(kind(c.make(guest, &$request)), ErrorKind::Stale, "{}", stringify!($request));
        )*};
    }
    stale![
        open(out_file, Rights::READ),
        create_request(outside, "new"),
        link(out_file, ROOT, "stolen"),
        link(in_file, outside, "given"),
        rename_request((sub, "g"), (outside, "g")),
        rename_request((outside, "f"), (ROOT, "f")),
        RenameRequest { exchange: true, ..rename_request((sub, "g"), (outside, "f")) },
        UnlinkRequest { parent: outside, name: name("f"), hold: false },
        set_size(out_file, 0),
    ];
    let layout = GetLayoutRequest { file: out_file, offset: 0, rights: Rights::NONE };
    assert_eq!(kind(c.ask(guest, &layout)), ErrorKind::Stale);
    for cookie in [0, 3, u64::MAX] {
        let list = ReaddirRequest {
            last: 0,
            dir: outside,
            cookie,
            max_entries: 9,
            attributes: true,
            layouts: false,
        };
        assert_eq!(kind(c.ask(guest, &list)), ErrorKind::Stale);
    }
    // What it says to have open does not count either.
    let Fixture { c, guest, .. } = f;
    let mut c = c.restart();
    c.ask(&guest, &reassert(&[out_file, in_file])).unwrap();
    assert_eq!(kind(c.ask(&guest, &layout)), ErrorKind::Stale);
    let layout = GetLayoutRequest { file: in_file, ..layout };
    c.ask(&guest, &layout).unwrap();
}

#[test]
fn a_file_is_inside_while_one_of_its_names_is() {
    let Tree { mut f, outside, out_file, sub, in_file, .. } = tree();
    let (c, admin) = (&mut f.c, &mut f.admin);
    // The name made last is outside; the one inside counts.
    c.make(admin, &link(in_file, outside, "g")).unwrap();
    c.make(admin, &link(in_file, outside, "h")).unwrap();
    c.getattr(&f.guest, in_file).unwrap();
    // A name inside for what was outside, and it goes again.
    assert_eq!(kind(c.getattr(&f.guest, out_file)), ErrorKind::Stale);
    c.make(admin, &link(out_file, sub, "f")).unwrap();
    c.make(admin, &link(out_file, outside, "f2")).unwrap();
    c.getattr(&f.guest, out_file).unwrap();
    c.unlink(admin, sub, "f").unwrap();
    assert_eq!(kind(c.getattr(&f.guest, out_file)), ErrorKind::Stale);
    // The name inside goes; the file has two left outside.
    c.unlink(admin, sub, "g").unwrap();
    assert_eq!(kind(c.getattr(&f.guest, in_file)), ErrorKind::Stale);
    c.make(admin, &rename_request((outside, "g"), (sub, "g"))).unwrap();
    c.getattr(&f.guest, in_file).unwrap();
    let swap = RenameRequest { exchange: true, ..rename_request((sub, "g"), (outside, "f")) };
    c.make(admin, &swap).unwrap();
    c.getattr(&f.guest, out_file).unwrap();
    assert_eq!(kind(c.getattr(&f.guest, in_file)), ErrorKind::Stale);
    // With its last name all records of it go.
    for text in ["f", "h"] {
        assert!(c.unlink(admin, outside, text).unwrap().attr.is_some());
    }
    assert_eq!(c.keys("b/"), 2, "sub/g and out/f2 are left");
}

#[test]
fn a_directory_that_is_moved_out_is_outside_from_then_on() {
    let Tree { mut f, outside, inside, sub, in_file, .. } = tree();
    let opened = f.c.make(&mut f.guest, &open(in_file, Rights::READ_WRITE)).unwrap();
    f.c.make(&mut f.admin, &rename_request((inside, "sub"), (outside, "sub"))).unwrap();
    let (c, guest) = (&mut f.c, &mut f.guest);
    for file in [sub, in_file] {
        assert_eq!(kind(c.getattr(guest, file)), ErrorKind::Stale);
    }
    assert_eq!(kind(c.lookup(guest, sub, "..")), ErrorKind::Stale);
    assert_eq!(kind(c.make(guest, &commit(&opened, 9))), ErrorKind::Stale);
    let layout = GetLayoutRequest { file: in_file, offset: 0, rights: Rights::READ };
    assert_eq!(kind(c.ask(guest, &layout)), ErrorKind::Stale);
    c.close(guest, in_file);
    // And back.
    c.make(&mut f.admin, &rename_request((outside, "sub"), (inside, "sub"))).unwrap();
    c.getattr(guest, in_file).unwrap();
    // The subtree's root itself may go anywhere, or for good.
    c.make(&mut f.admin, &rename_request((ROOT, "in"), (outside, "moved"))).unwrap();
    assert_eq!(c.list(guest, ROOT), ["sub"]);
    f.c.unlink(&mut f.admin, sub, "g").unwrap();
    for (parent, text) in [(inside, "sub"), (outside, "moved")] {
        let gone = RmdirRequest { parent, name: name(text) };
        f.c.make(&mut f.admin, &gone).unwrap();
    }
    assert_eq!(kind(f.c.getattr(&f.guest, ROOT)), ErrorKind::Stale);
    let made = f.c.make(&mut f.guest, &create_request(ROOT, "x"));
    assert_eq!(kind(made), ErrorKind::Stale);
}

#[test]
fn a_file_without_a_name_goes_on_for_who_has_it_open() {
    let Tree { mut f, inside, sub, in_file, out_file, outside, .. } = tree();
    f.c.close(&mut f.admin, in_file);
    let opened = f.c.make(&mut f.guest, &open(in_file, Rights::READ_WRITE)).unwrap();
    f.c.unlink(&mut f.guest, sub, "g").unwrap();
    f.c.make(&mut f.guest, &commit(&opened, 9)).unwrap();
    // Also when its directory is gone after it.
    let gone = RmdirRequest { parent: inside, name: name("sub") };
    f.c.make(&mut f.admin, &gone).unwrap();
    f.c.make(&mut f.guest, &commit(&opened, 10)).unwrap();
    assert_eq!(f.c.getattr(&f.guest, in_file).unwrap().size, 10);
    // One that lost its name outside is not inside.
    f.c.unlink(&mut f.admin, outside, "f").unwrap();
    assert_eq!(kind(f.c.getattr(&f.guest, out_file)), ErrorKind::Stale);
}

#[test]
fn what_a_key_may_do_is_said_by_administrators_and_lasts() {
    let mut f = Fixture::new(Restrictions::NONE);
    let info = |client, text: &str, standing, restrictions| SetClientRequest {
        info: ClientInfo { client, name: text.into(), standing, restrictions },
    };
    use ClientStanding::{Administrator, Ordinary, Revoked};
    let none = Restrictions::NONE;
    let loosen = info(GUEST, "guest", Ordinary, none);
    assert_eq!(kind(f.c.ask(&f.guest, &loosen)), ErrorKind::NotAdministrator);
    let list = ListClientsRequest { after: ClientId(0) };
    assert_eq!(kind(f.c.ask(&f.guest, &list)), ErrorKind::NotAdministrator);
    let file = f.c.create(&mut f.admin, ROOT, "file").attr.file;
    let missing = below(FileId(1 << 40));
    for (request, expected) in [
        (info(ADMIN, "", Revoked, none), ErrorKind::InvalidArgument),
        (info(GUEST, "administrator", Ordinary, none), ErrorKind::Exists),
        (info(GUEST, "a", Administrator, read_only()), ErrorKind::InvalidArgument),
        (info(GUEST, "a", Ordinary, below(ROOT)), ErrorKind::InvalidArgument),
        (info(GUEST, "a", Ordinary, below(file)), ErrorKind::NotDirectory),
        (info(GUEST, "a", Ordinary, missing), ErrorKind::NotFound),
        (info(GUEST, &"a".repeat(300), Ordinary, none), ErrorKind::InvalidArgument),
    ] {
        assert_eq!(kind(f.c.ask(&f.admin, &request)), expected, "{request:?}");
    }
    // What is said counts from then on, for sessions that began before too.
    f.c.ask(&f.admin, &info(GUEST, "guest", Ordinary, read_only())).unwrap();
    assert!(f.c.waited_for_disk);
    assert_eq!(kind(f.c.getattr(&f.guest, ROOT)), ErrorKind::SessionExpired);
    let mut c = f.c.restart();
    let mut guest = c.session_of(GUEST, root());
    assert_eq!(kind(c.make(&mut guest, &create_request(ROOT, "x"))), ErrorKind::ReadOnly);
    let page = c.ask(&f.admin, &list).unwrap();
    assert!(page.end);
    let shown: Vec<_> = page.clients.iter().map(|i| (i.client, &*i.name, i.restrictions)).collect();
    assert_eq!(shown, [(ADMIN, "administrator", none), (GUEST, "guest", read_only())]);
    // Revoked: no session goes on, none begins.
    c.ask(&f.admin, &info(GUEST, "guest", Revoked, read_only())).unwrap();
    assert_eq!(kind(c.getattr(&guest, ROOT)), ErrorKind::SessionExpired);
    let hello = Cluster::<ModelEngine>::hello(Identity::Client(GUEST), SessionId(0));
    assert_eq!(c.machine.key_for(&hello).map(drop).unwrap_err().kind, ErrorKind::AuthFailed);
}

#[test]
fn a_restricted_key_that_the_server_has_forgotten_is_refused() {
    let mut f = Fixture::new(Restrictions::NONE);
    let hello = |client| Cluster::<ModelEngine>::hello(Identity::Client(client), SessionId(0));
    let restricted = recorded_client(0x1234_5678_9abc_def0);
    let key = |f: &Fixture, client| f.c.machine.key_for(&hello(client)).map(drop);
    assert_eq!(kind(key(&f, restricted)), ErrorKind::AuthFailed);
    f.c.set_client(restricted, read_only());
    key(&f, restricted).unwrap();
    key(&f, plain_client(0x1234_5678_9abc_def0)).unwrap();
}

#[test]
fn a_store_on_disk_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = Cluster::on(embedded(dir.path()), 1);
    let me = &mut c.client(root());
    let sub = c.mkdir(me, ROOT, "sub");
    for n in 0..200 {
        let file = c.create(me, ROOT, &format!("f{n}")).attr.file;
        c.make(me, &link(file, sub, &format!("f{n}"))).unwrap();
    }
    assert_eq!(c.keys("b/"), 400);
    for _ in 0..5 {
        age(&mut c, &[]);
    }
    let c = c.restart_in(dir.path());
    assert_eq!(c.keys("b/"), 400);
    let bytes = c.machine.engine().get(key::FORMAT).unwrap().unwrap().value;
    assert_eq!(schema::decode_format(&bytes).unwrap().1, schema::Age::Current);
}

/// The store as a program left it that kept no directories of files: without
/// the records, with the parents that it would have left, and marked as such.
fn age<E: Engine>(c: &mut Cluster<E>, stale: &[(FileId, FileId)]) {
    let engine = c.machine.engine_mut();
    transact(engine, |tx| {
        let (start, end) = key::all_directories_of();
        for (at, _) in tx.range(&start, &end, 99)? {
            tx.delete(&at)?;
        }
        for &(file, parent) in stale {
            let bytes = tx.get(&key::inode(file))?.unwrap();
            let mut inode: Inode = schema::decode(&bytes, "x")?;
            assert!(!matches!(inode.body, Body::Directory(_)));
            inode.parent = parent;
            tx.put(&key::inode(file), &schema::encode(&inode))?;
        }
        let bytes = tx.get(key::FORMAT)?.unwrap();
        let (format, _) = schema::decode_format(&bytes)?;
        tx.put(key::FORMAT, &schema::encode(&format))?;
        Ok::<_, Error>(())
    })
    .unwrap();
    engine.sync().unwrap();
}

#[test]
fn a_store_from_before_is_brought_up_to_date() {
    let Tree { mut f, outside, out_file, sub, in_file, .. } = tree();
    let (c, admin) = (&mut f.c, &mut f.admin);
    for n in 0..60 {
        c.make(admin, &link(in_file, outside, &format!("g{n}"))).unwrap();
    }
    let everything = |c: &Cluster<ModelEngine>| {
        c.machine
            .engine()
            .range(b"a", b"l", usize::MAX)
            .unwrap()
            .into_iter()
            .map(|(k, v)| (k, v.value))
            .collect::<Vec<_>>()
    };
    let before = everything(c);
    // One name left, inside, and a parent that had another name once; several
    // names, and a parent that has none of them.
    age(c, &[(out_file, sub), (in_file, ROOT)]);
    let mut c = f.c.restart();
    let guest = c.session_of(GUEST, root());
    c.getattr(&guest, in_file).unwrap();
    assert_eq!(kind(c.getattr(&guest, out_file)), ErrorKind::Stale);
    assert_eq!(c.keys("b/"), 2);
    let parent = |c: &Cluster<ModelEngine>, file| {
        let bytes = c.machine.engine().get(&key::inode(file)).unwrap().unwrap().value;
        schema::decode::<Inode>(&bytes, "x").unwrap().parent
    };
    assert_eq!(parent(&c, out_file), outside);
    assert!([outside, sub].contains(&parent(&c, in_file)));
    let after = everything(&c);
    assert_eq!(before.len(), after.len());
    let (start, end) = key::directories_of(in_file);
    let kept = |all: &[(weir_metastore::Key, weir_metastore::Value)]| {
        all.iter().filter(|(k, _)| **k >= *start && **k < *end).cloned().collect::<Vec<_>>()
    };
    assert_eq!(kept(&before), kept(&after), "the records are those that were taken away");
    // A second start has nothing to do.
    let c = c.restart();
    assert_eq!(everything(&c), after);
}

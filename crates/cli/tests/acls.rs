//! Access control lists on a mount: every call by every user ends as on a local directory, and
//! what one mount sets counts at once on another.

use crate::harness::{Place, root};
use crate::library;
use crate::mounted::{Mounts, sh};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use weir_client::{Context, CreateOptions};
use weir_types::{ErrorKind, FileId};
use weir_wire::meta::XattrMode;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const STEPS: usize = 800;

/// A user, its group, and a supplementary one.
type User = (u32, u32, u32);
const USERS: [User; 5] =
    [(0, 0, 0), (5001, 6001, 6001), (5002, 6002, 6001), (5003, 6003, 6004), (5004, 6004, 6005)];

/// Runs something as a user with a umask: in a thread, because Linux keeps users by thread.
fn by<T: Send>((uid, gid, group): User, umask: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            // SAFETY: no memory is involved; this thread has a umask of its own from here on.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
            rustix::process::umask(Mode::from_raw_mode(umask));
            rustix::thread::set_thread_groups(&[Gid::from_raw(group)]).unwrap();
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            what()
        });
        run.join().unwrap()
    })
}

/// The same numbers for equal seeds.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn mode(&mut self) -> u32 {
        self.of(&[0o777, 0o755, 0o750, 0o770, 0o640, 0o2775, 0o664, 0o604, 0o070, 0o1777])
    }

    /// A list as its extended attribute has it; now and then one that makes no sense.
    fn acl(&mut self) -> Vec<u8> {
        let none = u32::MAX;
        let [group, other, mask] = [(); 3].map(|()| self.below(8) as u16);
        let mut named = |tag: u32, add: u32| {
            let mut some = Vec::new();
            for id in [5001, 5002, 5003, 5004] {
                if self.below(3) == 0 {
                    some.push((tag, self.below(8) as u16, id + add));
                }
            }
            some
        };
        let (users, groups) = (named(0x02, 0), named(0x08, 1000));
        let mut entries = vec![(0x01, self.of(&[7, 6, 7, 4]), none)];
        entries.extend(users);
        entries.push((0x04, group, none));
        entries.extend(groups);
        if entries.len() > 2 || self.below(2) == 0 {
            entries.push((0x10, self.of(&[7, 7, mask]), none));
        }
        entries.push((0x20, other, none));
        match self.below(25) {
            0 => drop(entries.pop()),
            1 => entries.swap(0, 1),
            2 => entries[0].1 = 8,
            3 => entries.clear(),
            _ => {}
        }
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, bits, id) in entries {
            bytes.extend((tag as u16).to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes.truncate(bytes.len() - if self.below(40) == 0 { 3 } else { 0 });
        bytes
    }
}

fn said<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |_| "done".into())
}

/// What there is to be seen of a file.
fn state(path: &Path) -> String {
    let Ok(m) = fs::symlink_metadata(path) else { return "nothing".into() };
    let list = |name| {
        let mut value = [0u8; 4096];
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(len) => value[..len].chunks(4).map(|four| format!("{:02x?}", four)).collect(),
            Err(errno) => format!("{errno:?}"),
        }
    };
    let lists = [list(ACCESS), list(DEFAULT)];
    format!("{:o} of {}:{}, {lists:?}", m.mode(), m.uid(), m.gid())
}

/// A step at random: what it was, and what came of it.
fn step(random: &mut Random, base: &Path) -> String {
    let names = ["a", "b", "d", "d/a", "d/b", "d/s", "d/s/a", "e", "e/s", "e/s/a", "e/p", "l"];
    let (name, user) = (random.of(&names), random.of(&USERS));
    let (path, umask) = (base.join(name), random.of(&[0o022, 0o077, 0, 0o027]));
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
    };
    let (choice, mode) = (random.below(20), Mode::from_raw_mode(random.mode()));
    // Mostly the owner's, so that some is allowed.
    let owner = fs::symlink_metadata(&path).ok();
    let owner = owner.and_then(|m| USERS.into_iter().find(|user| user.0 == m.uid()));
    let user = if random.below(3) > 0 { owner.unwrap_or(user) } else { user };
    let (what, result) = match choice {
        0..4 => {
            let acl = random.acl();
            ("set access", said(by(user, umask, || set(&path, ACCESS, &acl))))
        }
        4..7 => {
            let acl = random.acl();
            ("set default", said(by(user, umask, || set(&path, DEFAULT, &acl))))
        }
        7 => {
            let name = random.of(&[ACCESS, DEFAULT]);
            ("remove", said(by(user, umask, || rustix::fs::lremovexattr(&path, name))))
        }
        8..10 => ("chmod", said(by(user, umask, || rustix::fs::chmod(&path, mode)))),
        10..13 => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            let make = || rustix::fs::openat(CWD, &path, flags, mode).map(drop);
            ("create", said(by(user, umask, make)))
        }
        13..15 => ("mkdir", said(by(user, umask, || rustix::fs::mkdirat(CWD, &path, mode)))),
        15 => {
            let make = || rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0);
            ("mkfifo", said(by(user, umask, make)))
        }
        16 => {
            let dir = path.parent().unwrap();
            let make = || -> Result<(u32, String), Errno> {
                let made = rustix::fs::openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR, mode)?;
                let mut value = [0u8; 4096];
                let list = rustix::fs::fgetxattr(&made, ACCESS, &mut value[..]);
                Ok((rustix::fs::fstat(&made)?.st_mode, format!("{list:?}")))
            };
            ("one without a name", format!("{:?}", by(user, umask, make)))
        }
        17 => {
            let remove = || {
                rustix::fs::unlinkat(CWD, &path, AtFlags::empty())
                    .or_else(|_| rustix::fs::unlinkat(CWD, &path, AtFlags::REMOVEDIR))
            };
            ("remove it", said(by(user, umask, remove)))
        }
        18 => {
            let to = random.of(&USERS);
            let given = rustix::fs::chownat(
                CWD,
                &path,
                Some(Uid::from_raw(to.0)),
                Some(Gid::from_raw(to.1)),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            ("give away", said(given))
        }
        _ => ("link", said(by(user, umask, || rustix::fs::symlinkat("a", CWD, &path)))),
    };
    format!("{what} {name} {mode:?} as {user:?} umask {umask:o}: {result}; {}", state(&path))
}

/// Who gets at what.
fn probe(base: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut paths = vec![base.to_owned()];
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        at += 1;
        if let Ok(entries) = fs::read_dir(&path) {
            let mut inside: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            inside.sort();
            paths.extend(inside.into_iter().filter(|p| !p.is_symlink()));
        }
    }
    for path in paths {
        for user in USERS {
            let tried = by(user, 0o022, || {
                [OFlags::RDONLY, OFlags::WRONLY].map(|flags| {
                    let flags = flags | OFlags::NONBLOCK;
                    said(rustix::fs::openat(CWD, &path, flags, Mode::empty()))
                })
            });
            let listed = by(user, 0o022, || fs::read_dir(&path).map(Iterator::count).ok());
            let name = path.strip_prefix(base).unwrap().display();
            all.push(format!("{name} as {user:?}: {tried:?} {listed:?}"));
        }
    }
    all
}

/// Held by tests that start programs: what is forked has all open files of this process until it
/// executes another program, a pipe that was opened for reading, say.
static STARTS: RwLock<()> = RwLock::new(());

#[test]
fn every_call_with_lists_by_every_user_ends_as_on_a_local_directory() {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "acls", 1);
    let _nobody_starts = STARTS.write();
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let seed = 0x2545_f491_4f6c_dd1d;
    println!("seed {seed:#x}");
    let [local, mount] = [place.path("local"), all.at[0].join("here")].map(|dir| {
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o1777)).unwrap();
        dir
    });
    let mut randoms = [Random(seed), Random(seed)];
    let mut done = 0;
    for number in 0..STEPS {
        let expected = step(&mut randoms[0], &local);
        let real = step(&mut randoms[1], &mount);
        assert_eq!(expected, real, "step {number}");
        done += usize::from(expected.contains(": done;"));
        if number % 40 == 39 {
            assert_eq!(probe(&local), probe(&mount), "after step {number}");
        }
    }
    assert!(done > STEPS / 8, "{done} of {STEPS} did something");
}

#[test]
fn setfacl_and_getfacl_work_as_on_a_local_directory() {
    let _starts = STARTS.read();
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "acls", 2);
    fs::create_dir(place.path("local")).unwrap();
    let text = "all() { find \"$@\" ! -type l | sort | xargs getfacl -n; }; umask 022; mkdir d; echo text > d/f; mkdir d/s
        setfacl -m u:5001:rwx,g:6001:r-x d; setfacl -d -m u:5002:rw-,g::r-x d
        getfacl -n d; touch d/new; mkdir d/under; all d
        chmod 711 d; chmod g-w d/new; getfacl -n d d/new; stat -c '%A %n' d d/*
        setfacl -R -m g:6002:rX d; setfacl -x u:5001 d; all d
        cp -a d copy; all copy; tar --acls -cf t.tar d; mkdir x; tar --acls -xf t.tar -C x
        all x; getfacl -n d/f | setfacl --set-file=- d/s; getfacl -n d/s
        setfacl -k d; setfacl -b d/new; getfacl -n d d/new
        ln -s f d/l; setfacl -m u:5001:r d/l; getfacl -n d/f
        ls -l d | tail -n +2 | cut -c1-11; setfacl -Rb d; all d; ls -l d | tail -n +2 | cut -c1-11
        setfacl -m u:5001:zz d 2>&1 || true; setfacl -d -m u:5001:r d/f 2>&1 || true";
    let local = sh(&place.path("local"), text);
    let mount = sh(&all.at[0], text);
    assert_eq!(local, mount);
    assert!(local.contains("default:user:5002:rw-"), "{local}");
    // Another mount has the same, and a cluster that was stopped has too.
    let look = "find x d copy ! -type l | sort | xargs getfacl -n";
    assert_eq!(sh(&place.path("local"), look), sh(&all.at[1], look));
    all.cluster.kill("meta");
    all.cluster.weir(&["up"]).ok();
    assert_eq!(sh(&place.path("local"), look), sh(&all.at[1], look));
    all.cluster.weir(&["fsck"]).ok();
}

/// What the list of an open file is: nothing is looked up or asked for before.
fn list_of(file: &fs::File) -> Option<usize> {
    let mut value = [0u8; 4096];
    rustix::fs::fgetxattr(file, ACCESS, &mut value[..]).ok()
}

#[test]
fn what_one_mount_sets_counts_at_once_on_another() {
    let _starts = STARTS.read();
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "acls", 2);
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let [a, b] = [0, 1].map(|at| all.at[at].join("d/f"));
    fs::create_dir(all.at[0].join("d")).unwrap();
    fs::write(&a, "text").unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o600)).unwrap();
    let user = USERS[1];
    let reads = |path: &Path| by(user, 0o022, || fs::read(path).is_ok());
    let open = fs::File::open(&b).unwrap();
    for round in 0..20 {
        assert!(!reads(&b) && !reads(&a), "round {round}");
        assert_eq!(list_of(&open), None, "round {round}");
        sh(&all.at[0], "setfacl -m u:5001:r d/f");
        assert!(reads(&b) && reads(&a), "round {round}");
        assert_eq!(list_of(&open), Some(44), "round {round}");
        let chmod = if round % 2 == 0 { "chmod 600 d/f" } else { "setfacl -m m::- d/f" };
        sh(&all.at[0], chmod);
        assert!(!reads(&b) && !reads(&a), "round {round}");
        sh(&all.at[0], "setfacl -b d/f");
        // A directory on the way.
        sh(&all.at[1], "setfacl -m u:5001:x d; chmod 700 d; chmod o+r d/f");
        assert!(!reads(&b) && !reads(&a), "round {round}");
        sh(&all.at[1], "setfacl -m m::x d");
        assert!(reads(&b) && reads(&a), "round {round}");
        sh(&all.at[1], "setfacl -b d; chmod 755 d; chmod 600 d/f");
    }
}

#[test]
fn the_library_is_held_to_lists_too() {
    let _starts = STARTS.read();
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "acls", 1);
    let dir = all.at[0].join("d");
    fs::create_dir(&dir).unwrap();
    sh(&all.at[0], "setfacl -d -m u:5001:rw,o::- d; chmod 777 d");
    chown(&dir, Some(5003), Some(6003)).unwrap();
    let client = library::client(&all.cluster, false);
    let as_user = |uid: u32| {
        let caller = weir_types::Caller { uid, gid: uid, groups: Vec::new() };
        Context { caller, ..Context::root() }
    };
    let dir = FileId(fs::metadata(&dir).unwrap().ino());
    let options = CreateOptions { mode: 0o660, umask: 0o077, ..CreateOptions::default() };
    let (file, attr) = client.create(&as_user(5002), dir, b"f", &options).unwrap();
    assert!(attr.extras.acl && attr.mode == 0o660, "{attr:?}");
    file.close(&as_user(5002)).unwrap();
    let value = client.get_xattr(&as_user(5004), attr.file, ACCESS.as_bytes()).unwrap();
    assert_eq!(value.len(), 44);
    let rights = weir_wire::Rights::READ_WRITE;
    assert!(client.open(&as_user(5001), attr.file, rights).is_ok());
    let refused = client.open(&as_user(5004), attr.file, rights).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::AccessDenied);
    let set = |uid, value: &[u8]| {
        client.set_xattr(&as_user(uid), attr.file, ACCESS.as_bytes(), value, XattrMode::Any)
    };
    assert_eq!(set(5001, &value).unwrap_err().kind, ErrorKind::NotPermitted);
    assert_eq!(set(5002, &value[..9]).unwrap_err().kind, ErrorKind::InvalidArgument);
    set(5002, b"").unwrap();
    assert!(client.open(&as_user(5001), attr.file, rights).is_err());
}

//! Permissions on a mount: the same as on a local directory, call for call, with real users and
//! groups.

use crate::harness::{Place, root};
use rustix::fs::{Access, AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

const OWNER: u32 = 5001;
const GROUP: u32 = 6001;

/// A user as a process has it.
#[derive(Clone, Debug)]
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

fn users() -> Vec<User> {
    let user = |name, uid, gid, groups| User { name, uid, gid, groups };
    // More groups than NFS can carry (16), and than FUSE passes (32).
    let many = (7000..7040).chain([GROUP]).collect();
    vec![
        user("owner", OWNER, 5001, vec![]),
        user("group", 5002, GROUP, vec![]),
        user("supplementary", 5003, 5003, many),
        user("other", 5004, 5004, vec![7000]),
        user("root", 0, 0, vec![]),
    ]
}

/// Runs something as a user: in a thread, because Linux keeps users by thread.
fn by<T: Send>(user: &User, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let groups: Vec<Gid> = user.groups.iter().map(|g| Gid::from_raw(*g)).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            what()
        });
        run.join().unwrap()
    })
}

/// What was tried, and what came of it.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn std<T>(&mut self, what: &str, result: std::io::Result<T>) {
        let code = result.err().map_or(0, |e| e.raw_os_error().unwrap());
        self.0.push(format!("{what}: {}", name_of(code)));
    }
    fn sys<T>(&mut self, what: &str, result: rustix::io::Result<T>) {
        self.std(what, result.map_err(std::io::Error::from));
    }
    fn state(&mut self, path: &Path) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        self.0.push(match fs::symlink_metadata(path) {
            Ok(m) => {
                format!("{name} is {}:{} {:o}, {} links", m.uid(), m.gid(), m.mode(), m.nlink())
            }
            Err(e) => format!("{name}: {}", name_of(e.raw_os_error().unwrap())),
        });
    }
}

fn name_of(code: i32) -> String {
    match code {
        0 => "done".into(),
        code => format!("{:?}", Errno::from_raw_os_error(code)),
    }
}

fn try_file(file: &Path) -> Vec<String> {
    let mut log = Log::default();
    let open = |options: &mut OpenOptions| options.open(file);
    log.std("open to read", open(OpenOptions::new().read(true)));
    log.std("open to write", open(OpenOptions::new().write(true)));
    log.std("open for both", open(OpenOptions::new().read(true).write(true)));
    log.std("open and create", open(OpenOptions::new().write(true).create(true)));
    let append = || open(OpenOptions::new().append(true))?.write_all(b"more");
    log.std("append", append());
    log.state(file);
    log.std("open and empty", open(OpenOptions::new().write(true).truncate(true)));
    log.state(file);
    for (what, wanted) in
        [("R_OK", Access::READ_OK), ("W_OK", Access::WRITE_OK), ("X_OK", Access::EXEC_OK)]
    {
        log.sys(what, rustix::fs::access(file, wanted));
    }
    let at = |nsec| Timestamps {
        last_access: Timespec { tv_sec: 5, tv_nsec: nsec },
        last_modification: Timespec { tv_sec: 5, tv_nsec: nsec },
    };
    log.sys("touch", rustix::fs::utimensat(CWD, file, &at(libc::UTIME_NOW), AtFlags::empty()));
    log.sys("set times", rustix::fs::utimensat(CWD, file, &at(0), AtFlags::empty()));
    log.sys("set an attribute", rustix::fs::setxattr(file, "user.a", b"b", XattrFlags::empty()));
    let mut value = [0u8; 8];
    log.sys("get an attribute", rustix::fs::getxattr(file, "user.a", &mut value[..]));
    log.std("give away", chown(file, Some(5009), None));
    log.state(file);
    log.std("give to a group of one's own", chown(file, None, Some(7000)));
    log.std("give to the file's group", chown(file, None, Some(GROUP)));
    log.std("give to a stranger's group", chown(file, None, Some(7999)));
    log.state(file);
    log.std("chmod", fs::set_permissions(file, Permissions::from_mode(0o6751)));
    log.state(file);
    log.0
}

fn try_directory(dir: &Path) -> Vec<String> {
    let mut log = Log::default();
    log.std("list", fs::read_dir(dir));
    log.std("stat inside", fs::symlink_metadata(dir.join("old")));
    log.std("stat what is not there", fs::symlink_metadata(dir.join("none")));
    log.std("read inside", fs::read(dir.join("old")));
    let create = |mode, name| {
        OpenOptions::new().write(true).create_new(true).mode(mode).open(dir.join(name))
    };
    log.std("create", create(0o666, "new"));
    log.std("create a setgid program", create(0o2775, "program"));
    log.std("create what is there", create(0o666, "old"));
    log.std("mkdir", DirBuilder::new().mode(0o777).create(dir.join("sub")));
    log.std("mkdir what is there", DirBuilder::new().create(dir.join("old")));
    log.std("symlink", std::os::unix::fs::symlink("old", dir.join("link")));
    log.std("link", fs::hard_link(dir.join("mine"), dir.join("mine2")));
    for name in ["new", "program", "sub", "link", "mine2"] {
        log.state(&dir.join(name));
    }
    log.std("rename a file of others", fs::rename(dir.join("old"), dir.join("old2")));
    log.std("rename it over another", fs::rename(dir.join("other"), dir.join("mine")));
    log.std("rename a directory", fs::rename(dir.join("full"), dir.join("full2")));
    log.std("remove a file of others", fs::remove_file(dir.join("third")));
    log.std("remove one's own", fs::remove_file(dir.join("owned")));
    log.std("remove a directory", fs::remove_dir(dir.join("empty")));
    log.std("remove a full directory", fs::remove_dir(dir.join("full")));
    log.std("rename out", fs::rename(dir.join("fourth"), dir.parent().unwrap().join("out")));
    log.std("chmod", fs::set_permissions(dir, Permissions::from_mode(0o2750)));
    log.state(dir);
    log.0
}

fn give(path: &Path, mode: u32, uid: u32) {
    chown(path, Some(uid), Some(GROUP)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn make_directory(dir: &Path, mode: u32, user: &User, owner: u32) {
    fs::create_dir(dir).unwrap();
    for (name, uid) in [
        ("old", OWNER),
        ("other", 5008),
        ("mine", user.uid),
        ("third", 5008),
        ("owned", user.uid),
        ("fourth", user.uid),
    ] {
        fs::write(dir.join(name), name).unwrap();
        give(&dir.join(name), 0o644, uid);
    }
    for name in ["empty", "full"] {
        fs::create_dir(dir.join(name)).unwrap();
        give(&dir.join(name), 0o755, user.uid);
    }
    fs::write(dir.join("full/x"), "").unwrap();
    give(dir, mode, owner);
}

/// Everything that is tried in a directory, as every user.
fn everything(base: &Path) -> Vec<String> {
    fs::set_permissions(base, Permissions::from_mode(0o777)).unwrap();
    let mut all = Vec::new();
    for user in users() {
        for mode in [0o000, 0o400, 0o040, 0o004, 0o200, 0o020, 0o002, 0o777, 0o640, 0o6775, 0o2745]
        {
            let file = base.join(format!("{}-{mode:o}", user.name));
            fs::write(&file, "data").unwrap();
            give(&file, mode, OWNER);
            let log = by(&user, || try_file(&file));
            all.extend(log.into_iter().map(|l| format!("{}, file {mode:o}: {l}", user.name)));
        }
        for (mode, owner) in [
            (0o000, OWNER),
            (0o755, OWNER),
            (0o070, OWNER),
            (0o077, OWNER),
            (0o711, OWNER),
            (0o744, OWNER),
            (0o773, OWNER),
            (0o1777, OWNER),
            (0o1777, 5008),
            (0o2777, OWNER),
            (0o3777, 0),
        ] {
            let name = format!("{}-dir-{mode:o}-{owner}", user.name);
            let parent = base.join(&name);
            fs::create_dir(&parent).unwrap();
            fs::set_permissions(&parent, Permissions::from_mode(0o777)).unwrap();
            let dir = parent.join("d");
            make_directory(&dir, mode, &user, owner);
            let log = by(&user, || try_directory(&dir));
            let about = format!("{}, directory {mode:o} of {owner}", user.name);
            all.extend(log.into_iter().map(|l| format!("{about}: {l}")));
        }
    }
    all
}

#[test]
fn every_call_by_every_user_ends_as_on_a_local_directory() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    // Others have to get there.
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let local: PathBuf = place.path("local");
    fs::create_dir(&local).unwrap();
    let expected = everything(&local);
    let real = everything(&place.path("m"));
    assert_eq!(expected.len(), real.len());
    let differ: Vec<String> = expected
        .iter()
        .zip(&real)
        .filter(|(local, mount)| local != mount)
        .map(|(local, mount)| format!("{local}, on the mount {mount}"))
        .collect();
    let done = expected.iter().filter(|line| line.ends_with("done")).count();
    println!("{} calls, {done} of them allowed", expected.len());
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

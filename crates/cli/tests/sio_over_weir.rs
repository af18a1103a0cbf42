//! The SIO low-level interface over a cluster of real processes (`docs/sio.md`): the suite that
//! plain files pass too, and what only a cluster can show.

#[path = "../../../bindings/sio/tests/c_program/mod.rs"]
mod c_program;
#[path = "../../../bindings/sio/tests/suite/mod.rs"]
mod suite;

use crate::harness::{Cluster, Place};
use crate::library::client;
use sio::constants::*;
use sio::core::codes::Code;
use sio::{sio_control_t, sio_layout_t};
use std::ffi::CString;
use std::os::unix::fs::FileExt;
use suite::{
    Over, all_of, ask, close, code, control, create, done, drop_file, in_file, last_error,
    mandatory, noise, op, open, read, transfer, write,
};
use weir_client::{Client, Context};
use weir_types::{FileId, TargetId};
use weir_wire::Rights;

const TARGETS: u32 = 4;

fn four<'a>(place: &'a Place, name: &str) -> Cluster<'a> {
    place.up(name, &["--targets", "4"])
}

fn credential(cluster: &Cluster<'_>) -> &'static str {
    format!("weir:{}", cluster.dir().join("client.toml").display()).leak()
}

/// A process has one file system attached, so it is one test.
#[test]
fn every_function_over_a_cluster() {
    let place = Place::new();
    let cluster = four(&place, "sio");
    let over = Over { files: credential(&cluster), servers: TARGETS };
    suite::run(over);
    let other = client(&cluster, true);
    suite::attached(over, || {
        a_list_is_one_request_per_server(&other);
        a_collective_is_one_request_per_server(&other);
        hints_spare_and_prepare_requests(&other);
        caching_modes_show_in_what_the_servers_count(&other);
        weak_caching_between_two_clients(&other);
        a_fast_copy_is_made_by_the_servers(&other);
        damage_is_a_failure_that_is_named(&cluster);
    });
    what_cannot_be_attached_is_told(&cluster);
    what_a_key_or_a_quota_forbids_has_its_code(&cluster);
    // All files of a cluster have attributes.
    let labels = ["GetLabel", "SetLabel"].map(|label| (label, "OP_UNSUPPORTED"));
    suite::promised::check(&labels);
    let left = other.readdir(&Context::root(), FileId::ROOT, (0, 0), 100, false).unwrap();
    assert!(left.entries.is_empty(), "{left:?}");
}

#[test]
fn a_c_program_over_a_cluster() {
    let place = Place::new();
    let cluster = four(&place, "sio-c");
    let home = place.path("");
    // By name, as the program's user has it.
    let state = home.join("state");
    c_program::run(&home, "weir:sio-c", &[("XDG_STATE_HOME", &state), ("HOME", &home)]);
    c_program::run(&home, credential(&cluster), &[]);
}

/// What each data server has counted.
fn counted(client: &Client, name: &str) -> Vec<u64> {
    let of = |target| client.data_status(TargetId(target), 5000).unwrap().counters;
    let count = |target| of(target).into_iter().find(|(n, _)| n == name).map_or(0, |(_, v)| v);
    (1..=TARGETS).map(count).collect()
}

fn since(client: &Client, name: &str, before: &[u64]) -> Vec<u64> {
    counted(client, name).iter().zip(before).map(|(now, before)| now - before).collect()
}

/// A new file over four servers in units of 8 KiB.
fn striped(name: &str) -> i32 {
    let mut layout = sio_layout_t {
        flags: LAYOUT_WIDTH | LAYOUT_DEPTH,
        stripe_width: TARGETS,
        stripe_depth: 8192,
        algorithm: 0,
        algorithm_data: std::ptr::null_mut(),
    };
    opened(name, &mut [mandatory(op(CTL_SET_LAYOUT, &mut layout))])
}

fn opened(name: &str, ops: &mut [sio_control_t]) -> i32 {
    let (name, mut fd) = (CString::new(name).unwrap(), -1);
    let mode = MODE_READ | MODE_WRITE | MODE_CREATE;
    let (list, len) = (ops.as_mut_ptr(), ops.len() as u32);
    // SAFETY: a string, and a list that is as long as it says.
    done(unsafe { sio::sio_open(&mut fd, name.as_ptr(), mode, list, len) });
    fd
}

fn bare(op_code: u32) -> [sio_control_t; 1] {
    [mandatory(suite::bare(op_code))]
}

fn a_list_is_one_request_per_server(servers: &Client) {
    let fd = striped("list");
    write(fd, 0, &noise(2 << 20, 1));
    assert_eq!(control(fd, &mut bare(CTL_SYNC)), Code::Success);
    // 100 records of 838 bytes, one every 16,000 bytes, and some single ones.
    let list =
        [in_file(321, 838, 16_000, 100), in_file(1_700_000, 5, 0, 1), in_file(1_800_000, 9, 0, 1)];
    let mut buffer = noise(100 * 838 + 14, 2);
    let total = buffer.len() as u64;
    let before = counted(servers, "op.write");
    assert_eq!(transfer(true, fd, &list, &all_of(&mut buffer)), (Code::Success, total));
    assert_eq!(since(servers, "op.write", &before), [1; 4]);
    let mut back = vec![0; buffer.len()];
    let before = counted(servers, "op.read");
    assert_eq!(transfer(false, fd, &list, &all_of(&mut back)), (Code::Success, total));
    assert_eq!(since(servers, "op.read", &before), [1; 4]);
    assert!(back == buffer);
    drop_file(fd, "list");
}

fn a_collective_is_one_request_per_server(servers: &Client) {
    let fd = striped("together");
    write(fd, 0, &[0; 1 << 20]);
    assert_eq!(control(fd, &mut bare(CTL_SYNC)), Code::Success);
    let mut all = std::ptr::null_mut();
    // SAFETY: a place for the handle.
    done(unsafe { sio::sio_coll_define(fd, COLL_WRITE, 8, &mut all) });
    // Eight participants, whose records of 1,000 bytes alternate.
    let mut parts: Vec<Vec<u8>> = (0..8).map(|who| vec![who as u8 + 1; 100 * 1000]).collect();
    let before = counted(servers, "op.write");
    let mut handles = Vec::new();
    for (who, part) in (0..).zip(&mut parts) {
        let (list, memory) = ([in_file(u64::from(who) * 1000, 1000, 8000, 100)], all_of(part));
        let mut handle = std::ptr::null_mut();
        // SAFETY: lists of one entry, and the memory stays until all have been completed.
        done(unsafe {
            sio::sio_coll_join(all, who, list.as_ptr(), 1, memory.as_ptr(), 1, &mut handle)
        });
        handles.push(handle);
    }
    while !handles.is_empty() {
        let (mut at, mut status) = (0, sio::sio_async_status_t::default());
        let len = handles.len() as u32;
        // SAFETY: the list is as long as it says.
        done(unsafe {
            sio::sio_async_status_any(
                handles.as_mut_ptr(),
                len,
                &mut at,
                &mut status,
                ASYNC_BLOCKING,
            )
        });
        assert_eq!((code(status.status), status.count), (Code::Success, 100_000));
        handles.remove(at as usize);
    }
    assert_eq!(control(fd, &mut bare(CTL_PROPAGATE)), Code::Success);
    assert_eq!(since(servers, "op.write", &before), [1; 4], "one for all participants");
    let back = read(fd, 0, 800_000);
    assert!(back.chunks(1000).zip((1..=8).cycle()).all(|(record, who)| record == [who; 1000]));
    done(sio::sio_coll_free(all));
    drop_file(fd, "together");
}

fn hints_spare_and_prepare_requests(servers: &Client) {
    let fd = striped("hinted");
    let data = noise(8 << 20, 3);
    write(fd, 0, &data);
    close(fd);
    let hinted = |flags: u32, list: &mut [_]| {
        let fd = open("hinted", MODE_READ);
        let hint = sio::sio_hint_t {
            flags,
            io_list: list.as_mut_ptr(),
            list_len: list.len() as u32,
            arg: std::ptr::null_mut(),
            arg_len: 0,
        };
        // SAFETY: one hint, with a list that is as long as it says.
        done(unsafe { sio::sio_hint(fd, HINT_CLASS_ORDERED, &hint, 1) });
        fd
    };
    // A reader of the first 256 KiB is taken for one who goes on, unless it says otherwise.
    let fetched = |flags| {
        let fd = hinted(flags, &mut []);
        let before = counted(servers, "op.read");
        assert!(read(fd, 0, 256 << 10) == data[..256 << 10]);
        let after = since(servers, "op.read", &before);
        close(fd);
        after
    };
    let most = fetched(HINT_READ | HINT_SEQUENTIAL);
    assert!(most.iter().sum::<u64>() > 4, "read ahead: {most:?}");
    for flags in [HINT_RANDOM_PARTIAL, HINT_RANDOM_COMPLETE, HINT_REVERSE, HINT_READ_ONCE] {
        assert_eq!(fetched(HINT_READ | flags), [1; 4], "what was asked for and no more");
    }
    // Three fields of each of eight records of 1 KiB.
    let fields = |flags| {
        let mut record_bytes = 1024u64;
        let fd = open("hinted", MODE_READ);
        let hint = sio::sio_hint_t {
            flags,
            io_list: std::ptr::null_mut(),
            list_len: 0,
            arg: std::ptr::from_mut(&mut record_bytes).cast(),
            arg_len: 8,
        };
        // SAFETY: one hint, whose argument is a number.
        done(unsafe { sio::sio_hint(fd, HINT_CLASS_ORDERED, &hint, 1) });
        let before = counted(servers, "op.read");
        for record in (0..8).map(|i| i * 997 * 1024) {
            for field in [0, 300, 900] {
                assert!(read(fd, record + field, 100) == data[(record + field) as usize..][..100]);
            }
        }
        let requests: u64 = since(servers, "op.read", &before).iter().sum();
        close(fd);
        requests
    };
    assert_eq!(fields(HINT_READ_ONCE), 24, "one for each field");
    assert_eq!(fields(HINT_RECORDS), 8, "one for each record");
    // What will be used is asked for before.
    let before = counted(servers, "op.read");
    let fd = hinted(HINT_READ | HINT_WILL_USE, &mut [in_file(4 << 20, 1 << 20, 0, 1)]);
    crate::harness::eventually("the servers are asked", || {
        since(servers, "op.read", &before).iter().sum::<u64>() == 4
    });
    assert!(read(fd, 4 << 20, 1 << 20) == data[4 << 20..5 << 20]);
    drop_file(fd, "hinted");
}

/// `NONE` asks at every call; `STRONG` gathers and has a lease; `WEAK` gathers and has none.
fn caching_modes_show_in_what_the_servers_count(servers: &Client) {
    const CALLS: u64 = 32;
    let leases = || {
        let counters = servers.metadata_status().unwrap().counters;
        counters.into_iter().find(|(name, _)| name == "op.acquire").map_or(0, |(_, n)| n)
    };
    let data = noise(4096 * CALLS as usize, 7);
    for mode in [CACHING_NONE, CACHING_STRONG, CACHING_WEAK] {
        close(striped("cached"));
        let (name, mut fd, mut caching) = (CString::new("cached").unwrap(), -1, mode);
        let mut ops = [mandatory(op(CTL_SET_CACHING_MODE, &mut caching))];
        let both = MODE_READ | MODE_WRITE;
        // A file that another client has open: leases are asked for.
        let attr = servers.resolve(&Context::root(), b"cached", true).unwrap();
        let (elsewhere, _) = servers.open(&Context::root(), attr.file, Rights::READ_WRITE).unwrap();
        let asked = leases();
        // SAFETY: a string, and a list of one control.
        done(unsafe { sio::sio_open(&mut fd, name.as_ptr(), both, ops.as_mut_ptr(), 1) });
        let before = counted(servers, "op.write");
        for (at, part) in (0..).step_by(4096).zip(data.chunks(4096)) {
            write(fd, at, part);
        }
        assert_eq!(control(fd, &mut bare(CTL_PROPAGATE)), Code::Success);
        let writes: u64 = since(servers, "op.write", &before).iter().sum();
        let before = counted(servers, "op.read");
        for (at, part) in (0..).step_by(4096).zip(data.chunks(4096)) {
            assert!(read(fd, at, 4096) == part);
        }
        let reads: u64 = since(servers, "op.read", &before).iter().sum();
        match mode {
            CACHING_NONE => assert_eq!((writes, reads), (CALLS, CALLS), "one for each call"),
            _ => assert!(writes < CALLS / 2 && reads < CALLS / 2, "{mode}: {writes}, {reads}"),
        }
        match mode {
            CACHING_STRONG => assert!(leases() > asked, "no lease was asked for"),
            _ => assert_eq!(leases(), asked, "leases of mode {mode}"),
        }
        drop(elsewhere);
        drop_file(fd, "cached");
    }
}

fn weak_caching_between_two_clients(other: &Client) {
    let ctx = Context::root();
    let mut weak = CACHING_WEAK;
    let fd = opened("weak", &mut [mandatory(op(CTL_SET_CACHING_MODE, &mut weak))]);
    let attr = other.resolve(&ctx, b"weak", true).unwrap();
    write(fd, 0, b"from here");
    assert_eq!(control(fd, &mut bare(CTL_PROPAGATE)), Code::Success);
    let (file, attr) = other.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();
    assert_eq!(attr.size, 9);
    let mut buffer = [0; 9];
    assert_eq!(file.read_at(&ctx, 0, &mut buffer).unwrap(), 9);
    assert_eq!(&buffer, b"from here");
    // And back.
    assert_eq!(read(fd, 0, 99), b"from here");
    file.write_at(&ctx, 0, b"from there, and longer").unwrap();
    file.flush(&ctx).unwrap();
    assert_eq!(control(fd, &mut bare(CTL_REFRESH)), Code::Success);
    assert_eq!(read(fd, 0, 99), b"from there, and longer");
    // Each writes its own bytes of one block: no byte of the other is undone.
    write(fd, 0, b"FROM");
    file.write_at(&ctx, 5, b"THERE").unwrap();
    file.flush(&ctx).unwrap();
    assert_eq!(control(fd, &mut bare(CTL_PROPAGATE)), Code::Success);
    assert_eq!(control(fd, &mut bare(CTL_REFRESH)), Code::Success);
    assert_eq!(read(fd, 0, 99), b"FROM THERE, and longer");
    drop(file);
    drop_file(fd, "weak");
    // Strong needs neither.
    let fd = create("strong");
    write(fd, 0, b"at once");
    let attr = other.resolve(&ctx, b"strong", true).unwrap();
    let (file, _) = other.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();
    let mut buffer = [0; 9];
    assert_eq!(file.read_at(&ctx, 0, &mut buffer).unwrap(), 7);
    file.write_at(&ctx, 7, b", and back").unwrap();
    assert_eq!(read(fd, 0, 99), b"at once, and back");
    assert_eq!(ask(fd, CTL_GET_SIZE), 17);
    drop(file);
    drop_file(fd, "strong");
}

fn a_fast_copy_is_made_by_the_servers(servers: &Client) {
    let fd = striped("source");
    let data = noise(4 << 20, 5);
    write(fd, 0, &data);
    assert_eq!(control(fd, &mut bare(CTL_SYNC)), Code::Success);
    let copies = counted(servers, "op.copy");
    let writes = counted(servers, "op.write");
    let (mut whole, mut layout) = (
        sio::sio_fast_copy_t { source: fd, source_offset: 0, offset: 0, size: 4 << 20, copied: 0 },
        sio_layout_t {
            flags: LAYOUT_WIDTH | LAYOUT_DEPTH,
            stripe_width: TARGETS,
            stripe_depth: 8192,
            algorithm: 0,
            algorithm_data: std::ptr::null_mut(),
        },
    );
    let to = opened(
        "copied",
        &mut [mandatory(op(CTL_SET_LAYOUT, &mut layout)), mandatory(op(CTL_FAST_COPY, &mut whole))],
    );
    assert_eq!(whole.copied, 4 << 20);
    assert!(since(servers, "op.copy", &copies).iter().sum::<u64>() > 0);
    assert_eq!(since(servers, "op.write", &writes), [0; 4], "no byte came from here");
    assert!(read(to, 0, 5 << 20) == data);
    drop_file(fd, "source");
    drop_file(to, "copied");
}

/// A byte that flips on a disk is never served.
fn damage_is_a_failure_that_is_named(cluster: &Cluster<'_>) {
    let fd = striped("damaged");
    write(fd, 0, &noise(8192, 6));
    assert_eq!(control(fd, &mut bare(CTL_SYNC)), Code::Success);
    close(fd);
    let is_object = |path: &std::path::PathBuf| path.is_file();
    let under = |dir: std::path::PathBuf| {
        std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path())
    };
    let targets =
        (1..=TARGETS).map(|target| cluster.dir().join(format!("targets/{target}/objects")));
    let objects: Vec<_> = targets.flat_map(under).flat_map(under).filter(is_object).collect();
    let mut damaged = 0;
    for object in &objects {
        // The objects of files that were removed go a little later.
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(object);
        let Ok(file) = opened else { continue };
        // Where the data of an object begins in its file (docs/format-store.md).
        let (at, mut byte) = (32 * 4096 + 100, [0]);
        if file.read_at(&mut byte, at).unwrap() == 1 {
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "{objects:?}");
    let fd = open("damaged", MODE_READ);
    let mut buffer = [0; 8192];
    let ended = transfer(false, fd, &[in_file(0, 8192, 0, 1)], &all_of(&mut buffer));
    assert_eq!(ended, (Code::IoFailed, 0), "{}", last_error());
    assert!(
        last_error().contains("damaged: ") && last_error().contains("target"),
        "{}",
        last_error()
    );
    drop_file(fd, "damaged");
}

fn what_cannot_be_attached_is_told(cluster: &Cluster<'_>) {
    assert_eq!(suite::attach("weir:/nowhere/client.toml"), Code::FileNotFound, "{}", last_error());
    assert!(last_error().contains("credential"), "{}", last_error());
    let text = std::fs::read_to_string(cluster.dir().join("client.toml")).unwrap();
    let wrong = cluster.place.path("wrong.toml");
    let key = text.split("key = \"").nth(1).unwrap().split('"').next().unwrap();
    std::fs::write(&wrong, text.replace(key, &"ab".repeat(32))).unwrap();
    std::fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(suite::attach(&format!("weir:{}", wrong.display())), Code::IoFailed);
    assert!(last_error().contains("cannot connect to cluster"), "{}", last_error());
}

/// A key that only reads is `INCORRECT_MODE`, a directory without room is `NO_SPACE`.
fn what_a_key_or_a_quota_forbids_has_its_code(cluster: &Cluster<'_>) {
    let key = |name: &str, restriction: &[&str]| {
        let path = cluster.place.path(&format!("{name}.toml"));
        let to = ["-o", path.to_str().unwrap()];
        cluster.weir(&[&["key", "create", name][..], restriction, &to].concat()).ok();
        &*format!("weir:{}", path.display()).leak()
    };
    cluster.weir(&["mkdir", "-m", "777", "/small"]).ok();
    cluster.weir(&["mkdir", "-m", "777", "/wide"]).ok();
    // The directory counts as one.
    cluster.weir(&["quota", "set", "dir:/small", "--bytes", "1M", "--files", "3", "--wait"]).ok();
    // The superuser is refused nothing.
    let files = key("anybody", &["--squash", "all"]);
    suite::attached(Over { files, servers: TARGETS }, || {
        let fd = create("small/file");
        let mut data = noise(2 << 20, 8);
        let list = [in_file(0, 1 << 20, 0, 1), in_file(3 << 20, 1 << 20, 0, 1)];
        let (ended, total) = transfer(true, fd, &list, &all_of(&mut data));
        assert_eq!(ended, Code::NoSpace, "{}", last_error());
        assert!(last_error().contains("small/file"), "{}", last_error());
        assert!(total < 2 << 20);
        close(fd);
        let source = create("wide/source");
        write(source, 0, &data);
        assert_eq!(control(source, &mut bare(CTL_SYNC)), Code::Success);
        let to = create("small/copy");
        let (offset, size) = (0, 2 << 20);
        let mut copy = sio::sio_fast_copy_t { source, source_offset: 0, offset, size, copied: 0 };
        let mut ops = [op(CTL_FAST_COPY, &mut copy)];
        assert_eq!(control(to, &mut ops), Code::Success);
        assert_eq!(suite::results(&ops), [Code::NoSpace], "{}", last_error());
        close(to);
        close(source);
        let mode = MODE_WRITE | MODE_CREATE;
        let more = suite::files::opened("small/more", mode, &mut []);
        assert_eq!(more, Err(Code::NoSpace), "{}", last_error());
    });
    let files = key("reads", &["--read-only"]);
    suite::attached(Over { files, servers: TARGETS }, || {
        for mode in [MODE_WRITE, MODE_READ | MODE_WRITE] {
            let refused = suite::files::opened("small/file", mode, &mut []);
            assert_eq!(refused, Err(Code::IncorrectMode), "{}", last_error());
        }
        let created = suite::files::opened("small/new", MODE_WRITE | MODE_CREATE, &mut []);
        assert_eq!(created, Err(Code::IncorrectMode), "{}", last_error());
        close(open("small/file", MODE_READ));
        assert_eq!(suite::unlink("small/file"), Code::IncorrectMode, "{}", last_error());
        let renamed = suite::files::rename("small/file", "small/new");
        assert_eq!(renamed, Code::IncorrectMode, "{}", last_error());
    });
    cluster.weir(&["quota", "rm", "dir:/small"]).ok();
    cluster.weir(&["rm", "-r", "/small", "/wide"]).ok();
}

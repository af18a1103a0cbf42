//! The extension for collective operations.

use super::asynchronous::{cancel, start, status, wait_all};
use super::*;

pub const CASES: &[Case] = &[
    ("participants_write_and_read_as_one", participants_write_and_read_as_one),
    ("participants_are_numbered", participants_are_numbered),
    ("a_round_waits_for_all_and_may_be_cancelled", a_round_waits_for_all_and_may_be_cancelled),
    ("handles_are_not_mixed", handles_are_not_mixed),
    ("participants_change_different_bytes", participants_change_different_bytes),
    ("collectives_are_refused_as_calls_are", collectives_are_refused_as_calls_are),
];

pub fn define(fd: i32, direction: u32, participants: u32) -> Result<sio_coll_handle_t, Code> {
    let mut all = null_mut();
    // SAFETY: a place for the handle.
    match code(unsafe { sio_coll_define(fd, direction, participants, &mut all) }) {
        Code::Success => Ok(all),
        code => Err(code),
    }
}

pub fn join(
    all: sio_coll_handle_t,
    participant: u32,
    file: &[sio_file_io_list_t],
    memory: &[sio_mem_io_list_t],
) -> Result<sio_async_handle_t, Code> {
    let mut handle = null_mut();
    let (n, m) = (file.len() as u32, memory.len() as u32);
    let (file, memory) = (file.as_ptr(), memory.as_ptr());
    // SAFETY: as in `transfer`; each test keeps the memory until the handle is completed.
    match code(unsafe { sio_coll_join(all, participant, file, n, memory, m, &mut handle) }) {
        Code::Success => Ok(handle),
        code => Err(code),
    }
}

fn participants_write_and_read_as_one(_: Over) {
    let fd = create("collective");
    // Four participants have every fourth record.
    let data = noise(4 * 250 * 100, 1);
    let of = |who: u64| [in_file(who * 100, 100, 400, 250)];
    let records = |who: usize| -> Vec<u8> {
        data.chunks(100).skip(who).step_by(4).flatten().copied().collect()
    };
    let writes = define(fd, COLL_WRITE, 4).unwrap();
    let mut parts: Vec<Vec<u8>> = (0..4).map(records).collect();
    let mut handles: Vec<_> = [2, 0, 3, 1]
        .into_iter()
        .map(|who| join(writes, who, &of(who.into()), &all_of(&mut parts[who as usize])).unwrap())
        .collect();
    assert_eq!(wait_all(&mut handles), [(Code::Success, 25_000); 4]);
    assert!(read(fd, 0, 200_000) == data);
    done(sio_coll_free(writes));

    // Twice, with threads, and the last record is truncated.
    let mut size = data.len() as u64 - 50;
    assert_eq!(control(fd, &mut [mandatory(op(CTL_SET_SIZE, &mut size))]), Code::Success);
    let reads = define(fd, COLL_READ, 4).unwrap().expose_provenance();
    for _ in 0..2 {
        let each = |who: u32| {
            let mut part = vec![0; 25_000];
            let reads = std::ptr::with_exposed_provenance_mut(reads);
            let handle = join(reads, who, &of(who.into()), &all_of(&mut part)).unwrap();
            let (_, code, count) = status(&mut [handle], ASYNC_BLOCKING).unwrap();
            assert_eq!(code, Code::Success);
            part.truncate(count as usize);
            part
        };
        let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|who| scope.spawn(move || each(who))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!((0..3).all(|who| parts[who] == records(who)));
        assert!(parts[3] == records(3)[..24_950]);
    }
    done(sio_coll_free(std::ptr::with_exposed_provenance_mut(reads)));
    drop_file(fd, "collective");
}

fn participants_are_numbered(_: Over) {
    let fd = create("participants");
    for bad in [0, 257, u32::MAX] {
        assert_eq!(define(fd, COLL_READ, bad), Err(Code::InvalidParticipant));
    }
    let all = define(fd, COLL_READ, 2).unwrap();
    assert_eq!(join(all, 2, &[], &[]), Err(Code::InvalidParticipant));
    let first = join(all, 1, &[], &[]).unwrap();
    assert_eq!(join(all, 1, &[], &[]), Err(Code::InvalidParticipant), "it has joined");
    let last = join(all, 0, &[], &[]).unwrap();
    assert_eq!(wait_all(&mut [first, last]), [(Code::Success, 0); 2]);
    done(sio_coll_free(all));
    assert_eq!(code(sio_coll_free(all)), Code::InvalidHandle);
    assert_eq!(join(all, 0, &[], &[]), Err(Code::InvalidHandle));
    drop_file(fd, "participants");
}

fn a_round_waits_for_all_and_may_be_cancelled(_: Over) {
    let fd = create("round");
    let all = define(fd, COLL_WRITE, 3).unwrap();
    let (mut a, mut b) = (*b"aaaa", *b"bbbb");
    let one = join(all, 0, &[in_file(0, 4, 0, 1)], &all_of(&mut a)).unwrap();
    let two = join(all, 1, &[in_file(4, 4, 0, 1)], &all_of(&mut b)).unwrap();
    assert_eq!(status(&mut [one, two], ASYNC_NONBLOCKING), Err(Code::IoInProgress));
    assert_eq!(code(sio_close(fd)), Code::IoInProgress);
    assert_eq!(code(sio_coll_free(all)), Code::IoInProgress);
    assert_eq!(cancel(&mut [one]), Code::Success);
    assert_eq!(wait_all(&mut [one, two]), [(Code::IoCanceled, 0); 2]);
    assert_eq!(ask(fd, CTL_GET_SIZE), 0, "nothing was written");
    // The next round is not affected.
    let one = join(all, 0, &[in_file(0, 4, 0, 1)], &all_of(&mut a)).unwrap();
    let two = join(all, 1, &[in_file(4, 4, 0, 1)], &all_of(&mut b)).unwrap();
    let three = join(all, 2, &[], &[]).unwrap();
    let ended = wait_all(&mut [one, two, three]);
    assert_eq!(ended, [(Code::Success, 4), (Code::Success, 4), (Code::Success, 0)]);
    assert_eq!(read(fd, 0, 9), b"aaaabbbb");
    done(sio_coll_free(all));
    drop_file(fd, "round");
}

fn handles_are_not_mixed(_: Over) {
    let fd = create("mixed");
    let all = define(fd, COLL_READ, 1).unwrap();
    let mut byte = [0];
    let single = start(false, fd, &[in_file(0, 1, 0, 1)], &all_of(&mut byte)).unwrap();
    let joint = join(all, 0, &[], &[]).unwrap();
    let mixed = status(&mut [single, joint], ASYNC_BLOCKING);
    assert_eq!(mixed, Err(Code::MixedCollAndAsync));
    assert_eq!(cancel(&mut [joint, single]), Code::MixedCollAndAsync);
    assert_eq!(wait_all(&mut [single]), [(Code::Success, 0)]);
    assert_eq!(wait_all(&mut [joint]), [(Code::Success, 0)]);
    done(sio_coll_free(all));
    drop_file(fd, "mixed");
}

fn participants_change_different_bytes(_: Over) {
    let fd = create("apart");
    let (mut a, mut b) = (*b"aaaa", *b"bbbb");
    let all = define(fd, COLL_WRITE, 2).unwrap();
    let one = join(all, 0, &[in_file(0, 4, 0, 1)], &all_of(&mut a)).unwrap();
    let overlaps = join(all, 1, &[in_file(3, 4, 0, 1)], &all_of(&mut b));
    assert_eq!(overlaps, Err(Code::InvalidFileList));
    let two = join(all, 1, &[in_file(4, 4, 0, 1)], &all_of(&mut b)).unwrap();
    assert_eq!(wait_all(&mut [one, two]), [(Code::Success, 4); 2]);
    done(sio_coll_free(all));
    let all = define(fd, COLL_READ, 2).unwrap();
    let one = join(all, 0, &[in_file(0, 4, 0, 1)], &all_of(&mut a)).unwrap();
    let overlaps = join(all, 1, &[in_file(0, 4, 0, 1)], &all_of(&mut a));
    assert_eq!(overlaps, Err(Code::InvalidMemoryList));
    let two = join(all, 1, &[in_file(0, 4, 0, 1)], &all_of(&mut b)).unwrap();
    assert_eq!(wait_all(&mut [one, two]), [(Code::Success, 4); 2]);
    assert_eq!((&a, &b), (b"aaaa", b"aaaa"));
    done(sio_coll_free(all));
    drop_file(fd, "apart");
}

fn collectives_are_refused_as_calls_are(_: Over) {
    let fd = open("collective mode", MODE_WRITE | MODE_CREATE);
    assert_eq!(define(fd, COLL_READ, 1), Err(Code::IncorrectMode));
    assert_eq!(define(fd, 3, 1), Err(Code::InvalidArgument));
    assert_eq!(define(-1, COLL_READ, 1), Err(Code::InvalidDescriptor));
    let all = define(fd, COLL_WRITE, 1).unwrap();
    let mut byte = [0];
    let memory = all_of(&mut byte);
    assert_eq!(join(all, 0, &[], &memory), Err(Code::UnequalLists));
    assert_eq!(join(all, 0, &[in_file(u64::MAX, 1, 0, 1)], &memory), Err(Code::InvalidFileList));
    let null = [in_memory(null_mut(), 1, 0, 1)];
    assert_eq!(join(all, 0, &[in_file(0, 1, 0, 1)], &null), Err(Code::InvalidMemoryList));
    assert_eq!(join(null_mut(), 0, &[], &[]), Err(Code::InvalidHandle));
    let bad = std::ptr::without_provenance_mut(5);
    assert_eq!(join(bad, 0, &[], &[]), Err(Code::InvalidHandle));
    close(fd);
    assert_eq!(join(all, 0, &[], &[]), Err(Code::InvalidDescriptor), "its file is closed");
    done(sio_coll_free(all));
    let fd = open("collective mode", MODE_READ);
    let many: Vec<_> = (0..64).map(|_| define(fd, COLL_READ, 1).unwrap()).collect();
    assert_eq!(define(fd, COLL_READ, 1), Err(Code::MaxAsyncOutstandingExceeded));
    many.into_iter().for_each(|one| done(sio_coll_free(one)));
    drop_file(fd, "collective mode");
}

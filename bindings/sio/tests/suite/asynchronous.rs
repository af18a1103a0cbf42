//! `sio_async_sg_read`, `sio_async_sg_write`, `sio_async_status_any`, `sio_async_cancel_all`.

use super::*;

pub const CASES: &[Case] = &[
    ("operations_end_and_are_told_once", operations_end_and_are_told_once),
    ("operations_are_refused_as_calls_are", operations_are_refused_as_calls_are),
    ("so_many_are_outstanding_and_no_more", so_many_are_outstanding_and_no_more),
    ("handles_that_are_none_are_refused", handles_that_are_none_are_refused),
    ("what_is_cancelled_ends", what_is_cancelled_ends),
    ("a_file_is_closed_after_its_operations", a_file_is_closed_after_its_operations),
];

pub fn start(
    write: bool,
    fd: i32,
    file: &[sio_file_io_list_t],
    memory: &[sio_mem_io_list_t],
) -> Result<sio_async_handle_t, Code> {
    let mut handle = null_mut();
    let call = if write { sio_async_sg_write } else { sio_async_sg_read };
    let (n, m) = (file.len() as u32, memory.len() as u32);
    // SAFETY: as in `transfer`; each test keeps the memory until the handle is completed.
    match code(unsafe { call(fd, file.as_ptr(), n, memory.as_ptr(), m, &mut handle) }) {
        Code::Success => Ok(handle),
        code => Err(code),
    }
}

pub fn status(handles: &mut [sio_async_handle_t], flags: u32) -> Result<(usize, Code, u64), Code> {
    let (mut index, mut status) = (u32::MAX, sio_async_status_t::default());
    let len = handles.len() as u32;
    // SAFETY: the list has the stated length.
    let number =
        unsafe { sio_async_status_any(handles.as_mut_ptr(), len, &mut index, &mut status, flags) };
    match code(number) {
        Code::Success => Ok((index as usize, code(status.status), status.count)),
        code => Err(code),
    }
}

pub fn cancel(handles: &mut [sio_async_handle_t]) -> Code {
    // SAFETY: as above.
    code(unsafe { sio_async_cancel_all(handles.as_mut_ptr(), handles.len() as u32) })
}

/// Completes all of them; the statuses in their order.
pub fn wait_all(handles: &mut [sio_async_handle_t]) -> Vec<(Code, u64)> {
    let mut ended = vec![(Code::IoInProgress, 0); handles.len()];
    for _ in 0..handles.len() {
        let (at, code, count) = status(handles, ASYNC_BLOCKING).unwrap();
        ended[at] = (code, count);
        handles[at] = null_mut();
    }
    ended
}

fn operations_end_and_are_told_once(_: Over) {
    let fd = create("asynchronous");
    let data = noise(1_000_000, 1);
    let mut parts: Vec<Vec<u8>> = data.chunks(10_000).map(<[u8]>::to_vec).collect();
    let at = |i: usize| [in_file(i as u64 * 10_000, 10_000, 0, 1)];
    let begin = |write, parts: &mut Vec<Vec<u8>>| -> Vec<sio_async_handle_t> {
        let each = parts.iter_mut().enumerate();
        each.map(|(i, part)| start(write, fd, &at(i), &all_of(part)).unwrap()).collect()
    };
    let mut handles = begin(true, &mut parts);
    assert_eq!(wait_all(&mut handles), vec![(Code::Success, 10_000); 100]);
    assert!(read(fd, 0, 2_000_000) == data);
    for part in &mut parts {
        part.fill(0);
    }
    let mut handles = begin(false, &mut parts);
    let copy = handles.clone();
    assert_eq!(wait_all(&mut handles), vec![(Code::Success, 10_000); 100]);
    assert!(parts.concat() == data);
    for handle in copy {
        let dead = status(&mut [handle], ASYNC_NONBLOCKING);
        assert_eq!(dead, Err(Code::InvalidHandle), "it was told once");
    }
    // At the end of the file the transfer is short, as in a synchronous call.
    let mut buffer = [0; 20];
    let handle = start(false, fd, &[in_file(999_995, 20, 0, 1)], &all_of(&mut buffer)).unwrap();
    let dummy = null_mut();
    let found = status(&mut [dummy, handle, dummy], ASYNC_BLOCKING);
    assert_eq!(found, Ok((1, Code::Success, 5)));
    drop_file(fd, "asynchronous");
}

fn operations_are_refused_as_calls_are(_: Over) {
    let fd = open("refused", MODE_WRITE | MODE_CREATE);
    let mut buffer = [0; 10];
    let memory = all_of(&mut buffer);
    let file = [in_file(0, 10, 0, 1)];
    assert_eq!(start(false, fd, &file, &memory), Err(Code::IncorrectMode));
    assert_eq!(start(true, fd + 1, &file, &memory), Err(Code::InvalidDescriptor));
    assert_eq!(start(true, fd, &[in_file(0, 9, 0, 1)], &memory), Err(Code::UnequalLists));
    assert_eq!(start(true, fd, &[in_file(0, 5, 4, 2)], &memory), Err(Code::InvalidFileList));
    let null = [in_memory(null_mut(), 10, 0, 1)];
    assert_eq!(start(true, fd, &file, &null), Err(Code::InvalidMemoryList));
    drop_file(fd, "refused");
}

fn so_many_are_outstanding_and_no_more(_: Over) {
    let fd = create("outstanding");
    write(fd, 0, &[7; 64]);
    let mut bytes = vec![[0u8; 64]; MAX_ASYNC_OUTSTANDING as usize + 1];
    let file = [in_file(0, 64, 0, 1)];
    let (last, most) = bytes.split_last_mut().unwrap();
    let begin = |one: &mut [u8; 64]| start(false, fd, &file, &all_of(one));
    let mut handles: Vec<_> = most.iter_mut().map(|one| begin(one).unwrap()).collect();
    assert_eq!(begin(last), Err(Code::MaxAsyncOutstandingExceeded));
    let (at, code, count) = status(&mut handles, ASYNC_BLOCKING).unwrap();
    assert_eq!((code, count), (Code::Success, 64));
    handles[at] = begin(last).unwrap();
    assert!(wait_all(&mut handles).iter().all(|ended| *ended == (Code::Success, 64)));
    assert!(bytes.iter().all(|one| *one == [7; 64]));
    drop_file(fd, "outstanding");
}

fn handles_that_are_none_are_refused(_: Over) {
    let bad = |number: usize| std::ptr::without_provenance_mut::<c_void>(number);
    for number in [1, 77, 1 << 31, usize::MAX, 1 << 40] {
        assert_eq!(status(&mut [bad(number)], ASYNC_BLOCKING), Err(Code::InvalidHandle));
        assert_eq!(cancel(&mut [bad(number)]), Code::InvalidHandle);
    }
    let nobody = status(&mut [null_mut(); 3], ASYNC_BLOCKING);
    assert_eq!(nobody, Err(Code::InvalidHandle), "nothing to wait for");
    assert_eq!(status(&mut [], ASYNC_BLOCKING), Err(Code::InvalidHandle));
    for flags in [0, 3, u32::MAX] {
        assert_eq!(status(&mut [], flags), Err(Code::InvalidArgument));
    }
}

fn what_is_cancelled_ends(_: Over) {
    let fd = create("cancelled");
    let mut parts = vec![vec![1u8; 1 << 20]; 60];
    let each = parts.iter_mut().enumerate();
    let begin = |(i, part): (usize, &mut Vec<u8>)| {
        start(true, fd, &[in_file((i as u64) << 20, 1 << 20, 0, 1)], &all_of(part)).unwrap()
    };
    let mut handles: Vec<_> = each.map(begin).collect();
    assert_eq!(cancel(&mut handles), Code::Success);
    for (code, count) in wait_all(&mut handles) {
        // Cancelling is a request: a running operation may complete.
        match code {
            Code::Success => assert_eq!(count, 1 << 20),
            code => assert_eq!((code, count), (Code::IoCanceled, 0)),
        }
    }
    drop_file(fd, "cancelled");
}

fn a_file_is_closed_after_its_operations(_: Over) {
    let fd = create("busy");
    let mut part = vec![1u8; 8 << 20];
    let handle = start(true, fd, &[in_file(0, 8 << 20, 0, 1)], &all_of(&mut part)).unwrap();
    let early = code(sio_close(fd));
    assert_eq!(wait_all(&mut [handle]), [(Code::Success, 8 << 20)]);
    match early {
        Code::Success => assert_eq!(unlink("busy"), Code::Success),
        code => {
            assert_eq!(code, Code::IoInProgress);
            drop_file(fd, "busy");
        }
    }
}

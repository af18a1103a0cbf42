//! `sio_sg_read` and `sio_sg_write`.

use super::*;

pub const CASES: &[Case] = &[
    ("strided_lists_are_read_and_written", strided_lists_are_read_and_written),
    ("lists_in_any_order_are_taken", lists_in_any_order_are_taken),
    ("a_read_ends_where_the_file_ends", a_read_ends_where_the_file_ends),
    ("lists_that_differ_are_unequal", lists_that_differ_are_unequal),
    ("bad_lists_are_refused", bad_lists_are_refused),
    ("long_transfers_go_in_batches", long_transfers_go_in_batches),
    ("random_lists_do_as_a_model_does", random_lists_do_as_a_model_does),
];

fn strided_lists_are_read_and_written(_: Over) {
    let fd = create("strided");
    let mut model = noise(100_000, 2);
    write(fd, 0, &model);
    // 50 records of 838 bytes, from memory in two strided entries.
    let mut memory = noise(100_000, 3);
    let file = [in_file(11, 838, 1500, 50)];
    let list = [
        in_memory(memory.as_mut_ptr(), 419, 1000, 60),
        in_memory(memory[70_000..].as_mut_ptr(), 41_900 - 419 * 60, 0, 1),
    ];
    assert_eq!(transfer(true, fd, &file, &list), (Code::Success, 41_900), "{}", last_error());
    let mut taken: Vec<u8> = (0..60).flat_map(|i| memory[i * 1000..][..419].to_vec()).collect();
    taken.extend(&memory[70_000..][..41_900 - 419 * 60]);
    for (i, record) in taken.chunks(838).enumerate() {
        model[11 + i * 1500..][..838].copy_from_slice(record);
    }
    assert!(read(fd, 0, 100_000) == model);
    let mut back = vec![0; 100_000];
    let list = [
        in_memory(back.as_mut_ptr(), 419, 1000, 60),
        in_memory(back[70_000..].as_mut_ptr(), 41_900 - 419 * 60, 0, 1),
    ];
    assert_eq!(transfer(false, fd, &file, &list), (Code::Success, 41_900));
    for i in 0..60 {
        assert!(back[i * 1000..][..419] == memory[i * 1000..][..419]);
        let gap = &back[i * 1000 + 419..(i + 1) * 1000];
        assert!(gap.iter().all(|byte| *byte == 0), "between the elements nothing is touched");
    }
    drop_file(fd, "strided");
}

fn lists_in_any_order_are_taken(_: Over) {
    let fd = create("order");
    // Backwards, with empty entries between them.
    let mut letters = *b"abcdef";
    let file = [in_file(4, 2, 0, 1), in_file(9, 0, 0, 7), in_file(2, 2, 0, 1), in_file(0, 2, 0, 1)];
    let memory = [in_memory(letters.as_mut_ptr(), 2, 2, 3), in_memory(null_mut(), 0, 0, 0)];
    assert_eq!(transfer(true, fd, &file, &memory), (Code::Success, 6), "{}", last_error());
    assert_eq!(read(fd, 0, 9), b"efcdab");
    // The same bytes twice.
    let mut twice = [0; 8];
    let file = [in_file(1, 4, 0, 2)];
    assert_eq!(transfer(false, fd, &file, &all_of(&mut twice)), (Code::Success, 8));
    assert_eq!(&twice, b"fcdafcda");
    assert_eq!(transfer(false, fd, &[], &[]), (Code::Success, 0), "nothing at all");
    assert_eq!(transfer(true, fd, &[], &[]), (Code::Success, 0));
    drop_file(fd, "order");
}

fn a_read_ends_where_the_file_ends(_: Over) {
    let fd = create("end");
    write(fd, 0, b"0123456789");
    assert_eq!(read(fd, 0, 50), b"0123456789");
    assert_eq!(read(fd, 10, 5), b"");
    assert_eq!(read(fd, 1 << 61, 5), b"");
    let mut buffer = [b'.'; 12];
    let file = [in_file(0, 4, 8, 3)];
    let (code, total) = transfer(false, fd, &file, &all_of(&mut buffer));
    assert_eq!((code, total, &buffer), (Code::Success, 6, b"012389......"));
    // Entries after the end are not read, wherever they lie.
    let mut buffer = [b'.'; 6];
    let file = [in_file(8, 4, 0, 1), in_file(0, 2, 0, 1)];
    let (code, total) = transfer(false, fd, &file, &all_of(&mut buffer));
    assert_eq!((code, total, &buffer), (Code::Success, 2, b"89...."));
    drop_file(fd, "end");
}

fn lists_that_differ_are_unequal(_: Over) {
    let fd = create("unequal");
    let mut buffer = [0; 10];
    for size in [9, 11] {
        for write in [false, true] {
            let ended = transfer(write, fd, &[in_file(0, size, 0, 1)], &all_of(&mut buffer));
            assert_eq!(ended, (Code::UnequalLists, 0));
        }
    }
    assert_eq!(transfer(true, fd, &[], &all_of(&mut buffer)), (Code::UnequalLists, 0));
    assert_eq!(ask(fd, CTL_GET_SIZE), 0, "nothing was written");
    drop_file(fd, "unequal");
}

fn bad_lists_are_refused(_: Over) {
    let fd = create("bad lists");
    let mut buffer = [0; 64];
    let bad = [
        in_file(1 << 62, 1, 0, 1),
        in_file(u64::MAX, 1, 0, 1),
        in_file(0, u64::MAX, 0, 1),
        in_file(1, 8, u64::MAX, 8),
        in_file(0, 1, u64::MAX / 4, 64),
        in_file(0, 1, 1, MAX_COUNT + 1),
        in_file(0, u64::from(MAX_TRANSFER_LEN), 0, 2),
    ];
    for entry in bad {
        for write in [false, true] {
            let ended = transfer(write, fd, &[entry], &all_of(&mut buffer));
            assert_eq!(ended, (Code::InvalidFileList, 0), "{entry:?}");
        }
    }
    let file = [in_file(0, 64, 0, 1)];
    let at = buffer.as_mut_ptr();
    let bad = [
        in_memory(null_mut(), 64, 0, 1),
        in_memory(at, u64::MAX, 0, 1),
        in_memory(at, 8, u64::MAX / 2, 8),
        in_memory(at, 1, 1, MAX_COUNT + 1),
    ];
    for entry in bad {
        for write in [false, true] {
            let ended = transfer(write, fd, &file, &[entry]);
            assert_eq!(ended, (Code::InvalidMemoryList, 0), "{entry:?}");
        }
    }
    // The changed side must not name a byte twice.
    let twice = [in_memory(at, 32, 0, 2)];
    assert_eq!(transfer(false, fd, &file, &twice), (Code::InvalidMemoryList, 0));
    assert_eq!(transfer(true, fd, &file, &twice), (Code::Success, 64));
    let file = [in_file(0, 32, 31, 2)];
    assert_eq!(transfer(true, fd, &file, &all_of(&mut buffer)), (Code::InvalidFileList, 0));
    assert_eq!(transfer(false, fd, &file, &all_of(&mut buffer)), (Code::Success, 64));
    let many = vec![in_file(0, 0, 0, 0); MAX_COUNT as usize + 1];
    assert_eq!(transfer(false, fd, &many, &[]), (Code::InvalidFileList, 0));
    drop_file(fd, "bad lists");
}

fn long_transfers_go_in_batches(_: Over) {
    let fd = create("long");
    let data = noise(11_000_001, 7);
    write(fd, 3, &data);
    assert!(read(fd, 3, data.len() + 10) == data);
    // 60,000 elements, more than fit one request.
    let mut buffer = vec![0; 60_000 * 7];
    let file = [in_file(5, 7, 150, 60_000)];
    let ended = transfer(false, fd, &file, &all_of(&mut buffer));
    assert_eq!(ended, (Code::Success, 420_000), "{}", last_error());
    assert!(buffer.chunks(7).enumerate().all(|(i, element)| element == &data[2 + i * 150..][..7]));
    let marks = noise(buffer.len(), 9);
    buffer.copy_from_slice(&marks);
    let ended = transfer(true, fd, &file, &all_of(&mut buffer));
    assert_eq!(ended, (Code::Success, 420_000), "{}", last_error());
    let mut model = data;
    for (i, element) in marks.chunks(7).enumerate() {
        model[2 + i * 150..][..7].copy_from_slice(element);
    }
    assert!(read(fd, 3, model.len()) == model);
    drop_file(fd, "long");
}

fn random_lists_do_as_a_model_does(_: Over) {
    let fd = create("model");
    let mut model: Vec<u8> = Vec::new();
    let mut dice = noise(40_000, 11).into_iter().cycle();
    let mut roll = |most: u64| {
        let number = (0..3).fold(0u64, |n, _| n << 8 | u64::from(dice.next().unwrap()));
        number % (most + 1)
    };
    for round in 0..120 {
        let entries: Vec<_> = (0..1 + roll(6))
            .map(|_| in_file(roll(60_000), 1 + roll(900), 900 + roll(3000), roll(9) as u32))
            .collect();
        let spans = |list: &[sio_file_io_list_t]| -> Vec<(usize, usize)> {
            let of = |e: &sio_file_io_list_t| {
                let e = *e;
                (0..u64::from(e.element_cnt))
                    .map(move |i| ((e.offset + i * e.stride) as usize, e.size as usize))
            };
            list.iter().flat_map(of).collect()
        };
        let all = spans(&entries);
        let total: usize = all.iter().map(|span| span.1).sum();
        let mut buffer = noise(total, round + 100);
        if round % 2 == 0 {
            let (code, bytes) = transfer(true, fd, &entries, &all_of(&mut buffer));
            if code == Code::InvalidFileList {
                continue; // Elements of two entries overlap.
            }
            assert_eq!((code, bytes), (Code::Success, total as u64), "{}", last_error());
            let mut rest = &buffer[..];
            for (offset, size) in all {
                let (here, later) = rest.split_at(size);
                model.resize(model.len().max(offset + size), 0);
                model[offset..offset + size].copy_from_slice(here);
                rest = later;
            }
        } else {
            let (code, bytes) = transfer(false, fd, &entries, &all_of(&mut buffer));
            assert_eq!(code, Code::Success, "{}", last_error());
            let mut want = Vec::new();
            for (offset, size) in all {
                let end = (offset + size).min(model.len());
                want.extend_from_slice(&model[offset.min(end)..end]);
                if end < offset + size {
                    break;
                }
            }
            assert_eq!(bytes, want.len() as u64, "round {round}");
            assert!(buffer[..want.len()] == want, "round {round}");
        }
    }
    assert!(read(fd, 0, model.len() + 1) == model);
    drop_file(fd, "model");
}

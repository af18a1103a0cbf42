//! The file system named by the environment variable is attached.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod suite;

use suite::{create, drop_file, read, write};

#[test]
fn the_first_call_attaches_once_whichever_thread_makes_it() {
    let directory = tempfile::tempdir().unwrap();
    let files = format!("plain:{}", directory.path().display());
    // SAFETY: this program has one test, and no other thread reads the environment yet.
    unsafe { std::env::set_var("SIO_FILES", files) };
    let (count, start) = (16, std::sync::Barrier::new(16));
    std::thread::scope(|scope| {
        for thread in 0..count {
            let start = &start;
            scope.spawn(move || {
                let name = format!("of thread {thread}");
                start.wait();
                let fd = create(&name);
                write(fd, 0, name.as_bytes());
                start.wait();
                assert_eq!(read(fd, 0, 99), name.as_bytes());
                drop_file(fd, &name);
            });
        }
    });
}

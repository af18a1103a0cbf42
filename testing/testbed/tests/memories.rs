//! A file as large as a node's memory replaces the pages cached there.

use std::fs;
use std::process::{Command, Stdio};
use weir_testbed::{Memory, in_memory};

#[test]
fn a_file_as_large_as_memory_displaces_what_was_read_again_and_again() {
    const BYTES: u64 = 96 << 20;
    if let Some(what) = weir_testbed::missing().or_else(weir_testbed::missing_for_cold) {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-test-memory{}", std::process::id());
    let Some(memory) = Memory::new(&name, BYTES).unwrap() else {
        println!("skipped: needs the memory controller of cgroup v1");
        return;
    };
    // In /var/tmp, which is on a disk: a file system in memory cannot drop its files.
    let root = std::path::PathBuf::from(format!("/var/tmp/{name}"));
    let (dir, own) = (root.join("read"), root.join("own"));
    [&dir, &own].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    let read = || -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let file = dir.join("file");
        fs::write(&file, vec![7; 4 << 20])?;
        weir_testbed::forget(&dir)?;
        // It reads twice, when it is in the group.
        let script = "read go && cat \"$1\" \"$1\" > /dev/null";
        let mut reader = Command::new("sh");
        let reader = reader.args(["-c", script, "sh"]).arg(&file).stdin(Stdio::piped());
        let mut reader = reader.spawn()?;
        memory.add(reader.id().cast_signed())?;
        let go = reader.stdin.take();
        go.map_or(Ok(()), |mut go| std::io::Write::write_all(&mut go, b"go\n"))?;
        reader.wait()?;
        let before = in_memory(&dir)?;
        memory.fill(&own)?;
        Ok((before, in_memory(&dir)?))
    };
    let read = read();
    fs::remove_dir_all(&root).unwrap();
    let (before, after) = read.unwrap();
    assert_eq!((before, after), (4 << 20, 0));
}

//! Processes that have to end within a set time.

use crate::stop;
use std::io::{Error, Read, Result};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until all have ended well; what each has said to standard error, which is little. If one fails, or the time
/// is over, or a signal comes, all are killed.
pub fn end(mut children: Vec<Child>, within: Duration) -> Result<Vec<String>> {
    let done = wait(&mut children, within);
    if done.is_err() {
        kill(&mut children);
    }
    done?;
    children.iter_mut().map(said).collect()
}

/// Kills all that have not ended.
pub fn kill(children: &mut [Child]) {
    for child in children {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn wait(children: &mut [Child], within: Duration) -> Result<()> {
    let begin = Instant::now();
    loop {
        stop::check()?;
        let mut is_over = true;
        for child in &mut *children {
            match child.try_wait()? {
                None => is_over = false,
                Some(status) if status.success() => {}
                Some(status) => {
                    let why = said(child)?;
                    return Err(Error::other(format!("{status}: {}", why.trim_end())));
                }
            }
        }
        if is_over {
            return Ok(());
        }
        if begin.elapsed() > within {
            return Err(Error::other(format!("not done within {within:?}")));
        }
        sleep(PAUSE);
    }
}

/// What one that has ended has written to standard error, if that is a pipe.
fn said(child: &mut Child) -> Result<String> {
    let mut said = String::new();
    if let Some(pipe) = &mut child.stderr {
        pipe.read_to_string(&mut said)?;
    }
    Ok(said)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sh(text: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn one_that_fails_ends_all_and_its_error_is_told() {
        let well = end(vec![sh("true"), sh("echo b >&2")], Duration::from_secs(60)).unwrap();
        assert_eq!((&*well[0], &*well[1]), ("", "b\n"));
        let (begin, patience) = (Instant::now(), Duration::from_secs(300));
        let failed = end(vec![sh("exec sleep 300"), sh("echo why >&2; exit 3")], patience);
        let failed = failed.err().unwrap().to_string();
        assert!(failed.contains("why") && begin.elapsed() < patience, "{failed}");
        end(vec![sh("exec sleep 300")], Duration::from_millis(50)).err().unwrap();
    }
}

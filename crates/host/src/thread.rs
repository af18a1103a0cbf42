//! Threads.

use crate::simulated;
use std::io;
use std::time::Duration;

/// A thread that was started.
pub struct JoinHandle(Kind);

enum Kind {
    Os(std::thread::JoinHandle<()>),
    Simulated(Box<dyn simulated::Thread>),
}

/// The thread panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl JoinHandle {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// [`Panicked`].
    pub fn join(self) -> Result<(), Panicked> {
        match self.0 {
            Kind::Os(thread) => thread.join().map_err(|_| Panicked),
            Kind::Simulated(thread) => thread.join().then_some(()).ok_or(Panicked),
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Os(thread) => thread.is_finished(),
            Kind::Simulated(thread) => thread.is_finished(),
        }
    }
}

impl std::fmt::Debug for JoinHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// Starts a thread.
///
/// # Errors
/// Those of the kernel if it cannot start one.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    if let Some(machine) = simulated::current() {
        return Ok(JoinHandle(Kind::Simulated(machine.spawn(name, Box::new(body))?)));
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(JoinHandle(Kind::Os(thread)))
}

/// Waits for a time.
pub fn sleep(time: Duration) {
    match simulated::current() {
        Some(machine) => machine.sleep(time),
        None => std::thread::sleep(time),
    }
}

/// Runs foreign code that holds its own locks during file operations. In a simulation no other
/// thread runs meanwhile, because it might want those locks.
pub fn uninterrupted<T>(body: impl FnOnce() -> T) -> T {
    struct Guard(Option<std::rc::Rc<dyn simulated::Machine>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if let Some(machine) = &self.0 {
                machine.set_uninterrupted(false);
            }
        }
    }
    let guard = Guard(simulated::current());
    if let Some(machine) = &guard.0 {
        machine.set_uninterrupted(true);
    }
    body()
}

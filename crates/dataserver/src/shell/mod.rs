//! The shell: event loops, threads, the connection to the metadata server, start and stop. It carries
//! out what the machine decides, with the layers below.
//!
//! - [`service`]: the event loop's side. It hands tasks to the threads of disks ([`disk_thread`]) and to
//!   those that wait for other servers ([`crate::copies::pools`], [`copier`], [`forward`]).
//! - [`register`]: reports to the metadata server, and its orders; [`chores`] carries some of them out.
//! - [`mod@run`], [`opening`]: start and stop.

mod checkpoint;
mod chores;
mod copier;
mod descriptors;
mod disk_thread;
mod forward;
mod herald;
mod key_files;
mod listening;
mod machine_load;
pub(crate) mod metrics;
mod opening;
pub(crate) mod register;
pub(crate) mod run;
mod service;
mod threads;
mod under;

//! `weir`: servers, mount and tools in one program. `main` lists the commands; each is a module.
// These macros panic if standard error cannot be written; `logging::say` and `output::print` do
// not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod args;
mod check;
mod cluster;
mod failure;
mod files;
mod held_back;
mod jobs;
mod journal;
mod layouts;
mod log;
mod logging;
mod manual;
mod meta;
mod metrics;
mod mount;
mod mount_helper;
mod mount_log;
mod mount_options;
mod notify;
mod output;
mod progress;
mod quota;
mod reduce;
mod reliability;
mod remount;
mod serve;
mod settings;
mod signals;
mod sim;
mod spark_env;
mod testbed;
mod text;
mod version;

use args::{Arguments, Command, Detach, Server, Target, Testbed};
use clap::Parser;
use cluster::{
    adding, down, draining, explain, holds, invitation, joining, keys, rebalance, removal,
    replacing, servers, sessions, status, targets, top, up,
};
use failure::Done;
use logging::Logs;
use std::process::ExitCode;
use weir_host::plant::{Bug, plant};

/// Runs the command. Exit codes: 0 success, 1 failure, 2 (from clap) wrong usage. `weir fsck` and
/// the helper of mount(8) define others.
fn main() -> ExitCode {
    let done = mount_helper::run_if_called().unwrap_or_else(|| run(&Arguments::parse().command));
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            ExitCode::from(failure.code)
        }
    };
    logging::finish();
    code
}

/// Plants the bug that a test of this program asks for. Only a build with debug assertions has any.
fn plant_if_asked() {
    let named = std::env::var("WEIR_PLANTED_HERE").ok().filter(|_| cfg!(debug_assertions));
    let found = Bug::ALL.iter().find(|(_, name)| named.as_deref() == Some(name));
    if let Some((bug, _)) = found {
        plant(Some(*bug));
    }
}

/// What the process of a command logs.
fn logs_of(command: &Command) -> Logs<'_> {
    let detach = match command {
        Command::Data(daemon) => &daemon.detach,
        Command::Testbed(Testbed::Disk(disk)) => &disk.detach,
        Command::Meta(meta) if meta.command.is_none() => &meta.detach,
        Command::Mount(mount) if mount.foreground => &mount.detach,
        Command::Sim(_) => return Logs::Nothing,
        _ => return Logs::Command,
    };
    let Detach { detached, log, log_limit, .. } = detach;
    Logs::Daemon { detached: *detached, file: log.as_deref(), limit: *log_limit }
}

fn run(command: &Command) -> Done {
    logging::start(logs_of(command));
    plant_if_asked();
    match command {
        Command::Up(up) => up::run(up),
        Command::Down(down) => down::run(down),
        Command::Invite(invite) => invitation::invite(invite),
        Command::Join(join) => joining::run(join),
        Command::Status(status) => status::run(status),
        Command::Log(asked) => log::run(asked),
        Command::Rebalance(order) => rebalance::run(order),
        Command::Data(daemon) => serve::data(daemon),
        Command::Meta(meta) => meta::run(meta),
        Command::Mount(mount) => mount::mount(mount),
        Command::Umount(umount) => mount::umount(umount),
        Command::Cp(cp) => files::copy::run(cp),
        Command::Cat(cat) => files::simple::cat(cat),
        Command::Spread(spread) => files::spread::run(spread),
        Command::Take(take) => files::take::run(take),
        Command::Ls(ls) => files::list::run(ls),
        Command::Stat(stat) => files::stat::run(stat),
        Command::Rm(rm) => files::rm::run(rm),
        Command::Mkdir(mkdir) => files::simple::mkdir(mkdir),
        Command::Layout(layout) => layouts::show::run(layout),
        Command::Df(df) => layouts::df::run(df),
        Command::Mkfile(mkfile) => layouts::set::make_file(mkfile),
        Command::Setlayout(set) => layouts::set::set_layout(set),
        Command::Advise(asked) => layouts::advise::run(asked),
        Command::Run(run) => jobs::run(run),
        Command::Explain(asked) => explain::run(asked),
        Command::SparkEnv(asked) => spark_env::run(asked),
        Command::Scrub(scrub) => check::scrub::run(scrub),
        Command::Fsck(fsck) => check::fsck::run(fsck),
        Command::AcceptLoss(accept) => check::accept::run(accept),
        Command::Sim(sim) => sim::run(sim),
        Command::Testbed(command) => testbed::run(command),
        Command::Reliability(asked) => reliability::run(asked),
        Command::Reduce(command) => reduce::run(command),
        Command::Key(key) => keys::run(key),
        Command::Quota(quota) => quota::run(quota),
        Command::Targets(asked) => targets::list(asked),
        Command::Top(asked) => top::run(asked),
        Command::Clients(asked) => sessions::list(asked),
        Command::Locks(asked) => holds::list(asked),
        Command::Target(Target::List(asked)) => targets::list(asked),
        Command::Target(Target::Create(create)) => keys::create_target(create),
        Command::Target(Target::Add(add)) => adding::add_targets(add),
        Command::Target(Target::Drain(drain)) => draining::drain_target(drain),
        Command::Target(Target::Undrain(choice)) => draining::undrain_target(choice),
        Command::Target(Target::Remove(remove)) => removal::remove_target(remove),
        Command::Target(Target::Replace(replace)) => replacing::run(replace),
        Command::Server(Server::List(list)) => servers::list(list),
        Command::Server(Server::Add(add)) => adding::add_server(add),
        Command::Server(Server::Drain(drain)) => draining::drain_server(drain),
        Command::Server(Server::Undrain(choice)) => draining::undrain_server(choice),
        Command::Server(Server::Remove(remove)) => removal::remove_server(remove),
        Command::Completions(asked) => manual::completions(asked),
        Command::Man(asked) => manual::pages(asked),
    }
}

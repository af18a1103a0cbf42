//! `weir quota`: shows and sets the quotas of users, groups and directories, and shows their usage.

use crate::args::{
    ClientChoice, Quota, QuotaCommand, QuotaList, QuotaRemove, QuotaSet, SubjectName,
};
use crate::cluster::mounts::holding;
use crate::failure::{Done, Failure};
use crate::files::owners::Owners;
use crate::files::remote::{caller, connect};
use crate::files::upward::path_of;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::settings;
use crate::text::{Table, human_size};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weir_client::{Administrator, Client, Context};
use weir_types::{FileId, FileKind};
use weir_wire::quota::{QUOTA_XATTR, QuotaChange, QuotaInfo, QuotaLimits, QuotaSubject};

/// The interval of checks how far the counting is.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `weir quota`.
pub fn run(quota: &Quota) -> Done {
    match &quota.command {
        None => show_own(&quota.list, quota.path.as_deref()),
        Some(QuotaCommand::List(list)) => show_all(list),
        Some(QuotaCommand::Set(set)) => self::set(set),
        Some(QuotaCommand::Rm(rm)) => remove(rm),
    }
}

fn set(set: &QuotaSet) -> Done {
    if set.bytes.is_none() && set.files.is_none() {
        return Err(Failure::new("how much? give --bytes, --files or both")
            .hint("`none` counts without a limit: --bytes none"));
    }
    let client = connect(&settings::cluster(&set.client)?.credential()?, "quota set")?;
    let admin = client.administrator()?;
    let subject = resolve(&client, &set.subject)?;
    let is_it = |info: &QuotaInfo| info.subject == subject;
    let before = admin.quotas()?.into_iter().find(is_it).map(|info| info.limits);
    let before = before.unwrap_or_default();
    let limits = QuotaLimits {
        bytes: set.bytes.map_or(before.bytes, |limit| limit.0),
        files: set.files.map_or(before.files, |limit| limit.0),
    };
    admin.set_quota(subject, QuotaChange::Set(limits))?;
    if set.wait { wait(&admin, subject) } else { Ok(()) }
}

/// Waits until existing files have been counted.
fn wait(admin: &Administrator, subject: QuotaSubject) -> Done {
    let progress = Progress::start(false, 0);
    loop {
        let quotas = admin.quotas()?.into_iter();
        let mut counting = quotas.filter(|info| info.subject == subject && info.counting);
        let Some(info) = counting.next() else { break };
        let (files, bytes) = (info.used_files, human_size(info.used_bytes));
        progress.say(|| format!("counting: {files} files, {bytes}"));
        // There is no notification of the end.
        std::thread::sleep(INTERVAL);
    }
    progress.finish();
    Ok(())
}

fn remove(rm: &QuotaRemove) -> Done {
    let client = connect(&settings::cluster(&rm.client)?.credential()?, "quota rm")?;
    let subject = resolve(&client, &rm.subject)?;
    Ok(client.administrator()?.set_quota(subject, QuotaChange::Remove)?)
}

fn resolve(client: &Client, name: &SubjectName) -> Done<QuotaSubject> {
    let number = |owners: Owners, name: &str, what: &str| {
        owners.number(name).ok_or_else(|| {
            Failure::new(format!("this machine knows no {what} '{name}'"))
                .hint("give the number, as it is on the machines that mount the file system")
        })
    };
    match name {
        SubjectName::User(name) => number(Owners::users(), name, "user").map(QuotaSubject::User),
        SubjectName::Group(name) => {
            number(Owners::groups(), name, "group").map(QuotaSubject::Group)
        }
        SubjectName::Directory(path) => directory(client, path).map(QuotaSubject::Directory),
    }
}

fn directory(client: &Client, path: &str) -> Done<FileId> {
    let path = path.strip_prefix("weir:").unwrap_or(path);
    let found = client.resolve(&Context::root(), path.as_bytes(), true);
    let attr = found.map_err(|e| Failure::from(e).about(format!("weir:{path}")))?;
    if attr.kind != FileKind::Directory {
        return Err(Failure::new("not a directory").about(format!("weir:{path}")));
    }
    Ok(attr.file)
}

fn show_own(list: &QuotaList, path: Option<&Path>) -> Done {
    let ClientChoice { cluster, credential } = &list.client;
    let is_named = cluster.name.is_some() || cluster.dir.is_some() || credential.is_some();
    let at = path.or((!is_named).then_some(Path::new(".")));
    let at = at.map(settings::absolute).transpose()?;
    if let Some(at) = at.filter(|at| path.is_some() || matches!(holding(at), Ok(Some(_)))) {
        return show_at(&at, list.json);
    }
    let client = connect(&settings::cluster(&list.client)?.credential()?, "quota")?;
    let quotas = client.own_quotas(&Context::of(caller()))?;
    show_those_of(&quotas, list.json, &|dir| path_of(&client, dir))
}

/// Shows the quotas that apply to the caller.
fn show_those_of(
    quotas: &[QuotaInfo],
    as_json: bool,
    dirs: &dyn Fn(FileId) -> Option<String>,
) -> Done {
    match quotas.is_empty() && !as_json {
        true => print("there is no quota for you and your groups\n"),
        false => show(quotas, as_json, dirs),
    }
}

/// Shows the quotas that a mount reports to any caller, with or without a key of the cluster.
fn show_at(at: &Path, as_json: bool) -> Done {
    if holding(at)?.is_none() {
        return Err(Failure::new("is not in a mounted Weir").about(at.display()));
    }
    let mut bytes = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(at, QUOTA_XATTR, &mut bytes[..]).map_err(|e| match e {
        rustix::io::Errno::NODATA => Failure::new("its mount is of an older version of Weir")
            .about(at.display())
            .hint("mount it again, or name a credential: `weir quota --credential FILE`"),
        e => Failure::file(at, e),
    })?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let quotas: Option<Vec<QuotaInfo>> = text.lines().map(QuotaInfo::of_line).collect();
    let Some(quotas) = quotas else {
        return Err(Failure::new("its mount is of another version of Weir").about(at.display()));
    };
    show_those_of(&quotas, as_json, &|_| Some(at.display().to_string()))
}

fn show_all(list: &QuotaList) -> Done {
    let client = connect(&settings::cluster(&list.client)?.credential()?, "quota list")?;
    let quotas = client.administrator()?.quotas()?;
    show(&quotas, list.json, &|dir| path_of(&client, dir))
}

/// Shows quotas. `dirs` returns the paths of directories.
fn show(quotas: &[QuotaInfo], as_json: bool, dirs: &dyn Fn(FileId) -> Option<String>) -> Done {
    let names = Names { users: Owners::users(), groups: Owners::groups(), dirs };
    if as_json {
        return print_json(&quotas.iter().map(|info| names.json(info)).collect::<Vec<_>>());
    }
    let mut table =
        Table::new(&["WHOSE", ">USED", ">LIMIT", ">USE%", ">FILES", ">LIMIT", ">USE%", "STATE"]);
    for info in quotas {
        let QuotaLimits { bytes, files } = info.limits;
        let none = || "none".to_owned();
        table.row(vec![
            names.shown(info.subject),
            human_size(info.used_bytes),
            bytes.map_or_else(none, human_size),
            percent(info.used_bytes, bytes),
            info.used_files.to_string(),
            files.map_or_else(none, |files| files.to_string()),
            percent(info.used_files, files),
            if info.counting { "counting" } else { "" }.to_owned(),
        ]);
    }
    print(&table.render())
}

/// The share in use in percent, rounded up as df does.
fn percent(used: u64, limit: Option<u64>) -> String {
    match limit {
        None | Some(0) => "-".to_owned(),
        Some(limit) => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(limit))),
    }
}

/// Names for the numbers of users, groups and directories.
struct Names<'a> {
    users: Owners,
    groups: Owners,
    dirs: &'a dyn Fn(FileId) -> Option<String>,
}

impl Names<'_> {
    fn name(&self, subject: QuotaSubject) -> Option<String> {
        match subject {
            QuotaSubject::User(uid) => Some(self.users.name(uid)),
            QuotaSubject::Group(gid) => Some(self.groups.name(gid)),
            QuotaSubject::Directory(dir) => (self.dirs)(dir),
        }
    }

    fn shown(&self, subject: QuotaSubject) -> String {
        let name = self.name(subject).unwrap_or_else(|| "?".to_owned());
        format!("{}:{name}", kind(subject))
    }

    fn json(&self, info: &QuotaInfo) -> Value {
        json!({
            "kind": kind(info.subject),
            "number": info.subject.parts().1,
            "name": self.name(info.subject),
            "used_bytes": info.used_bytes,
            "limit_bytes": info.limits.bytes,
            "granted_bytes": info.granted_bytes,
            "used_files": info.used_files,
            "limit_files": info.limits.files,
            "counting": info.counting,
        })
    }
}

fn kind(subject: QuotaSubject) -> &'static str {
    match subject {
        QuotaSubject::User(_) => "user",
        QuotaSubject::Group(_) => "group",
        QuotaSubject::Directory(_) => "dir",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_rounded_up() {
        assert_eq!(percent(1, Some(1000)), "1%");
        assert_eq!(percent(1500, Some(1000)), "150%");
        assert_eq!((percent(5, None), percent(0, Some(0))), ("-".into(), "-".into()));
    }
}

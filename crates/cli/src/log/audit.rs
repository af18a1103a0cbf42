//! `weir log --audit`: who did what on files, as all servers of a cluster have recorded it.

use crate::args::Log;
use crate::failure::{Done, Failure};
use crate::files::name::RemoteName;
use crate::files::remote::{Sessions, connect};
use crate::output::print;
use crate::settings;
use crate::text::{Table, human_size, plain, utc_time};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use weir_client::{Administrator, Client};
use weir_types::{ClientId, Error, ErrorKind, FileId, TargetId, Timestamp};
use weir_wire::audit::{AuditPage, AuditRecord, MAX_ABOUT_BYTES, UNKNOWN_USER};
use weir_wire::{Op, Rights};

/// The most records of one server that are shown: more than it keeps.
const MAX_RECORDS: usize = 1 << 17;

/// A record, and the target that has it; `None` for the metadata server.
struct Found {
    target: Option<TargetId>,
    record: AuditRecord,
}

/// Targets whose servers did not answer, and why.
type Silent = Vec<(TargetId, Error)>;

/// The file that is asked about.
struct Wanted {
    /// `None` for one that was removed: only its name is known.
    file: Option<FileId>,
    /// Its directory and its name there, cut as in records; `None` for the root.
    name: Option<(FileId, Vec<u8>)>,
}

/// Runs `weir log --audit`.
pub fn show(asked: &Log) -> Done {
    let (client, wanted) = match &asked.file {
        None => {
            let credential = settings::cluster(&asked.client)?.credential()?;
            (Arc::new(connect(&credential, "log")?), None)
        }
        Some(path) => {
            let name = RemoteName::parse(path)?;
            let tree = Sessions::default().tree(&asked.client, &name, "log")?;
            let file = match tree.find(&name.path, true) {
                Ok(attr) => Some(attr.file),
                Err(error) if error.kind == ErrorKind::NotFound => None,
                Err(error) => return Err(tree.about(&name.path)(error)),
            };
            let place = match tree.parent(&name.path) {
                Ok((dir, name)) => Some((dir, name[..name.len().min(MAX_ABOUT_BYTES)].to_vec())),
                Err(failure) if file.is_none() => return Err(failure),
                Err(_) => None,
            };
            (tree.client.clone(), Some(Wanted { file, name: place }))
        }
    };
    let admin = client.administrator()?;
    let names = names(&admin)?;
    let (mut found, silent) = collect(&client, &admin)?;
    found.retain(|it| is_asked_for(asked, wanted.as_ref(), &names, &it.record));
    found.sort_by_key(|it| (it.record.first_unix_ms, it.target, it.record.number));
    if let Some(most) = asked.lines {
        found.drain(..found.len().saturating_sub(most));
    }
    let text = match asked.json {
        true => found.iter().map(|it| format!("{}\n", to_json(&names, it))).collect(),
        false => table(&names, &found).render(),
    };
    print(&text)?;
    match silent.first() {
        None => Ok(()),
        Some((target, error)) => Err(Failure::new(format!(
            "{} targets did not give their records; target {target}: {error}",
            silent.len()
        ))),
    }
}

/// The names of keys, by client.
fn names(admin: &Administrator) -> Done<HashMap<ClientId, String>> {
    let named = admin.clients()?.into_iter().filter(|info| !info.name.is_empty());
    Ok(named.map(|info| (info.client, info.name)).collect())
}

/// All records, and the targets whose servers did not answer.
fn collect(client: &Client, admin: &Administrator) -> Done<(Vec<Found>, Silent)> {
    let mut found = Vec::new();
    let of_metadata = all(|after| admin.audit_of_metadata(after))?;
    found.extend(of_metadata.into_iter().map(|record| Found { target: None, record }));
    let mut silent = Vec::new();
    for view in client.targets()? {
        let target = view.target;
        match all(|after| admin.audit_of_target(target, after)) {
            Ok(records) => found
                .extend(records.into_iter().map(|record| Found { target: Some(target), record })),
            Err(error) => silent.push((target, error)),
        }
    }
    Ok((found, silent))
}

fn all(page: impl Fn(u64) -> Result<AuditPage, Error>) -> Result<Vec<AuditRecord>, Error> {
    let mut records: Vec<AuditRecord> = Vec::new();
    loop {
        let AuditPage { records: next, more } =
            page(records.last().map_or(0, |record| record.number))?;
        let nothing = next.is_empty();
        records.extend(next);
        if !more || nothing || records.len() > MAX_RECORDS {
            return Ok(records);
        }
    }
}

fn is_asked_for(
    asked: &Log,
    wanted: Option<&Wanted>,
    names: &HashMap<ClientId, String>,
    record: &AuditRecord,
) -> bool {
    let of_file = |wanted: &Wanted| {
        let by_name = |(dir, name): &(FileId, Vec<u8>)| {
            record.file == *dir
                && record.status == 0
                && !name.is_empty()
                && *record.about.0 == **name
        };
        wanted.file == Some(record.file) || wanted.name.as_ref().is_some_and(by_name)
    };
    let by = |name: &String| {
        *name == record.client.to_string() || names.get(&record.client) == Some(name)
    };
    asked.since.as_ref().is_none_or(|since| since.includes(&time(record.last_unix_ms)))
        && asked.by.as_ref().is_none_or(by)
        && wanted.is_none_or(of_file)
}

/// A time as logs have it.
fn time(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    utc_time(Timestamp::new(seconds, 0)).replace(' ', "T")
}

fn table(names: &HashMap<ClientId, String>, found: &[Found]) -> Table {
    let titles = [
        "FIRST", "LAST", "AT", "CLIENT", ">SESSION", ">USER", "WHAT", ">FILE", ">TIMES", ">BYTES",
        "RESULT",
    ];
    let mut table = Table::new(&titles);
    for Found { target, record } in found {
        let none = || "-".to_owned();
        table.row(vec![
            time(record.first_unix_ms),
            time(record.last_unix_ms),
            target.map_or_else(|| "metadata".to_owned(), |target| format!("target {target}")),
            plain(&client_of(names, record)),
            record.session.to_string(),
            user_of(record).map_or_else(none, |user| user.to_string()),
            what_of(record),
            if record.file == FileId(0) { none() } else { record.file.to_string() },
            record.count.to_string(),
            if record.bytes == 0 { none() } else { human_size(record.bytes) },
            result_of(record),
        ]);
    }
    table
}

fn client_of(names: &HashMap<ClientId, String>, record: &AuditRecord) -> String {
    match (record.client, names.get(&record.client)) {
        (ClientId(0), _) => "(a data server)".to_owned(),
        (_, Some(name)) => name.clone(),
        (client, None) => client.to_string(),
    }
}

fn user_of(record: &AuditRecord) -> Option<u32> {
    (record.user != UNKNOWN_USER).then_some(record.user)
}

fn op_of(record: &AuditRecord) -> String {
    Op::from_code(record.op).map_or_else(|| format!("{:#x}", record.op), |op| op.label().to_owned())
}

fn rights_of(record: &AuditRecord) -> &'static str {
    match record.rights {
        Rights::READ => "read",
        Rights::WRITE => "write",
        Rights::READ_WRITE => "read and write",
        _ => "",
    }
}

fn what_of(record: &AuditRecord) -> String {
    match rights_of(record) {
        "" => op_of(record),
        rights => format!("{} to {rights}", op_of(record)),
    }
}

/// Why a request failed; `None` if it did not.
fn error_of(record: &AuditRecord) -> Option<String> {
    let kind = ErrorKind::from_code(record.status);
    (record.status != 0)
        .then(|| kind.map_or_else(|| format!("error {}", record.status), |kind| kind.to_string()))
}

fn result_of(record: &AuditRecord) -> String {
    let about = plain(&String::from_utf8_lossy(&record.about));
    match (error_of(record), about.is_empty()) {
        (None, true) => "done".to_owned(),
        (None, false) => format!("done: {about}"),
        (Some(error), true) => error,
        (Some(error), false) => format!("{error}: {about}"),
    }
}

fn to_json(names: &HashMap<ClientId, String>, found: &Found) -> Value {
    let record = &found.record;
    json!({
        "first": time(record.first_unix_ms),
        "last": time(record.last_unix_ms),
        "target": found.target.map(|target| target.0),
        "number": record.number,
        "client": record.client.0,
        "key": names.get(&record.client),
        "session": record.session.0,
        "user": user_of(record),
        "op": op_of(record),
        "rights": rights_of(record),
        "file": record.file.0,
        "count": record.count,
        "bytes": record.bytes,
        "error": error_of(record),
        "about": String::from_utf8_lossy(&record.about),
    })
}

//! `weir meta`: the metadata server, and backups of the metadata.

use crate::args::{Meta, MetaCommand, MetaExport, MetaImport};
use crate::cluster::{meta_change, meta_elsewhere};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::progress::Progress;
use crate::text::human_size;
use crate::{serve, settings};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_client::Administrator;
use weir_metaserver::restore::{
    ExportHeader, ExportTotals, ExportWriter, Sequence, restore_directory,
};

/// How many records are written between two updates of the progress.
const RECORDS_BETWEEN: u64 = 1000;

/// Runs `weir meta`.
pub fn run(meta: &Meta) -> Done {
    match &meta.command {
        Some(MetaCommand::Export(export)) => run_export(export),
        Some(MetaCommand::Import(import)) => run_import(import),
        Some(MetaCommand::Add(add)) => match add.on.is_empty() {
            true => meta_change::add(add),
            false => meta_elsewhere::add(add),
        },
        Some(MetaCommand::Join(join)) => meta_elsewhere::join(join),
        Some(MetaCommand::Remove(remove)) => meta_change::remove(remove),
        None => {
            let none = || Failure::new("which configuration? give one with --config");
            serve::meta(meta.config.as_deref().ok_or_else(none)?, &meta.detach)
        }
    }
}

fn run_export(export: &MetaExport) -> Done {
    let cluster = settings::cluster(&export.client)?;
    let to_output = export.file == Path::new("-");
    if to_output && io::stdout().is_terminal() {
        return Err(Failure::new("an export is not for a terminal")
            .hint("name a file, or redirect the output"));
    }
    let admin = connect(&cluster.credential()?, "meta export")?.administrator()?;
    if to_output {
        let about = |e| Failure::file(Path::new("standard output"), e);
        return write_records(&admin, io::stdout().lock(), about).map(drop);
    }
    let totals = to_file(&admin, &export.file)?;
    let size = human_size(totals.bytes);
    print(&format!("saved {} records ({size}) in {}\n", totals.records, export.file.display()))
}

/// Writes a temporary file and renames it, so that the file is always complete.
fn to_file(admin: &Administrator, path: &Path) -> Done<ExportTotals> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let about = |e: io::Error| Failure::file(&partial, e);
    // File names are private: only the owner may read the file.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&partial).map_err(about)?;
    let save = || {
        let (totals, file) = write_records(admin, BufWriter::new(file), about)?;
        let file = file.into_inner().map_err(|e| about(e.into_error()))?;
        file.sync_all().map_err(about)?;
        std::fs::rename(&partial, path).map_err(about)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Failure::file(dir, e))?;
        Ok(totals)
    };
    save().inspect_err(|_: &Failure| {
        // The incomplete file is useless. If it cannot be removed, the next export replaces it.
        let _ = std::fs::remove_file(&partial);
    })
}

fn write_records<W: Write>(
    admin: &Administrator,
    out: W,
    about: impl Fn(io::Error) -> Failure,
) -> Done<(ExportTotals, W)> {
    let export = admin.export()?;
    let header = ExportHeader { cluster: export.cluster(), sequence: Sequence(export.sequence()) };
    let mut writer = ExportWriter::new(out, header).map_err(&about)?;
    let progress = Progress::start(false, 0);
    let (mut records, mut bytes) = (0u64, 0);
    for record in export {
        let (key, value) = record?;
        writer.record(&key, &value).map_err(&about)?;
        records += 1;
        bytes += (key.len() + value.len()) as u64;
        if records.is_multiple_of(RECORDS_BETWEEN) {
            progress.say(|| format!("{records} records, {}", human_size(bytes)));
        }
    }
    let (out, totals) = writer.finish().map_err(&about)?;
    progress.finish();
    Ok((totals, out))
}

fn run_import(import: &MetaImport) -> Done {
    // The length of standard input is not known.
    let (from, whole): (Box<dyn Read>, u64) = match import.file == Path::new("-") {
        true => (Box::new(io::stdin().lock()), 0),
        false => {
            let about = |e| Failure::file(&import.file, e);
            let file = File::open(&import.file).map_err(about)?;
            let whole = file.metadata().map_err(about)?.len();
            (Box::new(BufReader::new(file)), whole)
        }
    };
    let progress = Progress::start(false, whole);
    progress.say(|| format!("into {}", import.dir.display()));
    let dir = settings::absolute(&import.dir)?;
    let restored = restore_directory(&dir, progress.of_reading(from));
    progress.finish();
    let restored = restored.map_err(|e| {
        let exists = e.kind == weir_types::ErrorKind::Exists;
        let failure = Failure::from(e).about(import.file.display());
        match exists {
            true => failure,
            false => failure.hint(format!("remove {} before you try again", dir.display())),
        }
    })?;
    print(&format!(
        "made {} with {} records, as of operation {}\n",
        dir.display(),
        restored.totals.records,
        restored.header.sequence
    ))
}

//! The directories that have a file's names. The inode of a file with one name has its parent. A
//! file with several names has a record for each directory (`b/`), so that its ancestors are known:
//! that is needed to confine clients to their subtree. Files with one name cost nothing.

use crate::ops::{Outcome, inodes};
use crate::schema::{self, Dentry, FormatRecord, Inode, key};
use weir_metastore::{Engine, Key, Tx, Value, key_after, transact};
use weir_types::{Error, ErrorKind, FileId, FileKind, Result};

/// Names read, or records changed, in one transaction of an upgrade.
const STEP: usize = 48;

/// Prepares another name of the file in `dir`.
pub(crate) fn add(tx: &mut Tx<'_>, file: FileId, inode: &Inode, dir: FileId) -> Outcome<()> {
    if inode.nlink == 1 {
        set(tx, file, inode.parent, 1)?;
    }
    let names = count(tx, file, dir)?;
    set(tx, file, dir, names + 1)
}

/// Prepares the loss of a name of the file in `dir`. Afterwards its parent is a directory with one
/// of its names; for its last name, the directory that had it.
pub(crate) fn remove(tx: &mut Tx<'_>, file: FileId, inode: &mut Inode, dir: FileId) -> Outcome<()> {
    if inode.nlink <= 1 {
        inode.parent = dir;
        return Ok(());
    }
    let left = count(tx, file, dir)?.saturating_sub(1);
    set(tx, file, dir, left)?;
    if inode.nlink > 2 && (inode.parent != dir || left > 0) {
        return Ok(());
    }
    let (start, end) = key::directories_of(file);
    let first = tx.range(&start, &end, 1)?;
    let Some((at, _)) = first.first() else {
        return Err(inodes::corrupt(file, "it has names in no directory"));
    };
    let (_, other) = key::file_and_directory(at).map_err(Error::from)?;
    inode.parent = other;
    if inode.nlink == 2 {
        set(tx, file, other, 0)?;
    }
    Ok(())
}

/// Handles the move of a name of the file (or of the directory itself) to another directory, or
/// within one.
pub(crate) fn relocate(
    tx: &mut Tx<'_>,
    file: FileId,
    inode: &mut Inode,
    (from, to): (FileId, FileId),
) -> Outcome<()> {
    inode.parent = to;
    if from == to || inode.kind == FileKind::Directory || inode.nlink < 2 {
        return Ok(());
    }
    let left = count(tx, file, from)?.saturating_sub(1);
    set(tx, file, from, left)?;
    let names = count(tx, file, to)?;
    set(tx, file, to, names + 1)
}

fn count(tx: &mut Tx<'_>, file: FileId, dir: FileId) -> Outcome<u32> {
    match tx.get(&key::in_directory(file, dir))? {
        Some(bytes) => Ok(schema::decode(&bytes, "of a directory of a file")?),
        None => Ok(0),
    }
}

fn set(tx: &mut Tx<'_>, file: FileId, dir: FileId, names: u32) -> Outcome<()> {
    let at = key::in_directory(file, dir);
    match names {
        0 => Ok(tx.delete(&at)?),
        _ => Ok(tx.put(&at, &schema::encode(&names))?),
    }
}

/// Upgrades a store from before these records, when the parent of a file could be a directory that
/// had lost its name. May be interrupted at any point and repeated.
///
/// # Errors
/// Those of the engine; `Corrupt`.
pub(crate) fn upgrade(engine: &mut dyn Engine, format: &FormatRecord) -> Result<()> {
    let (start, end) = key::all_directories_of();
    each_step(engine, start, &end, |tx, (at, _)| Ok(tx.delete(at)?))?;
    let (start, end) = key::dentries();
    each_step(engine, start, &end, take_in)?;
    let (start, end) = key::all_directories_of();
    each_step(engine, start, &end, correct_parent)?;
    transact(engine, |tx| {
        Ok::<_, Error>(tx.put(key::FORMAT, &schema::encode_format(format, false))?)
    })?;
    engine.sync()
}

/// Visits all keys of a range, some in each transaction.
fn each_step(
    engine: &mut dyn Engine,
    mut start: Vec<u8>,
    end: &[u8],
    visit: impl Fn(&mut Tx<'_>, &(Key, Value)) -> Outcome<()>,
) -> Result<()> {
    loop {
        let page = Tx::new(engine).range(&start, end, STEP)?;
        transact(engine, |tx| {
            page.iter().try_for_each(|entry| visit(tx, entry)).map_err(|fault| match fault {
                crate::ops::Fault::Refused(error) => error,
                crate::ops::Fault::Engine(error) => error.into(),
            })
        })?;
        engine.flush()?;
        engine.poll()?;
        match page.last() {
            Some((last, _)) if page.len() == STEP => start = key_after(last).into_vec(),
            _ => return Ok(()),
        }
    }
}

fn take_in(tx: &mut Tx<'_>, (at, value): &(Key, Value)) -> Outcome<()> {
    let (dir, _) = key::owner_and_rest(at).map_err(Error::from)?;
    let Dentry { file, kind, .. } = schema::decode(value, "of a name")?;
    if kind == FileKind::Directory {
        return Ok(());
    }
    // Peeked at: nobody else changes anything meanwhile.
    let Some(bytes) = tx.peek(&key::inode(file))? else {
        let what = format!("metadata of file {file}: a name stands for it but it does not exist");
        return Err(Error::new(ErrorKind::Corrupt, what).into());
    };
    let mut inode: Inode = schema::decode(&bytes, "of an inode")?;
    if inode.nlink > 1 {
        let names = match tx.peek(&key::in_directory(file, dir))? {
            Some(bytes) => schema::decode(&bytes, "of a directory of a file")?,
            None => 0,
        };
        return set(tx, file, dir, names + 1);
    }
    if inode.parent != dir {
        inode.parent = dir;
        inodes::store(tx, file, &inode)?;
    }
    Ok(())
}

/// Corrects the parent of a file with several names: it must be a directory with one of them.
fn correct_parent(tx: &mut Tx<'_>, (at, _): &(Key, Value)) -> Outcome<()> {
    let (file, dir) = key::file_and_directory(at).map_err(Error::from)?;
    let Some(bytes) = tx.peek(&key::inode(file))? else { return Ok(()) };
    let mut inode: Inode = schema::decode(&bytes, "of an inode")?;
    if tx.peek(&key::in_directory(file, inode.parent))?.is_none() {
        inode.parent = dir;
        inodes::store(tx, file, &inode)?;
    }
    Ok(())
}

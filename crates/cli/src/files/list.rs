//! `weir ls`.

use crate::args::Ls;
use crate::failure::{Done, Failures};
use crate::files::name::{RemoteName, child, shown};
use crate::files::owners::Owners;
use crate::files::remote::{RemoteTree, Sessions};
use crate::files::stat::{describe, kind_letter};
use crate::output::{print, print_json};
use crate::text::{Table, human_size, mode_string, named, utc_time};
use serde_json::Value;
use weir_types::{Attr, ErrorKind, FileKind};

/// One line of output: a file.
struct Entry {
    name: Vec<u8>,
    path: Vec<u8>,
    attr: Attr,
    link: Option<Vec<u8>>,
}

struct Lister<'a> {
    ls: &'a Ls,
    users: Owners,
    groups: Owners,
    failures: Failures,
    json: Vec<Value>,
    /// Whether something has been printed, so that a blank line has to come first.
    printed: bool,
}

/// Runs `weir ls`.
pub fn run(ls: &Ls) -> Done {
    let mut sessions = Sessions::default();
    let mut lister = Lister {
        ls,
        users: Owners::users(),
        groups: Owners::groups(),
        failures: Failures::default(),
        json: Vec::new(),
        printed: false,
    };
    for text in &ls.paths {
        let done = RemoteName::parse(text).and_then(|name| {
            let tree = sessions.tree(&ls.client, &name, "ls")?;
            lister.argument(&tree, &name.path)
        });
        lister.failures.keep(done);
    }
    if ls.json {
        print_json(&lister.json)?;
    }
    lister.failures.end()
}

impl Lister<'_> {
    fn argument(&mut self, tree: &RemoteTree, path: &[u8]) -> Done {
        // As in ls, a link on the command line is followed, but not with -l or -d.
        let attr = tree.attr(path, !self.ls.long && !self.ls.directory)?;
        if attr.kind == FileKind::Directory && !self.ls.directory {
            return self.directory(tree, path, &attr);
        }
        let link = self.link(tree, path, &attr)?;
        self.show(vec![Entry { name: path.to_vec(), path: path.to_vec(), attr, link }])
    }

    fn directory(&mut self, tree: &RemoteTree, path: &[u8], dir: &Attr) -> Done {
        let mut entries = Vec::new();
        for found in tree.entries(dir.file).map_err(tree.about(path))? {
            if found.name.first() == Some(&b'.') && !self.ls.all {
                continue;
            }
            let path = child(path, &found.name);
            let attr = match found.attr {
                Some(attr) => attr,
                None => match tree.find(&path, false) {
                    // Removed since the directory was read.
                    Err(error) if error.kind == ErrorKind::NotFound => continue,
                    found => found.map_err(tree.about(&path))?,
                },
            };
            let link = self.link(tree, &path, &attr)?;
            entries.push(Entry { name: found.name.0, path, attr, link });
        }
        let below: Vec<(Vec<u8>, Attr)> = entries
            .iter()
            .filter(|e| self.ls.recursive && e.attr.kind == FileKind::Directory)
            .map(|e| (e.path.clone(), e.attr.clone()))
            .collect();
        if !self.ls.json && (self.ls.recursive || self.ls.paths.len() > 1) {
            print(&format!("{}{}:\n", if self.printed { "\n" } else { "" }, named(shown(path))))?;
            self.printed = true;
        }
        self.show(entries)?;
        for (path, attr) in below {
            let done = self.directory(tree, &path, &attr);
            self.failures.keep(done);
        }
        Ok(())
    }

    fn link(&self, tree: &RemoteTree, path: &[u8], attr: &Attr) -> Done<Option<Vec<u8>>> {
        if attr.kind != FileKind::Symlink || !(self.ls.long || self.ls.json) {
            return Ok(None);
        }
        tree.client.readlink(&tree.context, attr.file).map(Some).map_err(tree.about(path))
    }

    fn show(&mut self, entries: Vec<Entry>) -> Done {
        if self.ls.json {
            let values = entries.iter().map(|e| describe(&e.path, &e.attr, e.link.as_deref()));
            self.json.extend(values);
            return Ok(());
        }
        if self.ls.long {
            return print(&self.long(&entries));
        }
        let lines: String = entries.iter().map(|e| named(shown(&e.name)) + "\n").collect();
        print(&lines)
    }

    fn long(&self, entries: &[Entry]) -> String {
        let mut table = Table::without_titles(&["", ">", "", "", ">", "", ""]);
        for entry in entries {
            let attr = &entry.attr;
            let size = match self.ls.human_readable {
                true => human_size(attr.size),
                false => attr.size.to_string(),
            };
            let link = entry.link.as_deref().map(|l| format!(" -> {}", shown(l)));
            table.row(vec![
                mode_string(kind_letter(attr.kind), attr.mode),
                attr.nlink.to_string(),
                self.users.name(attr.uid),
                self.groups.name(attr.gid),
                size,
                utc_time(attr.mtime),
                named(shown(&entry.name) + link.as_deref().unwrap_or("")),
            ]);
        }
        table.render()
    }
}

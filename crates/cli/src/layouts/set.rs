//! `weir mkfile` and `weir setlayout`.

use crate::args::{MkFile, SetLayout};
use crate::failure::{Done, Failure, Failures, for_each};
use crate::layouts::spec::{describe, from_flags, text};
use crate::layouts::whereabouts::{Finder, Found};
use crate::logging;
use crate::output::{print, print_json};
use serde_json::json;
use weir_client::CreateOptions;
use weir_types::{Disks, FileKind, LayoutSpec};

/// Runs `weir mkfile`.
pub fn make_file(arguments: &MkFile) -> Done {
    let layout = from_flags(&arguments.layout)?;
    let mut finder = Finder::new(&arguments.client, "mkfile");
    for_each(&arguments.paths, |path| {
        let Found { tree, path, .. } = finder.find(path)?;
        let (parent, name) = tree.parent(&path)?;
        let options =
            CreateOptions { exclusive: true, layout: layout.clone(), ..CreateOptions::default() };
        let made = tree.client.create(&tree.context, parent, name, &options);
        let (file, _) = made.map_err(tree.about(&path))?;
        file.close(&tree.context).map_err(tree.about(&path))
    })
}

/// Runs `weir setlayout`.
pub fn set_layout(arguments: &SetLayout) -> Done {
    let layout = from_flags(&arguments.layout)?;
    if layout.is_some() && arguments.inherit {
        return Err(Failure::new("--inherit and a layout exclude each other"));
    }
    let change = layout.is_some() || arguments.inherit;
    let mut finder = Finder::new(&arguments.client, "setlayout");
    let mut failures = Failures::default();
    let mut shown = Vec::new();
    for path in &arguments.paths {
        let done = finder.find(path).and_then(|found| {
            if change {
                return set(&found, layout.clone());
            }
            let spec = default_of(&found)?;
            if arguments.json {
                shown.push(json!({ "path": found.named, "default": describe(&spec) }));
                return Ok(());
            }
            print(&format!("{}: {}\n", found.named, text(&spec)))
        });
        failures.keep(done);
    }
    if arguments.json && !change {
        print_json(&shown)?;
    }
    failures.end()
}

fn set(found: &Found, layout: Option<LayoutSpec>) -> Done {
    let file = found.attr()?.file;
    let copies = layout.as_ref().map_or(0, |layout| layout.copies);
    let done = found.tree.client.set_layout(&found.tree.context, file, layout);
    done.map_err(found.tree.about(&found.path))?;
    if copies > 1 {
        warn_of_disks(found, copies);
    }
    Ok(())
}

/// Warns if there are fewer disks than copies, since copies on the same disk are lost together.
fn warn_of_disks(found: &Found, copies: u8) {
    // If the servers cannot be asked, the request for the layout has already reported it.
    let Ok(map) = found.tree.client.cluster_map() else { return };
    let disks: Disks = map.targets().map(|(_, target)| (target.disk, target.usage)).collect();
    if disks.targets() > disks.count() && disks.count() < u64::from(copies) {
        logging::say(&format!(
            "weir: {copies} copies, and the {} targets are on {} disk{}: copies on one disk are lost \
             with it",
            disks.targets(),
            disks.count(),
            if disks.count() == 1 { "" } else { "s" }
        ));
    }
}

fn default_of(found: &Found) -> Done<LayoutSpec> {
    let attr = found.attr()?;
    if attr.kind != FileKind::Directory {
        return Err(Failure::new("is not a directory")
            .about(&found.named)
            .hint("`weir layout` shows the layout of a file"));
    }
    let spec = found.tree.client.default_layout(&found.tree.context, attr.file);
    spec.map_err(found.tree.about(&found.path))
}

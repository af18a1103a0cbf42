//! Sets the default layout of a directory, changes the layout of an empty file, or sets the number
//! of copies of a file with data, which the mover then makes.

use crate::ops::{Context, Outcome, access, inodes, layouts, move_copies, parities, truncation};
use crate::schema::{self, Body, Inode, key};
use weir_metastore::Tx;
use weir_types::limits::NEVER_S;
use weir_types::{Epoch, Error, ErrorKind, FileId, LayoutSpec, Placement};
use weir_wire::meta::SetLayoutRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &SetLayoutRequest) -> Outcome<()> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    if !access::owns(ctx.caller, &inode) {
        access::require(ctx.caller, &inode, access::WRITE)?;
    }
    let spec = match &request.layout {
        Some(spec) => spec.clone(),
        None => inherited(tx, ctx, file, &inode)?,
    };
    let has_data = matches!(inode.body, Body::File(_)) && inode.size > 0;
    let spec = match spec.encode_after_s {
        NEVER_S if !has_data => LayoutSpec { parities: 0, encode_after_s: 0, ..spec },
        _ => spec,
    };
    match has_data {
        // Its columns are counted below.
        true => {
            let plain = LayoutSpec { parities: 0, encode_after_s: 0, ..spec.clone() };
            layouts::check_spec(ctx, &plain)?;
        }
        false => layouts::check_spec(ctx, &spec)?,
    }
    match &mut inode.body {
        Body::Directory(body) => {
            body.default_layout = spec;
            inode.changed(ctx.now);
        }
        Body::File(_) if inode.size > 0 => set_copies(tx, ctx, file, &mut inode, &spec)?,
        Body::File(body) => {
            body.spec = spec;
            truncation::empty(tx, ctx, file, &mut inode)?;
        }
        Body::Other => {
            let message = "only directories and regular files have a layout";
            return Err(Error::new(ErrorKind::InvalidArgument, message).into());
        }
    }
    inodes::store(tx, file, &inode)
}

/// Sets the copies of a file with data; nothing else of its layout can be changed. The spec names
/// copies alone, or repeats the rest of the file's layout. Settings that are not named stay. The
/// mover moves existing copies to another group if groups are named. It has no rule for chained or
/// random copies, so other placements are refused.
fn set_copies(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &mut Inode,
    spec: &LayoutSpec,
) -> Outcome<()> {
    let size = inode.size;
    let rest = |spec: &LayoutSpec| LayoutSpec {
        copies: 0,
        duplication: None,
        placement: Placement::default(),
        parities: 0,
        mirrors: false,
        encode_after_s: 0,
        ..spec.clone()
    };
    let columns = layouts::first_page(tx, file, inodes::regular(inode)?.list)?;
    let columns = columns.first().map_or(0, |segment| segment.columns.len());
    let body = inodes::regular_mut(inode)?;
    // That many it has.
    let spec = match usize::from(spec.count) == columns && spec.parities > 0 {
        true => &LayoutSpec { count: 0, ..spec.clone() },
        false => spec,
    };
    let is = match body.spec.count == 0 || usize::from(body.spec.count) == columns {
        true => LayoutSpec { count: 0, ..body.spec.clone() },
        false => body.spec.clone(),
    };
    let says_nothing = spec.copies == 0 && spec.parities == 0;
    let repeats = [rest(&body.spec), rest(&is), LayoutSpec::default()].contains(&rest(spec));
    if says_nothing || !repeats {
        let message = format!(
            "the file has {size} bytes: only its copies and parities can be changed; for another \
             layout set it on the directory and copy the file"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
    }
    let (is, named) = (body.spec.placement.of(body.spec.kind), spec.placement.of(body.spec.kind));
    let can_be = match named {
        Placement::Groups => true,
        // New copies go anywhere.
        Placement::Random => named == is || body.spec.copies <= 1,
        _ => named == is,
    };
    if spec.placement != Placement::Usual && !can_be {
        let message = format!(
            "the file has {size} bytes: its copies stay where they are, so of placements only \
             groups can be chosen for it; for another one set it on the directory and copy the file"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
    }
    let protocol = |spec: &LayoutSpec| spec.duplication.unwrap_or_default();
    let before = protocol(&body.spec);
    let copies = if spec.copies == 0 { body.spec.copies } else { spec.copies };
    if spec.parities > 0 {
        let of_file = LayoutSpec { count: columns as u16, copies, ..spec.clone() };
        if spec.encode_after_s != NEVER_S {
            parities::check_spec(ctx, &LayoutSpec { kind: body.spec.kind, ..of_file })?;
            (body.spec.parities, body.spec.mirrors) = (spec.parities, spec.mirrors);
        }
        // What it has stays known until it has copies again.
        body.spec.encode_after_s = spec.encode_after_s;
        ctx.effects.to_encode = Some(file);
    }
    body.spec.copies = copies;
    body.spec.duplication = spec.duplication.or(body.spec.duplication);
    body.spec.placement = match (spec.placement, body.spec.placement) {
        // Two groups keep two copies.
        (Placement::Usual, Placement::Groups) if copies != 2 => Placement::Usual,
        (Placement::Usual, stays) => stays,
        (named, _) => named,
    };
    if spec.placement == Placement::Groups {
        // It has to go on being possible when the file is emptied.
        layouts::check_spec(ctx, &body.spec)?;
    }
    let other_protocol = protocol(&body.spec) != before;
    let epoch = Epoch(body.epoch.0 + 1);
    if (copies > 1 || spec.parities > 0) && !ctx.cluster.mirrored {
        // From now on a target that was away may have missed something.
        tx.put(key::MIRRORED, &schema::encode(&Epoch(1)))?;
        ctx.effects.mirrored = true;
    }
    if other_protocol {
        // Copies are written in one way at a time.
        move_copies::raise(inode, epoch)?;
    }
    ctx.effects.copies = Some(file);
    inode.changed(ctx.now);
    Ok(())
}

/// The parent's default layout; the cluster's if there is no parent.
fn inherited(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    inode: &Inode,
) -> Outcome<LayoutSpec> {
    if file == FileId::ROOT {
        return Ok(ctx.default_layout.clone());
    }
    match inodes::find(tx, inode.parent)?.map(|parent| parent.body) {
        Some(Body::Directory(parent)) => Ok(parent.default_layout),
        _ => Ok(ctx.default_layout.clone()),
    }
}

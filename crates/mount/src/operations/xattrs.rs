//! Extended attributes: those that are stored with a file, and those that are hints, a layout or
//! quotas.

use crate::operations::callers::READ;
use crate::operations::gone::may_have_had;
use crate::operations::hints::Hint;
use crate::operations::layouts::is_layout;
use crate::operations::quotas::is_quota;
use crate::translate::{context, groupless, is_acl, refused_xattr};
use crate::weirfs::WeirFs;
use weir_fuse::{Errno, NodeId, Reply, RequestContext};
use weir_types::ErrorKind;
use weir_wire::meta::{CAPABILITY, XattrMode};

/// The label of a file, which `ls -l` asks for.
const LABEL: &[u8] = b"security.selinux";
const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;

impl WeirFs {
    /// Sets an attribute, as the flags of `setxattr(2)` say.
    pub(crate) fn set_xattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Reply<()> {
        if refused_xattr(name) || is_quota(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hint(ctx, (node, hint), Some(value));
        }
        if is_layout(name) {
            return self.set_layout(ctx, node, Some(value));
        }
        let mode = match flags as i32 {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            // Both at once cannot be, whether it is there or not.
            BOTH => {
                self.client.get_xattr(&context(ctx), self.file(node)?, name)?;
                return Err(Errno::EEXIST);
            }
            _ => return Err(Errno::EINVAL),
        };
        let file = self.file(node)?;
        if is_acl(name) {
            self.cache.close_names_of_open(file);
        }
        self.of_node(file, self.client.set_xattr(&context(ctx), file, name, value, mode))?;
        if name == CAPABILITY {
            self.is_capable(file);
        }
        Ok(())
    }

    /// The value of an attribute.
    pub(crate) fn xattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
    ) -> Reply<Vec<u8>> {
        if refused_xattr(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hinted(ctx, (node, hint));
        }
        if is_layout(name) {
            return self.shown_layout(ctx, node);
        }
        if is_quota(name) {
            return self.quotas(ctx, node);
        }
        let file = self.file(node)?;
        if is_acl(name) {
            self.cache.tells_acl(file, node);
        }
        let wanted = if name.starts_with(b"user.") { READ } else { 0 };
        let value = self.judged(ctx, file, wanted, |by| self.client.get_xattr(by, file, name));
        let none = Err(ErrorKind::NoAttribute.into());
        let value = self.of_attributes(file, value, |last| may_have_had(last, name), none);
        if name == LABEL && value.as_ref().is_err_and(|e| e.kind == ErrorKind::NoAttribute) {
            // Programs that list many files then ask for no other label. (A kernel with SELinux
            // answers by itself.)
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(value?)
    }

    /// The names of the attributes that are stored with a file.
    pub(crate) fn xattrs(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        let file = self.file(node)?;
        let names = self.client.list_xattr(&groupless(ctx), file);
        let names = self.of_attributes(file, names, |last| last.extras.any, Ok(Vec::new()))?;
        Ok(names.into_iter().map(|name| name.0).collect())
    }

    /// Removes an attribute.
    pub(crate) fn remove_xattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
    ) -> Reply<()> {
        if refused_xattr(name) || is_quota(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hint(ctx, (node, hint), None);
        }
        if is_layout(name) {
            return self.set_layout(ctx, node, None);
        }
        let file = self.file(node)?;
        if is_acl(name) {
            self.cache.close_names_of_open(file);
        }
        self.of_node(file, self.client.remove_xattr(&context(ctx), file, name))
    }
}

//! The native half of Weir for Hadoop: the methods that `weir.hadoop.Native` (`bindings/java`)
//! declares.
//!
//! Every call runs on the Java thread that made it: threads of the client never call Java. Java
//! knows objects by checked numbers (`handles.rs`). Errors and panics become exceptions
//! (`throw.rs`). The bytes of files are passed in direct buffers, which both sides can access.

mod file;
mod handles;
mod located;
mod records;
mod session;
mod throw;
mod users;

use file::OpenFile;
use handles::{FILES, SESSIONS};
use jni::JNIEnv;
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JString};
use jni::sys::{jboolean, jint, jlong};
use session::{Change, Session};
use throw::{Fault, guard};
use weir_client::ClientConfig;
use weir_connect::Choice;
use weir_layout::{Region, RegionList};
use weir_types::{Error, ErrorKind, FileId};
use weir_wire::Rights;
use weir_wire::meta::XattrMode;

/// Version of the interface between library and jar. Raise it when the meaning of a call changes.
/// The jar refuses a library with another version.
const INTERFACE: u32 = 3;

type Done<T> = Result<T, Fault>;

fn text(env: &mut JNIEnv, string: &JString) -> Done<String> {
    Ok(env.get_string(string)?.into())
}

/// Puts a path in front of an error.
fn about(path: &str) -> impl Fn(Error) -> Fault + use<'_> {
    move |error| {
        let named = error.message.contains(path);
        Fault::Weir(if named { error } else { error.context(path) })
    }
}

fn bytes<'l>(env: &mut JNIEnv<'l>, bytes: &[u8]) -> Done<JByteArray<'l>> {
    Ok(env.byte_array_from_slice(bytes)?)
}

fn unsigned(number: jlong) -> Done<u64> {
    u64::try_from(number).map_err(|_| ErrorKind::InvalidArgument.into())
}

/// The permission bits, and the umask that applies to them.
fn masked(mode: jint, umask: jint) -> (u16, u16) {
    ((mode & 0o7777) as u16, (umask & 0o777) as u16)
}

/// Declares the native methods of `weir.hadoop.Native`.
macro_rules! natives {
    ($($(#[$meta:meta])* fn $name:ident($env:ident $(, $arg:ident: $type:ty)*) -> $result:ty $body:block)*) => {$(
        $(#[$meta])*
        // The names are those of the Java methods.
        #[allow(non_snake_case)]
        #[unsafe(export_name = concat!("Java_weir_hadoop_Native_", stringify!($name)))]
        pub extern "system" fn $name<'l>(
            mut env: JNIEnv<'l>,
            _class: JClass<'l>
            $(, $arg: $type)*
        ) -> $result {
            guard(&mut env, |$env| -> Done<$result> { $body })
        }
    )*};
}

natives! {
    /// Versions of the library and of the interface.
    fn version(env) -> JString<'l> {
        Ok(env.new_string(format!("{} {INTERFACE}", env!("CARGO_PKG_VERSION")))?)
    }

    /// Connects as a user, or as `other` if this machine does not know the user. Uses a credential
    /// file, or if that is empty the cluster with this name on this machine. `job`: the job of
    /// which this process is one; empty: none.
    fn connect(
        env, cluster: JString<'l>, credential: JString<'l>, user: JString<'l>, other: JString<'l>,
        job: JString<'l>
    ) -> jlong {
        let (cluster, credential) = (text(env, &cluster)?, text(env, &credential)?);
        let choice = match (credential.is_empty(), cluster.is_empty()) {
            (false, _) => Choice::of_credential(credential),
            (true, false) => Choice::of_cluster(Some(&cluster)),
            (true, true) => Choice::from_environment(),
        };
        let found = choice.credential()?;
        if !cluster.is_empty() && cluster != found.cluster {
            let text = format!(
                "weir://{cluster}/: the credential that is set is for cluster {0}: write \
                 weir://{0}/, or set fs.weir.{cluster}.credential",
                found.cluster
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text).into());
        }
        let (user, other) = (text(env, &user)?, text(env, &other)?);
        let caller = users::caller(&user, &other)?;
        // Schedulers run tasks where their data is.
        let config = ClientConfig { prefers_near: true, ..found.client_config("weir hadoop") };
        let job = text(env, &job)?;
        let member = (!job.is_empty()).then(|| users::member(&job, caller.uid));
        let session = Session::open(config, caller, member).map_err(|e| found.not_connected(e))?;
        Ok(SESSIONS.add(session)?)
    }

    /// Ends a session when its last file is closed.
    fn disconnect(env, session: jlong) -> () {
        let _no_java = env;
        drop(SESSIONS.remove(session)?);
        Ok(())
    }

    /// Attributes of a file (`records.rs`).
    fn stat(env, session: jlong, path: JString<'l>, follow: jboolean) -> JByteArray<'l> {
        let path = text(env, &path)?;
        let attr = SESSIONS.get(session)?.attr(&path, follow != 0).map_err(about(&path))?;
        bytes(env, &records::file(&attr))
    }

    /// A page of a directory (`records.rs`).
    fn list(env, session: jlong, dir: jlong, cookie: jlong, last: jlong) -> JByteArray<'l> {
        let (cookie, last) = (cookie as u64, last as u64);
        let page = SESSIONS.get(session)?.listed(FileId(dir as u64), (cookie, last))?;
        bytes(env, &records::page(&page, cookie))
    }

    /// A page of a directory with where its files are, in blocks of so many bytes (`records.rs`).
    fn listLocated(
        env, session: jlong, dir: jlong, cookie: jlong, last: jlong, block: jlong
    ) -> JByteArray<'l> {
        let (cookie, last) = (cookie as u64, last as u64);
        let block = unsigned(block)?;
        if block == 0 {
            return Err(ErrorKind::InvalidArgument.into());
        }
        let found = SESSIONS.get(session)?.located(FileId(dir as u64), (cookie, last))?;
        let blocks_of = |entry| located::of_entry(&found, entry, block);
        bytes(env, &records::located(&found.page, cookie, blocks_of))
    }

    /// Opens a file for reading.
    fn open(env, session: jlong, path: JString<'l>) -> jlong {
        let (session, path) = (SESSIONS.get(session)?, text(env, &path)?);
        let (file, _) = session.open_file(&path, Rights::READ).map_err(about(&path))?;
        Ok(FILES.add(OpenFile::new(session, file, false))?)
    }

    /// Opens a file for appending.
    fn append(env, session: jlong, path: JString<'l>) -> jlong {
        let (session, path) = (SESSIONS.get(session)?, text(env, &path)?);
        let (file, _) = session.open_file(&path, Rights::READ_WRITE).map_err(about(&path))?;
        Ok(FILES.add(OpenFile::new(session, file, true))?)
    }

    /// Makes a file, in a directory that exists.
    fn create(
        env, session: jlong, path: JString<'l>, overwrite: jboolean, mode: jint, umask: jint
    ) -> jlong {
        let (session, path) = (SESSIONS.get(session)?, text(env, &path)?);
        let made = session.create(&path, overwrite != 0, masked(mode, umask));
        let (file, _) = made.map_err(about(&path))?;
        Ok(FILES.add(OpenFile::new(session, file, false))?)
    }

    /// Makes a directory and its missing parents.
    fn mkdirs(env, session: jlong, path: JString<'l>, mode: jint, umask: jint) -> () {
        let path = text(env, &path)?;
        SESSIONS.get(session)?.mkdirs(&path, masked(mode, umask)).map_err(about(&path))
    }

    /// Renames a file or directory atomically.
    fn rename(env, session: jlong, from: JString<'l>, to: JString<'l>, replace: jboolean) -> () {
        let (from, to) = (text(env, &from)?, text(env, &to)?);
        let shown = format!("{from} to {to}");
        SESSIONS.get(session)?.rename(&from, &to, replace != 0).map_err(about(&shown))
    }

    /// Removes a file or directory, with `recursive` including its contents.
    fn remove(env, session: jlong, path: JString<'l>, recursive: jboolean) -> () {
        let path = text(env, &path)?;
        SESSIONS.get(session)?.remove(&path, recursive != 0).map_err(about(&path))
    }

    /// Changes attributes. Negative numbers leave an attribute unchanged. Times are in
    /// milliseconds.
    fn change(
        env, session: jlong, path: JString<'l>, mode: jint, uid: jlong, gid: jlong, mtime: jlong,
        atime: jlong
    ) -> () {
        let path = text(env, &path)?;
        let change = Change {
            mode: u16::try_from(mode).ok(),
            uid: u32::try_from(uid).ok(),
            gid: u32::try_from(gid).ok(),
            mtime_ms: (mtime >= 0).then_some(mtime),
            atime_ms: (atime >= 0).then_some(atime),
        };
        SESSIONS.get(session)?.change(&path, &change).map_err(about(&path))
    }

    /// Truncates or extends a file.
    fn truncate(env, session: jlong, path: JString<'l>, size: jlong) -> () {
        let (path, size) = (text(env, &path)?, unsigned(size)?);
        SESSIONS.get(session)?.truncate(&path, size).map_err(about(&path))
    }

    /// Total and free bytes.
    fn usage(env, session: jlong, path: JString<'l>) -> JByteArray<'l> {
        let path = text(env, &path)?;
        let usage = SESSIONS.get(session)?.usage(&path).map_err(about(&path))?;
        let both = [usage.total_bytes.to_be_bytes(), usage.free_bytes.to_be_bytes()];
        bytes(env, &both.concat())
    }

    /// The value of an extended attribute.
    fn getXattr(env, session: jlong, path: JString<'l>, name: JString<'l>) -> JByteArray<'l> {
        let (path, name) = (text(env, &path)?, text(env, &name)?);
        let session = SESSIONS.get(session)?;
        let file = session.attr(&path, true).map_err(about(&path))?.file;
        let value = session.client.get_xattr(&session.context, file, name.as_bytes());
        let value = value.map_err(about(&path))?;
        bytes(env, &value)
    }

    /// Sets an extended attribute: always (0), only if it does not exist (1), or only if it exists
    /// (2).
    fn setXattr(
        env, session: jlong, path: JString<'l>, name: JString<'l>, value: JByteArray<'l>, mode: jint
    ) -> () {
        let (path, name) = (text(env, &path)?, text(env, &name)?);
        let value = env.convert_byte_array(value)?;
        let mode = match mode {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(ErrorKind::InvalidArgument.into()),
        };
        let session = SESSIONS.get(session)?;
        let file = session.attr(&path, true).map_err(about(&path))?.file;
        let set = session.client.set_xattr(&session.context, file, name.as_bytes(), &value, mode);
        set.map_err(about(&path))
    }

    /// The names of all extended attributes, each followed by a zero byte.
    fn listXattr(env, session: jlong, path: JString<'l>) -> JByteArray<'l> {
        let path = text(env, &path)?;
        let session = SESSIONS.get(session)?;
        let file = session.attr(&path, true).map_err(about(&path))?.file;
        let names = session.client.list_xattr(&session.context, file).map_err(about(&path))?;
        let all: Vec<u8> = names.iter().flat_map(|name| [&name[..], b"\0"].concat()).collect();
        bytes(env, &all)
    }

    /// Removes an extended attribute.
    fn removeXattr(env, session: jlong, path: JString<'l>, name: JString<'l>) -> () {
        let (path, name) = (text(env, &path)?, text(env, &name)?);
        let session = SESSIONS.get(session)?;
        let file = session.attr(&path, true).map_err(about(&path))?.file;
        let removed = session.client.remove_xattr(&session.context, file, name.as_bytes());
        removed.map_err(about(&path))
    }

    /// The target of a symbolic link.
    fn readlink(env, session: jlong, path: JString<'l>) -> JByteArray<'l> {
        let path = text(env, &path)?;
        let session = SESSIONS.get(session)?;
        let file = session.attr(&path, false).map_err(about(&path))?.file;
        let target = session.client.readlink(&session.context, file).map_err(about(&path))?;
        bytes(env, &target)
    }

    /// Where the bytes of a file are (`located.rs`).
    fn locations(
        env, session: jlong, path: JString<'l>, start: jlong, len: jlong, block: jlong
    ) -> JByteArray<'l> {
        let path = text(env, &path)?;
        let range = (unsigned(start)?, unsigned(len)?);
        let session = SESSIONS.get(session)?;
        let found = located::blocks(&session, &path, range, unsigned(block)?);
        bytes(env, &records::blocks(&found.map_err(about(&path))?))
    }

    /// The hosts of the cluster's data servers, each followed by a zero byte.
    fn hosts(env, session: jlong) -> JByteArray<'l> {
        let map = SESSIONS.get(session)?.client.cluster_map()?;
        let all: Vec<u8> =
            map.servers.iter().flat_map(|s| [s.host.as_bytes(), b"\0"].concat()).collect();
        bytes(env, &all)
    }

    /// The name of a user.
    fn userName(env, uid: jint) -> JString<'l> {
        Ok(env.new_string(users::user_name(uid as u32))?)
    }

    /// The name of a group.
    fn groupName(env, gid: jint) -> JString<'l> {
        Ok(env.new_string(users::group_name(gid as u32))?)
    }

    /// The user id of a name.
    fn userNumber(env, name: JString<'l>) -> jlong {
        Ok(jlong::from(users::user_number(&text(env, &name)?)?))
    }

    /// The group id of a name.
    fn groupNumber(env, name: JString<'l>) -> jlong {
        Ok(jlong::from(users::group_number(&text(env, &name)?)?))
    }

    /// Reads into a part of a direct buffer until the part is full or the file ends.
    fn read(env, file: jlong, offset: jlong, buffer: JByteBuffer<'l>, at: jint, len: jint) -> jint {
        let file = FILES.get(file)?;
        let (place, len) = part(env, &buffer, at, len)?;
        // SAFETY: `part` has checked that these bytes are in the buffer. Java keeps the buffer
        // until this call returns, and uses it for one call at a time.
        let dest = unsafe { std::slice::from_raw_parts_mut(place, len) };
        Ok(file.read(unsigned(offset)?, dest)? as jint)
    }

    /// Reads ranges (alternating offsets and lengths) into a direct buffer, one after another, with
    /// one request to each data server that holds any of them. Returns the number of bytes.
    fn readRanges(env, file: jlong, places: JLongArray<'l>, buffer: JByteBuffer<'l>) -> jint {
        let file = FILES.get(file)?;
        let count = env.get_array_length(&places)?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        env.get_long_array_region(&places, 0, &mut numbers)?;
        let ranges = numbers
            .chunks_exact(2)
            .map(|pair| Ok(Region::contiguous(unsigned(pair[0])?, unsigned(pair[1])?)));
        let ranges = RegionList::new(ranges.collect::<Done<Vec<Region>>>()?)?;
        let bytes = jint::try_from(ranges.total_bytes()).map_err(|_| ErrorKind::InvalidArgument)?;
        let (place, len) = part(env, &buffer, 0, bytes)?;
        // SAFETY: `part` has checked the range, and Java lends the buffer to this call only.
        let dest = unsafe { std::slice::from_raw_parts_mut(place, len) };
        file.read_ranges(&ranges, dest)?;
        Ok(bytes)
    }

    /// Writes a part of a direct buffer.
    fn write(env, file: jlong, offset: jlong, buffer: JByteBuffer<'l>, at: jint, len: jint) -> () {
        let file = FILES.get(file)?;
        let (place, len) = part(env, &buffer, at, len)?;
        // SAFETY: `part` has checked the range, and Java lends the buffer to this call only.
        let data = unsafe { std::slice::from_raw_parts(place, len) };
        Ok(file.write(unsigned(offset)?, data)?)
    }

    /// Waits until the data servers have all writes, so that others see them.
    fn flush(env, file: jlong) -> () {
        let _no_java = env;
        Ok(FILES.get(file)?.flush()?)
    }

    /// Makes all writes durable.
    fn sync(env, file: jlong) -> () {
        let _no_java = env;
        Ok(FILES.get(file)?.sync()?)
    }

    /// The present size.
    fn size(env, file: jlong) -> jlong {
        let _no_java = env;
        Ok(FILES.get(file)?.size()? as jlong)
    }

    /// Flushes and closes.
    fn close(env, file: jlong) -> () {
        let _no_java = env;
        Ok(OpenFile::close(FILES.remove(file)?)?)
    }
}

/// A part of a direct buffer: address of its first byte, and length.
fn part(env: &JNIEnv, buffer: &JByteBuffer, at: jint, len: jint) -> Done<(*mut u8, usize)> {
    let place = env.get_direct_buffer_address(buffer)?;
    let capacity = env.get_direct_buffer_capacity(buffer)?;
    let outside = || Fault::from(Error::new(ErrorKind::InvalidArgument, "outside of the buffer"));
    let at = usize::try_from(at).map_err(|_| outside())?;
    let len = usize::try_from(len).map_err(|_| outside())?;
    if at.checked_add(len).is_none_or(|end| end > capacity) {
        return Err(outside());
    }
    // SAFETY: `at` is within the buffer.
    Ok((unsafe { place.add(at) }, len))
}

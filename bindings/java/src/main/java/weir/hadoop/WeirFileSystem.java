package weir.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclEntryType;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.AclUtil;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.Progressable;

/**
 * {@code weir://CLUSTER/path}: a cluster of Weir as a file system of Hadoop. docs/hadoop.md says
 * how to set it up and what it does where Hadoop leaves a choice.
 */
public class WeirFileSystem extends FileSystem {
  public static final String SCHEME = "weir";
  /**
   * The credential file for all clusters; with the cluster's name in between, for one; with the
   * name of a user behind it, for that user of it.
   */
  private static final String CREDENTIAL = "fs.weir.credential";
  /** In whose name users act whom this machine does not know; else they are refused. */
  private static final String UNKNOWN_USER = "fs.weir.unknown.user";
  /** The job that reads, as `weir explain` names it; else the variable WEIR_JOB. */
  private static final String JOB = "fs.weir.job";
  /** Bytes of the blocks that programs divide files into. */
  private static final String BLOCK_BYTES = "fs.weir.block.size";
  private static final long DEFAULT_BLOCK_BYTES = 64L << 20;

  private URI uri;
  private Path workingDirectory;
  private Hosts hosts;
  private long blockBytes;
  /** 0: closed, or not initialized. */
  private volatile long session;

  @Override
  public String getScheme() {
    return SCHEME;
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    NativeLibrary.load();
    String cluster = name.getAuthority() == null ? "" : name.getAuthority();
    uri = URI.create(SCHEME + "://" + (cluster.isEmpty() ? "/" : cluster));
    blockBytes = blockBytes(conf);
    String user = UserGroupInformation.getCurrentUser().getShortUserName();
    String credential = credential(conf, cluster, user);
    String ofProcess = System.getenv("WEIR_JOB");
    String job = conf.getTrimmed(JOB, ofProcess == null ? "" : ofProcess);
    session = Native.connect(cluster, credential, user, conf.getTrimmed(UNKNOWN_USER, ""), job);
    try {
      hosts = new Hosts(conf, texts(Native.hosts(session)));
    } catch (IOException e) {
      close();
      throw e;
    }
    workingDirectory = getHomeDirectory();
  }

  /** The credential file of a user: that of the user, of the cluster, or of all clusters. */
  private static String credential(Configuration conf, String cluster, String user) {
    String ofAll = conf.getTrimmed(CREDENTIAL, "");
    String ofCluster = conf.getTrimmed("fs.weir." + cluster + ".credential", ofAll);
    // A name of a cluster may have dots: "a.nobody" is not user "nobody" of "a".
    return conf.getTrimmed("fs.weir." + cluster + ".user." + user + ".credential", ofCluster);
  }

  private static long blockBytes(Configuration conf) throws IOException {
    long bytes;
    try {
      bytes = conf.getLongBytes(BLOCK_BYTES, DEFAULT_BLOCK_BYTES);
    } catch (IllegalArgumentException e) {
      bytes = 0;
    }
    if (bytes <= 0) {
      throw new IOException(BLOCK_BYTES + " is '" + conf.get(BLOCK_BYTES)
          + "': give a number of bytes above 0, as 64m");
    }
    return bytes;
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path dir) {
    workingDirectory = fixRelativePart(dir);
  }

  @Override
  protected Path getInitialWorkingDirectory() {
    return getHomeDirectory();
  }

  @Override
  public void close() throws IOException {
    super.close();
    long ended;
    synchronized (this) {
      ended = session;
      session = 0;
    }
    if (ended != 0) {
      Native.disconnect(ended);
    }
  }

  private long session() throws IOException {
    if (session == 0) {
      throw new IOException("Filesystem closed");
    }
    return session;
  }

  private static List<String> texts(byte[] zeroTerminated) {
    String all = new String(zeroTerminated, StandardCharsets.UTF_8);
    return all.isEmpty() ? new ArrayList<>() : new ArrayList<>(Arrays.asList(all.split("\0")));
  }

  /** A path as the native library takes it. */
  private String inside(Path path) {
    checkPath(path);
    return fixRelativePart(path).toUri().getPath();
  }

  private Path whole(Path path) {
    return makeQualified(path);
  }

  // Reading

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    statistics.incrementReadOps(1);
    long file = Native.open(session(), inside(path));
    return new FSDataInputStream(WeirInputStream.of(file, statistics));
  }

  // Writing

  @Override
  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite,
      int bufferSize, short replication, long blockSize, Progressable progress)
      throws IOException {
    return create(path, permission, umask(), overwrite, true);
  }

  @Override
  public FSDataOutputStream createNonRecursive(Path path, FsPermission permission,
      EnumSet<CreateFlag> flags, int bufferSize, short replication, long blockSize,
      Progressable progress) throws IOException {
    return create(path, permission, umask(), flags, false);
  }

  @Override
  public FSDataOutputStream create(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
      int bufferSize, short replication, long blockSize, Progressable progress,
      Options.ChecksumOpt checksum) throws IOException {
    return create(path, permission, umask(), flags, true);
  }

  @Override
  protected FSDataOutputStream primitiveCreate(Path path, FsPermission absolute,
      EnumSet<CreateFlag> flags, int bufferSize, short replication, long blockSize,
      Progressable progress, Options.ChecksumOpt checksum) throws IOException {
    return create(path, absolute, FsPermission.createImmutable((short) 0), flags, true);
  }

  private FSDataOutputStream create(Path path, FsPermission permission, FsPermission umask,
      EnumSet<CreateFlag> flags, boolean parents) throws IOException {
    boolean exists = exists(path);
    CreateFlag.validate(path.toString(), exists, flags);
    if (exists && flags.contains(CreateFlag.APPEND)) {
      return append(path, 0, null);
    }
    return create(path, permission, umask, flags.contains(CreateFlag.OVERWRITE), parents);
  }

  private FSDataOutputStream create(Path path, FsPermission permission, FsPermission umask,
      boolean overwrite, boolean parents) throws IOException {
    statistics.incrementWriteOps(1);
    String name = inside(path);
    if (name.equals("/")) {
      throw new FileAlreadyExistsException("/ is a directory");
    }
    FsPermission wanted = permission == null ? FsPermission.getFileDefault() : permission;
    int mode = wanted.toShort();
    long file;
    try {
      file = Native.create(session(), name, overwrite, mode, umask.toShort());
    } catch (FileNotFoundException missing) {
      if (!parents) {
        throw missing;
      }
      int dirMode = FsPermission.getDirDefault().toShort();
      Native.mkdirs(session(), inside(fixRelativePart(path).getParent()), dirMode,
          umask.toShort());
      file = Native.create(session(), name, overwrite, mode, umask.toShort());
    }
    return new FSDataOutputStream(new WeirOutputStream(file, 0, statistics), null);
  }

  private FsPermission umask() {
    return FsPermission.getUMask(getConf());
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress)
      throws IOException {
    statistics.incrementWriteOps(1);
    long file = Native.append(session(), inside(path));
    long size;
    try {
      size = Native.size(file);
    } catch (IOException | RuntimeException | Error e) {
      try {
        Native.close(file);
      } catch (IOException | RuntimeException second) {
        e.addSuppressed(second);
      }
      throw e;
    }
    return new FSDataOutputStream(new WeirOutputStream(file, size, statistics), null, size);
  }

  @Override
  public boolean truncate(Path path, long size) throws IOException {
    statistics.incrementWriteOps(1);
    FileRecord file = stat(path, true);
    if (file.isDirectory()) {
      throw new FileNotFoundException(path + " is not a file but a directory");
    }
    if (size < 0 || size > file.size) {
      throw new org.apache.hadoop.HadoopIllegalArgumentException("cannot truncate " + path
          + " to " + size + " bytes: it has " + file.size);
    }
    Native.truncate(session(), inside(path), size);
    return true;
  }

  // Names

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    return mkdirs(path, permission, umask());
  }

  @Override
  protected boolean primitiveMkdir(Path path, FsPermission absolute) throws IOException {
    return mkdirs(path, absolute, FsPermission.createImmutable((short) 0));
  }

  private boolean mkdirs(Path path, FsPermission permission, FsPermission umask)
      throws IOException {
    statistics.incrementWriteOps(1);
    FsPermission wanted = permission == null ? FsPermission.getDirDefault() : permission;
    Native.mkdirs(session(), inside(path), wanted.toShort(), umask.toShort());
    return true;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    statistics.incrementWriteOps(1);
    String source = inside(from);
    String target = inside(to);
    FileRecord moved = statOrNull(from, false);
    if (moved == null || source.equals("/")) {
      return false;
    }
    FileRecord there = statOrNull(to, true);
    if (there != null && there.isDirectory() && !source.equals(target)) {
      target = (target.equals("/") ? "" : target) + "/" + fixRelativePart(from).getName();
    } else if (there != null) {
      return source.equals(target) && !moved.isDirectory();
    }
    if (source.equals(target)) {
      return !moved.isDirectory();
    }
    if (moved.isDirectory() && target.startsWith(source + "/")) {
      return false;
    }
    try {
      Native.rename(session(), source, target, false);
      return true;
    } catch (FileNotFoundException | FileAlreadyExistsException | ParentNotDirectoryException e) {
      LOG.debug("rename {} to {}", from, to, e);
      return false;
    }
  }

  /** In one step: whoever looks sees the old file of that name or the new one. */
  @Override
  public void rename(Path from, Path to, Options.Rename... options) throws IOException {
    statistics.incrementWriteOps(1);
    String source = inside(from);
    String target = inside(to);
    boolean overwrite = Arrays.asList(options).contains(Options.Rename.OVERWRITE);
    FileRecord moved = stat(from, false);
    if (source.equals("/")) {
      throw new IOException("the root directory cannot be renamed");
    }
    if (source.equals(target)) {
      throw new FileAlreadyExistsException(from + " and " + to + " are the same");
    }
    if (moved.isDirectory() && target.startsWith(source + "/")) {
      throw new IOException("cannot move " + from + " below itself");
    }
    FileRecord there = statOrNull(to, false);
    if (there != null) {
      if (there.isDirectory() != moved.isDirectory()) {
        throw new IOException("cannot rename " + from + " to " + to
            + ": one is a directory, the other one is not");
      }
      if (!overwrite) {
        throw new FileAlreadyExistsException(to + " exists");
      }
    }
    try {
      Native.rename(session(), source, target, overwrite);
    } catch (PathIsNotEmptyDirectoryException e) {
      throw new IOException("cannot rename " + from + " to " + to + ": that is not empty", e);
    }
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    FileRecord file = statOrNull(path, false);
    if (file == null) {
      return false;
    }
    String name = inside(path);
    if (name.equals("/")) {
      return deleteInRoot(recursive);
    }
    try {
      Native.remove(session(), name, recursive);
      return true;
    } catch (FileNotFoundException e) {
      return false;
    } catch (PathIsNotEmptyDirectoryException e) {
      throw new PathIsNotEmptyDirectoryException(path.toString());
    }
  }

  /** The root stays; what is in it goes if all of it is to. */
  private boolean deleteInRoot(boolean recursive) throws IOException {
    if (listStatus(new Path("/")).length == 0) {
      return true;
    }
    if (!recursive) {
      throw new PathIsNotEmptyDirectoryException("/");
    }
    return false;
  }

  // Attributes

  private FileRecord stat(Path path, boolean follow) throws IOException {
    return FileRecord.of(Native.stat(session(), inside(path), follow));
  }

  private FileRecord statOrNull(Path path, boolean follow) throws IOException {
    try {
      return stat(path, follow);
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return null;
    }
  }

  private FileStatus status(FileRecord file, Path path) throws IOException {
    Path link = file.isSymlink() ? link(path) : null;
    return new FileStatus(file.isDirectory() ? 0 : file.size, file.isDirectory(),
        file.isDirectory() ? 0 : 1, file.isDirectory() ? 0 : blockBytes, file.mtimeMs,
        file.atimeMs, FsPermission.createImmutable((short) (file.mode & 01777)),
        Names.user(file.uid), Names.group(file.gid), link, path, file.hasAcl, false, false);
  }

  private Path link(Path path) throws IOException {
    byte[] target = Native.readlink(session(), inside(path));
    return new Path(new String(target, StandardCharsets.UTF_8));
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    try {
      return status(stat(path, true), whole(path));
    } catch (ParentNotDirectoryException e) {
      throw notFound(path, e);
    }
  }

  private static FileNotFoundException notFound(Path path, Exception cause) {
    FileNotFoundException missing = new FileNotFoundException(path + ": no such file");
    missing.initCause(cause);
    return missing;
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    return status(stat(path, false), whole(path));
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    Native.change(session(), inside(path), permission.toShort() & 07777, -1, -1, -1, -1);
  }

  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    statistics.incrementWriteOps(1);
    long uid = Names.userNumber(user);
    long gid = Names.groupNumber(group);
    Native.change(session(), inside(path), -1, uid, gid, -1, -1);
  }

  @Override
  public void setTimes(Path path, long mtimeMs, long atimeMs) throws IOException {
    statistics.incrementWriteOps(1);
    Native.change(session(), inside(path), -1, -1, -1, mtimeMs, atimeMs);
  }

  // Directories

  /** Entries of a directory, a page of up to 1,024 names for each request. */
  private final class Entries implements RemoteIterator<FileStatus> {
    private final Path dir;
    private final long id;
    private final PathFilter filter;
    /** Whether entries come with their blocks. */
    private final boolean located;
    private ByteBuffer page = ByteBuffer.allocate(0);
    private boolean more = true;
    private long cookie;
    private long last;
    private FileStatus next;
    /** Of the next entry; null: they are not known. */
    private BlockLocation[] nextBlocks;
    /** Of the entry that was returned last. */
    private BlockLocation[] blocks;

    /** {@code file}: what is listed; a file is the only entry of itself. */
    Entries(Path dir, FileRecord file, PathFilter filter, boolean located) throws IOException {
      this.dir = dir;
      this.id = file.id;
      this.filter = filter;
      this.located = located;
      if (!file.isDirectory()) {
        more = false;
        next = filter.accept(dir) ? status(file, dir) : null;
      }
    }

    @Override
    public boolean hasNext() throws IOException {
      while (next == null) {
        if (page.hasRemaining()) {
          FileRecord file = FileRecord.entry(page);
          int count = located ? page.getInt() : -1;
          nextBlocks = count < 0 ? null : blocks(page, count);
          Path path = new Path(dir, new Path(null, null, file.name));
          if (filter.accept(path)) {
            next = entryStatus(file, path);
          }
        } else if (more) {
          page = ByteBuffer.wrap(located
              ? Native.listLocated(session(), id, cookie, last, blockBytes)
              : Native.list(session(), id, cookie, last));
          more = page.get() != 0;
          cookie = page.getLong();
          last = page.getLong();
        } else {
          return false;
        }
      }
      return true;
    }

    @Override
    public FileStatus next() throws IOException {
      if (!hasNext()) {
        throw new NoSuchElementException("no more entries in " + dir);
      }
      FileStatus found = next;
      next = null;
      blocks = nextBlocks;
      nextBlocks = null;
      return found;
    }

    /** The next entry, which is asked for its blocks only if its page does not have them. */
    LocatedFileStatus nextLocated() throws IOException {
      FileStatus file = next();
      if (file.isFile() && blocks == null) {
        blocks = getFileBlockLocations(file, 0, file.getLen());
      }
      return new LocatedFileStatus(file, file.isFile() ? blocks : null);
    }
  }

  /** Of an entry that is a link: what it leads to, if anything. */
  private FileStatus entryStatus(FileRecord file, Path path) throws IOException {
    FileRecord behind = file.isSymlink() ? statOrNull(path, true) : file;
    return status(behind == null ? file : behind, path);
  }

  private Entries entries(Path path, PathFilter filter, boolean located) throws IOException {
    statistics.incrementReadOps(1);
    try {
      return new Entries(whole(path), stat(path, true), filter, located);
    } catch (ParentNotDirectoryException e) {
      throw notFound(path, e);
    }
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> all = new ArrayList<>();
    for (Entries entries = entries(path, any -> true, false); entries.hasNext();) {
      all.add(entries.next());
    }
    all.sort(null);
    return all.toArray(new FileStatus[0]);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    return entries(path, any -> true, false);
  }

  @Override
  protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter)
      throws IOException {
    Entries entries = entries(path, filter, true);
    return new RemoteIterator<LocatedFileStatus>() {
      @Override
      public boolean hasNext() throws IOException {
        return entries.hasNext();
      }

      @Override
      public LocatedFileStatus next() throws IOException {
        return entries.nextLocated();
      }
    };
  }

  // Where bytes are

  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long len)
      throws IOException {
    if (file == null) {
      return null;
    }
    if (start < 0 || len < 0) {
      throw new IllegalArgumentException("a range begins and is as long as at least 0");
    }
    if (file.isDirectory() || start >= file.getLen() || len == 0) {
      return new BlockLocation[0];
    }
    ByteBuffer all = ByteBuffer
        .wrap(Native.locations(session(), inside(file.getPath()), start, len, blockBytes));
    return blocks(all, Integer.MAX_VALUE);
  }

  /** So many blocks, or all that there are. */
  private BlockLocation[] blocks(ByteBuffer all, int most) {
    List<BlockLocation> blocks = new ArrayList<>();
    while (blocks.size() < most && all.hasRemaining()) {
      long offset = all.getLong();
      long bytes = all.getLong();
      String[] names = new String[all.get() & 0xff];
      for (int i = 0; i < names.length; i++) {
        byte[] name = new byte[all.getShort() & 0xffff];
        all.get(name);
        names[i] = hosts.of(new String(name, StandardCharsets.UTF_8));
      }
      blocks.add(new BlockLocation(names, names, offset, bytes));
    }
    return blocks.toArray(new BlockLocation[0]);
  }

  @Override
  public long getDefaultBlockSize() {
    return blockBytes;
  }

  @Override
  public FsStatus getStatus(Path path) throws IOException {
    ByteBuffer usage = ByteBuffer.wrap(Native.usage(session(), path == null ? "/" : inside(path)));
    long all = usage.getLong();
    long free = usage.getLong();
    return new FsStatus(all, all - free, free);
  }

  // Extended attributes

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return Native.getXattr(session(), inside(path), name);
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    boolean create = flags.contains(XAttrSetFlag.CREATE);
    boolean replace = flags.contains(XAttrSetFlag.REPLACE);
    int mode = create == replace ? 0 : create ? 1 : 2;
    Native.setXattr(session(), inside(path), name, value == null ? new byte[0] : value, mode);
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    List<String> names = texts(Native.listXattr(session(), inside(path)));
    // Access control lists have calls of their own.
    names.removeIf(name -> name.startsWith("system."));
    return names;
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return getXAttrs(path, listXAttrs(path));
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
    Map<String, byte[]> values = new HashMap<>();
    for (String name : names) {
      values.put(name, getXAttr(path, name));
    }
    return values;
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    Native.removeXattr(session(), inside(path), name);
  }

  // Access control lists

  private List<AclEntry> list(Path path, AclEntryScope scope) throws IOException {
    String name = scope == AclEntryScope.ACCESS ? Acls.ACCESS : Acls.DEFAULT;
    try {
      return Acls.decode(Native.getXattr(session(), inside(path), name), scope);
    } catch (NoAttributeException e) {
      return scope == AclEntryScope.DEFAULT ? new ArrayList<>() : AclUtil.getMinimalAcl(
          FsPermission.createImmutable((short) (stat(path, true).mode & 0777)));
    }
  }

  private void put(Path path, AclEntryScope scope, List<AclEntry> list) throws IOException {
    if (scope == AclEntryScope.ACCESS) {
      Native.setXattr(session(), inside(path), Acls.ACCESS, Acls.encode(list), 0);
    } else if (!list.isEmpty()) {
      Native.setXattr(session(), inside(path), Acls.DEFAULT, Acls.encode(list), 0);
    } else {
      try {
        Native.removeXattr(session(), inside(path), Acls.DEFAULT);
      } catch (NoAttributeException e) {
        LOG.debug("{} has no default list", path);
      }
    }
  }

  @Override
  public AclStatus getAclStatus(Path path) throws IOException {
    FileRecord file = stat(path, true);
    AclStatus.Builder status = new AclStatus.Builder().owner(Names.user(file.uid))
        .group(Names.group(file.gid)).stickyBit((file.mode & 01000) != 0)
        .setPermission(FsPermission.createImmutable((short) (file.mode & 0777)));
    List<AclEntry> access = list(path, AclEntryScope.ACCESS);
    if (!AclUtil.isMinimalAcl(access)) {
      // The owner's, the mask's and others' are the permission bits, as in HDFS.
      for (AclEntry entry : access) {
        boolean isGroup = entry.getType() == AclEntryType.GROUP;
        if (entry.getName() != null || isGroup) {
          status.addEntry(entry);
        }
      }
    }
    return status.addEntries(list(path, AclEntryScope.DEFAULT)).build();
  }

  /** Changes the entries of one scope: those of {@code spec} replace or, if {@code remove}, go. */
  private void merge(Path path, AclEntryScope scope, List<AclEntry> spec, boolean remove)
      throws IOException {
    List<AclEntry> part = new ArrayList<>();
    spec.stream().filter(entry -> entry.getScope() == scope).forEach(part::add);
    if (part.isEmpty()) {
      return;
    }
    List<AclEntry> list = new ArrayList<>(list(path, scope));
    if (scope == AclEntryScope.DEFAULT && list.isEmpty() && !remove) {
      for (AclEntry entry : list(path, AclEntryScope.ACCESS)) {
        boolean isMask = entry.getType() == AclEntryType.MASK;
        if (entry.getName() == null && !isMask) {
          list.add(new AclEntry.Builder().setScope(scope).setType(entry.getType())
              .setPermission(entry.getPermission()).build());
        }
      }
    }
    boolean masks = part.stream()
        .anyMatch(entry -> entry.getType() == AclEntryType.MASK);
    list.removeIf(old -> part.stream().anyMatch(entry -> Acls.same(old, entry))
        || !masks && old.getType() == AclEntryType.MASK);
    if (!remove) {
      list.addAll(part);
    }
    put(path, scope, list);
  }

  @Override
  public void modifyAclEntries(Path path, List<AclEntry> spec) throws IOException {
    merge(path, AclEntryScope.ACCESS, spec, false);
    merge(path, AclEntryScope.DEFAULT, spec, false);
  }

  @Override
  public void removeAclEntries(Path path, List<AclEntry> spec) throws IOException {
    merge(path, AclEntryScope.ACCESS, spec, true);
    merge(path, AclEntryScope.DEFAULT, spec, true);
  }

  @Override
  public void removeDefaultAcl(Path path) throws IOException {
    put(path, AclEntryScope.DEFAULT, new ArrayList<>());
  }

  @Override
  public void removeAcl(Path path) throws IOException {
    removeDefaultAcl(path);
    List<AclEntry> bare = new ArrayList<>(list(path, AclEntryScope.ACCESS));
    bare.removeIf(entry -> entry.getName() != null
        || entry.getType() == AclEntryType.MASK);
    put(path, AclEntryScope.ACCESS, bare);
  }

  @Override
  public void setAcl(Path path, List<AclEntry> spec) throws IOException {
    for (AclEntryScope scope : AclEntryScope.values()) {
      List<AclEntry> part = new ArrayList<>();
      spec.stream().filter(entry -> entry.getScope() == scope).forEach(part::add);
      if (!part.isEmpty() || scope == AclEntryScope.DEFAULT) {
        put(path, scope, part);
      }
    }
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    switch (capability.toLowerCase(java.util.Locale.ROOT)) {
      case CommonPathCapabilities.FS_APPEND:
      case CommonPathCapabilities.FS_TRUNCATE:
      case CommonPathCapabilities.FS_PERMISSIONS:
      case CommonPathCapabilities.FS_ACLS:
      case CommonPathCapabilities.FS_XATTRS:
        return true;
      default:
        return super.hasPathCapability(path, capability);
    }
  }
}

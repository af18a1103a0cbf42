package weir.hadoop;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static weir.hadoop.TestCluster.weir;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.security.PrivilegedExceptionAction;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.io.FileUtils;
import org.apache.commons.io.IOUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.Trash;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.After;
import org.junit.Assume;
import org.junit.Before;
import org.junit.Test;

/** What Hadoop's own tests do not ask. */
public class WeirTest {
  private static final Path DIR = new Path("/weir-test");
  private FileSystem fs;

  @Before
  public void connect() throws Exception {
    fs = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
    fs.mkdirs(DIR);
  }

  @After
  public void remove() throws Exception {
    fs.delete(DIR, true);
    fs.close();
  }

  private static byte[] bytes(int count) {
    byte[] bytes = new byte[count];
    new Random(count).nextBytes(bytes);
    return bytes;
  }

  private Path write(String name, byte[] bytes) throws IOException {
    Path path = new Path(DIR, name);
    try (FSDataOutputStream out = fs.create(path)) {
      out.write(bytes);
    }
    return path;
  }

  private static byte[] readAll(FileSystem fs, Path path) throws IOException {
    byte[] bytes = new byte[(int) fs.getFileStatus(path).getLen()];
    try (FSDataInputStream in = fs.open(path)) {
      in.readFully(0, bytes);
    }
    return bytes;
  }

  private static String failureOf(Configuration conf, URI uri) {
    return assertThrows(IOException.class, () -> FileSystem.newInstance(uri, conf)).getMessage();
  }

  @Test
  public void bytesSurviveEveryWayToReadThem() throws Exception {
    byte[] data = bytes(5_000_001);
    Path path = write("data", data);
    assertArrayEquals(data, readAll(fs, path));
    try (FSDataInputStream in = fs.open(path)) {
      ByteBuffer direct = ByteBuffer.allocateDirect(3_000_000);
      in.readFully(1_500_001, direct);
      direct.flip();
      assertEquals(ByteBuffer.wrap(data, 1_500_001, 3_000_000), direct);
      ByteBuffer heap = ByteBuffer.allocate(2_000_000);
      in.readFully(17, heap);
      assertEquals(ByteBuffer.wrap(data, 17, 2_000_000), heap.flip());
      in.seek(4_999_990);
      byte[] tail = new byte[100];
      assertEquals(11, in.read(tail));
      assertArrayEquals(Arrays.copyOfRange(data, 4_999_990, 5_000_001), Arrays.copyOf(tail, 11));
      assertEquals(-1, in.read());
    }
  }

  @Test
  public void blocksNameHostsThatTheSchedulerKnows() throws Exception {
    Configuration conf = TestCluster.conf();
    conf.set("fs.weir.block.size", "1m");
    Path path = write("data", bytes(2_500_000));
    FileSystem plain = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    BlockLocation[] blocks = plain.getFileBlockLocations(path, 0, 2_500_000);
    assertEquals(3, blocks.length);
    assertEquals(2 << 20, blocks[2].getOffset());
    assertEquals(2_500_000 - (2 << 20), blocks[2].getLength());
    assertEquals(1, plain.getFileBlockLocations(path, 100, 10).length);
    assertEquals(0, plain.getFileBlockLocations(path, 2_500_000, 10).length);
    String host = blocks[0].getHosts()[0];

    conf.set("fs.weir.hosts", host + "=worker-7.example");
    FileSystem mapped = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    RemoteIterator<LocatedFileStatus> all = mapped.listLocatedStatus(DIR);
    assertEquals("worker-7.example", all.next().getBlockLocations()[0].getHosts()[0]);
    assertFalse(all.hasNext());
    plain.close();
    mapped.close();

    conf.set("fs.weir.hosts", "nowhere=worker-1");
    String said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains("'nowhere'") && said.contains(host));
    conf.set("fs.weir.hosts", "nonsense");
    said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains("weirhost=schedulerhost"));
  }

  @Test
  public void blocksOfChunkedFilesAreWhereTheirCopiesAre() throws Exception {
    weir("setlayout", "--layout", "chunked", "--chunk", "1M", "--copies", "2", "weir:" + DIR);
    Configuration conf = TestCluster.conf();
    conf.set("fs.weir.block.size", "1m");
    Path path = write("data", bytes(8 << 20));
    // Each segment has its index before its objects.
    String[] segments = weir("layout", "--json", "weir:" + path).split("\"index\":");
    FileSystem other = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    BlockLocation[] blocks = other.getFileBlockLocations(path, 0, 8 << 20);
    assertEquals(8, blocks.length);
    Set<String> all = new HashSet<>();
    for (int i = 0; i < blocks.length; i++) {
      Set<String> want = new HashSet<>();
      Matcher host = Pattern.compile("\"host\": *\"([^\"]+)\"").matcher(segments[i + 1]);
      while (host.find()) {
        want.add(host.group(1));
      }
      assertEquals(want, new HashSet<>(Arrays.asList(blocks[i].getHosts())));
      all.addAll(want);
    }
    Assume.assumeTrue("needs machines with names of their own (root)", all.size() > 1);
    other.close();
  }

  @Test
  public void whatIsFlushedIsSeenByOthers() throws Exception {
    FileSystem other = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
    Path path = new Path(DIR, "log");
    try (FSDataOutputStream out = fs.create(path)) {
      out.write(bytes(100));
      out.hflush();
      assertArrayEquals(bytes(100), readAll(other, path));
      out.write(bytes(50));
      out.hsync();
      assertEquals(150, other.getFileStatus(path).getLen());
    }
    try (FSDataOutputStream a = fs.append(path); FSDataOutputStream b = other.append(path)) {
      assertEquals(150, a.getPos());
      a.write(bytes(7));
      a.hflush();
      b.write(bytes(7));
      b.hflush();
    }
    // Neither has written over the other.
    assertEquals(164, fs.getFileStatus(path).getLen());
    assertTrue(other.truncate(path, 100));
    assertArrayEquals(bytes(100), readAll(fs, path));
    other.close();
  }

  @Test
  public void manyNamesAreListedOnceEach() throws Exception {
    for (int i = 0; i < 1_100; i++) {
      fs.mkdirs(new Path(DIR, "d" + (10_000 + i)));
    }
    FileStatus[] all = fs.listStatus(DIR);
    assertEquals(1_100, all.length);
    for (int i = 0; i < all.length; i++) {
      assertEquals("d" + (10_000 + i), all[i].getPath().getName());
    }
  }

  @Test
  public void aListingHasWhatAnotherOneHasJustWritten() throws Exception {
    FileSystem other = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
    // As a task of Spark writes, and its driver then collects.
    for (int i = 0; i < 20; i++) {
      Path task = new Path(DIR, "task" + i);
      try (FSDataOutputStream out = other.create(new Path(DIR, "attempt" + i + "/part"))) {
        out.write(bytes(1_000));
      }
      assertTrue(other.rename(new Path(DIR, "attempt" + i), task));
      FileStatus[] parts = fs.listStatus(task);
      assertEquals("round " + i, 1, parts.length);
      assertEquals(1_000, parts[0].getLen());
      // Also one that is still open.
      try (FSDataOutputStream out = other.create(new Path(task, "log"))) {
        out.write(bytes(10));
        out.hflush();
        assertEquals("round " + i, 2, fs.listStatus(task).length);
      }
      fs.create(new Path(task, "_SUCCESS")).close();
      assertEquals("round " + i, 3, other.listStatus(task).length);
    }
    other.close();
  }

  @Test
  public void aFileThatIsReplacedIsAlwaysThere() throws Exception {
    Path path = write("target", bytes(10));
    FileContext context = TestCluster.fileContext();
    AtomicBoolean done = new AtomicBoolean();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread reader = new Thread(() -> {
      while (!done.get()) {
        try (FSDataInputStream in = fs.open(path)) {
          in.read();
        } catch (Throwable e) {
          failure.set(e);
          return;
        }
      }
    });
    reader.start();
    for (int i = 0; i < 300; i++) {
      Path fresh = write("fresh", bytes(10));
      context.rename(fresh, path, Options.Rename.OVERWRITE);
    }
    done.set(true);
    reader.join();
    if (failure.get() != null) {
      throw new AssertionError("a rename left a gap", failure.get());
    }
  }

  @Test
  public void listsAndAttributesSurvive() throws Exception {
    Path path = write("data", bytes(10));
    fs.setXAttr(path, "user.colour", "green".getBytes(StandardCharsets.UTF_8));
    assertEquals(Collections.singletonList("user.colour"), fs.listXAttrs(path));
    assertEquals("green", new String(fs.getXAttr(path, "user.colour"), StandardCharsets.UTF_8));
    fs.removeXAttr(path, "user.colour");
    assertTrue(fs.getXAttrs(path).isEmpty());
    assertThrows(IOException.class, () -> fs.getXAttr(path, "user.colour"));

    fs.setPermission(path, new FsPermission("640"));
    List<AclEntry> more = AclEntry.parseAclSpec("user:nobody:rw-,group:daemon:r--", true);
    fs.modifyAclEntries(path, more);
    AclStatus status = fs.getAclStatus(path);
    assertEquals("[user:nobody:rw-, group::r--, group:daemon:r--]", status.getEntries().toString());
    assertTrue(fs.getFileStatus(path).hasAcl());
    fs.removeAclEntries(path, AclEntry.parseAclSpec("user:nobody", false));
    assertEquals("[group::r--, group:daemon:r--]", fs.getAclStatus(path).getEntries().toString());
    fs.removeAcl(path);
    assertTrue(fs.getAclStatus(path).getEntries().isEmpty());
    assertEquals("rw-r-----", fs.getFileStatus(path).getPermission().toString());

    fs.modifyAclEntries(DIR, AclEntry.parseAclSpec("default:user:nobody:r-x", true));
    Path below = new Path(DIR, "below");
    fs.mkdirs(below);
    assertTrue(fs.getAclStatus(below).getEntries().toString().contains("default:user:nobody:r-x"));
    fs.removeDefaultAcl(DIR);
    assertTrue(fs.getAclStatus(DIR).getEntries().isEmpty());
  }

  @Test
  public void usersActInTheirOwnName() throws Exception {
    fs.setPermission(DIR, new FsPermission("755"));
    UserGroupInformation.createRemoteUser("nobody").doAs((PrivilegedExceptionAction<Void>) () -> {
      FileSystem theirs = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
      assertThrows(AccessControlException.class, () -> theirs.create(new Path(DIR, "x")).close());
      fs.setPermission(DIR, new FsPermission("777"));
      theirs.create(new Path(DIR, "x")).close();
      assertEquals("nobody", theirs.getFileStatus(new Path(DIR, "x")).getOwner());
      theirs.close();
      return null;
    });
    String said = UserGroupInformation.createRemoteUser("no-such-user")
        .doAs((PrivilegedExceptionAction<String>) () -> failureOf(TestCluster.conf(),
            TestCluster.ADDRESS));
    assertTrue(said, said.contains("'no-such-user'") && said.contains("fs.weir.unknown.user"));
  }

  @Test
  public void aRestrictedKeyIsHeldToWhatItAllows() throws Exception {
    Path path = write("data", bytes(10));
    File credential = Files.createTempFile("reader", ".toml").toFile();
    assertTrue(credential.delete());
    weir("key", "new", "reader", "--read-only", "--subtree", DIR.toString(), "-o",
        credential.getPath());
    Configuration conf = TestCluster.conf();
    conf.set("fs.weir." + TestCluster.ADDRESS.getAuthority() + ".credential",
        credential.getPath());
    FileSystem reader = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    // Its root is the directory.
    assertArrayEquals(bytes(10), readAll(reader, new Path("/data")));
    assertThrows(FileNotFoundException.class, () -> reader.open(path));
    assertThrows(AccessControlException.class, () -> reader.create(new Path("/new")).close());
    assertThrows(AccessControlException.class, () -> reader.delete(new Path("/data"), false));
    reader.close();
    weir("key", "revoke", "reader");
    String said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains("key"));
    assertTrue(credential.delete());
  }

  @Test
  public void eachUserMayHaveAKeyOfItsOwn() throws Exception {
    fs.setPermission(DIR, new FsPermission("777"));
    Path path = write("data", bytes(10));
    File credential = Files.createTempFile("nobody", ".toml").toFile();
    assertTrue(credential.delete());
    weir("key", "new", "nobodys", "--read-only", "--subtree", DIR.toString(), "-o",
        credential.getPath());
    Configuration conf = TestCluster.conf();
    conf.set("fs.weir." + TestCluster.ADDRESS.getAuthority() + ".user.nobody.credential",
        credential.getPath());
    UserGroupInformation.createRemoteUser("nobody").doAs((PrivilegedExceptionAction<Void>) () -> {
      FileSystem theirs = FileSystem.newInstance(TestCluster.ADDRESS, conf);
      // The key of nobody has this directory as its root, and permits no changes.
      assertArrayEquals(bytes(10), readAll(theirs, new Path("/data")));
      assertThrows(AccessControlException.class, () -> theirs.create(new Path("/x")).close());
      theirs.close();
      return null;
    });
    // Other users have the key of the cluster.
    FileSystem ours = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    assertArrayEquals(bytes(10), readAll(ours, path));
    ours.close();
    weir("key", "revoke", "nobodys");
    assertTrue(credential.delete());
  }

  /** How many of such requests the metadata server has had. */
  private static long asked(String op) throws Exception {
    String said = weir("status", "--counters", "--json");
    Matcher count = Pattern.compile("\"op\\." + op + "\": *([0-9]+)").matcher(said);
    return count.find() ? Long.parseLong(count.group(1)) : 0;
  }

  @Test
  public void aListingHasTheBlocksOfAllFilesInOneRequestForAThousandNames() throws Exception {
    for (int i = 0; i < 1_100; i++) {
      write("f" + (10_000 + i), bytes(i % 100));
    }
    fs.mkdirs(new Path(DIR, "below"));
    long opened = asked("open");
    long listed = asked("readdir");
    int files = 0;
    for (RemoteIterator<LocatedFileStatus> all = fs.listLocatedStatus(DIR); all.hasNext();) {
      LocatedFileStatus file = all.next();
      if (file.isDirectory()) {
        continue;
      }
      BlockLocation[] blocks = file.getBlockLocations();
      assertEquals(file.getLen() == 0 ? 0 : 1, blocks.length);
      if (blocks.length > 0) {
        assertEquals(file.getLen(), blocks[0].getLength());
        assertTrue(blocks[0].getHosts().length > 0);
      }
      files++;
    }
    assertEquals(1_100, files);
    assertEquals(0, asked("open") - opened);
    assertTrue(asked("readdir") - listed <= 3);
  }

  @Test
  public void aFileOfVeryManyBlocksIsAskedForThemAlone() throws Exception {
    write("many", bytes(5_000));
    write("one", bytes(1));
    Configuration conf = TestCluster.conf();
    conf.set("fs.weir.block.size", "1");
    FileSystem small = FileSystem.newInstance(TestCluster.ADDRESS, conf);
    int files = 0;
    RemoteIterator<LocatedFileStatus> all = small.listLocatedStatus(DIR);
    while (all.hasNext()) {
      LocatedFileStatus file = all.next();
      assertEquals(file.getLen(), file.getBlockLocations().length);
      assertTrue(file.getBlockLocations()[0].getHosts().length > 0);
      files++;
    }
    assertEquals(2, files);
    small.close();
  }

  @Test
  public void trashKeepsWhatIsDeleted() throws Exception {
    Configuration conf = TestCluster.conf();
    conf.set("fs.trash.interval", "10");
    Path path = write("data", bytes(10));
    assertTrue(new Trash(fs, conf).moveToTrash(path));
    assertFalse(fs.exists(path));
    Path kept = Path.mergePaths(new Path(fs.getTrashRoot(path), "Current"), path);
    assertArrayEquals(bytes(10), readAll(fs, kept));
    fs.delete(fs.getTrashRoot(path), true);
  }

  @Test
  public void whatIsClosedSaysSo() throws Exception {
    Path path = write("data", bytes(10));
    FSDataInputStream in = fs.open(path);
    in.close();
    in.close();
    assertThrows(IOException.class, in::read);
    assertThrows(IOException.class, () -> in.read(0, new byte[1], 0, 1));
    FileSystem other = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
    FSDataOutputStream out = other.create(new Path(DIR, "late"));
    other.close();
    assertThrows(IOException.class, () -> other.getFileStatus(path));
    // The file keeps its session.
    out.write(1);
    out.close();
    assertEquals(1, fs.getFileStatus(new Path(DIR, "late")).getLen());
    for (long number : new long[] {0, -1, 1L << 40, Long.MIN_VALUE}) {
      assertThrows(IOException.class, () -> Native.size(number));
      assertThrows(IOException.class, () -> Native.close(number));
      assertThrows(IOException.class, () -> Native.stat(number, "/", true));
    }
    FSDataInputStream open = fs.open(path);
    assertThrows(IOException.class, () -> Native.read(1, 0, ByteBuffer.allocateDirect(1), 0, 2));
    open.close();
  }

  @Test
  public void withoutANameTheClusterOfTheCredentialIsMeant() throws Exception {
    Path path = write("data", bytes(10));
    File credential = Files.createTempFile("nameless", ".toml").toFile();
    assertTrue(credential.delete());
    weir("key", "new", "nameless", "-o", credential.getPath());
    Configuration conf = TestCluster.conf();
    URI nameless = URI.create("weir:///");
    conf.set("fs.defaultFS", nameless.toString());
    conf.set("fs.weir.credential", credential.getPath());
    FileSystem plain = FileSystem.newInstance(nameless, conf);
    assertEquals(nameless, plain.getUri());
    assertArrayEquals(bytes(10), readAll(plain, path));
    assertEquals("weir:" + path, plain.getFileStatus(path).getPath().toString());
    plain.close();
    weir("key", "revoke", "nameless");
    assertTrue(credential.delete());
  }

  @Test
  public void aClusterThatIsNotReachedSaysWhatToDo() throws Exception {
    Configuration conf = TestCluster.conf();
    String said = failureOf(conf, URI.create("weir://no-such-cluster/"));
    assertTrue(said, said.contains("no-such-cluster") && said.contains("weir up"));

    File credential = Files.createTempFile("client", ".toml").toFile();
    String text = "cluster = \"far\"\nclient = 1\nkey = \"" + String.join("",
        Collections.nCopies(32, "ab")) + "\"\nmetadata = [\"127.0.0.1:1\"]\n";
    Files.write(credential.toPath(), text.getBytes(StandardCharsets.UTF_8));
    conf.set("fs.weir.credential", credential.getPath());
    said = failureOf(conf, URI.create("weir://far/"));
    assertTrue(said, said.contains("127.0.0.1:1") && said.contains("weir status"));
    said = failureOf(conf, URI.create("weir://near/"));
    assertTrue(said, said.contains("weir://far/"));
    Files.write(credential.toPath(), text.replace("127.0.0.1:1", "nobody-knows.invalid:1")
        .getBytes(StandardCharsets.UTF_8));
    said = failureOf(conf, URI.create("weir://far/"));
    assertTrue(said, said.contains("`nobody-knows.invalid:1` is not known")
        && said.contains("weir status"));

    // The right address, and somebody else's key.
    String own = new String(Files.readAllBytes(TestCluster.credential().toPath()),
        StandardCharsets.UTF_8);
    String wrong = own.replaceAll("key = \"[0-9a-f]*\"",
        "key = \"" + String.join("", Collections.nCopies(32, "ab")) + "\"");
    Files.write(credential.toPath(), wrong.getBytes(StandardCharsets.UTF_8));
    said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains("key") && said.contains("`weir key new`"));
    Files.write(credential.toPath(), "nonsense".getBytes(StandardCharsets.UTF_8));
    said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains(credential.getPath()) && said.contains("`weir key new`"));
    assertTrue(credential.delete());
    said = failureOf(conf, TestCluster.ADDRESS);
    assertTrue(said, said.contains(credential.getPath()) && said.contains("missing"));
  }

  @Test
  public void aBlockSizeThatIsNoneIsNamed() throws Exception {
    for (String bad : new String[] {"0", "-1", "large"}) {
      Configuration conf = TestCluster.conf();
      conf.set("fs.weir.block.size", bad);
      String said = failureOf(conf, TestCluster.ADDRESS);
      assertTrue(said, said.contains("fs.weir.block.size is '" + bad + "'"));
    }
  }

  /** Connects; for a machine of its own, which loads a library of its own. */
  public static void main(String[] ignored) throws Exception {
    try (FileSystem fs = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf())) {
      System.out.println("connected to " + fs.getUri());
    } catch (IOException e) {
      System.out.println("refused: " + e.getMessage());
    }
  }

  /** What {@link #main} says with another library, and with what is found before the jar. */
  private static String elsewhere(String library, File... before) throws Exception {
    StringBuilder path = new StringBuilder();
    for (File first : before) {
      path.append(first).append(File.pathSeparator);
    }
    path.append(System.getProperty("java.class.path"));
    Process java = new ProcessBuilder(System.getProperty("java.home") + "/bin/java",
        "-D" + NativeLibrary.PATH_PROPERTY + "=" + library, "-XX:TieredStopAtLevel=1",
        "-Dweir.test.uri=" + TestCluster.ADDRESS, "-cp", path.toString(),
        WeirTest.class.getName()).redirectErrorStream(true).start();
    String said = IOUtils.toString(java.getInputStream(), StandardCharsets.UTF_8);
    java.waitFor();
    return said;
  }

  @Test
  public void aLibraryThatDoesNotFitIsRefused() throws Exception {
    assertTrue(elsewhere("").contains("connected to weir://"));
    String said = elsewhere("/no/such/library.so");
    assertTrue(said, said.contains("refused: the native library of Weir cannot be loaded"));
    said = elsewhere(System.getProperty("java.home") + "/lib/libzip.so");
    assertTrue(said, said.contains("refused: ") && said.contains("use both of one release"));
  }

  @Test
  public void aJarThatDoesNotFitItsLibraryIsRefused() throws Exception {
    Properties index = new Properties();
    try (InputStream in = WeirTest.class.getResourceAsStream(NativeLibrary.INDEX)) {
      index.load(in);
    }
    String version = index.getProperty("version");
    String system = System.getProperty("os.name") + "-" + System.getProperty("os.arch");
    String hash = index.getProperty(system);

    // The jar of another release, and this library.
    String said = withIndex("version=0.0.1\n" + system + "=" + hash + "\n");
    assertTrue(said, said.contains("refused: the jar of Weir (version and interface 0.0.1 "
        + Native.INTERFACE + ") does not fit") && said.contains("(" + version + " ")
        && said.contains("use both of one release"));
    // A jar that was built on another kind of machine.
    said = withIndex("version=" + version + "\nPlan9-mips=" + hash + "\n");
    assertTrue(said, said.contains("refused: this jar of Weir has no native library for " + system)
        && said.contains("Plan9-mips") && said.contains("`make java`"));
    // One whose library was lost on the way.
    said = withIndex("version=" + version + "\n" + system + "=" + hash.replace('a', 'b') + "00\n");
    assertTrue(said, said.contains("refused: this jar of Weir is damaged"));
  }

  private static String withIndex(String text) throws Exception {
    File before = Files.createTempDirectory("index").toFile();
    File index = new File(before, NativeLibrary.INDEX);
    assertTrue(index.getParentFile().mkdirs());
    Files.write(index.toPath(), text.getBytes(StandardCharsets.UTF_8));
    try {
      return elsewhere("", before);
    } finally {
      FileUtils.deleteDirectory(before);
    }
  }
}

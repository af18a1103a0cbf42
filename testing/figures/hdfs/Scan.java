import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.ConnectException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;

/**
 * A grep on HDFS, as Hadoop runs one: each node takes a block that it has, as long as there is one that nobody has
 * taken, and then any other. The experiment `weir-figures hdfs` runs one process of it on each node.
 *
 * <pre>
 * Scan CONF put FROM NODES TO REPLICATION BLOCK_BYTES [TO REPLICATION BLOCK_BYTES]...
 * Scan CONF grep TEXT HOST RANK RANKS TASKS [URI]     and then, on standard input: FILE CLAIMS
 * </pre>
 *
 * HOST is how the file system calls the node. URI is another file system than that of the configuration.
 */
public final class Scan {
  private static final int PIECE_BYTES = 1 << 20;
  private static final int MORE_BYTES = 4 << 10;
  private static final long PATIENCE_MS = 120_000;

  public static void main(String[] words) throws Exception {
    Configuration conf = new Configuration();
    conf.addResource(new Path(words[0] + "/core-site.xml"));
    conf.addResource(new Path(words[0] + "/hdfs-site.xml"));
    String uri = words.length > 7 && words[1].equals("grep") ? words[7] : conf.get("fs.defaultFS");
    try (FileSystem files = FileSystem.newInstance(URI.create(uri), conf)) {
      if (words[1].equals("put")) {
        put((DistributedFileSystem) files, words);
      } else {
        new Scan(files, words).run();
      }
    }
  }

  /** Waits until all nodes are there, and copies a local file to HDFS, once for each name. */
  private static void put(DistributedFileSystem files, String[] words) throws Exception {
    int nodes = Integer.parseInt(words[3]);
    long until = System.currentTimeMillis() + PATIENCE_MS;
    while (alive(files) < nodes) {
      if (System.currentTimeMillis() > until) {
        throw new IOException("not all of " + nodes + " DataNodes have come");
      }
      Thread.sleep(200);
    }
    for (int at = 4; at + 2 < words.length; at += 3) {
      short copies = Short.parseShort(words[at + 1]);
      long block = Long.parseLong(words[at + 2]);
      try (FSDataOutputStream out = files.create(new Path(words[at]), false, PIECE_BYTES, copies, block)) {
        Files.copy(Paths.get(words[2]), out);
      }
    }
  }

  private static int alive(DistributedFileSystem files) throws IOException {
    try {
      return files.getDataNodeStats(DatanodeReportType.LIVE).length;
    } catch (ConnectException starting) {
      return 0;
    }
  }

  private final FileSystem files;
  private final byte[] text;
  private final String host;
  private final int rank;
  private final int ranks;
  private final int tasks;
  private Path file;
  private String claims;
  private BlockLocation[] blocks;
  private long size;
  private long bytes;
  private long localBytes;
  private long lines;

  private Scan(FileSystem files, String[] words) {
    this.files = files;
    text = words[2].getBytes(StandardCharsets.ISO_8859_1);
    host = words[3];
    rank = Integer.parseInt(words[4]);
    ranks = Integer.parseInt(words[5]);
    tasks = Integer.parseInt(words[6]);
  }

  /** One search for each line of input, so that a JVM is warm after the first. */
  private void run() throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      file = new Path(words[0]);
      claims = words[1];
      bytes = 0;
      localBytes = 0;
      lines = 0;
      search();
    }
  }

  private void search() throws Exception {
    double cpu = cpuSeconds();
    long begin = System.nanoTime();
    size = files.getFileStatus(file).getLen();
    blocks = files.getFileBlockLocations(file, 0, size);
    ExecutorService threads = Executors.newFixedThreadPool(tasks);
    List<Future<Void>> all = new ArrayList<>();
    Callable<Void> task = () -> {
      for (int block = next(); block >= 0; block = next()) {
        scan(blocks[block]);
      }
      return null;
    };
    for (int n = 0; n < tasks; n++) {
      all.add(threads.submit(task));
    }
    for (Future<Void> one : all) {
      one.get();
    }
    threads.shutdown();
    System.out.printf(
        "{\"rank\":%d,\"input_bytes\":%d,\"local_bytes\":%d,\"lines\":%d,\"seconds\":%.3f,\"cpu_seconds\":%.3f}%n",
        rank, bytes, localBytes, lines, (System.nanoTime() - begin) / 1e9, cpuSeconds() - cpu);
  }

  private static double cpuSeconds() {
    Object system = ManagementFactory.getOperatingSystemMXBean();
    return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
  }

  private boolean isLocal(BlockLocation block) throws IOException {
    for (String name : block.getNames()) {
      // HDFS says a port besides.
      if (name.equals(host) || name.startsWith(host + ":")) {
        return true;
      }
    }
    return false;
  }

  /** A block that nobody else gets; -1 at the end. */
  private int next() throws IOException {
    for (boolean local : new boolean[] {true, false}) {
      // Not all nodes begin with the same block.
      int first = blocks.length * rank / ranks;
      for (int n = 0; n < blocks.length; n++) {
        int block = (first + n) % blocks.length;
        if (isLocal(blocks[block]) == local && claim(block)) {
          return block;
        }
      }
    }
    return -1;
  }

  private boolean claim(int block) throws IOException {
    try {
      Files.createFile(Paths.get(claims, Integer.toString(block)));
      return true;
    } catch (FileAlreadyExistsException taken) {
      return false;
    }
  }

  /** Counts the lines with the text whose first byte is in the block, or, as in Hadoop, right behind it. */
  private void scan(BlockLocation block) throws IOException {
    long begin = block.getOffset();
    long end = begin + block.getLength();
    long found = 0;
    try (FSDataInputStream in = files.open(file)) {
      byte[] buffer = new byte[2 * PIECE_BYTES];
      int held = 0;
      long at = begin;
      boolean skips = begin > 0;
      in.seek(at);
      while (at < end) {
        int read = in.read(buffer, held, (int) Math.min(PIECE_BYTES, end - at));
        if (read < 0) {
          throw new IOException(file + " has been cut");
        }
        at += read;
        held += read;
        int from = 0;
        if (skips) {
          from = indexOf(buffer, 0, held) + 1;
          skips = from == 0;
        }
        int whole = lastIndexOf(buffer, held) + 1;
        if (!skips && whole > from) {
          found += count(buffer, from, whole);
        }
        int kept = skips ? held : Math.max(from, whole);
        System.arraycopy(buffer, kept, buffer, 0, held - kept);
        held -= kept;
        if (held > PIECE_BYTES) {
          throw new IOException("a line of more than 1 MiB");
        }
      }
      // The end of the last line, or the whole one that begins behind the block.
      boolean ended = skips || at >= size;
      while (!ended) {
        // By its position: else all of the next block would be on its way.
        int read = in.read(at, buffer, held, MORE_BYTES);
        at += Math.max(read, 0);
        int until = read < 0 ? -1 : indexOf(buffer, held, held + read);
        ended = read < 0 || until >= 0;
        held = until >= 0 ? until + 1 : held + Math.max(read, 0);
        if (held > PIECE_BYTES) {
          throw new IOException("a line of more than 1 MiB");
        }
      }
      found += skips ? 0 : count(buffer, 0, held);
    }
    synchronized (this) {
      lines += found;
      bytes += block.getLength();
      localBytes += isLocal(block) ? block.getLength() : 0;
    }
  }

  private static int indexOf(byte[] bytes, int from, int to) {
    for (int at = from; at < to; at++) {
      if (bytes[at] == '\n') {
        return at;
      }
    }
    return -1;
  }

  private static int lastIndexOf(byte[] bytes, int to) {
    for (int at = to - 1; at >= 0; at--) {
      if (bytes[at] == '\n') {
        return at;
      }
    }
    return -1;
  }

  /** Lines with the text; the search in a string of Latin-1 is the machine code of the JVM. */
  private long count(byte[] bytes, int from, int to) {
    String all = new String(bytes, from, to - from, StandardCharsets.ISO_8859_1);
    String wanted = new String(text, StandardCharsets.ISO_8859_1);
    long found = 0;
    int at = all.indexOf(wanted);
    while (at >= 0) {
      found++;
      int end = all.indexOf('\n', at);
      at = end < 0 ? -1 : all.indexOf(wanted, end);
    }
    return found;
  }
}

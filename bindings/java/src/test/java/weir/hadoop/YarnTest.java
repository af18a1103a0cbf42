package weir.hadoop;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.io.FileUtils;
import org.apache.commons.io.IOUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Counter;
import org.apache.hadoop.mapreduce.Counters;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.JobCounter;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.map.TokenCounterMapper;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.IntSumReducer;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ToolRunner;
import org.junit.AfterClass;
import org.junit.Assume;
import org.junit.BeforeClass;
import org.junit.Test;

/**
 * Jobs of YARN, whose tasks are processes of their own; what the jobs themselves need (their
 * staging directory, their history) is on Weir, too.
 */
public class YarnTest {
  private static final int LIMIT_MS = 300_000;
  private static final String WHERE = "where";
  private static YarnCluster yarn;

  @BeforeClass
  public static void start() throws Exception {
    yarn = new YarnCluster();
  }

  @AfterClass
  public static void stop() throws Exception {
    if (yarn != null) {
      yarn.close();
    }
    try (FileSystem fs = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf())) {
      fs.delete(new Path("/yarn"), true);
      fs.delete(new Path("/tmp"), true);
    }
  }

  private interface Body {
    void run(FileSystem fs) throws Exception;
  }

  /** With file systems that other tests have not opened, with other settings. */
  private static void afresh(Configuration conf, Body body) throws Exception {
    UserGroupInformation user = UserGroupInformation
        .createRemoteUser(UserGroupInformation.getCurrentUser().getShortUserName());
    try {
      user.doAs((PrivilegedExceptionAction<Void>) () -> {
        body.run(FileSystem.get(TestCluster.ADDRESS, conf));
        return null;
      });
    } finally {
      FileSystem.closeAllForUGI(user);
    }
  }

  // The benchmark of Hadoop

  private static final int FILES = 2;
  private static final int FILE_MIB = 3;

  /** Runs TestDFSIO; how many MiB its report says that it has processed. */
  private static double dfsio(Configuration conf, String... arguments) throws Exception {
    File report = new File(YarnCluster.DIR, "dfsio.log");
    FileUtils.deleteQuietly(report);
    List<String> all = new ArrayList<>(Arrays.asList(arguments));
    all.addAll(Arrays.asList("-nrFiles", "" + FILES, "-resFile", report.getPath()));
    assertEquals(0, ToolRunner.run(conf, new TestDFSIO(), all.toArray(new String[0])));
    if (!report.exists()) {
      return 0;
    }
    String text = FileUtils.readFileToString(report, StandardCharsets.UTF_8);
    System.out.println(text);
    Matcher size = Pattern.compile("Total MBytes processed: *([0-9.]+)").matcher(text);
    assertTrue(text, size.find());
    return Double.parseDouble(size.group(1));
  }

  /** TestDFSIO writes nothing but zeros. */
  private static void assertZeros(FileSystem fs, int mib) throws IOException {
    byte[] want = new byte[mib << 20];
    for (int file = 0; file < FILES; file++) {
      Path path = new Path("/dfsio/io_data/test_io_" + file);
      assertEquals(want.length, fs.getFileStatus(path).getLen());
      try (FSDataInputStream in = fs.open(path)) {
        assertArrayEquals(want, IOUtils.toByteArray(in));
      }
    }
  }

  @Test(timeout = LIMIT_MS)
  public void testDfsioWritesAppendsReadsAndTruncates() throws Exception {
    Configuration conf = yarn.conf();
    conf.set("test.build.data", "/dfsio");
    afresh(conf, fs -> {
      String once = FILE_MIB + "MB";
      String twice = 2 * FILE_MIB + "MB";
      assertEquals(FILES * FILE_MIB, dfsio(conf, "-write", "-size", once), 0.01);
      assertZeros(fs, FILE_MIB);
      assertEquals(FILES * FILE_MIB, dfsio(conf, "-append", "-size", once), 0.01);
      assertZeros(fs, 2 * FILE_MIB);
      assertEquals(2 * FILES * FILE_MIB, dfsio(conf, "-read", "-size", twice), 0.01);
      dfsio(conf, "-read", "-random", "-size", once);
      assertEquals(FILES * FILE_MIB, dfsio(conf, "-truncate", "-size", once), 0.01);
      assertZeros(fs, FILE_MIB);
      dfsio(conf, "-clean");
      assertFalse(fs.exists(new Path("/dfsio")));
    });
  }

  // Where tasks run

  private static final int BLOCKS = 6;

  /** Counts words, and says on which machine it has those of a block. */
  public static class PlacedMapper extends TokenCounterMapper {
    @Override
    protected void setup(Context context) {
      long start = ((FileSplit) context.getInputSplit()).getStart();
      context.getCounter(WHERE, start + "@" + System.getenv("NM_HOST")).increment(1);
    }
  }

  /** Words for as many blocks; {@code counts} becomes how often each occurs. */
  private static byte[] words(Map<String, Integer> counts) {
    Random random = new Random(10);
    StringBuilder text = new StringBuilder();
    while (text.length() < (BLOCKS << 20) - 100) {
      String word = "word" + random.nextInt(5_000);
      counts.merge(word, 1, Integer::sum);
      text.append(word).append(random.nextInt(12) == 0 ? '\n' : ' ');
    }
    while (text.length() < BLOCKS << 20) {
      text.append('\n');
    }
    return text.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static Map<String, Integer> counted(FileSystem fs, Path dir) throws IOException {
    Map<String, Integer> counts = new TreeMap<>();
    for (FileStatus part : fs.globStatus(new Path(dir, "part-*"))) {
      try (FSDataInputStream in = fs.open(part.getPath())) {
        for (String line : IOUtils.readLines(in, StandardCharsets.UTF_8)) {
          String[] both = line.split("\t");
          assertEquals(line, null, counts.put(both[0], Integer.valueOf(both[1])));
        }
      }
    }
    return counts;
  }

  @Test(timeout = LIMIT_MS)
  public void mapsRunWhereTheirBlocksAre() throws Exception {
    Assume.assumeTrue("needs machines with names of their own (root)",
        YarnCluster.machines().size() > 1);
    Configuration conf = yarn.conf();
    Path dir = new Path("/words");
    Map<String, Integer> want = new TreeMap<>();
    byte[] text = words(want);
    afresh(conf, fs -> {
      fs.mkdirs(dir);
      TestCluster.weir("setlayout", "--layout", "chunked", "--chunk", "1M", "--copies", "1",
          "weir:" + dir);
      Path in = new Path(dir, "in");
      try (FSDataOutputStream out = fs.create(in)) {
        out.write(text);
      }
      BlockLocation[] blocks = fs.getFileBlockLocations(in, 0, text.length);
      assertEquals(BLOCKS, blocks.length);

      Job job = Job.getInstance(conf, "words");
      job.setMapperClass(PlacedMapper.class);
      job.setCombinerClass(IntSumReducer.class);
      job.setReducerClass(IntSumReducer.class);
      job.setOutputKeyClass(Text.class);
      job.setOutputValueClass(IntWritable.class);
      FileInputFormat.addInputPath(job, in);
      FileOutputFormat.setOutputPath(job, new Path(dir, "out"));
      assertTrue(job.waitForCompletion(false));
      assertEquals(want, counted(fs, new Path(dir, "out")));

      Counters counters = job.getCounters();
      assertEquals(BLOCKS, counters.findCounter(JobCounter.TOTAL_LAUNCHED_MAPS).getValue());
      assertEquals(BLOCKS, counters.findCounter(JobCounter.DATA_LOCAL_MAPS).getValue());
      Set<String> ran = new HashSet<>();
      for (Counter counter : counters.getGroup(WHERE)) {
        ran.add(counter.getName());
      }
      Set<String> stored = new HashSet<>();
      for (BlockLocation block : blocks) {
        assertEquals(1, block.getHosts().length);
        stored.add(block.getOffset() + "@" + block.getHosts()[0]);
      }
      assertEquals(stored, ran);
      fs.delete(dir, true);
    });
  }
}

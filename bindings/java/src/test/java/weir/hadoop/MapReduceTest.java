package weir.hadoop;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.TreeSet;
import org.apache.commons.io.IOUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.map.TokenCounterMapper;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.IntSumReducer;
import org.apache.hadoop.tools.contract.AbstractContractDistCpTest;
import org.junit.Test;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** Jobs of MapReduce, in this process: a count of words, and Hadoop's tests of distcp. */
@RunWith(Enclosed.class)
public class MapReduceTest {
  public static class DistCp extends AbstractContractDistCpTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class WordCount {
    @Test
    public void wordsAreCounted() throws Exception {
      Configuration conf = TestCluster.conf();
      // Several splits of a file, whose lines end across their borders.
      conf.setInt(FileInputFormat.SPLIT_MAXSIZE, 64 << 10);
      Path dir = new Path("/word-count");
      try (FileSystem fs = FileSystem.newInstance(TestCluster.ADDRESS, conf)) {
        fs.mkdirs(dir);
        Path in = new Path(dir, "in");
        try (FSDataOutputStream out = fs.create(in)) {
          String line = "to be or not to be\n";
          out.write(String.join("", Collections.nCopies(20_000, line)).getBytes());
        }
        Job job = Job.getInstance(conf, "words");
        job.setMapperClass(TokenCounterMapper.class);
        job.setReducerClass(IntSumReducer.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(IntWritable.class);
        FileInputFormat.addInputPath(job, in);
        FileOutputFormat.setOutputPath(job, new Path(dir, "out"));
        assertTrue(job.waitForCompletion(false));
        TreeSet<String> said = new TreeSet<>();
        for (FileStatus part : fs.globStatus(new Path(dir, "out/part-*"))) {
          try (FSDataInputStream data = fs.open(part.getPath())) {
            said.addAll(IOUtils.readLines(data, StandardCharsets.UTF_8));
          }
        }
        assertEquals("[be\t40000, not\t20000, or\t20000, to\t40000]", said.toString());
        assertTrue(fs.exists(new Path(dir, "out/_SUCCESS")));
        fs.delete(dir, true);
      }
    }
  }
}

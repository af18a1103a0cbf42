package weir.hadoop;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;

/** The cluster that scripts/java.sh has started. */
final class TestCluster {
  static final URI ADDRESS = URI.create(System.getProperty("weir.test.uri"));

  private TestCluster() {
  }

  static Configuration conf() {
    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", ADDRESS.toString());
    conf.set("fs.AbstractFileSystem.weir.impl", WeirFs.class.getName());
    return conf;
  }

  static FileSystem fileSystem() throws IOException {
    return FileSystem.get(ADDRESS, conf());
  }

  static FileContext fileContext() throws IOException {
    return FileContext.getFileContext(ADDRESS, conf());
  }
}

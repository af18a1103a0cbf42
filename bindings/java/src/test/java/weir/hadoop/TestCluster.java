package weir.hadoop;

import static org.junit.Assert.assertEquals;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.commons.io.IOUtils;
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

  /** The credential that the cluster has on this machine. */
  static File credential() {
    return new File(System.getenv("XDG_STATE_HOME"),
        "weir/" + ADDRESS.getAuthority() + "/client.toml");
  }

  /** Runs the program {@code weir} on the cluster; what it says. */
  static String weir(String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(System.getProperty("weir.test.program"));
    command.addAll(Arrays.asList(arguments));
    command.addAll(Arrays.asList("--name", ADDRESS.getAuthority()));
    Process weir = new ProcessBuilder(command).start();
    weir.getOutputStream().close();
    String said = IOUtils.toString(weir.getInputStream(), StandardCharsets.UTF_8);
    assertEquals(IOUtils.toString(weir.getErrorStream(), StandardCharsets.UTF_8), 0,
        weir.waitFor());
    return said;
  }

  static FileContext fileContext() throws IOException {
    return FileContext.getFileContext(ADDRESS, conf());
  }
}

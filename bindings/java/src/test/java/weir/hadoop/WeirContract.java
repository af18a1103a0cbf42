package weir.hadoop;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** What Weir says that it does of Hadoop's contract: resources/contract/weir.xml. */
class WeirContract extends AbstractFSContract {
  WeirContract(Configuration conf) {
    super(conf);
    addConfResource("contract/weir.xml");
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(TestCluster.ADDRESS, getConf());
  }

  @Override
  public String getScheme() {
    return WeirFileSystem.SCHEME;
  }

  @Override
  public Path getTestPath() {
    return new Path("/contract");
  }
}

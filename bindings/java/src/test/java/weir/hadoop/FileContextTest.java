package weir.hadoop;

import static org.junit.Assert.assertEquals;

import java.net.URI;
import org.apache.hadoop.fs.FCStatisticsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContextPermissionBase;
import org.apache.hadoop.fs.FileContextURIBase;
import org.apache.hadoop.fs.FileContextUtilBase;
import org.apache.hadoop.fs.FileSystem;
import org.junit.After;
import org.junit.Before;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** Hadoop's tests of {@code FileContext}. */
@RunWith(Enclosed.class)
public class FileContextTest {
  public static class MainOperations extends FileContextMainOperationsBaseTest {
    @Override
    public void setUp() throws Exception {
      fc = TestCluster.fileContext();
      super.setUp();
    }

    @Override
    protected boolean listCorruptedBlocksSupported() {
      return false;
    }
  }

  public static class CreateMkdir extends FileContextCreateMkdirBaseTest {
    @Override
    public void setUp() throws Exception {
      fc = TestCluster.fileContext();
      super.setUp();
    }
  }

  public static class Permission extends FileContextPermissionBase {
    @Override
    protected FileContext getFileContext() throws Exception {
      return TestCluster.fileContext();
    }
  }

  public static class Uri extends FileContextURIBase {
    @Override
    public void setUp() throws Exception {
      fc1 = TestCluster.fileContext();
      fc2 = TestCluster.fileContext();
      super.setUp();
    }
  }

  public static class Util extends FileContextUtilBase {
    @Override
    public void setUp() throws Exception {
      fc = TestCluster.fileContext();
      super.setUp();
    }
  }

  public static class Statistics extends FCStatisticsBaseTest {
    @Before
    public void setUp() throws Exception {
      fc = TestCluster.fileContext();
      fc.mkdir(fileContextTestHelper.getTestRootPath(fc, "test"), FileContext.DEFAULT_PERM, true);
    }

    @After
    public void tearDown() throws Exception {
      fc.delete(fileContextTestHelper.getTestRootPath(fc, "test"), true);
    }

    @Override
    protected void verifyReadBytes(FileSystem.Statistics statistics) {
      assertEquals(2 * blockSize, statistics.getBytesRead());
    }

    @Override
    protected void verifyWrittenBytes(FileSystem.Statistics statistics) {
      assertEquals(blockSize, statistics.getBytesWritten());
    }

    @Override
    protected URI getFsUri() {
      return TestCluster.ADDRESS;
    }
  }
}

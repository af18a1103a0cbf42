package weir.hadoop;

import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.Before;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** Hadoop's tests of {@code FileSystem}. */
@RunWith(Enclosed.class)
public class FileSystemTest {
  public static class Contract extends FileSystemContractBaseTest {
    @Before
    public void connect() throws Exception {
      // Its working directory is nobody else's.
      fs = FileSystem.newInstance(TestCluster.ADDRESS, TestCluster.conf());
    }
  }

  public static class MainOperations extends FSMainOperationsBaseTest {
    @Override
    protected FileSystem createFileSystem() throws Exception {
      return TestCluster.fileSystem();
    }

    /** Root may read everything: these tests are about another user. */
    private void asNobody(Run test) throws Exception {
      FileSystem own = fSys;
      own.setPermission(getTestRootPath(own, "test"), new FsPermission("777"));
      fSys = UserGroupInformation.createRemoteUser("nobody")
          .doAs((PrivilegedExceptionAction<FileSystem>) TestCluster::fileSystem);
      try {
        test.run();
      } finally {
        fSys = own;
      }
    }

    @Override
    public void testListStatusThrowsExceptionForUnreadableDir() throws Exception {
      asNobody(super::testListStatusThrowsExceptionForUnreadableDir);
    }

    @Override
    public void testGlobStatusThrowsExceptionForUnreadableDir() throws Exception {
      asNobody(super::testGlobStatusThrowsExceptionForUnreadableDir);
    }
  }

  private interface Run {
    void run() throws Exception;
  }
}

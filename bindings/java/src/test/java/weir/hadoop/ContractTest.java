package weir.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.contract.*;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

/** What Hadoop asks of every file system: its contract tests, on a cluster. */
@RunWith(Enclosed.class)
public class ContractTest {
  public static class Append extends AbstractContractAppendTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class BulkDelete extends AbstractContractBulkDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Concat extends AbstractContractConcatTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class ContentSummary extends AbstractContractContentSummaryTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Create extends AbstractContractCreateTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Delete extends AbstractContractDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class GetFileStatus extends AbstractContractGetFileStatusTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Mkdir extends AbstractContractMkdirTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Open extends AbstractContractOpenTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class PathHandle extends AbstractContractPathHandleTest {
    public PathHandle(String name, Options.HandleOpt[] options, boolean serialized) {
      super(name, options, serialized);
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Rename extends AbstractContractRenameTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class RootDirectory extends AbstractContractRootDirectoryTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Seek extends AbstractContractSeekTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class SetTimes extends AbstractContractSetTimesTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class Unbuffer extends AbstractContractUnbufferTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class VectoredRead extends AbstractContractVectoredReadTest {
    public VectoredRead(String buffers) {
      super(buffers);
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }

  public static class GetEnclosingRoot extends AbstractContractGetEnclosingRoot {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
      return new WeirContract(conf);
    }
  }
}

package weir.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** {@code weir://} for programs that use {@code FileContext}, as MapReduce does. */
public class WeirFs extends DelegateToFileSystem {
  public WeirFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new WeirFileSystem(), conf, WeirFileSystem.SCHEME, false);
  }

  @Override
  public int getUriDefaultPort() {
    return -1;
  }

  @Override
  public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
    // In one step, also over what is there.
    WeirFileSystem fs = (WeirFileSystem) fsImpl;
    fs.rename(from, to, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }
}

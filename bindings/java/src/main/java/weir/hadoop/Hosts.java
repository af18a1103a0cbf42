package weir.hadoop;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/** The names by which a scheduler knows the hosts of data servers. */
final class Hosts {
  /** {@code weirhost=schedulerhost}, separated by commas. */
  static final String KEY = "fs.weir.hosts";
  private final Map<String, String> names = new HashMap<>();

  /** Reads the mapping; {@code known}: the hosts that the cluster has. */
  Hosts(Configuration conf, Collection<String> known) throws IOException {
    for (String pair : conf.getTrimmedStringCollection(KEY)) {
      int at = pair.indexOf('=');
      String from = at < 0 ? "" : pair.substring(0, at).trim();
      String to = pair.substring(at + 1).trim();
      if (from.isEmpty() || to.isEmpty()) {
        throw new IOException(KEY + " has '" + pair
            + "': write weirhost=schedulerhost, separated by commas");
      }
      if (!known.contains(from)) {
        throw new IOException(KEY + " names the host '" + from
            + "', which is none of the cluster's data servers; those run on " + known
            + " (`weir status` lists them)");
      }
      names.put(from, to);
    }
  }

  String of(String host) {
    return names.getOrDefault(host, host);
  }
}

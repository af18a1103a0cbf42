package weir.hadoop;

import java.io.File;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.commons.io.FileUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.v2.MiniMRYarnCluster;
import org.apache.hadoop.net.TableMapping;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;

/**
 * YARN in this process, whose containers are processes of their own. Each machine that has a data
 * server has a NodeManager of its name, since a scheduler knows a machine by that alone. Hadoop's
 * small cluster calls all of its NodeManagers the same: only its masters are used.
 */
final class YarnCluster implements AutoCloseable {
  /** Also the place of what NodeManagers keep, and of the logs of containers. */
  static final File DIR = new File(System.getProperty("test.build.data"), "yarn").getAbsoluteFile();
  private static final int START_MS = 60_000;

  private final MiniMRYarnCluster masters = new MiniMRYarnCluster("yarn", 0);
  private final List<NodeManager> nodes = new ArrayList<>();

  /** The machines of the data servers, if each has a name of its own that leads to it. */
  static List<String> machines() {
    List<String> names = new ArrayList<>();
    for (String name : System.getProperty("weir.test.hosts", "").split(",")) {
      if (!name.isEmpty()) {
        names.add(name);
      }
    }
    return names;
  }

  YarnCluster() throws Exception {
    FileUtils.deleteDirectory(DIR);
    Files.createDirectories(DIR.toPath());
    List<String> hosts = machines();
    if (hosts.isEmpty()) {
      hosts = Collections.singletonList(MiniMRYarnCluster.getHostname());
    }
    try {
      masters.init(configured(hosts));
      masters.start();
      for (String host : hosts) {
        nodes.add(new NodeManager());
        nodes.get(nodes.size() - 1).init(ofNode(host));
        nodes.get(nodes.size() - 1).start();
      }
      awaitNodes();
    } catch (Exception | Error e) {
      close();
      throw e;
    }
  }

  private static Configuration configured(List<String> hosts) throws Exception {
    Configuration conf = new YarnConfiguration(TestCluster.conf());
    conf.set("yarn.app.mapreduce.am.staging-dir", "/yarn");
    conf.set("fs.weir.block.size", "1m");
    conf.set("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "200");
    conf.set("yarn.scheduler.minimum-allocation-mb", "256");
    conf.set("yarn.scheduler.capacity.root.queues", "default");
    conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
    // Each machine is a rack, and a task waits long for its own: where tasks run is no accident.
    conf.set("yarn.scheduler.capacity.rack-locality-additional-delay", "1000");
    StringBuilder racks = new StringBuilder();
    for (String host : hosts) {
      String address = InetAddress.getByName(host).getHostAddress();
      racks.append(host + " /rack-" + host + "\n" + address + " /rack-" + host + "\n");
    }
    File table = new File(DIR, "racks");
    Files.write(table.toPath(), racks.toString().getBytes(StandardCharsets.UTF_8));
    conf.set("net.topology.node.switch.mapping.impl", TableMapping.class.getName());
    conf.set("net.topology.table.file.name", table.getPath());
    return conf;
  }

  private Configuration ofNode(String host) {
    Configuration conf = new YarnConfiguration(masters.getConfig());
    for (String key : new String[] {YarnConfiguration.NM_ADDRESS,
        YarnConfiguration.NM_LOCALIZER_ADDRESS, YarnConfiguration.NM_WEBAPP_ADDRESS}) {
      conf.set(key, host + ":0");
    }
    conf.set(YarnConfiguration.NM_LOCAL_DIRS, new File(DIR, host + "-local").getPath());
    conf.set(YarnConfiguration.NM_LOG_DIRS, new File(DIR, host + "-logs").getPath());
    conf.setInt(YarnConfiguration.NM_PMEM_MB, 4096);
    conf.setInt(YarnConfiguration.NM_VCORES, 8);
    // A disk of this machine that is nearly full is enough for a test.
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage",
        "100");
    return conf;
  }

  private void awaitNodes() throws Exception {
    long until = System.currentTimeMillis() + START_MS;
    while (masters.getResourceManager().getResourceScheduler().getNumClusterNodes()
        < nodes.size()) {
      if (System.currentTimeMillis() > until) {
        throw new AssertionError("the NodeManagers have not joined within " + START_MS + " ms");
      }
      Thread.sleep(50);
    }
  }

  /** For jobs. Tasks find the cluster by its credential: they have an environment of their own. */
  Configuration conf() {
    Configuration conf = new Configuration(masters.getConfig());
    conf.set("fs.weir.credential", TestCluster.credential().getPath());
    conf.set("yarn.app.mapreduce.am.resource.mb", "512");
    conf.set("mapreduce.map.memory.mb", "256");
    conf.set("mapreduce.reduce.memory.mb", "256");
    conf.set("mapreduce.task.io.sort.mb", "32");
    conf.setBoolean("mapreduce.map.speculative", false);
    conf.setBoolean("mapreduce.reduce.speculative", false);
    String flags = "-Xmx200m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";
    conf.set("yarn.app.mapreduce.am.command-opts", flags);
    conf.set("mapreduce.map.java.opts", flags);
    conf.set("mapreduce.reduce.java.opts", flags);
    return conf;
  }

  @Override
  public void close() {
    nodes.forEach(NodeManager::stop);
    masters.stop();
  }
}

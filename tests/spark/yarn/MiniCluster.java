import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler;

/**
 * YARN with two node managers, and HDFS as its file system, until standard input ends: MiniCluster DIRECTORY prints
 * "ready" when DIRECTORY/conf has the files that clients need.
 */
public class MiniCluster {
    public static void main(String[] arguments) throws Exception {
        Path directory = Paths.get(arguments[0]).toAbsolutePath();
        System.setProperty("test.build.data", directory.resolve("build").toString());
        System.setProperty("test.build.dir", directory.resolve("build").toString());
        Configuration storage = new Configuration();
        storage.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, directory.resolve("hdfs").toString());
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(storage).numDataNodes(1).build();
        hdfs.waitActive();

        YarnConfiguration conf = new YarnConfiguration();
        conf.set("fs.defaultFS", hdfs.getURI().toString());
        conf.setClass(YarnConfiguration.RM_SCHEDULER, FifoScheduler.class, Object.class);
        conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 128);
        conf.setInt(YarnConfiguration.YARN_MINICLUSTER_NM_PMEM_MB, 4096);
        // The machine's own fullness, and how much its JVMs reserve, are not what is tested.
        conf.setFloat(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 99.9f);
        conf.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
        conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        MiniYARNCluster yarn = new MiniYARNCluster("mini", 2, 1, 1);
        yarn.init(conf);
        yarn.start();
        yarn.waitForNodeManagersToConnect(60_000);

        Path files = Files.createDirectories(directory.resolve("conf"));
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (OutputStream file = Files.newOutputStream(files.resolve(name))) {
                yarn.getConfig().writeXml(file);
            }
        }
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}

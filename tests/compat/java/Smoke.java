import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.streams.tests.SmokeTestClient;
import org.apache.kafka.streams.tests.SmokeTestDriver;
import org.apache.kafka.streams.tests.SmokeTestUtil.VerificationResult;

/**
 * Runs the parts of Kafka Streams' own smoke test in processes of their own, so that they
 * can be killed.
 *
 * <pre>
 * Smoke drive BROKER GUARANTEE KEYS RECORDS SECONDS   writes the input over about that time and verifies the results
 * Smoke work BROKER GUARANTEE NAME FOLDER             an instance of the application, until SIGTERM
 * </pre>
 */
public class Smoke {
  private static final int PARTITIONS = 4;

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "drive" -> drive(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5]));
      case "work" -> work(args[1], args[2], args[3], args[4]);
      default -> throw new IllegalArgumentException(args[0]);
    }
  }

  private static void drive(String broker, String guarantee, int keys, int records, int seconds) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", broker))) {
      List<NewTopic> topics = new ArrayList<>();
      for (String topic : SmokeTestDriver.topics()) {
        topics.add(new NewTopic(topic, PARTITIONS, (short) 1));
      }
      admin.createTopics(topics).all().get();
    }
    System.out.println("topics created");
    Map<String, Set<Integer>> input = SmokeTestDriver.generate(broker, keys, records, Duration.ofSeconds(seconds));
    boolean exactlyOnce = guarantee.startsWith("exactly");
    VerificationResult result = SmokeTestDriver.verify(broker, input, records, exactlyOnce);
    System.out.println(result.passed() ? "verified" : "not verified");
    System.exit(result.passed() ? 0 : 1);
  }

  private static void work(String broker, String guarantee, String name, String folder) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", broker);
    settings.put("processing.guarantee", guarantee);
    settings.put("state.dir", folder);
    settings.put("replication.factor", "1");
    settings.put("num.stream.threads", "1");
    settings.put("session.timeout.ms", "3000");
    settings.put("heartbeat.interval.ms", "500");
    // start returns when the instance has its share of the work, a hook closes it.
    new SmokeTestClient(name).start(settings);
  }
}

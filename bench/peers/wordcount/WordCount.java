import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The job of wordcount with Kafka Streams, until SIGTERM: a count for each word in a RocksDB store with its changelog.
 *
 * <pre>
 * WordCount BROKER FOLDER THREADS GUARANTEE COMMIT_MS CACHE_BYTES
 * </pre>
 *
 * COMMIT_MS 0 is the default of the guarantee. Without a cache each new count goes to the output and to the changelog,
 * with one the last of each commit interval does, as far as they fit.
 */
public class WordCount {
  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    settings.put("application.id", "wordcount-streams");
    settings.put("bootstrap.servers", args[0]);
    settings.put("state.dir", args[1]);
    settings.put("num.stream.threads", args[2]);
    settings.put("processing.guarantee", args[3]);
    settings.put("replication.factor", "1");
    settings.put("statestore.cache.max.bytes", args[5]);
    if (!args[4].equals("0")) {
      settings.put("commit.interval.ms", args[4]);
    }

    Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts = Materialized.as("counts");
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream("words", Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
        .count(counts.withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
        .toStream()
        .to("counts", Produced.with(Serdes.String(), Serdes.Long()));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch closed = new CountDownLatch(1);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      // A member that does not leave the group is waited for when the job starts again.
      streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
          .withTimeout(Duration.ofSeconds(60)));
      closed.countDown();
    }));
    streams.setStateListener((now, before) -> {
      if (now == KafkaStreams.State.ERROR) {
        System.err.println("the application has failed");
      }
    });
    streams.start();
    closed.await();
  }
}

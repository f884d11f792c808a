// Makes the *.batch files beside it with Apache Kafka's own classes (4.4.0). Needs the
// jars kafka-clients, snappy-java, lz4-java, zstd-jni and slf4j-api on the class path.
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.internals.*;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;

public class Vectors {
  static final Path OUT = Path.of(".");
  static byte[] bytes(ByteBuffer b) { byte[] a = new byte[b.remaining()]; b.duplicate().get(a); return a; }
  static void save(String name, ByteBuffer b) throws Exception { Files.write(OUT.resolve(name), bytes(b)); System.out.println(name + " " + b.remaining()); }
  static SimpleRecord[] records() {
    List<SimpleRecord> l = new ArrayList<>();
    Random r = new Random(7);
    for (int i = 0; i < 400; i++) {
      byte[] key = i % 7 == 3 ? null : ("key-" + (i % 31)).getBytes();
      byte[] value;
      if (i % 11 == 5) value = null;
      else if (i % 50 == 49) { value = new byte[700]; r.nextBytes(value); }
      else value = ("the quick brown fox " + i + " jumps over the lazy dog " + (i * i % 97) + " times").getBytes();
      Header[] hs = i % 13 == 0 ? new Header[]{ new RecordHeader("trace", ("id-" + i).getBytes()), new RecordHeader("none", (byte[]) null), new RecordHeader("", new byte[0]) } : new Header[0];
      l.add(new SimpleRecord(1700000000000L + (i * 37 % 101) * 10L, key, value, hs));
    }
    return l.toArray(new SimpleRecord[0]);
  }
  public static void main(String[] a) throws Exception {
    Compression[] cs = { Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(), Compression.zstd().build(), Compression.zstd().level(22).build(), Compression.gzip().level(9).build(), Compression.lz4().level(17).build() };
    String[] names = { "none", "gzip", "snappy", "lz4", "zstd", "zstd-22", "gzip-9", "lz4-17" };
    for (int i = 0; i < cs.length; i++)
      save("java-" + names[i] + ".batch", MemoryRecords.withIdempotentRecords(cs[i], 4242L, (short) 3, 100, records()).buffer());
    MemoryRecords one = MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(1700000000000L, "k".getBytes(), "v".getBytes(), new Header[]{ new RecordHeader("h", "x".getBytes()) }));
    System.out.println(HexFormat.of().formatHex(bytes(one.buffer())));
    for (ControlRecordType t : new ControlRecordType[]{ ControlRecordType.ABORT, ControlRecordType.COMMIT })
      System.out.println(t + " " + HexFormat.of().formatHex(bytes(MemoryRecords.withEndTransactionMarker(0L, 1700000000000L, -1, 4242L, (short) 3, new EndTransactionMarker(t, 9)).buffer())));
    // the cleaner: keep every third record, tombstones get a horizon
    MemoryRecords src = MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 1000L, Compression.NONE, TimestampType.CREATE_TIME, 4242L, (short) 3, 100, 5, false, records());
    ByteBuffer dst = ByteBuffer.allocate(1 << 20);
    src.filterTo(new MemoryRecords.RecordFilter(1700000100000L, 60000L) {
      protected BatchRetentionResult checkBatchRetention(RecordBatch b) { return new BatchRetentionResult(BatchRetention.DELETE_EMPTY, false); }
      protected boolean shouldRetainRecord(RecordBatch b, org.apache.kafka.common.record.internal.Record r) { return r.offset() % 3 == 0; }
    }, dst, BufferSupplier.NO_CACHING, 1 << 20);
    dst.flip(); save("java-cleaned.batch", dst);
    save("java-uncleaned.batch", src.buffer());
  }
}
